//! Turns what one look at a sensor says into well or bad, by the thresholds of each condition of the board.

use std::time::Duration;

use super::{Bad, Seen, Worse};
use crate::config::Settings;
use crate::probe::facts::Zone;
use crate::probe::report::life_text;
use crate::probe::{Fact, Facts, TASK_HUNG};

/// Of something that the board may lack.
fn seen<'a, T>(fact: Option<&'a Fact<T>>, judge: impl FnOnce(&T) -> Seen<'a>) -> Seen<'a> {
    match fact {
        None => Seen::Nothing,
        Some(Err(absent)) => Seen::Unread(absent),
        Some(Ok(value)) => judge(value),
    }
}

/// The supply of a Raspberry Pi, as its firmware judges it: 4.63 V and less.
pub(in crate::node) fn undervoltage<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
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
pub(in crate::node) fn thermal_throttled<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
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

/// In percent of the life of a device that says itself how much of it is used up.
const LIFE_NEARLY_USED: u32 = 90;
/// The same of raw flash, where that is the block which is worn most.
const ERASES_NEARLY_USED: u32 = 80;

/// Of what only grows: one that says less belongs to another device. But reads that failed are counted from each boot on, and
/// whether those of before the first look were in order nobody knows.
pub(in crate::node) fn storage_wear_high<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let set = settings.condition_threshold("StorageWearHigh");
    seen(facts.readings.health.storage_wear.as_ref(), |wear| {
        let nearly_used = set.unwrap_or(if wear.is_raw { ERASES_NEARLY_USED } else { LIFE_NEARLY_USED });
        let tenths = wear.life_tenths.unwrap_or(0);
        let reason = match wear.spare_state {
            Some(3) => Some("SpareBlocksExhausted"),
            _ if tenths > 10 => Some("LifetimeExceeded"),
            _ if wear.is_losing_data => Some("UncorrectableEcc"),
            Some(2) => Some(if wear.is_raw { "BadBlocksHigh" } else { "SpareBlocksLow" }),
            _ => None,
        };
        let worse = reason.map(|reason| Worse { reason, set_after: Duration::from_secs(3600) });
        if worse.is_none() && tenths <= nearly_used / 10 {
            return if wear.uncorrectable_reads == 0 { Seen::Well } else { Seen::Between };
        }
        let life = wear.life_tenths.map(|tenths| format!(", {}", life_text(tenths)));
        let more = match reason {
            Some("SpareBlocksExhausted" | "SpareBlocksLow") => ", its spare blocks are used up",
            Some("BadBlocksHigh") => ", half of its spare blocks are used up",
            Some("UncorrectableEcc") => ", it loses data",
            _ => "",
        };
        Seen::Bad(Bad { detail: Some(format!("{}{}{more}", wear.device, life.unwrap_or_default())), worse })
    })
}

/// Errors of before the boot are a matter of fsck.
pub(in crate::node) fn file_system_corrupt<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.file_systems.as_ref(), |errors| {
        if !errors.is_new {
            return Seen::Well;
        }
        Seen::Bad(Bad { detail: Some(format!("{}, {} since its last fsck", errors.device, errors.count)), worse: None })
    })
}

/// By the look after the kernel said so.
pub(in crate::node) fn kernel_deadlock<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.kernel.as_ref(), |kernel| match kernel.has_hung {
        None => Seen::Nothing,
        Some(false) => Seen::Well,
        Some(true) => {
            let hung = kernel.all.iter().find(|trouble| trouble.reason == TASK_HUNG);
            Seen::Bad(Bad { detail: hung.map(|trouble| trouble.text.clone()), worse: None })
        }
    })
}

/// Until it is mounted again, as after a reboot.
pub(in crate::node) fn xfs_shut_down<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.kernel.as_ref(), |kernel| match kernel.xfs_shut_down.as_deref() {
        None => Seen::Nothing,
        Some([]) => Seen::Well,
        Some(devices) => Seen::Bad(Bad { detail: Some(devices.join(", ")), worse: None }),
    })
}

/// How far off a clock may be that somebody keeps right.
const MOST_OFF_US: u64 = 1_000_000;

/// By the kernel, which hears of it from the NTP client.
pub(in crate::node) fn clock_wrong<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.wall_clock.as_ref(), |clock| {
        let unset = Worse { reason: "ClockUnset", set_after: Duration::ZERO };
        match (clock.is_unset, clock.is_synchronised) {
            (true, _) => {
                Seen::Bad(Bad { detail: Some("it is before this program was built".to_owned()), worse: Some(unset) })
            }
            (false, false) => Seen::Bad(Bad::default()),
            (false, true) if clock.most_off_us > MOST_OFF_US => {
                let detail = Some(format!("it may be {} s off", clock.most_off_us / MOST_OFF_US));
                Seen::Bad(Bad { detail, worse: None })
            }
            (false, true) => Seen::Well,
        }
    })
}

/// How often the carrier may come and go in ten minutes.
const CARRIER_CHANGES: u64 = 6;
/// What a port did once that does 10 or 100 now. Mb/s.
const FAST_MBPS: u64 = 1000;
/// Below that a Wi-Fi is too weak, dBm.
const WEAK_DBM: i64 = -80;
/// Of ten minutes: more than so many, and than a hundredth of the packets.
const ERRORS: u64 = 100;

pub(in crate::node) fn uplink_degraded<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let most = settings.condition_threshold("UplinkDegraded").map_or(CARRIER_CHANGES, u64::from);
    let after = |reason, minutes: u64| Some(Worse { reason, set_after: Duration::from_secs(60 * minutes) });
    seen(facts.readings.health.uplink.as_ref(), |link| {
        let past = &link.history;
        let (reason, minutes, figure, of) = if past.carrier_changes >= most {
            ("LinkFlapping", 0, past.carrier_changes as i64, "changes of its carrier in ten minutes")
        } else if let Some(before) = &past.moved_from {
            let detail = Some(format!("{}, in the place of {before}", link.interface));
            return Seen::Bad(Bad { detail, worse: after("RouteFailover", 1) });
        } else if past.errors > ERRORS && past.errors > past.packets / 100 {
            ("InterfaceErrors", 0, past.errors as i64, "errors in ten minutes")
        } else if let Some(dbm) = link.signal_dbm.filter(|dbm| *dbm < WEAK_DBM) {
            ("WeakSignal", 5, dbm, "dBm")
        } else if let (Some(mbps @ (10 | 100)), true) = (link.speed_mbps, past.fastest_mbps >= Some(FAST_MBPS)) {
            ("LinkSlow", 1, mbps as i64, "Mb/s, less than before")
        } else {
            return Seen::Well;
        };
        let detail = Some(format!("{}, {figure} {of}", link.interface));
        Seen::Bad(Bad { detail, worse: after(reason, minutes) })
    })
}

/// Of a board with a battery whose other supplies can be seen.
pub(in crate::node) fn on_battery<'a>(facts: &'a Facts, _: &Settings) -> Seen<'a> {
    seen(facts.readings.health.power.as_ref(), |power| match power.on_battery {
        None => Seen::Nothing,
        Some(true) => Seen::Bad(Bad::default()),
        Some(false) => Seen::Well,
    })
}

/// In percent of its capacity, and how much more it has to be to be well again.
const BATTERY_LOW: u64 = 15;
const BATTERY_MARGIN: u64 = 5;

pub(in crate::node) fn battery_low<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
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
pub(in crate::node) const NEAR_CRITICAL: Worse =
    Worse { reason: "NearCriticalTrip", set_after: Duration::from_secs(10) };

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
    use crate::probe::facts::{FileSystemErrors, Power, Thermal, Uplink, UplinkHistory, WallClock, Wear};

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
        assert_eq!(of(&[zone("x", 99, Some(95), None)], None), "bad x at 99 °C", "ten degrees from there to the end");
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
            let wear = Wear { device: "mmcblk0".to_owned(), life_tenths, spare_state, ..Wear::default() };
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
        let wear = Wear { device: "mmcblk0".to_owned(), life_tenths: Some(8), ..Wear::default() };
        facts.readings.health.storage_wear = Some(Ok(wear));
        let mut settings = samples::settings();
        settings.conditions.insert("StorageWearHigh".to_owned(), ConditionSetting::Threshold(70));
        assert!(matches!(storage_wear_high(&facts, &settings), Seen::Bad(_)), "by the settings");
    }

    #[test]
    fn raw_flash_is_worn_sooner_and_by_reads_that_fail() {
        let mut facts = samples::facts();
        let mut of = |tenths, spare, uncorrectable_reads, is_losing_data| {
            let device = "ubi0".to_owned();
            let (life_tenths, spare_state) = (Some(tenths), Some(spare));
            let wear = Wear { device, life_tenths, spare_state, is_raw: true, uncorrectable_reads, is_losing_data };
            facts.readings.health.storage_wear = Some(Ok(wear));
            match storage_wear_high(&facts, &samples::settings()) {
                Seen::Well => "well".to_owned(),
                Seen::Between => "between".to_owned(),
                Seen::Bad(Bad { detail, worse }) => {
                    format!("{} {}", worse.map_or("bad", |worse| worse.reason), detail.unwrap())
                }
                _ => panic!(),
            }
        };
        assert_eq!(of(8, 1, 0, false), "well");
        assert_eq!(of(9, 1, 0, false), "bad ubi0, 80 to 90 % of its life are used up");
        assert_eq!(of(1, 1, 2, false), "between", "nobody knows whether that was in order");
        let life = "ubi0, 0 to 10 % of its life are used up";
        assert_eq!(of(1, 1, 2, true), format!("UncorrectableEcc {life}, it loses data"));
        assert_eq!(of(1, 2, 0, false), format!("BadBlocksHigh {life}, half of its spare blocks are used up"));
        assert_eq!(of(1, 3, 2, true), format!("SpareBlocksExhausted {life}, its spare blocks are used up"));
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
    fn a_clock_is_wrong_that_nobody_keeps_right_or_that_may_be_a_second_off_and_at_once_where_it_was_never_set() {
        let mut facts = samples::facts();
        assert!(matches!(clock_wrong(&facts, &samples::settings()), Seen::Nothing));
        let mut of = |is_unset, is_synchronised, most_off_us| {
            facts.readings.health.wall_clock = Some(Ok(WallClock { is_unset, is_synchronised, most_off_us }));
            match clock_wrong(&facts, &samples::settings()) {
                Seen::Bad(bad) => Some((bad.detail, bad.worse.map(|worse| (worse.reason, worse.set_after)))),
                Seen::Well => None,
                _ => panic!("neither well nor bad"),
            }
        };
        assert_eq!([of(false, true, 0), of(false, true, 1_000_000)], [None, None]);
        assert_eq!(of(false, true, 2_000_000), Some((Some("it may be 2 s off".to_owned()), None)));
        assert_eq!(of(false, false, 16_000_000), Some((None, None)));
        for is_synchronised in [true, false] {
            let worse = of(true, is_synchronised, 0).unwrap().1;
            assert_eq!(worse, Some(("ClockUnset", Duration::ZERO)));
        }
    }

    #[test]
    fn an_uplink_is_poor_for_one_reason_at_a_time_the_worst_first() {
        let mut facts = samples::facts();
        let past = UplinkHistory { packets: 1_000_000, ..UplinkHistory::default() };
        let well = Uplink { interface: "eth0".to_owned(), history: past.clone(), ..Uplink::default() };
        let with = |history| Uplink { history, ..well.clone() };
        let mut settings = samples::settings();
        let mut of = |settings: &Settings, uplink: Uplink| {
            facts.readings.health.uplink = Some(Ok(uplink));
            match uplink_degraded(&facts, settings) {
                Seen::Well => "well".to_owned(),
                Seen::Bad(Bad { detail, worse }) => {
                    let reason = worse.map(|worse| format!("{} {} s ", worse.reason, worse.set_after.as_secs()));
                    format!("{}{}", reason.unwrap_or_default(), detail.unwrap())
                }
                _ => panic!("neither well nor bad"),
            }
        };
        assert_eq!(of(&settings, well.clone()), "well");
        let flapping = |carrier_changes| with(UplinkHistory { carrier_changes, ..past.clone() });
        let came_and_went = "LinkFlapping 0 s eth0, 6 changes of its carrier in ten minutes";
        assert_eq!([of(&settings, flapping(5)), of(&settings, flapping(6))], ["well", came_and_went]);
        let errors = |errors, packets| with(UplinkHistory { errors, packets, ..past.clone() });
        let lost = "InterfaceErrors 0 s eth0, 101 errors in ten minutes";
        assert_eq!([of(&settings, errors(101, 10_000)), of(&settings, errors(101, 10_100))], [lost, "well"]);
        assert_eq!(of(&settings, errors(100, 50)), "well", "too few to tell");
        let signal = |signal_dbm| Uplink { signal_dbm: Some(signal_dbm), ..well.clone() };
        let weak = "WeakSignal 300 s eth0, -81 dBm";
        assert_eq!([of(&settings, signal(-80)), of(&settings, signal(-81))], ["well", weak]);
        let speed = |now, best| {
            let history = UplinkHistory { fastest_mbps: Some(best), ..past.clone() };
            Uplink { speed_mbps: Some(now), history, ..well.clone() }
        };
        let slow = "LinkSlow 60 s eth0, 100 Mb/s, less than before";
        assert_eq!([of(&settings, speed(1000, 2500)), of(&settings, speed(100, 1000))], ["well", slow]);
        assert_eq!(of(&settings, speed(10, 100)), "well", "a port that never had more");
        let moved = UplinkHistory { moved_from: Some("eth1".to_owned()), ..past.clone() };
        assert_eq!(of(&settings, with(moved.clone())), "RouteFailover 60 s eth0, in the place of eth1");
        let all = UplinkHistory { carrier_changes: 6, errors: 101, packets: 0, ..moved };
        let all = Uplink { signal_dbm: Some(-90), ..with(all) };
        assert_eq!(of(&settings, all), came_and_went);
        settings.conditions.insert("UplinkDegraded".to_owned(), ConditionSetting::Threshold(2));
        assert_ne!(of(&settings, flapping(2)), "well", "by the settings");
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
