//! Turns the built program and a real control plane into proof that the one is a Node of the other.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/harness.rs"]
mod harness;
#[path = "support/http1.rs"]
mod http1;
mod live;
#[path = "support/pkcs10.rs"]
mod pkcs10;
#[path = "support/requests.rs"]
mod requests;
#[path = "support/supervisor.rs"]
mod supervisor;
#[path = "support/trials.rs"]
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::held().unwrap_or_else(|| {
        trials::run(trials::PER_TWO_CORES, live::options, live::cases().into_iter().chain(harness::cases()).collect())
    })
}
