//! Turns the paths and flags of a command line into checked settings and a kubeconfig, files bounded.

use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::args::Sources;
use super::commands::{BOOT_CONFIGS, DEFAULT_CONFIG, DEFAULT_KUBECONFIG, exit};
use super::error::CliError;
use crate::config::kubeconfig::{Kubeconfig, Material};
use crate::config::settings::Token;
use crate::config::{self, Loaded, Settings, limits};
use crate::io::{clock, container_runtime, credentials, file, identity, network};
use crate::node::{self, NodeName};
use crate::probe::{self, Facts, Machine, Root};
use zeroize::Zeroizing;

/// The settings file to be read, if any.
pub fn settings_path(sources: &Sources) -> Option<&str> {
    sources.config.as_deref().or_else(|| first_there(DEFAULT_CONFIG, BOOT_CONFIGS))
}

fn first_there<'p>(default: &'p str, of_boot: [&'p str; 2]) -> Option<&'p str> {
    if is_there(default) {
        return Some(default);
    }
    // Where only root can look into the boot partition there usually is no such file: one that cannot be seen counts as absent.
    of_boot.into_iter().find(|path| Path::new(path).exists())
}

/// `--token-file -`: the token is the first line of `input`, which is there once only, so it stands for a flag from here on.
pub fn read_token(sources: &mut Sources, input: impl BufRead) -> Result<(), CliError> {
    if !sources.flags.iter().any(|(flag, value)| flag == "token-file" && value == "-") {
        return Ok(());
    }
    let mut line = String::new();
    let read = input.take(limits::CREDENTIAL_FILE_BYTES as u64).read_line(&mut line);
    let token = read.ok().map(|_| line.trim().to_owned()).filter(|token| !token.is_empty()).ok_or_else(|| {
        CliError::new(exit::USAGE, "--token-file -: standard input has no line with a token: write one, or name a file")
    })?;
    stand_for(sources, &token);
    Ok(())
}

/// From here on this is the token, and no file.
pub fn stand_for(sources: &mut Sources, token: &str) {
    sources.flags.retain(|(flag, _)| flag != "token-file");
    sources.flags.push(("token".to_owned(), token.to_owned()));
}

/// Settings file and flags, checked together.
pub fn settings(sources: &Sources) -> Result<Loaded, CliError> {
    let path = settings_path(sources);
    let text = path.map(|path| text_of(path, "settings file", "--config", limits::SETTINGS_FILE_BYTES)).transpose()?;
    let loaded = config::settings(path.zip(text.as_deref()), &sources.flags);
    let mut loaded = loaded.map_err(|problems| CliError::settings(&problems))?;
    let settings = &mut loaded.settings;
    if settings.token.is_none() && settings.bootstrap_kubeconfig.is_none() && settings.token_file.is_none() {
        settings.token_file = kept("token").filter(|path| is_there(path));
    }
    Ok(loaded)
}

/// The settings of a machine with this root, completed by what a cloud says of it (`cloudMetadata`); or why that is not known.
pub fn complete(settings: &mut Settings, root: &Root) -> Option<String> {
    let absent = probe::complete_by_cloud(settings, root).err()?;
    Some(format!("cloudMetadata: cloud-init says nothing of this machine ({absent})"))
}

/// Where the service manager keeps what it was given by that name (`LoadCredential=`).
fn kept(name: &str) -> Option<String> {
    std::env::var("CREDENTIALS_DIRECTORY").ok().map(|folder| format!("{folder}/{name}"))
}

/// The token to join with, if there is one, and that these settings say which server may have it.
pub fn token(settings: &Settings) -> Result<Option<Token>, CliError> {
    let Some(path) = &settings.token_file else { return Ok(settings.token.clone()) };
    let text = Zeroizing::new(text_of(path, "token file", "--token-file", limits::CREDENTIAL_FILE_BYTES)?);
    let token = Token::parse(text.trim()).map_err(str::to_owned);
    let token = token.and_then(|token| config::join::check_trust(&token, settings).map(|()| token));
    token.map(Some).map_err(|wrong| CliError::new(exit::CONFIG, format!("the token in {path}: {wrong}")))
}

/// Path of the kubeconfig that `settings` name, else of the one that the service manager keeps (`LoadCredential=`), else of
/// the default one.
pub fn kubeconfig_path(settings: &Settings) -> Result<String, CliError> {
    if let Some(path) = &settings.kubeconfig {
        return Ok(path.clone());
    }
    let found = kept("kubeconfig").into_iter().chain([DEFAULT_KUBECONFIG.to_owned()]).find(|path| is_there(path));
    found.ok_or_else(|| {
        let text = "no kubeconfig: give --kubeconfig FILE, set kubeconfig in the settings, or put it at";
        let advice = "or join a cluster: nodepulse help join; `nodepulse render` shows the Node without a cluster";
        CliError::new(exit::CONFIG, format!("{text} {DEFAULT_KUBECONFIG}; {advice}"))
    })
}

/// The kubeconfig at that path, or the one that this board has joined with; nothing where there is none and these settings
/// say how to join a cluster.
pub fn kubeconfig_or_join(settings: &Settings) -> Result<Option<Kubeconfig>, CliError> {
    let missing = match kubeconfig_path(settings) {
        Ok(_) => return kubeconfig(settings).map(Some),
        Err(missing) => missing,
    };
    let left = format!("{}/{}", identity_folder(settings), identity::LEFT);
    match joined(settings) {
        // Also where a power cut kept some of the identity.
        joined if (joined.is_some() || settings.can_join()) && Path::new(&left).exists() => {
            let text = "this board has left its cluster, and joins none by itself: nodepulse join SERVER --token TOKEN ends that, or";
            Err(CliError::new(exit::CONFIG, format!("{text}: rm {left}")))
        }
        Some(joined) => Ok(Some(joined)),
        None if settings.can_join() => check_token(settings).map(|()| None),
        None => Err(missing),
    }
}

/// A token that is there is one, and it is said who may have it; what is not there yet may come.
fn check_token(settings: &Settings) -> Result<(), CliError> {
    let is_to_come = settings.token_file.as_ref().is_some_and(|path| !Path::new(path).exists());
    if is_to_come { Ok(()) } else { token(settings).map(|_| ()) }
}

/// Where the files of this board's identity are.
pub fn identity_folder(settings: &Settings) -> String {
    format!("{}/{}", settings.state_directory, identity::FOLDER)
}

/// That of a board which has joined, and has its certificate still.
pub fn joined(settings: &Settings) -> Option<Kubeconfig> {
    let folder = identity_folder(settings);
    let path = format!("{folder}/{}", identity::KUBECONFIG);
    let text = file::read_text(&path, limits::SETTINGS_FILE_BYTES).ok()?;
    let kubeconfig = Kubeconfig::parse(&text, &path).ok()?;
    identity::kept_in(&folder).map(|_| kubeconfig)
}

/// Whether it is the one that a board of another name has joined with.
pub fn is_of_another(kubeconfig: &Kubeconfig, node_name: &str) -> bool {
    let is_joined = kubeconfig.path.ends_with(&format!("{}/{}", identity::FOLDER, identity::KUBECONFIG));
    let certified = credentials::node_name(kubeconfig).unwrap_or_default();
    is_joined && certified.is_some_and(|certified| certified != node_name)
}

/// The kubeconfig at that path.
pub fn kubeconfig(settings: &Settings) -> Result<Kubeconfig, CliError> {
    let path = kubeconfig_path(settings)?;
    let text = Zeroizing::new(text_of(&path, "kubeconfig", "--kubeconfig", limits::SETTINGS_FILE_BYTES)?);
    Kubeconfig::parse(&text, &path).map_err(|problem| CliError::settings(&[problem]))
}

/// The name of the Node.
pub fn node_name(settings: &Settings, machine: &Machine, kubeconfig: &Kubeconfig) -> Result<NodeName, CliError> {
    let certified = match credentials::node_name(kubeconfig) {
        // A name made up now may not be the one that it says later.
        Err(failure) if settings.hostname_override.is_none() && machine.hostname.is_err() => {
            let text = "it may say the name of this Node, as the host has none; or give --hostname-override NAME";
            return Err(CliError::new(exit::CONFIG, format!("{failure}: {text}")));
        }
        certified => certified.unwrap_or_default(),
    };
    Ok(node::node_name(settings, machine, certified.as_deref())?)
}

/// Every file that settings and kubeconfig are made of, and that `settings` name, once each; some may not be there.
pub fn files(sources: &Sources, settings: &Settings, kubeconfig: Option<&Kubeconfig>) -> Vec<String> {
    let own = kubeconfig_path(settings).ok();
    let mut files: Vec<&str> = own.as_deref().into_iter().chain(settings_path(sources)).collect();
    let to_join = [&settings.token_file, &settings.ca_file, &settings.bootstrap_kubeconfig];
    files.extend(to_join.into_iter().flatten().map(String::as_str));
    if let Some(kubeconfig) = kubeconfig {
        let materials = kubeconfig.certificate_authority.iter().chain(kubeconfig.credentials.materials());
        files.extend(materials.filter_map(Material::path));
    }
    files.sort_unstable();
    files.dedup();
    files.into_iter().map(str::to_owned).collect()
}

/// A function that finds the files that every user of this board may read or change and should not, each with its machine
/// word. It takes as long as the file system of the state directory needs to answer. On FAT, which has no owners, it always
/// finds some.
pub fn too_open_files(
    sources: &Sources,
    settings: &Settings,
    kubeconfig: Option<&Kubeconfig>,
) -> impl FnOnce() -> Vec<(&'static str, String)> + Send + use<> {
    let own = kubeconfig_path(settings).unwrap_or_default();
    let secret = kubeconfig
        .and_then(|kubeconfig| Some(kubeconfig.credentials.materials().last()?.path().map_or(own, str::to_owned)));
    let is_flag = sources.flags.iter().any(|(flag, _)| flag == "token");
    let holds_token = settings.token.is_some() && !is_flag;
    let mut secrets: Vec<String> = secret.into_iter().collect();
    secrets.extend(settings_path(sources).filter(|_| holds_token).map(str::to_owned));
    secrets.extend([&settings.token_file, &settings.bootstrap_kubeconfig].into_iter().flatten().cloned());
    secrets.dedup();
    let mut files = files(sources, settings, kubeconfig);
    files.push(settings.state_directory.clone());
    move || look_at(&secrets, &files)
}

fn look_at(secrets: &[String], files: &[String]) -> Vec<(&'static str, String)> {
    let mode = |path: &str| std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
    let read = secrets.iter().filter(|path| mode(path) & 0o004 != 0).map(|path| {
        let text =
            format!("{path} holds a secret that every user of this board may read: chmod o-rwx {path}, or on a FAT");
        ("open-secret", text + " partition the mount option umask=0027 with a gid")
    });
    let written = files.iter().filter(|path| mode(path) & 0o002 != 0).map(|path| {
        let text = format!(
            "{path} decides what this agent does, and every user of this board may change it: chmod o-w {path}"
        );
        ("open-to-change", text)
    });
    read.into_iter().chain(written).collect()
}

/// What is known of the board below the folder of `--root`, and what a person should know of that, one sentence each.
pub fn facts(root: &str, settings: &Settings) -> Result<(Facts, Vec<String>), CliError> {
    if !Path::new(root).is_dir() {
        // It would be a board without any facts.
        let text = "there is no such folder; name one with proc, sys and etc of a board in it";
        return Err(CliError::new(exit::USAGE, format!("--root {root}: {text}")));
    }
    let folder = Root::new(root);
    let mut facts = probe::facts(&folder, settings, clock::now().wall);
    if root == "/" {
        facts.network = network::with_live_addresses(facts.network);
        facts.readings.health.wall_clock = Some(clock::wall_clock());
        facts.readings.container_runtime = container_runtime::once(settings);
    }
    Ok((facts, probe::remarks(&folder)))
}

/// The events of `--from-events`; `-`: standard input.
pub fn events(path: &str) -> Result<String, CliError> {
    text_of(if path == "-" { "/dev/stdin" } else { path }, "list of events", "--from-events", limits::EVENTS_FILE_BYTES)
}

/// The folder of `targets/kubernetes`: where it was installed along with `program`, else where the source has it.
pub fn kubernetes_folder(program: &Path) -> String {
    let beside = program.parent().and_then(Path::parent).map(|prefix| prefix.join("share/nodepulse/kubernetes"));
    match beside.filter(|folder| folder.is_dir()) {
        Some(folder) => folder.display().to_string(),
        None => "targets/kubernetes".to_owned(),
    }
}

/// One of the files that people write, read to its limit and no further; `flag` names another one.
fn text_of(path: &str, what: &str, flag: &str, limit_bytes: usize) -> Result<String, CliError> {
    file::read_text(path, limit_bytes).map_err(|why| CliError::file(what, flag, path, &why))
}

/// True also where this user may not look: the attempt to read the file then says why.
fn is_there(path: &str) -> bool {
    Path::new(path).try_exists().unwrap_or(true)
}

#[cfg(test)]
mod tests;
