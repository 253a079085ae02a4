//! Turns boards into broken ones, file by file: the probe must answer, quickly, and never with another machine's facts.

use std::fs;
use std::path::{Path, PathBuf};

use nodepulse::config::{Settings, limits};
use nodepulse::probe::facts::Why;
use nodepulse::probe::{Facts, Root, facts, remarks, report};

use super::{Scratch, boards, files};

/// Every attribute of every board and the first lines of every table cut at every byte, all files of one length at a
/// time; the rest of the tables, which is more of the same, at every 31st.
#[test]
fn a_file_cut_at_any_byte_is_a_fact_or_an_absence() {
    for board in boards() {
        let whole = facts(&Root::new(&board), &Settings::default(), None).machine;
        let scratch = Scratch::of_board("cut", &board);
        let files = files(&scratch.0);
        let length = |file: &PathBuf| fs::metadata(file).unwrap().len();
        let longest = files.iter().map(length).max().unwrap();
        for cut in (0..longest).rev().filter(|cut| *cut < 512 || cut % 31 == 0) {
            for file in files.iter().filter(|file| length(file) > cut) {
                fs::OpenOptions::new().write(true).open(file).unwrap().set_len(cut).unwrap();
            }
            let machine = probed(&scratch.0).machine;
            let less = |cut: Option<u64>, whole: Option<u64>| cut.is_none() || cut <= whole;
            assert!(less(machine.memory_total_bytes.ok(), whole.memory_total_bytes.clone().ok()), "{board:?} at {cut}");
            assert!(less(machine.swap_total_bytes.ok(), whole.swap_total_bytes.clone().ok()), "{board:?} at {cut}");
        }
        let empty = probed(&scratch.0);
        assert!(empty.machine.cpu_count.is_err() || board.join("sys/devices/system/cpu/cpu0").is_dir(), "{board:?}");
        assert!(empty.machine.memory_total_bytes.is_err() && empty.network.default_routes.is_empty(), "{board:?}");
    }
}

#[test]
fn any_bytes_in_every_file_are_facts_or_absences() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for board in boards() {
        let scratch = Scratch::of_board("random", &board);
        let files = files(&scratch.0);
        for _ in 0..12 {
            for file in &files {
                let length = usize::try_from(random() % 9000).unwrap();
                // Half of them with the characters the formats are made of, which get further.
                let alphabet = b"0123456789abcdefx:-,. \t\n\0/kB|EMx_=\"'\\";
                let printable = random() % 2 == 0;
                let byte = |random: u64| {
                    if printable { alphabet[random as usize % alphabet.len()] } else { (random >> 24) as u8 }
                };
                let bytes: Vec<u8> = (0..length).map(|_| byte(random())).collect();
                fs::write(file, bytes).unwrap();
            }
            let facts = probed(&scratch.0);
            assert!(facts.machine.memory_total_bytes.is_err(), "{board:?}: {facts:?}");
            let texts = [facts.machine.machine_id, facts.machine.board_model, facts.machine.os_image];
            let clean = |text: &String| !text.is_empty() && !text.contains(char::is_control);
            assert!(texts.iter().flatten().all(clean), "{board:?}: {texts:?}");
        }
    }
}

#[test]
fn a_directory_in_place_of_a_file_is_an_absence() {
    for board in boards() {
        let scratch = Scratch::of_board("directories", &board);
        for file in files(&scratch.0) {
            fs::remove_file(&file).unwrap();
            fs::create_dir(&file).unwrap();
            probed(&scratch.0);
        }
        let facts = probed(&scratch.0);
        assert_eq!(facts.machine.memory_total_bytes.unwrap_err().why.word(), "read-failed", "{board:?}");
    }
}

#[test]
fn links_are_followed_inside_the_root_and_never_out_of_it() {
    let outside = Scratch::new("outside");
    outside.write("secret", "of another machine\n");
    let scratch = Scratch::new("links");
    let root = Root::new(&scratch.0);
    scratch.write("usr/lib/os-release", "PRETTY_NAME=Inside\n");
    scratch.link("etc/os-release", "/usr/lib/os-release");
    assert_eq!(probed(&scratch.0).machine.os_image.as_deref(), Ok("Inside"));

    scratch.link("etc/climbing", &format!("../../../../../../../../../../../..{}/secret", outside.0.display()));
    scratch.link("etc/absolute", &format!("{}/secret", outside.0.display()));
    for path in ["/etc/climbing", "/etc/absolute", &format!("/../..{}/secret", outside.0.display())] {
        assert_eq!(root.read_text(path).unwrap_err().why, Why::NoSuchFile, "{path}");
    }
    scratch.link("etc/through", "..");
    assert_eq!(root.read_text("/etc/through/etc/os-release").as_deref(), Ok("PRETTY_NAME=Inside"));
    scratch.link("proc/net", "self/net");
    scratch.link("proc/self", "812");
    scratch.write("proc/812/net/route", "x\n");
    assert_eq!(root.read_table("/proc/net/route").as_deref(), Ok("x\n"));
}

#[test]
fn a_link_to_the_proc_of_this_machine_makes_no_host_of_a_capture() {
    let scratch = Scratch::new("linked-proc");
    scratch.link("proc", "/proc");
    let facts = probed(&scratch.0);
    assert!(facts.machine.memory_total_bytes.is_err() && facts.machine.cpu_count.is_err(), "{facts:?}");
    let absent = facts.readings.node_file_system.unwrap_err();
    assert_eq!(absent.why.word(), "implausible", "the disk of a capture is none of this machine's: {absent}");
}

#[test]
fn a_link_that_leads_nowhere_or_round_is_an_absence() {
    let scratch = Scratch::new("loops");
    scratch.link("etc/machine-id", "/run/gone");
    scratch.link("proc/meminfo", "meminfo");
    scratch.link("proc/cpuinfo", "../etc/one");
    scratch.link("etc/one", "/etc/two");
    scratch.link("etc/two", "one");
    scratch.link("sys/class/net/eth0", "../../devices/gone");
    scratch.write("sys/class/net/bonding_masters", "bond0\n");
    let facts = probed(&scratch.0);
    assert_eq!(facts.machine.machine_id.unwrap_err().why, Why::NoSuchFile);
    let absent = facts.machine.memory_total_bytes.unwrap_err().to_string();
    assert!(absent.starts_with("/proc/meminfo: read failed: ") && absent.ends_with(" (os error 40)"), "{absent}");
    assert_eq!(facts.machine.cpu_count.unwrap_err().why.word(), "read-failed");
    assert!(facts.network.interfaces.is_empty());

    scratch.write("chain/0", "end\n");
    for link in 1..=limits::SYMBOLIC_LINKS + 1 {
        scratch.link(&format!("chain/{link}"), &format!("{}", link - 1));
    }
    let root = Root::new(&scratch.0);
    assert_eq!(root.read_text(&format!("/chain/{}", limits::SYMBOLIC_LINKS)).as_deref(), Ok("end"));
    assert!(root.read_text(&format!("/chain/{}", limits::SYMBOLIC_LINKS + 1)).is_err());
}

#[test]
fn a_file_without_end_costs_no_more_than_its_limit() {
    let scratch = Scratch::new("long");
    let root = Root::new(&scratch.0);
    scratch.write("proc/sys/kernel/osrelease", "a".repeat(100_000));
    let cpuinfo: String = (0..400_000).map(|number| format!("processor : {number}\nflags : fpu\n\n")).collect();
    scratch.write("proc/cpuinfo", cpuinfo);
    scratch.write("proc/net/route", "eth0\t00000000\t0100000A\t0003\t0\t0\t5\t00000000\n".repeat(100_000));
    scratch.write("proc/net/if_inet6", "x".repeat(2_000_000));
    let table = root.read_table("/proc/cpuinfo").unwrap();
    assert!(table.len() <= limits::TABLE_BYTES && table.ends_with('\n'), "{}", table.len());
    let facts = probed(&scratch.0);
    assert_eq!(facts.machine.kernel_release.map(|release| release.len()), Ok(2 * limits::ATTRIBUTE_BYTES));
    let absent = facts.machine.cpu_count.unwrap_err().to_string();
    assert_eq!(absent, "/proc/cpuinfo: implausible: longer than 1048576 bytes", "never what fits of it");
    for number in 0..5000 {
        scratch.write(&format!("sys/kernel/mm/hugepages/hugepages-{number}kB/nr_hugepages"), "1\n");
    }
    assert_eq!(root.list("/sys/kernel/mm/hugepages").map(|names| names.len()), Ok(limits::DIRECTORY_NAMES));
}

/// The facts, printed too: neither may panic.
fn probed(root: &Path) -> Facts {
    let facts = facts(&Root::new(root), &Settings::default(), None);
    let printed = report::to_json(&facts).to_string().len() + report::to_text(&facts, None).len();
    assert!(printed > 0);
    facts
}

#[test]
fn what_lxcfs_answers_for_is_remarked_on() {
    let scratch = Scratch::new("lxcfs");
    assert_eq!(remarks(&Root::new(&scratch.0)), [""; 0]);
    let mounts = "417 402 0:49 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n\
                  418 402 0:49 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n";
    scratch.write("proc/self/mountinfo", mounts);
    let remark =
        "lxcfs answers for /proc/cpuinfo, /proc/meminfo: that is the container's share, not the machine's".to_owned();
    assert_eq!(remarks(&Root::new(&scratch.0)), [remark]);
}
