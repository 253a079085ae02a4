//! Turns the times of Lease requests into "the controller may have judged the Node since": once for each gap (D4).

use std::time::Duration;

use crate::config::Settings;
use crate::config::limits::REQUEST_DEADLINE;
use crate::time::{Up, Wall};

#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// When the Lease request in flight was sent.
    sent_at: Option<Up>,
    acknowledged_at: Option<Up>,
    /// When a gap was noticed, up to the renewal that ends it.
    gap_noticed_at: Option<Up>,
    /// renewTimes of the last writes to the Lease, the newest first: any of them may come late.
    written: [Option<Wall>; LATE_WRITES],
}

/// A write takes up to a deadline to be given up on, and hardly one comes later than after so many of them.
const LATE_WRITES: usize = 16;

/// An answer that took longer lay there while the board slept: what it says of the time is not of now.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(10);
/// A pause between two renewals that is shorter says of no period that one was missed: a board may be that busy.
const LEAST_GAP: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_secs(1);
/// An answer is waited for unless the controller's patience is so many periods: one that was lost is noticed a period after
/// it was sent.
const UNHURRIED_PERIODS: u32 = 5;

impl Renewals {
    pub(super) fn sent(&mut self, now: Up) {
        self.sent_at = Some(now);
    }

    /// A write to the Lease goes out that says this.
    pub(super) fn writes(&mut self, renew_time: Wall) {
        self.written.rotate_right(1);
        if let Some(newest) = self.written.first_mut() {
            *newest = Some(renew_time);
        }
    }

    /// Whether one of the last writes said this: with their microseconds, those of no two boards are the same.
    pub(super) fn has_written(&self, renew_time: Option<Wall>) -> bool {
        renew_time.is_some() && self.written.contains(&renew_time)
    }

    /// Whatever the answer to what was sent is.
    pub(super) fn answered(&mut self) {
        self.sent_at = None;
    }

    /// When the one in flight was sent.
    pub(super) fn sent_at(&self) -> Option<Up> {
        self.sent_at
    }

    /// When the last one was that the server acknowledged.
    pub(super) fn last(&self) -> Option<Up> {
        self.acknowledged_at
    }

    pub(super) fn is_sent_at(&self, moment: Up) -> bool {
        self.sent_at == Some(moment)
    }

    /// The server acknowledged one. Answers whether a gap ends with it that nobody has noticed.
    pub(super) fn acknowledged(&mut self, settings: &Settings, now: Up) -> bool {
        let sent_at = self.sent_at.unwrap_or(now);
        // A report of long before this renewal did not end the gap.
        self.gap_noticed_at.take_if(|noticed| sent_at - *noticed > longest_pause(settings));
        let is_gap = self.notice_gap(settings, now);
        // An answer that lay there while the board stood still is of the moment of its request.
        self.acknowledged_at = Some(if now - sent_at > LONGEST_ANSWER { sent_at } else { now });
        is_gap
    }

    /// Answers whether the last one is too long ago, once. An answer that takes its time is no gap; one that is not there when
    /// the next renewal should have followed is (the board slept).
    pub(super) fn notice_gap(&mut self, settings: &Settings, now: Up) -> bool {
        let pause = longest_pause(settings);
        let until = self.sent_at.filter(|sent_at| now - *sent_at <= pause).unwrap_or(now);
        let Some(last) = self.acknowledged_at.filter(|last| until - *last > pause) else {
            return false;
        };
        let is_new = self.gap_noticed_at.is_none_or(|noticed| noticed <= last);
        if is_new {
            self.gap_noticed_at = Some(now);
        }
        is_new
    }

    /// Whether the last one that was acknowledged is too long ago for the next one to follow it.
    pub(super) fn is_gap(&self, settings: &Settings, now: Up) -> bool {
        self.acknowledged_at.is_some_and(|last| now - last > longest_pause(settings))
    }

    /// Whether the controller may have lost patience with us since the last one that was acknowledged.
    pub(super) fn may_be_judged(&self, settings: &Settings, now: Up) -> bool {
        self.acknowledged_at.is_none_or(|last| now - last >= least_patience(settings))
    }
}

/// How long after a renewal that was acknowledged the next one may be sent without a gap.
fn longest_pause(settings: &Settings) -> Duration {
    let period = settings.lease_renew_period();
    let pause = (period * 3 / 2).max(LEAST_GAP);
    // One that is lost is sent again when it got no answer in time: with that alone nobody loses patience.
    match leaves_time(settings) {
        true => pause,
        false => pause.max((period + period / 25 + REQUEST_DEADLINE + MOMENT).min(least_patience(settings))),
    }
}

/// Whether an answer may lie unread until the next one is due, and several more be lost then.
pub(super) fn leaves_time(settings: &Settings) -> bool {
    settings.lease_renew_period() * UNHURRIED_PERIODS <= settings.node_monitor_grace_period
}

/// The controller counts from when it saw a renewal, which may have come up to a deadline before its answer; and one that was
/// not told of a longer patience may have been told of a shorter one (40 s before Kubernetes 1.32).
fn least_patience(settings: &Settings) -> Duration {
    settings.node_monitor_grace_period * 3 / 4
}
