//! Turns what one look at a sensor says into well or bad, by the thresholds of each condition of the board.

use std::time::Duration;

use super::{Bad, Seen, Worse};
use crate::config::Settings;
use crate::config::settings::ConditionSetting;
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
    let limit = |name, default| match settings.conditions.get(name) {
        None | Some(ConditionSetting::On) => default,
        Some(ConditionSetting::Off) => i64::MAX,
        Some(ConditionSetting::Threshold(degrees)) => degrees * 1000,
    };
    seen(facts.readings.health.thermal.as_ref(), |thermal| {
        let mut is_warm = false;
        let mut hot = None;
        for zone in &thermal.zones {
            let Some((passive, critical)) = limits_of(zone) else { continue };
            let (passive, near) = (limit("ThermalThrottled", passive), limit("NearCriticalTrip", critical - MARGIN));
            is_warm |= zone.millidegrees >= passive - MARGIN;
            let worse = (zone.millidegrees >= near).then_some(NEAR_CRITICAL);
            if worse.is_some() || hot.is_none() && zone.millidegrees >= passive {
                hot = Some(Bad { detail: Some(text_of(zone)), worse });
            }
        }
        match (hot, &thermal.slowed_by) {
            (Some(bad), _) => Seen::Bad(bad),
            (None, _) if thermal.is_slowed_by_firmware == Some(Ok(true)) => {
                let worse = Worse { reason: "FirmwareThrottling", set_after: Duration::from_secs(30) };
                Seen::Bad(Bad { detail: Some("slowed down by its firmware".to_owned()), worse: Some(worse) })
            }
            (None, Some(by)) => Seen::Bad(Bad { detail: Some(format!("slowed down by {by}")), worse: None }),
            (None, None) if is_warm => Seen::Between,
            (None, None) => Seen::Well,
        }
    })
}

/// In percent of the life of a device that says itself how much of it is used up.
const LIFE_NEARLY_USED: i64 = 90;
/// The same of raw flash, where that is the block which is worn most.
const ERASES_NEARLY_USED: i64 = 80;

/// Of what only grows: one that says less belongs to another device. But reads that failed are counted from each boot on, and
/// whether those of before the first look were in order nobody knows.
pub(in crate::node) fn storage_wear_high<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    seen(facts.readings.health.storage_wear.as_ref(), |wear| {
        let default = if wear.is_raw { ERASES_NEARLY_USED } else { LIFE_NEARLY_USED };
        let nearly_used = settings.threshold("StorageWearHigh", default).unwrap_or(i64::MAX);
        let tenths = wear.life_tenths.unwrap_or(0);
        let is_on = |reason| !settings.is_condition_off(reason);
        let reason = match wear.spare_state {
            Some(3) => Some("SpareBlocksExhausted"),
            _ if tenths > 10 => Some("LifetimeExceeded"),
            _ if wear.is_losing_data && is_on("UncorrectableEcc") => Some("UncorrectableEcc"),
            Some(2) if !wear.is_raw => Some("SpareBlocksLow"),
            Some(2) if is_on("BadBlocksHigh") => Some("BadBlocksHigh"),
            _ => None,
        };
        let worse = reason.map(|reason| Worse { reason, set_after: Duration::from_secs(3600) });
        if worse.is_none() && i64::from(tenths) <= nearly_used / 10 {
            let is_in_order = wear.uncorrectable_reads == 0 || !is_on("UncorrectableEcc");
            return if is_in_order { Seen::Well } else { Seen::Between };
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

/// How many seconds off a clock may be that somebody keeps right.
const MOST_OFF: i64 = 1;

/// By the kernel, which hears of it from the NTP client.
pub(in crate::node) fn clock_wrong<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let most_off = settings.threshold("NTPProblem", MOST_OFF).unwrap_or(i64::MAX);
    let most_off = Duration::from_secs(most_off.unsigned_abs());
    seen(facts.readings.health.wall_clock.as_ref(), |clock| {
        let unset = Worse { reason: "ClockUnset", set_after: Duration::ZERO };
        match (clock.is_unset, clock.is_synchronised) {
            (true, _) => {
                Seen::Bad(Bad { detail: Some("it is before this program was built".to_owned()), worse: Some(unset) })
            }
            (false, false) => Seen::Bad(Bad::default()),
            (false, true) if Duration::from_micros(clock.most_off_us) > most_off => {
                let detail = Some(format!("it may be {} s off", clock.most_off_us / 1_000_000));
                Seen::Bad(Bad { detail, worse: None })
            }
            (false, true) => Seen::Well,
        }
    })
}

/// How often the carrier may come and go in ten minutes.
const CARRIER_CHANGES: i64 = 6;
/// What a port did once that does less now. Mb/s.
const FAST_MBPS: i64 = 1000;
/// Below that a Wi-Fi is too weak, dBm.
const WEAK_DBM: i64 = -80;
/// Of ten minutes: more than so many, and than a hundredth of the packets.
const ERRORS: i64 = 100;

pub(in crate::node) fn uplink_degraded<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let never = i64::MAX;
    let limit = |name, default| settings.threshold(name, default);
    let most = limit("UplinkDegraded", CARRIER_CHANGES).unwrap_or(never);
    let after = |reason, minutes: u64| Some(Worse { reason, set_after: Duration::from_secs(60 * minutes) });
    seen(facts.readings.health.uplink.as_ref(), |link| {
        let past = &link.history;
        let fast =
            limit("LinkSlow", FAST_MBPS).filter(|fast| past.fastest_mbps.is_some_and(|mbps| mbps as i64 >= *fast));
        let (changes, errors, packets) = (past.carrier_changes as i64, past.errors as i64, past.packets as i64);
        let (reason, minutes, figure, of) = if changes >= limit("LinkFlapping", most).unwrap_or(never) {
            ("LinkFlapping", 0, changes, "changes of its carrier in ten minutes")
        } else if let Some(before) = past.moved_from.as_ref().filter(|_| !settings.is_condition_off("RouteFailover")) {
            let detail = Some(format!("{}, in the place of {before}", link.interface));
            return Seen::Bad(Bad { detail, worse: after("RouteFailover", 1) });
        } else if errors > limit("InterfaceErrors", ERRORS).unwrap_or(never).max(packets / 100) {
            ("InterfaceErrors", 0, errors, "errors in ten minutes")
        } else if let Some(dbm) = link.signal_dbm.filter(|dbm| Some(*dbm) < limit("WeakSignal", WEAK_DBM)) {
            ("WeakSignal", 5, dbm, "dBm")
        } else if let Some(mbps) = link.speed_mbps.map(|mbps| mbps as i64).filter(|mbps| Some(*mbps) < fast) {
            ("LinkSlow", 1, mbps, "Mb/s, less than before")
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
const BATTERY_LOW: i64 = 15;
const BATTERY_MARGIN: i64 = 5;

pub(in crate::node) fn battery_low<'a>(facts: &'a Facts, settings: &Settings) -> Seen<'a> {
    let low = settings.threshold("BatteryLow", BATTERY_LOW).unwrap_or(0);
    seen(facts.readings.health.power.as_ref(), |power| match power.capacity_percent as i64 {
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
mod tests;
