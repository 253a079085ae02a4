//! Turns what was counted of the network into what is put off so that a day keeps to its budget (`dailyBytes`).
//!
//! ```text
//! left over = budget - what was counted - what the renewals of the rest of the day will take
//! even      = what would be left over if that had been spent evenly up to now
//!
//! left over below 3/4 of even   reports without a change are put off
//!                 1/2           and assertions
//!                 1/4           and events
//!                 nothing       and status changes; renewals never
//! ```
//!
//! Measured against the rest of the day, not against the budget: so a board does not go silent at noon, and what was put off
//! goes on as soon as the board has been sparing for long enough. Each of them is over when an eighth of what a day leaves over
//! (three hours' worth) more than its limit is there, or with the day.
//!
//! A day ends at midnight (UTC) by the clock that the board had when it began, or after 24 hours where it had none. Its end is a
//! moment of the boot clock: however the clock is set, it comes no later. The day after one whose end was no midnight is a
//! short one, with as much less of the budget. So whatever a clock does, 24 hours never get more than one budget; only the
//! first time that a process knows the time, the day becomes that which the meter has.

use std::time::Duration;

use crate::api::traffic::{Day, Purpose, day_of};
use crate::config::Settings;
use crate::time::{DAY, Up, Wall};

/// What can wait, in the order in which it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PutOff {
    #[default]
    Nothing,
    /// Reports without a change.
    Reports,
    Assertions,
    Events,
    /// Reports of a change.
    Changes,
}

/// Each with the quarters of an even rest below which it is put off, the last one first.
const LIMITS: [(PutOff, i64); 4] =
    [(PutOff::Changes, 0), (PutOff::Events, 1), (PutOff::Assertions, 2), (PutOff::Reports, 3)];
const MARGIN_PARTS: i64 = 8;
const MIDNIGHT: Duration = Duration::from_secs(10 * 60);
/// So many renewals say what one takes.
const RENEWALS: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Budget {
    day: Option<BudgetDay>,
    /// What this process had counted when that was told last.
    by_process_bytes: u64,
    /// What a renewal takes, with its connection where each makes one: by those of the last day that had some; 0 before.
    renewal_bytes: u64,
    put_off: PutOff,
}

#[derive(Debug)]
struct BudgetDay {
    ends: Up,
    /// A part of a day has that part of the budget.
    length: Duration,
    spent_bytes: u64,
    /// Its end is a midnight.
    is_dated: bool,
}

impl Budget {
    /// The first of what is not put off is the one after this.
    pub(super) fn put_off(&self) -> PutOff {
        self.put_off
    }

    pub(super) fn puts_off(&self, what: PutOff) -> bool {
        self.put_off >= what
    }

    /// Whether anything is put off; `None` before the day is known: what an earlier process said of it counts.
    pub(super) fn is_low(&self, settings: &Settings) -> Option<bool> {
        let is_known = settings.daily_bytes.is_none() || self.day.as_ref().is_some_and(|day| day.is_dated);
        is_known.then(|| self.puts_off(PutOff::Reports))
    }

    /// Its day is over: a new one begins with the next count.
    pub(super) fn is_over(&self, now: Up) -> bool {
        self.day.as_ref().is_some_and(|day| now >= day.ends)
    }

    /// Nothing is put off before the next count.
    pub(super) fn forget_day(&mut self) {
        self.put_off = PutOff::Nothing;
    }

    /// `stamp`: the time, as far as it is known.
    pub(super) fn counted(
        &mut self,
        today: &Day,
        by_process_bytes: u64,
        settings: &Settings,
        stamp: Option<Wall>,
        now: Up,
    ) {
        let Some(daily_bytes) = settings.daily_bytes else { return };
        let more_bytes = by_process_bytes.saturating_sub(self.by_process_bytes);
        self.by_process_bytes = by_process_bytes;
        let is_over = self.is_over(now);
        let day = match self.day.take() {
            Some(_) if is_over => {
                self.put_off = PutOff::Nothing;
                let left = until_midnight(stamp);
                // Just before it by a clock that was corrected meanwhile it is as good as midnight.
                let length = if left < MIDNIGHT { DAY } else { left };
                BudgetDay { ends: now + length, length, spent_bytes: more_bytes, is_dated: stamp.is_some() }
            }
            Some(day) if day.is_dated || stamp.is_none() => {
                BudgetDay { spent_bytes: day.spent_bytes + more_bytes, ..day }
            }
            _ => {
                self.put_off = PutOff::Nothing;
                BudgetDay::of_meter(today, by_process_bytes, stamp, now)
            }
        };
        let sum = |purpose: Purpose| today.sums.get(purpose as usize).copied().unwrap_or_default();
        let (lease, handshake) = (sum(Purpose::Lease), sum(Purpose::Handshake));
        if lease.count >= RENEWALS {
            let connections_bytes = if settings.renewals_connect() { handshake.bytes } else { 0 };
            self.renewal_bytes = (lease.bytes + connections_bytes) / lease.count;
        }
        let renewals_bytes = settings.renewals_bytes_per_day(self.renewal_bytes.max(settings.least_renewal_bytes()));
        self.put_off = day.put_off(daily_bytes, renewals_bytes, self.put_off, now);
        self.day = Some(day);
    }
}

impl BudgetDay {
    /// The day of the meter, where that is today; of one without a date as much is left as was not counted yet.
    fn of_meter(today: &Day, by_process_bytes: u64, stamp: Option<Wall>, now: Up) -> BudgetDay {
        let counted = Duration::from_secs(today.seconds);
        let (left, is_todays) = match stamp {
            Some(_) => (until_midnight(stamp), [0, day_of(stamp)].contains(&today.number)),
            None if counted < DAY => (DAY - counted, true),
            None => (DAY, false),
        };
        let spent_bytes = if is_todays { today.bytes() } else { by_process_bytes };
        BudgetDay { ends: now + left, length: DAY, spent_bytes, is_dated: stamp.is_some() }
    }

    fn put_off(&self, daily_bytes: u64, renewals_bytes: u64, before: PutOff, now: Up) -> PutOff {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let left_of_day = self.ends - now;
        // Of what a day takes.
        let in_span = |bytes: i64, span: Duration| {
            let seconds = signed(span.as_secs());
            bytes.saturating_mul(seconds) / signed(DAY.as_secs())
        };
        let (daily, renewals) = (signed(daily_bytes), signed(renewals_bytes));
        let others = (daily - renewals).max(0);
        let even = in_span(others, left_of_day);
        let left_over = in_span(daily, self.length) - signed(self.spent_bytes) - in_span(renewals, left_of_day);
        let is_put_off = |(what, quarters): &(PutOff, i64)| {
            let margin = if before >= *what { others / MARGIN_PARTS } else { 0 };
            left_over < even / 4 * quarters + margin
        };
        LIMITS.iter().find(|limit| is_put_off(limit)).map_or(PutOff::Nothing, |(what, _)| *what)
    }
}

/// A whole day where nobody knows the time.
fn until_midnight(stamp: Option<Wall>) -> Duration {
    let seconds = stamp.map_or(0, |stamp| stamp.unix_seconds().rem_euclid(24 * 3600));
    DAY.saturating_sub(Duration::from_secs(seconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const MIDNIGHT: i64 = 1_767_225_600;
    /// Renewals take 2,859,840 bytes of it.
    const DAILY: u64 = 12_859_840;

    fn settings() -> Settings {
        Settings { daily_bytes: Some(DAILY), ..Settings::default() }
    }

    /// A board that was up for an hour at midnight, and its meter.
    struct Board {
        budget: Budget,
        today: Day,
        seconds: u64,
        /// What is known of the time: seconds that it is ahead of what it truly is.
        ahead_seconds: Option<i64>,
    }

    impl Board {
        fn new(ahead_seconds: Option<i64>) -> Board {
            let number = ahead_seconds.map_or(0, |_| MIDNIGHT / 86_400);
            Board { budget: Budget::default(), today: Day { number, ..Day::default() }, seconds: 0, ahead_seconds }
        }

        fn at(&mut self, seconds: u64, others_bytes: u64) -> PutOff {
            self.seconds = seconds;
            let passed = i64::try_from(seconds).unwrap();
            let stamp = self.ahead_seconds.map(|ahead| Wall::from_unix_seconds(MIDNIGHT + passed + ahead));
            // Evenly, as they are.
            let renewals = 331 * seconds / 10;
            self.today.seconds = seconds;
            self.today.of(Purpose::Lease).unwrap().bytes = renewals;
            self.today.of(Purpose::Status).unwrap().bytes = others_bytes;
            let now = Up::since_boot(Duration::from_secs(HOUR + seconds));
            if self.budget.is_over(now) {
                self.budget.forget_day();
            }
            self.budget.counted(&self.today, renewals + others_bytes, &settings(), stamp, now);
            self.budget.put_off()
        }
    }

    #[test]
    fn each_step_begins_at_its_part_of_an_even_rest_and_in_the_fixed_order() {
        // At noon five of ten million would be left by an even spending.
        for (left, expected) in [
            (5_000_000, PutOff::Nothing),
            (3_760_000, PutOff::Nothing),
            (3_740_000, PutOff::Reports),
            (2_510_000, PutOff::Reports),
            (2_490_000, PutOff::Assertions),
            (1_260_000, PutOff::Assertions),
            (1_240_000, PutOff::Events),
            (10_000, PutOff::Events),
        ] {
            assert_eq!(Board::new(Some(0)).at(12 * HOUR, 10_000_000 - left), expected, "{left}");
        }
        assert_eq!(Board::new(Some(0)).at(12 * HOUR, 10_000_001), PutOff::Changes);
        // The same rest is much in the evening.
        assert_eq!(Board::new(Some(0)).at(20 * HOUR, 8_740_000), PutOff::Nothing);
    }

    #[test]
    fn what_is_put_off_goes_on_when_three_hours_more_than_its_limit_are_there() {
        let mut board = Board::new(Some(0));
        assert_eq!(board.at(12 * HOUR, 6_260_000), PutOff::Reports);
        // 3.74 left: the limit of 3 quarters and 1.25 is 3.74 when 3.32 million are even.
        assert_eq!(board.at(15 * HOUR, 6_260_000), PutOff::Reports);
        assert_eq!(board.at(16 * HOUR, 6_260_000), PutOff::Reports);
        assert_eq!(board.at(16 * HOUR + 300, 6_260_000), PutOff::Nothing);
        assert_eq!(board.at(17 * HOUR, 7_900_000), PutOff::Reports, "and again");
        assert_eq!(board.at(20 * HOUR, 10_000_001), PutOff::Changes, "more than one at once");
        assert_eq!(board.at(23 * HOUR, 10_000_001), PutOff::Changes, "for the rest of the day");
    }

    #[test]
    fn a_new_day_begins_at_midnight_with_a_new_budget() {
        let mut board = Board::new(Some(0));
        assert_eq!(board.at(HOUR, 10_100_000), PutOff::Changes);
        assert_eq!(board.at(24 * HOUR - 1, 10_100_000), PutOff::Changes);
        assert_eq!(board.at(24 * HOUR, 10_100_000), PutOff::Nothing);
        assert_eq!(board.at(36 * HOUR, 16_300_000), PutOff::Nothing);
        assert_eq!(board.at(36 * HOUR, 16_400_000), PutOff::Reports);
        assert_eq!(board.at(48 * HOUR - 1, 20_200_000), PutOff::Changes);
        assert_eq!(board.at(48 * HOUR, 20_200_000), PutOff::Nothing, "and another one");
    }

    #[test]
    fn a_process_goes_on_with_the_day_of_the_meter_where_that_is_today() {
        let mut board = Board::new(Some(0));
        board.today.number -= 1;
        assert_eq!(board.at(12 * HOUR, 0), PutOff::Nothing);
        let of = |number: i64, status_bytes: u64| {
            let mut budget = Budget::default();
            let mut today = Day { number: MIDNIGHT / 86_400 + number, seconds: 12 * HOUR, ..Day::default() };
            today.of(Purpose::Status).unwrap().bytes = status_bytes;
            let stamp = Some(Wall::from_unix_seconds(MIDNIGHT + 12 * 3600));
            budget.counted(&today, 0, &settings(), stamp, Up::since_boot(Duration::from_secs(9)));
            budget.put_off()
        };
        assert_eq!(of(0, 10_000_000 + 1_500_000), PutOff::Changes);
        assert_eq!(of(-1, 10_000_000 + 1_500_000), PutOff::Nothing, "that was yesterday");
    }

    #[test]
    fn without_a_clock_a_day_has_24_hours_and_the_first_time_that_is_known_makes_it_todays() {
        let mut board = Board::new(None);
        assert_eq!(board.at(HOUR, 10_100_000), PutOff::Changes);
        assert_eq!(board.at(24 * HOUR - 1, 10_100_000), PutOff::Changes);
        assert_eq!(board.at(24 * HOUR, 10_100_000), PutOff::Nothing, "with what the meter had counted before it");
        let mut board = Board::new(None);
        assert_eq!(board.at(HOUR, 10_100_000), PutOff::Changes);
        // Two hours later it is eleven at night, and what was counted without a date is of today.
        board.ahead_seconds = Some(21 * 3600);
        assert_eq!(board.at(2 * HOUR, 10_100_000), PutOff::Nothing, "renewals of an hour are all that is to come");
        assert_eq!(board.at(3 * HOUR - 1, 12_900_000), PutOff::Changes);
        assert_eq!(board.at(3 * HOUR, 12_900_000), PutOff::Nothing, "midnight");
    }

    #[test]
    fn a_clock_that_is_set_neither_ends_a_day_nor_makes_one_longer_nor_gives_two_budgets_in_one() {
        for ahead_hours in [400 * 24, -400 * 24, 13, -13, 1, -1] {
            let mut board = Board::new(Some(0));
            assert_eq!(board.at(HOUR, 10_100_000), PutOff::Changes);
            board.ahead_seconds = Some(ahead_hours * 3600);
            board.today.number += ahead_hours / 24;
            assert_eq!(board.at(2 * HOUR, 10_100_000), PutOff::Changes, "{ahead_hours}");
            assert_eq!(board.at(24 * HOUR - 1, 10_100_000), PutOff::Changes, "{ahead_hours}");
            assert_eq!(board.at(24 * HOUR, 10_100_000), PutOff::Nothing, "{ahead_hours}: a day is over after a day");
            // The rest of the day by the new clock, and that part of the budget.
            let rest = u64::try_from((-ahead_hours).rem_euclid(24)).unwrap();
            let rest = if rest == 0 { 24 } else { rest };
            let part = 10_000_000 * rest / 24;
            assert_eq!(board.at(24 * HOUR, 10_100_000 + part / 8), PutOff::Nothing, "{ahead_hours}");
            assert_eq!(board.at(24 * HOUR + 60, 10_100_000 + part + 20_000), PutOff::Changes, "{ahead_hours}");
            assert_eq!(board.at((24 + rest) * HOUR - 1, 10_100_000 + part + 20_000), PutOff::Changes, "{ahead_hours}");
            assert_eq!(board.at((24 + rest) * HOUR, 10_100_000 + part + 20_000), PutOff::Nothing, "{ahead_hours}");
        }
    }

    #[test]
    fn a_clock_that_is_a_little_late_at_midnight_makes_no_day_of_some_seconds() {
        let mut board = Board::new(Some(0));
        board.at(HOUR, 0);
        board.ahead_seconds = Some(-5);
        assert_eq!(board.at(24 * HOUR - 1, 0), PutOff::Nothing);
        assert_eq!(board.at(24 * HOUR, 0), PutOff::Nothing);
        assert_eq!(board.at(24 * HOUR + 10, 100_000), PutOff::Nothing);
        assert_eq!(board.budget.day.as_ref().map(|day| day.length), Some(DAY));
    }

    #[test]
    fn renewals_are_reckoned_with_as_they_are() {
        let mut budget = Budget::default();
        let mut counted = |lease_bytes: u64, settings: &Settings| {
            let mut today = Day { number: MIDNIGHT / 86_400, ..Day::default() };
            *today.of(Purpose::Lease).unwrap() = crate::api::traffic::Sum { count: 100, bytes: lease_bytes };
            *today.of(Purpose::Handshake).unwrap() = crate::api::traffic::Sum { count: 100, bytes: 400_000 };
            let now = Up::since_boot(Duration::from_secs(9));
            budget.counted(&today, 0, settings, Some(Wall::from_unix_seconds(MIDNIGHT)), now);
            budget.renewal_bytes
        };
        assert_eq!(counted(51_300, &settings()), 513);
        let rarely = Settings { node_lease_duration_seconds: 400, ..settings() };
        assert_eq!(counted(51_300, &rarely), 4513, "each with its connection");
        // A budget that renewals alone use up.
        assert_eq!(counted(200_000, &settings()), 2000);
        assert_eq!(budget.put_off(), PutOff::Changes);
    }
}
