//! Turns settings into what the process can no longer do: once everything is open, it gives up what an agent never needs.
//!
//! Each step stands alone: one that a kernel does not have is said with its reason, and the agent goes on without. None may
//! ever stop an agent that worked before, with whatever libc and kernel come: so the kinds of system calls are listed that
//! are refused, not those that are allowed, and a refusal is an error that the caller gets, never the end of the process.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::credentials::TRUST_BUNDLES;
use super::file::cause;
use super::kernel;
use crate::config::limits;

mod filter;

/// What was given up, and which folders may still be read.
#[derive(Debug, Default)]
pub struct Sandbox {
    /// What is held to from now on; or what is not, and why.
    pub steps: Vec<Result<String, String>>,
    /// `None`: every file.
    readable: Option<Vec<PathBuf>>,
    lists_devices: bool,
}

/// Facts of the board, and what libc needs to find names: their files are replaced by renaming, so their folders.
const ALWAYS_READ: [&str; 9] =
    ["/proc", "/sys", "/etc", "/run", "/usr", "/lib", "/lib64", "/nix/store", "/var/lib/dbus"];

/// Its folders come and go with the devices, and a rule is about a folder that is there: so all of it, of which no file may be opened.
const DEVICES: &str = "/dev";

/// Files that may be links to elsewhere: OpenWrt has its `resolv.conf` in `/tmp`.
const LINKED: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/os-release", "/etc/machine-id"];

/// To read and write files of other users, as an agent that was started as root had to from the beginning: its credentials
/// and its state may belong to the service's own user.
const CAP_DAC_OVERRIDE: u32 = 1 << 1;

impl Sandbox {
    /// Gives up, on this thread and those it will start, everything but to read the board and these files (with all in
    /// their folders), and to write below `state_directory`; `None`: that does not answer, so nobody may look at it.
    /// `lists_devices`: names below [`DEVICES`] may be listed.
    pub fn enter(state_directory: Option<&str>, files: &[String], lists_devices: bool) -> Sandbox {
        let mut sandbox = Sandbox { lists_devices, ..Sandbox::default() };
        let privileges = set_no_new_privs();
        sandbox
            .steps
            .push(privileges.map(|()| "no new privileges".to_owned()).map_err(|errno| unavailable("prctl", errno)));
        // A service manager that has set the limit may also refuse the call.
        let is_limited = getrlimit(Resource::RLIMIT_CORE) == Ok((0, 0));
        let limited = if is_limited { Ok(()) } else { setrlimit(Resource::RLIMIT_CORE, 0, 0) };
        let core = set_dumpable(false).and(limited);
        let core = core.map(|()| "no memory in core files or debuggers".to_owned());
        sandbox.steps.push(core.map_err(|errno| unavailable("prctl or setrlimit", errno)));
        sandbox.steps.push(match kernel::keep_capabilities(CAP_DAC_OVERRIDE) {
            Ok(0) => Ok("no capabilities".to_owned()),
            Ok(_) => Ok("of root's capabilities only the one to open files of others".to_owned()),
            Err(errno) => Err(unavailable("capset", errno)),
        });
        let files = sandbox.keep_to_files(state_directory, files);
        sandbox.steps.push(files);
        sandbox.steps.push(filter::enter());
        sandbox
    }

    /// Of these files those that cannot be read before the next start.
    pub fn outside<'a>(&self, files: &'a [String]) -> Vec<&'a str> {
        let Some(readable) = &self.readable else { return Vec::new() };
        let is_inside = |path: &Path| readable.iter().any(|folder| path.starts_with(folder));
        let is_outside = |file: &&String| folders_of(file).iter().any(|folder| !is_inside(folder));
        files.iter().filter(is_outside).map(String::as_str).collect()
    }

    /// Whether the names below `/dev` may be listed.
    pub fn lists_devices(&self) -> bool {
        self.readable.is_none() || self.lists_devices
    }

    /// One line for the log.
    pub fn summary(&self) -> String {
        let held: Vec<&str> = self.steps.iter().filter_map(|step| step.as_deref().ok()).collect();
        let absent: Vec<&str> = self.steps.iter().filter_map(|step| step.as_ref().err().map(String::as_str)).collect();
        let held = held.join("; ");
        if absent.is_empty() { held } else { format!("{held}; not held: {}", absent.join("; ")) }
    }

    fn keep_to_files(&mut self, state_directory: Option<&str>, files: &[String]) -> Result<String, String> {
        let Some(state_directory) = state_directory else {
            return Err(
                "Landlock waits for the next start, as the state directory does not answer, so every file may be \
                        opened"
                    .to_owned(),
            );
        };
        let version = kernel::landlock_version().map_err(|errno| match errno {
            Errno::ENOSYS => {
                "this kernel has no Landlock (5.13 and newer can have it), so every file may be opened".to_owned()
            }
            Errno::EOPNOTSUPP => {
                "Landlock is switched off in this kernel (lsm= of its command line), so every file may be opened"
                    .to_owned()
            }
            errno => unavailable("Landlock", errno),
        })?;
        let is_there = Path::new(state_directory).is_dir();
        let handled = access::reading() | if is_there { access::changing(version) } else { 0 };
        let rules = kernel::landlock_rules(handled).map_err(|errno| unavailable("Landlock", errno))?;
        let mut readable: Vec<PathBuf> = ALWAYS_READ.map(PathBuf::from).to_vec();
        let linked = LINKED.into_iter().chain(TRUST_BUNDLES).chain(files.iter().map(String::as_str));
        linked.for_each(|file| readable.extend(folders_of(file)));
        for folder in &readable {
            allow(&rules, folder, access::reading());
        }
        if self.lists_devices {
            allow(&rules, Path::new(DEVICES), access::listing());
        }
        if is_there {
            allow(&rules, Path::new(state_directory), access::state(version));
            readable.push(PathBuf::from(state_directory));
        } else if let Some(above) = Path::new(state_directory).ancestors().find(|above| above.is_dir()) {
            // Who comes late is read like who is there.
            allow(&rules, above, access::reading());
            readable.push(above.to_owned());
        }
        kernel::landlock_enter(&rules).map_err(|errno| unavailable("Landlock", errno))?;
        self.readable = Some(readable);
        let written = if is_there {
            format!("writes below {state_directory} alone")
        } else {
            format!("writes anywhere until the next start, as {state_directory} is not there yet")
        };
        let listed = if self.lists_devices { "lists names below /dev, " } else { "" };
        Ok(format!("Landlock {version}: opens the board's own files and those of its settings, {listed}{written}"))
    }
}

/// What is not there needs no rule.
fn allow(rules: &std::os::fd::OwnedFd, folder: &Path, access: u64) {
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(folder);
    let Ok(folder) = opened else { return };
    let _ = kernel::landlock_allow(rules, folder, access);
}

/// The folder that a file is in, and those that links lead to from there. (Links on the way to a folder need no rule: it is
/// opened at its end.)
fn folders_of(file: &str) -> Vec<PathBuf> {
    let mut file = PathBuf::from(file);
    let mut folders = Vec::new();
    for _ in 0..limits::SYMBOLIC_LINKS {
        let folder = match file.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => break,
        };
        folders.push(folder.to_owned());
        match fs::read_link(&file) {
            Ok(target) => file = folder.join(target),
            Err(_) => break,
        }
    }
    folders
}

fn unavailable(what: &str, errno: Errno) -> String {
    format!("{what} is refused: {}", cause(&errno.into()))
}

/// Kinds of access (linux/landlock.h).
mod access {
    const WRITE_FILE: u64 = 1 << 1;
    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;
    const REMOVE_FILE: u64 = 1 << 5;
    const MAKE_DIR: u64 = 1 << 7;
    const MAKE_REG: u64 = 1 << 8;
    const TRUNCATE: u64 = 1 << 14;

    pub fn reading() -> u64 {
        READ_FILE | READ_DIR
    }

    pub fn listing() -> u64 {
        READ_DIR
    }

    /// Everything that changes a file system, as far as this version knows it: from `WRITE_FILE` to `MAKE_SYM`, then
    /// `TRUNCATE` from version 3 and `IOCTL_DEV` from version 5 on. To run a program is refused by the filter already.
    pub fn changing(version: u32) -> u64 {
        let first = WRITE_FILE | ((1 << 13) - (1 << 4));
        let from = |since: u32, bit: u32| if version >= since { 1_u64 << bit } else { 0 };
        first | from(2, 13) | from(3, 14) | from(5, 15)
    }

    /// What the state directory needs: files that are made, written, renamed and removed there, and one folder.
    pub fn state(version: u32) -> u64 {
        reading() | ((WRITE_FILE | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE) & changing(version))
    }
}
