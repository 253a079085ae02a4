//! The tries of a lane since it last succeeded: how many, how long to wait before the next, and what is said of them.

use std::time::Duration;

use super::backoff::{Backoff, CEILING};
use super::contract::Because;
use super::failure_log::{FailureLog, RetryReason};
use super::notice::Notice;
use super::shared::Shared;
use crate::api::{Class, Operation, Refusal};
use crate::config::limits::RETRY_AFTER_IN_A_ROW;
use crate::time::Now;

#[derive(Debug)]
pub(super) struct Tries {
    /// How many have failed.
    pub(super) failed: u32,
    /// How often in a row the server asked for patience: that is no failure.
    postponed: u32,
    backoff: Backoff,
    log: FailureLog,
    /// What was asked last ([`Operation::label`]): the right that a refusal may be for want of.
    pub(super) asked: &'static str,
    /// What is in the way though no request failed, for people.
    obstacle: Option<String>,
}

impl Tries {
    /// `what` is tried, for people; the first pause is `first_pause`.
    pub(super) fn of(what: &'static str, first_pause: Duration) -> Tries {
        Tries::between(what, first_pause, CEILING)
    }

    /// The same with pauses up to `longest_pause`.
    pub(super) fn between(what: &'static str, first_pause: Duration, longest_pause: Duration) -> Tries {
        Tries {
            failed: 0,
            postponed: 0,
            backoff: Backoff::between(first_pause, longest_pause),
            log: FailureLog::of(what),
            asked: "",
            obstacle: None,
        }
    }

    /// The next try is `operation`.
    pub(super) fn asking(&mut self, operation: Operation) -> Operation {
        self.asked = operation.label();
        operation
    }

    /// An answer came. The server asked for patience in a row only as long as it says nothing else.
    pub(super) fn answered(&mut self, refusal: Option<&Refusal>) {
        if !matches!(refusal.map(Refusal::class), Some(Class::After(_))) {
            self.postponed = 0;
        }
    }

    /// A try failed, of which the log may say something.
    pub(super) fn failed(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let advice = shared.advise(refusal, self.asked, now);
        self.failed_with(refusal, &advice, shared, now);
    }

    /// The same with advice of one's own.
    pub(super) fn failed_with(&mut self, refusal: &Refusal, advice: &str, shared: &mut Shared, now: Now) {
        self.failed += 1;
        shared.say_if(self.log.failed(refusal, advice, now.up));
    }

    /// One succeeded.
    pub(super) fn succeeded(&mut self, shared: &mut Shared, now: Now) {
        self.start_over();
        shared.say_if(self.recovered(now));
    }

    /// The same for people alone.
    pub(super) fn recovered(&mut self, now: Now) -> Option<Notice> {
        self.log.ended(now.up)
    }

    /// Nothing failed, and yet there is something in the way as long as these tries last.
    pub(super) fn hindered(&mut self, text: &str) {
        self.obstacle = Some(text.to_owned());
    }

    pub(super) fn is_hindered(&self) -> bool {
        self.obstacle.is_some()
    }

    /// What comes next has its own tries; what went wrong before is still not over.
    pub(super) fn start_over(&mut self) {
        (self.failed, self.postponed) = (0, 0);
        self.backoff.reset();
    }

    /// Whether the server may ask for patience once more.
    pub(super) fn may_postpone(&self) -> bool {
        self.postponed < RETRY_AFTER_IN_A_ROW
    }

    /// How long the server asked to wait, a few times in a row: then the try does not count.
    pub(super) fn postponed(&mut self, refusal: &Refusal, ceiling: Duration) -> Option<Duration> {
        let Class::After(wait) = refusal.class() else { return None };
        if !self.may_postpone() {
            return None;
        }
        self.postponed += 1;
        self.failed = self.failed.saturating_sub(1);
        Some(wait.min(ceiling))
    }

    /// The pause before the next; each is twice the one before, up to the longest.
    pub(super) fn pause(&mut self) -> Duration {
        self.backoff.step()
    }

    /// Whether what happened is a reason to try now. Then the pauses begin anew: a network that is just back may know no way
    /// for another second (a router that is still asked for its address, or has no uplink of its own yet).
    pub(super) fn hurry(&mut self, reason: RetryReason) -> bool {
        let may_retry = self.log.may_retry_for(reason);
        if may_retry {
            self.backoff.reset();
        }
        may_retry
    }

    /// What the last try said, if it failed, or what else is in the way.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.log.last().or(self.obstacle.as_deref())
    }

    /// Why the next one waits.
    pub(super) fn because(&self) -> Because {
        Because { what: self.log.what, after: self.last_failure().map(str::to_owned) }
    }
}
