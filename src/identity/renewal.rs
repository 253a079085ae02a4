//! Turns a certificate and the time it was received into the time to renew it (ROT-1, ROT-2, D13).

use std::time::Duration;

use ring::digest::{SHA256, digest};

use super::certificate;
use crate::time::Wall;

const DAY: Duration = Duration::from_secs(86_400);
/// A condition warns this long before the end, or a quarter of the life, whichever is less (ROT-7).
const WARNED_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// The life of one certificate on this board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The later of its NotBefore and its receipt: a signer dates certificates back.
    pub start: Wall,
    /// Its NotAfter.
    pub end: Wall,
    /// At 30 to 40 % of what lies between: drawn from its digest, so the same after each restart.
    pub due: Wall,
}

impl Renewal {
    /// `received`: `Date` of the answer that brought it; without one, or with one after its end, its NotBefore counts. `None`
    /// for bytes that are no certificate.
    pub fn of(leaf: &[u8], received: Option<Wall>) -> Option<Renewal> {
        let (not_before, end) = certificate::validity(leaf)?;
        let start = received.filter(|received| *received < end).map_or(not_before, |received| received.max(not_before));
        let digest = digest(&SHA256, leaf);
        let (first, _) = digest.as_ref().split_first_chunk::<4>()?;
        // (0.3 + 0.1 * drawn / 2^32) of the life; no life is longer than ten thousand years, which fits.
        let tenths = (3_u128 << 32) + u128::from(u32::from_be_bytes(*first));
        let tenths_us = u64::try_from((end.since(start).as_micros() * tenths) >> 32).unwrap_or(u64::MAX);
        let due = start.plus(Duration::from_micros(tenths_us / 10));
        Some(Renewal { start, end, due })
    }

    /// From when on it is to be renewed. `longest_outage`: of those that the board remembers; it must fit three times into
    /// what is left. `silence`: the outage that has just ended; after a day the next may be the last chance. Never before a
    /// tenth of the life has gone.
    pub fn due_after(&self, longest_outage: Duration, silence: Duration) -> Wall {
        let earliest = self.earliest();
        let due = self.due.min(self.end.minus(longest_outage.saturating_mul(3)));
        if silence > DAY { earliest } else { due.max(earliest) }
    }

    /// Whoever wants it, it is not renewed before: a tenth of the life has gone then (ROT-2).
    pub fn earliest(&self) -> Wall {
        self.start.plus(self.life() / 10)
    }

    /// From when on people are warned of its end.
    pub fn warned_from(&self) -> Wall {
        self.end.minus(WARNED_BEFORE.min(self.life() / 4))
    }

    fn life(&self) -> Duration {
        self.end.since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples::{self, Key};

    const HOUR: Duration = Duration::from_secs(3600);
    const NEVER: Duration = Duration::ZERO;

    fn stamp(text: &str) -> Wall {
        Wall::parse_stamp(text).unwrap()
    }

    /// Of a certificate for all of 2026 and 2027.
    fn renewal(received: Option<&str>) -> Renewal {
        Renewal::of(&samples::leaf("n1", &Key::new(), 2026, 2028), received.map(stamp)).unwrap()
    }

    #[test]
    fn a_life_begins_with_the_receipt_where_that_is_later_and_before_the_end() {
        let (begin, end) = (stamp("2026-01-01T00:00:00Z"), stamp("2028-01-01T00:00:00Z"));
        for (received, start) in [
            (None, begin),
            (Some("2025-12-31T23:00:00Z"), begin),
            (Some("2026-03-01T00:00:00Z"), stamp("2026-03-01T00:00:00Z")),
            (Some("2028-01-01T00:00:00Z"), begin),
            (Some("2099-01-01T00:00:00Z"), begin),
        ] {
            let renewal = renewal(received);
            assert_eq!((renewal.start, renewal.end), (start, end), "{received:?}");
        }
        assert_eq!(Renewal::of(b"no certificate", None), None);
    }

    #[test]
    fn each_certificate_is_renewed_between_30_and_40_percent_of_its_life_and_always_at_the_same_time() {
        let mut shares = Vec::new();
        for _ in 0..100 {
            let leaf = samples::leaf("n1", &Key::new(), 2026, 2027);
            let renewal = Renewal::of(&leaf, None).unwrap();
            assert_eq!(Renewal::of(&leaf, None), Some(renewal));
            shares.push(renewal.due.since(renewal.start).as_secs_f64() / renewal.life().as_secs_f64());
        }
        assert!(shares.iter().all(|share| (0.3..0.4).contains(share)), "{shares:?}");
        let (early, late) = (shares.iter().filter(|share| **share < 0.33).count(), shares.len());
        assert!((10..late - 40).contains(&early), "{early} of {late} in the first third: they are not spread");
    }

    /// By its digest alone, as anybody can compute it: the first four bytes of SHA-256.
    #[test]
    fn the_share_is_that_of_the_first_four_bytes_of_the_digest() {
        let leaf = samples::leaf("n1", &Key::new(), 2026, 2027);
        let renewal = Renewal::of(&leaf, None).unwrap();
        let digest = digest(&SHA256, &leaf);
        let drawn = digest.as_ref()[..4].iter().fold(0.0, |sum, byte| sum * 256.0 + f64::from(*byte));
        let expected = renewal.life().as_secs_f64() * (0.30 + 0.10 * drawn / 4_294_967_296.0);
        assert!((renewal.due.since(renewal.start).as_secs_f64() - expected).abs() < 0.001);
    }

    #[test]
    fn long_outages_renew_earlier_but_never_before_a_tenth_of_the_life() {
        let renewal = renewal(None);
        let (tenth, day) = (renewal.start.plus(renewal.life() / 10), HOUR * 24);
        assert_eq!(renewal.due_after(NEVER, NEVER), renewal.due);
        assert_eq!(renewal.due_after(day, day), renewal.due, "a day is nothing");
        assert_eq!(renewal.due_after(day, day + HOUR), tenth, "more than a day may come again");
        assert_eq!(
            renewal.due_after(day * 200, NEVER),
            renewal.end.minus(day * 600),
            "three times what was the longest"
        );
        assert_eq!(renewal.due_after(day * 300, NEVER), tenth);
        assert_eq!(renewal.due_after(Duration::MAX, Duration::MAX), tenth);
    }

    #[test]
    fn its_end_is_warned_of_30_days_or_a_quarter_of_its_life_before() {
        let month = HOUR * 24 * 30;
        assert_eq!(renewal(None).warned_from(), stamp("2028-01-01T00:00:00Z").minus(month));
        let short = renewal(Some("2027-12-31T20:00:00Z"));
        assert_eq!(short.warned_from(), stamp("2027-12-31T23:00:00Z"));
    }

    #[test]
    fn no_dates_overflow() {
        for (from, to) in [(1950, 9999), (9999, 1950), (2026, 2026)] {
            let leaf = samples::leaf("n1", &Key::new(), from, to);
            for received in [None, Some(Wall::LAST), Some(Wall::from_unix_us(i64::MIN))] {
                let renewal = Renewal::of(&leaf, received).unwrap();
                let due = renewal.due_after(Duration::from_secs(1), NEVER);
                assert!(due >= renewal.start && (due <= renewal.end || from >= to), "{renewal:?}");
            }
        }
    }
}
