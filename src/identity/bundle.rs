//! Turns the CAs that a board trusts, and those that its cluster shows, into those that it trusts from now on (CA-2).
//!
//! In a file they are PEM, those that the cluster no longer shows behind a line which says since when; readers of PEM skip it.

use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::pem;
use crate::config::limits;
use crate::time::Wall;

/// CAs; at most [`limits::CA_CERTIFICATES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// Those that the cluster shows.
    pub shown: Vec<CertificateDer<'static>>,
    /// Those that it showed once, and not the last time.
    pub absent: Vec<CertificateDer<'static>>,
    /// When the last of these was first missed; `None` where the time was not known.
    pub absent_since: Option<Wall>,
}

const ABSENT_SINCE: &str = "absent since ";
/// One that has been absent for so long is not needed any more, if another verifies a handshake.
const ABSENCE: Duration = Duration::from_secs(90 * 24 * 3600);

impl From<Vec<CertificateDer<'static>>> for Bundle {
    fn from(shown: Vec<CertificateDer<'static>>) -> Bundle {
        Bundle { shown, ..Bundle::default() }
    }
}

impl Bundle {
    /// Of the text of a file; what of it is no certificate is skipped.
    pub fn read(pem: &[u8]) -> Bundle {
        let text = String::from_utf8_lossy(pem);
        let (shown, absent) = text.split_once(ABSENT_SINCE).unwrap_or((&text, ""));
        let certificates = |text: &str| pem::certificates(text.as_bytes()).collect();
        let absent_since = absent.lines().next().and_then(Wall::parse_stamp);
        Bundle { shown: certificates(shown), absent: certificates(absent), absent_since }
    }

    pub fn text(&self) -> String {
        let mut text = pem::of_certificates(&self.shown);
        if !self.absent.is_empty() {
            let since = self.absent_since.map_or_else(|| "unknown".to_owned(), Wall::to_seconds_stamp);
            text.extend([ABSENT_SINCE, &since, "\n", &pem::of_certificates(&self.absent)]);
        }
        text
    }

    pub fn all(&self) -> Vec<CertificateDer<'static>> {
        self.shown.iter().chain(&self.absent).cloned().collect()
    }

    /// Without those that have been absent for long enough: if a handshake is verified by the rest, nobody needs them. `None`
    /// where there are none such.
    pub fn without_absent(&self, now: Wall) -> Option<Bundle> {
        let is_long_ago = self.absent_since.is_some_and(|since| now.since(since) >= ABSENCE);
        (is_long_ago && !self.absent.is_empty() && !self.shown.is_empty()).then(|| self.shown.clone().into())
    }

    /// What is trusted once the cluster shows these, over a connection that this bundle has verified.
    pub fn seen(&self, shown_now: &[CertificateDer<'static>], now: Option<Wall>) -> Bundle {
        let (mut shown, absent): (Vec<_>, Vec<_>) = self.all().into_iter().partition(|one| shown_now.contains(one));
        let room = limits::CA_CERTIFICATES.saturating_sub(shown.len() + absent.len());
        let new: Vec<_> = shown_now.iter().filter(|one| !shown.contains(one)).take(room).cloned().collect();
        shown.extend(new);
        let absent_since = if absent == self.absent { self.absent_since.or(now) } else { now };
        Bundle { shown, absent_since: absent_since.filter(|_| !absent.is_empty()), absent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples::{self, Key};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn authority() -> CertificateDer<'static> {
        samples::leaf("ca", &Key::new(), 2026, 2036).into()
    }

    fn on_day(day: u32) -> Wall {
        Wall::from_unix_seconds(1_795_219_200).plus(DAY * day)
    }

    #[test]
    fn what_the_cluster_shows_is_added_and_what_it_no_longer_shows_stays_for_90_days() {
        let (old, new) = (authority(), authority());
        let first = Bundle::from(vec![old.clone()]);
        let both = first.seen(&[new.clone(), old.clone()], Some(on_day(0)));
        assert_eq!(both, vec![old.clone(), new.clone()].into());
        let missed = both.seen(std::slice::from_ref(&new), Some(on_day(30)));
        assert_eq!((missed.all().len(), missed.absent_since), (2, Some(on_day(30))));
        let still = missed.seen(std::slice::from_ref(&new), Some(on_day(60)));
        assert_eq!(still, missed, "it counts from the first time");
        assert_eq!((still.without_absent(on_day(119)), both.without_absent(on_day(999))), (None, None));
        let rest = still.without_absent(on_day(120)).unwrap();
        assert_eq!(rest, vec![new.clone()].into());
        assert_eq!(rest.seen(std::slice::from_ref(&new), Some(on_day(120))), rest);
        let back = still.seen(&[new, old], Some(on_day(70)));
        assert_eq!((back.shown.len(), back.absent_since), (2, None));
    }

    #[test]
    fn eight_are_kept_and_those_in_use_go_before_new_ones() {
        let ours: Vec<_> = (0..3).map(|_| authority()).collect();
        let theirs: Vec<_> = (0..20).map(|_| authority()).collect();
        let many = Bundle::from(ours.clone()).seen(&theirs, Some(on_day(0)));
        assert_eq!((many.all().len(), &many.absent), (limits::CA_CERTIFICATES, &ours));
        assert_eq!(many.seen(&theirs[10..], Some(on_day(1))).all().len(), limits::CA_CERTIFICATES);
    }

    #[test]
    fn what_was_written_is_read_again_and_others_read_its_certificates() {
        let (old, new) = (authority(), authority());
        for since in [Some(on_day(0)), None] {
            let bundle = Bundle { shown: vec![new.clone()], absent: vec![old.clone()], absent_since: since };
            let text = bundle.text();
            assert_eq!(Bundle::read(text.as_bytes()), bundle);
            assert_eq!(pem::certificates(text.as_bytes()).collect::<Vec<_>>(), bundle.all());
        }
        let plain = Bundle::from(vec![new.clone(), old]);
        assert_eq!(plain.text(), pem::of_certificates(&plain.shown));
        assert_eq!(Bundle::read(plain.text().as_bytes()), plain);
        assert_eq!(Bundle::read(b"absent since"), Bundle::default());
        // Without a clock the time is counted from the first moment that is known.
        let undated = plain.seen(std::slice::from_ref(&new), None);
        assert_eq!((undated.absent_since, undated.without_absent(on_day(999))), (None, None));
        assert_eq!(undated.seen(&[new], Some(on_day(1))).absent_since, Some(on_day(1)));
    }
}
