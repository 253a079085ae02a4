//! Turns boards whose files change into readings: the open handles must tell what is true now.

use std::fs;

use nodepulse::config::Settings;
use nodepulse::probe::facts::{MemorySource, MemoryUse, Pids, Readings};
use nodepulse::probe::{Absent, Asked, Machine, ReadingFiles, Root, StateDisk, Why, facts};
use nodepulse::time::Up;

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

fn open(board: &Scratch) -> ReadingFiles {
    ReadingFiles::open(&Root::new(&board.0), Up::BOOT)
}

fn no_disk() -> StateDisk {
    StateDisk { file_system: Err(Absent::new("/", Why::Unasked)), may_hang: false, real_path: None }
}

/// Without the disk, which few of these tests are about.
fn read(files: &mut ReadingFiles) -> Readings {
    files.read(no_disk(), None, &Asked { pids: true, ..Asked::default() }, Up::BOOT)
}

fn memory(readings: &Readings) -> (u64, MemorySource) {
    let MemoryUse { available_bytes, source } = readings.memory.clone().unwrap();
    (available_bytes / 1024, source)
}

#[test]
fn a_gauge_tells_what_its_files_say_now() {
    let board = board();
    let mut gauges = open(&board);
    let first = read(&mut gauges);
    assert_eq!(memory(&first), (600_000, MemorySource::MemAvailable));
    assert_eq!(first.pids, Ok(Pids { limit: 3682, used: 80 }));
    board.write("proc/meminfo", MEMINFO.replace("600000", "70000"));
    board.write("proc/loadavg", "9.00 9.00 9.00 7/3600 4000\n");
    let second = read(&mut gauges);
    assert_eq!(memory(&second), (70_000, MemorySource::MemAvailable));
    assert_eq!(second.pids, Ok(Pids { limit: 3682, used: 3600 }));
}

#[test]
fn a_handle_that_says_nothing_any_more_is_opened_again() {
    let board = board();
    let mut gauges = open(&board);
    assert_eq!(read(&mut gauges).pids.map(|pids| pids.used), Ok(80));
    let loadavg = board.0.join("proc/loadavg");
    let kept = fs::OpenOptions::new().write(true).open(&loadavg).unwrap();
    fs::remove_file(&loadavg).unwrap();
    kept.set_len(0).unwrap();
    assert_eq!(read(&mut gauges).pids.unwrap_err().to_string(), "/proc/loadavg: no such file");
    board.write("proc/loadavg", "0.00 0.00 0.00 1/81 901\n");
    assert_eq!(read(&mut gauges).pids.map(|pids| pids.used), Ok(81));
}

#[test]
fn what_rarely_changes_is_read_again_within_an_hour() {
    let board = board();
    let mut gauges = open(&board);
    board.write("sys/fs/cgroup/memory.stat", "anon 0\nfile 0\ninactive_file 0\n");
    let mut gauges_of_cgroup = open(&board);
    board.write("proc/meminfo", MEMINFO.replace("1000000", "2000000"));
    assert_eq!(memory(&read(&mut gauges)), (600_000, MemorySource::MemAvailable));
    let available: Vec<u64> = (0..360).map(|_| memory(&read(&mut gauges_of_cgroup)).0).collect();
    assert_eq!((available[0], available[358], available[359]), (1_000_000, 1_000_000, 2_000_000));
}

#[test]
fn the_limits_of_pids_are_those_of_each_look_and_unread_where_nothing_judges_them() {
    let board = board();
    let mut gauges = open(&board);
    for limit in [3682, 2000, 4000] {
        board.write("proc/sys/kernel/threads-max", format!("{limit}\n"));
        assert_eq!(read(&mut gauges).pids.unwrap().limit, limit);
    }
    board.write("proc/sys/kernel/pid_max", "123\n");
    assert_eq!(read(&mut gauges).pids, Ok(Pids { limit: 123, used: 80 }));
    board.write("proc/sys/kernel/pid_max", "-1\n");
    assert_eq!(read(&mut gauges).pids.unwrap().limit, 4000, "the one that can be read");
    assert_eq!(
        gauges.read(no_disk(), None, &Asked::default(), Up::BOOT).pids.unwrap_err().to_string(),
        "/proc/loadavg: no threshold asks for it"
    );
}

#[test]
fn memory_use_is_that_of_the_root_cgroup_and_of_no_other() {
    let board = board();
    let stat = |kib: u64| format!("anon {}\nfile 204800\ninactive_file 102400\n", kib * 1024);
    board.write("sys/fs/cgroup/memory.stat", stat(400_000));
    let mut gauges = open(&board);
    assert_eq!(memory(&read(&mut gauges)), (1_000_000 - 400_000 - 100, MemorySource::CgroupV2));
    board.write("sys/fs/cgroup/memory.stat", stat(2_000_000));
    assert_eq!(memory(&read(&mut gauges)), (0, MemorySource::CgroupV2), "never below nothing");
    board.write("sys/fs/cgroup/memory.stat", "low 0\n");
    assert_eq!(memory(&read(&mut gauges)), (600_000, MemorySource::MemAvailable), "what says nothing any more");
    board.write("sys/fs/cgroup/memory.stat", stat(400_000));
    assert_eq!(memory(&read(&mut gauges)).1, MemorySource::CgroupV2, "and is asked again");
    board.write("sys/fs/cgroup/memory.stat", "low 0\n");
    assert_eq!(
        memory(&read(&mut open(&board))).1,
        MemorySource::MemAvailable,
        "a root without those lines is of no use"
    );

    board.write("sys/fs/cgroup/memory.stat", stat(400_000));
    board.write("sys/fs/cgroup/memory.current", "1\n");
    assert_eq!(memory(&read(&mut open(&board))).1, MemorySource::MemAvailable, "a container's own cgroup");
}

#[test]
fn memory_use_of_version_1_needs_its_root_too() {
    let board = board();
    let stat = "inactive_file 5\ntotal_cache 207200000\ntotal_rss 100000000\ntotal_inactive_file 102400000\n";
    board.write("sys/fs/cgroup/memory/memory.stat", stat);
    assert_eq!(memory(&read(&mut open(&board))).1, MemorySource::MemAvailable);
    board.write("sys/fs/cgroup/memory/release_agent", "");
    assert_eq!(memory(&read(&mut open(&board))), (800_000, MemorySource::CgroupV1));
    let mut gauges = open(&board);
    board.write("sys/fs/cgroup/memory/memory.stat", "cache 1\n");
    assert_eq!(memory(&read(&mut gauges)), (600_000, MemorySource::MemAvailable), "as with version 2");
    assert_eq!(memory(&read(&mut open(&board))), (600_000, MemorySource::MemAvailable));
}

#[test]
fn absurd_memory_is_absent_with_its_reason() {
    let board = board();
    let why = |meminfo: &str| {
        board.write("proc/meminfo", meminfo);
        read(&mut open(&board)).memory.unwrap_err().to_string()
    };
    let more = MEMINFO.replace("600000", "1000001");
    assert_eq!(why(&more), "/proc/meminfo: implausible: more memory is available than there is");
    let exbibytes = "MemTotal: 9007199254740991 kB\nMemFree: 0 kB\nMemAvailable: 9007199254740990 kB\n";
    assert_eq!(why(exbibytes), "/proc/meminfo: implausible: no machine has so much memory");
}

#[test]
fn the_disk_is_that_of_the_directory_to_be_and_no_disk_of_a_capture() {
    let state = |directory: &str| Settings { state_directory: directory.to_owned(), ..Settings::default() };
    let live = |directory: &str| facts(&Root::new("/"), &state(directory), None).readings.node_file_system.unwrap();
    let (root, to_be) = (live("/"), live("/no-such-directory/nodepulse"));
    assert_eq!((root.capacity_bytes, root.inodes), (to_be.capacity_bytes, to_be.inodes));
    assert!(root.capacity_bytes >= root.available_bytes && root.capacity_bytes > 0, "{root:?}");
    let absent = facts(&Root::new(&board().0), &Settings::default(), None).readings.node_file_system.unwrap_err();
    assert_eq!((absent.path.as_str(), absent.why.word()), (STATE_DIRECTORY, "implausible"));
}

#[test]
fn an_upgrade_of_the_system_is_on_the_node_within_the_hour_without_a_restart() {
    let board = board();
    let release = |name: &str| board.write("etc/os-release", format!("PRETTY_NAME=\"{name}\"\n"));
    release("Debian GNU/Linux 12 (bookworm)");
    board.write("proc/sys/kernel/hostname", "edge-1\n");
    let mut now = facts(&Root::new(&board.0), &Settings::default(), None);
    let mut gauges = open(&board);
    release("Debian GNU/Linux 13 (trixie)");
    let looks = (1..=400).find(|_| {
        let is_other = gauges.recount(&mut now.machine, Up::BOOT);
        now.readings = read(&mut gauges);
        is_other
    });
    assert_eq!(looks, Some(360), "an hour of looks");
    fs::remove_file(board.0.join("etc/os-release")).unwrap();
    fs::create_dir(board.0.join("etc/os-release")).unwrap();
    assert!(
        (0..800).all(|_| {
            now.readings = read(&mut gauges);
            !gauges.recount(&mut now.machine, Up::BOOT)
        }),
        "what cannot be read any more stays"
    );
    assert_eq!(super::node(now)["node"]["status"]["nodeInfo"]["osImage"], "Debian GNU/Linux 13 (trixie)");
}

#[test]
fn a_machine_is_counted_again_when_other_cpus_are_there_and_only_then() {
    let board = board();
    let cpu = |number: u32| board.write(&format!("sys/devices/system/cpu/cpu{number}/online"), "1\n");
    (0..2).for_each(cpu);
    board.write("sys/devices/system/cpu/online", "0-1\n");
    board.write("sys/devices/system/cpu/present", "0-1\n");
    board.write("proc/sys/kernel/hostname", "edge-1\n");
    board.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    let mut now = facts(&Root::new(&board.0), &Settings::default(), None);
    let at_start = now.machine.clone();
    let mut gauges = open(&board);
    // A core is parked, hugepages and memory are added: nothing that a kubelet would see without a restart.
    board.write("sys/devices/system/cpu/online", "0\n");
    board.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16\n");
    board.write("proc/meminfo", MEMINFO.replace("1000000", "2000000").replace("600000", "1600000"));
    for _ in 0..360 {
        assert!(!gauges.recount(&mut now.machine, Up::BOOT));
        now.readings = read(&mut gauges);
    }
    assert_eq!(memory(&now.readings).0, 1_600_000, "what is judged is of now");
    assert_eq!(now.machine, at_start);

    (2..8).for_each(cpu);
    board.write("sys/devices/system/cpu/present", "0-3\n");
    for _ in 0..59 {
        assert!(!gauges.recount(&mut now.machine, Up::BOOT), "they are looked at every ten minutes");
        now.readings = read(&mut gauges);
    }
    assert!(!gauges.recount(&mut now.machine, Up::BOOT), "they are still being added");
    board.write("sys/devices/system/cpu/present", "0-7\n");
    assert!(!gauges.recount(&mut now.machine, Up::BOOT));
    assert!(gauges.recount(&mut now.machine, Up::BOOT), "it stays so");
    assert!(!gauges.recount(&mut now.machine, Up::BOOT));
    assert_eq!(now.machine, Machine { cpu_count: Ok(8), ..at_start.clone() });
    board.write("sys/devices/system/cpu/present", "");
    fs::remove_dir_all(board.0.join("sys/devices/system/cpu")).unwrap();
    for _ in 0..3 {
        assert!(!gauges.recount(&mut now.machine, Up::BOOT), "what cannot be read any more stays");
    }
    let capacity = &super::node(now)["node"]["status"]["capacity"];
    assert_eq!([&capacity["cpu"], &capacity["memory"], &capacity["hugepages-2Mi"]], ["8", "1000000Ki", "0"]);
    let restarted = super::node(facts(&Root::new(&board.0), &Settings::default(), None));
    let capacity = &restarted["node"]["status"]["capacity"];
    assert_eq!([&capacity["memory"], &capacity["hugepages-2Mi"]], ["2000000Ki", "32Mi"]);
}

#[test]
fn a_size_that_could_not_be_read_at_the_start_is_read_again_until_it_can() {
    let board = board();
    board.write("proc/meminfo", "Error: no data\n");
    board.write("proc/cpuinfo", "Error: no data\n");
    let mut machine = facts(&Root::new(&board.0), &Settings::default(), None).machine;
    let word = |absent: Option<Absent>| absent.map(|absent| absent.why.word());
    assert_eq!(word(machine.memory_total_bytes.clone().err()), Some("malformed"));
    assert_eq!(word(machine.cpu_count.clone().err()), Some("malformed"));
    let mut gauges = open(&board);
    assert!(!gauges.recount(&mut machine, Up::BOOT) && read(&mut gauges).memory.is_err());
    board.write("proc/meminfo", MEMINFO);
    assert!(gauges.recount(&mut machine, Up::BOOT));
    assert_eq!(machine.memory_total_bytes, Ok(1_000_000 * 1024));
    assert_eq!(memory(&read(&mut gauges)).0, 600_000);
    board.write("proc/cpuinfo", "processor : 0\nprocessor : 1\n");
    assert!(gauges.recount(&mut machine, Up::BOOT) && !gauges.recount(&mut machine, Up::BOOT));
    assert_eq!(machine.cpu_count, Ok(2));
}
