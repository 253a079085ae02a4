//! Turns what a board's sensors say, look after look, into conditions that hold: each is set and cleared by the times of its
//! row in [`super::rules`], and changes once a minute at most.

use std::time::Duration;

use super::judgement::Judgement;
use super::object::Status;
use crate::config::Settings;
use crate::config::limits::{CONDITION_CHANGE_PERIOD, JUDGEMENT_KEPT};
use crate::probe::facts::Zone;
use crate::probe::report::life_text;
use crate::probe::{Absent, Fact, Facts};
use crate::time::Up;

/// How a condition of the board is judged.
pub(super) struct Gauge {
    pub(super) look: for<'a> fn(&'a Facts, &Settings) -> Seen<'a>,
    /// How long it has to be bad without a break before the condition is True.
    pub(super) set_after: Duration,
    /// How long nothing bad may be seen before it is False again; after a start as well, when nobody knows what was seen last.
    pub(super) clear_after: Duration,
}

/// What one look says.
pub(super) enum Seen<'a> {
    /// The board has nothing to tell it from.
    Nothing,
    Unread(&'a Absent),
    Well,
    /// Neither bad enough to begin nor well enough to end.
    Between,
    Bad(Bad),
}

#[derive(Default)]
pub(super) struct Bad {
    /// What exactly, for people.
    pub(super) detail: Option<String>,
    /// In place of the one in the table, for what is worse: a condition that has it keeps it until it is False.
    pub(super) worse: Option<Worse>,
}

#[derive(Clone, Copy)]
pub(super) struct Worse {
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
        }
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

/// Of something that the board may lack.
fn seen<'a, T>(fact: Option<&'a Fact<T>>, judge: impl FnOnce(&T) -> Seen<'a>) -> Seen<'a> {
    match fact {
        None => Seen::Nothing,
        Some(Err(absent)) => Seen::Unread(absent),
        Some(Ok(value)) => judge(value),
    }
}

/// The supply of a Raspberry Pi, as its firmware judges it: 4.63 V and less.
pub(super) fn undervoltage<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(
        facts.readings.health.undervoltage.as_ref(),
        |is_low| if *is_low { Seen::Bad(Bad::default()) } else { Seen::Well },
    )
}

/// From where on a zone slows down, where it does not say so itself: the figure of Raspberry Pi's firmware. m°C.
const PASSIVE: i64 = 80_000;
/// From where on it switches itself off, in the same case.
const CRITICAL: i64 = 90_000;
/// Below the first by so much it is well again; below the second by so much it is about to switch off.
const MARGIN: i64 = 5_000;
/// Zones that are those of a processor, whatever they do not say. Parts of their names, in lower case.
const PROCESSORS: [&str; 11] =
    ["cpu", "soc", "x86_pkg", "package", "coretemp", "k10temp", "bcm2", "tsens", "imx_thermal", "cluster", "sfctemp"];

/// Each zone by its own trip points; by the defaults one that has none and is the processor's.
pub(super) fn thermal_throttled<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let set = settings.condition_threshold("ThermalThrottled").map(|degrees| i64::from(degrees) * 1000);
    seen(facts.readings.health.thermal.as_ref(), |thermal| {
        let mut is_warm = false;
        let mut hot = None;
        for zone in &thermal.zones {
            let Some((passive, critical)) = limits_of(zone) else { continue };
            let passive = set.unwrap_or(passive);
            is_warm |= zone.millidegrees >= passive - MARGIN;
            let worse = (zone.millidegrees >= critical - MARGIN).then_some(NEAR_CRITICAL);
            if worse.is_some() || hot.is_none() && zone.millidegrees >= passive {
                hot = Some(Bad { detail: Some(text_of(zone)), worse });
            }
        }
        match (hot, &thermal.slowed_by) {
            (Some(bad), _) => Seen::Bad(bad),
            (None, Some(by)) => Seen::Bad(Bad { detail: Some(format!("slowed down by {by}")), worse: None }),
            (None, None) if is_warm => Seen::Between,
            (None, None) => Seen::Well,
        }
    })
}

/// In percent of the life of an eMMC.
const LIFE_NEARLY_USED: u32 = 90;

/// Of a register that only grows: one that says less belongs to another device.
pub(super) fn storage_wear_high<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let nearly_used = settings.condition_threshold("StorageWearHigh").unwrap_or(LIFE_NEARLY_USED);
    seen(facts.readings.health.storage_wear.as_ref(), |wear| {
        let tenths = wear.life_tenths.unwrap_or(0);
        let reason = match wear.spare_state {
            Some(3) => Some("SpareBlocksExhausted"),
            _ if tenths > 10 => Some("LifetimeExceeded"),
            Some(2) => Some("SpareBlocksLow"),
            _ => None,
        };
        let worse = reason.map(|reason| Worse { reason, set_after: Duration::from_secs(3600) });
        if worse.is_none() && tenths <= nearly_used / 10 {
            return Seen::Well;
        }
        let life = wear.life_tenths.map(|tenths| format!(", {}", life_text(tenths)));
        let spare = worse.filter(|worse| worse.reason.starts_with("Spare")).map(|_| ", its spare blocks are used up");
        let detail = format!("{}{}{}", wear.device, life.unwrap_or_default(), spare.unwrap_or_default());
        Seen::Bad(Bad { detail: Some(detail), worse })
    })
}

/// Errors of before the boot are a matter of fsck.
pub(super) fn file_system_corrupt<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.file_systems.as_ref(), |errors| {
        if !errors.is_new {
            return Seen::Well;
        }
        Seen::Bad(Bad { detail: Some(format!("{}, {} since its last fsck", errors.device, errors.count)), worse: None })
    })
}

/// Of a board with a battery whose other supplies can be seen.
pub(super) fn on_battery<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.power.as_ref(), |power| match power.on_battery {
        None => Seen::Nothing,
        Some(true) => Seen::Bad(Bad::default()),
        Some(false) => Seen::Well,
    })
}

/// In percent of its capacity, and how much more it has to be to be well again.
const BATTERY_LOW: u64 = 15;
const BATTERY_MARGIN: u64 = 5;

pub(super) fn battery_low<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let low = settings.condition_threshold("BatteryLow").map_or(BATTERY_LOW, u64::from);
    seen(facts.readings.health.power.as_ref(), |power| match power.capacity_percent {
        percent if power.is_critical || power.is_discharging && percent <= low => {
            Seen::Bad(Bad { detail: Some(format!("{percent} %")), worse: None })
        }
        percent if !power.is_discharging || percent >= low + BATTERY_MARGIN => Seen::Well,
        _ => Seen::Between,
    })
}

/// With the second of two looks.
const NEAR_CRITICAL: Worse = Worse { reason: "NearCriticalTrip", set_after: Duration::from_secs(10) };

/// Passive and critical, m°C; `None`: nothing says that it is the processor's.
fn limits_of(zone: &Zone) -> Option<(i64, i64)> {
    match (zone.passive_millidegrees, zone.critical_millidegrees) {
        (None, None) => {
            let kind = zone.kind.to_ascii_lowercase();
            PROCESSORS.iter().any(|part| kind.contains(part)).then_some((PASSIVE, CRITICAL))
        }
        (passive, critical) => {
            let passive = passive.unwrap_or(PASSIVE.min(critical.unwrap_or(PASSIVE)));
            Some((passive, critical.unwrap_or(CRITICAL.max(passive + 2 * MARGIN))))
        }
    }
}

fn text_of(zone: &Zone) -> String {
    let name = if zone.kind.is_empty() { "a zone without a name" } else { &zone.kind };
    format!("{name} at {} °C", zone.millidegrees / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ConditionSetting;
    use crate::node::tests::samples;
    use crate::probe::facts::{FileSystemErrors, Power, Thermal, Wear};

    const GAUGE: Gauge =
        Gauge { look: |_, _| Seen::Nothing, set_after: Duration::from_secs(30), clear_after: Duration::from_secs(120) };

    /// One condition, looked at every ten seconds.
    #[derive(Default)]
    struct Bench {
        held: HeldCondition,
        seconds: u64,
    }

    impl Bench {
        /// So many looks that all see that. Answers the status after the last one, and whether it is sure.
        fn looks(&mut self, count: u64, seen: impl Fn() -> Seen<'static>) -> (Status, bool) {
            for _ in 0..count {
                self.held.observe(seen(), &GAUGE, Up::since_boot(Duration::from_secs(self.seconds)));
                self.seconds += 10;
            }
            let judged = self.held.judgement(false, |_| "text");
            (judged.status, judged.is_sure)
        }
    }

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

    fn zone(kind: &str, degrees: i64, passive: Option<i64>, critical: Option<i64>) -> Zone {
        let [passive_millidegrees, critical_millidegrees] = [passive, critical].map(|trip| trip.map(|at| at * 1000));
        Zone { kind: kind.to_owned(), millidegrees: degrees * 1000, passive_millidegrees, critical_millidegrees }
    }

    #[test]
    fn each_zone_is_judged_by_its_own_trips_and_a_processors_without_any_by_the_defaults() {
        let mut facts = samples::facts();
        let mut of = |zones: &[Zone], slowed_by: Option<&str>| {
            let thermal = Thermal { zones: zones.to_vec(), slowed_by: slowed_by.map(str::to_owned) };
            facts.readings.health.thermal = Some(Ok(thermal));
            match thermal_throttled(&facts, &samples::settings()) {
                Seen::Well => "well".to_owned(),
                Seen::Between => "between".to_owned(),
                Seen::Bad(Bad { detail, worse }) => {
                    format!("{} {}", worse.map_or("bad", |worse| worse.reason), detail.unwrap())
                }
                Seen::Nothing | Seen::Unread(_) => panic!(),
            }
        };
        let cpu = |degrees| zone("cpu-thermal", degrees, None, None);
        assert_eq!([of(&[cpu(74)], None), of(&[cpu(75)], None)], ["well", "between"]);
        assert_eq!(of(&[cpu(80)], None), "bad cpu-thermal at 80 °C");
        assert_eq!(of(&[cpu(85)], None), "NearCriticalTrip cpu-thermal at 85 °C");
        assert_eq!(of(&[zone("gadget", 99, None, None)], None), "well", "whose limits nobody knows");
        let own = |degrees| zone("gpu", degrees, Some(97), Some(101));
        assert_eq!([of(&[own(91)], None), of(&[own(92)], None)], ["well", "between"]);
        assert_eq!(of(&[own(97)], None), "NearCriticalTrip gpu at 97 °C", "4 °C from the end");
        assert_eq!(of(&[zone("x", 88, Some(95), None)], None), "well");
        assert_eq!(of(&[zone("x", 66, None, Some(70))], None), "NearCriticalTrip x at 66 °C");
        assert_eq!(of(&[cpu(40), own(98), cpu(81)], None), "NearCriticalTrip gpu at 98 °C", "the worst of them");
        assert_eq!(of(&[cpu(40)], Some("thermal-cpufreq-0")), "bad slowed down by thermal-cpufreq-0");
        facts.readings.health.thermal = Some(Ok(Thermal { zones: vec![cpu(70)], slowed_by: None }));
        let mut settings = samples::settings();
        settings.conditions.insert("ThermalThrottled".to_owned(), ConditionSetting::Threshold(70));
        assert!(matches!(thermal_throttled(&facts, &settings), Seen::Bad(_)), "by the settings");
    }

    #[test]
    fn storage_is_worn_by_its_life_or_its_spare_blocks() {
        let mut facts = samples::facts();
        let mut of = |life_tenths, spare_state| {
            let wear = Wear { device: "mmcblk0".to_owned(), life_tenths, spare_state };
            facts.readings.health.storage_wear = Some(Ok(wear));
            match storage_wear_high(&facts, &samples::settings()) {
                Seen::Well => "well".to_owned(),
                Seen::Bad(Bad { detail, worse }) => {
                    format!("{} {}", worse.map_or("bad", |worse| worse.reason), detail.unwrap())
                }
                _ => panic!(),
            }
        };
        assert_eq!([of(Some(9), Some(1)), of(Some(9), None), of(None, Some(1))], ["well"; 3]);
        assert_eq!(of(Some(10), Some(1)), "bad mmcblk0, 90 to 100 % of its life are used up");
        assert_eq!(of(Some(11), Some(1)), "LifetimeExceeded mmcblk0, more than all of its life is used up");
        assert_eq!(of(None, Some(2)), "SpareBlocksLow mmcblk0, its spare blocks are used up");
        let both = "SpareBlocksExhausted mmcblk0, 0 to 10 % of its life are used up, its spare blocks are used up";
        assert_eq!(of(Some(1), Some(3)), both);
        let wear = Wear { device: "mmcblk0".to_owned(), life_tenths: Some(8), spare_state: None };
        facts.readings.health.storage_wear = Some(Ok(wear));
        let mut settings = samples::settings();
        settings.conditions.insert("StorageWearHigh".to_owned(), ConditionSetting::Threshold(70));
        assert!(matches!(storage_wear_high(&facts, &settings), Seen::Bad(_)), "by the settings");
    }

    #[test]
    fn a_battery_is_low_while_it_empties_and_a_board_is_on_it_without_another_supply() {
        let mut facts = samples::facts();
        let mut of = |supply, capacity_percent, is_discharging, is_critical| {
            let power = Power { on_battery: supply, capacity_percent, is_discharging, is_critical };
            facts.readings.health.power = Some(Ok(power));
            let settings = samples::settings();
            [on_battery(&facts, &settings), battery_low(&facts, &settings)].map(|seen| match seen {
                Seen::Nothing => "nothing",
                Seen::Well => "well",
                Seen::Between => "between",
                Seen::Bad(_) => "bad",
                Seen::Unread(_) => "unread",
            })
        };
        assert_eq!(of(Some(true), 81, true, false), ["bad", "well"]);
        assert_eq!(of(Some(true), 15, true, false), ["bad", "bad"]);
        assert_eq!(of(Some(true), 16, true, false), ["bad", "between"]);
        assert_eq!(of(Some(true), 20, true, false), ["bad", "well"]);
        assert_eq!(of(Some(false), 5, false, false), ["well", "well"], "it fills up");
        assert_eq!(of(None, 50, true, true), ["nothing", "bad"], "by its own word");
    }

    #[test]
    fn a_file_system_is_corrupt_by_errors_since_the_boot_alone() {
        let mut facts = samples::facts();
        let mut of = |count, is_new| {
            facts.readings.health.file_systems =
                Some(Ok(FileSystemErrors { device: "sda1".to_owned(), count, is_new }));
            match file_system_corrupt(&facts, &samples::settings()) {
                Seen::Bad(bad) => bad.detail,
                Seen::Well => None,
                _ => panic!("neither well nor bad"),
            }
        };
        assert_eq!([of(0, false), of(7, false)], [None, None]);
        assert_eq!(of(7, true).as_deref(), Some("sda1, 7 since its last fsck"));
    }

    #[test]
    fn a_supply_that_sags_is_told_and_one_that_nobody_watches_is_not() {
        let mut facts = samples::facts();
        let mut of = |undervoltage| {
            facts.readings.health.undervoltage = undervoltage;
            match undervoltage_of(&facts) {
                Seen::Nothing => "nothing",
                Seen::Unread(_) => "unread",
                Seen::Well => "well",
                Seen::Between => "between",
                Seen::Bad(_) => "bad",
            }
        };
        assert_eq!([of(None), of(Some(Ok(false))), of(Some(Ok(true)))], ["nothing", "well", "bad"]);
        assert_eq!(of(Some(samples::absent())), "unread");
    }

    fn undervoltage_of(facts: &Facts) -> Seen<'_> {
        undervoltage(facts, &samples::settings())
    }
}
