//! Turns a triple into its program, and the program and arguments into what an emulated processor makes of them.

use super::cluster::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One of the targets that ship.
#[derive(Debug)]
pub struct Target {
    pub triple: &'static str,
    /// Of QEMU's user mode.
    emulator: &'static str,
    /// The least processor that the target promises to run on.
    pub processor: &'static str,
    /// `e_machine` of its ELF header.
    pub machine: u16,
    pub bits: u8,
    /// How large the program may be.
    pub goal_bytes: u64,
}

const GOAL_BYTES: u64 = 1_700_000;
const GOAL_BYTES_X86_64: u64 = 1_790_000;

pub const AARCH64: Target = Target {
    triple: "aarch64-unknown-linux-musl",
    emulator: "qemu-aarch64",
    processor: "cortex-a53",
    machine: 183,
    bits: 64,
    goal_bytes: GOAL_BYTES,
};
pub const ARMV7: Target = Target {
    triple: "armv7-unknown-linux-musleabihf",
    emulator: "qemu-arm",
    processor: "cortex-a9,neon=off,vfp-d32=off",
    machine: 40,
    bits: 32,
    goal_bytes: GOAL_BYTES,
};
pub const ARMV6: Target = Target {
    triple: "arm-unknown-linux-musleabihf",
    emulator: "qemu-arm",
    processor: "arm1176",
    machine: 40,
    bits: 32,
    goal_bytes: GOAL_BYTES,
};
pub const RISCV64: Target = Target {
    triple: "riscv64gc-unknown-linux-musl",
    emulator: "qemu-riscv64",
    processor: "sifive-u54",
    machine: 243,
    bits: 64,
    goal_bytes: GOAL_BYTES,
};
pub const X86_64: Target = Target {
    triple: "x86_64-unknown-linux-musl",
    emulator: "qemu-x86_64",
    processor: "qemu64",
    machine: 62,
    bits: 64,
    goal_bytes: GOAL_BYTES_X86_64,
};
const ALL: [&Target; 5] = [&AARCH64, &ARMV7, &ARMV6, &RISCV64, &X86_64];

impl Target {
    pub fn program(&self) -> Result<PathBuf> {
        let program = folder("CROSS_BIN")?.join(self.triple).join("release/nodepulse");
        if program.is_file() { Ok(program) } else { Err(format!("{} is missing: make test-cross", program.display())) }
    }

    /// The words before the program's own arguments.
    pub fn command(&self) -> Result<Vec<String>> {
        let words = [folder("CROSS_QEMU")?.join(self.emulator), "-cpu".into(), self.processor.into(), self.program()?];
        Ok(words.iter().map(|word| word.display().to_string()).collect())
    }

    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        let command = self.command()?;
        let (emulator, rest) = command.split_first().ok_or("no command")?;
        Command::new(emulator).args(rest).args(arguments).output().map_err(|e| format!("{emulator}: {e}"))
    }
}

/// What `make test-cross` sets.
fn folder(variable: &str) -> Result<PathBuf> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty());
    let folder = named.map(PathBuf::from).ok_or_else(|| "it needs the programs of `make test-cross`".to_owned())?;
    if Path::new(&folder).is_dir() { Ok(folder) } else { Err(format!("{variable}: {} is no folder", folder.display())) }
}

/// Each beside the goal; nothing where nothing is built.
pub fn print_sizes() {
    for target in ALL {
        if let Some(bytes) = target.program().ok().and_then(|program| program.metadata().ok()).map(|data| data.len()) {
            let percent = bytes * 100 / target.goal_bytes;
            let Target { triple, goal_bytes, .. } = target;
            println!("{triple:<31} {bytes:>9} bytes, {percent:>3} % of the {goal_bytes} it may have");
        }
    }
}
