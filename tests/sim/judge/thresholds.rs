//! Turns what is left of memory, storage and PIDs into whether thresholds are met: EVI-4 to EVI-8, by hand.

use super::super::board::{Board, MEBIBYTE};
use super::super::wanted::{Amount, Eviction, Signal, Threshold};

/// Two numbers, or nothing where the board does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Unknown,
    /// Never too little: there is no limit, or it is full by design.
    Enough,
    Of {
        available: u64,
        capacity: u64,
    },
}

pub fn left(board: &Board, signal: Signal) -> Left {
    match signal {
        Signal::Memory => match (board.memory_available_bytes, board.uncounted) {
            (Ok(available), None) => Left::Of { available, capacity: board.memory_bytes },
            _ => Left::Unknown,
        },
        Signal::Disk | Signal::Inodes => match board.disk {
            Err(_) => Left::Unknown,
            Ok(disk) if disk.read_only => Left::Enough,
            Ok(disk) if signal == Signal::Disk => {
                Left::Of { available: disk.available_bytes, capacity: disk.capacity_bytes }
            }
            Ok(disk) if disk.inodes == 0 => Left::Enough,
            Ok(disk) => Left::Of { available: disk.inodes_free, capacity: disk.inodes },
        },
        Signal::Pids => match board.pids {
            Err(_) => Left::Unknown,
            Ok(pids) => Left::Of { available: pids.limit.saturating_sub(pids.used), capacity: pids.limit },
        },
    }
}

/// ALC-2: a percentage is a 32-bit float, and what it makes is cut to whole units.
pub fn units(amount: Amount, capacity: u64) -> i64 {
    let part = |percent: f32| (f64::from(percent / 100.0) * capacity as f64) as i64;
    match amount {
        Amount::Count(count) => count,
        Amount::Percent(percent) => part(percent),
        Amount::SmallBoard => part(10.0).min(100 * MEBIBYTE as i64).max(8 * MEBIBYTE as i64),
    }
}

/// Of one threshold: since when it is met, as the rounds of this process found it.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    met_since_us: Option<u64>,
    was_fully_met: bool,
}

/// What one process remembers of the thresholds behind one condition.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    rounds: Vec<Round>,
    unread_since_us: Option<u64>,
    last_met_us: Option<u64>,
}

/// What cannot be read for so long, or for the transition period, is Unknown.
const UNREAD_BEFORE_UNKNOWN_US: u64 = 60_000_000;

impl Rounds {
    /// One look. `None`: what was known last holds on.
    pub fn look(
        &mut self,
        signals: &[Signal],
        board: &Board,
        eviction: &Eviction,
        now_us: u64,
    ) -> Option<&'static str> {
        let thresholds: Vec<&Threshold> =
            eviction.thresholds.iter().filter(|threshold| signals.contains(&threshold.signal)).collect();
        self.rounds.resize(thresholds.len(), Round::default());
        let (mut is_met, mut is_unread) = (false, false);
        for (round, threshold) in self.rounds.iter_mut().zip(thresholds) {
            let left = left(board, threshold.signal);
            is_unread |= left == Left::Unknown;
            is_met |= round.look(threshold, left, now_us);
        }
        if is_met {
            self.last_met_us = Some(now_us);
        }
        self.unread_since_us = is_unread.then(|| self.unread_since_us.unwrap_or(now_us));
        // EVI-8.
        let is_pressed = is_met || self.last_met_us.is_some_and(|met_us| now_us - met_us < eviction.transition_us);
        match self.unread_since_us {
            _ if is_pressed => Some("True"),
            None => Some("False"),
            Some(since_us) if now_us - since_us >= eviction.transition_us.max(UNREAD_BEFORE_UNKNOWN_US) => {
                Some("Unknown")
            }
            Some(_) => None,
        }
    }
}

impl Round {
    fn look(&mut self, threshold: &Threshold, left: Left, now_us: u64) -> bool {
        let Left::Of { available, capacity } = left else {
            // EVI-4: without data, never met.
            *self = Round::default();
            return false;
        };
        let below = units(threshold.below, capacity);
        let reclaim = threshold.reclaim.map_or(0, |amount| units(amount, capacity));
        // EVI-7: what was fully met ends only with the reclaim on top.
        let limit = if self.was_fully_met { below + reclaim } else { below };
        let is_met = (available as i64) < limit;
        let since_us = *self.met_since_us.get_or_insert(now_us);
        self.met_since_us = is_met.then_some(since_us);
        // Only a soft threshold has a grace, and it presses at once all the same (EVI-6).
        self.was_fully_met = is_met && now_us - since_us >= threshold.grace_us.unwrap_or(0);
        is_met
    }
}
