//! Holds the labels of this machine, and of every board of `tests/boards`, against those of node-feature-discovery's own worker.
//!
//! `make test-nfd` builds that worker and names it in `NFD_WORKER`. What differs, and why, stands in `docs/labels.md`; whatever
//! else differs is a failure, in both directions.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Labels = BTreeMap<String, String>;

const PREFIX: &str = "feature.node.kubernetes.io/";
/// The worker asks for one, and with `-no-publish` turns to no server.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
     clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n";
/// The classes that we tell of, too.
const CONFIG: &str = "sources:\n  usb: {deviceClassWhitelist: ['02', '03', '08', '0a', '0e', ef, fe, ff]}\n\
     \u{20} pci: {deviceClassWhitelist: ['03', '0108', '0280', '0b40', '12']}\n";

/// Of x86 it tells these, too: every x86-64 has them, or only a kernel uses them.
const FOR_KERNELS: [&str; 20] = [
    "CETIBT",
    "CETSS",
    "CMPXCHG8",
    "FSRM",
    "FXSR",
    "FXSROPT",
    "HLE",
    "IA32_ARCH_CAP",
    "LAHF",
    "MOVBE",
    "OSXSAVE",
    "PSFD",
    "RTM",
    "SYSCALL",
    "SYSEE",
    "X86_64_V1",
    "X87",
    "XGETBV1",
    "XSAVE",
    "XSAVEC",
];

/// Numbers behind which a version goes on with anything, and a system that is named in `/usr/lib` alone: it does not know these.
const MORE: [&str; 8] = [
    "imx8-gateway: + system-os_release.VERSION_ID.minor=14",
    "rpi5: + kernel-version.major=6",
    "rpi5: + kernel-version.minor=12",
    "rpi5: + kernel-version.revision=25",
    "x86-gateway-offline-cpus: + system-os_release.ID=ubuntu",
    "x86-gateway-offline-cpus: + system-os_release.VERSION_ID.major=22",
    "x86-gateway-offline-cpus: + system-os_release.VERSION_ID.minor=04",
    "x86-gateway-offline-cpus: + system-os_release.VERSION_ID=22.04",
];

/// What the worker says, run where this folder is all that it sees.
fn theirs(root: Option<&Path>, scratch: &Path) -> Labels {
    let worker =
        std::env::var("NFD_WORKER").unwrap_or_else(|e| panic!("NFD_WORKER names the worker (make test-nfd): {e}"));
    let (mut command, files) = match root {
        Some(root) => {
            fs::copy(worker, root.join("nfd-worker")).unwrap();
            let mut command = Command::new("chroot");
            command.args([root, Path::new("/nfd-worker")]);
            (command, root)
        }
        None => (Command::new(worker), scratch),
    };
    fs::write(files.join("kubeconfig"), KUBECONFIG).unwrap();
    fs::write(files.join("nfd-worker.conf"), CONFIG).unwrap();
    let seen = root.map_or_else(|| scratch.display().to_string(), |_| String::new());
    command.args(["-oneshot", "-no-publish", "-v=1"]);
    command.args([format!("-kubeconfig={seen}/kubeconfig"), format!("-config={seen}/nfd-worker.conf")]);
    let ran = command.env("NODE_NAME", "edge-1").env("KUBERNETES_NAMESPACE", "nfd").output().unwrap();
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{said}");
    let (_, list) = said.split_once("\"feature discovery completed\" labels=<\n").unwrap_or_else(|| panic!("{said}"));
    let lines = list.lines().map_while(|line| line.strip_prefix('\t'));
    let parts = lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line:?}")));
    // Its master begins the names that have no domain.
    let key = |key: &str| if key.contains('/') { key.to_owned() } else { [PREFIX, key].concat() };
    parts.map(|(name, value)| (key(name), value.trim_matches('"').to_owned())).collect()
}

/// What `nodepulse probe` says of the same, but for our own names.
fn ours(root: &Path) -> Labels {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
    let ran = command.args(["probe", "-o", "json", "--root"]).arg(root).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let facts: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let labels = facts["machine"]["features"]["labels"].as_object().unwrap().clone();
    let labels = labels.into_iter().filter(|(key, _)| !key.starts_with("nodepulse.dev/"));
    labels.map(|(key, value)| (key, value.as_str().unwrap().to_owned())).collect()
}

/// What one has and the other has not, or has with another value: `-` theirs, `+` ours.
fn difference(theirs: &Labels, ours: &Labels) -> Vec<String> {
    let lines = |all: &Labels, other: &Labels, sign: &str| -> Vec<String> {
        let apart = all.iter().filter(|(key, value)| other.get(*key) != Some(*value));
        apart.map(|(key, value)| format!("{sign} {}={value}", key.strip_prefix(PREFIX).unwrap_or(key))).collect()
    };
    [lines(theirs, ours, "-"), lines(ours, theirs, "+")].concat()
}

/// A folder that goes with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("nodepulse-nfd-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&path, &to);
        } else if entry.file_type().unwrap().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path).unwrap(), &to).unwrap();
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// What a copy of sysfs has flat hangs there in each other, too: interfaces in their USB device; and where a machine has nothing of
/// a kind, there are empty folders.
fn complete(board: &Path) {
    for folder in
        ["sys/bus/usb/devices", "sys/bus/pci/devices", "sys/bus/node/devices", "sys/block", "sys/fs", "sys/bus/cpu"]
    {
        fs::create_dir_all(board.join(folder)).unwrap();
    }
    let usb = board.join("sys/bus/usb/devices");
    for entry in fs::read_dir(&usb).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Some((device, _)) = name.split_once(':') else { continue };
        if usb.join(device).is_dir() {
            copy(&entry.path(), &usb.join(device).join(&name));
        }
    }
    // A kernel has a folder of links to the processors; an owner's machine has all of these files for each device.
    let cpus = board.join("sys/devices/system/cpu");
    if cpus.join("cpu0/topology/thread_siblings_list").exists() {
        for cpu in fs::read_dir(&cpus).unwrap().flatten() {
            let folder = cpu.path().join("topology");
            if folder.is_dir() && !folder.join("physical_package_id").exists() {
                fs::write(folder.join("physical_package_id"), "0\n").unwrap();
            }
        }
        std::os::unix::fs::symlink("../../devices/system/cpu", board.join("sys/bus/cpu/devices")).unwrap();
        for entry in fs::read_dir(&cpus).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.strip_prefix("cpu").is_none_or(|number| number.parse::<u32>().is_err()) {
                let path = entry.path();
                if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
        }
    }
    for entry in fs::read_dir(board.join("sys/bus/pci/devices")).unwrap().flatten() {
        for name in ["device", "subsystem_vendor", "subsystem_device"] {
            fs::write(entry.path().join(name), "0x0000\n").unwrap();
        }
    }
}

#[test]
fn this_machine_has_the_labels_that_its_worker_would_give_it() {
    let scratch = Scratch::new("own");
    let mut theirs = theirs(None, &scratch.0);
    let ours = ours(Path::new("/"));
    assert!(ours.len() >= 10, "{ours:#?}");
    let is_told_by_us = |key: &str| {
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        let is_for_kernels = name.strip_prefix("cpu-cpuid.").is_some_and(|flag| {
            FOR_KERNELS.contains(&flag) || flag.starts_with("XSAVE") || flag.starts_with("SPEC_CTRL")
        });
        !(is_for_kernels || name == "cpu-model.hypervisor" || name.starts_with("kernel-config."))
    };
    theirs.retain(|key, _| is_told_by_us(key));
    assert_eq!(difference(&theirs, &ours), [""; 0]);
}

#[test]
fn every_board_has_the_labels_that_a_worker_would_give_it() {
    assert!(nix::unistd::geteuid().is_root(), "as root: a worker sees a board where that is all that it sees");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for board in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards")).unwrap().flatten() {
        if !board.path().is_dir() {
            continue;
        }
        let name = board.file_name().into_string().unwrap();
        let scratch = Scratch::new(&name);
        copy(&board.path(), &scratch.0);
        complete(&scratch.0);
        let (mut theirs, mut ours) = (theirs(Some(&scratch.0), &scratch.0), ours(&scratch.0));
        // It asks the processor itself, which is not the board's; and reads the kernel's configuration.
        let is_of_files = |key: &str| {
            let name = key.strip_prefix(PREFIX).unwrap_or(key);
            !["cpu-cpuid.", "cpu-model.", "kernel-config."].iter().any(|start| name.starts_with(start))
        };
        theirs.retain(|key, _| is_of_files(key));
        ours.retain(|key, _| is_of_files(key));
        compared += ours.len();
        wrong.extend(difference(&theirs, &ours).into_iter().map(|line| format!("{name}: {line}")));
    }
    wrong.sort_unstable();
    assert_eq!(wrong, MORE);
    assert!(compared >= 60, "{compared} labels");
}
