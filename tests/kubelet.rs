//! Turns a real kubelet on this machine into the measure that nodepulse is held against.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/harness.rs"]
mod harness;
mod side;
#[path = "support/trials.rs"]
mod trials;

use cluster::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cases = side::cases().into_iter().chain(harness::kubelet_cases()).collect();
    let code = trials::run(trials::PER_TWO_CORES, Options::default, cases);
    side::print_reports();
    code
}
