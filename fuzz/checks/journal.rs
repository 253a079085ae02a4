//! Turns any bytes into a journal and back: what was recovered once is recovered again from its own file, within bounds.

use nodepulse::config::limits::WAITING_RECORDS;
use nodepulse::journal::{BootId, Happened, Journal, Record, Write};
use nodepulse::time::{Now, Up};

const QUOTA_BYTES: usize = 64 * 1024;
const BOOT: BootId = BootId(1);

fn waiting(journal: &Journal) -> Vec<Record> {
    journal.waiting().cloned().collect()
}

/// `bytes` stand for a file.
pub fn check(bytes: &[u8]) {
    let (mut journal, found) = Journal::recover(bytes, QUOTA_BYTES, BOOT);
    let first = waiting(&journal);
    assert!(first.len() <= WAITING_RECORDS && found.records == first.len());
    assert!(found.cut_bytes <= bytes.len() && !found.to_string().is_empty());
    assert!(first.is_sorted_by(|one, next| one.sequence < next.sequence));
    let sequence = journal.add(Now { up: Up::BOOT, wall: None }, Happened::ProcessStarted);
    let expected = waiting(&journal);
    assert!(expected.last().is_some_and(|last| last.sequence == sequence));
    let mut file = bytes.to_vec();
    match journal.next_write(Up::BOOT) {
        Some(Write::Append { at_bytes, bytes }) => {
            let at = at_bytes as usize;
            file[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Some(Write::Replace { bytes }) => {
            assert!(bytes.len() <= QUOTA_BYTES);
            file = bytes;
        }
        None => panic!("a record to write, and no write"),
    }
    journal.written(true, Up::BOOT);
    let (mut again, _) = Journal::recover(&file, QUOTA_BYTES, BOOT);
    assert_eq!(waiting(&again), expected);
    assert_eq!(again.last_boot(), Some(BOOT));
    assert!(again.add(Now { up: Up::BOOT, wall: None }, Happened::ProcessStarted) > sequence);
}
