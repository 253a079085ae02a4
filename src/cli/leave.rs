//! Turns the files of a board's identity into none: the board has left its cluster, and does not come back by itself.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{identity, load};
use crate::io::disk::Disk;
use crate::io::identity::LEFT;

/// What an identity is made of, the secrets first; what else is there stays.
const FILES: [&str; 7] =
    ["pending.pem", "node.pem", "node.pem.old", "token", "node-password", "kubeconfig", "node.pem.new"];

/// Forgets the identity, and says what only an administrator can do.
pub fn leave(sources: &Sources) -> Result<String, CliError> {
    let settings = load::settings(sources)?.settings;
    let found = identity::read(sources)?;
    let Some(node) = found.certificate.as_ref().and_then(|certificate| certificate.node.clone()) else {
        let text = "this board has no certificate of a Node: there is no cluster to leave; nodepulse identity shows what it has";
        return Err(CliError::new(exit::CONFIG, text));
    };
    // Held until the end: an agent that runs would write anew what is removed here.
    let (_disk, ..) = Disk::open(&settings.state_directory)?;
    let folder = load::identity_folder(&settings);
    forget(&folder, &node).map_err(|error| {
        let code = if error.kind() == ErrorKind::PermissionDenied { exit::NO_PERMISSION } else { exit::SOFTWARE };
        CliError::new(
            code,
            format!("cannot forget the identity in {folder}: {error}; run as root, or see: df -h {folder}"),
        )
    })?;
    let mut said = format!("{node} has forgotten its identity, and joins no more by itself\n");
    if let Ok(given) = load::kubeconfig_path(&settings) {
        said += &format!("it still has {given}, with which it would go on: rm {given}\n");
    }
    Ok(said + &format!("an administrator removes the Node, as a node may not: kubectl delete node {node}\n"))
}

/// Whether this board was told to leave, it says so first: after a power cut between any two steps it stays away.
fn forget(folder: &str, node: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let left = format!("{folder}/{LEFT}");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(left)?;
    file.write_all(format!("{node}\n").as_bytes())?;
    file.sync_all()?;
    let directory = File::open(folder)?;
    directory.sync_all()?;
    for name in FILES {
        match fs::remove_file(format!("{folder}/{name}")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    directory.sync_all()
}

/// Who joins has not left.
pub fn come_back(folder: &str) -> io::Result<()> {
    match fs::remove_file(format!("{folder}/{LEFT}")) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
