//! Turns what sensors say, at each threshold and just below it, into what a condition is judged to be by one look.

use super::*;
use crate::node::tests::samples;
use crate::probe::facts::{Absent, FileSystemErrors, Power, Thermal, Uplink, UplinkHistory, WallClock, Wear, Why};

fn zone(kind: &str, degrees: i64, passive: Option<i64>, critical: Option<i64>) -> Zone {
    let [passive_millidegrees, critical_millidegrees] = [passive, critical].map(|trip| trip.map(|at| at * 1000));
    Zone { kind: kind.to_owned(), millidegrees: degrees * 1000, passive_millidegrees, critical_millidegrees }
}

#[test]
fn each_zone_is_judged_by_its_own_trips_and_a_processors_without_any_by_the_defaults() {
    let mut facts = samples::facts();
    let mut of = |zones: &[Zone], slowed_by: Option<&str>| {
        let thermal = Thermal { zones: zones.to_vec(), slowed_by: slowed_by.map(str::to_owned), ..Thermal::default() };
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
    facts.readings.health.thermal = Some(Ok(Thermal { zones: vec![cpu(70)], ..Thermal::default() }));
    let settings = set("ThermalThrottled", ConditionSetting::Threshold(70));
    assert!(matches!(thermal_throttled(&facts, &settings), Seen::Bad(Bad { worse: None, .. })));
    let settings = set("NearCriticalTrip", ConditionSetting::Threshold(70));
    assert!(matches!(thermal_throttled(&facts, &settings), Seen::Bad(Bad { worse: Some(_), .. })));
    facts.readings.health.thermal = Some(Ok(Thermal { zones: vec![cpu(99)], ..Thermal::default() }));
    let settings = set("NearCriticalTrip", ConditionSetting::Off);
    assert!(matches!(thermal_throttled(&facts, &settings), Seen::Bad(Bad { worse: None, .. })));
}

#[test]
fn a_firmware_that_slows_a_board_down_is_a_reason_of_its_own_where_its_temperature_is_none() {
    let mut facts = samples::facts();
    let mut of = |degrees, is_slowed_by_firmware| {
        let zones = vec![zone("cpu-thermal", degrees, None, None)];
        facts.readings.health.thermal = Some(Ok(Thermal { zones, is_slowed_by_firmware, slowed_by: None }));
        match thermal_throttled(&facts, &samples::settings()) {
            Seen::Bad(Bad { worse, .. }) => worse.map_or("bad", |worse| worse.reason),
            Seen::Between => "between",
            _ => "well",
        }
    };
    let silent = || Some(Err(Absent::new("/get_throttled", Why::NoSuchFile)));
    assert_eq!([of(62, None), of(62, silent()), of(62, Some(Ok(false)))], ["well"; 3]);
    assert_eq!([of(62, Some(Ok(true))), of(77, Some(Ok(true)))], ["FirmwareThrottling"; 2]);
    assert_eq!(
        [of(77, silent()), of(81, Some(Ok(true))), of(86, Some(Ok(true)))],
        ["between", "bad", "NearCriticalTrip"]
    );
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
    let settings = set("StorageWearHigh", ConditionSetting::Threshold(70));
    assert!(matches!(storage_wear_high(&facts, &settings), Seen::Bad(_)), "by the settings");
}

#[test]
fn raw_flash_is_worn_sooner_and_by_reads_that_fail() {
    let mut facts = samples::facts();
    let mut by = |settings: Settings, tenths, spare, uncorrectable_reads, is_losing_data| {
        let device = "ubi0".to_owned();
        let (life_tenths, spare_state) = (Some(tenths), Some(spare));
        let wear = Wear { device, life_tenths, spare_state, is_raw: true, uncorrectable_reads, is_losing_data };
        facts.readings.health.storage_wear = Some(Ok(wear));
        match storage_wear_high(&facts, &settings) {
            Seen::Well => "well".to_owned(),
            Seen::Between => "between".to_owned(),
            Seen::Bad(Bad { detail, worse }) => {
                format!("{} {}", worse.map_or("bad", |worse| worse.reason), detail.unwrap())
            }
            _ => panic!(),
        }
    };
    let off = |reason| set(reason, ConditionSetting::Off);
    assert_eq!(by(off("UncorrectableEcc"), 1, 1, 2, true), "well", "whatever it says of its reads");
    assert_eq!(by(off("BadBlocksHigh"), 1, 2, 0, false), "well");
    assert!(by(off("BadBlocksHigh"), 1, 3, 0, false).starts_with("SpareBlocksExhausted"));
    let mut of = |tenths, spare, uncorrectable_reads, is_losing_data| {
        by(samples::settings(), tenths, spare, uncorrectable_reads, is_losing_data)
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
        facts.readings.health.file_systems = Some(Ok(FileSystemErrors { device: "sda1".to_owned(), count, is_new }));
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
    let settings = set("NTPProblem", ConditionSetting::Threshold(5));
    for (most_off_us, is_well) in [(5_000_000, true), (5_000_001, false)] {
        let clock = WallClock { is_unset: false, is_synchronised: true, most_off_us };
        facts.readings.health.wall_clock = Some(Ok(clock));
        assert_eq!(matches!(clock_wrong(&facts, &settings), Seen::Well), is_well, "{most_off_us}");
    }
}

/// What is seen of a link: well, or the reason, after how long, and of what.
fn link(settings: &Settings, uplink: Uplink) -> String {
    let mut facts = samples::facts();
    facts.readings.health.uplink = Some(Ok(uplink));
    match uplink_degraded(&facts, settings) {
        Seen::Well => "well".to_owned(),
        Seen::Bad(Bad { detail, worse }) => {
            let reason = worse.map(|worse| format!("{} {} s ", worse.reason, worse.set_after.as_secs()));
            format!("{}{}", reason.unwrap_or_default(), detail.unwrap())
        }
        _ => panic!("neither well nor bad"),
    }
}

/// One that has had nothing but a million packets.
fn past() -> UplinkHistory {
    UplinkHistory { packets: 1_000_000, ..UplinkHistory::default() }
}

fn with_past(history: UplinkHistory) -> Uplink {
    Uplink { interface: "eth0".to_owned(), history, ..Uplink::default() }
}

fn flapping(carrier_changes: u64) -> Uplink {
    with_past(UplinkHistory { carrier_changes, ..past() })
}

fn with_errors(errors: u64, packets: u64) -> Uplink {
    with_past(UplinkHistory { errors, packets, ..past() })
}

fn with_signal(dbm: i64) -> Uplink {
    Uplink { signal_dbm: Some(dbm), ..with_past(past()) }
}

fn with_speed(now_mbps: u64, best_mbps: u64) -> Uplink {
    let history = UplinkHistory { fastest_mbps: Some(best_mbps), ..past() };
    Uplink { speed_mbps: Some(now_mbps), ..with_past(history) }
}

const CAME_AND_WENT: &str = "LinkFlapping 0 s eth0, 6 changes of its carrier in ten minutes";
const LOST: &str = "InterfaceErrors 0 s eth0, 101 errors in ten minutes";
const MOVED: &str = "RouteFailover 60 s eth0, in the place of eth1";
const SLOW: &str = "LinkSlow 60 s eth0, 100 Mb/s, less than before";

#[test]
fn an_uplink_is_poor_from_the_threshold_of_each_reason_on() {
    let of = |uplink| link(&samples::settings(), uplink);
    assert_eq!(of(with_past(past())), "well");
    assert_eq!([of(flapping(5)), of(flapping(6))], ["well", CAME_AND_WENT]);
    assert_eq!([of(with_errors(101, 10_000)), of(with_errors(101, 10_100))], [LOST, "well"]);
    assert_eq!(of(with_errors(100, 50)), "well", "too few to tell");
    assert_eq!([of(with_signal(-80)), of(with_signal(-81))], ["well", "WeakSignal 300 s eth0, -81 dBm"]);
    assert_eq!([of(with_speed(1000, 2500)), of(with_speed(100, 1000))], ["well", SLOW]);
    assert_eq!(of(with_speed(10, 100)), "well", "a port that never had more");
    let moved = UplinkHistory { moved_from: Some("eth1".to_owned()), ..past() };
    assert_eq!(of(with_past(moved)), MOVED);
}

#[test]
fn an_uplink_is_poor_for_one_reason_at_a_time_the_worst_first_of_those_that_are_on() {
    let moved_from = Some("eth1".to_owned());
    let past = UplinkHistory { carrier_changes: 6, errors: 101, packets: 0, moved_from, fastest_mbps: Some(1000) };
    let all = Uplink { signal_dbm: Some(-90), speed_mbps: Some(100), ..with_past(past) };
    let mut settings = samples::settings();
    assert_eq!(link(&settings, all.clone()), CAME_AND_WENT);
    for (off, next) in [
        ("LinkFlapping", MOVED),
        ("RouteFailover", LOST),
        ("InterfaceErrors", "WeakSignal 300 s eth0, -90 dBm"),
        ("WeakSignal", SLOW),
        ("LinkSlow", "well"),
    ] {
        settings.conditions.insert(off.to_owned(), ConditionSetting::Off);
        assert_eq!(link(&settings, all.clone()), next, "without {off}");
    }
}

#[test]
fn each_threshold_of_an_uplink_is_a_setting() {
    let is_well =
        |reason, threshold, uplink| link(&set(reason, ConditionSetting::Threshold(threshold)), uplink) == "well";
    assert_eq!([1, 2].map(|changes| is_well("LinkFlapping", 2, flapping(changes))), [true, false]);
    assert_eq!([1, 2].map(|changes| is_well("UplinkDegraded", 2, flapping(changes))), [true, false]);
    assert_eq!([50, 51].map(|errors| is_well("InterfaceErrors", 50, with_errors(errors, 0))), [true, false]);
    assert_eq!([-85, -86].map(|dbm| is_well("WeakSignal", -85, with_signal(dbm))), [true, false]);
    assert_eq!([100, 10].map(|mbps| is_well("LinkSlow", 100, with_speed(mbps, 1000))), [true, false]);
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

/// With this one setting.
fn set(name: &str, setting: ConditionSetting) -> Settings {
    let mut settings = samples::settings();
    settings.conditions.insert(name.to_owned(), setting);
    settings
}

fn undervoltage_of(facts: &Facts) -> Seen<'_> {
    undervoltage(facts, &samples::settings())
}
