//! Turns the records that wait into what is told of them, one after the other, and decides how soon.
//!
//! ```text
//! Live --an outage is recorded--> Held --a server is reached--> Paced --nothing waits--> Live
//!   ^                              ^ ^                            |
//!   |     an earlier process -----'  '---- another outage -------'
//!   '-- first start
//! ```
//!
//! Live, what happens is told at once. After an outage a fleet comes back at the same moment, so what waited comes later
//! and slowly, and never beside a heartbeat. The first that waits is told next, and only what the server has accepted stops
//! waiting: whatever ends the telling, it goes on where it was.

use std::time::Duration;

use super::records::{RecordTime, Records};
use crate::journal::record::times;
use crate::journal::{Happened, Record, Sequence, Status};
use crate::node::NodeEvent;
use crate::node::event::{Event, digest};
use crate::node::leaving;
use crate::node::report::last_outage;
use crate::node::rules::{self, COUNT};
use crate::probe::kernel_reason;
use crate::time::{InWords, Up, Wall};

#[derive(Debug)]
pub(super) struct Replay {
    pace: Pace,
    /// A server that is back gets nothing but heartbeats until then.
    quiet_until: Up,
    /// Where in the fleet this board has its turn.
    fleet_offset: Duration,
    /// The end of an outage whose event was accepted, or refused for good, and whose annotation is still owed.
    summary: Option<Sequence>,
    /// Changes of conditions whose events were, and which no report that was accepted has said yet: what a process after this
    /// one would take for new.
    unreported: heapless::Vec<Sequence, COUNT>,
}

/// The records of changes that no report that was accepted has said yet.
pub(super) type Unreported = [Option<Sequence>; COUNT];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Live,
    Held,
    Paced { not_before: Up },
}

/// A server that is back is left in peace for so long.
const QUIET: Duration = Duration::from_secs(10);
/// The turns of a fleet are spread over this.
const SPREAD: Duration = Duration::from_secs(10);
/// At most one request in this time.
const SPACING: Duration = Duration::from_secs(1);

impl Replay {
    pub(super) fn new(records: &Records, node_name: &str) -> Replay {
        let pace = if records.pending().next().is_some() { Pace::Held } else { Pace::Live };
        let fleet_offset = fleet_offset(node_name, SPREAD);
        Replay { pace, quiet_until: Up::BOOT, fleet_offset, summary: None, unreported: heapless::Vec::new() }
    }

    pub(super) fn is_live(&self) -> bool {
        self.pace == Pace::Live
    }

    /// An outage is recorded.
    pub(super) fn wait_for_server(&mut self) {
        self.pace = Pace::Held;
    }

    /// A server is reached. `was_lost`: after none was, however short that was and whether it is recorded or not.
    pub(super) fn resume(&mut self, records: &Records, was_lost: bool, now: Up) {
        if was_lost || self.pace == Pace::Held {
            self.keep_quiet(now);
        }
        if self.pace == Pace::Held {
            self.pace = Pace::Paced { not_before: self.quiet_until };
            self.look_for_end(records);
        }
    }

    /// What makes the Node Ready again comes first, and alone.
    pub(super) fn keep_quiet(&mut self, now: Up) {
        self.quiet_until = now + QUIET + self.fleet_offset;
    }

    /// Until when not even an event without a record is sent.
    pub(super) fn quiet_until(&self) -> Up {
        self.quiet_until
    }

    /// From when on the next record may be told; `None`: not before a server is reached.
    pub(super) fn may_tell_at(&self) -> Option<Up> {
        match self.pace {
            Pace::Live => Some(self.quiet_until),
            Pace::Held => None,
            Pace::Paced { not_before } => Some(not_before.max(self.quiet_until)),
        }
    }

    /// Something of what waits is being told.
    pub(super) fn telling(&mut self, now: Up) {
        if let Pace::Paced { not_before } = &mut self.pace {
            *not_before = now + SPACING;
        }
    }

    /// The record to tell next: the first that waits and has something to tell.
    pub(super) fn next<'a>(&self, records: &'a Records) -> Option<&'a Record> {
        let is_next = |record: &&Record| record.what.is_told() && !self.unreported.contains(&record.sequence);
        records.waiting().find(is_next).filter(|record| self.summary != Some(record.sequence))
    }

    /// The end of the outage whose annotation is owed.
    pub(super) fn owed_summary<'a>(&self, records: &'a Records) -> Option<&'a Record> {
        records.waiting().find(|record| self.summary == Some(record.sequence))
    }

    /// What was told of this record was accepted, or refused for good.
    pub(super) fn told(&mut self, sequence: Sequence, unreported: &Unreported, records: &mut Records) {
        let is_end = |record: &Record| matches!(record.what, Happened::OutageEnded { .. });
        if records.waiting().any(|record| record.sequence == sequence && is_end(record)) {
            self.summary = Some(sequence);
        } else if !unreported.contains(&Some(sequence)) || self.unreported.push(sequence).is_err() {
            records.forget(sequence);
        } else {
            records.keep_told();
        }
        self.look_for_end(records);
    }

    /// What has been reported by now need not be remembered for that.
    pub(super) fn forget_reported(&mut self, unreported: &Unreported, records: &mut Records) {
        self.unreported.retain(|sequence| {
            let is_unreported = unreported.contains(&Some(*sequence));
            if !is_unreported {
                records.forget(*sequence);
            }
            is_unreported
        });
    }

    /// The annotation was accepted, or refused for good: nothing is left to tell of this outage.
    pub(super) fn summary_is_done(&mut self, records: &mut Records) {
        let Some(end) = self.summary.take() else { return };
        let earlier = records.waiting().take_while(|record| record.sequence < end);
        let beginnings = earlier.filter(|record| matches!(record.what, Happened::OutageBegan { .. }));
        let beginnings: Vec<Sequence> = beginnings.map(|record| record.sequence).collect();
        beginnings.into_iter().chain([end]).for_each(|sequence| records.forget(sequence));
        self.look_for_end(records);
    }

    fn look_for_end(&mut self, records: &Records) {
        if self.summary.is_none() && self.next(records).is_none() && matches!(self.pace, Pace::Paced { .. }) {
            self.pace = Pace::Live;
        }
    }
}

/// A moment of `span` that is always the same for this Node, and spread over all of it for many.
pub(super) fn fleet_offset(node_name: &str, span: Duration) -> Duration {
    let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(digest(node_name.as_bytes()) % span_ms)
}

/// What is told of a record. Its name is the same each time, so that one that the server has already is not told twice.
pub(super) fn event_of(record: &Record, node: &str, uid: &str, records: &Records, stamp: Wall, now: Up) -> Event {
    let mut what = telling(record, node, records, stamp, now);
    let at = match records.time_of(record, stamp, now) {
        RecordTime::At(wall) => wall,
        RecordTime::NotBefore(wall) => {
            what.message.push_str(" (the board had no clock then, so its time is not known)");
            wall
        }
    };
    // A board boots once in each boot, however often its disk forgets that it was told.
    let sequence = if let Happened::BoardRebooted { .. } = record.what { 0 } else { record.sequence.0 };
    let number = digest(&[record.at.boot.0.to_be_bytes().as_slice(), sequence.to_be_bytes().as_slice()].concat());
    Event::new(node, uid, &what, at, number)
}

fn telling(record: &Record, node: &str, records: &Records, stamp: Wall, now: Up) -> NodeEvent {
    let event = |warning, reason, message| NodeEvent { warning, reason, message };
    match &record.what {
        Happened::ConditionChanged { condition, to, .. } => told_of_change(node, condition, *to),
        Happened::Leaving { .. } => leaving::event(),
        Happened::ProcessStarted => event(false, "Starting", "Starting nodepulse.".to_owned()),
        Happened::BoardRebooted { .. } => {
            event(true, "Rebooted", format!("Node {node} has been rebooted, boot id: {}", record.at.boot))
        }
        Happened::OutageEnded { cause, changes, dropped } => {
            let from = began(record, records).and_then(|began| records.wall_of(began.at, stamp, now));
            let to = records.wall_of(record.at, stamp, now);
            let spent =
                from.zip(to).map(|(from, to)| format!(" after {}", InWords(to.since(from)))).unwrap_or_default();
            let message = format!(
                "Node {node} reached the API server again{spent}: {cause}; {changes} changes of conditions meanwhile, {dropped} records dropped"
            );
            event(false, "UplinkRestored", message)
        }
        Happened::Dropped { count } => {
            let message = format!("{count} records of Node {node} were dropped to make room for others");
            event(true, "RecordsDropped", message)
        }
        Happened::Trouble { reason, text, count } => told_of_trouble(trouble_reason(reason), text, *count),
        // None of these is told.
        Happened::OutageBegan { cause } => event(false, "UplinkLost", cause.to_string()),
        Happened::ClockSet { wall } => event(false, "ClockSet", wall.to_string()),
        Happened::AbsenceAnnounced { reason, .. } => event(false, "AbsenceAnnounced", reason.to_string()),
        Happened::ProcessRuns { .. } | Happened::KernelRead { .. } => event(false, "ProcessRuns", String::new()),
    }
}

fn told_of_change(node: &str, kind: &str, to: Status) -> NodeEvent {
    if rules::is_own(kind) {
        return rules::transition(node, kind, to);
    }
    let message = format!("Node {node} condition {kind} is now: {to:?}");
    NodeEvent { warning: false, reason: "NodeConditionChanged", message }
}

/// Of a record of before.
fn trouble_reason(reason: &str) -> &'static str {
    rules::warning(reason).unwrap_or(kernel_reason(reason))
}

pub(super) fn told_of_trouble(reason: &'static str, text: &str, count: u64) -> NodeEvent {
    NodeEvent { warning: true, reason, message: format!("{text}{}", times(count)) }
}

/// The beginning of the outage that `end` ended.
fn began<'a>(end: &Record, records: &'a Records) -> Option<&'a Record> {
    let earlier = records.waiting().take_while(|record| record.sequence < end.sequence);
    earlier.filter(|record| matches!(record.what, Happened::OutageBegan { .. })).last()
}

/// The annotation that sums up the outage that `end` ended.
pub(super) fn summary_of(end: &Record, records: &Records, stamp: Wall, now: Up) -> Option<String> {
    let Happened::OutageEnded { cause, changes, dropped } = &end.what else { return None };
    let wall_of = |record: &Record| records.wall_of(record.at, stamp, now);
    let (from, to) = (began(end, records).and_then(wall_of), wall_of(end));
    Some(last_outage(from, to, cause, *changes, *dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_a_fleet_are_spread_and_always_the_same() {
        let offsets: Vec<Duration> = (0..1000).map(|board| fleet_offset(&format!("board-{board}"), SPREAD)).collect();
        for second in 0..10 {
            let (from, to) = (Duration::from_secs(second), Duration::from_secs(second + 1));
            let boards = offsets.iter().filter(|offset| (from..to).contains(*offset)).count();
            assert!((60..140).contains(&boards), "{boards} boards in second {second}");
        }
        assert_eq!(fleet_offset("board-1", SPREAD), offsets[1]);
        assert_eq!(fleet_offset("board-1", Duration::ZERO), Duration::ZERO);
    }
}
