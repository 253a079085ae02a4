//! Turns trees of a few files into how large a machine is, and which of its interfaces work: absurd values are none.

use nodepulse::probe::facts::Hugepages;
use nodepulse::probe::{Network, Root, machine, network};

use super::Scratch;

fn board(name: &str) -> Scratch {
    Scratch::new(&format!("size-{name}"))
}

#[test]
fn cpus_are_counted_where_the_kernel_tells_of_them_best() {
    let board = board("cpus");
    let count = || machine(&Root::new(&board.0)).cpu_count;
    assert_eq!(count().unwrap_err().path, "/proc/cpuinfo");
    board.write("proc/cpuinfo", "processor : 0\nprocessor : 1\nprocessor : 2\n");
    assert_eq!(count(), Ok(3));
    board.write("sys/devices/system/cpu/online", "0,2-3,10\n");
    assert_eq!(count(), Ok(4));
    for absurd in ["\n", "3-0\n", "0-4294967295\n", "all\n", "Error: no data\n"] {
        board.write("sys/devices/system/cpu/online", absurd);
        assert_eq!(count(), Ok(3), "{absurd:?}");
    }
    for cpu in ["cpu0", "cpu1", "cpu2", "cpu10", "cpufreq", "cpuidle"] {
        board.write(&format!("sys/devices/system/cpu/{cpu}/topology/core_id"), "0\n");
    }
    board.write("sys/devices/system/cpu/cpu11", "a file\n");
    assert_eq!(count(), Ok(4), "directories with a number");
}

#[test]
fn parked_cpus_count_as_they_do_with_a_kubelet() {
    let board = board("parked");
    let count = || machine(&Root::new(&board.0)).cpu_count;
    // An SoC with eight cores of which a governor has parked four: no NUMA nodes.
    for cpu in 0..8 {
        board.write(&format!("sys/devices/system/cpu/cpu{cpu}/online"), if cpu < 4 { "1\n" } else { "0\n" });
    }
    board.write("sys/devices/system/cpu/online", "0-3\n");
    assert_eq!(count(), Ok(8), "without NUMA nodes every directory");
    for cpu in 0..8 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        board.write(&format!("{topology}/core_id"), "0\n");
        board.write(&format!("{topology}/physical_package_id"), "-1\n");
        let node = cpu / 4;
        board.link(&format!("sys/devices/system/node/node{node}/cpu{cpu}"), &format!("../../cpu/cpu{cpu}"));
    }
    board.write("sys/devices/system/node/possible", "0-1\n");
    assert_eq!(count(), Ok(4), "with NUMA nodes those that are online");
    board.write("sys/devices/system/cpu/online", "0-5\n");
    std::fs::remove_file(board.0.join("sys/devices/system/cpu/cpu5/topology/core_id")).unwrap();
    assert_eq!(count(), Ok(5), "and have a place in the topology");
    std::fs::remove_file(board.0.join("sys/devices/system/cpu/online")).unwrap();
    assert_eq!(count(), Ok(4), "a list that is missing: their own files say it");
}

#[test]
fn the_architecture_is_that_of_a_program_below_the_root_and_of_no_other() {
    let board = board("programs");
    let architecture = || machine(&Root::new(&board.0)).architecture.map_err(|absent| absent.to_string());
    let head = |machine: u8| [&[0x7f, b'E', b'L', b'F', 2, 1, 1][..], &[0; 11], &[machine, 0]].concat();
    assert_eq!(architecture(), Err("/bin/sh: no such file".to_owned()));
    board.write("bin/sh", "#!/bin/true\n");
    assert_eq!(architecture(), Err("/bin/sh: malformed: no ELF program".to_owned()));
    board.write("usr/bin/env", head(183));
    assert_eq!(architecture(), Ok("arm64".to_owned()));
    board.write("usr/lib/systemd/systemd", head(243));
    board.link("sbin", "usr/sbin");
    board.link("usr/sbin/init", "/usr/lib/systemd/systemd");
    assert_eq!(architecture(), Ok("riscv64".to_owned()), "through links inside the root");
    assert!(machine(&Root::new("/")).architecture.is_ok());
}

#[test]
fn a_boot_id_is_a_uuid_or_none() {
    let board = board("boot-id");
    for (text, word) in [
        (&b"9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11\n"[..], None),
        (&b"\x8f\x0a\xd4\xe4\x5f\x5c\x4c\x5e\x9d\x5f\x0f\x8c\x1d\x4f\x2a\x11"[..], Some("malformed")),
        (&b"9f0ad4e45f5c4c5e9d5f0f8c1d4f2a11\n"[..], Some("malformed")),
        (&b"9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a1g\n"[..], Some("malformed")),
        (&b"\n"[..], Some("empty")),
    ] {
        board.write("proc/sys/kernel/random/boot_id", text);
        let boot_id = machine(&Root::new(&board.0)).boot_id;
        assert_eq!(boot_id.err().map(|absent| absent.why.word()), word, "{text:?}");
    }
}

#[test]
fn every_size_of_hugepages_is_there_by_its_size_and_absurd_ones_are_not() {
    let board = board("hugepages");
    for (name, pages) in [
        ("hugepages-1048576kB", "0\n"),
        ("hugepages-64kB", "8\n"),
        ("hugepages-2048kB", "512\n"),
        ("hugepages-32768kB", "18446744073709551594\n"),
        ("hugepages-xkB", "1\n"),
        ("hugepages-4", "1\n"),
        ("hugepages-18446744073709551615kB", "1\n"),
    ] {
        board.write(&format!("sys/kernel/mm/hugepages/{name}/nr_hugepages"), pages);
    }
    let sizes = [(64, 8), (2048, 512), (1_048_576, 0)];
    let sizes = sizes.map(|(kib, pages)| Hugepages { page_size_bytes: kib * 1024, pages });
    assert_eq!(machine(&Root::new(&board.0)).hugepages, sizes);
}

#[test]
fn interfaces_are_in_the_kernels_order_and_unknown_counts_as_up_with_a_carrier() {
    let board = board("interfaces");
    let interface = |name: &str, index: &str, operstate: &str, carrier: Option<&str>| {
        for (attribute, text) in [("ifindex", index), ("flags", "0x1003"), ("operstate", operstate)] {
            board.write(&format!("sys/class/net/{name}/{attribute}"), format!("{text}\n"));
        }
        if let Some(carrier) = carrier {
            board.write(&format!("sys/class/net/{name}/carrier"), format!("{carrier}\n"));
        }
    };
    interface("wwan0", "9", "unknown", Some("1"));
    interface("ppp0", "10", "unknown", None);
    interface("tun0", "11", "unknown", Some("0"));
    interface("eth0", "12", "up", Some("1"));
    interface("br0", "2", "lowerlayerdown", Some("0"));
    let Network { interfaces, .. } = network(&Root::new(&board.0));
    let found: Vec<_> = interfaces.iter().map(|one| (one.name.as_str(), one.up, one.running)).collect();
    let expected = [("br0", false), ("wwan0", true), ("ppp0", true), ("tun0", false), ("eth0", true)];
    assert_eq!(found, expected.map(|(name, running)| (name, true, running)));
}
