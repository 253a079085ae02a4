//! Turns any bytes into what a bus sends, whole and byte by byte: both say the same, and end the same way.

use nodepulse::dbus::{Client, Error, Taken};

fn heard(bytes: &[u8], step: usize) -> (Vec<Taken>, Option<Error>) {
    let (mut client, _) = Client::new(0);
    client.ask_state();
    let mut all = Vec::new();
    for part in bytes.chunks(step) {
        client.received(part);
        loop {
            match client.take() {
                Ok(Some(taken)) => all.push(taken),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

/// `bytes` stand for what a bus sends.
pub fn check(bytes: &[u8]) {
    let (whole, piecemeal) = (heard(bytes, bytes.len().max(1)), heard(bytes, 1));
    assert_eq!(whole.0, piecemeal.0);
    assert_eq!(whole.1.is_some(), piecemeal.1.is_some());
    // Each message has a header of sixteen bytes at least.
    assert!(whole.0.len() <= bytes.len() / 16);
}
