//! Turns a run of failures into few lines: the first, every change of kind, a count now and then, and the end.

use std::time::Duration;

use super::notice::{Level, Notice};
use crate::api::{Class, Refusal};
use crate::config::limits::KINDS_OF_FAILURE;
use crate::time::{InWords, Up};

/// The failures of one lane since its last success.
#[derive(Debug)]
pub(super) struct FailureLog {
    /// What fails, for people: "Lease renewal".
    pub(super) what: &'static str,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    since: Up,
    /// Kinds of failures and when a line told of each, the last one last.
    said: Vec<(String, Up)>,
    /// Failures since the last line.
    unsaid: u32,
    failures: u32,
    text: String,
    /// What the last failure was.
    class: Class,
}

/// What may end a run of failures before its next try is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryReason {
    /// An address, a route or a carrier changed.
    Link,
    /// Settings and credentials were read again.
    Reload,
}

/// A failure that goes on is mentioned again this often.
const REMIND_AFTER: Duration = Duration::from_secs(600);

impl FailureLog {
    pub(super) const fn of(what: &'static str) -> FailureLog {
        FailureLog { what, current: None }
    }

    /// A try failed. Answers the line to say, if any.
    pub(super) fn failed(&mut self, refusal: &Refusal, advice: &str, now: Up) -> Option<Notice> {
        let kind = refusal.word().into_owned();
        let text = format!("{refusal}{advice}");
        let what = self.what;
        let class = refusal.class();
        let Some(current) = &mut self.current else {
            let notice = Notice::new(Level::Warn, "failing", format!("{what} failed: {text}"));
            self.current = Some(Current { since: now, said: vec![(kind, now)], unsaid: 0, failures: 1, text, class });
            return Some(notice);
        };
        current.failures = current.failures.saturating_add(1);
        current.unsaid = current.unsaid.saturating_add(1);
        current.text = text;
        current.class = class;
        // Two that take turns are each told once as well.
        if current.said.iter().any(|(said, at)| *said == kind && now - *at < REMIND_AFTER) {
            return None;
        }
        let changed = current.said.last().is_some_and(|(said, _)| *said != kind);
        let spent = InWords(now - current.since);
        let text = if changed {
            format!("{what} fails differently after {} tries in {spent}: {}", current.failures, current.text)
        } else {
            format!("{what} still fails, {} more times in {spent}: {}", current.unsaid, current.text)
        };
        current.said.retain(|(said, at)| *said != kind && now - *at < REMIND_AFTER);
        if current.said.len() >= KINDS_OF_FAILURE {
            current.said.remove(0);
        }
        current.said.push((kind, now));
        current.unsaid = 0;
        Some(Notice::new(Level::Warn, "still-failing", text))
    }

    /// A try succeeded. Answers the line to say when that ends a run of failures.
    pub(super) fn ended(&mut self, now: Up) -> Option<Notice> {
        let current = self.current.take()?;
        let spent = InWords(now - current.since);
        let tries = if current.failures == 1 { "try" } else { "tries" };
        let text = format!("{} works again after {spent} and {} failed {tries}", self.what, current.failures);
        Some(Notice::new(Level::Info, "recovered", text))
    }

    /// Whether `event` is a reason to try now. Never when the server itself asked for patience.
    pub(super) fn may_retry_for(&self, event: RetryReason) -> bool {
        self.current.as_ref().is_some_and(|current| match (current.class, event) {
            (Class::After(_), _) => false,
            (Class::Unreachable, _) | (_, RetryReason::Reload) => true,
            (_, RetryReason::Link) => false,
        })
    }

    /// What the last failure said, for the reason of a deadline.
    pub(super) fn last(&self) -> Option<&str> {
        self.current.as_ref().map(|current| current.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Failure, StatusError};

    fn after(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    fn timed_out() -> Refusal {
        Refusal::Failed(Failure::timed_out(Duration::from_secs(10)))
    }

    fn unavailable() -> Refusal {
        let message = "etcd has no leader".to_owned();
        Refusal::Status(StatusError { code: 503, reason: String::new(), message, retry_after: None })
    }

    #[test]
    fn a_thousand_equal_failures_are_a_handful_of_lines() {
        let mut failures = FailureLog::of("Lease renewal");
        let lines = (0..1000).filter_map(|second| failures.failed(&timed_out(), "", after(second * 7))).count();
        assert_eq!(lines, 1 + 6999 / 600);
        let end = failures.ended(after(7000)).unwrap();
        assert_eq!(end.text, "Lease renewal works again after 116 min and 1000 failed tries");
        assert_eq!(failures.ended(after(7001)), None);
    }

    #[test]
    fn another_kind_of_failure_is_said_at_once() {
        let mut failures = FailureLog::of("status");
        assert!(failures.failed(&timed_out(), "", after(1)).is_some());
        assert_eq!(failures.failed(&timed_out(), "", after(2)), None);
        let line = failures.failed(&unavailable(), "", after(3)).unwrap();
        assert_eq!(line.text, "status fails differently after 3 tries in 2 s: server answered 503: etcd has no leader");
        assert_eq!(failures.last(), Some("server answered 503: etcd has no leader"));
    }

    #[test]
    fn two_kinds_of_failure_that_take_turns_are_each_told_now_and_then() {
        let mut failures = FailureLog::of("registration");
        let turn = |second: u64| if second.is_multiple_of(2) { timed_out() } else { unavailable() };
        let lines = (0..3000).filter_map(|second| failures.failed(&turn(second), "", after(second))).count();
        assert_eq!(lines, 2 * 5);
    }
}
