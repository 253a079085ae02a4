//! Turns the files of a board's identity into none: the board has left its cluster, and does not come back by itself (REV-3).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{identity, load};
use crate::api::{Class, Document, Operation, PatchAnswer};
use crate::config::Settings;
use crate::config::kubeconfig::Kubeconfig;
use crate::io::control::{self, Order};
use crate::io::disk::Disk;
use crate::io::identity::{LEFT, forget};
use crate::io::reactor::Reactor;
use crate::io::{Session, clock};
use crate::node::identity::another_board;
use crate::node::report;
use crate::probe::{self, Root};

/// Forgets the identity, and says what only an administrator can do.
pub fn leave(sources: &Sources) -> Result<String, CliError> {
    let settings = load::settings(sources)?.settings;
    let found = identity::read(sources)?;
    let Some(node) = found.certificate.as_ref().and_then(|certificate| certificate.node.clone()) else {
        let text = "this board has no certificate of a Node: there is no cluster to leave; nodepulse identity shows what it has";
        return Err(CliError::new(exit::CONFIG, text));
    };
    let (folder, directory) = (load::identity_folder(&settings), settings.state_directory.as_str());
    let failed = |error: io::Error| {
        let code = if error.kind() == ErrorKind::PermissionDenied { exit::NO_PERMISSION } else { exit::SOFTWARE };
        let text = format!("cannot forget the identity in {folder}: {error}; run as root, or see: df -h {folder}");
        CliError::new(code, text)
    };
    let kubeconfig = load::kubeconfig_or_join(&settings);
    // Held until the end: an agent that runs would write anew what is removed here, and the Node as it was.
    let _disk = match Disk::open(directory) {
        Ok((disk, ..)) => {
            stay_away(&folder, &node).map_err(failed)?;
            disk
        }
        Err(running) => {
            let agent = control::connect(directory).ok_or(running)?;
            // Whoever starts it again finds that it has left.
            stay_away(&folder, &node).map_err(failed)?;
            let _ = control::ask(agent, &Order::Stop);
            let_go(directory, LET_GO_WITHIN)?
        }
    };
    let told = kubeconfig.map_err(|error| error.to_string()).and_then(|kubeconfig| {
        let kubeconfig = kubeconfig.ok_or("the board knows no cluster".to_owned())?;
        take_leave(kubeconfig, &settings, &node)
    });
    forget(&folder).map_err(failed)?;
    let mut said = match told {
        Ok(()) => format!("Node {node} is not Ready any more (Left), and its Lease is deleted\n"),
        Err(why) => format!("Node {node} and its Lease stay as they are, as nobody could be told: {why}\n"),
    };
    said += &format!("{node} has forgotten its identity, and joins no more by itself\n");
    if let Ok(given) = load::kubeconfig_path(&settings) {
        said += &format!("it still has {given}, with which it would go on: rm {given}\n");
    }
    Ok(said + &format!("an administrator removes the Node, as a node may not: kubectl delete node {node}\n"))
}

/// The kernel lets go of a process's lock a moment after its connections have ended, or before: nobody says in which order.
const LET_GO_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The state directory, once the agent that has ended has let go of it.
fn let_go(directory: &str, within: Duration) -> Result<Disk, CliError> {
    let reactor = Reactor::new().map_err(|error| CliError::new(exit::SOFTWARE, error))?;
    let deadline = clock::up() + within;
    loop {
        match Disk::open(directory) {
            Err(_) if clock::up() < deadline => {
                let _ = reactor.block_on(reactor.sleep_until(clock::up() + LOOK_AGAIN));
            }
            opened => return Ok(opened?.0),
        }
    }
}

/// Ends what the API server believes of the board. What is not there, or another board's, needs no end.
fn take_leave(kubeconfig: Kubeconfig, settings: &Settings, name: &str) -> Result<(), String> {
    let session = Session::open(kubeconfig, settings, name).map_err(|problem| problem.to_string())?;
    let ask = |operation: Operation| {
        let answer = session.ask(operation).map_err(|problem| problem.to_string())?;
        match answer.result {
            Err(refusal) if refusal.class() == Class::Missing => Ok((None, answer.date)),
            Err(refusal) => Err(refusal.to_string()),
            Ok(document) => Ok((Some(document), answer.date)),
        }
    };
    if let (Some(Document::Node(node)), date) = ask(Operation::ReadNode { heartbeat: false })? {
        if let Some(other) = another_board(&node, &probe::machine(&Root::new("/"))) {
            return Err(format!("it is {other}"));
        }
        let stamp = date.or(clock::now().wall).ok_or("nobody knows the time".to_owned())?;
        ask(Operation::PatchStatus { body: report::left(name, stamp), answer: PatchAnswer::Metadata })?;
    }
    ask(Operation::DeleteLease).map(drop)
}

/// A board that was told to leave says so first: after a power cut between any two steps it stays away.
fn stay_away(folder: &str, node: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let left = format!("{folder}/{LEFT}");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(left)?;
    file.write_all(format!("{node}\n").as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Who joins has not left.
pub fn come_back(folder: &str) -> io::Result<()> {
    match fs::remove_file(format!("{folder}/{LEFT}")) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the agent is another process")]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_has_ended_may_let_go_of_its_directory_a_moment_later() {
        let folder = format!("{}/let-go-{}", std::env::temp_dir().display(), std::process::id());
        let (held, ..) = Disk::open(&folder).unwrap();
        let error = let_go(&folder, Duration::ZERO).err().unwrap();
        assert!(error.to_string().contains("is in use by process"), "{error}");
        let path = folder.clone();
        let waiting = std::thread::spawn(move || let_go(&path, Duration::from_secs(60)).is_ok());
        std::thread::sleep(LOOK_AGAIN * 10);
        drop(held);
        assert!(waiting.join().unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
