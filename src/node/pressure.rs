//! Turns readings of the board into pressures, with the hysteresis of the kubelet's eviction manager (EVI-1..9).

use std::collections::{BTreeMap, BTreeSet};

use super::object::Status;
use crate::config::limits::JUDGEMENT_KEPT;
use crate::config::settings::{Eviction, Signal, Threshold};
use crate::probe::{Machine, Readings};
use crate::time::Up;

const MIB: i64 = 1024 * 1024;
/// D7: the kubelet's 100Mi would be a third of a small board.
const SMALL_BOARD_MEMORY_MAX: i64 = 100 * MIB;
const SMALL_BOARD_MEMORY_MIN: i64 = 8 * MIB;
const SMALL_BOARD_MEMORY_PERCENTAGE: f32 = 10.0;

/// What the pressure conditions are; `None`: nobody can say yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressures {
    pub memory: Option<Status>,
    pub disk: Option<Status>,
    pub pid: Option<Status>,
}

/// What has to be remembered from one observation to the next; a restart forgets it, as in the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PressureState {
    /// Since when each rule is met without a break: its grace period runs from here.
    first_met: BTreeMap<Rule, Up>,
    /// Rules met for their whole grace period in the previous round: they stay met until the minimum is reclaimed.
    settled: BTreeSet<Rule>,
    last_pressed: BTreeMap<Kind, Up>,
    /// Since when there is nothing to judge from.
    unread_since: BTreeMap<Kind, Up>,
    /// The last answer.
    last: Pressures,
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

/// What there is to compare a threshold with.
enum Observation {
    Numbers {
        available: i64,
        capacity: i64,
    },
    /// A file system that is read-only by design and therefore always full, or one without a limit on inodes.
    Nothing,
    /// It could not be read.
    Unread,
}

impl PressureState {
    /// The last answer.
    pub fn last(&self) -> Pressures {
        self.last
    }

    /// Judges one round of readings, taken every ten seconds or so (EVI-6). What cannot be read keeps its last judgement
    /// for [`JUDGEMENT_KEPT`], or the transition period where that is longer, so that a source that fails now and then
    /// changes nothing; then it is Unknown.
    pub fn observe(&mut self, eviction: &Eviction, machine: &Machine, readings: &Readings, up: Up) -> Pressures {
        let rules = |soft: bool, thresholds: &BTreeMap<Signal, Threshold>| {
            let rules = thresholds.iter().map(|(signal, threshold)| (Rule { signal: *signal, soft }, *threshold));
            rules.collect::<Vec<_>>()
        };
        let mut met = BTreeSet::new();
        let mut unread = BTreeSet::new();
        for (rule, threshold) in rules(false, &eviction.hard).into_iter().chain(rules(true, &eviction.soft)) {
            let (available, capacity) = match observe(rule.signal, machine, readings) {
                Observation::Numbers { available, capacity } => (available, Some(capacity)),
                Observation::Nothing => continue,
                Observation::Unread => {
                    unread.insert(kind(rule.signal));
                    continue;
                }
            };
            let Some(limit) = threshold_value(threshold, capacity) else { continue };
            let reclaim = eviction.minimum_reclaim.get(&rule.signal).filter(|_| self.settled.contains(&rule));
            let reclaim = reclaim.and_then(|reclaim| threshold_value(*reclaim, capacity)).unwrap_or(0);
            if available < limit.saturating_add(reclaim) {
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
        self.unread_since.retain(|kind, _| unread.contains(kind));
        for kind in unread {
            self.unread_since.entry(kind).or_insert(up);
        }
        let kept_for = eviction.pressure_transition_period.max(JUDGEMENT_KEPT);
        let judged = |kind, last| match self.unread_since.get(&kind) {
            _ if self.last_pressed.contains_key(&kind) => Some(Status::True),
            None => Some(Status::False),
            Some(since) if up.since(*since) >= kept_for => Some(Status::Unknown),
            Some(_) => last,
        };
        let Pressures { memory, disk, pid } = self.last;
        self.last = Pressures {
            memory: judged(Kind::Memory, memory),
            disk: judged(Kind::Disk, disk),
            pid: judged(Kind::Pid, pid),
        };
        self.last
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

/// EVI-4.
fn observe(signal: Signal, machine: &Machine, readings: &Readings) -> Observation {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let Readings { memory, node_file_system, pids } = readings;
    let numbers = match (signal, memory, &machine.memory_total_bytes, node_file_system, pids) {
        (Signal::MemoryAvailable, Ok(memory), Ok(total), ..) => (memory.available_bytes, *total),
        (Signal::PidAvailable, .., Ok(pids)) => (pids.limit.saturating_sub(pids.used), pids.limit),
        (Signal::NodefsAvailable | Signal::NodefsInodesFree, .., Ok(system), _) => match signal {
            _ if system.read_only => return Observation::Nothing,
            Signal::NodefsAvailable => (system.available_bytes, system.capacity_bytes),
            _ if system.inodes == 0 => return Observation::Nothing,
            _ => (system.inodes_free, system.inodes),
        },
        _ => return Observation::Unread,
    };
    Observation::Numbers { available: number(numbers.0), capacity: number(numbers.1) }
}

/// A threshold in bytes, inodes or PIDs; `None` when it depends on a capacity nobody knows. Allocatable is made with
/// the same arithmetic (ALC-1).
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::samples::{self, absent};
    use crate::probe::facts::{FileSystem, MemorySource, MemoryUse, Pids};

    #[derive(Debug, Default, PartialEq)]
    struct Pressed {
        memory: bool,
        disk: bool,
        pid: bool,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    /// A board whose readings a test turns, and the state of its agent.
    struct Bench {
        eviction: Eviction,
        machine: Machine,
        readings: Readings,
        state: PressureState,
        up: Up,
    }

    impl Bench {
        fn new() -> Bench {
            let facts = samples::facts();
            let up = Up::since_boot(MINUTE);
            let state = PressureState::default();
            Bench { eviction: Eviction::default(), machine: facts.machine, readings: facts.readings, state, up }
        }

        /// Passes `span` of time and judges again.
        fn judged_after(&mut self, span: Duration) -> Pressures {
            self.up = self.up + span;
            self.state.observe(&self.eviction, &self.machine, &self.readings, self.up)
        }

        /// The same, of which nothing may be unknown.
        fn after(&mut self, span: Duration) -> Pressed {
            let Pressures { memory, disk, pid } = self.judged_after(span);
            let is_true = |status: Option<Status>| match status {
                Some(Status::True) => true,
                Some(Status::False) => false,
                unknown => panic!("{unknown:?}"),
            };
            Pressed { memory: is_true(memory), disk: is_true(disk), pid: is_true(pid) }
        }

        fn now(&mut self) -> Pressed {
            self.after(Duration::ZERO)
        }

        fn memory(&mut self, available_bytes: u64) -> &mut Bench {
            self.readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::CgroupV2 });
            self
        }

        fn disk(&mut self, change: impl Fn(&mut FileSystem)) -> &mut Bench {
            if let Ok(system) = &mut self.readings.node_file_system {
                change(system);
            }
            self
        }
    }

    #[test]
    fn a_calm_board_has_no_pressure() {
        assert_eq!(Bench::new().now(), Pressed::default());
    }

    #[test]
    fn exactly_at_the_threshold_is_not_below_it() {
        let limit = 100 * 1024 * 1024;
        assert!(!Bench::new().memory(limit).now().memory);
        assert_eq!(Bench::new().memory(limit - 1).now(), Pressed { memory: true, ..Pressed::default() });
        let limit = 10_736_262_918;
        assert!(!Bench::new().disk(|system| system.available_bytes = limit).now().disk);
        assert!(Bench::new().disk(|system| system.available_bytes = limit - 1).now().disk);
        assert!(!Bench::new().disk(|system| system.inodes_free = 50_000).now().disk);
        assert!(Bench::new().disk(|system| system.inodes_free = 49_999).now().disk);
    }

    #[test]
    fn the_memory_threshold_shrinks_with_the_board() {
        for (total_kb, threshold_kb) in [
            (94_412, 9441),
            (252_308, 25_230),
            (426_068, 42_606),
            (1_024_000, 102_400),
            (8_000_000, 102_400),
            (50_000, 8192),
        ] {
            let value = threshold_value(Threshold::SmallBoardMemory, Some(total_kb * 1024)).unwrap();
            assert_eq!(value / 1024, threshold_kb, "{total_kb}");
        }
    }

    #[test]
    fn a_percentage_is_cut_with_the_precision_of_the_kubelet() {
        assert_eq!(threshold_value(Threshold::Percentage(10.0), Some(107_362_627_584)), Some(10_736_262_918));
        assert_eq!(threshold_value(Threshold::Percentage(5.0), Some(0)), Some(0));
        assert_eq!(threshold_value(Threshold::Percentage(5.0), None), None);
        assert_eq!(threshold_value(Threshold::Quantity(7), None), Some(7));
    }

    #[test]
    fn a_signal_without_data_is_never_met_and_never_enough() {
        let mut bench = Bench::new();
        bench.eviction.hard.insert(Signal::PidAvailable, Threshold::Quantity(i64::MAX));
        bench.readings = Readings { memory: absent(), node_file_system: absent(), pids: absent() };
        assert_eq!(bench.judged_after(MINUTE), Pressures::default(), "nobody can say yet");
        let unknown = Some(Status::Unknown);
        let nothing = Pressures { memory: unknown, disk: unknown, pid: unknown };
        assert_eq!(bench.judged_after(5 * MINUTE), nothing);
        let mut bench = Bench::new();
        bench.machine.memory_total_bytes = absent();
        assert_eq!(bench.memory(0).judged_after(MINUTE).memory, None, "a tenth of what?");
        bench.eviction.hard.clear();
        bench.readings = Readings { memory: absent(), node_file_system: absent(), pids: absent() };
        assert_eq!(bench.now(), Pressed::default(), "nothing asks for it: as with a kubelet");
    }

    #[test]
    fn a_source_that_fails_keeps_its_last_judgement_for_a_while() {
        let status = |bench: &mut Bench, span| bench.judged_after(span).memory.unwrap();
        for (available, before) in [(8 << 30, Status::False), (0, Status::True)] {
            let mut bench = Bench::new();
            assert_eq!(status(bench.memory(available), MINUTE), before);
            bench.readings.memory = absent();
            assert_eq!(status(&mut bench, MINUTE), before);
            assert_eq!(status(&mut bench, 5 * MINUTE - Duration::from_millis(1)), before);
            // Once in a while it can be read: that is enough.
            assert_eq!(status(bench.memory(available), MINUTE), before);
            bench.readings.memory = absent();
            assert_eq!(status(&mut bench, MINUTE), before);
            assert_eq!(status(&mut bench, 5 * MINUTE), Status::Unknown);
            assert_eq!(status(&mut bench, MINUTE), Status::Unknown);
            assert_eq!(status(bench.memory(available), MINUTE), before, "at the first look that can tell");
        }
        let mut bench = Bench::new();
        bench.eviction.pressure_transition_period = Duration::ZERO;
        assert_eq!(status(bench.memory(0), MINUTE), Status::True);
        bench.readings.memory = absent();
        assert_eq!(status(&mut bench, MINUTE), Status::True, "no period does not make a judgement of nothing");
        assert_eq!(status(&mut bench, JUDGEMENT_KEPT), Status::Unknown);
    }

    #[test]
    fn a_read_only_file_system_or_one_without_inodes_is_never_full() {
        let full = |read_only| {
            move |system: &mut FileSystem| {
                (system.available_bytes, system.inodes_free, system.read_only) = (0, 0, read_only)
            }
        };
        assert!(Bench::new().disk(full(false)).now().disk);
        assert!(!Bench::new().disk(full(true)).now().disk);
        let mut bench = Bench::new();
        bench.eviction.hard.insert(Signal::NodefsInodesFree, Threshold::Quantity(1000));
        assert!(!bench.disk(|system| (system.inodes, system.inodes_free) = (0, 0)).now().disk);
    }

    #[test]
    fn pids_are_judged_only_when_a_threshold_asks_for_it() {
        let mut bench = Bench::new();
        bench.readings.pids = Ok(Pids { limit: 123, used: 719 });
        assert!(!bench.now().pid);
        bench.eviction.hard.insert(Signal::PidAvailable, Threshold::Percentage(5.0));
        assert_eq!(bench.now(), Pressed { pid: true, ..Pressed::default() });
    }

    #[test]
    fn pressure_comes_at_once_and_stays_for_the_transition_period() {
        let mut bench = Bench::new();
        assert!(bench.memory(0).now().memory);
        bench.memory(8 << 30);
        assert!(bench.after(Duration::from_secs(1)).memory);
        assert!(bench.after(Duration::from_millis(298_999)).memory, "last observed 299.999 s ago");
        assert!(!bench.after(Duration::from_millis(1)).memory, "last observed 300 s ago");
        assert!(bench.memory(0).now().memory, "entering is never delayed");
        assert!(bench.after(10 * MINUTE).memory, "and the period runs from the last observation");
        assert!(bench.memory(8 << 30).after(4 * MINUTE).memory);
        bench.eviction.pressure_transition_period = Duration::ZERO;
        assert!(!bench.now().memory);
        assert!(bench.memory(0).now().memory, "no period delays nothing, and hides nothing");
    }

    #[test]
    fn a_threshold_once_met_stays_met_until_the_minimum_is_reclaimed() {
        let mut bench = Bench::new();
        bench.eviction.pressure_transition_period = Duration::ZERO;
        bench.eviction.hard.insert(Signal::MemoryAvailable, Threshold::Quantity(1000));
        bench.eviction.minimum_reclaim.insert(Signal::MemoryAvailable, Threshold::Quantity(500));
        assert!(!bench.memory(1499).now().memory, "the minimum does not count before the threshold was met");
        assert!(bench.memory(999).now().memory);
        assert!(bench.memory(1499).after(MINUTE).memory);
        assert!(!bench.memory(1500).after(MINUTE).memory);
        assert!(!bench.memory(1499).after(MINUTE).memory);
    }

    #[test]
    fn a_soft_threshold_presses_at_once_but_holds_on_only_after_its_grace_period() {
        let mut bench = Bench::new();
        bench.eviction.pressure_transition_period = Duration::ZERO;
        bench.eviction.hard.clear();
        bench.eviction.soft.insert(Signal::NodefsAvailable, Threshold::Quantity(1000));
        bench.eviction.soft_grace_period.insert(Signal::NodefsAvailable, 2 * MINUTE);
        bench.eviction.minimum_reclaim.insert(Signal::NodefsAvailable, Threshold::Quantity(500));
        let available = |bytes| move |system: &mut FileSystem| system.available_bytes = bytes;
        assert!(bench.disk(available(999)).now().disk);
        assert!(!bench.disk(available(1200)).after(MINUTE).disk, "the grace period had not passed");
        assert!(bench.disk(available(999)).now().disk);
        assert!(bench.after(2 * MINUTE).disk);
        assert!(bench.disk(available(1200)).after(MINUTE).disk, "now the minimum has to be reclaimed");
        assert!(!bench.disk(available(1500)).after(MINUTE).disk);
    }
}
