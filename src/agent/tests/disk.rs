//! Turns what the agent writes into the bytes of a disk in memory, and those into what waits to be told.

use super::{BOOT, Script};
use crate::journal::{Happened, Journal, Record, Write};

/// A disk in memory.
#[derive(Default)]
pub struct Disk {
    pub bytes: Vec<u8>,
    pub fails: bool,
    /// Writes are neither done nor fail.
    pub hangs: bool,
    pub hides_the_board: bool,
    pub writes: usize,
}

impl Disk {
    pub fn write(&mut self, write: &Write) -> bool {
        self.writes += 1;
        if self.fails {
            return false;
        }
        match write {
            Write::Append { at_bytes, bytes } => {
                let at = usize::try_from(*at_bytes).unwrap();
                let end = self.bytes.len().max(at + bytes.len());
                self.bytes.resize(end, 0);
                self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Write::Replace { bytes } => self.bytes.clone_from(bytes),
        }
        true
    }
}

/// What waits on the disk now, as the next process would find it.
pub(super) fn on_disk(script: &Script) -> Vec<Record> {
    untold(Journal::recover(&script.disk.bytes, 65_536, BOOT).0.waiting())
}

pub(super) fn waiting(script: &Script) -> Vec<Record> {
    untold(script.agent.shared.records.waiting())
}

/// That the process runs is always there, and waits for nothing.
fn untold<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Record> {
    records.filter(|record| record.what.is_shown()).cloned().collect()
}

pub(super) fn kinds(records: &[Record]) -> Vec<&'static str> {
    let kind = |record: &Record| match record.what {
        Happened::ConditionChanged { .. } => "changed",
        Happened::OutageBegan { .. } => "began",
        Happened::OutageEnded { .. } => "ended",
        Happened::ProcessStarted => "started",
        Happened::BoardRebooted { .. } => "rebooted",
        Happened::ClockSet { .. } => "clock",
        Happened::Dropped { .. } => "dropped",
        Happened::AbsenceAnnounced { .. } => "announced",
        Happened::Leaving { .. } => "leaving",
        Happened::Trouble { .. } => "kernel",
        Happened::KernelRead { .. } => "read",
        Happened::ProcessRuns { .. } => "runs",
    };
    records.iter().map(kind).collect()
}
