//! Turns any bytes into the content of a watch, whole and byte by byte: both say the same, and end the same way.

use nodepulse::api::watch::{Events, Over, Seen};

fn watched(bytes: &[u8], step: usize) -> (Option<Seen>, Option<Over>) {
    let (mut events, mut last) = (Events::default(), None);
    for part in bytes.chunks(step) {
        match events.take(part) {
            Ok(Some(seen)) => last = Some(seen.in_place_of(last)),
            Ok(None) => {}
            Err(over) => return (last, Some(over)),
        }
    }
    (last, None)
}

/// `bytes` stand for what a server sends.
pub fn check(bytes: &[u8]) {
    let ((whole, over), (piecemeal, over_piecemeal)) = (watched(bytes, bytes.len().max(1)), watched(bytes, 1));
    assert_eq!(over, over_piecemeal);
    // What came together with the end of a watch is of no use any more.
    assert!(over.is_some() || whole == piecemeal, "{whole:?} {piecemeal:?}");
}
