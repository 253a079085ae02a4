//! Turns readings of the board into pressures, with the hysteresis of the kubelet's eviction manager (EVI-1..9).

use heapless::LinearMap;

use super::object::Status;
use crate::config::limits::JUDGEMENT_KEPT;
use crate::config::settings::{Settings, Signal, Threshold};
use crate::probe::facts::Pids;
use crate::probe::{Absent, FileSystem, Machine, Readings};
use crate::time::Up;

const MIB: i64 = 1024 * 1024;
/// D7: the kubelet's 100Mi would be a third of a small board.
const SMALL_BOARD_MEMORY_MAX: i64 = 100 * MIB;
const SMALL_BOARD_MEMORY_MIN: i64 = 8 * MIB;
const SMALL_BOARD_MEMORY_PERCENTAGE: f32 = 10.0;

/// A kubelet judges the file system of the images by thresholds of its own also where it is that of the Node.
const DISK_SIGNALS: [Signal; 4] =
    [Signal::NodefsAvailable, Signal::NodefsInodesFree, Signal::ImagefsAvailable, Signal::ImagefsInodesFree];

/// The pressures, with what has to be remembered from one look to the next; a restart forgets it, as in the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressures {
    pub memory: Pressure,
    pub disk: Pressure,
    pub pid: Pressure,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressure {
    /// By the last look; `None`: nobody can say yet.
    pub status: Option<Status>,
    /// What could not be read then.
    pub absent: Option<Absent>,
    /// The thresholds that were met then.
    met: LinearMap<Rule, Met, 8>,
    /// When one was met last, within the transition period.
    met_at: Option<Up>,
    /// Since when there is nothing to judge from.
    unread_since: Option<Up>,
}

/// Which threshold of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    signal: Signal,
    is_soft: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Met {
    /// Without a break: its grace period runs from here.
    since: Up,
    /// For its whole grace period: it stays met until the minimum is reclaimed.
    is_settled: bool,
}

/// What a threshold is compared with, and what a percentage is of.
struct Amount {
    available: i64,
    capacity: i64,
}

impl Pressures {
    /// Judges one look at the board, of every ten seconds or so (EVI-6).
    pub fn observe(&mut self, settings: &Settings, machine: &Machine, readings: &Readings, up: Up) {
        let amount = |signal| amount(signal, machine, readings);
        self.memory.observe(&[Signal::MemoryAvailable], amount, settings, up);
        self.disk.observe(&DISK_SIGNALS, amount, settings, up);
        self.pid.observe(&[Signal::PidAvailable], amount, settings, up);
    }
}

impl Pressure {
    /// What cannot be read keeps its last judgement for [`JUDGEMENT_KEPT`], or the transition period where that is longer,
    /// so that a source that fails now and then changes nothing; then it is Unknown.
    fn observe<'a>(
        &mut self,
        signals: &[Signal],
        amount: impl Fn(Signal) -> Result<Option<Amount>, &'a Absent>,
        settings: &Settings,
        up: Up,
    ) {
        let before = std::mem::take(&mut self.met);
        self.absent = None;
        for (signal, is_soft) in signals.iter().flat_map(|signal| [(*signal, false), (*signal, true)]) {
            let thresholds = if is_soft { &settings.eviction_soft } else { &settings.eviction_hard };
            let Some(threshold) = thresholds.get(&signal) else { continue };
            let amount = match amount(signal) {
                Ok(Some(amount)) => amount,
                Ok(None) => continue,
                Err(absent) => {
                    self.absent = Some(absent.clone());
                    continue;
                }
            };
            let value = |threshold: &Threshold| threshold_value(*threshold, Some(amount.capacity));
            let Some(limit) = value(threshold) else { continue };
            let rule = Rule { signal, is_soft };
            let met = before.get(&rule);
            let reclaim =
                settings.eviction_minimum_reclaim.get(&signal).filter(|_| met.is_some_and(|met| met.is_settled));
            if amount.available < limit.saturating_add(reclaim.and_then(value).unwrap_or(0)) {
                let since = met.map_or(up, |met| met.since);
                let grace = settings.eviction_soft_grace_period.get(&signal).filter(|_| is_soft);
                let is_settled = grace.is_none_or(|grace| up - since >= *grace);
                let _ = self.met.insert(rule, Met { since, is_settled });
            }
        }
        let period = settings.eviction_pressure_transition_period;
        self.met_at = if self.met.is_empty() { self.met_at.filter(|at| up - *at < period) } else { Some(up) };
        self.unread_since = self.absent.as_ref().map(|_| self.unread_since.unwrap_or(up));
        self.status = match self.unread_since {
            _ if self.met_at.is_some() => Some(Status::True),
            None => Some(Status::False),
            Some(since) if up - since >= period.max(JUDGEMENT_KEPT) => Some(Status::Unknown),
            Some(_) => self.status,
        };
    }
}

/// EVI-4. `None`: a file system that is read-only by design and therefore always full, or one without a limit on inodes.
fn amount<'a>(signal: Signal, machine: &'a Machine, readings: &'a Readings) -> Result<Option<Amount>, &'a Absent> {
    let (available, capacity) = match signal {
        Signal::MemoryAvailable => (readings.memory.as_ref()?.available_bytes, *machine.memory_total_bytes.as_ref()?),
        Signal::PidAvailable => {
            let Pids { limit, used } = readings.pids.as_ref()?;
            (limit.saturating_sub(*used), *limit)
        }
        Signal::NodefsAvailable | Signal::NodefsInodesFree => {
            let system = readings.node_file_system.as_ref()?;
            let Some(amounts) = of_disk(system, signal == Signal::NodefsAvailable) else { return Ok(None) };
            amounts
        }
        Signal::ImagefsAvailable | Signal::ImagefsInodesFree => {
            // One that cannot be seen is not judged.
            let system = readings.image_file_system.as_ref().and_then(|system| system.as_ref().ok());
            let of_disk = system.and_then(|system| of_disk(system, signal == Signal::ImagefsAvailable));
            let Some(amounts) = of_disk else { return Ok(None) };
            amounts
        }
    };
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Ok(Some(Amount { available: number(available), capacity: number(capacity) }))
}

/// What is free of its bytes, or of its inodes, and of how many; `None`: it says nothing.
fn of_disk(system: &FileSystem, is_of_bytes: bool) -> Option<(u64, u64)> {
    match system {
        system if system.read_only => None,
        system if is_of_bytes => Some((system.available_bytes, system.capacity_bytes)),
        system if system.inodes == 0 => None,
        system => Some((system.inodes_free, system.inodes)),
    }
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
    use crate::node::tests::samples::{self, absent};
    use crate::probe::facts::{MemorySource, MemoryUse};

    #[derive(Debug, Default, PartialEq)]
    struct Pressed {
        memory: bool,
        disk: bool,
        pid: bool,
    }

    #[derive(Debug, Default, PartialEq)]
    struct Judged {
        memory: Option<Status>,
        disk: Option<Status>,
        pid: Option<Status>,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    /// A board whose readings a test turns, and the state of its agent.
    struct Bench {
        settings: Settings,
        machine: Machine,
        readings: Readings,
        state: Pressures,
        up: Up,
    }

    impl Bench {
        fn new() -> Bench {
            let facts = samples::facts();
            let up = Up::since_boot(MINUTE);
            let state = Pressures::default();
            Bench { settings: Settings::default(), machine: facts.machine, readings: facts.readings, state, up }
        }

        /// Passes `span` of time and judges again.
        fn judged_after(&mut self, span: Duration) -> Judged {
            self.up = self.up + span;
            self.state.observe(&self.settings, &self.machine, &self.readings, self.up);
            let Pressures { memory, disk, pid } = &self.state;
            Judged { memory: memory.status, disk: disk.status, pid: pid.status }
        }

        /// The same, of which nothing may be unknown.
        fn after(&mut self, span: Duration) -> Pressed {
            let Judged { memory, disk, pid } = self.judged_after(span);
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

        fn unread(&mut self) {
            let readings = &mut self.readings;
            (readings.memory, readings.node_file_system, readings.pids) = (absent(), absent(), absent());
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
    fn the_file_system_of_images_is_judged_by_its_own_thresholds_where_there_is_a_runtime() {
        let mut bench = Bench::new();
        let whole = bench.readings.node_file_system.clone().unwrap();
        let mut judged = |image_file_system| {
            bench.readings.image_file_system = image_file_system;
            bench.state = Pressures::default();
            bench.now().disk
        };
        let free = |tenths: u64| FileSystem { available_bytes: whole.capacity_bytes / 100 * tenths, ..whole };
        assert!(!judged(None), "it has not said where they are");
        assert!(!judged(Some(absent())), "what cannot be seen is not judged");
        // A fifth of it more than of the Node's own, where a tenth is enough.
        assert!(!judged(Some(Ok(free(16)))));
        assert!(judged(Some(Ok(free(14)))));
        let few = FileSystem { inodes_free: whole.inodes / 100 * 4, ..whole };
        assert!(judged(Some(Ok(few))));
        assert!(!judged(Some(Ok(FileSystem { read_only: true, ..few }))));
        let mut bench = Bench::new();
        bench.disk(|system| system.available_bytes = system.capacity_bytes / 100 * 14);
        assert!(!bench.now().disk, "without a runtime a Node's disk has room until a tenth is left");
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
        bench.settings.eviction_hard.insert(Signal::PidAvailable, Threshold::Quantity(i64::MAX)).unwrap();
        bench.unread();
        assert_eq!(bench.judged_after(MINUTE), Judged::default(), "nobody can say yet");
        let unknown = Some(Status::Unknown);
        let nothing = Judged { memory: unknown, disk: unknown, pid: unknown };
        assert_eq!(bench.judged_after(5 * MINUTE), nothing);
        let mut bench = Bench::new();
        bench.machine.memory_total_bytes = absent();
        assert_eq!(bench.memory(0).judged_after(MINUTE).memory, None, "a tenth of what?");
        bench.settings.eviction_hard.clear();
        bench.unread();
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
        bench.settings.eviction_pressure_transition_period = Duration::ZERO;
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
        bench.settings.eviction_hard.insert(Signal::NodefsInodesFree, Threshold::Quantity(1000)).unwrap();
        assert!(!bench.disk(|system| (system.inodes, system.inodes_free) = (0, 0)).now().disk);
    }

    #[test]
    fn pids_are_judged_only_when_a_threshold_asks_for_it() {
        let mut bench = Bench::new();
        bench.readings.pids = Ok(Pids { limit: 123, used: 719 });
        assert!(!bench.now().pid);
        bench.settings.eviction_hard.insert(Signal::PidAvailable, Threshold::Percentage(5.0)).unwrap();
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
        bench.settings.eviction_pressure_transition_period = Duration::ZERO;
        assert!(!bench.now().memory);
        assert!(bench.memory(0).now().memory, "no period delays nothing, and hides nothing");
    }

    #[test]
    fn a_threshold_once_met_stays_met_until_the_minimum_is_reclaimed() {
        let mut bench = Bench::new();
        bench.settings.eviction_pressure_transition_period = Duration::ZERO;
        bench.settings.eviction_hard.insert(Signal::MemoryAvailable, Threshold::Quantity(1000)).unwrap();
        bench.settings.eviction_minimum_reclaim.insert(Signal::MemoryAvailable, Threshold::Quantity(500)).unwrap();
        assert!(!bench.memory(1499).now().memory, "the minimum does not count before the threshold was met");
        assert!(bench.memory(999).now().memory);
        assert!(bench.memory(1499).after(MINUTE).memory);
        assert!(!bench.memory(1500).after(MINUTE).memory);
        assert!(!bench.memory(1499).after(MINUTE).memory);
    }

    #[test]
    fn a_soft_threshold_presses_at_once_but_holds_on_only_after_its_grace_period() {
        let mut bench = Bench::new();
        bench.settings.eviction_pressure_transition_period = Duration::ZERO;
        bench.settings.eviction_hard.clear();
        bench.settings.eviction_soft.insert(Signal::NodefsAvailable, Threshold::Quantity(1000)).unwrap();
        bench.settings.eviction_soft_grace_period.insert(Signal::NodefsAvailable, 2 * MINUTE).unwrap();
        bench.settings.eviction_minimum_reclaim.insert(Signal::NodefsAvailable, Threshold::Quantity(500)).unwrap();
        let available = |bytes| move |system: &mut FileSystem| system.available_bytes = bytes;
        assert!(bench.disk(available(999)).now().disk);
        assert!(!bench.disk(available(1200)).after(MINUTE).disk, "the grace period had not passed");
        assert!(bench.disk(available(999)).now().disk);
        assert!(bench.after(2 * MINUTE).disk);
        assert!(bench.disk(available(1200)).after(MINUTE).disk, "now the minimum has to be reclaimed");
        assert!(!bench.disk(available(1500)).after(MINUTE).disk);
    }
}
