//! Turns a file of several hundred records into every file that differs from it by a cut or by one byte.

use std::collections::BTreeSet;
use std::time::Duration;

use nodepulse::journal::record::cut;
use nodepulse::journal::{BootId, Happened, Journal, Sequence, Status};
use nodepulse::time::{Now, Up, Wall};

use super::disk::Disk;
use super::oracle::{Story, story};

const QUOTA_BYTES: usize = 64 * 1024;
const BOOT: BootId = BootId(0xB007);

/// A file, and what it says after each of its writes.
struct History {
    bytes: Vec<u8>,
    /// For each write the end of what it wrote, what it added, what it forgot, and what waits after it.
    writes: Vec<(usize, Story, BTreeSet<Sequence>, Story)>,
}

impl History {
    /// Every byte of what was written; of the zeros behind it, which are all the same, one in 97 unless all are asked for.
    fn places(&self) -> impl Iterator<Item = usize> {
        let written = self.writes.last().unwrap().0;
        let step = if std::env::var_os("EVERY_BIT").is_some() { 1 } else { 97 };
        let end = self.bytes.len();
        (0..written).chain((written..end - 100).step_by(step)).chain(end - 100..end)
    }
}

fn now(seconds: u64) -> Now {
    let up = Up::since_boot(Duration::from_secs(seconds));
    Now { up, wall: Some(Wall::from_unix_seconds(1_800_000_000).plus(up.as_duration())) }
}

/// 400 changes in writes of up to twelve, of which every third write also forgets some.
fn history() -> History {
    let (mut journal, _) = Journal::recover(&[], QUOTA_BYTES, BOOT);
    let (mut disk, mut writes) = (Disk::default(), Vec::new());
    let (mut made, mut second) = (0, 0);
    while made < 400 {
        let before = story(&journal);
        for _ in 0..1 + made % 12 {
            let condition = cut(["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"][made % 4]);
            let (from, to) = (Status::False, Status::True);
            journal.add(now(second), Happened::ConditionChanged { condition, from, to, reason: cut("KubeletReady") });
            made += 1;
            second += 60;
        }
        if writes.len() % 3 == 2 {
            let told: Vec<Sequence> = journal.waiting().map(|record| record.sequence).step_by(2).take(14).collect();
            told.into_iter().for_each(|sequence| journal.forget(sequence));
        }
        let write = journal.next_write(now(second).up).unwrap();
        disk.write(&write);
        journal.written(true, now(second).up);
        let after = story(&journal);
        let added = after.iter().filter(|(sequence, _)| !before.contains_key(sequence));
        let added = added.map(|(sequence, record)| (*sequence, record.clone())).collect();
        let forgotten = before.keys().filter(|sequence| !after.contains_key(sequence)).copied().collect();
        let end = match &write {
            nodepulse::journal::Write::Append { at_bytes, bytes } => *at_bytes as usize + bytes.len(),
            nodepulse::journal::Write::Replace { bytes } => {
                writes.clear();
                bytes.len()
            }
        };
        writes.push((end, added, forgotten, after));
    }
    History { bytes: disk.journal, writes }
}

#[test]
fn a_file_cut_anywhere_says_what_was_written_before_the_cut() {
    let history = history();
    let first_append = history.writes[1].0;
    for length in history.places().filter(|length| *length >= first_append) {
        let (journal, found) = Journal::recover(&history.bytes[..length], QUOTA_BYTES, BOOT);
        let expected = history.writes[1..].iter().rev().find(|write| write.0 <= length).unwrap();
        assert!(journal.waiting().eq(expected.3.values()), "cut at {length}: {found}");
        assert_eq!((found.skipped, found.unknown_versions), (0, 0), "cut at {length}");
    }
    for length in 0..first_append {
        let (journal, _) = Journal::recover(&history.bytes[..length], QUOTA_BYTES, BOOT);
        let first = &history.writes[0].3;
        assert!(journal.waiting().all(|record| first.get(&record.sequence) == Some(record)), "{length}");
    }
}

#[test]
fn a_byte_that_changes_costs_no_more_than_its_own_frame_and_never_a_number() {
    let history = history();
    let all: Story =
        history.writes.iter().flat_map(|write| write.1.clone()).chain(history.writes[0].3.clone()).collect();
    let last = &history.writes.last().unwrap().3;
    let newest = *last.keys().next_back().unwrap();
    let bits = if std::env::var_os("EVERY_BIT").is_some() { 0..8 } else { 0..1 };
    for (at, bit) in history.places().flat_map(|at| bits.clone().map(move |bit| (at, bit))) {
        let mut bytes = history.bytes.clone();
        bytes[at] ^= 1 << ((at + bit) % 8);
        let (mut journal, found) = Journal::recover(&bytes, QUOTA_BYTES, BOOT);
        assert!(found.skipped + found.unknown_versions <= 1, "{at}: {found}");
        let hit = history.writes[1..].iter().find(|write| at < write.0);
        let (lost, back) = hit.map(|write| (&write.1, &write.2)).unzip();
        for record in journal.waiting() {
            let sequence = &record.sequence;
            let is_right = last.contains_key(sequence) || back.is_some_and(|back| back.contains(sequence));
            assert!(all.get(sequence) == Some(record) && (is_right || at < history.writes[1].0), "{at}: {record:?}");
        }
        if at >= history.writes[1].0 {
            let says: BTreeSet<Sequence> = journal.waiting().map(|record| record.sequence).collect();
            let is_lost = |sequence: &Sequence| lost.is_some_and(|lost| lost.contains_key(sequence));
            assert!(last.keys().all(|sequence| says.contains(sequence) || is_lost(sequence)), "{at}");
        }
        assert!(journal.add(now(0), Happened::ProcessStarted) > newest, "{at}: a number comes twice");
    }
}

/// Two bytes that look like the beginning of a frame of 3,829 bytes wherever one looks.
#[test]
fn a_file_that_was_made_to_be_slow_is_read_fast_and_what_stands_before_it_is_kept() {
    let whole = history();
    let waiting = whole.writes.last().unwrap().3.len();
    let begun = nodepulse::io::clock::up();
    let bytes = [whole.bytes.as_slice(), &[0xF5, 0x0E].repeat(512 * 1024)].concat();
    let (journal, found) = Journal::recover(&bytes, QUOTA_BYTES, BOOT);
    let spent = nodepulse::io::clock::up() - begun;
    assert!(spent < Duration::from_secs(5), "{spent:?}");
    assert!(found.cut_bytes >= 1024 * 1024 - 2 && found.records == waiting, "{found}");
    assert_eq!(journal.waiting().count(), waiting);
}
