//! Turns the head of a program into the name that Go has for its processor: images are pulled for the userland, not for the
//! kernel.
//!
//! ```text
//! 00: 7f 45 4c 46 02 01 ..     ELF; class 1: 32, 2: 64 bits; byte order 1: little, 2: big
//! 10: .. .. b7 00              machine: 183
//! ```

use super::facts::{Absent, Fact, Why, first_known};
use super::root::Root;

/// What every userland has one of.
const PROGRAMS: [&str; 4] = ["/bin/sh", "/sbin/init", "/bin/busybox", "/usr/bin/env"];

/// Of `/` that of this program, which runs there; else that of a program below the root.
pub(super) fn of_root(root: &Root) -> Fact<String> {
    if root.is_own() {
        return Ok(own().to_owned());
    }
    let read = |path: &str| {
        let named = of_program(&root.read_attribute(path)?);
        named.map(str::to_owned).map_err(|why| Absent::new(path, why))
    };
    let [first, others @ ..] = PROGRAMS;
    others.into_iter().fold(read(first), |found, path| first_known(found, || read(path)))
}

/// What this program was compiled for.
fn own() -> &'static str {
    go_name(std::env::consts::ARCH, cfg!(target_endian = "little"))
}

fn of_program(head: &[u8]) -> Result<&'static str, Why> {
    let &[0x7f, b'E', b'L', b'F', class, order, _, _, _, _, _, _, _, _, _, _, _, _, low, high, ..] = head else {
        return Err(Why::Malformed("no ELF program".to_owned()));
    };
    let is_little = order == 1;
    let machine = if is_little { [low, high] } else { [high, low] };
    let rust = match (u16::from_le_bytes(machine), class) {
        (3, 1) => "x86",
        (8, 1) => "mips",
        (8, 2) => "mips64",
        (21, 2) => "powerpc64",
        (22, 2) => "s390x",
        (40, 1) if is_little => "arm",
        (43, 2) => "sparc64",
        (62, 2) => "x86_64",
        (183, 2) if is_little => "aarch64",
        (243, 2) => "riscv64",
        (258, 2) => "loongarch64",
        (machine, _) => return Err(Why::Malformed(format!("Go has no name for programs of ELF machine {machine}"))),
    };
    Ok(go_name(rust, is_little))
}

/// The same machine has another name in Go; Rust's own where Go has no port.
fn go_name(rust: &'static str, is_little: bool) -> &'static str {
    match (rust, is_little) {
        ("aarch64", _) => "arm64",
        ("x86", _) => "386",
        ("x86_64", _) => "amd64",
        ("mips", true) => "mipsle",
        ("mips64", true) => "mips64le",
        ("powerpc64", false) => "ppc64",
        ("powerpc64", true) => "ppc64le",
        ("loongarch64", _) => "loong64",
        (same, _) => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(class: u8, order: u8, machine: [u8; 2]) -> Vec<u8> {
        let mut head = vec![0x7f, b'E', b'L', b'F', class, order, 1];
        head.resize(18, 0);
        head.extend(machine);
        head
    }

    #[test]
    fn architectures_have_their_go_names() {
        for (rust, go) in
            [("arm", "arm"), ("aarch64", "arm64"), ("x86", "386"), ("riscv64", "riscv64"), ("mips64", "mips64le")]
        {
            assert_eq!(go_name(rust, true), go);
        }
        assert_eq!(go_name("mips", false), "mips");
        assert_eq!(go_name("powerpc64", false), "ppc64");
    }

    #[test]
    fn a_program_says_what_it_runs_on() {
        for (class, order, machine, expected) in [
            (2, 1, [183, 0], "arm64"),
            (1, 1, [40, 0], "arm"),
            (2, 1, [243, 0], "riscv64"),
            (2, 1, [62, 0], "amd64"),
            (1, 1, [3, 0], "386"),
            (1, 1, [8, 0], "mipsle"),
            (1, 2, [0, 8], "mips"),
            (2, 1, [2, 1], "loong64"),
            (2, 1, [21, 0], "ppc64le"),
            (2, 2, [0, 21], "ppc64"),
            (2, 1, [8, 0], "mips64le"),
            (2, 2, [0, 8], "mips64"),
            (2, 2, [0, 22], "s390x"),
            (2, 2, [0, 43], "sparc64"),
        ] {
            assert_eq!(of_program(&head(class, order, machine)), Ok(expected));
        }
    }

    #[test]
    fn what_go_has_no_name_for_and_what_is_no_program_is_absent() {
        for (class, order, machine) in
            [(1, 1, [243, 0]), (1, 1, [62, 0]), (2, 2, [0, 183]), (1, 2, [0, 40]), (1, 2, [0, 4]), (9, 9, [9, 9])]
        {
            assert_eq!(of_program(&head(class, order, machine)).unwrap_err().word(), "malformed");
        }
        let whole = head(2, 1, [62, 0]);
        for cut in 0..whole.len() {
            let why = of_program(whole.get(..cut).unwrap()).unwrap_err();
            assert_eq!(why.to_string(), "malformed: no ELF program");
        }
        assert!(of_program(b"#!/bin/busybox sh\n# a script in the place of a shell\n").is_err());
    }
}
