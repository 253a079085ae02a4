//! Turns changes to the files of an identity into system calls that a power cut may come between, in the folder that is the agent's
//! own user's alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use nix::libc::O_NOFOLLOW;

use super::{KUBECONFIG, NODE_PASSWORD, TOKEN};
use crate::identity::files::{FileStep, NODE, PENDING};
use crate::identity::unwritten::{Change, perform_all};

/// What an identity is made of, the secrets first.
const FILES: [&str; 5] = [PENDING, NODE, TOKEN, NODE_PASSWORD, KUBECONFIG];
/// Of a file, of what a power cut left of its successor, and of the one before it.
const SUFFIXES: [&str; 3] = ["", ".new", ".old"];

/// Names of those that were refused, and why the first of them was.
pub(super) fn write_all(folder: &str, changes: &[Change]) -> (Vec<&'static str>, String) {
    let mut why = make_folder(folder).err();
    let refused = perform_all(changes, &mut |name, steps, bytes| {
        let Err(error) = perform(steps, folder, name, bytes) else { return true };
        let _ = perform(&[FileStep::Remove(".new")], folder, name, &[]);
        // That a file has no second name is no reason.
        if steps.contains(&FileStep::SyncFolder) {
            why.get_or_insert(error);
        }
        false
    });
    (refused, why.map(|error| error.to_string()).unwrap_or_default())
}

/// Removes all that an identity is made of; what else is there stays.
pub fn forget(folder: &str) -> io::Result<()> {
    let files = FILES.iter().flat_map(|name| SUFFIXES.iter().map(move |suffix| (name, FileStep::Remove(suffix))));
    for (name, step) in files {
        perform(&[step], folder, name, &[])?;
    }
    perform(&[FileStep::SyncFolder], folder, "", &[])
}

/// Only for the agent's own user.
fn make_folder(folder: &str) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // Its name is in the folder above.
        Ok(()) => File::open(format!("{folder}/.."))?.sync_all(),
    }
}

fn perform(steps: &[FileStep], folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = |suffix: &str| format!("{folder}/{name}{suffix}");
    steps.iter().try_for_each(|step| match *step {
        FileStep::Remove(suffix) => match fs::remove_file(path(suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        FileStep::Write(suffix) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW);
            options.open(path(suffix))?.write_all(bytes)
        }
        FileStep::Sync(suffix) => File::open(path(suffix))?.sync_all(),
        FileStep::Rename(suffix) => fs::rename(path(suffix), path("")),
        FileStep::Link(suffix) => fs::hard_link(path(""), path(suffix)),
        FileStep::SyncFolder => File::open(folder)?.sync_all(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::LEFT;
    use super::*;
    use crate::io::loopback::TempFolder;

    #[test]
    fn nothing_of_an_identity_is_left_when_it_is_forgotten_not_even_what_a_power_cut_left() {
        let folder = TempFolder::new();
        let place = folder.path("identity");
        fs::create_dir(&place).unwrap();
        let names =
            ["pending.pem", "pending.pem.new", "node.pem", "node.pem.new", "node.pem.old", "token", "token.new"];
        for name in
            names.iter().chain(&["kubeconfig", "kubeconfig.new", "node-password", "node-password.new", LEFT, "notes"])
        {
            fs::write(format!("{place}/{name}"), "x").unwrap();
        }
        forget(&place).unwrap();
        let mut left: Vec<_> = fs::read_dir(&place).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [LEFT, "notes"]);
    }
}
