//! Turns readings of the board into pressures, with the hysteresis of the kubelet's eviction manager (EVI-1..9).

use std::collections::{BTreeMap, BTreeSet};

use crate::config::settings::{Eviction, Signal, Threshold};
use crate::probe::{Machine, Readings};
use crate::time::Up;

const MIB: i64 = 1024 * 1024;
/// D7: the kubelet's 100Mi would be a third of a small board.
const SMALL_BOARD_MEMORY_MAX: i64 = 100 * MIB;
const SMALL_BOARD_MEMORY_MIN: i64 = 8 * MIB;
const SMALL_BOARD_MEMORY_PERCENTAGE: f32 = 10.0;

/// Which pressure conditions are True.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressures {
    pub memory: bool,
    pub disk: bool,
    pub pid: bool,
}

/// What has to be remembered from one observation to the next; a restart forgets it, as in the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PressureState {
    /// Since when each rule is met without a break: its grace period runs from here.
    first_met: BTreeMap<Rule, Up>,
    /// Rules met for their whole grace period in the previous round: they stay met until the minimum is reclaimed.
    settled: BTreeSet<Rule>,
    last_pressed: BTreeMap<Kind, Up>,
}

/// One threshold of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    signal: Signal,
    soft: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Memory,
    Disk,
    Pid,
}

/// The two numbers a threshold is compared with.
struct Observation {
    available: i64,
    /// `None`: unknown; percentages are then never met.
    capacity: Option<i64>,
}

impl PressureState {
    /// Judges one round of readings, taken every ten seconds or so (EVI-6).
    pub fn observe(&mut self, eviction: &Eviction, machine: &Machine, readings: &Readings, up: Up) -> Pressures {
        let rules = |soft: bool, thresholds: &BTreeMap<Signal, Threshold>| {
            let rules = thresholds.iter().map(|(signal, threshold)| (Rule { signal: *signal, soft }, *threshold));
            rules.collect::<Vec<_>>()
        };
        let mut met = BTreeSet::new();
        for (rule, threshold) in rules(false, &eviction.hard).into_iter().chain(rules(true, &eviction.soft)) {
            let Some(observation) = observe(rule.signal, machine, readings) else { continue };
            let Some(limit) = threshold_value(threshold, observation.capacity) else { continue };
            let reclaim = eviction.minimum_reclaim.get(&rule.signal).filter(|_| self.settled.contains(&rule));
            let reclaim = reclaim.and_then(|reclaim| threshold_value(*reclaim, observation.capacity)).unwrap_or(0);
            if observation.available < limit.saturating_add(reclaim) {
                met.insert(rule);
            }
        }
        self.first_met.retain(|rule, _| met.contains(rule));
        for rule in &met {
            self.first_met.entry(*rule).or_insert(up);
        }
        self.settled.clear();
        for (rule, since) in &self.first_met {
            let grace = eviction.soft_grace_period.get(&rule.signal).filter(|_| rule.soft);
            if grace.is_none_or(|grace| up.since(*since) >= *grace) {
                self.settled.insert(*rule);
            }
        }
        for rule in &met {
            self.last_pressed.insert(kind(rule.signal), up);
        }
        self.last_pressed.retain(|kind, at| {
            up.since(*at) < eviction.pressure_transition_period
                || met.iter().any(|rule| self::kind(rule.signal) == *kind)
        });
        let pressed = |kind| self.last_pressed.contains_key(&kind);
        Pressures { memory: pressed(Kind::Memory), disk: pressed(Kind::Disk), pid: pressed(Kind::Pid) }
    }
}

/// EVI-9.
fn kind(signal: Signal) -> Kind {
    match signal {
        Signal::MemoryAvailable => Kind::Memory,
        Signal::NodefsAvailable | Signal::NodefsInodesFree => Kind::Disk,
        Signal::PidAvailable => Kind::Pid,
    }
}

/// EVI-4. `None` where there is nothing to judge: no reading, a file system that is read-only by design and therefore
/// always full, or one without a limit on inodes.
fn observe(signal: Signal, machine: &Machine, readings: &Readings) -> Option<Observation> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let file_system = || readings.node_file_system.as_ref().ok().filter(|system| !system.read_only);
    let (available, capacity) = match signal {
        Signal::MemoryAvailable => {
            (readings.memory.as_ref().ok()?.available_bytes, machine.memory_total_bytes.as_ref().ok().copied())
        }
        Signal::NodefsAvailable => file_system().map(|system| (system.available_bytes, Some(system.capacity_bytes)))?,
        Signal::NodefsInodesFree => {
            file_system().filter(|system| system.inodes != 0).map(|system| (system.inodes_free, Some(system.inodes)))?
        }
        Signal::PidAvailable => {
            readings.pids.as_ref().ok().map(|pids| (pids.limit.saturating_sub(pids.used), Some(pids.limit)))?
        }
    };
    Some(Observation { available: number(available), capacity: capacity.map(number) })
}

/// A threshold in bytes, inodes or PIDs; `None` when it depends on a capacity nobody knows. Allocatable is made with the
/// same arithmetic (ALC-1).
pub(super) fn threshold_value(threshold: Threshold, capacity: Option<i64>) -> Option<i64> {
    match threshold {
        Threshold::Quantity(value) => Some(value),
        Threshold::Percentage(percentage) => Some(part(capacity?, percentage)),
        Threshold::SmallBoardMemory => {
            let tenth = part(capacity?, SMALL_BOARD_MEMORY_PERCENTAGE);
            Some(tenth.clamp(SMALL_BOARD_MEMORY_MIN, SMALL_BOARD_MEMORY_MAX))
        }
    }
}

/// ALC-2: the fraction has the precision of an `f32`, the product that of an `f64`, cut to an integer.
fn part(capacity: i64, percentage: f32) -> i64 {
    (capacity as f64 * f64::from(percentage / 100.0)) as i64
}
