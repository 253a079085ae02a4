//! Turns a full journal into the record that is needed least.
//!
//! A person who reads the story of an outage wants to know how each condition was before, how it is now, and how often the
//! link and the board failed. So what goes first is what lies between the first and the last record of its series: changes
//! of conditions, what the kernel told and starts of the process before outages and reboots, the oldest first.

use super::record::{Happened, Record};

/// The place in `records`, which are in order, of the one to give up; `None` without records.
pub fn least_needed<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Option<usize> {
    // What is missed least comes first.
    let is_of = |kind: u8, place: usize, record: &Record| match kind {
        0 => !is_kept_longer(&record.what) && is_middle(records.clone(), place, record),
        1 => is_middle(records.clone(), place, record),
        2 => !is_kept_longer(&record.what),
        3 => record.what.is_pending() && !matches!(record.what, Happened::Dropped { .. }),
        _ => true,
    };
    (0..5).find_map(|kind| records.clone().enumerate().position(|(place, record)| is_of(kind, place, record)))
}

fn is_kept_longer(what: &Happened) -> bool {
    use Happened::{ClockSet, ConditionChanged, ProcessStarted, Trouble};
    !matches!(what, ConditionChanged { .. } | Trouble { .. } | ProcessStarted | ClockSet { .. })
}

/// Whether the series goes on after it, and began before it. Of what was learned about the clock in one boot only the
/// last counts.
fn is_middle<'a>(records: impl Iterator<Item = &'a Record> + Clone, place: usize, record: &Record) -> bool {
    let is_clock = matches!(record.what, Happened::ClockSet { .. });
    records.clone().skip(place + 1).any(|later| is_of_one_series(record, later))
        && (is_clock || records.take(place).any(|earlier| is_of_one_series(record, earlier)))
}

fn is_of_one_series(one: &Record, other: &Record) -> bool {
    match (&one.what, &other.what) {
        (
            Happened::ConditionChanged { condition: one, .. }, //
            Happened::ConditionChanged { condition: other, .. },
        ) => one == other,
        (Happened::Trouble { reason: one, .. }, Happened::Trouble { reason: other, .. }) => one == other,
        (Happened::ClockSet { .. }, Happened::ClockSet { .. }) => one.at.boot == other.at.boot,
        (Happened::Dropped { .. }, _) => false,
        (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::{BootId, Moment, Sequence, Status, cut};
    use crate::time::{Up, Wall};

    /// A letter for what happened, a digit for the condition or the boot.
    fn record(text: &str) -> Record {
        let (kind, number) = text.split_at(1);
        let what = match kind {
            "C" => {
                let (condition, reason) = (cut(number), cut(""));
                Happened::ConditionChanged { condition, from: Status::True, to: Status::False, reason }
            }
            "S" => Happened::ProcessStarted,
            "A" => Happened::AbsenceAnnounced { until: Wall::from_unix_us(0), reason: cut("") },
            "K" => Happened::ClockSet { wall: Wall::from_unix_us(0) },
            "B" => Happened::OutageBegan { cause: cut("") },
            "E" => Happened::OutageEnded { cause: cut(""), changes: 0, dropped: 0 },
            "R" => Happened::BoardRebooted { old: BootId(0), reason: cut("") },
            _ => Happened::Dropped { count: 1 },
        };
        let at = Moment { boot: BootId(number.parse().unwrap_or(0)), up: Up::BOOT, wall: None };
        Record { sequence: Sequence(1), at, what }
    }

    #[test]
    fn what_is_missed_least_goes_first() {
        for (story, expected) in [
            ("", None),
            ("D", Some(0)),
            ("C1 C1 C1", Some(1)),
            ("S C1 S C2 C1 S", Some(2)),
            // Nobody lies between a first and a last: whatever is not of an outage or a reboot.
            ("C1 C2 C1 C2", Some(0)),
            ("B C1 C1", Some(1)),
            // Changes and starts before outages and reboots, even if only these have a middle.
            ("R R R C1 C1 C1", Some(4)),
            ("R R R C1", Some(1)),
            ("B E B E B", Some(2)),
            // The clock's last word in each boot.
            ("K1 K1", Some(0)),
            ("K1 K2 K2", Some(1)),
            // What was announced holds on.
            ("A R", Some(1)),
            ("A C1 S", Some(1)),
            ("A", Some(0)),
            // What says how many are gone goes last.
            ("D R", Some(1)),
            ("D D B E", Some(2)),
        ] {
            let records: Vec<Record> = story.split_whitespace().map(record).collect();
            assert_eq!(least_needed(records.iter()), expected, "{story}");
        }
    }
}
