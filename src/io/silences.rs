//! Turns how long connections were silent before they died, or lived on, into the moment to say that something on the way
//! forgets them.

use std::cell::RefCell;
use std::time::Duration;

use crate::config::limits;
use crate::time::Up;

/// What is known of the silences of the connections to one server.
#[derive(Debug, Default)]
pub struct Silences(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When the last request began that was answered: its answer may have lain unread.
    heard: Option<Up>,
    /// A silence after which nothing came any more, and until when a new connection has to be answered for that to be the old
    /// one's fault.
    suspect: Option<(Duration, Up)>,
    /// The shortest that was deadly, and how many were in a row.
    deadly: Option<(Duration, u32)>,
}

impl Silences {
    /// How long a connection has been silent on which a request begins now.
    pub fn before(&self, now: Up) -> Option<Duration> {
        self.0.borrow().heard.map(|heard| now - heard)
    }

    /// A watch has told of something: the connection is not silent.
    pub fn broken(&self, now: Up) {
        let mut known = self.0.borrow_mut();
        known.heard = known.heard.max(Some(now));
    }

    /// What became of a request, on a connection that had been silent for so long before, or on one of its own. Says it when the
    /// second connection in a row has died of its silence.
    pub fn heard(&self, silent_for: Option<Duration>, began: Up, is_answered: bool, now: Up) {
        let mut known = self.0.borrow_mut();
        let deadly = match silent_for {
            silent_for if is_answered => known.answered(silent_for, began, now),
            Some(silent_for) => {
                known.died(silent_for, now);
                None
            }
            None => None,
        };
        if let Some(deadly) = deadly {
            let (seconds, wait_s) = (deadly.as_secs(), limits::REQUEST_DEADLINE.as_secs());
            ::log::warn!(
                target: "connection-forgotten",
                "twice in a row a connection was dead after {seconds} s of silence or more, and a new one was answered: a NAT or \
                 firewall on the way forgets it; each time costs a handshake and up to {wait_s} s; a nodeLeaseDurationSeconds \
                 well below {} keeps it (a renewal each quarter of that)",
                4 * seconds
            );
        }
    }
}

impl Known {
    /// A request came to nothing in time, on a connection that had been silent for so long.
    fn died(&mut self, silent_for: Duration, now: Up) {
        if silent_for >= limits::FORGOTTEN_AFTER && self.suspect.is_none_or(|(_, until)| until < now) {
            self.suspect = Some((silent_for, now + 2 * limits::REQUEST_DEADLINE));
        }
    }

    /// An answer came to a request of that time; `silent_for` is that of a connection that was there already. Answers the
    /// shortest deadly silence when that is to be said: at the second in a row.
    fn answered(&mut self, silent_for: Option<Duration>, began: Up, now: Up) -> Option<Duration> {
        self.heard = self.heard.max(Some(began));
        let Some(lived) = silent_for else { return self.replaced(now) };
        if self.deadly.is_some_and(|(shortest, _)| lived >= shortest) {
            self.deadly = None;
        }
        None
    }

    /// A new connection was answered.
    fn replaced(&mut self, now: Up) -> Option<Duration> {
        let (silence, _) = self.suspect.take().filter(|(_, until)| now <= *until)?;
        let (shortest, before) = self.deadly.unwrap_or((silence, 0));
        let (shortest, in_a_row) = (shortest.min(silence), before.saturating_add(1));
        self.deadly = Some((shortest, in_a_row));
        (in_a_row == 2).then_some(shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch that begins between two renewals keeps the connection for one more of them.
    #[test]
    fn what_a_watch_tells_breaks_a_silence_and_says_nothing_of_how_long_one_may_be() {
        let silences = Silences::default();
        silences.heard(None, at(0), true, at(0));
        for second in [20, 60] {
            silences.heard(silences.before(at(second)), at(second), false, at(second + 10));
            silences.heard(None, at(second + 10), true, at(second + 10));
            assert_eq!(silences.before(at(second + 10)), Some(Duration::ZERO));
            silences.broken(at(second + 15));
            let before = silences.before(at(second + 20));
            assert_eq!(before, Some(Duration::from_secs(5)));
            silences.heard(before, at(second + 20), true, at(second + 20));
        }
        assert_eq!(silences.0.borrow().deadly, Some((Duration::from_secs(20), 2)), "both in a row");
    }

    fn at(second: u64) -> Up {
        Up::since_boot(Duration::from_secs(second))
    }

    /// A renewal each so many seconds, on connections that are forgotten after so many; the seconds at which that is said, and the
    /// silence that is named then.
    fn said(period_s: u64, forgotten_after_s: u64, until_s: u64) -> Vec<(u64, u64)> {
        let (mut silences, mut said) = (Known::default(), Vec::new());
        let mut note = |second, line: Option<Duration>| said.extend(line.map(|silence| (second, silence.as_secs())));
        note(0, silences.answered(None, at(0), at(0)));
        let mut second = period_s;
        while second < until_s {
            let silence = at(second) - silences.heard.unwrap();
            if silence.as_secs() > forgotten_after_s {
                silences.died(silence, at(second + 10));
                // Another lane's request on the same connection.
                silences.died(silence, at(second + 10));
                second += 11;
                note(second, silences.answered(None, at(second), at(second)));
            } else {
                note(second, silences.answered(Some(silence), at(second), at(second)));
            }
            second += period_s;
        }
        said
    }

    #[test]
    fn the_second_connection_in_a_row_that_dies_of_its_silence_is_said_once() {
        assert_eq!(said(20, 15, 600), [(62, 20)]);
        assert_eq!(said(240, 120, 3600), [(502, 240)]);
        assert_eq!(said(10, 15, 600), []);
    }

    #[test]
    fn what_dies_while_nothing_can_be_reached_says_nothing_of_silence() {
        let mut silences = Known::default();
        for second in (0..3600).step_by(100) {
            silences.answered(None, at(second), at(second));
            silences.died(Duration::from_secs(20), at(second + 30));
            assert_eq!(silences.answered(None, at(second + 60), at(second + 60)), None, "an outage of its own");
        }
    }

    #[test]
    fn a_longer_silence_that_was_outlived_refutes_the_shorter() {
        let mut silences = Known::default();
        silences.answered(None, at(0), at(0));
        for round in 0..20 {
            let start = round * 100;
            silences.died(Duration::from_secs(20), at(start + 10));
            assert_eq!(silences.answered(None, at(start + 11), at(start + 11)), None);
            assert_eq!(silences.answered(Some(Duration::from_secs(25)), at(start + 36), at(start + 36)), None);
        }
    }

    #[test]
    fn the_death_of_a_busy_connection_says_nothing() {
        let mut silences = Known::default();
        for second in (0..600).step_by(30) {
            silences.died(Duration::from_secs(10), at(second));
            assert_eq!(silences.answered(None, at(second + 1), at(second + 1)), None);
        }
    }
}
