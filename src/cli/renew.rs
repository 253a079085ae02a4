//! Turns a wish for a new certificate into what the agent that runs made of it, or into what stands in its way.

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{ask, identity, load};
use crate::io::control::Order;

/// Who renews is the agent that runs: it has the connection, and keeps the old certificate until the new one is proven.
pub fn renew(sources: &Sources) -> Result<String, CliError> {
    let settings = load::settings(sources)?.settings;
    let refused = |text: &str| Err(CliError::new(exit::CONFIG, text));
    let Some(certificate) = identity::read(sources)?.certificate else {
        return refused(
            "this board has no certificate that could be renewed: nodepulse join SERVER --token TOKEN gets one",
        );
    };
    if certificate.node.is_none() {
        return refused("the client certificate is for no Node (system:node:NAME), so a cluster would not renew it");
    }
    if !settings.rotate_certificates {
        return refused(
            "rotateCertificates is false: set it to true, and the agent renews the certificate when it is due",
        );
    }
    let (due, directory) = (certificate.life.due, &settings.state_directory);
    let agent = ask::agent(directory, &format!("; it renews the certificate by itself from {due} on"))?;
    let silence = format!("the agent says nothing: nodepulse identity shows what it has; it renews from {due} on");
    Ok(ask::ask(agent, &Order::Renew, silence)? + "\n")
}
