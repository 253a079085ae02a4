//! Turns every look at the board into what its conditions truly are, and since when.

use std::collections::BTreeMap;

use super::super::absence::AWAY;
use super::super::board::Board;
use super::super::cut_short::CUT_SHORT;
use super::super::wanted::{Eviction, Signal};
use super::events::BUDGET;
use super::excuse::{Excuse, Excuses};
use super::sensor::{Said, Sensor};
use super::thresholds::Rounds;

/// Stamps have whole seconds, travel, and follow a board's clock that is off by up to ten.
pub const TOLERANCE_US: i64 = 13_000_000;

pub const KINDS: [&str; 5] = ["MemoryPressure", "DiskPressure", "PIDPressure", READONLY, CLOCK];
/// What the lifecycle controller writes, too (NLC-1).
pub const MONITORED: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
/// No kubelet has it: nobody makes it Unknown, and its heartbeat is that of its last change (NPD-1).
pub const READONLY: &str = "ReadonlyFilesystem";
/// Nor has it this one, which a Node lacks before a board could say.
pub const CLOCK: &str = "NTPProblem";
pub const UNDATED: [&str; 2] = [READONLY, CLOCK];
/// No kubelet has these either, and each may begin again before its end was told.
pub const REPEATING: [&str; 3] = [AWAY, BUDGET, CUT_SHORT];
const SIGNALS: [&[Signal]; KINDS.len()] =
    [&[Signal::Memory], &[Signal::Disk, Signal::Inodes], &[Signal::Pids], &[], &[]];

/// What is true of the conditions that change.
#[derive(Debug, Default)]
pub struct Conditions {
    all: [Condition; KINDS.len()],
    /// Since when each was what it is, before a report of ours came late and wrote an earlier time over it: the next report
    /// says so again (seed 94004365).
    overwritten_us: BTreeMap<String, i64>,
}

#[derive(Debug, Default)]
struct Condition {
    status: Option<&'static str>,
    /// What it was before.
    before: Option<&'static str>,
    rounds: Rounds,
    sensor: Sensor,
    /// When it became what it is, by the server's clock.
    since_us: i64,
    /// The same of what it was before: a report that is under way says that (seed 75028853).
    before_since_us: i64,
    /// When somebody else first wrote it after that, or made the Node anew: it may have any later time.
    touched_us: Option<i64>,
    /// The present process has not judged it yet, as one before it has.
    is_first_look: bool,
    has_judged: bool,
    /// What the Node said of it last when this process read it.
    read: Option<String>,
    transitions: u64,
    /// Nobody is sure of it: what it turns out to be is no change, and the first report of that gives it a time (seed 400778013).
    is_guess: bool,
    /// Since a clock that was wrong in a boot that is over, or in a process that died before that was on disk.
    is_unknowable: bool,
    was_dated: bool,
    /// So was the change before it.
    before_was_dated: bool,
    /// A first look found it so, which is no record, or the disk has lost that.
    is_unrecorded: bool,
    /// So was what it was before: of the record that it is over, the next process cannot tell whether the server was told of
    /// the beginning (seeds 98143123, 98390740).
    before_is_unrecorded: bool,
    /// The disk lost it, and this process has not read the Node yet, which says it.
    rests_on_node: bool,
    /// The same, but for the reading: beside an older record, the first look of this process took it for a change of that
    /// moment, and the record of it is what the next process finds.
    is_recorded_late: bool,
}

/// Where a process that starts finds the last transition of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    OnDisk,
    OnNode,
    Nowhere,
}

/// When a look happens.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now_us: u64,
    pub server_us: i64,
    /// The board's clock is right, or the agent has heard what is right.
    pub is_dated: bool,
    /// A wrong clock and a wrong answer agreed: the process has no other time (seed 400470324).
    pub was_deceived: bool,
}

/// A condition that a look found to be another, or a first look as an earlier process had left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub kind: &'static str,
    pub status: &'static str,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// What was before was found by the same process.
    Changed,
    /// What was before, this process is yet to learn.
    Otherwise,
    /// Nothing has changed since an earlier process looked, of which this one may know nothing.
    Again,
    /// Nobody could say before what it was.
    First,
    /// There is nothing any more to tell it from.
    Gone,
}

impl Conditions {
    /// The agent is told of this board.
    pub fn look(&mut self, board: &Board, eviction: &Eviction, at: Moment) -> Vec<Seen> {
        let mut seen = Vec::new();
        for ((kind, signals), condition) in KINDS.into_iter().zip(SIGNALS).zip(&mut self.all) {
            let (is_first_look, was_known) = (condition.is_first_look, condition.status.is_some());
            let said = match kind {
                READONLY => Said::Surely(if board.made_read_only { "True" } else { "False" }),
                CLOCK => condition.sensor.look(board, at.now_us),
                _ => condition.rounds.look(signals, board, eviction, at.now_us).map_or(Said::Nothing, Said::Surely),
            };
            let status = match said {
                Said::Surely(status) => status,
                // The Node has that until it is sure.
                Said::Perhaps(status) if condition.status.is_none() => {
                    condition.becomes(status, at);
                    (condition.is_first_look, condition.has_judged, condition.is_guess) = (true, false, true);
                    seen.push(Seen { kind, status, how: How::First });
                    continue;
                }
                Said::Gone if condition.status.is_some() => {
                    // From when on is its own affair: who has read the Node says so, also where one before it did that nobody heard
                    // of (seed 400635438).
                    condition.becomes("Unknown", at);
                    (condition.is_first_look, condition.has_judged, condition.is_unknowable) = (true, false, true);
                    seen.push(Seen { kind, status: "Unknown", how: How::Gone });
                    continue;
                }
                Said::Perhaps(_) | Said::Nothing | Said::Gone => continue,
            };
            let how = match (condition.becomes(status, at), is_first_look) {
                (true, false) => How::Changed,
                (true, true) => How::Otherwise,
                (false, true) => How::Again,
                (false, false) if !was_known => How::First,
                (false, false) => continue,
            };
            seen.push(Seen { kind, status, how });
        }
        seen
    }

    /// `remains`: where the change of a condition to this status is still found, made at that moment of the server's clock.
    pub fn process_ended(&mut self, reboot: bool, remains: impl Fn(&str, i64, &str) -> Remains) {
        for (kind, condition) in KINDS.into_iter().zip(&mut self.all) {
            condition.rounds = Rounds::default();
            condition.sensor = Sensor::default();
            condition.is_first_look = true;
            condition.has_judged = false;
            condition.read = None;
            let word = condition.status.unwrap_or_default();
            let remains =
                if condition.transitions == 0 { Remains::OnDisk } else { remains(kind, condition.since_us, word) };
            let is_half_recorded = remains == Remains::OnDisk && condition.before_is_unrecorded;
            condition.is_unrecorded |= remains == Remains::Nowhere;
            let is_lost = remains == Remains::Nowhere || condition.rests_on_node || condition.is_recorded_late;
            // A record that is older than what the Node says may seem newer by its clock (seed 76969749).
            let is_outdone = remains == Remains::OnNode && condition.transitions > 1 && !condition.before_was_dated;
            condition.is_unknowable |= is_lost || is_half_recorded || reboot && (is_outdone || !condition.was_dated);
            condition.rests_on_node = remains == Remains::OnNode;
            condition.is_recorded_late = condition.rests_on_node;
        }
    }

    /// Somebody wrote the Node's conditions, or made or removed the Node.
    pub fn touched(&mut self, server_us: i64) {
        for condition in &mut self.all {
            condition.touched_us.get_or_insert(server_us);
            condition.is_unknowable |= condition.rests_on_node;
        }
    }

    /// Whoever asked for a Node that was made late may have known no more than its own first look, which was after the change.
    pub fn made_late(&mut self, stored_us: [Option<i64>; KINDS.len()]) {
        for (condition, stored_us) in self.all.iter_mut().zip(stored_us) {
            if let Some(stored_us) = stored_us.filter(|stored_us| *stored_us > condition.since_us) {
                condition.touched_us = Some(condition.touched_us.map_or(stored_us, |touched| touched.min(stored_us)));
            }
        }
    }

    /// The Node says already that it is so, of whatever time.
    pub fn was_said(&mut self, kind: &str) {
        let known = KINDS.into_iter().zip(&mut self.all).find(|(known, _)| *known == kind);
        known.into_iter().for_each(|(_, condition)| condition.is_unknowable = true);
    }

    /// A report that came late wrote another time than this over the condition.
    pub fn overwritten(&mut self, kind: &str, since_us: i64) {
        self.overwritten_us.entry(kind.to_owned()).or_insert(since_us);
    }

    /// Whether this is the time that such a report wrote over.
    pub fn is_given_back(&self, kind: &str, since_us: i64) -> bool {
        self.overwritten_us.get(kind) == Some(&since_us)
    }

    /// A Node is made while no two have said the same time: what it says of the past may be of any day (seed 8332).
    pub fn made_undated(&mut self) {
        for condition in &mut self.all {
            condition.is_unknowable = true;
        }
    }

    /// The agent is told what the server has: the status of each condition.
    pub fn node_read(&mut self, statuses: [Option<String>; KINDS.len()]) {
        for (condition, status) in self.all.iter_mut().zip(statuses) {
            condition.rests_on_node = false;
            condition.read = status.filter(|word| ["True", "False"].contains(&word.as_str())).or(condition.read.take());
        }
    }

    /// What the Node said when this process read it.
    pub fn read(&self, kind: &str) -> Option<&str> {
        let place = KINDS.iter().position(|known| *known == kind)?;
        self.all[place].read.as_deref()
    }

    /// The present process has found out nothing about it.
    pub fn is_unread(&self, kind: &str) -> bool {
        KINDS.iter().position(|known| *known == kind).is_some_and(|place| !self.all[place].has_judged)
    }

    pub fn transitions(&self) -> u64 {
        self.all.iter().map(|condition| condition.transitions).sum()
    }

    /// What the condition is, as far as anybody can know.
    pub fn status(&self, kind: &str) -> Option<&'static str> {
        KINDS.iter().position(|known| *known == kind).and_then(|place| self.all[place].status)
    }

    /// What it was before that: a process may have found it so first, which no event tells (seed 84212697).
    pub fn before(&self, kind: &str) -> Option<&'static str> {
        KINDS.iter().position(|known| *known == kind).and_then(|place| self.all[place].before)
    }

    /// Nobody can know any more since when it is what it is.
    pub fn is_time_lost(&self, kind: &str) -> bool {
        KINDS.iter().position(|known| *known == kind).is_some_and(|place| self.all[place].is_unknowable)
    }

    /// It became what it is, or was before, at that time, give or take so much.
    pub fn is_within(&self, kind: &str, since_us: i64, within_us: i64) -> bool {
        let place = KINDS.iter().position(|known| *known == kind);
        let times = place.map(|place| [self.all[place].since_us, self.all[place].before_since_us]);
        times.is_some_and(|times| times.iter().any(|time_us| (time_us - since_us).abs() <= within_us))
    }

    /// Whether `stored_us` may be the moment of the last transition.
    pub fn is_since(&self, kind: &str, stored_us: i64, excuses: &mut Excuses) -> Result<(), String> {
        let Some(place) = KINDS.iter().position(|known| *known == kind) else { return Ok(()) };
        let condition = &self.all[place];
        let off_us = stored_us - condition.since_us;
        if off_us.abs() <= TOLERANCE_US {
            return Ok(());
        }
        let is_after_others = condition.touched_us.is_some_and(|touched_us| stored_us >= touched_us - TOLERANCE_US);
        if excuses.allow(Excuse::WrittenByOthers, is_after_others)
            || excuses.allow(Excuse::TimeIsLost, condition.is_unknowable)
            || excuses.allow(Excuse::NeverChanged, condition.transitions == 0 && off_us > 0)
        {
            return Ok(());
        }
        Err(format!("{kind} changed at another time: the stored lastTransitionTime is {} s off", off_us / 1_000_000))
    }
}

impl Condition {
    /// Whether that is a change.
    fn becomes(&mut self, status: &'static str, at: Moment) -> bool {
        let is_first_look = std::mem::take(&mut self.is_first_look);
        self.has_judged = true;
        let before = self.status.replace(status);
        if before == Some(status) {
            return false;
        }
        self.before = before;
        self.transitions += u64::from(before.is_some() && !std::mem::take(&mut self.is_guess));
        self.before_since_us = std::mem::replace(&mut self.since_us, at.server_us);
        self.before_was_dated = std::mem::replace(&mut self.was_dated, at.is_dated);
        self.before_is_unrecorded = std::mem::replace(&mut self.is_unrecorded, is_first_look);
        // A process that just began knows of no change if the server does not say what was before.
        self.touched_us = self.touched_us.filter(|_| is_first_look);
        // Nor does it if somebody wrote over what the server said of before, and the disk may have failed.
        self.is_unknowable = is_first_look && (self.is_unknowable || self.touched_us.is_some()) || at.was_deceived;
        self.rests_on_node &= is_first_look;
        self.is_recorded_late &= is_first_look;
        before.is_some()
    }
}
