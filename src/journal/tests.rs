//! Turns changes, writes and their ends into what still waits.

use std::time::Duration;

use super::record::cut;
use super::*;
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

fn told(journal: &Journal) -> Vec<Record> {
    journal.waiting().cloned().collect()
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
