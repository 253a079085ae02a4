//! Turns any bytes into a certificate, a private key or neither: what is read lies within them, a renewal within its life.

use nodepulse::identity::files::PrivateKey;
use nodepulse::identity::{Renewal, certificate, pin};
use nodepulse::time::Wall;
use std::time::Duration;

/// `bytes` stand for DER.
pub fn check(bytes: &[u8]) {
    let (key, node) = (certificate::public_key(bytes), certificate::node_name(bytes));
    assert_eq!(pin::of(bytes).is_some(), key.is_some());
    assert!(key.is_none_or(|key| key.len() < bytes.len()));
    if let Some(renewal) = Renewal::of(bytes, None) {
        let last = renewal.end.max(renewal.start);
        for outage in [Duration::ZERO, Duration::from_secs(90_000), Duration::MAX] {
            for silence in [Duration::ZERO, outage] {
                assert!((renewal.start..=last).contains(&renewal.due_after(outage, silence)), "{renewal:?}");
            }
        }
        assert!((renewal.start..=last).contains(&renewal.due) && renewal.warned_from() <= last);
    }
    let floor = Wall::from_unix_seconds(0);
    match certificate::check_issued(bytes, node.unwrap_or("board"), key.unwrap_or_default(), floor) {
        Ok(()) => assert!(node.is_some() && key.is_some()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Some(point) = PrivateKey::new(bytes).point() {
        assert!(point.len() < bytes.len());
    }
}
