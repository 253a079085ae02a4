//! What is told of a state directory that cannot be used: a machine word, and a sentence that says what to do about it.

use nix::errno::Errno;
use nix::unistd::geteuid;

use super::file::cause;
use crate::agent::{Level, Notice};

/// Another process has it.
pub const IN_USE: &str = "state-in-use";
/// There is no such file or directory.
pub const MISSING: &str = "state-missing";
/// It does not answer.
pub const SILENT: &str = "state-silent";
/// Nobody may write there.
pub const READ_ONLY: &str = "state-read-only";
/// The device gives errors.
pub const FAILING: &str = "state-failing";

fn notice(word: &'static str, text: String) -> Notice {
    Notice::new(Level::Warn, word, text)
}

/// `pid`: the process that has the directory, where the kernel tells.
pub fn in_use(path: &str, pid: Option<u32>) -> Notice {
    let whose = match pid {
        Some(pid) => format!("process {pid}"),
        None => "a process that is not to be seen from here, perhaps in another container".to_owned(),
    };
    let advice = "stop that one, or give this one a stateDirectory of its own";
    Notice::new(Level::Error, IN_USE, format!("{path} is in use by {whose}; {advice}"))
}

/// Something else has the name of the journal.
pub fn not_a_file(path: &str, what: &str) -> Notice {
    notice("journal-not-a-file", format!("{path} is {what}, not a journal; move it away: mv {path} {path}.old"))
}

/// The directory was not there when the process started, and has a journal that nobody has read.
pub fn unread(path: &str) -> Notice {
    let advice = "restart nodepulse to have it told: systemctl restart nodepulse";
    notice(
        "journal-unread",
        format!("{path} appeared after the start and holds what an earlier process wrote; {advice}"),
    )
}

pub fn silent(path: &str) -> Notice {
    notice(SILENT, format!("{path} does not answer; see what the kernel says of its file system: dmesg | tail"))
}

/// The system refused.
pub fn refused(doing: &str, path: &str, directory: &str, errno: Errno) -> Notice {
    let (word, advice) = match errno {
        Errno::ENOENT | Errno::ENOTDIR => (MISSING, format!("make the directory: mkdir -p -m 700 {directory}")),
        Errno::ENOSPC | Errno::EDQUOT => ("state-full", format!("see what fills the file system: df -h {directory}")),
        Errno::EROFS => {
            let advice = format!("see why it is read-only: dmesg | grep -i remount; findmnt -T {directory}");
            (READ_ONLY, advice)
        }
        Errno::EACCES | Errno::EPERM => {
            ("state-denied", format!("this process runs as user {}: see ls -ld {directory} {path}", geteuid()))
        }
        Errno::EIO | Errno::ENXIO | Errno::ENODEV | Errno::EUCLEAN | Errno::EBADMSG | Errno::ETIMEDOUT => {
            (FAILING, "see what the kernel says of the disk: dmesg | tail".to_owned())
        }
        _ => ("state-refused", "it is tried again; see what the kernel says: dmesg | tail".to_owned()),
    };
    notice(word, format!("cannot {doing} {path}: {}; {advice}", cause(&errno.into())))
}
