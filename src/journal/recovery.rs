//! Turns the bytes of a file, whatever they are, into the journal that they hold.

use std::fmt;

use super::code::{self, Batch, Range};
use super::frame::{self, VERSION};
use super::pace::Pace;
use super::write::File;
use super::{Entry, Journal, Place};
use crate::config::limits::JOURNAL_LEAST_BYTES;
use crate::journal::record::{BootId, Record};

/// What was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Records that wait.
    pub records: usize,
    /// Bytes after the last whole frame: a write that a power cut ended.
    pub cut_bytes: usize,
    /// Places in the middle that could not be read.
    pub skipped: usize,
    /// Frames of a version that this program does not know.
    pub unknown_versions: usize,
}

impl Recovery {
    /// Nothing was lost.
    pub fn is_whole(&self) -> bool {
        self.cut_bytes == 0 && self.skipped == 0 && self.unknown_versions == 0
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{} record{} still to be told", self.records, plural(self.records))?;
        if self.cut_bytes > 0 {
            write!(f, "; {} byte{} of a write that was cut short", self.cut_bytes, plural(self.cut_bytes))?;
        }
        if self.skipped > 0 {
            write!(f, "; {} place{} that cannot be read", self.skipped, plural(self.skipped))?;
        }
        if self.unknown_versions > 0 {
            let count = self.unknown_versions;
            write!(f, "; {count} frame{} of a newer nodepulse, left alone", plural(count))?;
        }
        Ok(())
    }
}

pub(super) fn recover(bytes: &[u8], quota_bytes: usize, boot: BootId) -> (Journal, Recovery) {
    let scan = frame::scan(bytes);
    let mut found = Recovery { cut_bytes: scan.cut_bytes, skipped: scan.skipped, ..Recovery::default() };
    let mut batches = Vec::new();
    for frame in &scan.frames {
        match Batch::decode(frame) {
            Some(batch) if frame.version == VERSION => batches.push(batch),
            _ => found.unknown_versions += 1,
        }
    }
    let known = scan.frames.iter().map(|frame| frame.next).filter(|next| *next <= code::LAST_SEQUENCE).max();
    // A number takes at least one byte of the frame that was lost with it.
    let lost = scan.skipped_bytes + scan.cut_bytes;
    let mut journal = Journal {
        boot,
        last_boot: last_boot(&batches),
        next: known.unwrap_or(1).max(1).saturating_add(lost as u64),
        is_fresh: true,
        waiting: Box::default(),
        waiting_bytes: 0,
        quota_bytes: quota_bytes.max(JOURNAL_LEAST_BYTES),
        forgotten_ranges: Box::default(),
        forgotten_count: 0,
        too_many_ranges: false,
        may_merge: false,
        file: File { end: 0, room_end: 0, must_replace: true, must_write: false },
        file_after_write: None,
        pace: Pace::default(),
        unwritten_since: None,
    };
    let forgotten = Forgotten::of(&batches);
    for record in batches.into_iter().flat_map(|batch| batch.records) {
        if !forgotten.has(record.sequence.0) {
            journal.insert(record);
        }
    }
    found.records = journal.waiting().filter(|record| record.what.is_shown()).count();
    if lost == 0 && bytes.len() <= journal.quota_bytes {
        journal.file = room_behind(&scan.frames, bytes.len());
    }
    (journal, found)
}

/// Appends go on behind the last frame but one, if the last stands where a whole file has it.
fn room_behind(frames: &[frame::Frame<'_>], size: usize) -> File {
    let last = frames.last().filter(|last| last.end == size);
    let (end, room_end) = match (last, frames.iter().rev().nth(1)) {
        (Some(last), Some(before)) => (before.end, last.start),
        _ => (0, 0),
    };
    File { end, room_end, must_replace: room_end == 0, must_write: false }
}

/// The boot of the newest record, which may be forgotten: a frame without records speaks of it too.
fn last_boot(batches: &[Batch<Record>]) -> Option<BootId> {
    let newest = |batch: &Batch<Record>| {
        let own = batch.records.iter().map(|record| record.sequence.0).max();
        own.unwrap_or(batch.next.saturating_sub(1))
    };
    batches.iter().filter(|batch| newest(batch) > 0).max_by_key(|batch| newest(batch)).map(|batch| batch.boot)
}

/// The numbers of forgotten records.
struct Forgotten {
    below: u64,
    /// In order of their beginnings, none touching another.
    ranges: Vec<Range>,
}

impl Forgotten {
    fn of(batches: &[Batch<Record>]) -> Forgotten {
        let below = batches.iter().map(|batch| batch.below).max().unwrap_or(0);
        let mut ranges: Vec<Range> = batches.iter().flat_map(|batch| batch.forgotten.iter().copied()).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let touches = next.0 <= before.1.saturating_add(1);
            before.1 = if touches { before.1.max(next.1) } else { before.1 };
            touches
        });
        Forgotten { below, ranges }
    }

    fn has(&self, number: u64) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= number);
        let range = behind.checked_sub(1).and_then(|place| self.ranges.get(place));
        number < self.below || range.is_some_and(|(_, last)| number <= *last)
    }
}

impl Journal {
    /// Takes a record that the disk has. The same number again is the same record, told later.
    fn insert(&mut self, record: Record) {
        let weight = code::most_bytes(&record);
        match self.waiting.binary_search_by_key(&record.sequence, |entry| entry.record.sequence) {
            Ok(place) => {
                if let Some(entry) = self.waiting.get_mut(place) {
                    self.waiting_bytes = self.waiting_bytes - code::most_bytes(&entry.record) + weight;
                    entry.record = record;
                }
            }
            Err(_) => {
                self.make_room(weight, record.at);
                // Making room may have moved it.
                let place = self.waiting.partition_point(|entry| entry.record.sequence < record.sequence);
                self.waiting_bytes += weight;
                // There is room now, and the place is one of it.
                let _ = self.waiting.insert(place, Entry { record, place: Place::Disk, may_be_on_disk: true });
            }
        }
    }
}
