//! Turns the kernel's log into the trouble that it tells of: each kind in its words, lies, storms, and boards that hide it.

use std::time::Duration;

use nodepulse::probe::facts::KernelTrouble;
use nodepulse::probe::{HealthFiles, KernelLogFiles, KernelPlaces, Root};
use nodepulse::time::Up;

use super::Scratch;

const LOG: &str = "dev/kmsg";

/// Lines as they are read from `/dev/kmsg`, of the kernel itself, a second apart; the first has this number.
fn log(first: u64, texts: &[&str]) -> String {
    let line = |(number, text): (u64, &&str)| {
        format!("3,{},{},-;{text}\n SUBSYSTEM=block\n DEVICE=b179:2\n", number, number * 1_000_000)
    };
    (first..).zip(texts).map(line).collect()
}

fn seconds(seconds: u64) -> Up {
    Up::since_boot(Duration::from_secs(seconds))
}

fn read(board: &Scratch) -> Option<KernelTrouble> {
    HealthFiles::new(&Root::new(&board.0)).read(seconds(600)).kernel.map(Result::unwrap)
}

/// How often each kind was.
fn counted(kernel: &KernelTrouble) -> Vec<(&str, u64)> {
    let mut all: Vec<_> = kernel.all.iter().map(|trouble| (trouble.reason, trouble.count)).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_kind_of_trouble_is_known_by_the_words_that_kernels_have_for_it() {
    for (reason, text) in [
        ("OOMKilling", "Out of memory: Killed process 812 (python3) total-vm:2048000kB, anon-rss:91000kB, UID:0"),
        (
            "OOMKilling",
            "Memory cgroup out of memory: Killed process 9 (stress) total-vm:9kB, anon-rss:1kB, file-rss:0kB",
        ),
        ("TaskHung", "INFO: task jbd2/mmcblk0p2-:178 blocked for more than 122 seconds."),
        ("KernelOops", "BUG: unable to handle kernel NULL pointer dereference at 0000000000000038"),
        ("KernelOops", "Unable to handle kernel paging request at virtual address 00000000deadbeef"),
        ("KernelOops", "divide error: 0000 [#1] SMP NOPTI"),
        ("KernelOops", "kernel BUG at mm/slub.c:305!"),
        ("KernelOops", "Internal error: Oops - undefined instruction: 0 [#1] PREEMPT ARM"),
        (
            "Ext4Error",
            "EXT4-fs error (device mmcblk0p2): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
        ),
        ("Ext4Warning", "EXT4-fs warning (device sda1): ext4_end_bio:345: I/O error 10 writing to inode 12"),
        ("IOError", "Buffer I/O error on dev mmcblk0p2, logical block 7, lost async page write"),
        ("IOError", "blk_update_request: I/O error, dev sda, sector 2048 op 0x1:(WRITE) flags 0x0"),
        ("IOError", "mmcblk0: error -110 sending status command, retrying"),
        ("IOError", "mmc0: timeout waiting for hardware interrupt."),
    ] {
        let board = Scratch::new("kernel-words");
        board.write(LOG, log(77, &["EXT4-fs (mmcblk0p2): mounted filesystem with ordered data mode.", text]));
        let kernel = read(&board).unwrap();
        let [trouble] = &kernel.all[..] else { panic!("{text}: {kernel:?}") };
        assert_eq!((trouble.reason, trouble.count, trouble.text.as_str(), trouble.at), (reason, 1, text, seconds(78)));
        assert_eq!((kernel.read.log, kernel.has_hung), (79, Some(reason == "TaskHung")));
    }
}

#[test]
fn what_looks_like_trouble_and_is_none_is_passed_over() {
    let board = Scratch::new("kernel-lies");
    let text = "EXT4-fs error (device sda1): made up";
    let lines = [
        // A program has written this one: it may not say that it is the kernel.
        format!("12,5,5000000,-;{text}\n"),
        // More about a record, not one.
        format!("6,6,6000000,-;fine\n EXT4-fs error=;{text}\n"),
        "3,7,7000000,-;I/O error, dev fd0, sector 0 op 0x0:(READ)\n".to_owned(),
        "3,8,8000000,-;Buffer I/O error on dev sr0, logical block 0, async page read\n".to_owned(),
        // Where nothing is plugged in, or Wi-Fi needs another try: with each boot of many boards.
        "3,9,8500000,-;mmc1: error -110 whilst initialising SDIO card\n".to_owned(),
        "6,10,9000000,-;task list: nothing blocked for more than 120 seconds.\n".to_owned(),
        // No head that a kernel would write.
        format!(";{text}\n{text}\n3;{text}\n3,x,9,-;{text}\n3,11,-1,-;{text}\n3,99999999999999999999,1,-;{text}\n"),
        // A read that was cut.
        format!("3,12,11000000,-;{text}"),
    ];
    board.write(LOG, lines.concat());
    let kernel = read(&board).unwrap();
    assert_eq!((counted(&kernel), kernel.read.log), (Vec::new(), 11));
}

#[test]
fn what_was_told_before_is_not_read_again_and_what_comes_is_counted() {
    let board = Scratch::new("kernel-told");
    let io = "Buffer I/O error on dev mmcblk0p2, logical block 7";
    board.write(LOG, log(1, &[io; 5]));
    let root = Root::new(&board.0);
    let told = KernelPlaces { log: 4, ..KernelPlaces::default() };
    let mut files = HealthFiles::new(&root).with_log(Some(KernelLogFiles::open(&root, told)));
    let mut look = |at| files.read(seconds(at)).kernel.unwrap().unwrap();
    assert_eq!(counted(&look(100)), [("IOError", 2)]);
    board.append(LOG, &log(6, &[io, "INFO: task a:1 blocked for more than 120 seconds.", io]));
    let kernel = look(160);
    assert_eq!((counted(&kernel), kernel.has_hung), (vec![("IOError", 4), ("TaskHung", 1)], Some(true)));
    let at: Vec<Up> = kernel.all.iter().map(|trouble| trouble.at).collect();
    assert_eq!(at, [seconds(100); 2], "the board slept: its log says less, and no look saw it before");
    assert_eq!([look(170), look(230)].map(|kernel| kernel.has_hung), [Some(false); 2], "is no news any more");
}

#[test]
fn a_long_log_tells_nothing_before_its_end_and_a_storm_is_counted_in_parts() {
    let board = Scratch::new("kernel-storm");
    let killed = format!("Out of memory: Killed process 1 ({}) total-vm:1kB", "x".repeat(500));
    let down = "XFS (sda1): Shutting down filesystem";
    let before = [vec![down], vec![killed.as_str(); 10_000], vec!["XFS (sda1): Mounting V5 Filesystem"]].concat();
    board.write(LOG, log(1, &before));
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut at = 600;
    let mut look = || {
        at += 10;
        files.read(seconds(at)).kernel.map(Result::unwrap)
    };
    let all: Vec<_> = (0..8).map(|_| look()).collect();
    let (first, then) = all.split_at(all.iter().position(Option::is_some).unwrap());
    assert!(first.len() > 1 && then.len() > 1, "{} {}", first.len(), then.len());
    for kernel in then.iter().flatten() {
        assert_eq!((kernel.all[0].count, kernel.xfs_shut_down.as_deref()), (10_000, Some(&[][..])), "its last word");
    }
    board.append(LOG, &log(before.len() as u64 + 1, &vec![killed.as_str(); 10_000]));
    let counts: Vec<u64> = (0..14).map(|_| look().unwrap().all[0].count).collect();
    let parts = counts.iter().filter(|count| (10_001..20_000).contains(*count)).count();
    assert!(counts.is_sorted() && parts > 1, "{counts:?}");
    assert_eq!(counts[13], 20_000);
}

#[test]
fn a_board_that_hides_its_log_has_counters_and_an_old_one_has_neither() {
    let board = Scratch::new("kernel-counters");
    board.write("proc/version", "Linux");
    assert_eq!(read(&board), None);
    board.write("proc/vmstat", "nr_free_pages 7\noom_kill 3\n");
    let kernel = read(&board).unwrap();
    assert_eq!((counted(&kernel), kernel.has_hung), (vec![("OOMKilling", 3)], None));
    assert_eq!(kernel.unread.map(|absent| absent.path), Some("/dev/kmsg".into()));
    board.write("proc/sys/kernel/hung_task_detect_count", "0\n");
    let root = Root::new(&board.0);
    let told = KernelPlaces { oom_kills: 3, ..KernelPlaces::default() };
    let mut files = HealthFiles::new(&root).with_log(Some(KernelLogFiles::open(&root, told)));
    let mut look = |at| files.read(seconds(at)).kernel.unwrap().unwrap();
    let kernel = look(100);
    assert_eq!((counted(&kernel), kernel.has_hung), (vec![], Some(false)), "an earlier process has told of three");
    board.write("proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
    board.write("proc/sys/kernel/hung_task_detect_count", "1\n");
    let kernel = look(160);
    assert_eq!((counted(&kernel), kernel.has_hung), (vec![("OOMKilling", 2), ("TaskHung", 1)], Some(true)));
    assert_eq!((kernel.read.oom_kills, kernel.read.hung_tasks), (5, 1));
    board.write("proc/vmstat", "nr_free_pages 7\n");
    assert_eq!(
        counted(&look(220)),
        [("OOMKilling", 2), ("TaskHung", 1)],
        "a counter that is gone is not one that fell"
    );
    assert_eq!(HealthFiles::new(&root).with_log(None).read(seconds(100)).kernel, None, "kernelEvents: false");
}

#[test]
fn an_xfs_that_has_shut_down_is_known_until_it_is_mounted_again() {
    let board = Scratch::new("kernel-xfs");
    board.write(LOG, log(1, &["SGI XFS with ACLs, security attributes, no debug enabled"]));
    let root = Root::new(&board.0);
    let mut files = HealthFiles::new(&root);
    let mut look = |at| files.read(seconds(at)).kernel.unwrap().unwrap().xfs_shut_down;
    assert_eq!(look(60), None, "none is mounted");
    let mut number = 2;
    let mut devices = |lines: &[&str]| {
        board.append(LOG, &log(number, lines));
        number += lines.len() as u64;
        look(number * 60).unwrap().join(" ")
    };
    assert_eq!(devices(&["XFS (sda1): Mounting V5 Filesystem", "XFS (sda1): Ending clean mount"]), "");
    assert_eq!(devices(&["XFS (sda1): Corruption of in-memory data detected.  Shutting down filesystem"]), "sda1");
    let newer = "XFS (nvme0n1p2): Filesystem has been shut down due to log error (0x2).";
    assert_eq!(
        devices(&["XFS (sda1): Please unmount the filesystem and rectify the problem(s)", newer]),
        "sda1 nvme0n1p2"
    );
    let other = KernelPlaces { log: 1000, ..KernelPlaces::default() };
    let mut restarted = HealthFiles::new(&root).with_log(Some(KernelLogFiles::open(&root, other)));
    let known = restarted.read(seconds(900)).kernel.unwrap().unwrap();
    assert_eq!((known.xfs_shut_down.map(|devices| devices.len()), known.read.log), (Some(2), 1000), "another process");
    assert_eq!(devices(&["XFS (sda1): Unmounting Filesystem"]), "nvme0n1p2");
    assert_eq!(devices(&["XFS (nvme0n1p2): Mounting V5 Filesystem"]), "");
}

#[test]
fn a_task_that_hangs_once_the_log_tells_of_none_any_more_is_known_by_the_counter() {
    let board = Scratch::new("kernel-hung");
    board.write(LOG, log(1, &["INFO: task a:1 blocked for more than 120 seconds."; 10]));
    board.write("proc/sys/kernel/hung_task_detect_count", "10\n");
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut look = |at| files.read(seconds(at)).kernel.unwrap().unwrap();
    assert_eq!([look(60), look(120)].map(|kernel| kernel.has_hung), [Some(true), Some(false)]);
    board.write("proc/sys/kernel/hung_task_detect_count", "11\n");
    let kernel = look(180);
    assert_eq!((counted(&kernel), kernel.has_hung), (vec![("TaskHung", 10)], Some(true)));
    assert_eq!(look(240).has_hung, Some(false));
}
