//! Turns emulated boards, each with a kernel of its own, and a real control plane into proof that what ships works there.
//!
//! `make test-vm` makes what this needs and names it in `VM_BIN` (a folder with TRIPLE/release/nodepulse) and `VM_PARTS` (the
//! folder that `tests/vm/parts` prints). A board is switched on with a root file system of two programs, BusyBox and the
//! agent, and finds the API server on this machine's loopback. What it says on its console stays in a file.

#[path = "vm/archive.rs"]
mod archive;
#[path = "vm/board.rs"]
mod board;
#[path = "vm/cases.rs"]
mod cases;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "vm/machine.rs"]
mod machine;
#[path = "vm/monitor.rs"]
mod monitor;
#[path = "vm/relay.rs"]
mod relay;
#[path = "support/requests.rs"]
mod requests;
#[path = "vm/sandbox.rs"]
mod sandbox;
#[path = "vm/stamps.rs"]
mod stamps;
#[path = "support/trials.rs"]
mod trials;

use cluster::Options;
use std::net::IpAddr;
use std::process::ExitCode;

/// An emulated machine has no core to spare.
const AT_ONCE: usize = 1;

/// Under the name, too, by which a guest of ours calls it.
fn options() -> Options {
    Options { more_addresses: vec![IpAddr::from([10, 0, 2, 2])], ..Options::default() }
}

fn main() -> ExitCode {
    trials::run(AT_ONCE, options, cases::all())
}
