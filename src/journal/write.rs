//! Turns what the disk does not know yet into one write, and its end into what the disk knows.

use super::code::{Batch, FRAME_RECORDS};
use super::frame::FRAME_BYTES as BLOCK_BYTES;
use super::{Entry, Journal, Place};
use crate::config::limits::JOURNAL_LEAST_BYTES;
use crate::journal::record::{BootId, Happened, Record};
use crate::time::Up;

/// What the disk has to do, as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Write these bytes at this place of the file and wait until they are on the disk (`fdatasync`).
    Append { at_bytes: u64, bytes: Vec<u8> },
    /// Make these bytes the whole file: write them aside, sync, rename over the old one, sync the directory.
    Replace { bytes: Vec<u8> },
}

/// What is known of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    /// Where the next frame goes.
    pub end: usize,
    /// Up to where: the last frame of the file begins there.
    pub room_end: usize,
    /// Nothing may be appended: there is no file, it is damaged, or how a write ended is unknown.
    pub must_replace: bool,
    /// Something is to be said by the next write even if nothing is added: what was taken back, or what the last write, which failed,
    /// would have said.
    pub must_write: bool,
}

/// Most bytes of waiting records in a file of so many, what else is in it left out.
pub(super) fn room_bytes(quota_bytes: usize) -> usize {
    quota_bytes.max(JOURNAL_LEAST_BYTES) - BLOCK_BYTES
}

impl Journal {
    /// Everything that is not on disk, as one write. `None`: that is nothing, or a write is in flight, or the disk failed
    /// a moment ago.
    pub fn next_write(&mut self, now: Up) -> Option<Write> {
        if !self.has_unwritten() || self.file_after_write.is_some() || self.pace.must_wait(now) {
            return None;
        }
        let (write, file) = match self.append() {
            Some(append) => append,
            None => self.replacement(),
        };
        let blocks = match &write {
            Write::Append { at_bytes, bytes } => {
                let start = usize::try_from(*at_bytes).unwrap_or_default();
                (start + bytes.len()).div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES
            }
            Write::Replace { bytes } => bytes.len() / BLOCK_BYTES,
        };
        self.pace.spend(blocks, now);
        for entry in self.waiting.iter_mut() {
            entry.may_be_on_disk = true;
            if entry.place == Place::Memory {
                entry.place = Place::InFlight;
            }
        }
        self.forgotten_ranges.clear();
        self.forgotten_count = 0;
        self.too_many_ranges = false;
        self.unwritten_since = None;
        self.file_after_write = Some(file);
        Some(write)
    }

    /// How that write ended.
    pub fn written(&mut self, done: bool, now: Up) {
        let Some(file) = self.file_after_write.take() else { return };
        if done {
            self.pace.succeeded();
            self.file = file;
        } else {
            self.pace.failed(now);
            self.file = File { must_replace: true, must_write: true, ..self.file };
        }
        for entry in self.waiting.iter_mut().filter(|entry| entry.place == Place::InFlight) {
            entry.place = if done { Place::Disk } else { Place::Memory };
        }
    }

    /// What is new, behind the last frame; `None` if that is no place for it.
    fn append(&self) -> Option<(Write, File)> {
        if self.file.must_replace || self.too_many_ranges {
            return None;
        }
        let bytes = self.frames(|entry| entry.place == Place::Memory)?;
        let left_in_block = BLOCK_BYTES - self.file.end % BLOCK_BYTES;
        let is_better_in_next = left_in_block < bytes.len() && bytes.len() <= BLOCK_BYTES;
        let start = if is_better_in_next { self.file.end + left_in_block } else { self.file.end };
        let end = start + bytes.len();
        let file = File { end, must_write: false, ..self.file };
        (end <= self.file.room_end).then_some((Write::Append { at_bytes: start as u64, bytes }, file))
    }

    /// All that waits, zeros for as much again, and the numbering a second time.
    fn replacement(&self) -> (Write, File) {
        let mut bytes = self.frames(|_| true).unwrap_or_default();
        let end = bytes.len();
        let last = self.batch(self.last_boot.unwrap_or(self.boot), Vec::new()).encode().unwrap_or_default();
        let most = self.quota_bytes.max(JOURNAL_LEAST_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        let size = (3 * end).next_multiple_of(BLOCK_BYTES).clamp(JOURNAL_LEAST_BYTES, most);
        let room_end = size.saturating_sub(last.len()).max(end);
        // As vectors grow by themselves, these were three times as many, and the allocator keeps what it once had.
        bytes.reserve_exact(room_end - end + last.len());
        bytes.resize(room_end, 0);
        bytes.extend_from_slice(&last);
        (Write::Replace { bytes }, File { end, room_end, must_replace: false, must_write: false })
    }

    /// Frames of the wanted records. How many were dropped goes first, so that it is in one frame with what says which.
    fn frames(&self, is_wanted: impl Fn(&Entry) -> bool) -> Option<Vec<u8>> {
        let is_count = |record: &Record| matches!(record.what, Happened::Dropped { .. });
        let records = || self.waiting.iter().filter(|entry| is_wanted(entry)).map(|entry| &entry.record);
        let counts = records().filter(|record| is_count(record));
        let mut batches: Vec<Batch<&Record>> = Vec::new();
        for record in counts.chain(records().filter(|record| !is_count(record))) {
            match batches.last_mut() {
                Some(last) if last.boot == record.at.boot && last.records.len() < FRAME_RECORDS => {
                    last.records.push(record);
                }
                _ => batches.push(self.batch(record.at.boot, vec![record])),
            }
        }
        if batches.is_empty() {
            batches.push(self.batch(self.last_boot.unwrap_or(self.boot), Vec::new()));
        }
        // Only the first says what is forgotten, so that it is never believed without what was dropped in its place.
        let mut batches_in_turn = batches.iter_mut();
        if let Some(first) = batches_in_turn.next() {
            let below = first.below;
            first.forgotten = self.forgotten_ranges.iter().copied().filter(|(_, last)| *last >= below).collect();
            first.forgotten.iter_mut().for_each(|(first, _)| *first = (*first).max(below));
            first.forgotten.sort_unstable();
        }
        batches_in_turn.for_each(|batch| batch.below = 1);
        let mut bytes = Vec::new();
        for batch in &batches {
            bytes.extend_from_slice(&batch.encode()?);
        }
        Some(bytes)
    }

    fn batch<'a>(&self, boot: BootId, records: Vec<&'a Record>) -> Batch<&'a Record> {
        let below = self.waiting.first().map_or(self.next, |entry| entry.record.sequence.0);
        Batch { boot, next: self.next, below, forgotten: Vec::new(), records }
    }
}
