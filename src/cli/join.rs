//! Turns a server and a token into a board that is a Node of that cluster: the agent itself, run by a person until it is.

use nix::unistd::{Gid, Uid, chown, geteuid, setgid, setgroups, setuid};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{leave, load, run};
use crate::config::{Settings, limits};
use crate::io::file;
use crate::io::identity::LEFT;

/// Of the service, as the packages make it.
const SERVICE_USER: &str = "nodepulse";
/// Who the users of this board are.
const PASSWORDS: &str = "/etc/passwd";

/// Runs the agent, which joins; before that, says what is missing.
pub fn join(mut sources: Sources) -> Result<(), CliError> {
    let settings = load::settings(&sources)?.settings;
    // One that has joined needs neither again: it may be told of its cluster's new CA alone.
    let has_joined = load::joined(&settings).is_some();
    if !settings.can_join() && !has_joined {
        let text = "join needs a server: nodepulse join https://SERVER:6443 --token TOKEN --ca-hash sha256:HASH";
        return Err(CliError::new(exit::USAGE, text));
    }
    match load::token(&settings)? {
        // The service's user may not be able to read the file.
        Some(token) if settings.token_file.is_some() => load::stand_for(&mut sources, token.as_str()),
        Some(_) => {}
        None if settings.bootstrap_kubeconfig.is_some() || has_joined => {}
        None => {
            let text = "join needs a token: --token TOKEN, or --token-file - and the token on standard input; an administrator \
                makes one with: kubeadm token create --print-join-command, or k3s token create";
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
        Err(_) => {
            let passwords = file::read_text(PASSWORDS, limits::TABLE_BYTES).unwrap_or_default();
            let service = service_user(&passwords);
            service.map_or(Ok(()), |(user, group)| make_directory(directory, user, group))?;
            service
        }
    };
    let Some((user, group)) = owner.filter(|(user, _)| !user.is_root()) else { return Ok(()) };
    let became = setgroups(&[group]).and_then(|()| setgid(group)).and_then(|()| setuid(user));
    became.map_err(|errno| {
        let why = file::cause(&errno.into());
        CliError::new(exit::NO_PERMISSION, format!("cannot become user {user}, whose {directory} is: {why}"))
    })
}

/// User and group of the service, where there is one, by `name:password:user:group:...`. libc's way to ask would bring all of
/// its buffered files along: 10 kB.
fn service_user(passwords: &str) -> Option<(Uid, Gid)> {
    let fields = passwords.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.filter(|fields| fields.first() == Some(&SERVICE_USER)).find_map(|fields| {
        let number = |place: usize| fields.get(place)?.parse().ok();
        Some((Uid::from_raw(number(2)?), Gid::from_raw(number(3)?)))
    })
}

fn make_directory(directory: &str, user: Uid, group: Gid) -> Result<(), CliError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let made = made.and_then(|()| chown(directory, Some(user), Some(group)).map_err(Into::into));
    made.map_err(|error| CliError::new(exit::SOFTWARE, format!("cannot make {directory}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_service_is_the_one_of_its_name() {
        let passwords =
            "root:x:0:0:root:/root:/bin/sh\nnodepulse2:x:7:8::/:\nnodepulse:x:998:997:agent:/:/sbin/nologin\n";
        assert_eq!(service_user(passwords), Some((Uid::from_raw(998), Gid::from_raw(997))));
        for other in ["", "nodepulse", "nodepulse:x:one:1", "nodepulse2:x:7:8::/:"] {
            assert_eq!(service_user(other), None, "{other}");
        }
    }
}
