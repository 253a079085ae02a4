//! Turns a real control plane that signs certificates for seconds into proof that a board gets its identity and keeps it.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($needs:expr, $($run:ident),+ $(,)?) => {
        vec![$(super::trials::Case { name: stringify!($run), needs: $needs, run: $run }),+]
    };
}

#[path = "support/agent.rs"]
mod agent;
#[path = "joining/another_ca.rs"]
mod another_ca;
#[path = "joining/clones.rs"]
mod clones;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "joining/commands.rs"]
mod commands;
#[path = "joining/disks.rs"]
mod disks;
#[path = "joining/first.rs"]
mod first;
#[path = "support/http1.rs"]
mod http1;
#[path = "support/impostor.rs"]
mod impostor;
#[path = "joining/join.rs"]
mod join;
#[path = "joining/oracle.rs"]
mod oracle;
#[path = "support/pkcs10.rs"]
mod pkcs10;
#[path = "joining/renewal.rs"]
mod renewal;
#[path = "support/requests.rs"]
mod requests;
#[path = "joining/rotation.rs"]
mod rotation;
#[path = "joining/several_servers.rs"]
mod several_servers;
#[path = "support/trials.rs"]
mod trials;
#[path = "joining/typed.rs"]
mod typed;
#[path = "joining/ways.rs"]
mod ways;

use cluster::Options;
use std::process::ExitCode;
use std::time::Duration;

/// A signer dates certificates back by five minutes, so this is how long one is still good when it comes.
const LIFE: Duration = Duration::from_secs(40);

/// The same, or what `CERTIFICATE_SECONDS` says.
fn life() -> Duration {
    let asked = std::env::var("CERTIFICATE_SECONDS").ok().and_then(|text| text.parse().ok());
    asked.map_or(LIFE, Duration::from_secs)
}

fn options() -> Options {
    Options { signing_duration: life(), ..Options::default() }
}

fn main() -> ExitCode {
    let cases = [
        disks::cases(),
        ways::cases(),
        clones::cases(),
        join::cases(),
        commands::cases(),
        rotation::cases(),
        renewal::cases(),
        first::cases(),
        several_servers::cases(),
        another_ca::cases(),
        oracle::cases(),
        typed::cases(),
    ];
    trials::run(trials::PER_TWO_CORES, options, cases.into_iter().flatten().collect())
}
