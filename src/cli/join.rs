//! Turns a server and a token into a board that is a Node of that cluster: the agent itself, run by a person until it is.

use nix::unistd::{Gid, Uid, User, chown, geteuid, setgid, setgroups, setuid};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{leave, load, run};
use crate::config::Settings;
use crate::io::identity::LEFT;

/// Of the service, as the packages make it.
const SERVICE_USER: &str = "nodepulse";

/// Runs the agent, which joins; before that, says what is missing.
pub fn join(mut sources: Sources) -> Result<(), CliError> {
    let settings = load::settings(&sources)?.settings;
    if !settings.can_join() {
        let text = "join needs a server: nodepulse join https://SERVER:6443 --token TOKEN --ca-hash sha256:HASH";
        return Err(CliError::new(exit::USAGE, text));
    }
    match load::token(&settings)? {
        // The service's user may not be able to read the file.
        Some(token) if settings.token_file.is_some() => load::stand_for(&mut sources, token.as_str()),
        Some(_) => {}
        None if settings.bootstrap_kubeconfig.is_some() => {}
        None => {
            let text = "join needs a token: --token TOKEN, or --token-file - and the token on standard input; an administrator \
                makes one with: kubeadm token create --print-join-command";
            return Err(CliError::new(exit::USAGE, text));
        }
    }
    become_service(&settings)?;
    let folder = load::identity_folder(&settings);
    leave::come_back(&folder)
        .map_err(|error| CliError::new(exit::SOFTWARE, format!("cannot remove {folder}/{}: {error}", LEFT)))?;
    run::run(sources, true)
}

/// Where root joins a board for its service, everything is done as the service's user: no file of it belongs to another, at
/// no moment. Whose the state directory is, is the service.
fn become_service(settings: &Settings) -> Result<(), CliError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let directory = settings.state_directory.as_str();
    let owner = match fs::metadata(directory) {
        Ok(found) => Some((Uid::from_raw(found.uid()), Gid::from_raw(found.gid()))),
        Err(_) => match User::from_name(SERVICE_USER) {
            Ok(Some(user)) => {
                make_directory(directory, user.uid, user.gid)?;
                Some((user.uid, user.gid))
            }
            _ => None,
        },
    };
    let Some((user, group)) = owner.filter(|(user, _)| !user.is_root()) else { return Ok(()) };
    let became = setgroups(&[group]).and_then(|()| setgid(group)).and_then(|()| setuid(user));
    became.map_err(|errno| {
        CliError::new(exit::NO_PERMISSION, format!("cannot become user {user}, whose {directory} is: {errno}"))
    })
}

fn make_directory(directory: &str, user: Uid, group: Gid) -> Result<(), CliError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let made = made.and_then(|()| chown(directory, Some(user), Some(group)).map_err(Into::into));
    made.map_err(|error| CliError::new(exit::SOFTWARE, format!("cannot make {directory}: {error}")))
}
