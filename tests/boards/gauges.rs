//! Turns boards whose files change into readings: the open handles must tell what is true now.

use std::fs;

use nodepulse::probe::facts::{MemorySource, MemoryUse, Pids, Readings};
use nodepulse::probe::{Facts, Gauges, Root, facts};

use super::{STATE_DIRECTORY, Scratch};

const MEMINFO: &str = "MemTotal: 1000000 kB\nMemFree: 400000 kB\nMemAvailable: 600000 kB\n";

fn board() -> Scratch {
    let scratch = Scratch::new(&format!("gauges-{:?}", std::thread::current().id()).replace(['(', ')'], "-"));
    scratch.write("proc/meminfo", MEMINFO);
    scratch.write("proc/loadavg", "0.00 0.00 0.00 1/80 900\n");
    scratch.write("proc/sys/kernel/pid_max", "32768\n");
    scratch.write("proc/sys/kernel/threads-max", "3682\n");
    scratch
}

fn open(board: &Scratch) -> Gauges {
    Gauges::open(&Root::new(&board.0), STATE_DIRECTORY)
}

fn memory(readings: &Readings) -> (u64, MemorySource) {
    let MemoryUse { available_bytes, source } = readings.memory.clone().unwrap();
    (available_bytes / 1024, source)
}

#[test]
fn a_gauge_tells_what_its_files_say_now() {
    let board = board();
    let mut gauges = open(&board);
    let first = gauges.read();
    assert_eq!(memory(&first), (600_000, MemorySource::MemAvailable));
    assert_eq!(first.pids, Ok(Pids { limit: 3682, used: 80 }));
    board.write("proc/meminfo", MEMINFO.replace("600000", "70000"));
    board.write("proc/loadavg", "9.00 9.00 9.00 7/3600 4000\n");
    let second = gauges.read();
    assert_eq!(memory(&second), (70_000, MemorySource::MemAvailable));
    assert_eq!(second.pids, Ok(Pids { limit: 3682, used: 3600 }));
}

#[test]
fn a_handle_that_says_nothing_any_more_is_opened_again() {
    let board = board();
    let mut gauges = open(&board);
    assert_eq!(gauges.read().pids.map(|pids| pids.used), Ok(80));
    let loadavg = board.0.join("proc/loadavg");
    let kept = fs::OpenOptions::new().write(true).open(&loadavg).unwrap();
    fs::remove_file(&loadavg).unwrap();
    kept.set_len(0).unwrap();
    assert_eq!(gauges.read().pids.unwrap_err().to_string(), "/proc/loadavg: no such file");
    board.write("proc/loadavg", "0.00 0.00 0.00 1/81 901\n");
    assert_eq!(gauges.read().pids.map(|pids| pids.used), Ok(81));
}

#[test]
fn what_rarely_changes_is_read_again_within_an_hour() {
    let board = board();
    let mut gauges = open(&board);
    board.write("proc/sys/kernel/threads-max", "2000\n");
    let limits: Vec<u64> = (0..361).map(|_| gauges.read().pids.unwrap().limit).collect();
    assert_eq!((limits[0], limits[359], limits[360]), (3682, 3682, 2000));
}

#[test]
fn memory_use_is_that_of_the_root_cgroup_and_of_no_other() {
    let board = board();
    let stat = |kib: u64| format!("anon {}\nfile 204800\ninactive_file 102400\n", kib * 1024);
    board.write("sys/fs/cgroup/memory.stat", stat(400_000));
    let mut gauges = open(&board);
    assert_eq!(memory(&gauges.read()), (1_000_000 - 400_000 - 100, MemorySource::CgroupV2));
    board.write("sys/fs/cgroup/memory.stat", stat(2_000_000));
    assert_eq!(memory(&gauges.read()), (0, MemorySource::CgroupV2), "never below nothing");
    board.write("sys/fs/cgroup/memory.stat", "low 0\n");
    assert_eq!(gauges.read().memory.unwrap_err().why.word(), "malformed");
    assert_eq!(memory(&open(&board).read()).1, MemorySource::MemAvailable, "a root without those lines is of no use");

    board.write("sys/fs/cgroup/memory.stat", stat(400_000));
    board.write("sys/fs/cgroup/memory.current", "1\n");
    assert_eq!(memory(&open(&board).read()).1, MemorySource::MemAvailable, "a container's own cgroup");
}

#[test]
fn memory_use_of_version_1_needs_its_root_too() {
    let board = board();
    let stat = "inactive_file 5\ntotal_cache 207200000\ntotal_rss 100000000\ntotal_inactive_file 102400000\n";
    board.write("sys/fs/cgroup/memory/memory.stat", stat);
    assert_eq!(memory(&open(&board).read()).1, MemorySource::MemAvailable);
    board.write("sys/fs/cgroup/memory/release_agent", "");
    assert_eq!(memory(&open(&board).read()), (800_000, MemorySource::CgroupV1));
}

#[test]
fn the_disk_is_that_of_the_directory_to_be_and_no_disk_of_a_capture() {
    let live = |directory: &str| facts(&Root::new("/"), directory).readings.node_file_system.unwrap();
    let (root, to_be) = (live("/"), live("/no-such-directory/nodepulse"));
    assert_eq!((root.capacity_bytes, root.inodes), (to_be.capacity_bytes, to_be.inodes));
    assert!(root.capacity_bytes >= root.available_bytes && root.capacity_bytes > 0, "{root:?}");
    let absent = open(&board()).read().node_file_system.unwrap_err();
    assert_eq!((absent.path.as_str(), absent.why.word()), (STATE_DIRECTORY, "implausible"));
}

#[test]
fn what_is_plugged_in_later_changes_no_capacity() {
    let board = board();
    board.write("sys/devices/system/cpu/online", "0-1\n");
    board.write("proc/sys/kernel/hostname", "edge-1\n");
    board.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    let at_start = facts(&Root::new(&board.0), STATE_DIRECTORY);
    let mut gauges = open(&board);
    board.write("sys/devices/system/cpu/online", "0-3\n");
    board.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16\n");
    board.write("proc/meminfo", MEMINFO.replace("1000000", "2000000").replace("600000", "1600000"));
    let after_an_hour = (0..=361).map(|_| gauges.read()).next_back().unwrap();
    assert_eq!(memory(&after_an_hour).0, 1_600_000, "what is judged is of now");
    let capacity = |readings| {
        let facts = Facts { readings, ..at_start.clone() };
        super::node(facts)["node"]["status"]["capacity"].clone()
    };
    assert_eq!(capacity(after_an_hour), capacity(at_start.readings.clone()));
    let restarted = super::node(facts(&Root::new(&board.0), STATE_DIRECTORY));
    let capacity = &restarted["node"]["status"]["capacity"];
    assert_eq!([&capacity["cpu"], &capacity["memory"], &capacity["hugepages-2Mi"]], ["4", "2000000Ki", "32Mi"]);
}
