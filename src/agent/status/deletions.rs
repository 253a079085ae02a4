//! Turns deletions of the Node in a row into how long to wait before it is made again: none at first, then ever longer.

use std::time::Duration;

use super::super::backoff::Backoff;
use super::registration::tries_to_register;
use super::{Base, Stage, StatusLane};
use crate::api::Refusal;
use crate::time::Up;

#[derive(Debug, Default)]
pub(super) struct Deletions {
    /// Since when the server accepts reports for the Node that there is; `None` before the first.
    accepted_since: Option<Up>,
    /// Pauses of the next deletions in a row; `None` before the first.
    pauses: Option<Backoff>,
    /// A Node of ours is gone, or its status is not found: how long to wait before it is made again.
    pause: Option<Duration>,
}

/// A Node that lived for so long was not deleted by who deletes it each time.
const LIVED_LONG: Duration = Duration::from_secs(600);
/// Before the second registration in a row; it doubles with each further one.
const SECOND_PAUSE: Duration = Duration::from_secs(7);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl Deletions {
    pub(super) fn report_accepted(&mut self, now: Up) {
        self.accepted_since.get_or_insert(now);
    }

    /// It is gone, or its status is not found.
    fn node_deleted(&mut self, now: Up) {
        if self.accepted_since.take().is_some_and(|since| now - since >= LIVED_LONG) {
            self.pauses = None;
        }
        self.pause = Some(self.pauses.as_mut().map_or(Duration::ZERO, Backoff::step));
        self.pauses.get_or_insert(Backoff::between(SECOND_PAUSE, LONGEST_PAUSE));
    }

    /// Whether it happened, and no Node was made since.
    pub(super) fn was_deleted(&self) -> bool {
        self.pause.is_some()
    }

    /// There is a Node of ours again.
    pub(super) fn node_made(&mut self) {
        self.pause = None;
    }

    /// How long to wait, once; `None` where it happened for the first time in a long while, or not at all.
    pub(super) fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take().filter(|pause| !pause.is_zero())
    }
}

impl StatusLane {
    pub(super) fn register_again(&mut self, now: Up) {
        self.deletions.node_deleted(now);
        self.tries = tries_to_register();
        self.was_reported = false;
        self.base = Base::Doubtful;
        self.stage = Stage::Decide { not_before: now };
    }
}

/// Whether the server may have done what it was asked although it did not say so.
pub(super) fn may_have_been_done(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Failed(failure) => !failure.is_unsent(),
        Refusal::Status(status) => status.code >= 500,
    }
}
