//! Turns each target into cases: what its file promises, what it says, and that it becomes a Node.

use super::agent::{Launch, ROOM_ON_DISK};
use super::cluster::{Cluster, Result, wait_until};
use super::elf::Elf;
use super::requests::{is_renewal, lines, wait_for_requests};
use super::target::{AARCH64, ARMV6, ARMV7, RISCV64, Target, X86_64};
use super::tls::{self, Server};
use super::trials::{Case, Need};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Emulated, beside another emulated one, on a machine that is busy.
const SOON: Duration = Duration::from_secs(60);
const RENEWALS: usize = 3;
/// More milliseconds than 32 bits hold, and more seconds than 28.
const UP_FOR: Duration = Duration::from_secs(12 * 365 * 86_400);

/// QEMU's user mode is a kernel without these, under which the agent goes on and `check` says so.
const NOT_EMULATED: [&str; 2] = ["this kernel has no Landlock (5.13", "the kernel takes no filter (seccomp)"];

/// `Tag_CPU_arch` of the ARM build attributes, and its value for ARMv6 with the security extensions of the ARM1176.
const CPU_ARCH: u64 = 6;
const V6: u64 = 6;
const V6KZ: u64 = 7;
const V6K: u64 = 9;
const V7: u64 = 10;
/// `Tag_THUMB_ISA_use`, and its value for the first Thumb, which is all that an ARMv6 knows.
const THUMB_ISA_USE: u64 = 9;
const THUMB_1: u64 = 1;
/// `Tag_RISCV_arch`.
const RISCV_ARCH: u64 = 5;
/// `EF_ARM_EABI_VER5`, with floats like other numbers, or in registers of their own; the same of RISC-V: compressed, doubles in registers.
const ARM_SOFT_FLOAT: u32 = 0x0500_0200;
const ARM_HARD_FLOAT: u32 = 0x0500_0400;
const RISCV_DOUBLE_FLOAT: u32 = 0x5;

macro_rules! cases_of {
    ($($target:ident: $file:literal, $says:literal, $boards:literal, $refuses:literal, $keys:literal, $node:literal;)+) => {
        vec![$(
            Case { name: $node, needs: &[Need::Emulator], run: |cluster| becomes_a_node(&$target, cluster) },
            Case { name: $boards, needs: &[Need::Emulator], run: |_| knows_the_boards(&$target) },
            Case { name: $says, needs: &[Need::Emulator], run: |_| says_what_it_is(&$target) },
            Case { name: $refuses, needs: &[Need::Emulator], run: |_| refuses_as_the_native_one(&$target) },
            Case { name: $keys, needs: &[Need::Emulator], run: |_| knows_every_kind_of_key(&$target) },
            Case { name: $file, needs: &[Need::Emulator], run: |_| promises_what_its_boards_have(&$target) },
        )+]
    };
}

#[rustfmt::skip]
pub fn cases() -> Vec<Case> {
    cases_of! {
        AARCH64: "aarch64_is_one_static_file", "aarch64_says_what_it_is", "aarch64_knows_the_boards", "aarch64_refuses", "aarch64_knows_every_kind_of_key", "aarch64_becomes_a_node";
        ARMV7: "armv7_is_one_static_file", "armv7_says_what_it_is", "armv7_knows_the_boards", "armv7_refuses", "armv7_knows_every_kind_of_key", "armv7_becomes_a_node";
        ARMV6: "armv6_is_one_static_file", "armv6_says_what_it_is", "armv6_knows_the_boards", "armv6_refuses", "armv6_knows_every_kind_of_key", "armv6_becomes_a_node";
        RISCV64: "riscv64_is_one_static_file", "riscv64_says_what_it_is", "riscv64_knows_the_boards", "riscv64_refuses", "riscv64_knows_every_kind_of_key", "riscv64_becomes_a_node";
        X86_64: "x86_64_is_one_static_file", "x86_64_says_what_it_is", "x86_64_knows_the_boards", "x86_64_refuses", "x86_64_knows_every_kind_of_key", "x86_64_becomes_a_node";
    }
}

fn promises_what_its_boards_have(target: &Target) -> Result<()> {
    let bytes = fs::read(target.program()?).map_err(|e| e.to_string())?;
    let elf = Elf::read(&bytes)?;
    assert_eq!((elf.bits, elf.machine), (target.bits, target.machine));
    assert!(!elf.has_interpreter(), "it wants a dynamic linker");
    assert!(!elf.needs_a_library()?, "it wants a shared library");
    assert!(!elf.has_executable_stack(), "its stack is executable");
    let goal_bytes = target.goal_bytes;
    assert!(bytes.len() as u64 <= goal_bytes, "{} bytes are more than {goal_bytes}", bytes.len());
    let tag = |wanted| -> Result<_> { Ok(elf.attributes()?.into_iter().find(|attribute| attribute.tag == wanted)) };
    match target.triple {
        "arm-unknown-linux-musleabihf" => {
            assert_eq!(elf.flags, ARM_SOFT_FLOAT);
            assert_eq!(tag(THUMB_ISA_USE)?.ok_or("in which instructions?")?.number, THUMB_1);
            let architecture = tag(CPU_ARCH)?.ok_or("for which ARM?")?.number;
            assert!([V6, V6KZ, V6K].contains(&architecture), "it is for architecture {architecture}");
        }
        "armv7-unknown-linux-musleabihf" => {
            assert_eq!(elf.flags, ARM_HARD_FLOAT);
            assert_eq!(tag(CPU_ARCH)?.ok_or("for which ARM?")?.number, V7);
        }
        "riscv64gc-unknown-linux-musl" => {
            assert_eq!(elf.flags, RISCV_DOUBLE_FLOAT);
            let named = tag(RISCV_ARCH)?.ok_or("for which RISC-V?")?.text;
            assert_eq!(beyond_rv64gc(&named), Vec::<&str>::new(), "{named}");
        }
        _ => {}
    }
    Ok(())
}

/// The extensions of `rv64i2p1_m2p0_..._zmmul1p0` that not every RV64GC board has. Some are parts of its own letters.
fn beyond_rv64gc(named: &str) -> Vec<&str> {
    const HAS: [&str; 13] =
        ["rv64i", "m", "a", "f", "d", "c", "zicsr", "zifencei", "zmmul", "zaamo", "zalrsc", "zca", "zcd"];
    let without_version = |part: &str| {
        let version =
            part.rfind('p').map_or(part.len(), |at| part[..at].trim_end_matches(|c: char| c.is_ascii_digit()).len());
        part[..version].to_owned()
    };
    named.split('_').filter(|part| !HAS.contains(&without_version(part).as_str())).collect()
}

fn says_what_it_is(target: &Target) -> Result<()> {
    let version = target.run(&["version"])?;
    let said = text(&version);
    assert!(version.status.success() && said.starts_with(concat!("nodepulse ", env!("CARGO_PKG_VERSION"))), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let probe = target.run(&["probe", "-o", "json"])?;
    assert!(probe.status.success(), "{}", text(&probe));
    let facts: Value = serde_json::from_slice(&probe.stdout).map_err(|e| format!("{e}: {}", text(&probe)))?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|e| e.to_string())?;
    assert!(facts.to_string().contains(kernel.trim()), "{facts:#}");
    Ok(())
}

/// What a board is does not depend on the processor that reads its files.
fn knows_the_boards(target: &Target) -> Result<()> {
    let boards = boards()?;
    assert!(boards.len() >= 10, "only {boards:?}");
    for board in boards {
        let arguments = ["probe", "--root", &board.display().to_string(), "-o", "json"].map(str::to_owned);
        let emulated = target.run(&arguments.each_ref().map(String::as_str))?;
        assert!(emulated.status.success(), "{}: {}", board.display(), text(&emulated));
        let golden = fs::read_to_string(board.join("golden-facts.json")).map_err(|e| e.to_string())?;
        let golden: Value = serde_json::from_str(&golden).map_err(|e| e.to_string())?;
        let facts: Value = serde_json::from_slice(&emulated.stdout).map_err(|e| e.to_string())?;
        assert_eq!(facts["machine"], golden["machine"], "{}", board.display());
    }
    Ok(())
}

fn boards() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
    Ok(folders.collect())
}

/// The same words and the same exit code as the program built for this machine.
fn refuses_as_the_native_one(target: &Target) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("nodepulse-cross-{}-{}", std::process::id(), target.triple));
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let settings = folder.join("config.yaml");
    let broken =
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nnodeLeaseDurationSeconds: 0\nmaxPodz: 5\n";
    fs::write(&settings, broken).map_err(|e| e.to_string())?;
    let garbage = folder.join("kubeconfig");
    fs::write(&garbage, [0xff, 0x00, b'\n', b'{', 0x80]).map_err(|e| e.to_string())?;
    let (settings, garbage) = (settings.display().to_string(), garbage.display().to_string());
    let tried: [(&[&str], i32); 5] = [
        (&["check", "--kubeconfig", "/nonexistent/kubeconfig"], 78),
        (&["check", "--config", &settings], 78),
        (&["check", "--kubeconfig", &garbage], 78),
        (&["check", "--kubeconfg", "x"], 64),
        (&["chekc"], 64),
    ];
    for (arguments, code) in tried {
        let emulated = target.run(arguments)?;
        let native =
            Command::new(env!("CARGO_BIN_EXE_nodepulse")).args(arguments).output().map_err(|e| e.to_string())?;
        assert_eq!((emulated.status.code(), text(&emulated)), (Some(code), text(&native)), "{arguments:?}");
    }
    fs::remove_dir_all(&folder).map_err(|e| e.to_string())
}

/// With a certificate that the server asks for, so that each kind of key is verified and signed with.
fn knows_every_kind_of_key(target: &Target) -> Result<()> {
    for way in tls::ways() {
        let server = Server::start(&way)?;
        let said = target.run(&["check", "--kubeconfig", &server.kubeconfig])?;
        let words = text(&said);
        assert!(said.status.success() && words.contains("answers, version v1.36.3"), "{}: {words}", way.name);
        assert_eq!(server.accepted(), 1, "{}: {words}", way.name);
        let is_told = |absent: &str| words.lines().any(|line| line.starts_with("warning ") && line.contains(absent));
        assert!(NOT_EMULATED.into_iter().all(is_told), "{words}");
    }
    Ok(())
}

fn becomes_a_node(target: &Target, cluster: &Cluster) -> Result<()> {
    let hint = target.triple.split('-').next().unwrap_or_default().replace('_', "-");
    let node = cluster.node(&hint)?;
    let (key, room) = ROOM_ON_DISK;
    let launch = Launch::quick(&node).set(key, room).program(target.command()?);
    let mut agent = launch.up_for(UP_FOR).start(cluster)?;
    cluster.wait_for_condition(&node.name, "Ready", "True", SOON)?;
    let requests = wait_for_requests(&cluster.api, &node, "three renewals", SOON, |all| {
        all.iter().filter(|entry| is_renewal(entry)).count() >= RENEWALS
    })?;
    let refused: Vec<_> = requests.iter().filter(|entry| entry.code >= 400 && entry.code != 404).collect();
    assert!(refused.is_empty(), "{:#?}", lines(&requests));
    wait_until("the Node to stay Ready", SOON, || {
        let ready = cluster.wait_for_condition(&node.name, "Ready", "True", Duration::ZERO);
        ready.map(drop).map(Ok::<(), String>).map_err(|e| e.to_string())
    })??;
    assert_eq!(agent.stop()?, 0, "{}", agent.said()?);
    Ok(())
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
