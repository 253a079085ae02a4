//! Turns the map `conditions` into which conditions of the board are judged, for which reasons, and by which thresholds.

use std::ops::RangeInclusive;

use super::field::Field;
use super::nearest::unknown;
use super::problem::{Findings, Problem, quoted};
use super::text_map::TextMap;

/// What is set of a condition or of one of its reasons; of what is not named here, all is as by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionSetting {
    On,
    Off,
    /// In the unit of this condition or reason.
    Threshold(i64),
}

pub type PerCondition = TextMap<ConditionSetting>;

/// The conditions that can be switched off, and the reasons, each with its threshold, if it has one: what it may be.
const NAMES: [(&str, Option<RangeInclusive<i64>>); 20] = [
    ("FilesystemCorruptionProblem", None),
    ("KernelDeadlock", None),
    // How many seconds off a clock may be that somebody keeps right.
    ("NTPProblem", Some(1..=3600)),
    ("Undervoltage", None),
    // °C.
    ("ThermalThrottled", Some(40..=120)),
    ("NearCriticalTrip", Some(40..=120)),
    // Off by default.
    ("FirmwareThrottling", None),
    // Percent of an eMMC's life, which counts in tenths.
    ("StorageWearHigh", Some(10..=100)),
    ("BadBlocksHigh", None),
    ("UncorrectableEcc", None),
    // How often the carrier comes or goes in ten minutes; by the name of the condition since before reasons had names here.
    ("UplinkDegraded", Some(2..=100)),
    ("LinkFlapping", Some(2..=100)),
    ("RouteFailover", None),
    // In ten minutes.
    ("InterfaceErrors", Some(1..=1_000_000)),
    // dBm.
    ("WeakSignal", Some(-100..=-30)),
    // Mb/s that the port once did.
    ("LinkSlow", Some(100..=100_000)),
    ("OnBattery", None),
    // Percent of its capacity.
    ("BatteryLow", Some(1..=95)),
    ("UnexpectedReboot", None),
    ("XfsShutdown", None),
];

pub(super) fn conditions(map: &Field<'_>, findings: &mut Findings) -> Result<PerCondition, Problem> {
    let mut all = PerCondition::new();
    for (key, entry) in map.entries() {
        let Some((name, range)) = NAMES.iter().find(|(name, _)| *name == key) else {
            let names = NAMES.each_ref().map(|(name, _)| *name);
            let otherwise = format!("the conditions and reasons are {}", names.join(", "));
            findings.refuse(entry.problem(unknown("condition or reason", key, &mut names.into_iter(), &otherwise)));
            continue;
        };
        if let Some(setting) = findings.accept(one(&entry, range.as_ref())) {
            all.insert((*name).to_owned(), setting);
        }
    }
    Ok(all)
}

fn one(entry: &Field<'_>, range: Option<&RangeInclusive<i64>>) -> Result<ConditionSetting, Problem> {
    let text = entry.text()?.unwrap_or_default();
    let threshold = text.parse().ok().filter(|number| range.is_some_and(|range| range.contains(number)));
    match (text, threshold, range) {
        ("false", ..) => Ok(ConditionSetting::Off),
        ("true", ..) => Ok(ConditionSetting::On),
        (_, Some(threshold), _) => Ok(ConditionSetting::Threshold(threshold)),
        (_, None, None) => Err(entry.problem(format!("must be true or false, not {}", quoted(text)))),
        (_, None, Some(range)) => {
            let (least, most) = (range.start(), range.end());
            let must = format!("must be true, false, or a whole number from {least} to {most}");
            Err(entry.problem(format!("{must}, not {}", quoted(text))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(body: &str) -> Result<PerCondition, Vec<String>> {
        let text = format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nconditions:\n{body}");
        match crate::config::settings(Some(("f", &text)), &[]) {
            Ok(loaded) => Ok(loaded.settings.conditions),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_condition_is_switched_off_or_gets_another_threshold() {
        let all = load("  Undervoltage: false\n  ThermalThrottled: 70\n").unwrap();
        let expected = [("Undervoltage", ConditionSetting::Off), ("ThermalThrottled", ConditionSetting::Threshold(70))];
        assert_eq!(all, expected.map(|(name, setting)| (name.to_owned(), setting)).into());
        let on = |body| load(body).unwrap().values().copied().collect::<Vec<_>>();
        assert_eq!(on("  FirmwareThrottling: true\n"), [ConditionSetting::On]);
    }

    #[test]
    fn what_no_condition_can_be_is_refused_with_what_it_can() {
        for (body, words) in [
            ("  Undervoltage: 4\n", "must be true or false, not \"4\""),
            ("  ThermalThrottled: 20\n", "must be true, false, or a whole number from 40 to 120, not \"20\""),
            ("  WeakSignal: 80\n", "must be true, false, or a whole number from -100 to -30, not \"80\""),
            ("  Undervoltge: false\n", "unknown condition or reason \"Undervoltge\": did you mean Undervoltage?"),
            ("  Ready: false\n", "unknown condition or reason \"Ready\""),
        ] {
            let problems = load(body).unwrap_err();
            assert!(problems.iter().any(|problem| problem.contains(words)), "{body}: {problems:?}");
        }
    }
}
