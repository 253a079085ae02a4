//! Turns a full journal into the record that is needed least.
//!
//! A person who reads the story of an outage wants to know how each condition was before, how it is now, and how often the
//! link and the board failed. So what goes first is what lies between the first and the last record of its series: changes
//! of conditions and starts of the process before outages and reboots, the oldest first.

use super::record::{Happened, Record};

/// The place in `records`, which are in order, of the one to give up; `None` without records.
pub fn least_needed<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Option<usize> {
    let find = |is_wanted: &dyn Fn(&Record) -> bool| {
        let mut middles = records.clone().enumerate().filter(|(_, record)| is_wanted(record));
        middles.find(|(place, record)| is_middle(records.clone(), *place, record)).map(|(place, _)| place)
    };
    find(&|record| !is_kept_longer(&record.what))
        .or_else(|| find(&|record| is_kept_longer(&record.what)))
        .or_else(|| records.clone().position(|record| !is_kept_longer(&record.what)))
        .or_else(|| records.clone().position(|record| !matches!(record.what, Happened::Dropped { .. })))
        .or_else(|| records.clone().next().map(|_| 0))
}

fn is_kept_longer(what: &Happened) -> bool {
    match what {
        Happened::ConditionChanged { .. } | Happened::ProcessStarted | Happened::ClockSet { .. } => false,
        Happened::OutageBegan { .. }
        | Happened::OutageEnded { .. }
        | Happened::BoardRebooted { .. }
        | Happened::Dropped { .. } => true,
    }
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
        (Happened::ClockSet { .. }, Happened::ClockSet { .. }) => one.at.boot == other.at.boot,
        (Happened::ProcessStarted, Happened::ProcessStarted)
        | (Happened::OutageBegan { .. }, Happened::OutageBegan { .. })
        | (Happened::OutageEnded { .. }, Happened::OutageEnded { .. })
        | (Happened::BoardRebooted { .. }, Happened::BoardRebooted { .. }) => true,
        _ => false,
    }
}
