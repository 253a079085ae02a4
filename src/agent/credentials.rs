//! Turns a refusal into what a person can do about the credentials, and into whether to read them again.

use std::time::Duration;

use super::contract::CredentialDates;
use crate::api::{Class, Refusal, StatusError};
use crate::time::{Up, Wall};

#[derive(Debug, Default)]
pub(super) struct Credentials {
    dates: CredentialDates,
    read_at: Option<Up>,
    /// 401 in a row, from the server itself, and when the last one came.
    unauthorized: u32,
    unauthorized_at: Option<Up>,
    /// Handshakes, since the server last took them, with a server whose CA is not ours.
    strangers: u32,
    /// When the first of these was that nobody has looked into.
    stranger_at: Option<Up>,
    /// What was said last of another CA.
    told_of_ca: String,
}

/// Whether it was a handshake with a server whose CA is not ours.
pub(super) fn is_stranger(refusal: &Refusal) -> bool {
    refusal.word() == UNKNOWN_ISSUER
}

/// They are read again at most this often.
const SPACING: Duration = Duration::from_secs(30);

/// The first refusal reads them again, so the others are of what was read then.
const REFUSED_FOR_GOOD: u32 = 3;
const UNKNOWN_ISSUER: &str = "tls-unknown-issuer";

impl Credentials {
    /// These are in use now. Answers whether they are others.
    pub(super) fn in_use(&mut self, dates: CredentialDates) -> bool {
        let are_others = std::mem::replace(&mut self.dates, dates) != dates;
        if are_others {
            self.accepted();
        }
        are_others
    }

    /// The server has taken them.
    pub(super) fn accepted(&mut self) {
        (self.unauthorized, self.strangers) = (0, 0);
    }

    /// Another CA is trusted from now on.
    pub(super) fn other_ca(&mut self) {
        self.strangers = 0;
    }

    /// Whether the server does not take them, although they were read again (EXP-2).
    pub(super) fn are_refused(&self) -> bool {
        self.unauthorized >= REFUSED_FOR_GOOD && self.dates.renewal.is_some()
    }

    /// When they were last refused, where they have ended as well: there is no hope then that the server will take them.
    /// `stamp`: by its clock.
    pub(super) fn ended_at(&self, stamp: Option<Wall>) -> Option<Up> {
        let end = self.dates.renewal.filter(|_| self.are_refused())?.end;
        self.unauthorized_at.filter(|_| stamp.is_some_and(|stamp| end < stamp))
    }

    /// Whether no server that answers has a CA that this board trusts, although that was read again (CA-4).
    pub(super) fn have_other_ca(&self) -> bool {
        self.strangers >= REFUSED_FOR_GOOD && self.dates.renewal.is_some()
    }

    /// Whether this is not what was said last.
    pub(super) fn is_news_of_ca(&mut self, text: &str) -> bool {
        let is_news = self.told_of_ca != text;
        if is_news {
            text.clone_into(&mut self.told_of_ca);
        }
        is_news
    }

    /// When a server had a CA that this board does not trust, until [`Credentials::looked_into_strangers`].
    pub(super) fn stranger_at(&self) -> Option<Up> {
        self.stranger_at
    }

    pub(super) fn looked_into_strangers(&mut self) {
        self.stranger_at = None;
    }

    pub(super) fn dates(&self) -> CredentialDates {
        self.dates
    }

    /// Takes a refusal. Answers whether to read them again because of it, which is then not done again for a while.
    pub(super) fn refused(&mut self, refusal: &Refusal, now: Up) -> bool {
        if matches!(refusal, Refusal::Status(StatusError { code: 401, .. })) {
            self.unauthorized = self.unauthorized.saturating_add(1);
            self.unauthorized_at = Some(now);
        }
        let word = refusal.word();
        if matches!(refusal, Refusal::Status(_)) {
            // Who says so has proven itself.
            self.strangers = 0;
        } else if is_stranger(refusal) {
            self.strangers = self.strangers.saturating_add(1);
            self.stranger_at.get_or_insert(now);
        }
        let may_help = refusal.class() == Class::Rights
            || matches!(&*word, "tls-refused-by-peer" | UNKNOWN_ISSUER | "credentials-unreadable");
        may_help && self.read_again(now)
    }

    /// Whether to read them again now, which is then not done again for a while.
    pub(super) fn read_again(&mut self, now: Up) -> bool {
        let reads = now >= self.read_again_at();
        if reads {
            self.read_at = Some(now);
        }
        reads
    }

    /// The soonest that they are read again.
    pub(super) fn read_again_at(&self) -> Up {
        self.read_at.map_or(Up::BOOT, |last| last + SPACING)
    }

    /// What to add to a refusal, for people; `right` is what was asked for.
    pub(super) fn advice(&self, refusal: &Refusal, right: &str, node_name: &str, stamp: Option<Wall>) -> String {
        let CredentialDates { not_before, not_after, .. } = self.dates;
        match refusal {
            Refusal::Status(StatusError { code: 401, .. }) => match (not_before, not_after, stamp) {
                (_, Some(end), Some(stamp)) if end < stamp => format!(
                    "; the client certificate expired at {end}: put a new one in its place, it is read again by itself"
                ),
                (Some(start), _, Some(stamp)) if stamp < start => format!(
                    "; the client certificate is not valid before {start}: this board's clock or the issuer's is wrong"
                ),
                _ => "; the server does not know this certificate's issuer or this token: check the kubeconfig"
                    .to_owned(),
            },
            Refusal::Status(StatusError { code: 403, .. }) => format!(
                "; {node_name} may not `{right}`: the client certificate must be for system:node:{node_name} in group system:nodes, or RBAC must allow that verb"
            ),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_certificate_that_is_not_taken_is_said_by_its_dates() {
        let [before, start, end, after] = ["2025-12-31", "2026-01-01", "2026-02-01", "2026-02-02"]
            .map(|day| Wall::parse_stamp(&format!("{day}T00:00:00Z")));
        let dates = CredentialDates { not_before: start, not_after: end, ..CredentialDates::default() };
        let credentials = Credentials { dates, ..Credentials::default() };
        let advice = |code: u16, stamp: Option<Wall>| {
            let (reason, message) = (String::new(), String::new());
            let refusal = Refusal::Status(StatusError { code, reason, message, retry_after: None });
            credentials.advice(&refusal, "patch nodes/status", "edge-7", stamp)
        };
        for (code, stamp, words) in [
            (401, after, "expired at 2026-02-01"),
            (401, end, "does not know this certificate's issuer"),
            (401, start, "does not know this certificate's issuer"),
            (401, before, "is not valid before 2026-01-01"),
            (401, None, "does not know this certificate's issuer"),
            (403, after, "edge-7 may not `patch nodes/status`"),
        ] {
            assert!(advice(code, stamp).contains(words), "{code} {stamp:?}: {}", advice(code, stamp));
        }
        assert_eq!(advice(500, after), "");
    }
}
