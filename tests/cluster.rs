//! Turns the built program and a real control plane into proof that the one is a Node of the other.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/harness.rs"]
mod harness;
#[path = "support/trials.rs"]
mod trials;

use cluster::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::held().unwrap_or_else(|| trials::run(Options::default, harness::cases()))
}
