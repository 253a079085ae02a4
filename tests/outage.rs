//! Turns a real control plane and agents in networks of their own into proof that no outage is forgotten or outlasted.
//!
//! Everything here, the control plane included, lives in a network namespace that ends with this process, and each agent
//! in one that ends with its case: nothing of this machine's network is touched, and nothing of ours is left behind.

#[path = "support/agent.rs"]
mod agent;
#[path = "outage/cases.rs"]
mod cases;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/fuse.rs"]
mod fuse;
#[path = "support/requests.rs"]
mod requests;
#[path = "support/trials.rs"]
mod trials;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Set in the second life of this program, which has a network of its own.
const INSIDE: &str = "OUTAGE_TEST_INSIDE";

/// Most of a case is waiting.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() && trials::networks().is_ok() {
        // Only returns if there is no such program, which has just been tried.
        eprintln!("outage: {}", in_own_network());
    }
    trials::run(AT_ONCE, cases::options, cases::all())
}

/// The same program again. What has to be built is built before: from inside nothing can be downloaded.
fn in_own_network() -> std::io::Error {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "sh", "-c"]).arg(cases::OUTER_NETWORK).arg("outage");
    if let (Ok(own), Ok(programs)) =
        (std::env::current_exe(), cluster::binaries::find(&cluster::binaries::CONTROL_PLANE))
    {
        for (name, path) in programs {
            command.env(format!("CLUSTER_{}", name.to_uppercase().replace('-', "_")), path);
        }
        return command.arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    }
    std::io::Error::other("the control plane cannot be built; the cases say why")
}
