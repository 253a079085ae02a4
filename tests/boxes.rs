//! Turns the boxes that stand between boards and API servers into proof that a Node stays Ready behind them: HAProxy before the
//! members of a control plane, and nginx, which ends TLS.
//!
//! The programs are Debian's (`tests/boxes/parts`), set up as their users' documentation has it. Everything is on loopback, with
//! the agent's and the controller's own defaults: a renewal every 10 s, and 50 s until a silent Node is Unknown.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

#[path = "support/agent.rs"]
mod agent;
#[path = "boxes/cases.rs"]
mod cases;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "boxes/programs.rs"]
mod programs;
#[path = "support/requests.rs"]
mod requests;
#[path = "boxes/site.rs"]
mod site;
#[path = "support/trials.rs"]
mod trials;

use std::process::ExitCode;
use std::time::Duration;

/// Most of a case is waiting.
const AT_ONCE: usize = 8;

/// As a cluster has it where nobody says otherwise.
fn options() -> cluster::Options {
    let node_monitor_grace_period = Duration::from_secs(50);
    cluster::Options { node_monitor_grace_period, ..cluster::Options::default() }
}

fn main() -> ExitCode {
    trials::run(AT_ONCE, options, cases::all())
}
