//! Turns changes into bytes that survive any power cut, and any bytes back into the changes that still wait.
//!
//! ```text
//!   0                       4 KiB                          8 KiB                             size of the file
//!   +-------+-------+-------+---------+---------+----------+---------- ... --------+---------------+
//!   | frame | frame | zeros | frame   | frame   | frame    | zeros: space made     | frame without |
//!   |       |       |       |         |         |          | ready for appends     | records       |
//!   +-------+-------+-------+---------+---------+----------+---------- ... --------+---------------+
//!   '-- written at once --------------'-- appended --------'                       '-- at once ----'
//! ```
//!
//! A frame (`frame.rs`) is what one write has to say, under one checksum: records, which records are forgotten, the first
//! unused number (`code.rs`). Nothing in it needs another frame, so they may be lost one by one, and a record is gone when
//! any frame says so, wherever that stands. A write goes behind the last frame, into zeros that are there already and into
//! one block if it fits in one: the file system has nothing to allocate, and in its own journal only the time of the change
//! to note (on ext4 16 KiB, within a minute: no file can be written without it). When the zeros are used up, or the file is
//! damaged, or a write of unknown end may be in it, what still waits is written to a new file that takes the old one's
//! name. The last frame is there so that no one bad block takes the numbering with it.

pub mod checksum;
mod code;
mod frame;
mod keep;
mod pace;
pub mod record;
mod recovery;
mod write;

pub use record::{BootId, Happened, Moment, Record, Sequence, Status};
pub use recovery::Recovery;
pub use write::Write;

use code::Range;
use heapless::Vec as Bounded;
use pace::Pace;
use write::File;

use crate::config::limits::WAITING_RECORDS;
use crate::probe::KernelPlaces;
use crate::time::{Now, Up};

/// What has happened and is not yet told, and how much of that is on disk.
pub struct Journal {
    boot: BootId,
    last_boot: Option<BootId>,
    /// First unused number.
    next: u64,
    /// No record was added since `recover`.
    is_fresh: bool,
    /// In order of their numbers.
    waiting: Box<Bounded<Entry, WAITING_RECORDS>>,
    /// Sum of the most bytes that each of them takes.
    waiting_bytes: usize,
    quota_bytes: usize,
    /// Forgotten since the last write: ranges, and how many records.
    forgotten_ranges: Box<Bounded<Range, { code::FRAME_RANGES }>>,
    forgotten_count: usize,
    /// There were more ranges than a frame has room for: only a new file can say it.
    too_many_ranges: bool,
    /// The record of how many were dropped cannot have been sent yet, unless it is the first that waits.
    may_merge: bool,
    file: File,
    /// While a write is under way: what the file is when it has succeeded.
    file_after_write: Option<File>,
    pace: Pace,
    /// When the oldest record that is not on disk came.
    unwritten_since: Option<Up>,
}

/// A record, and where it is.
struct Entry {
    record: Record,
    place: Place,
    /// A write that carried it was begun: bytes of it may be on disk.
    may_be_on_disk: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    /// In the write in flight.
    InFlight,
    Disk,
}

/// So many records forgotten and none waiting: the end of a replay, worth a write of its own.
const REPLAY_RECORDS: usize = 8;
/// So many forgotten in the middle of one.
const REPLAY_PART_RECORDS: usize = 64;

impl Journal {
    /// The journal that `bytes` hold, whatever they are. `quota_bytes`: most bytes of the file; `boot`: the present one.
    pub fn recover(bytes: &[u8], quota_bytes: usize, boot: BootId) -> (Journal, Recovery) {
        recovery::recover(bytes, quota_bytes, boot)
    }

    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// The boot of the newest record there ever was.
    pub fn last_boot(&self) -> Option<BootId> {
        self.last_boot
    }

    /// Until where what the kernel told is recorded, in the present boot.
    pub fn kernel_read(&self) -> KernelPlaces {
        let places = self.waiting().filter_map(|record| match &record.what {
            Happened::KernelRead { until } if record.at.boot == self.boot => Some(*until),
            _ => None,
        });
        places.last().unwrap_or_default()
    }

    /// Takes a record of what happened `now`. When there is no room, one that can be missed more makes some.
    ///
    /// A number and its boot name an event on the server. So the first number of a process leaves out as many as there
    /// are milliseconds since boot: a process before it may have used some of them that never reached its read-only disk.
    pub fn add(&mut self, now: Now, what: Happened) -> Sequence {
        let at = Moment { boot: self.boot, up: code::to_us(now.up), wall: now.wall };
        if std::mem::take(&mut self.is_fresh) {
            let since_boot_ms = u64::try_from(now.up.as_duration().as_millis()).unwrap_or(u64::MAX);
            self.next = self.next.saturating_add(since_boot_ms);
        }
        let record = Record { sequence: Sequence(0), at, what };
        self.make_room(code::most_bytes(&record), at);
        self.unwritten_since.get_or_insert(now.up);
        self.push(record)
    }

    /// What is not forgotten, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Record> {
        self.waiting.iter().map(|entry| &entry.record)
    }

    /// The server has taken it: it is never shown again. Reaches the disk with the next write.
    pub fn forget(&mut self, sequence: Sequence) {
        self.may_merge = false;
        if let Ok(place) = self.waiting.binary_search_by_key(&sequence, |entry| entry.record.sequence) {
            self.remove(place);
        }
    }

    /// As [`Journal::forget`], by a write of its own: it is not to be believed again after a power cut.
    pub fn take_back(&mut self, sequence: Sequence) {
        self.forget(sequence);
        // One in flight does not say it.
        self.file_after_write.iter_mut().for_each(|file| file.must_write = true);
        self.file.must_write = true;
    }

    /// A write is owed although nothing was added, and the disk works.
    pub fn owes_a_write(&self) -> bool {
        self.file.must_write && !self.pace.has_failed()
    }

    /// One was sent that waits on: the one that is sent next may be that of how many were dropped.
    pub fn was_told(&mut self) {
        self.may_merge = false;
    }

    /// Something that was added or forgotten is not on disk yet.
    pub fn has_unwritten(&self) -> bool {
        self.has_unwritten_records()
            || self.file_after_write.is_some()
            || self.forgotten_count > 0
            || self.file.must_write
    }

    fn has_unwritten_records(&self) -> bool {
        self.waiting.iter().any(|entry| entry.place == Place::Memory)
    }

    /// When a write should go out by itself: at once if there were few lately, later if there were many. `None`: nothing
    /// is worth one, or one is in flight.
    pub fn write_due(&self) -> Option<Up> {
        let is_replayed = self.forgotten_count >= REPLAY_PART_RECORDS
            || (self.waiting.is_empty() && self.forgotten_count >= REPLAY_RECORDS)
            || self.file.must_write;
        let is_worth_it = self.file_after_write.is_none() && (is_replayed || self.has_unwritten_records());
        is_worth_it.then(|| self.pace.due_at().max(self.unwritten_since.unwrap_or_default()))
    }

    /// Whether a power cut would leave it: on disk, or no longer waiting. True as well while the disk fails, as waiting
    /// for it would help nobody.
    pub fn is_synced(&self, sequence: Sequence) -> bool {
        let place = self.waiting.binary_search_by_key(&sequence, |entry| entry.record.sequence);
        let entry = place.ok().and_then(|place| self.waiting.get(place));
        self.pace.has_failed() || entry.is_none_or(|entry| entry.place == Place::Disk)
    }

    fn push(&mut self, record: Record) -> Sequence {
        let sequence = Sequence(self.next);
        self.next = self.next.saturating_add(1);
        self.last_boot = Some(record.at.boot);
        self.waiting_bytes += code::most_bytes(&record);
        let record = Record { sequence, ..record };
        // `make_room` has seen to it that there is room.
        let _ = self.waiting.push(Entry { record, place: Place::Memory, may_be_on_disk: false });
        sequence
    }

    /// Gives up records until one of `bytes` fits, and counts them in a record of its own.
    fn make_room(&mut self, bytes: usize, at: Moment) {
        let count_record = Record { sequence: Sequence(0), at, what: Happened::Dropped { count: 0 } };
        let mut count: u32 = 0;
        loop {
            let says_more = count > 0 && self.mergeable().is_none();
            let needed = bytes + if says_more { code::most_bytes(&count_record) } else { 0 };
            let places = 1 + usize::from(says_more);
            let fits_in_memory = self.waiting.len() + places <= WAITING_RECORDS;
            if fits_in_memory && self.waiting_bytes + needed <= write::room_bytes(self.quota_bytes) {
                break;
            }
            let records = self.waiting.iter().map(|entry| &entry.record);
            let Some(place) = keep::least_needed(records) else { break };
            let dropped = self.remove(place).map(|record| record.what);
            let those = if let Some(Happened::Dropped { count }) = dropped { count } else { 1 };
            count = count.saturating_add(those);
        }
        if count > 0 {
            self.note_dropped(count, count_record);
        }
    }

    fn note_dropped(&mut self, more: u32, count_record: Record) {
        if let Some(entry) = self.mergeable().and_then(|place| self.waiting.get_mut(place))
            && let Happened::Dropped { count } = &mut entry.record.what
        {
            *count = count.saturating_add(more);
            entry.place = Place::Memory;
        } else {
            self.push(Record { what: Happened::Dropped { count: more }, ..count_record });
            self.may_merge = true;
        }
    }

    /// The record of dropped ones that may still grow: one that cannot have been sent. What is sent is the first that
    /// waits, and nothing was forgotten, so nothing sent, since this one was made.
    fn mergeable(&self) -> Option<usize> {
        let is_count = |entry: &Entry| matches!(entry.record.what, Happened::Dropped { .. });
        let is_first = |place| !self.waiting.iter().take(place).any(|entry| entry.record.what.is_told());
        self.waiting.iter().rposition(is_count).filter(|place| self.may_merge && !is_first(*place))
    }

    /// Takes a record out; if the disk may have it, the next write says that it is gone.
    fn remove(&mut self, place: usize) -> Option<Record> {
        let number = |entry: Option<&Entry>| entry.map(|entry| entry.record.sequence.0);
        let before = place.checked_sub(1).and_then(|before| number(self.waiting.get(before))).unwrap_or(0);
        let after = number(self.waiting.get(place + 1)).unwrap_or(self.next);
        if place >= self.waiting.len() {
            return None;
        }
        let Entry { record, may_be_on_disk, .. } = self.waiting.remove(place);
        self.waiting_bytes -= code::most_bytes(&record);
        if may_be_on_disk {
            self.forgotten_count += 1;
            // Nothing waits between the neighbours, and no number there is used again: all of it is forgotten.
            let gap = (before + 1, after.saturating_sub(1));
            self.forgotten_ranges.retain(|(first, last)| *last < gap.0 || gap.1 < *first);
            self.too_many_ranges |= self.forgotten_ranges.push(gap).is_err();
        }
        if !self.has_unwritten_records() {
            self.unwritten_since = None;
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests;
