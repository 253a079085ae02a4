//! Turns settings into a running agent.

use std::sync::Arc;

use nix::unistd::geteuid;

use super::args::Sources;
use super::error::CliError;
use super::load;
use super::means::means;
use crate::config::Settings;
use crate::config::kubeconfig::Kubeconfig;
use crate::config::settings::lists_devices;
use crate::io;
use crate::io::credentials;
use crate::io::sandbox::Sandbox;
use crate::node::{self, NodeName};
use crate::probe::{self, Root};

/// Runs until SIGTERM, or for a person who joins until the Node is Ready.
pub fn run(sources: Sources, ends_when_ready: bool) -> Result<(), CliError> {
    let loaded = load::settings(&sources)?;
    let kubeconfig = load::kubeconfig_or_join(&loaded.settings)?;
    let mut settings = loaded.settings;
    io::log::start(settings.verbosity);
    warn("settings", loaded.notices);
    if geteuid().is_root() {
        let text = "runs as root, which it does not need: give it a user of its own, as the services in targets/ do";
        warn("root", [text.to_owned()]);
    }
    let root = Root::new("/");
    warn("board", probe::remarks(&root));
    warn("cloud", load::complete(&mut settings, &root));
    let machine = probe::machine(&root);
    let NodeName { name: node_name, remarks, .. } = match &kubeconfig {
        Some(kubeconfig) => load::node_name(&settings, &machine, kubeconfig)?,
        None => node::node_name(&settings, &machine, None)?,
    };
    warn("node-name", remarks);
    // A card that was moved or cloned: this board joins under its own name (FLEET-1).
    let kubeconfig =
        kubeconfig.filter(|kubeconfig| !(settings.can_join() && load::is_of_another(kubeconfig, &node_name)));
    let known = (node_name.clone(), settings.hostname_override.clone(), settings.state_directory.clone());
    let is_typed = sources.flags.iter().any(|(flag, _)| flag == "token");
    let leaving = io::leaving::file(std::env::var("RUNTIME_DIRECTORY").ok().as_deref());
    io::leaving::forget(&leaving);
    let sources = Arc::new(sources);
    let sources_of_means = Arc::clone(&sources);
    let (disk_root, disk_directory) = (root.clone(), settings.state_directory.clone());
    let start = io::Start {
        ends_when_ready,
        look_at_files: Box::new(load::too_open_files(&sources, &settings, kubeconfig.as_ref())),
        files: load::files(&sources, &settings, kubeconfig.as_ref()).into_iter().chain([leaving.clone()]).collect(),
        leaving,
        settings,
        kubeconfig,
        node_name,
        last_reset: probe::last_reset(&root, &machine),
        machine,
        root,
        read_settings: Arc::new(move |sandbox| {
            read_again(&sources, &known, sandbox).map_err(|error| error.to_string())
        }),
        read_means: Arc::new(move |in_use| {
            let loaded = load::settings(&sources_of_means).map_err(|error| error.to_string())?;
            means(&loaded.settings, in_use, is_typed)
        }),
        read_disk: Arc::new(move |is_new| probe::state_disk(&disk_root, &disk_directory, is_new)),
    };
    Ok(io::run(start)?)
}

fn warn(topic: &str, texts: impl IntoIterator<Item = String>) {
    texts.into_iter().for_each(|text| ::log::warn!(target: topic, "{text}"));
}

/// SIGHUP: the same places again. What is `known` cannot change under a running agent: its name, the setting that this may
/// come from, and its state directory.
fn read_again(
    sources: &Sources,
    (name, wanted, state_directory): &(String, Option<String>, String),
    sandbox: &Sandbox,
) -> Result<(Settings, Option<Kubeconfig>), CliError> {
    let loaded = load::settings(sources)?;
    let mut settings = loaded.settings;
    warn("settings", loaded.notices);
    warn("cloud", load::complete(&mut settings, &Root::new("/")));
    let is_renamed =
        settings.hostname_override.as_ref().is_some_and(|other| other != name) && settings.hostname_override != *wanted;
    let is_moved = settings.state_directory != *state_directory;
    let changed = [("hostnameOverride", is_renamed), ("stateDirectory", is_moved)].into_iter().filter(|(_, is)| *is);
    warn("settings", changed.map(|(key, _)| format!("{key} changed: it takes effect at the next start")));
    let kubeconfig = load::kubeconfig_or_join(&settings);
    let files = load::files(sources, &settings, kubeconfig.as_ref().ok().and_then(Option::as_ref));
    let text = "is in a folder that the sandbox does not open: it is read from the next start on";
    warn("sandbox", sandbox.outside(&files).into_iter().map(|file| format!("{file} {text}")));
    if lists_devices(&settings.extended_resources) && !sandbox.lists_devices() {
        let text = "extendedResources has a pattern below /dev, which the sandbox does not list: it is counted from the next start on";
        warn("sandbox", [text.to_owned()]);
    }
    let kubeconfig = kubeconfig?;
    if let Some(Ok(Some(other))) = kubeconfig.as_ref().map(credentials::node_name)
        && other != *name
    {
        let text = format!("the client certificate is for system:node:{other}, and this process stays Node {name}");
        warn("node-name", [text]);
    }
    Ok((settings, kubeconfig))
}
