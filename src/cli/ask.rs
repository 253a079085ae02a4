//! Turns an order for the agent that runs into what it made of it, or into what stands in its way.

use std::os::unix::net::UnixStream;

use super::commands::exit;
use super::error::CliError;
use crate::io::control::{self, Order};
use crate::io::disk::Disk;

/// The agent that runs with this state directory. `besides`: what else is to be known where none does.
pub fn agent(directory: &str, besides: &str) -> Result<UnixStream, CliError> {
    let Some(agent) = control::connect(directory) else {
        // Its error names a process that has the directory and cannot be asked.
        Disk::open(directory)?;
        let text = format!("no agent runs with {directory}: start it (systemctl start nodepulse){besides}");
        return Err(CliError::new(exit::SOFTWARE, text));
    };
    Ok(agent)
}

/// What came of it, in its words. `silence`: what is said where it ends before it answers.
pub fn ask(agent: UnixStream, order: &Order, silence: impl Into<String>) -> Result<String, CliError> {
    let told = control::ask(agent, order).ok().flatten().unwrap_or_else(|| Err(silence.into()));
    told.map_err(|why| CliError::new(exit::SOFTWARE, why))
}
