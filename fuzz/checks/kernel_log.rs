//! Turns any bytes into what is read from `/dev/kmsg`, whole and line by line: both tell of the same trouble.

use std::time::Duration;

use nodepulse::probe::{KernelLogFiles, KernelPlaces, KernelTrouble, kernel_reason};
use nodepulse::time::Up;

fn heard<'a>(parts: impl Iterator<Item = &'a [u8]>) -> KernelTrouble {
    let mut files = KernelLogFiles::new(KernelPlaces::default());
    parts.for_each(|part| files.take(part, Up::since_boot(Duration::from_secs(600))));
    files.trouble().clone()
}

/// `bytes` stand for records of the log.
pub fn check(bytes: &[u8]) {
    let whole = heard(std::iter::once(bytes));
    assert_eq!(whole, heard(bytes.split_inclusive(|byte| *byte == b'\n')));
    // The head of a record is `0,0,0;` at least, and no two have the same number.
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.len() > 6).count() as u64;
    let counted: u64 = whole.all.iter().map(|trouble| trouble.count).sum();
    assert!(counted <= lines && counted <= whole.read.log, "{whole:?}");
    for trouble in &whole.all {
        assert_eq!(kernel_reason(trouble.reason), trouble.reason);
        assert!(trouble.place <= whole.read.log && trouble.at.as_duration() <= Duration::from_secs(600), "{trouble:?}");
    }
}
