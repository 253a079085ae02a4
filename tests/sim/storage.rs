//! Turns the agent's writes into what its disk holds: late, cut short by a power failure, or not at all.

use nodepulse::agent::Input;
use nodepulse::journal::Write;

use super::cut_short::CutShort;
use super::planted::Planted;
use super::world::{Event, World};
use crate::disk::{Cut, Disk};

/// A disk that has owed something for longer has failed, for who waits for it.
const OVERDUE_US: u64 = 10_000_000;
/// A write that follows sooner was owed before the one before it ended.
const AT_ONCE_US: u64 = 100_000;
const BLOCK_BYTES: u64 = 4096;

/// The disk of a board, and how it fares.
#[derive(Debug, Default)]
pub struct Storage {
    pub disk: Disk,
    busy: Option<Busy>,
    /// When the first of the writes began that followed each other at once, and when the last that is over ended.
    behind_since_us: u64,
    ended_us: u64,
    /// Full, or read-only.
    pub fails_until_us: u64,
    pub slow_until_us: u64,
    /// The agent knows that its last write failed.
    has_failed: bool,
    writes: u64,
    /// Blocks of the file system that were written.
    blocks: u64,
    /// The present day, and its blocks.
    day: (u64, u64),
    pub busiest_day_bytes: u64,
    pub cut_short: CutShort,
}

#[derive(Debug)]
struct Busy {
    number: u64,
    since_us: u64,
    write: Write,
    life: u64,
    /// So much had happened when it began.
    happened: usize,
}

impl Storage {
    pub fn bytes_written(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// A failed disk delays nothing: from memory the agent goes on.
    pub fn is_excused(&self, now_us: u64) -> bool {
        let is_behind = self.busy.is_some() || now_us < self.ended_us + AT_ONCE_US;
        self.has_failed || is_behind && now_us >= self.behind_since_us + OVERDUE_US
    }
}

impl World {
    /// The agent wants this on disk.
    pub fn write(&mut self, write: Write) {
        self.trace.say(|| match &write {
            Write::Append { at_bytes, bytes } => format!("   appends {} bytes at {at_bytes}", bytes.len()),
            Write::Replace { bytes } => format!("   replaces the journal by {} bytes", bytes.len()),
        });
        let (Write::Append { bytes, .. } | Write::Replace { bytes }) = &write;
        self.trace.mix(bytes);
        self.watch.writes();
        let storage = &mut self.storage;
        if storage.busy.is_some() {
            return self.violated("a second write before the first one ended".to_owned());
        }
        let blocks = match &write {
            Write::Append { at_bytes, bytes } => {
                (at_bytes + bytes.len() as u64).div_ceil(BLOCK_BYTES) - at_bytes / BLOCK_BYTES
            }
            // The name in the directory is a block as well.
            Write::Replace { bytes } => (bytes.len() as u64).div_ceil(BLOCK_BYTES) + 1,
        };
        storage.blocks += blocks;
        let today = self.now_us / 86_400_000_000;
        let so_far = if storage.day.0 == today { storage.day.1 } else { 0 };
        storage.day = (today, so_far + blocks);
        storage.busiest_day_bytes = storage.busiest_day_bytes.max(storage.day.1 * BLOCK_BYTES);
        storage.writes += 1;
        let number = storage.writes;
        let (since_us, life) = (self.now_us, self.life);
        if since_us >= storage.ended_us + AT_ONCE_US {
            storage.behind_since_us = since_us;
        }
        storage.cut_short.write_begins();
        storage.busy = Some(Busy { number, since_us, write, life, happened: self.events.happened.len() });
        let longest_us = if self.storage.slow_until_us > self.now_us { 20_000_000 } else { 30_000 };
        let delay_us = self.random.between(500, longest_us);
        self.schedule(delay_us, Event::Written { number });
        if self.shim.is(Planted::SentBeforeSynced) {
            self.schedule(1, Event::SaidWritten { life });
        }
    }

    /// The disk has done it, or not.
    pub fn written(&mut self, number: u64) {
        let Some(busy) = self.storage.busy.take_if(|busy| busy.number == number) else { return };
        let done = self.storage.fails_until_us <= self.now_us;
        let (storage, random) = (&mut self.storage, &mut self.random);
        if done {
            storage.disk.write(&busy.write);
        } else {
            let cut = random.pick(&[Cut::Before, Cut::Writing]);
            storage.disk.cut(&busy.write, cut, &mut |end| random.below(end));
        }
        storage.has_failed = !done;
        storage.ended_us = self.now_us;
        if busy.life == self.life {
            let is_there = done || storage.disk.holds(&busy.write);
            storage.cut_short.written(is_there);
        }
        let began_us = self.server_wall_us() - (self.now_us - busy.since_us) as i64;
        if done && busy.life == self.life {
            self.events.synced(self.life, began_us, busy.happened);
        }
        self.look_at_disk();
        if busy.life == self.life && !self.shim.is(Planted::SentBeforeSynced) {
            self.feed(Input::Written { done });
        }
    }

    /// The process is gone; `power`: and with it whatever was not on disk. What a process wrote and did not sync survives
    /// its end: the next one syncs what it finds.
    pub fn disk_of_dead(&mut self, power: bool) {
        self.storage.has_failed = false;
        let Some(busy) = self.storage.busy.take() else { return };
        let cuts: &[Cut] = if power { &Cut::ALL } else { &[Cut::Before, Cut::After] };
        let cut = self.random.pick(cuts);
        self.trace.say(|| format!("    a write ends with it: {cut:?}"));
        let (storage, random) = (&mut self.storage, &mut self.random);
        storage.disk.cut(&busy.write, cut, &mut |end| random.below(end));
        // Cut short as it was, the whole of it may be there (seed 9046953).
        if storage.disk.holds(&busy.write) {
            storage.cut_short.written(true);
            let began_us = self.server_wall_us() - (self.now_us - busy.since_us) as i64;
            self.events.synced(busy.life, began_us, busy.happened);
        }
        self.look_at_disk();
    }

    fn look_at_disk(&mut self) {
        let (bytes, most_bytes) = (self.storage.disk.journal.len(), self.plan.wanted.journal_quota_bytes);
        if bytes > most_bytes {
            self.violated(format!("the journal has {bytes} bytes, its quota are {most_bytes}"));
        }
    }
}
