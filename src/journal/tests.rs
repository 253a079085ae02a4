//! Turns changes, writes and their ends into what still waits.

use std::time::Duration;

use super::record::cut;
use super::*;
use crate::config::limits::JOURNAL_LEAST_BYTES;
use crate::time::Wall;

const QUOTA_BYTES: usize = 64 * 1024;
const BOOT: BootId = BootId(7);

fn at(seconds: u64) -> Now {
    let up = Up::since_boot(Duration::from_secs(seconds));
    Now { up, wall: Some(Wall::from_unix_seconds(1_800_000_000).plus(up.as_duration())) }
}

fn change(condition: &str, to: Status) -> Happened {
    let from = if to == Status::True { Status::False } else { Status::True };
    Happened::ConditionChanged { condition: cut(condition), from, to, reason: cut("KubeletHasSufficientMemory") }
}

/// A file that holds what is written to it.
#[derive(Default)]
struct Paper(Vec<u8>);

impl Paper {
    fn take(&mut self, write: Write) {
        match write {
            Write::Append { at_bytes, bytes } => {
                let at = at_bytes as usize;
                self.0[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Write::Replace { bytes } => self.0 = bytes,
        }
    }

    fn sync(&mut self, journal: &mut Journal, now: Now) -> bool {
        let write = journal.next_write(now.up);
        let has_written = write.is_some();
        if let Some(write) = write {
            self.take(write);
            journal.written(true, now.up);
        }
        has_written
    }

    fn recover(&self, boot: BootId) -> Journal {
        let (journal, found) = Journal::recover(&self.0, QUOTA_BYTES, boot);
        assert!(found.is_whole(), "{found}");
        journal
    }
}

fn new() -> Journal {
    Journal::recover(&[], QUOTA_BYTES, BOOT).0
}

/// What waits, and what the journal thinks that it weighs.
fn told(journal: &Journal) -> Vec<Record> {
    let told: Vec<Record> = journal.waiting().cloned().collect();
    assert_eq!(journal.waiting_bytes, told.iter().map(code::most_bytes).sum::<usize>());
    assert!(journal.waiting_bytes <= write::room_bytes(journal.quota_bytes));
    told
}

#[test]
fn what_was_written_is_there_after_a_restart_and_the_numbering_goes_on() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let first = journal.add(at(1), Happened::ProcessStarted);
    assert!(!journal.is_synced(first) && journal.has_unwritten());
    assert!(paper.sync(&mut journal, at(1)) && journal.is_synced(first) && !journal.has_unwritten());
    let second = journal.add(at(2), change("MemoryPressure", Status::True));
    paper.sync(&mut journal, at(2));
    assert!(second > first);
    let again = paper.recover(BOOT);
    assert_eq!(told(&again), told(&journal));
    let mut again = paper.recover(BootId(8));
    assert_eq!(again.last_boot(), Some(BOOT));
    assert_eq!(again.add(at(9), Happened::ProcessStarted), Sequence(second.0 + 1 + 9_000));
    assert_eq!((again.boot(), again.last_boot()), (BootId(8), Some(BootId(8))));
}

fn all_synced(journal: &Journal) -> bool {
    journal.waiting().all(|record| journal.is_synced(record.sequence))
}

fn dropped(journal: &Journal) -> Vec<u32> {
    let count = |record: &Record| if let Happened::Dropped { count } = record.what { Some(count) } else { None };
    journal.waiting().filter_map(count).collect()
}

/// Records that wait, and those that are counted.
fn all_told(journal: &Journal) -> u32 {
    let counts = dropped(journal);
    counts.iter().sum::<u32>() + (journal.waiting().count() - counts.len()) as u32
}

#[test]
fn what_was_forgotten_stays_so_after_the_next_write_and_the_numbers_go_on() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let numbers: Vec<Sequence> = (0..5).map(|second| journal.add(at(second), Happened::ProcessStarted)).collect();
    paper.sync(&mut journal, at(5));
    journal.forget(numbers[1]);
    journal.forget(numbers[1]);
    journal.forget(Sequence(999));
    assert!(journal.has_unwritten() && journal.write_due().is_none(), "one tombstone rides with the next write");
    assert_eq!(paper.recover(BOOT).waiting().count(), 5);
    paper.sync(&mut journal, at(6));
    assert_eq!(told(&paper.recover(BOOT)), told(&journal));
    numbers.iter().for_each(|number| journal.forget(*number));
    paper.sync(&mut journal, at(7));
    let mut again = paper.recover(BOOT);
    assert_eq!((again.waiting().count(), again.last_boot()), (0, Some(BOOT)));
    assert_eq!(again.add(at(0), Happened::ProcessStarted), Sequence(numbers[4].0 + 1));
}

#[test]
fn an_empty_journal_that_was_replaced_still_knows_the_first_unused_number_and_the_last_boot() {
    let mut paper = Paper::default();
    let mut journal = new();
    let mut newest = Sequence(0);
    for round in 0..400 {
        newest = journal.add(at(round), Happened::OutageBegan { cause: cut(&format!("cause {round}")) });
        paper.sync(&mut journal, at(round));
        journal.forget(newest);
    }
    paper.sync(&mut journal, at(400));
    // The next file is written by a process of another boot, which has nothing to say but that.
    let (mut other, _) = Journal::recover(&paper.0[..paper.0.len() - 1], QUOTA_BYTES, BootId(8));
    other.add(at(0), Happened::ProcessStarted);
    let first = other.waiting().next().map(|record| record.sequence).unwrap();
    assert!(first > newest);
    paper.sync(&mut other, at(1));
    other.forget(first);
    other.quota_bytes = 0;
    other.file.must_replace = true;
    paper.sync(&mut other, at(2));
    for damaged in [0..4096, 12_288..16_384] {
        let mut bytes = paper.0.clone();
        bytes[damaged].fill(0xFF);
        let (mut again, found) = Journal::recover(&bytes, QUOTA_BYTES, BootId(9));
        assert_eq!((again.waiting().count(), again.last_boot()), (0, Some(BootId(8))), "{found}");
        assert!(again.add(at(0), Happened::ProcessStarted) > first, "{found}");
    }
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let (mut paper, mut journal) = (Paper::default(), new());
    assert_eq!((journal.next_write(at(9).up), journal.write_due(), journal.has_unwritten()), (None, None, false));
    journal.add(at(1), Happened::ProcessStarted);
    paper.sync(&mut journal, at(1));
    let day = 86_400;
    assert_eq!((journal.next_write(at(day).up), journal.write_due(), journal.has_unwritten()), (None, None, false));
    let (mut again, _) = Journal::recover(&paper.0[..paper.0.len() - 1], QUOTA_BYTES, BOOT);
    assert_eq!((again.next_write(at(day).up), again.write_due()), (None, None), "damage alone is no reason either");
}

#[test]
fn a_condition_that_flaps_for_weeks_keeps_its_first_and_its_last_change_and_all_outages() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let first = journal.add(at(0), change("MemoryPressure", Status::True));
    let began = journal.add(at(1), Happened::OutageBegan { cause: cut("no-route") });
    let other = journal.add(at(2), change("DiskPressure", Status::True));
    let mut last = first;
    for minute in 1..=2000 {
        let to = if minute % 2 == 0 { Status::True } else { Status::False };
        last = journal.add(at(minute * 60), change("MemoryPressure", to));
        if minute % 300 == 0 {
            journal.add(at(minute * 60 + 1), Happened::OutageEnded { cause: cut("no-route"), changes: 0, dropped: 0 });
            journal.add(at(minute * 60 + 2), Happened::OutageBegan { cause: cut("no-route") });
        }
        assert!(journal.waiting().count() <= WAITING_RECORDS);
        if journal.write_due().is_some_and(|due| due <= at(minute * 60).up) {
            paper.sync(&mut journal, at(minute * 60));
        }
    }
    let numbers: Vec<Sequence> = journal.waiting().map(|record| record.sequence).collect();
    assert!([first, began, other, last].iter().all(|number| numbers.contains(number)));
    let outages = journal
        .waiting()
        .filter(|record| matches!(record.what, Happened::OutageBegan { .. } | Happened::OutageEnded { .. }));
    assert_eq!(outages.count(), 13);
    assert_eq!((dropped(&journal).len(), all_told(&journal)), (1, 2003 + 12), "every record is there or counted");
    paper.sync(&mut journal, at(130_000));
    assert_eq!(told(&paper.recover(BOOT)), told(&journal));
}

#[test]
fn a_count_of_dropped_records_that_may_be_on_its_way_to_the_server_grows_no_more() {
    let mut journal = new();
    for second in 0..300 {
        journal.add(at(second), change("Ready", Status::True));
    }
    assert_eq!(dropped(&journal), [45], "one more than there were too many: the count takes a place");
    let first = journal.waiting().next().unwrap().sequence;
    journal.forget(first);
    journal.add(at(301), change("Ready", Status::False));
    journal.add(at(302), change("Ready", Status::True));
    assert_eq!(dropped(&journal), [45, 2]);
    journal.add(at(303), change("Ready", Status::False));
    assert_eq!(dropped(&journal), [45, 3]);
}

#[test]
fn of_many_kinds_the_one_that_is_missed_least_goes_first() {
    let mut journal = new();
    for boot in 0..100 {
        journal.add(at(boot), Happened::BoardRebooted { old: BootId(boot.into()), reason: cut("") });
    }
    for second in 100..400 {
        journal.add(at(second), Happened::ProcessStarted);
        journal.add(at(second), Happened::ClockSet { wall: Wall::from_unix_seconds(second.cast_signed()) });
    }
    let of = |is_one: fn(&Happened) -> bool| journal.waiting().filter(|record| is_one(&record.what)).count();
    assert_eq!(of(|what| matches!(what, Happened::BoardRebooted { .. })), 100);
    let clocks: Vec<&Record> =
        journal.waiting().filter(|record| matches!(record.what, Happened::ClockSet { .. })).collect();
    assert!(
        matches!(clocks.last(), Some(Record { what: Happened::ClockSet { wall }, .. }) if wall.unix_seconds() == 399)
    );
    let mut crowd = new();
    for number in 0..600 {
        crowd.add(at(number), change(&format!("Condition{number}"), Status::True));
    }
    assert_eq!((crowd.waiting().count(), all_told(&crowd)), (WAITING_RECORDS, 600));
    assert!(dropped(&crowd).len() <= 2, "the first that waits may be on its way, and no other");
}

#[test]
fn a_small_quota_holds_fewer_records_and_never_a_byte_more() {
    let mut journal = Journal::recover(&[], 0, BOOT).0;
    let mut paper = Paper::default();
    for second in 0..1000 {
        let long = format!("{second:064}");
        journal.add(
            at(second),
            Happened::ConditionChanged {
                condition: cut(&long),
                from: Status::True,
                to: Status::False,
                reason: cut(&long.replace('0', "x")),
            },
        );
        paper.sync(&mut journal, at(second));
        assert!(paper.0.len() <= 16 * 1024 && all_synced(&journal));
    }
    let (again, _) = Journal::recover(&paper.0, 0, BOOT);
    assert_eq!(told(&again), told(&journal));
    assert_eq!(all_told(&journal), 1000);
}

#[test]
fn a_smaller_quota_than_before_drops_what_no_longer_fits_and_says_so() {
    let (mut paper, mut journal) = (Paper::default(), new());
    (0..256).for_each(|second| _ = journal.add(at(second), change("Ready", Status::True)));
    paper.sync(&mut journal, at(256));
    let (mut small, found) = Journal::recover(&paper.0, 16 * 1024, BOOT);
    assert!(small.waiting().count() < 256 && found.is_whole());
    assert_eq!(all_told(&small), 256);
    assert!(small.has_unwritten());
    paper.sync(&mut small, at(257));
    assert_eq!(told(&Journal::recover(&paper.0, 16 * 1024, BOOT).0), told(&small));
}

#[test]
fn a_disk_that_fails_holds_nothing_up_and_gets_everything_in_the_end() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let first = journal.add(at(0), Happened::ProcessStarted);
    paper.sync(&mut journal, at(0));
    journal.forget(first);
    let second = journal.add(at(1), change("Ready", Status::True));
    assert!(journal.next_write(at(1).up).is_some() && !journal.is_synced(second));
    assert_eq!(journal.next_write(at(1).up), None, "one at a time");
    journal.written(false, at(1).up);
    assert!(journal.is_synced(second) && journal.has_unwritten());
    assert_eq!(journal.next_write(at(2).up), None);
    journal.forget(second);
    let due = journal.write_due().unwrap();
    assert_eq!(due, at(11).up);
    // Nobody knows what that write left behind: a new file says that nothing waits.
    let write = journal.next_write(due).unwrap();
    assert!(matches!(write, Write::Replace { .. }));
    paper.take(write);
    journal.written(true, due);
    assert!(!journal.has_unwritten());
    assert_eq!(paper.recover(BOOT).waiting().count(), 0);
    journal.written(true, due);
}

#[test]
fn what_changes_while_a_write_is_in_flight_waits_for_the_next() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let first = journal.add(at(0), change("Ready", Status::True));
    let write = journal.next_write(at(0).up).unwrap();
    let second = journal.add(at(0), change("Ready", Status::False));
    journal.forget(first);
    paper.take(write);
    journal.written(true, at(0).up);
    assert!(journal.is_synced(first) && !journal.is_synced(second));
    assert_eq!(told(&paper.recover(BOOT)).len(), 1);
    assert!(paper.sync(&mut journal, at(1)));
    assert_eq!(told(&paper.recover(BOOT)), told(&journal));
    assert_eq!(told(&journal)[0].sequence, second);
}

#[test]
fn a_day_of_a_change_a_minute_writes_no_more_than_256_kib_and_touches_one_block_at_a_time() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let (mut written, mut most) = (0, 0);
    for minute in 0..5 * 24 * 60 {
        let to = if minute % 2 == 0 { Status::True } else { Status::False };
        journal.add(at(minute * 60), change("MemoryPressure", to));
        if journal.write_due().is_some_and(|due| due <= at(minute * 60).up) {
            let write = journal.next_write(at(minute * 60).up).unwrap();
            written += match &write {
                Write::Replace { bytes } => bytes.len(),
                Write::Append { at_bytes, bytes } => {
                    assert_eq!(*at_bytes / 4096, (*at_bytes + bytes.len() as u64 - 1) / 4096);
                    4096
                }
            };
            paper.take(write);
            journal.written(true, at(minute * 60).up);
        }
        if minute % (24 * 60) == 0 {
            most = most.max(written);
            written = 0;
        }
    }
    assert!((128 * 1024..=256 * 1024).contains(&most), "{most}");
    assert_eq!(told(&paper.recover(BOOT)).len(), WAITING_RECORDS);
}

#[test]
fn what_is_taken_back_is_worth_a_write_of_its_own_also_while_another_is_under_way() {
    for is_in_flight in [false, true] {
        let (mut paper, mut journal) = (Paper::default(), new());
        let numbers: Vec<Sequence> = (0..5).map(|second| journal.add(at(second), Happened::ProcessStarted)).collect();
        if !is_in_flight {
            paper.sync(&mut journal, at(5));
        }
        let write = journal.next_write(at(5).up);
        journal.take_back(numbers[1]);
        if let Some(write) = write {
            paper.take(write);
            journal.written(true, at(5).up);
        }
        assert!(journal.write_due().is_some() && journal.owes_a_write());
        assert!(paper.sync(&mut journal, at(6)));
        assert_eq!((journal.write_due(), journal.owes_a_write()), (None, false));
        assert_eq!(told(&paper.recover(BOOT)), told(&journal));
        assert_eq!(journal.waiting().count(), 4);
    }
}

#[test]
fn the_end_of_a_replay_is_worth_a_write_of_its_own() {
    let (mut paper, mut journal) = (Paper::default(), new());
    let numbers: Vec<Sequence> = (0..20).map(|second| journal.add(at(second), Happened::ProcessStarted)).collect();
    paper.sync(&mut journal, at(20));
    numbers[..19].iter().for_each(|number| journal.forget(*number));
    assert_eq!(journal.write_due(), None);
    journal.forget(numbers[19]);
    assert!(journal.write_due().is_some_and(|due| due <= at(20).up));
    assert!(paper.sync(&mut journal, at(21)));
    assert_eq!((journal.write_due(), paper.recover(BOOT).waiting().count()), (None, 0));
}

#[test]
fn frames_of_a_newer_version_are_left_alone_and_their_numbers_are_not_used() {
    let (mut paper, mut journal) = (Paper::default(), new());
    journal.add(at(0), Happened::ProcessStarted);
    paper.sync(&mut journal, at(0));
    let mut newer = frame::encode(5000, b"what only a newer nodepulse understands").unwrap();
    newer[1] = 2;
    let sum = checksum::crc32c(&[&newer[..4], &newer[8..]]).to_le_bytes();
    newer[4..8].copy_from_slice(&sum);
    let end = journal.file.end;
    paper.0[end..end + newer.len()].copy_from_slice(&newer);
    let (mut older, found) = Journal::recover(&paper.0, QUOTA_BYTES, BOOT);
    assert_eq!((found.records, found.unknown_versions, found.skipped, found.cut_bytes), (1, 1, 0, 0));
    assert_eq!(older.add(at(0), Happened::ProcessStarted), Sequence(5000));
    assert!(paper.sync(&mut older, at(1)));
    let (_, found) = Journal::recover(&paper.0, QUOTA_BYTES, BOOT);
    assert_eq!((found.records, found.unknown_versions), (2, 1), "still there");
}

#[test]
fn any_bytes_recover_to_something() {
    let mut state: u64 = 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for length in [0, 1, 15, 16, 17, 100, 4096, 70_000] {
        let junk: Vec<u8> = (0..length).map(|_| next()).collect();
        let (journal, found) = Journal::recover(&junk, QUOTA_BYTES, BOOT);
        assert_eq!((journal.waiting().count(), journal.last_boot()), (0, None));
        assert!(found.cut_bytes <= length && found.to_string().starts_with("0 records"), "{found}");
    }
    let magic = vec![0xF5; 70_000];
    assert_eq!(Journal::recover(&magic, QUOTA_BYTES, BOOT).1.cut_bytes, 70_000);
}

#[test]
fn each_of_many_that_were_forgotten_one_by_one_stays_so() {
    for many in [7, 200] {
        let (mut paper, mut journal) = (Paper::default(), new());
        let numbers: Vec<Sequence> = (0..many).map(|_| journal.add(at(0), Happened::ProcessStarted)).collect();
        paper.sync(&mut journal, at(1));
        // More stretches than a frame has room for, if there are many; then two that touch others.
        numbers.iter().step_by(2).for_each(|number| journal.forget(*number));
        journal.forget(numbers[3]);
        journal.forget(numbers[5]);
        assert!(journal.has_unwritten() && paper.sync(&mut journal, at(2)));
        assert_eq!((told(&paper.recover(BOOT)), told(&journal).len()), (told(&journal), many / 2 - 2));
    }
}

#[test]
fn a_number_that_a_torn_write_may_have_told_is_not_used_again_and_nothing_is_put_behind_it() {
    let (mut paper, mut journal) = (Paper::default(), new());
    journal.add(at(0), Happened::ProcessStarted);
    paper.sync(&mut journal, at(0));
    let begin = journal.file.end;
    let torn = (0..16).map(|_| journal.add(at(0), Happened::ProcessStarted)).next_back().unwrap();
    paper.sync(&mut journal, at(0));
    let end = journal.file.end;
    for damaged in [end - 9..end, begin..begin + 9] {
        let mut bytes = paper.0.clone();
        bytes[damaged].fill(0);
        let (mut again, found) = Journal::recover(&bytes, QUOTA_BYTES, BOOT);
        assert!(!found.is_whole() && again.add(at(0), Happened::ProcessStarted) > torn, "{found}");
        assert!(matches!(again.next_write(at(0).up), Some(Write::Replace { .. })), "{found}");
    }
}

#[test]
fn a_new_file_is_dense_with_room_for_twice_as_much_which_appends_fill_without_gaps() {
    let (mut paper, mut journal) = (Paper::default(), new());
    (0..400).for_each(|minute| _ = journal.add(at(60 * minute), change(&format!("Condition{minute}"), Status::True)));
    paper.sync(&mut journal, at(24_000));
    let File { end, room_end, .. } = journal.file;
    assert!(end < 400 * 45, "{end} bytes for 400 records");
    assert!(3 * end > JOURNAL_LEAST_BYTES + 4096, "a file of the least size would do: {end}");
    assert!((2 * end - 100..2 * end + 4096).contains(&(room_end - end)), "{room_end} after {end}");
    for _ in 0..10 {
        let end = journal.file.end;
        journal.add(at(24_001), Happened::ProcessStarted);
        let write = journal.next_write(at(24_001).up).unwrap();
        assert!(matches!(&write, Write::Append { at_bytes, .. } if *at_bytes == end as u64), "{end} {write:?}");
        paper.take(write);
        assert!(journal.has_unwritten() && journal.write_due().is_none(), "it is in flight");
        journal.written(true, at(24_001).up);
    }
    assert_eq!(told(&paper.recover(BOOT)), told(&journal));
}

#[test]
fn a_write_is_due_when_the_oldest_came_that_is_not_on_disk() {
    let mut journal = new();
    let first = journal.add(at(5), Happened::ProcessStarted);
    let second = journal.add(at(6), Happened::ProcessStarted);
    assert_eq!(journal.write_due(), Some(at(5).up));
    journal.forget(first);
    assert_eq!(journal.write_due(), Some(at(5).up), "not before it was made");
    journal.forget(second);
    assert_eq!((journal.write_due(), journal.has_unwritten()), (None, false), "it never was on disk");
    journal.add(at(9), Happened::ProcessStarted);
    assert_eq!(journal.write_due(), Some(at(9).up));
}

#[test]
fn what_was_found_is_said_in_a_sentence() {
    let said = |records, cut_bytes, skipped, unknown_versions| {
        let found = Recovery { records, cut_bytes, skipped, unknown_versions };
        assert_eq!(found.is_whole(), (cut_bytes, skipped, unknown_versions) == (0, 0, 0));
        found.to_string()
    };
    assert_eq!(said(1, 0, 0, 0), "1 record still to be told");
    assert_eq!(said(0, 1, 0, 0), "0 records still to be told; 1 byte of a write that was cut short");
    assert_eq!(said(2, 0, 1, 0), "2 records still to be told; 1 place that cannot be read");
    assert_eq!(said(2, 0, 0, 1), "2 records still to be told; 1 frame of a newer nodepulse, left alone");
    let all = "2 records still to be told; 2 bytes of a write that was cut short; 2 places that cannot be read; \
               2 frames of a newer nodepulse, left alone";
    assert_eq!(said(2, 2, 2, 2), all);
}
