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
use crate::io::{credentials, file, identity, network};
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
        Some(joined) => Ok(Some(joined)),
        None if settings.can_join() && Path::new(&left).exists() => {
            let text = "this board has left its cluster, and joins none by itself: nodepulse join SERVER --token TOKEN ends that, or";
            Err(CliError::new(exit::CONFIG, format!("{text}: rm {left}")))
        }
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
fn joined(settings: &Settings) -> Option<Kubeconfig> {
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
pub fn facts(root: &str, state_directory: &str) -> Result<(Facts, Vec<String>), CliError> {
    if !Path::new(root).is_dir() {
        // It would be a board without any facts.
        let text = "there is no such folder; name one with proc, sys and etc of a board in it";
        return Err(CliError::new(exit::USAGE, format!("--root {root}: {text}")));
    }
    let folder = Root::new(root);
    let mut facts = probe::facts(&folder, state_directory);
    if root == "/" {
        facts.network = network::with_live_addresses(facts.network);
    }
    Ok((facts, probe::remarks(&folder)))
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
mod tests {
    use super::*;

    fn of_kubeconfig(path: &str) -> String {
        let settings = Settings { kubeconfig: Some(path.to_owned()), ..Settings::default() };
        kubeconfig(&settings).unwrap_err().to_string()
    }

    #[test]
    fn a_kubeconfig_that_is_a_directory_says_so() {
        assert!(of_kubeconfig("/proc").starts_with("the kubeconfig /proc is a directory"));
    }

    #[test]
    fn a_kubeconfig_that_is_a_device_says_so() {
        assert!(of_kubeconfig("/dev/zero").starts_with("the kubeconfig /dev/zero is a device: name a file"));
    }

    #[test]
    fn a_board_without_a_name_makes_up_none_while_its_certificate_cannot_be_read() {
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                    clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                    users: [{name: u, user: {client-certificate: /nonexistent/node.crt, client-key: node.key}}]\n";
        let kubeconfig = Kubeconfig::parse(text, "/nonexistent/kubeconfig").unwrap();
        let mut machine = node::tests::samples::facts().machine;
        let named = Settings { hostname_override: Some("gate-7".to_owned()), ..Settings::default() };
        machine.hostname = Ok("gate-8".to_owned());
        assert_eq!(node_name(&Settings::default(), &machine, &kubeconfig).unwrap().name, "gate-8");
        machine.hostname = node::tests::samples::absent();
        assert_eq!(node_name(&named, &machine, &kubeconfig).unwrap().name, "gate-7");
        let error = node_name(&Settings::default(), &machine, &kubeconfig).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/node.crt"), "{error}");
    }

    #[test]
    fn what_a_cluster_needs_is_found_where_it_was_installed_else_in_the_source() {
        let prefix = std::env::temp_dir().join(format!("nodepulse-installed-{}", std::process::id()));
        let program = prefix.join("bin/nodepulse");
        assert_eq!(kubernetes_folder(&program), "targets/kubernetes");
        assert_eq!(kubernetes_folder(Path::new("")), "targets/kubernetes");
        let folder = prefix.join("share/nodepulse/kubernetes");
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(kubernetes_folder(&program), folder.display().to_string());
        std::fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn settings_on_the_boot_partition_are_read_where_there_are_no_others() {
        let folder = std::env::temp_dir().join(format!("nodepulse-boot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [etc, firmware, boot] = ["etc", "firmware", "boot"].map(|name| folder.join(name).display().to_string());
        let found = || first_there(&etc, [&firmware, &boot]).map(|path| path.rsplit('/').next().unwrap().to_owned());
        assert_eq!(found(), None);
        for (path, name) in [(&boot, "boot"), (&firmware, "firmware"), (&etc, "etc")] {
            std::fs::write(path, "").unwrap();
            assert_eq!(found().as_deref(), Some(name));
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!((DEFAULT_CONFIG, BOOT_CONFIGS[0]), ("/etc/nodepulse/config.yaml", "/boot/firmware/nodepulse.yaml"));
    }

    #[test]
    fn a_token_of_a_file_needs_what_one_of_the_settings_needs() {
        let folder = std::env::temp_dir().join(format!("nodepulse-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("token").display().to_string();
        let read = |text: &str, ca_file: Option<&str>| {
            std::fs::write(&path, text).unwrap();
            let [token_file, ca_file] = [Some(path.as_str()), ca_file].map(|path| path.map(str::to_owned));
            token(&Settings { token_file, ca_file, ..Settings::default() })
        };
        let of_kubeadm = " abcdef.0123456789abcdef\n";
        assert_eq!(read(of_kubeadm, Some("/ca")).unwrap().unwrap().as_str(), of_kubeadm.trim());
        let untrusted = read(of_kubeadm, None).unwrap_err().to_string();
        assert!(untrusted.starts_with(&format!("the token in {path}: nothing says")), "{untrusted}");
        for wrong in ["", "abcdef.0123456789abcdef\nabcdef.0123456789abcdef", "hunter2"] {
            let told = read(wrong, Some("/ca")).unwrap_err();
            assert!(
                told.code == exit::CONFIG
                    && !told.to_string().contains("012345")
                    && !told.to_string().contains("hunter")
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert!(read_missing(&path).contains("is not there: put it there, or name another with --token-file"));
        assert_eq!(token(&Settings::default()), Ok(None));
    }

    fn read_missing(path: &str) -> String {
        token(&Settings { token_file: Some(path.to_owned()), ..Settings::default() }).unwrap_err().to_string()
    }

    #[test]
    fn a_token_from_standard_input_is_its_first_line_and_stands_for_the_flag() {
        let sources = |value: &str| Sources {
            config: None,
            flags: vec![("token-file".to_owned(), value.to_owned()), ("zone".to_owned(), "a".to_owned())],
        };
        let read = |value: &str, input: &str| {
            let mut sources = sources(value);
            read_token(&mut sources, input.as_bytes()).map(|()| sources)
        };
        let typed = read("-", " abcdef.0123456789abcdef \nmore\n").unwrap();
        let flags: Vec<(&str, &str)> = typed.flags.iter().map(|(flag, value)| (&**flag, &**value)).collect();
        assert_eq!(flags, [("zone", "a"), ("token", "abcdef.0123456789abcdef")]);
        assert!(!format!("{typed:?} {typed:#?}").contains("0123456789"), "{typed:?}");
        assert_eq!(read("/t", "x").unwrap(), sources("/t"));
        for nothing in ["", "\n", "  \nabcdef.0123456789abcdef"] {
            assert_eq!(read("-", nothing).unwrap_err().code, exit::USAGE, "{nothing:?}");
        }
    }

    #[test]
    fn a_settings_file_that_was_named_must_exist() {
        let sources = Sources { config: Some("/nonexistent/config.yaml".to_owned()), flags: Vec::new() };
        let error = super::settings(&sources).unwrap_err();
        assert_eq!(error.code, crate::cli::commands::exit::CONFIG);
        assert!(error.to_string().starts_with("the settings file /nonexistent/config.yaml is not there"), "{error}");
    }

    #[test]
    fn what_everybody_may_read_or_change_is_named_with_its_remedy() {
        let folder = std::env::temp_dir().join(format!("nodepulse-open-{}", std::process::id()));
        let state = folder.join("state").display().to_string();
        std::fs::create_dir_all(&state).unwrap();
        let make = |name: &str| {
            let path = folder.join(name).display().to_string();
            std::fs::write(&path, "secret").unwrap();
            path
        };
        let [kubeconfig, token, settings_file] = ["kubeconfig", "token", "config.yaml"].map(make);
        let mode = |path: &str, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let user = |user: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            );
            Kubeconfig::parse(&text, "/nonexistent/kubeconfig").unwrap()
        };
        let settings =
            Settings { kubeconfig: Some(kubeconfig.clone()), state_directory: state.clone(), ..Settings::default() };
        let sources = Sources { config: Some(settings_file.clone()), flags: Vec::new() };
        let all = [&kubeconfig, &token, &settings_file, &state];
        let (by_file, by_text) = (user(&format!("{{tokenFile: {token}}}")), user("{token: secret}"));
        let told = |kubeconfig| {
            let told = too_open_files(&sources, &settings, Some(kubeconfig))().into_iter();
            told.map(|(word, text)| (word, text.split(' ').next().unwrap().to_owned())).collect::<Vec<_>>()
        };
        all.iter().for_each(|path| mode(path, 0o700));
        assert_eq!(told(&by_file), []);
        mode(&token, 0o744);
        assert_eq!(told(&by_file), [("open-secret", token.clone())]);
        assert_eq!(told(&by_text), []);
        mode(&kubeconfig, 0o704);
        assert_eq!(told(&by_text), [("open-secret", kubeconfig.clone())]);
        all.iter().for_each(|path| mode(path, 0o770));
        assert_eq!(told(&by_file), [], "a group is somebody's choice");
        for path in all {
            mode(path, 0o772);
            assert_eq!(told(&by_file), [("open-to-change", path.clone())]);
            mode(path, 0o770);
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(told(&user("{}")), []);
    }

    #[test]
    fn a_token_that_everybody_may_read_is_named_where_it_lies() {
        let folder = std::env::temp_dir().join(format!("nodepulse-open-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [config, token_file] = ["config.yaml", "token"].map(|name| {
            let path = folder.join(name).display().to_string();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            path
        });
        let state_directory = folder.display().to_string();
        let told = |flags: &[&str], settings: Settings| {
            let flags = flags.iter().map(|flag| ((*flag).to_owned(), "x".to_owned())).collect();
            let sources = Sources { config: Some(config.clone()), flags };
            let settings = Settings { state_directory: state_directory.clone(), ..settings };
            let told = too_open_files(&sources, &settings, None)();
            told.into_iter().map(|(word, text)| (word, text.split(' ').next().unwrap().to_owned())).collect::<Vec<_>>()
        };
        let with_token = || Settings { token: Token::parse("abcdef.0123456789abcdef").ok(), ..Settings::default() };
        assert_eq!(told(&[], with_token()), [("open-secret", config.clone())]);
        assert_eq!(told(&["token"], with_token()), [], "it was typed");
        assert_eq!(told(&[], Settings::default()), []);
        let of_file = Settings { token_file: Some(token_file.clone()), ..Settings::default() };
        assert_eq!(told(&[], of_file), [("open-secret", token_file.clone())]);
        let of_kubeconfig = Settings { bootstrap_kubeconfig: Some(token_file.clone()), ..Settings::default() };
        assert_eq!(told(&[], of_kubeconfig), [("open-secret", token_file)]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_may_not_be_looked_for_counts_as_there() {
        assert!(is_there("/proc") && !is_there("/proc/nothing"));
        assert!(is_there(&format!("/proc/{}", "x".repeat(5000))), "the kernel refuses to say");
    }
}
