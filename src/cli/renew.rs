//! Turns a wish for a new certificate into what stands in its way.

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{identity, load};
use crate::io::disk::Disk;

/// Who renews is the agent that runs: it has the connection, and keeps the old certificate until the new one is proven.
pub fn renew(sources: &Sources) -> Result<(), CliError> {
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
    let due = certificate.life.due;
    // Its error names the process that has the directory.
    match Disk::open(&settings.state_directory) {
        Ok(_) => {
            let text = format!("no agent runs with {}: start it (systemctl start nodepulse)", settings.state_directory);
            Err(CliError::new(exit::SOFTWARE, format!("{text}; it renews the certificate by itself from {due} on")))
        }
        Err(running) => Err(running.into()),
    }
}
