//! Turns the binary of each target, an emulated processor and a real control plane into proof that what ships runs.
//!
//! `make test-cross` builds what this needs and names it in `CROSS_BIN` (a folder with TRIPLE/release/nodepulse) and
//! `CROSS_QEMU` (a folder with QEMU's user mode). The processor emulated is the least that each target promises, so that
//! an instruction which some board lacks ends the program.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "cross/elf.rs"]
mod elf;
#[path = "support/loopback.rs"]
mod loopback;
#[path = "cross/proof.rs"]
mod proof;
#[path = "support/requests.rs"]
mod requests;
#[path = "cross/target.rs"]
mod target;
#[path = "cross/tls.rs"]
mod tls;
#[path = "support/trials.rs"]
mod trials;

use cluster::Options;
use nodepulse::config;
use std::process::ExitCode;

/// An emulator keeps a core busy while it translates.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    target::print_sizes();
    trials::run(AT_ONCE, Options::default, proof::cases())
}
