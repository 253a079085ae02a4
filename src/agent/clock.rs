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

/// Further from the server's clock than this, the board's is not believed. Far below the 50 s after which a silent Node
/// is given up: a renewTime may fall back by as much when a Lease is made anew after the board's clock was corrected.
const BELIEVED_WITHIN: Duration = Duration::from_secs(10);

impl ServerClock {
    /// Takes the `Date` of a reply. Answers how far the board's clock is off, once, when that is worth reporting.
    pub(super) fn hear(&mut self, date: Option<Wall>, now: Now) -> Option<String> {
        let date = date?;
        self.heard = Some((now.up, date));
        let board = now.wall?;
        let off = apart(board, date);
        let word = if board > date { "ahead of" } else { "behind" };
        let report = off > WORTH_REPORTING && !self.skew_reported;
        self.skew_reported = off > WORTH_REPORTING;
        report.then(|| {
            format!("this board's clock is {} s {word} the server's; set it, or start an NTP client", off.as_secs())
        })
    }

    /// A server has said the time: the board's clock is right, or known to be wrong.
    pub(super) fn was_compared(&self) -> bool {
        self.heard.is_some()
    }

    /// The time to print on objects: the board's wall clock while it agrees with the server's, else the server's clock
    /// carried forward; `None` before the first answer of a server on a board without a clock.
    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        let server = self.heard.map(|(up, date)| date.plus(now.up - up));
        match (now.wall, server) {
            (Some(board), Some(server)) if apart(board, server) > BELIEVED_WITHIN => Some(server),
            (board, server) => board.or(server),
        }
    }
}

pub(super) fn apart(one: Wall, other: Wall) -> Duration {
    one.since(other).max(other.since(one))
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
        assert_eq!(clock.stamp(at(11, Some(1_767_225_600))), Some(Wall::from_unix_seconds(1_767_225_600)));
    }

    #[test]
    fn a_clock_far_from_the_servers_is_not_believed() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.stamp(at(5, Some(1_700_000_000))), Some(Wall::from_unix_seconds(1_700_000_000)));
        clock.hear(Some(Wall::from_unix_seconds(1_767_225_600)), at(6, None));
        for board in [1_700_000_000, 1_767_225_593, 1_767_225_615, 1_800_000_000] {
            assert_eq!(clock.stamp(at(10, Some(board))), Some(Wall::from_unix_seconds(1_767_225_604)), "{board}");
        }
        assert_eq!(clock.stamp(at(10, Some(1_767_225_614))), Some(Wall::from_unix_seconds(1_767_225_614)));
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
