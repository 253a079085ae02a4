//! Turns what a board's sensors say, look after look, into conditions that hold: each is set and cleared by the times of its
//! row in [`super::rules`], and changes once a minute at most.

use std::time::Duration;

pub(super) mod looks;

use super::judgement::Judgement;
use super::object::Status;
use crate::config::Settings;
use crate::config::limits::{CONDITION_CHANGE_PERIOD, JUDGEMENT_KEPT};
use crate::probe::facts::Trouble;
use crate::probe::{Absent, Facts};
use crate::time::Up;

/// One look at what a condition is judged from.
pub(super) type Look = for<'a> fn(&'a Facts, &Settings) -> Seen<'a>;

/// How a condition of the board is judged.
pub(super) struct Gauge {
    pub(super) look: Look,
    /// How long it has to be bad without a break before the condition is True.
    pub(super) set_after: Duration,
    /// How long nothing bad may be seen before it is False again; after a start as well, when nobody knows what was seen last.
    pub(super) clear_after: Duration,
    pub(super) warns: Warns,
}

/// What is worth a warning of its own, beside the change of the condition.
pub(super) enum Warns {
    Never,
    /// Each time that it comes to this reason, which may be while it is True.
    OfReason {
        reason: &'static str,
        event: &'static str,
    },
    /// When it was set so often in a day; then it is counted anew. And the message says how often it was set since the start.
    InADay {
        times: usize,
        event: &'static str,
    },
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// What one look says.
pub(in crate::node) enum Seen<'a> {
    /// The board has nothing to tell it from.
    Nothing,
    Unread(&'a Absent),
    Well,
    /// Neither bad enough to begin nor well enough to end.
    Between,
    Bad(Bad),
}

#[derive(Default)]
pub(in crate::node) struct Bad {
    /// What exactly, for people.
    pub(super) detail: Option<String>,
    /// In place of the one in the table, for what is worse: a condition that has it keeps it until it is False.
    pub(super) worse: Option<Worse>,
}

#[derive(Clone, Copy)]
pub(in crate::node) struct Worse {
    pub(super) reason: &'static str,
    /// In place of the table's time.
    pub(super) set_after: Duration,
}

/// What has to be remembered of one condition from one look to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HeldCondition {
    /// `None`: nobody can say yet.
    status: Option<Status>,
    /// What was seen when it came to this status.
    detail: Option<String>,
    reason: Option<&'static str>,
    changed_at: Option<Up>,
    /// What the last look saw, and since when every look did.
    last: Option<(Last, Up)>,
    /// There has been nothing to tell it from for long enough.
    is_missing: bool,
    /// When it was set, as far as that counts for a warning.
    set_at: Vec<Up>,
    /// How often it was, where that is counted.
    times_set: u32,
    /// The last warning, and how many there were.
    warning: Option<Trouble>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Unread,
    Well,
    Between,
    Bad,
}

/// Said of a condition that the Node has from before.
const MISSING: &str = "the board has nothing to tell that from any more";

impl HeldCondition {
    pub(super) fn observe(&mut self, seen: Seen, gauge: &Gauge, up: Up) {
        let (last, status, needed, bad) = match seen {
            Seen::Nothing => (Last::Nothing, None, JUDGEMENT_KEPT, Bad::default()),
            Seen::Unread(absent) => {
                let detail = Some(absent.to_string());
                (Last::Unread, Some(Status::Unknown), JUDGEMENT_KEPT, Bad { detail, worse: None })
            }
            Seen::Well => (Last::Well, Some(Status::False), gauge.clear_after, Bad::default()),
            Seen::Between => (Last::Between, None, Duration::ZERO, Bad::default()),
            Seen::Bad(bad) => {
                let needed = bad.worse.map_or(gauge.set_after, |worse| worse.set_after);
                (Last::Bad, Some(Status::True), needed, bad)
            }
        };
        let reason = bad.worse.map(|worse| worse.reason);
        let since = self.last.filter(|(before, _)| *before == last).map_or(up, |(_, since)| since);
        self.last = Some((last, since));
        let has_lasted = up - since >= needed;
        self.is_missing = last == Last::Nothing && has_lasted;
        let may_change = self.changed_at.is_none_or(|at| up - at >= CONDITION_CHANGE_PERIOD);
        let is_news = status != self.status || reason.is_some() && reason != self.reason;
        if status.is_some() && is_news && has_lasted && may_change {
            (self.status, self.detail, self.reason, self.changed_at) = (status, bad.detail, reason, Some(up));
            if status == Some(Status::True) {
                self.warn(&gauge.warns, up);
            }
        }
    }

    fn warn(&mut self, warns: &Warns, up: Up) {
        let (event, text) = match *warns {
            Warns::OfReason { reason, event } if self.reason == Some(reason) => (event, self.detail.clone()),
            Warns::InADay { times, event } => {
                self.times_set += 1;
                self.detail = how_often(self.times_set);
                self.set_at.retain(|set_at| up - *set_at < DAY);
                self.set_at.push(up);
                if self.set_at.len() < times {
                    return;
                }
                self.set_at.clear();
                (event, Some(format!("{times} times in 24 hours")))
            }
            _ => return,
        };
        let count = self.warning.as_ref().map_or(0, |before| before.count) + 1;
        let place = u64::try_from(up.as_duration().as_micros()).unwrap_or(u64::MAX);
        self.warning = Some(Trouble { reason: event, count, place, at: up, text: text.unwrap_or_default() });
    }

    /// The last of its kind.
    pub(super) fn warning(&self) -> Option<&Trouble> {
        self.warning.as_ref()
    }

    /// `is_stored`: the server's Node has it. `text`: of the table, by status.
    pub(super) fn judgement(&self, is_stored: bool, text: impl Fn(Status) -> &'static str) -> Judgement {
        let with = |status, detail: &str| Some(format!("{}: {detail}", text(status)));
        let (status, message, is_sure) = match (self.status, self.last) {
            (Some(status), _) => (status, self.detail.as_deref().and_then(|detail| with(status, detail)), true),
            (None, Some((Last::Well | Last::Between | Last::Bad, _))) => (Status::False, None, false),
            (None, _) if is_stored && self.is_missing => (Status::Unknown, with(Status::Unknown, MISSING), true),
            (None, _) => (Status::Unknown, None, false),
        };
        Judgement { status, message, reason: self.reason, is_sure }
    }
}

/// In words that change twice at most: each other message is a report more.
fn how_often(times: u32) -> Option<String> {
    let words = match times {
        0 | 1 => return None,
        2..=9 => "2 to 9 times",
        _ => "10 times or more",
    };
    Some(format!("{words} since the agent started"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAUGE: Gauge = Gauge {
        look: |_, _| Seen::Nothing,
        set_after: Duration::from_secs(30),
        clear_after: Duration::from_secs(120),
        warns: Warns::Never,
    };

    /// One condition, looked at every ten seconds.
    struct Bench {
        gauge: Gauge,
        held: HeldCondition,
        seconds: u64,
    }

    impl Default for Bench {
        fn default() -> Bench {
            Bench { gauge: GAUGE, held: HeldCondition::default(), seconds: 0 }
        }
    }

    impl Bench {
        /// So many looks that all see that. Answers the status after the last one, and whether it is sure.
        fn looks(&mut self, count: u64, seen: impl Fn() -> Seen<'static>) -> (Status, bool) {
            for _ in 0..count {
                self.held.observe(seen(), &self.gauge, Up::since_boot(Duration::from_secs(self.seconds)));
                self.seconds += 10;
            }
            let judged = self.held.judgement(false, |_| "text");
            (judged.status, judged.is_sure)
        }
    }

    const NEAR_CRITICAL: Worse = Worse { reason: "NearCriticalTrip", set_after: Duration::from_secs(10) };

    fn bad() -> Seen<'static> {
        Seen::Bad(Bad { detail: Some("so".to_owned()), worse: None })
    }

    fn unread() -> Seen<'static> {
        static ABSENT: std::sync::LazyLock<Absent> =
            std::sync::LazyLock::new(|| Absent::new("/sys/x", crate::probe::Why::Errno(5)));
        Seen::Unread(&ABSENT)
    }

    #[test]
    fn a_condition_of_the_board_is_set_and_cleared_by_the_times_of_its_row() {
        let mut bench = Bench::default();
        assert_eq!(bench.looks(1, || Seen::Well), (Status::False, false), "after a start nobody knows what was before");
        assert_eq!(bench.looks(12, || Seen::Well), (Status::False, true));
        assert_eq!(bench.looks(3, bad), (Status::False, true), "for 20 s");
        assert_eq!(bench.looks(1, || Seen::Well), (Status::False, true), "a break");
        assert_eq!(bench.looks(3, bad), (Status::False, true), "begins anew");
        assert_eq!(bench.looks(1, bad), (Status::True, true));
        assert_eq!(bench.held.judgement(true, |_| "text").message.as_deref(), Some("text: so"));
        assert_eq!(bench.looks(12, || Seen::Well), (Status::True, true), "for 110 s");
        bench.looks(1, bad);
        assert_eq!(bench.looks(12, || Seen::Well), (Status::True, true), "begins anew");
        assert_eq!(bench.looks(1, || Seen::Well), (Status::False, true));
        assert_eq!(bench.held.judgement(true, |_| "text").message, None);
    }

    #[test]
    fn a_sensor_that_stopped_to_answer_makes_it_unknown_after_a_minute_and_a_board_without_one_has_nothing_to_say() {
        let mut bench = Bench::default();
        bench.looks(13, || Seen::Well);
        for _ in 0..20 {
            bench.looks(6, unread);
            assert_eq!(bench.looks(1, || Seen::Well), (Status::False, true), "it answers now and then");
        }
        assert_eq!(bench.looks(6, unread), (Status::False, true), "for 50 s");
        assert_eq!(bench.looks(1, unread), (Status::Unknown, true));
        let message = bench.held.judgement(true, |_| "text").message.unwrap();
        assert!(message.starts_with("text: /sys/x: read failed"), "{message}");
        assert_eq!(bench.looks(20, || Seen::Nothing), (Status::Unknown, true), "it is not there any more");
        assert_eq!(bench.looks(13, || Seen::Well), (Status::False, true));

        let mut without = Bench::default();
        assert_eq!(without.looks(20, || Seen::Nothing), (Status::Unknown, false));
        let judged = without.held.judgement(true, |_| "text");
        let message = Some("text: the board has nothing to tell that from any more".to_owned());
        assert_eq!(
            judged,
            Judgement { status: Status::Unknown, message, reason: None, is_sure: true },
            "where the Node has it"
        );
    }

    #[test]
    fn a_condition_of_the_board_changes_once_a_minute_at_most() {
        let at_once = Gauge { set_after: Duration::ZERO, clear_after: Duration::ZERO, ..GAUGE };
        let (mut held, mut changes, mut before) = (HeldCondition::default(), 0, None);
        for second in 0..3600 {
            let seen = if second % 2 == 0 { bad() } else { Seen::Well };
            held.observe(seen, &at_once, Up::since_boot(Duration::from_secs(second)));
            changes += u32::from(held.status != before);
            before = held.status;
        }
        assert!((50..=60).contains(&changes), "{changes}");
    }

    #[test]
    fn what_is_worse_is_told_sooner_and_stays_the_reason_until_it_is_over() {
        let mut bench = Bench::default();
        let worse = || Seen::Bad(Bad { detail: Some("worse".to_owned()), worse: Some(NEAR_CRITICAL) });
        let reason = |bench: &Bench| bench.held.judgement(true, |_| "text").reason;
        assert_eq!(bench.looks(1, worse), (Status::False, false), "of one look");
        assert_eq!(bench.looks(1, worse), (Status::True, true));
        assert_eq!(reason(&bench), Some("NearCriticalTrip"));
        bench.looks(10, bad);
        assert_eq!(reason(&bench), Some("NearCriticalTrip"));
        assert_eq!(bench.looks(30, || Seen::Between), (Status::True, true), "neither bad nor well");
        assert_eq!(bench.looks(13, || Seen::Well), (Status::False, true));
        assert_eq!((reason(&bench), bench.looks(4, bad)), (None, (Status::False, true)), "it has just changed");
        bench.looks(10, bad);
        assert_eq!((reason(&bench), bench.looks(10, worse)), (None, (Status::True, true)));
        assert_eq!(reason(&bench), Some("NearCriticalTrip"));
        let message = bench.held.judgement(true, |_| "text").message;
        assert_eq!(message.as_deref(), Some("text: worse"));
    }

    /// What a gauge with such warnings told in this bench: how many, and the last one's text.
    fn warned(bench: &Bench) -> Option<(u64, &str)> {
        bench.held.warning().map(|warning| (warning.count, warning.text.as_str()))
    }

    #[test]
    fn each_time_that_it_comes_to_the_worst_is_a_warning_also_while_it_is_true() {
        let warns = Warns::OfReason { reason: NEAR_CRITICAL.reason, event: "OverTemperature" };
        let mut bench = Bench { gauge: Gauge { warns, ..GAUGE }, ..Bench::default() };
        let worse = || Seen::Bad(Bad { detail: Some("gpu at 98 °C".to_owned()), worse: Some(NEAR_CRITICAL) });
        bench.looks(20, bad);
        assert_eq!((bench.held.status, warned(&bench)), (Some(Status::True), None));
        bench.looks(20, worse);
        assert_eq!(warned(&bench), Some((1, "gpu at 98 °C")));
        let first = bench.held.warning().unwrap().clone();
        assert_eq!(first.reason, "OverTemperature");
        bench.looks(10, bad);
        assert_eq!(warned(&bench), Some((1, "gpu at 98 °C")), "it keeps the reason until it is over");
        bench.looks(13, || Seen::Well);
        bench.looks(20, worse);
        assert_eq!(warned(&bench), Some((2, "gpu at 98 °C")));
        assert!(bench.held.warning().unwrap().place > first.place);
    }

    #[test]
    fn what_is_counted_says_how_often_it_was_in_words_that_hardly_change() {
        let warns = Warns::InADay { times: 3, event: "PowerSupplyWeak" };
        let mut bench = Bench {
            gauge: Gauge { set_after: Duration::ZERO, clear_after: Duration::ZERO, warns, ..GAUGE },
            ..Bench::default()
        };
        let message = |times| (times > 1).then_some(if times < 10 { "2 to 9 times" } else { "10 times or more" });
        for times in 1..=12 {
            bench.looks(7, || Seen::Bad(Bad::default()));
            let expected = message(times).map(|often| format!("text: {often} since the agent started"));
            assert_eq!(bench.held.judgement(true, |_| "text").message, expected, "{times}");
            bench.looks(7, || Seen::Well);
        }
    }

    #[test]
    fn what_is_set_three_times_in_a_day_is_a_warning_and_then_counted_anew() {
        let warns = Warns::InADay { times: 3, event: "PowerSupplyWeak" };
        let gauge = Gauge { set_after: Duration::ZERO, clear_after: Duration::ZERO, warns, ..GAUGE };
        let mut bench = Bench { gauge, ..Bench::default() };
        let mut sags = |hours: u64| {
            bench.looks(1, bad);
            assert_eq!(bench.looks(360 * hours - 1, || Seen::Well), (Status::False, true));
            bench.held.warning().map_or(0, |warning| warning.count)
        };
        assert_eq!([sags(13), sags(13), sags(13), sags(13)], [0; 4], "twice a day");
        assert_eq!([sags(1), sags(1)], [0, 1], "with the last but one of before");
        assert_eq!([sags(1), sags(1), sags(1)], [1, 1, 2]);
        assert_eq!(bench.held.warning().unwrap().text, "3 times in 24 hours");
    }
}
