//! Turns the map `conditions` into which conditions of the board are judged, and by which thresholds.

use std::ops::RangeInclusive;

use super::field::Field;
use super::nearest::unknown;
use super::problem::{Findings, Problem, quoted};
use super::text_map::TextMap;

/// What is set of a condition; of one that is not named here, all is as by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionSetting {
    Off,
    /// In the unit of this condition.
    Threshold(u32),
}

pub type PerCondition = TextMap<ConditionSetting>;

/// Those that can be switched off, each with its threshold, if it has one: what it may be.
const CONDITIONS: [(&str, Option<RangeInclusive<u32>>); 11] = [
    ("FilesystemCorruptionProblem", None),
    ("KernelDeadlock", None),
    ("NTPProblem", None),
    ("Undervoltage", None),
    // °C.
    ("ThermalThrottled", Some(40..=120)),
    // Percent of an eMMC's life, which counts in tenths.
    ("StorageWearHigh", Some(10..=100)),
    // How often the carrier comes or goes in ten minutes.
    ("UplinkDegraded", Some(2..=100)),
    ("OnBattery", None),
    // Percent of its capacity.
    ("BatteryLow", Some(1..=95)),
    ("UnexpectedReboot", None),
    ("XfsShutdown", None),
];

pub(super) fn conditions(map: &Field<'_>, findings: &mut Findings) -> Result<PerCondition, Problem> {
    let mut all = PerCondition::new();
    for (key, entry) in map.entries() {
        let Some((name, range)) = CONDITIONS.iter().find(|(name, _)| *name == key) else {
            let names = CONDITIONS.each_ref().map(|(name, _)| *name);
            let otherwise = format!("the conditions are {}", names.join(", "));
            findings.refuse(entry.problem(unknown("condition", key, names, &otherwise)));
            continue;
        };
        if let Some(Some(setting)) = findings.accept(one(&entry, range.as_ref())) {
            all.insert((*name).to_owned(), setting);
        }
    }
    Ok(all)
}

fn one(entry: &Field<'_>, range: Option<&RangeInclusive<u32>>) -> Result<Option<ConditionSetting>, Problem> {
    let text = entry.text()?.unwrap_or_default();
    let threshold = text.parse().ok().filter(|number| range.is_some_and(|range| range.contains(number)));
    match (text, threshold, range) {
        ("false", ..) => Ok(Some(ConditionSetting::Off)),
        ("true", ..) => Ok(None),
        (_, Some(threshold), _) => Ok(Some(ConditionSetting::Threshold(threshold))),
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
        assert_eq!(load("  Undervoltage: true\n"), Ok(PerCondition::new()), "as by default");
    }

    #[test]
    fn what_no_condition_can_be_is_refused_with_what_it_can() {
        for (body, words) in [
            ("  Undervoltage: 4\n", "must be true or false, not \"4\""),
            ("  ThermalThrottled: 20\n", "must be true, false, or a whole number from 40 to 120, not \"20\""),
            ("  Undervoltge: false\n", "unknown condition \"Undervoltge\": did you mean Undervoltage?"),
            ("  Ready: false\n", "unknown condition \"Ready\""),
        ] {
            let problems = load(body).unwrap_err();
            assert!(problems.iter().any(|problem| problem.contains(words)), "{body}: {problems:?}");
        }
    }
}
