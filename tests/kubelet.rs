//! Turns a real kubelet on this machine into the measure that nodepulse is held against.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/harness.rs"]
mod harness;
#[path = "support/trials.rs"]
mod trials;

use cluster::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    trials::run(Options::default, harness::kubelet_cases())
}
