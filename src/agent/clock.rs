//! Turns the board's wall clock and the server's `Date` headers into the stamps on objects (D5, D11).

use std::time::Duration;

use crate::time::{Now, Up, Wall};

/// What is known of the time of day.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    /// When the last `Date` was heard, and what it said.
    heard: Option<(Up, Wall)>,
    /// Whether the difference was already reported.
    skew_reported: bool,
}

/// More than this between the board's clock and the server's is worth a line in the log.
const WORTH_REPORTING: Duration = Duration::from_secs(60);

impl ServerClock {
    /// Takes the `Date` of a reply. Answers how far the board's clock is off, once, when that is worth reporting.
    pub(super) fn hear(&mut self, date: Option<Wall>, now: Now) -> Option<String> {
        let date = date?;
        self.heard = Some((now.up, date));
        let board = now.wall?;
        let (off, word) = if board > date { (board.since(date), "ahead of") } else { (date.since(board), "behind") };
        let report = off > WORTH_REPORTING && !self.skew_reported;
        self.skew_reported = off > WORTH_REPORTING;
        report.then(|| {
            format!("this board's clock is {} s {word} the server's; set it, or start an NTP client", off.as_secs())
        })
    }

    /// The time to print on objects: the board's wall clock once that can be right, else the server's clock carried
    /// forward; `None` before the first answer of a server on a board without a clock.
    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        now.wall.or_else(|| self.heard.map(|(up, date)| date.plus(now.up - up)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, wall: Option<i64>) -> Now {
        Now { up: Up::since_boot(Duration::from_secs(seconds)), wall: wall.map(Wall::from_unix_seconds) }
    }

    #[test]
    fn a_board_without_a_clock_stamps_with_the_servers() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.stamp(at(5, None)), None);
        assert_eq!(clock.hear(Some(Wall::from_unix_seconds(1_767_225_600)), at(6, None)), None);
        assert_eq!(clock.stamp(at(10, None)), Some(Wall::from_unix_seconds(1_767_225_604)));
        assert_eq!(clock.stamp(at(11, Some(1_800_000_000))), Some(Wall::from_unix_seconds(1_800_000_000)));
    }

    #[test]
    fn a_clock_that_is_off_is_reported_once_until_it_was_right_again() {
        let mut clock = ServerClock::default();
        let date = Some(Wall::from_unix_seconds(1_767_225_600));
        let off = at(1, Some(1_767_229_200));
        assert!(clock.hear(date, off).is_some_and(|text| text.contains("3600 s ahead of")));
        assert_eq!(clock.hear(date, off), None);
        assert_eq!(clock.hear(date, at(2, Some(1_767_225_601))), None);
        assert!(clock.hear(date, at(3, Some(1_767_225_000))).is_some_and(|text| text.contains("600 s behind")));
    }
}
