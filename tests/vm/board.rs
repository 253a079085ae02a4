//! Turns the name of an emulated board into the words with which QEMU makes it, and the files that it boots.

use super::cluster::Result;
use std::path::{Path, PathBuf};

/// A board that QEMU knows.
pub struct Board {
    /// As Debian calls its processor.
    architecture: &'static str,
    triple: &'static str,
    emulator: &'static str,
    /// Machine, processor and memory.
    machine: &'static [&'static str],
    /// What is plugged in as its network, with `netdev=` to come.
    pub network: &'static str,
    /// What a disk of it is, with `drive=` to come; without one its state is in memory.
    pub disk: Option<&'static str>,
    /// For the kernel: where its console is.
    pub kernel_line: &'static str,
    /// What names the board to its kernel, where the emulator does not.
    device_tree: Option<&'static str>,
    /// Serial ports before the console's.
    pub ports_before: usize,
}

pub const PC: Board = Board {
    architecture: "amd64",
    triple: "x86_64-unknown-linux-musl",
    emulator: "qemu-system-x86_64",
    machine: &["-machine", "q35", "-cpu", "max", "-m", "256M"],
    network: "virtio-net-pci",
    disk: None,
    kernel_line: "console=ttyS0",
    device_tree: None,
    ports_before: 0,
};

pub const ARM64: Board = Board {
    architecture: "arm64",
    triple: "aarch64-unknown-linux-musl",
    emulator: "qemu-system-aarch64",
    machine: &["-machine", "virt", "-cpu", "cortex-a53", "-m", "320M"],
    network: "virtio-net-pci",
    disk: Some("virtio-blk-pci"),
    kernel_line: "console=ttyAMA0",
    device_tree: None,
    ports_before: 0,
};

pub const ARMV7: Board = Board {
    architecture: "armhf",
    triple: "armv7-unknown-linux-musleabihf",
    emulator: "qemu-system-arm",
    machine: &["-machine", "virt,highmem=off", "-cpu", "cortex-a15", "-m", "320M"],
    network: "virtio-net-device",
    disk: None,
    kernel_line: "console=ttyAMA0",
    device_tree: None,
    ports_before: 0,
};

pub const RISCV64: Board = Board {
    architecture: "riscv64",
    triple: "riscv64gc-unknown-linux-musl",
    emulator: "qemu-system-riscv64",
    machine: &["-machine", "virt", "-m", "320M"],
    network: "virtio-net-pci",
    disk: Some("virtio-blk-pci"),
    kernel_line: "console=ttyS0",
    device_tree: None,
    ports_before: 0,
};

pub const RASPBERRY_PI_3B: Board = Board {
    architecture: "arm64",
    triple: "aarch64-unknown-linux-musl",
    emulator: "qemu-system-aarch64",
    machine: &["-machine", "raspi3b"],
    network: "usb-net",
    disk: None,
    kernel_line: "console=ttyS1,115200",
    device_tree: Some("bcm2837-rpi-3-b.dtb"),
    ports_before: 1,
};

impl Board {
    /// The static build for its processor.
    pub fn program(&self) -> Result<PathBuf> {
        self.built("release/nodepulse")
    }

    fn built(&self, path: &str) -> Result<PathBuf> {
        let program = folder("VM_BIN")?.join(self.triple).join(path);
        if program.is_file() { Ok(program) } else { Err(format!("{} is missing: make test-vm", program.display())) }
    }

    /// What tries to make the calls that the agent's filter refuses (`tests/vm/forbidden.c`).
    pub fn forbidden(&self) -> Result<PathBuf> {
        self.built("vm/forbidden")
    }

    /// What takes the later calls of its kernel away (`tests/support/old_kernel.c`).
    pub fn old_kernel(&self) -> Result<PathBuf> {
        self.built("vm/old_kernel")
    }

    /// A file that `tests/vm/parts` made for its processor.
    pub fn part(&self, name: &str) -> Result<PathBuf> {
        Ok(folder("VM_PARTS")?.join(self.architecture).join(name))
    }

    /// The emulator, the board and its kernel.
    pub fn command(&self) -> Result<Vec<String>> {
        let mut command = vec![self.emulator.to_owned()];
        command.extend(self.machine.iter().map(|word| (*word).to_owned()));
        command.extend(["-kernel".to_owned(), self.part("linux")?.display().to_string()]);
        if let Some(name) = self.device_tree {
            command.extend(["-dtb".to_owned(), self.part(name)?.display().to_string()]);
        }
        Ok(command)
    }
}

/// What `make test-vm` sets.
fn folder(variable: &str) -> Result<PathBuf> {
    let named = std::env::var_os(variable).filter(|value| !value.is_empty());
    let folder = named.map(PathBuf::from).ok_or_else(|| "it needs the parts of `make test-vm`".to_owned())?;
    if Path::new(&folder).is_dir() { Ok(folder) } else { Err(format!("{variable}: {} is no folder", folder.display())) }
}
