//! Turns thermal zones, a processor's own sensor, its cooling devices, its throttle count and the state of its firmware into how
//! hot the board is and what slows it down.
//!
//! ```text
//! /sys/class/thermal/thermal_zone0/type               cpu-thermal\n
//! /sys/class/thermal/thermal_zone0/temp               47400\n        m°C
//! /sys/class/thermal/thermal_zone0/trip_point_0_type  passive\n
//! /sys/class/thermal/thermal_zone0/trip_point_0_temp  80000\n
//! /sys/class/thermal/cooling_device0/type             thermal-cpufreq-0\n
//! /sys/class/thermal/cooling_device0/cur_state        0\n            0: not at all
//! /sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count   30\n   since the boot; x86 alone
//! /sys/devices/platform/soc/soc:firmware/get_throttled   50005\n   hexadecimal bits; Raspberry Pi alone
//! ```

use std::time::Duration;

use super::attribute;
use super::facts::{Absent, Fact, Thermal, Why, Zone};
use super::root::{OpenFile, Root};
use crate::config::limits;
use crate::time::Up;

const CLASS: &str = "/sys/class/thermal";
const HWMON: &str = "/sys/class/hwmon";
/// How often a package of an x86 has slowed itself down, whatever the kernel wanted of it.
const THROTTLE_COUNT: &str = "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
/// It counts the begin of each time; it is taken to last for so long.
const THROTTLED_FOR: Duration = Duration::from_secs(60);
/// Sensors of a processor for boards without zones (VisionFive 2).
const PROCESSORS: [&str; 3] = ["coretemp", "k10temp", "sfctemp"];
/// What the firmware of a Raspberry Pi limits, in the kernels of its makers. They log a warning with a stack trace when it is read
/// for the first time since the boot, so it is read where the settings ask for it.
const FIRMWARE_STATE: &str = "/sys/devices/platform/soc/soc:firmware/get_throttled";
/// Of its bits: the clock is capped, or the processor throttled, now.
const SLOWED_DOWN: u32 = 0b110;
/// Constant, of something else than the processor, or asked over a slow bus. A last `-` stands for an end.
const IGNORED: [&str; 9] =
    ["pmic-die", "thermal-fan-est", "battery", "pa_therm", "iwlwifi", "wifi", "mt79", "modem", "-usr"];
/// No board runs outside of these, m°C.
const PLAUSIBLE: std::ops::RangeInclusive<i64> = -40_000..=150_000;
/// What a trip point may be, m°C; others are not set.
const PASSIVE_TRIPS: std::ops::RangeInclusive<i64> = 50_000..=120_000;
const CRITICAL_TRIPS: std::ops::RangeInclusive<i64> = 60_000..=150_000;

/// The files of them, kept open.
#[derive(Debug, Default)]
pub(super) struct ThermalFiles {
    zones: Vec<ZoneFile>,
    cooling: Vec<(String, OpenFile)>,
    throttling: Option<Throttling>,
    firmware: Option<OpenFile>,
}

/// What a processor does against its heat by itself.
#[derive(Debug)]
struct Throttling {
    file: OpenFile,
    count: Option<u64>,
    until: Up,
}

#[derive(Debug)]
struct ZoneFile {
    /// As of [`Zone`], before it is read.
    kind: String,
    passive_millidegrees: Option<i64>,
    critical_millidegrees: Option<i64>,
    temperature: OpenFile,
}

impl ThermalFiles {
    /// What there is; `None` without any. What was known stays where all of it is gone: it has stopped to answer.
    pub(super) fn search(root: &Root, known: Option<ThermalFiles>) -> Option<ThermalFiles> {
        let mut found = ThermalFiles::default();
        for name in root.list(CLASS).unwrap_or_default() {
            let folder = format!("{CLASS}/{name}");
            let kind = root.read_text(&format!("{folder}/type")).unwrap_or_default();
            if name.starts_with("cooling_device") && slows_processor(&kind) {
                found.cooling.push((kind, OpenFile::new(format!("{folder}/cur_state"))));
            } else if name.starts_with("thermal_zone") && !is_ignored(&kind) {
                let is_off = root.read_text(&format!("{folder}/mode")).is_ok_and(|mode| mode == "disabled");
                found.zones.extend((!is_off).then(|| ZoneFile::of_zone(root, &folder, kind)));
            }
        }
        let has_no_zone = found.zones.is_empty();
        for name in root.list(HWMON).unwrap_or_default().into_iter().filter(|_| has_no_zone) {
            let folder = format!("{HWMON}/{name}");
            let kind = root.read_text(&format!("{folder}/name")).unwrap_or_default();
            if PROCESSORS.contains(&kind.as_str()) {
                found.zones.push(ZoneFile::of_processor(root, &folder, kind));
            }
        }
        if found.zones.is_empty() {
            return known;
        }
        let open = || root.read_text(THROTTLE_COUNT).is_ok().then(Throttling::new);
        found.throttling = known.and_then(|known| known.throttling).or_else(open);
        Some(found)
    }

    /// What they say now. One zone that can be believed is enough; else the reason of the first that cannot.
    /// The firmware is asked only where somebody wants that.
    pub(super) fn read(&mut self, root: &Root, asks_firmware: bool, now: Up) -> Fact<Thermal> {
        let mut refused = None;
        let mut zones = Vec::with_capacity(self.zones.len());
        for file in &mut self.zones {
            match file.temperature.read_as(root, attribute::number) {
                Ok(millidegrees) => zones.push(file.zone(millidegrees)),
                Err(absent) => refused = refused.or(Some(absent)),
            }
        }
        in_millidegrees(&mut zones);
        let hottest = zones.iter().map(|zone| zone.millidegrees).filter(|it| PLAUSIBLE.contains(it)).max();
        let warm = hottest.is_some_and(|hottest| hottest > 15_000);
        zones.retain(|zone| PLAUSIBLE.contains(&zone.millidegrees) && (!warm || zone.millidegrees.abs() >= 1000));
        if zones.is_empty() {
            let path = self.zones.first().map_or(CLASS, |file| &file.temperature.path);
            let lies = || Absent::new(path, Why::Implausible("no temperature of a board".to_owned()));
            return Err(refused.unwrap_or_else(lies));
        }
        let slowed_by = self.cooling.iter_mut().find_map(|(kind, state)| {
            let slows = state.read_as(root, attribute::number).is_ok_and(|state| state > 0);
            slows.then(|| kind.clone())
        });
        let throttles = self.throttling.as_mut().is_some_and(|throttling| throttling.goes_on(root, now));
        let itself = || throttles.then(|| "the processor itself".to_owned());
        let is_slowed_by_firmware = asks_firmware.then(|| {
            let state = self.firmware.get_or_insert_with(|| OpenFile::new(FIRMWARE_STATE));
            state.read_as(root, attribute::bits).map(|bits| bits & SLOWED_DOWN != 0)
        });
        Ok(Thermal { zones, slowed_by: slowed_by.or_else(itself), is_slowed_by_firmware })
    }
}

impl Throttling {
    fn new() -> Throttling {
        Throttling { file: OpenFile::new(THROTTLE_COUNT.to_owned()), count: None, until: Up::BOOT }
    }

    fn goes_on(&mut self, root: &Root, now: Up) -> bool {
        let count = self.file.count(root).ok();
        if self.count.is_some_and(|before| count.is_some_and(|count| count > before)) {
            self.until = now + THROTTLED_FOR;
        }
        self.count = count.or(self.count);
        now < self.until
    }
}

impl ZoneFile {
    fn of_zone(root: &Root, folder: &str, kind: String) -> ZoneFile {
        let (mut passive, mut critical) = (None, None);
        // Their numbers change from kernel to kernel.
        for number in 0..limits::TRIP_POINTS {
            let trip = format!("{folder}/trip_point_{number}");
            let Ok(of) = root.read_text(&format!("{trip}_type")) else { break };
            let Ok(at) = root.read_as(&format!("{trip}_temp"), |text| attribute::number(&text)) else { continue };
            let (lowest, is_set) = match of.as_str() {
                "passive" => (&mut passive, PASSIVE_TRIPS.contains(&at)),
                "critical" => (&mut critical, CRITICAL_TRIPS.contains(&at)),
                _ => continue,
            };
            if is_set {
                *lowest = Some(lowest.map_or(at, |lowest: i64| lowest.min(at)));
            }
        }
        let temperature = OpenFile::new(format!("{folder}/temp"));
        ZoneFile { kind, passive_millidegrees: passive, critical_millidegrees: critical, temperature }
    }

    fn of_processor(root: &Root, folder: &str, kind: String) -> ZoneFile {
        let critical = root.read_as(&format!("{folder}/temp1_crit"), |text| attribute::number(&text)).ok();
        ZoneFile {
            kind,
            passive_millidegrees: None,
            critical_millidegrees: critical.filter(|at| CRITICAL_TRIPS.contains(at)),
            temperature: OpenFile::new(format!("{folder}/temp1_input")),
        }
    }

    fn zone(&self, millidegrees: i64) -> Zone {
        let ZoneFile { kind, passive_millidegrees, critical_millidegrees, .. } = self;
        Zone {
            kind: kind.clone(),
            millidegrees,
            passive_millidegrees: *passive_millidegrees,
            critical_millidegrees: *critical_millidegrees,
        }
    }
}

/// Some modems' kernels count in degrees, and then in all zones. Nobody else is taken for one of them: a genuine 0.1 °C would
/// become 100 °C.
fn in_millidegrees(zones: &mut [Zone]) {
    let is_of_qualcomm = zones.iter().any(|zone| zone.kind.starts_with("tsens"));
    if is_of_qualcomm && zones.iter().all(|zone| (1..=150).contains(&zone.millidegrees)) {
        zones.iter_mut().for_each(|zone| zone.millidegrees *= 1000);
    }
}

fn is_ignored(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    IGNORED.iter().any(|ignored| match ignored.strip_prefix('-') {
        Some(_) => kind.ends_with(ignored),
        None => kind.starts_with(ignored),
    })
}

/// A fan does not.
fn slows_processor(kind: &str) -> bool {
    kind.contains("cpufreq") || kind == "Processor"
}
