//! Turns the stored Node, if there is one, and the pods bound to it into what only an administrator can mend of them.

use super::CliError;
use super::check::{Report, Verdict};
use crate::api::{Document, Operation};
use crate::config::Settings;
use crate::io::Session;
use crate::node::desired::{delete_pods_command, taint_command};

/// Adds what there is to say; nothing about a Node that is not there, or may not be read.
pub fn check(session: &Session, settings: &Settings, name: &str, report: &mut Report) -> Result<(), CliError> {
    let Ok(Document::Node(node)) = session.ask(Operation::ReadNode { heartbeat: false }).map_err(CliError::Io)?.result
    else {
        return Ok(());
    };
    if let Some(command) = taint_command(&node, name, settings) {
        let text = format!("Node {name} lacks taints that a node may not set later");
        report.trouble("taints", Verdict::Warning, text, command);
    }
    let pods = match session.ask(Operation::ListPods).map_err(CliError::Io)?.result {
        Ok(Document::Pods(pods)) if settings.podless && !pods.is_empty() => pods,
        _ => return Ok(()),
    };
    let text = format!("bound to Node {name}, and never run: {}", pods.join(", "));
    report.trouble("pods", Verdict::Warning, text, delete_pods_command(name));
    Ok(())
}
