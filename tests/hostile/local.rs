//! Turns files of a board into what a dying card, a careless person or somebody else with a shell may leave there.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

type Done = Result<(), String>;

/// As large as a journal may be, whatever is in it.
const JOURNAL_BYTES: usize = 1 << 20;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A pipe that nobody writes to, in the place of a file.
fn put_pipe(path: &Path) -> Done {
    remove(path)?;
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(text)
}

fn remove(path: &Path) -> Done {
    match fs::symlink_metadata(path) {
        Ok(_) => fs::remove_file(path).map_err(text),
        Err(_) => Ok(()),
    }
}

pub fn nothing(_: &Path) -> Done {
    Ok(())
}

pub fn uplink_is_a_pipe(folder: &Path) -> Done {
    put_pipe(&folder.join("state/uplink"))
}

pub fn journal_is_a_pipe(folder: &Path) -> Done {
    put_pipe(&folder.join("state/journal"))
}

pub fn journal_is_a_directory(folder: &Path) -> Done {
    fs::create_dir(folder.join("state/journal")).map_err(text)
}

/// Every second byte begins a frame whose sum has to be made over the next 3,845.
pub fn journal_of_beginnings(folder: &Path) -> Done {
    fs::write(folder.join("state/journal"), [0xf5, 0x0e].repeat(JOURNAL_BYTES / 2)).map_err(text)
}

pub fn kubeconfig_becomes_a_pipe(folder: &Path) -> Done {
    put_pipe(&folder.join("node.kubeconfig"))
}

pub fn kubeconfig_becomes_a_directory(folder: &Path) -> Done {
    let path = folder.join("node.kubeconfig");
    if !path.is_dir() {
        remove(&path)?;
        fs::create_dir(&path).map_err(text)?;
    }
    Ok(())
}

/// The kernel's log, which has no end: a reader waits for the next line.
pub fn kubeconfig_becomes_the_kernels_log(folder: &Path) -> Done {
    let path = folder.join("node.kubeconfig");
    remove(&path)?;
    symlink("/proc/kmsg", path).map_err(text)
}

pub fn settings_become_a_pipe(folder: &Path) -> Done {
    put_pipe(&folder.join("settings.yaml"))
}

pub fn key_becomes_a_pipe(folder: &Path) -> Done {
    put_pipe(&folder.join("node.key"))
}

pub fn authority_becomes_endless(folder: &Path) -> Done {
    let path = folder.join("node-ca.crt");
    remove(&path)?;
    symlink("/dev/zero", path).map_err(text)
}
