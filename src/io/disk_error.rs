//! Turns what a state directory refuses into a sentence that says what to do about it.

use std::fmt;

use nix::errno::Errno;
use nix::unistd::geteuid;

/// Why the journal cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskError {
    /// Another process has the directory; its number, where the kernel tells.
    Held { path: String, pid: Option<u32> },
    /// Something else has the name of the journal.
    NotAFile { path: String, what: &'static str },
    /// The directory was not there when the process started, and has a journal that nobody has read.
    Unread { path: String },
    /// The file system does not answer.
    Silent { path: String },
    /// The system refused.
    System { doing: &'static str, path: String, directory: String, errno: Errno },
}

impl DiskError {
    /// The word of [`DiskError::Silent`].
    pub const SILENT: &str = "state-silent";

    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            DiskError::Held { .. } => "state-in-use",
            DiskError::NotAFile { .. } => "journal-not-a-file",
            DiskError::Unread { .. } => "journal-unread",
            DiskError::Silent { .. } => DiskError::SILENT,
            DiskError::System { errno, .. } => match errno {
                Errno::ENOENT | Errno::ENOTDIR => "state-missing",
                Errno::ENOSPC | Errno::EDQUOT => "state-full",
                Errno::EROFS => "state-read-only",
                Errno::EACCES | Errno::EPERM => "state-denied",
                _ => "state-failing",
            },
        }
    }

    /// There is no such file or directory.
    pub fn is_missing(&self) -> bool {
        matches!(self, DiskError::System { errno: Errno::ENOENT, .. })
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Held { path, pid: Some(pid) } => {
                write!(
                    f,
                    "{path} is in use by process {pid}; stop that one, or give this one a stateDirectory of its own"
                )
            }
            DiskError::Held { path, pid: None } => {
                write!(
                    f,
                    "{path} is in use by a process that is not to be seen from here, perhaps in another container; "
                )?;
                write!(f, "stop that one, or give this one a stateDirectory of its own")
            }
            DiskError::NotAFile { path, what } => {
                write!(f, "{path} is {what}, not a journal; move it away: mv {path} {path}.old")
            }
            DiskError::Unread { path } => {
                write!(f, "{path} appeared after the start and holds what an earlier process wrote; ")?;
                write!(f, "restart nodepulse to have it told: systemctl restart nodepulse")
            }
            DiskError::Silent { path } => {
                write!(f, "{path} does not answer; see what the kernel says of its file system: dmesg | tail")
            }
            DiskError::System { doing, path, directory, errno } => {
                write!(f, "cannot {doing} {path}: {}; ", errno.desc())?;
                match errno {
                    Errno::ENOENT | Errno::ENOTDIR => write!(f, "make the directory: mkdir -p -m 700 {directory}"),
                    Errno::ENOSPC | Errno::EDQUOT => write!(f, "see what fills the file system: df -h {directory}"),
                    Errno::EROFS => {
                        write!(f, "see why it is read-only: dmesg | grep -i remount; findmnt -T {directory}")
                    }
                    Errno::EACCES | Errno::EPERM => {
                        write!(f, "this process runs as user {}: see ls -ld {directory} {path}", geteuid())
                    }
                    _ => write!(f, "see what the kernel says of the disk: dmesg | tail"),
                }
            }
        }
    }
}

impl std::error::Error for DiskError {}
