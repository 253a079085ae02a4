//! Turns the board's wall clock and the server's `Date` headers into the stamps on objects (D5, D11).

use std::time::Duration;

use crate::time::{Now, Up, Wall};

/// What is known of the time of day.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    /// When the last `Date` was heard that somebody bore out, and what it said.
    heard: Option<Heard>,
    /// The last two, where nobody did, the newer first: one that is wrong may come between two that are right.
    alone: [Option<Heard>; 2],
    /// How often a server was asked again, for the time alone.
    asked_again: u32,
    /// Whether the difference was already reported.
    skew_reported: bool,
}

/// When, and what.
type Heard = (Up, Wall);

/// More than this between the board's clock and the server's is worth a line in the log.
const WORTH_REPORTING: Duration = Duration::from_secs(60);

/// One reply may be wrong, or have lain there while the board slept: two of the others bear each other out.
const ASKED_FOR_THE_TIME: u32 = 3;

/// Further from the server's clock than this, the board's is not believed. Far below the 50 s after which a silent Node
/// is given up: a renewTime may fall back by as much when a Lease is made anew after the board's clock was corrected.
const BELIEVED_WITHIN: Duration = Duration::from_secs(10);

/// A `Date` has whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);

impl ServerClock {
    /// What the `Date` of a reply that was so long on its way says of now, where that is borne out. Of a late one what it said
    /// has to be: that any time of its way may be now's bears out nothing.
    pub(super) fn confirmed(&mut self, date: Wall, way: Duration, is_late: bool, now: Now) -> Option<Wall> {
        let by_now = self.by_now(date, way, now);
        self.is_confirmed(if is_late { date } else { by_now }, is_late, now).then_some(by_now)
    }

    /// Takes the `Date` of a reply. One that is wrong must not date anything, so there have to be two witnesses: the
    /// board's own clock, what servers said before, or one of the two replies before. Answers whether there were. `is_late`: the
    /// reply took so long that it is later by now than it says, so that it bears no board's clock out, takes no witness's
    /// place, and shows that a reply which says less was wrong.
    fn is_confirmed(&mut self, date: Wall, is_late: bool, now: Now) -> bool {
        let board = now.wall.filter(|_| !is_late);
        let alone = self.alone.map(|alone| carried(alone, now).filter(|alone| !is_late || alone.plus(ROUNDED) >= date));
        let others = [board, carried(self.heard, now)].into_iter().chain(alone);
        let is_confirmed = others.flatten().any(|other| apart(other, date) <= BELIEVED_WITHIN);
        self.alone = match self.alone {
            _ if is_confirmed => [None; 2],
            [Some(_), _] if is_late => self.alone,
            [before, _] => [Some((now.up, date)), before],
        };
        is_confirmed
    }

    /// What a `Date` says of now: it was said at some moment of so long a way, so that it is what we think, or what a reply
    /// before makes it, whichever fits better; where neither can be believed it is no later than what is true.
    fn by_now(&self, date: Wall, way: Duration, now: Now) -> Wall {
        let alone = self.alone.iter().filter_map(|alone| carried(*alone, now));
        let thought = self.stamp(now).into_iter().chain(alone);
        let fitted = thought.map(|time| (time, time.clamp(date, date.plus(way))));
        let fitted = fitted.map(|(time, fitted)| (apart(time, fitted), fitted));
        let best = fitted.filter(|(off, _)| *off <= BELIEVED_WITHIN).min_by_key(|(off, _)| *off);
        best.map_or(date, |(_, fitted)| fitted)
    }

    /// Believes this. Answers how far the board's clock is off, once, when that is worth reporting.
    pub(super) fn believe(&mut self, date: Wall, now: Now) -> Option<String> {
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

    /// By how many seconds the board's clock is ahead of the servers'; `None` where nobody can say.
    pub(super) fn ahead_seconds(&self, now: Now) -> Option<i64> {
        let (board, server) = (now.wall?, carried(self.heard, now)?);
        Some(board.unix_seconds() - server.unix_seconds())
    }

    /// A server has said the time: the board's clock is right, or known to be wrong.
    pub(super) fn was_compared(&self) -> bool {
        self.heard.is_some()
    }

    /// Answers whether to ask once more before anything is dated, and counts that: a Node dated by a clock that nobody has
    /// compared, or by one reply alone, may be of tomorrow.
    pub(super) fn ask_once_more(&mut self) -> bool {
        let wants = !self.was_compared() && self.asked_again < ASKED_FOR_THE_TIME;
        self.asked_again += u32::from(wants);
        wants
    }

    /// The time to print on objects: the board's wall clock while it agrees with the server's, else the server's clock
    /// carried forward; `None` before the first answer of a server on a board without a clock.
    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        match (now.wall, carried(self.heard, now)) {
            (Some(board), Some(server)) if apart(board, server) > BELIEVED_WITHIN => Some(server),
            (board, server) => board.or(server).or_else(|| self.alone.iter().find_map(|alone| carried(*alone, now))),
        }
    }
}

/// What it said, by that moment, which may lie before it: what is learned later is recorded with the time that it had.
fn carried(heard: Option<Heard>, at: Now) -> Option<Wall> {
    heard.map(|(up, said)| said.carried(up, at.up))
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
        assert_eq!(clock.believe(Wall::from_unix_seconds(1_767_225_600), at(6, None)), None);
        assert_eq!(clock.stamp(at(10, None)), Some(Wall::from_unix_seconds(1_767_225_604)));
        assert_eq!(clock.stamp(at(11, Some(1_767_225_600))), Some(Wall::from_unix_seconds(1_767_225_600)));
    }

    #[test]
    fn a_moment_before_the_last_answer_is_dated_before_it() {
        let date = |seconds: i64| Wall::from_unix_seconds(1_767_225_600 + seconds);
        let mut clock = ServerClock::default();
        clock.believe(date(100), at(100, None));
        assert_eq!(clock.stamp(at(40, None)), Some(date(40)));
        assert_eq!(clock.stamp(at(40, Some(1_767_225_645))), Some(date(45)), "the board's own clock agreed");
        assert_eq!(clock.stamp(at(40, Some(1_767_225_700))), Some(date(40)), "it did not");
    }

    #[test]
    fn a_date_that_was_long_on_its_way_moves_no_clock_that_may_be_right() {
        let date = |seconds: i64| Wall::from_unix_seconds(1_767_225_600 + seconds);
        let way = Duration::from_secs(9);
        let board = |seconds: i64| at(9, Some(1_767_225_600 + seconds));
        let mut clock = ServerClock::default();
        let by_now = |clock: &ServerClock, seconds: i64| clock.by_now(date(0), way, board(seconds));
        let expected = [(-3600, 0), (0, 0), (5, 5), (9, 9), (19, 9), (3600, 0)];
        for (seconds, expected) in expected {
            assert_eq!(by_now(&clock, seconds), date(expected), "{seconds}");
        }
        assert_eq!(clock.by_now(date(0), way, at(9, None)), date(0));
        // A reply that came at once, two seconds before, of which the board's clock knows nothing.
        assert!(!clock.is_confirmed(date(1), false, at(7, None)));
        let expected = [(-3600, 3), (0, 0), (5, 5), (9, 9), (3600, 3)];
        for (seconds, expected) in expected {
            assert_eq!(by_now(&clock, seconds), date(expected), "{seconds}, and the reply before");
        }
        assert_eq!(clock.by_now(date(0), way, at(9, None)), date(3));
    }

    #[test]
    fn a_late_date_that_the_one_before_bears_out_is_as_much_later_as_that_makes_it() {
        let date = |seconds: i64| Wall::from_unix_seconds(1_767_225_600 + seconds);
        let mut clock = ServerClock::default();
        let board = |up: u64| at(up, Some(1_767_200_000 + i64::try_from(up).unwrap()));
        assert_eq!(clock.confirmed(date(96), Duration::from_secs(3), false, board(99)), None);
        // Said nine seconds after that, while the board slept on.
        let way = Duration::from_secs(18);
        assert_eq!(clock.confirmed(date(105), way, true, board(117)), Some(date(114)));
        // What lies further back bears it out no more, although it may be now as well.
        let mut clock = ServerClock::default();
        assert_eq!(clock.confirmed(date(96), Duration::from_secs(3), false, board(99)), None);
        assert_eq!(clock.confirmed(date(103), way, true, board(117)), None);
    }

    #[test]
    fn a_clock_far_from_the_servers_is_not_believed() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.stamp(at(5, Some(1_700_000_000))), Some(Wall::from_unix_seconds(1_700_000_000)));
        clock.believe(Wall::from_unix_seconds(1_767_225_600), at(6, None));
        for board in [1_700_000_000, 1_767_225_593, 1_767_225_615, 1_800_000_000] {
            assert_eq!(clock.stamp(at(10, Some(board))), Some(Wall::from_unix_seconds(1_767_225_604)), "{board}");
        }
        assert_eq!(clock.stamp(at(10, Some(1_767_225_614))), Some(Wall::from_unix_seconds(1_767_225_614)));
    }

    #[test]
    fn a_clock_that_is_off_is_reported_once_until_it_was_right_again() {
        let mut clock = ServerClock::default();
        let date = Wall::from_unix_seconds(1_767_225_600);
        let off = at(1, Some(1_767_229_200));
        assert!(clock.believe(date, off).is_some_and(|text| text.contains("3600 s ahead of")));
        assert_eq!(clock.believe(date, off), None);
        assert_eq!(clock.believe(date, at(2, Some(1_767_225_601))), None);
        assert!(clock.believe(date, at(3, Some(1_767_225_000))).is_some_and(|text| text.contains("600 s behind")));
    }

    #[test]
    fn a_date_that_nobody_bears_out_is_not_believed_and_the_next_one_is() {
        const RIGHT: i64 = 1_767_225_600;
        const WRONG: i64 = 2_064_000_000;
        let says = |clock: &mut ServerClock, up: u64, wall: Option<i64>, date: i64| {
            clock.is_confirmed(Wall::from_unix_seconds(date), false, at(up, wall))
        };
        let mut clock = ServerClock::default();
        assert!(says(&mut clock, 5, Some(RIGHT), RIGHT + 9), "the board's clock bears it out");
        for wall in [None, Some(RIGHT + 86_400)] {
            let mut clock = ServerClock::default();
            assert!(!says(&mut clock, 5, wall, WRONG), "nobody does");
            assert!(!says(&mut clock, 6, wall, RIGHT), "nor here");
            assert!(says(&mut clock, 16, wall, RIGHT + 10), "the one before");
            clock.believe(Wall::from_unix_seconds(RIGHT + 10), at(16, wall));
            assert!(!says(&mut clock, 26, wall, WRONG), "one that is wrong");
            assert!(says(&mut clock, 36, wall, RIGHT + 30), "what servers said before");
            let mut between = ServerClock::default();
            assert!(!says(&mut between, 5, wall, RIGHT) && !says(&mut between, 6, wall, WRONG));
            assert!(says(&mut between, 7, wall, RIGHT + 2), "the one before that was wrong");
            let mut late = ServerClock::default();
            assert!(!says(&mut late, 5, wall, RIGHT));
            assert!(
                !late.is_confirmed(Wall::from_unix_seconds(RIGHT + 30), true, at(65, wall)),
                "it took half a minute"
            );
            assert!(says(&mut late, 66, wall, RIGHT + 61), "the one before that");
            assert!(
                !late.is_confirmed(Wall::from_unix_seconds(RIGHT + 90), true, at(95, Some(RIGHT + 90))),
                "by a wrong clock"
            );
            assert!(
                !says(&mut clock, 46, wall, WRONG) && says(&mut clock, 56, wall, WRONG + 10),
                "the server's clock was set"
            );
        }
    }

    #[test]
    fn a_date_that_lay_there_bears_out_none_that_was_wrong() {
        let date = |seconds: i64| Wall::from_unix_seconds(1_767_225_600 + seconds);
        for wrong in [-62, -60] {
            let mut clock = ServerClock::default();
            assert!(!clock.is_confirmed(date(0), false, at(0, None)));
            assert!(!clock.is_confirmed(date(1 + wrong), false, at(1, None)), "a minute back");
            assert!(!clock.is_confirmed(date(2), true, at(60, None)), "it lay there for 58 s");
            assert!(clock.is_confirmed(date(61), false, at(61, None)), "the one before the one that was wrong");
        }
    }
}
