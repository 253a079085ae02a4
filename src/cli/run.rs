//! Turns settings into a running agent.

use std::sync::Arc;

use nix::unistd::geteuid;

use super::CliError;
use super::args::Sources;
use super::load::{self, kubeconfig};
use crate::io;
use crate::io::credentials;
use crate::io::sandbox::Sandbox;
use crate::probe::{self, Root};

/// Runs until SIGTERM.
pub fn run(sources: Sources) -> Result<(), CliError> {
    let loaded = load::settings(&sources)?;
    let kubeconfig = kubeconfig(&loaded.settings)?;
    let settings = loaded.settings;
    io::log::start(settings.verbosity);
    for notice in &loaded.notices {
        ::log::warn!(target: "settings", "{notice}");
    }
    if geteuid().is_root() {
        ::log::warn!(target: "root", "runs as root and needs not: give it a user of its own, as the services in targets/ do");
    }
    let root = Root::new("/");
    for remark in probe::remarks(&root) {
        ::log::warn!(target: "board", "{remark}");
    }
    let machine = probe::machine(&root);
    let (node_name, remark) = load::node_name(&settings, &machine, &kubeconfig)?;
    if let Some(remark) = remark {
        ::log::warn!(target: "node-name", "{remark}");
    }
    let (name, state_directory) = (node_name.clone(), settings.state_directory.clone());
    let (disk_root, disk_directory) = (root.clone(), settings.state_directory.clone());
    let start = io::Start {
        look_at_files: Box::new(load::open_to_all(&sources, &settings, &kubeconfig)),
        files: load::files(&sources, &settings, Some(&kubeconfig)),
        settings,
        kubeconfig,
        node_name,
        machine,
        root,
        read_settings: Arc::new(move |sandbox| {
            read_again(&sources, &name, &state_directory, sandbox).map_err(|error| error.to_string())
        }),
        read_disk: Arc::new(move |is_new| probe::state_disk(&disk_root, &disk_directory, is_new)),
    };
    io::run(start).map_err(CliError::Io)
}

/// SIGHUP: the same places again. Name and state directory cannot change under a running agent.
fn read_again(
    sources: &Sources,
    name: &str,
    state_directory: &str,
    sandbox: &Sandbox,
) -> Result<(crate::config::Settings, crate::config::kubeconfig::Kubeconfig), CliError> {
    let loaded = load::settings(sources)?;
    for notice in &loaded.notices {
        ::log::warn!(target: "settings", "{notice}");
    }
    if loaded.settings.hostname_override.as_deref().is_some_and(|wanted| wanted != name) {
        ::log::warn!(target: "settings", "hostnameOverride changed: it takes effect at the next start");
    }
    if loaded.settings.state_directory != state_directory {
        ::log::warn!(target: "settings", "stateDirectory changed: it takes effect at the next start");
    }
    tell_hidden(&load::files(sources, &loaded.settings, None), sandbox);
    let kubeconfig = kubeconfig(&loaded.settings)?;
    tell_hidden(&load::files(sources, &loaded.settings, Some(&kubeconfig)), sandbox);
    if let Ok(Some(other)) = credentials::node_name(&kubeconfig)
        && other != name
    {
        ::log::warn!(target: "node-name", "the client certificate is for system:node:{other}, and this process stays Node {name}");
    }
    Ok((loaded.settings, kubeconfig))
}

fn tell_hidden(files: &[String], sandbox: &Sandbox) {
    for file in sandbox.outside(files) {
        ::log::warn!(target: "sandbox", "{file} is in a folder that the sandbox does not open: it is read from the next start on");
    }
}
