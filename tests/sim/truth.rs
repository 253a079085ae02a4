//! Turns every look at the board into what its conditions truly are, and since when: by rules of this file's own.

use std::time::Duration;

use nodepulse::probe::{Facts, Readings};

/// Stamps have whole seconds, travel, and follow a board's clock that is off by up to ten.
pub const TOLERANCE_US: i64 = 13_000_000;
/// What cannot be read for so long, or for the transition period, is Unknown.
const UNREAD_BEFORE_UNKNOWN_US: u64 = 60_000_000;

/// What is true of the conditions that change.
#[derive(Debug, Default)]
pub struct Truth {
    memory: Condition,
    disk: Condition,
}

#[derive(Debug, Default)]
struct Condition {
    status: Option<&'static str>,
    /// Since when looks, one after the other in this process, could not read it.
    unread_us: Option<u64>,
    /// When a look last found too little, in this process.
    low_us: Option<u64>,
    /// When it became what it is, by the server's clock.
    since_us: i64,
    /// When somebody else first wrote it after that, or made the Node anew: it may have any later time.
    touched_us: Option<i64>,
    is_first_look: bool,
    transitions: u64,
    /// Since a clock that was wrong in a boot that is over, or in a process that died before that was on disk.
    is_unknowable: bool,
    was_dated: bool,
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
    /// The board's clock is right, or nobody could tell the difference.
    pub is_dated: bool,
}

pub const KINDS: [&str; 2] = ["MemoryPressure", "DiskPressure"];

impl Truth {
    /// The agent is told these facts.
    pub fn look(&mut self, Facts { machine, readings, .. }: &Facts, period: Duration, at: Moment) {
        let Readings { memory, .. } = readings;
        let is_counted = machine.memory_total_bytes.is_ok();
        let low = [
            memory.as_ref().ok().filter(|_| is_counted).map(|memory| memory.available_bytes < 100 << 20),
            readings.node_file_system.as_ref().ok().map(|disk| disk.available_bytes < disk.capacity_bytes / 10),
        ];
        for (condition, low) in [&mut self.memory, &mut self.disk].into_iter().zip(low) {
            condition.look(low, period, at);
        }
    }

    /// `remains`: where the change of a condition to this status is still found, made at that moment of the server's clock.
    pub fn process_ended(&mut self, reboot: bool, remains: impl Fn(&str, i64, &str) -> Remains) {
        for (kind, condition) in KINDS.into_iter().zip([&mut self.memory, &mut self.disk]) {
            condition.low_us = None;
            condition.unread_us = None;
            condition.is_first_look = true;
            let word = condition.status.unwrap_or_default();
            let remains =
                if condition.transitions == 0 { Remains::OnDisk } else { remains(kind, condition.since_us, word) };
            let is_lost = remains == Remains::Nowhere || condition.rests_on_node || condition.is_recorded_late;
            condition.is_unknowable |= is_lost || (reboot && !condition.was_dated);
            condition.rests_on_node = remains == Remains::OnNode;
            condition.is_recorded_late = condition.rests_on_node;
        }
    }

    pub fn touched(&mut self, server_us: i64) {
        for condition in [&mut self.memory, &mut self.disk] {
            condition.touched_us.get_or_insert(server_us);
            condition.is_unknowable |= condition.rests_on_node;
        }
    }

    /// The agent is told what the server has.
    pub fn node_read(&mut self) {
        for condition in [&mut self.memory, &mut self.disk] {
            condition.rests_on_node = false;
        }
    }

    pub fn transitions(&self) -> u64 {
        self.memory.transitions + self.disk.transitions
    }

    /// Whether `stored_us` may be the moment of the last transition.
    pub fn is_since(&self, kind: &str, stored_us: i64) -> Result<(), String> {
        let condition = self.of(kind);
        let off_us = stored_us - condition.since_us;
        let after_others = condition.touched_us.is_some_and(|touched_us| stored_us >= touched_us - TOLERANCE_US);
        // What a first look found has been so for who knows how long: a Node that is made later may say so.
        let never_changed = condition.transitions == 0 && off_us >= -TOLERANCE_US;
        if off_us.abs() <= TOLERANCE_US || after_others || never_changed || condition.is_unknowable {
            return Ok(());
        }
        Err(format!("{kind} changed at another time: the stored lastTransitionTime is {} s off", off_us / 1_000_000))
    }

    fn of(&self, kind: &str) -> &Condition {
        if kind == KINDS[0] { &self.memory } else { &self.disk }
    }
}

impl Condition {
    /// `low`: whether there is too little; `None`: nobody can tell.
    fn look(&mut self, low: Option<bool>, period: Duration, at: Moment) {
        if low == Some(true) {
            self.low_us = Some(at.now_us);
        }
        let period_us = period.as_micros() as u64;
        let unread_us = if low.is_none() { Some(*self.unread_us.get_or_insert(at.now_us)) } else { None };
        self.unread_us = unread_us;
        let is_pressed = self.low_us.is_some_and(|low_us| at.now_us == low_us || at.now_us - low_us < period_us);
        let status = match unread_us {
            _ if is_pressed => "True",
            None => "False",
            Some(since_us) if at.now_us - since_us >= period_us.max(UNREAD_BEFORE_UNKNOWN_US) => "Unknown",
            // What was known last holds on.
            Some(_) => return,
        };
        let is_first_look = std::mem::take(&mut self.is_first_look);
        let before = self.status.replace(status);
        if before == Some(status) {
            return;
        }
        self.transitions += u64::from(before.is_some());
        self.since_us = at.server_us;
        self.was_dated = at.is_dated;
        // A process that just began knows of no change if the server does not say what was before.
        self.touched_us = self.touched_us.filter(|_| is_first_look);
        // Nor does it if somebody wrote over what the server said of before, and the disk may have failed.
        self.is_unknowable = is_first_look && (self.is_unknowable || self.touched_us.is_some());
        self.rests_on_node &= is_first_look;
        self.is_recorded_late &= is_first_look;
    }
}
