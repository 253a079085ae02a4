//! Turns the times of Lease requests into "the controller may have judged the Node since": once for each gap (D4).

use std::time::Duration;

use crate::time::Up;

#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// When the Lease request in flight was sent.
    sent_at: Option<Up>,
    acknowledged_at: Option<Up>,
    /// When a gap was noticed, up to the renewal that ends it.
    gap_noticed_at: Option<Up>,
}

/// An answer that took longer lay there while the board slept: what it says of the time is not of now.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(10);
/// A pause between two renewals that is shorter says of no period that one was missed: a board may be that busy.
const LEAST_GAP: Duration = Duration::from_secs(5);

impl Renewals {
    pub(super) fn sent(&mut self, now: Up) {
        self.sent_at = Some(now);
    }

    /// Whatever the answer to what was sent is.
    pub(super) fn answered(&mut self) {
        self.sent_at = None;
    }

    pub(super) fn is_sent_at(&self, moment: Up) -> bool {
        self.sent_at == Some(moment)
    }

    /// The server acknowledged one. Answers whether a gap ends with it that nobody has noticed.
    pub(super) fn acknowledged(&mut self, period: Duration, now: Up) -> bool {
        let sent_at = self.sent_at.unwrap_or(now);
        // A report of long before this renewal did not end the gap.
        self.gap_noticed_at.take_if(|noticed| sent_at - *noticed > longest_pause(period));
        let is_gap = self.notice_gap(period, now);
        // An answer that lay there while the board stood still is of the moment of its request.
        self.acknowledged_at = Some(if now - sent_at > LONGEST_ANSWER { sent_at } else { now });
        is_gap
    }

    /// Answers whether the last one is too long ago, once. An answer that takes its time is no gap.
    pub(super) fn notice_gap(&mut self, period: Duration, now: Up) -> bool {
        let until = self.sent_at.unwrap_or(now);
        let Some(last) = self.acknowledged_at.filter(|last| until - *last > longest_pause(period)) else {
            return false;
        };
        let is_new = self.gap_noticed_at.is_none_or(|noticed| noticed <= last);
        if is_new {
            self.gap_noticed_at = Some(now);
        }
        is_new
    }
}

/// How long after a renewal that was acknowledged the next one may be sent without a gap.
fn longest_pause(period: Duration) -> Duration {
    (period * 3 / 2).max(LEAST_GAP)
}
