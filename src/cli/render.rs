//! Turns facts and settings into the Node that `run` would register, without a cluster (TR-9).

use serde_json::Value;

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::load;
use crate::io::clock;
use crate::node::{Board, NodeName, Remembered, Update, condition, initial, kubelet_version, node_name};
use crate::probe::Root;
use crate::time::Wall;

/// The Node as JSON, and what could not be filled in, one sentence each.
pub fn render(sources: &Sources, root: &str) -> Result<(Value, Vec<String>), CliError> {
    let loaded = load::settings(sources)?;
    let mut settings = loaded.settings;
    let of_cloud = load::complete(&mut settings, &Root::new(root));
    let (facts, remarks) = load::facts(root, &settings)?;
    let kubeconfig = if root == "/" { load::kubeconfig(&settings).ok() } else { None };
    let NodeName { name, remarks: of_name, .. } = match kubeconfig {
        Some(kubeconfig) => load::node_name(&settings, &facts.machine, &kubeconfig)?,
        None => node_name(&settings, &facts.machine, None)?,
    };
    let now = clock::now();
    let board = Board {
        settings: &settings,
        facts: &facts,
        name: &name,
        kubelet_version: &kubelet_version(None),
        conditions: &condition::first_look(&settings, &facts, now.up),
        stamp: now.wall.unwrap_or(Wall::from_unix_seconds(0)),
    };
    let Update { node, problems, .. } = initial(&board, &Remembered::default());
    let body = crate::node::patch::create_body(&node);
    let node = serde_json::from_slice(body.as_bytes()).map_err(|error| CliError::new(exit::SOFTWARE, error))?;
    let mut notes = loaded.notices;
    notes.extend(of_cloud);
    notes.extend(of_name);
    notes.extend(remarks);
    notes.extend(problems.iter().map(ToString::to_string));
    Ok((node, notes))
}
