//! Reads the kubelet's four eviction maps into thresholds (EVI-1, EVI-2).

use std::collections::BTreeMap;

use super::duration;
use super::nearest::nearest;
use super::problem::{Report, quoted};
use super::quantity::Quantity;
use super::settings::{Eviction, Settings, Signal, Threshold};
use super::yaml::Entry;

/// The signals that this agent observes.
const SIGNALS: [(&str, Signal); 4] = [
    ("memory.available", Signal::MemoryAvailable),
    ("nodefs.available", Signal::NodefsAvailable),
    ("nodefs.inodesFree", Signal::NodefsInodesFree),
    ("pid.available", Signal::PidAvailable),
];

/// Signals of the kubelet that need a container runtime.
const RUNTIME_SIGNALS: [&str; 5] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
];

/// [`Eviction::default`] for people; the memory threshold has no text in a file (D7).
pub(super) const DEFAULT_TEXT: &str =
    "nodefs.available: 10%, nodefs.inodesFree: 5%, memory.available: the lesser of 100Mi and 10%";

/// `evictionHard`: replaces all defaults, unless `mergeDefaultEvictionSettings` keeps them (EVI-2).
pub(super) fn hard(to: &mut Settings, entries: &[Entry], report: &mut Report<'_>) {
    to.eviction.hard = if to.eviction.merge_defaults { Eviction::default().hard } else { BTreeMap::new() };
    each_signal(entries, report, |signal, text| {
        match pressure_threshold(text)? {
            Some(threshold) => to.eviction.hard.insert(signal, threshold),
            None => to.eviction.hard.remove(&signal),
        };
        Ok(())
    });
}

pub(super) fn soft(to: &mut Settings, entries: &[Entry], report: &mut Report<'_>) {
    to.eviction.soft.clear();
    each_signal(entries, report, |signal, text| {
        to.eviction.soft.extend(pressure_threshold(text)?.map(|threshold| (signal, threshold)));
        Ok(())
    });
}

pub(super) fn soft_grace_period(to: &mut Settings, entries: &[Entry], report: &mut Report<'_>) {
    to.eviction.soft_grace_period.clear();
    each_signal(entries, report, |signal, text| {
        let period = duration::parse(text).map_err(|wrong| format!("{} {wrong}", quoted(text)))?;
        to.eviction.soft_grace_period.insert(signal, period);
        Ok(())
    });
}

/// `evictionMinimumReclaim`: a quantity may be zero, a percentage may not.
pub(super) fn minimum_reclaim(to: &mut Settings, entries: &[Entry], report: &mut Report<'_>) {
    to.eviction.minimum_reclaim.clear();
    each_signal(entries, report, |signal, text| {
        let threshold = threshold(text)?;
        match threshold {
            Threshold::Percentage(0.0) => return Err("must be more than 0%".to_owned()),
            Threshold::Quantity(amount) if amount < 0 => {
                return Err(format!("must not be negative, as {} is", quoted(text)));
            }
            _ => to.eviction.minimum_reclaim.insert(signal, threshold),
        };
        Ok(())
    });
}

/// Names of the signals with a soft threshold and without its grace period.
pub(super) fn without_grace_period(eviction: &Eviction) -> impl Iterator<Item = &'static str> {
    let lacks = |signal| eviction.soft.contains_key(signal) && !eviction.soft_grace_period.contains_key(signal);
    SIGNALS.iter().filter(move |(_, signal)| lacks(signal)).map(|(name, _)| *name)
}

/// Calls `read` for every signal that this agent has; tells or refuses the others.
fn each_signal(entries: &[Entry], report: &mut Report<'_>, mut read: impl FnMut(Signal, &str) -> Result<(), String>) {
    for Entry { key, line, value } in entries {
        let signal = SIGNALS.iter().find(|(name, _)| name == key).map(|(_, signal)| *signal);
        let outcome = match (signal, value.as_text()) {
            (Some(signal), Some(text)) => read(signal, text),
            (Some(_), None) => Err(format!("must be a single value, not {}", value.kind())),
            (None, _) if RUNTIME_SIGNALS.contains(&key.as_str()) => {
                let text = "has no effect: there are no images, containers or pods here";
                report.notice(*line, &format!(".{key}"), text.to_owned());
                Ok(())
            }
            (None, _) => {
                report.refuse_part(*line, "", unknown_signal(key));
                Ok(())
            }
        };
        if let Err(wrong) = outcome {
            report.refuse_part(*line, &format!(".{key}"), wrong);
        }
    }
}

fn unknown_signal(key: &str) -> String {
    let names = SIGNALS.map(|(name, _)| name);
    match nearest(key, names) {
        Some(name) => format!("unknown signal {}: did you mean {name}?", quoted(key)),
        None => format!("unknown signal {}: the signals are {}", quoted(key), names.join(", ")),
    }
}

/// What a signal has to fall below to mean pressure; `None` switches the signal off (`0%` and `100%`).
fn pressure_threshold(text: &str) -> Result<Option<Threshold>, String> {
    match threshold(text)? {
        Threshold::Percentage(0.0 | 100.0) => Ok(None),
        Threshold::Quantity(amount) if amount <= 0 => Err(format!("must be more than 0, not {}", quoted(text))),
        threshold => Ok(Some(threshold)),
    }
}

/// `100Mi` or `10%`.
fn threshold(text: &str) -> Result<Threshold, String> {
    let Some(percentage) = text.strip_suffix('%') else {
        let quantity = Quantity::parse(text).map_err(|wrong| format!("{wrong}; write for example 100Mi or 10%"))?;
        return Ok(Threshold::Quantity(quantity.value()));
    };
    match plain_number(percentage).filter(|number| (0.0..=100.0).contains(number)) {
        Some(percentage) => Ok(Threshold::Percentage(percentage)),
        None => Err(format!("must be from 0% to 100%, not {}", quoted(text))),
    }
}

/// Without a suffix, but with an exponent if need be.
fn plain_number(text: &str) -> Option<f32> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
    Quantity::parse(text).ok().filter(|_| is_plain).map(|number| number.nearest())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn load(body: &str) -> Result<Settings, Vec<String>> {
        let text = format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{body}");
        match crate::config::settings(Some(("f", &text)), &[]) {
            Ok(loaded) => Ok(loaded.settings),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    fn hard(body: &str) -> BTreeMap<Signal, Threshold> {
        load(body).unwrap().eviction.hard
    }

    const NODEFS: (Signal, Threshold) = (Signal::NodefsAvailable, Threshold::Percentage(10.0));
    const INODES: (Signal, Threshold) = (Signal::NodefsInodesFree, Threshold::Percentage(5.0));
    const MEMORY: (Signal, Threshold) = (Signal::MemoryAvailable, Threshold::SmallBoardMemory);
    const PIDS: (Signal, Threshold) = (Signal::PidAvailable, Threshold::Quantity(100));

    /// EVI-2.
    #[test]
    fn one_key_drops_all_other_defaults_unless_they_are_merged() {
        assert_eq!(hard(""), BTreeMap::from([MEMORY, NODEFS, INODES]));
        assert_eq!(hard("evictionHard: {pid.available: 100}"), BTreeMap::from([PIDS]));
        assert_eq!(hard("evictionHard: {}"), BTreeMap::new());
        assert_eq!(hard("evictionHard: null"), BTreeMap::from([MEMORY, NODEFS, INODES]));
        let merged = "mergeDefaultEvictionSettings: true\n";
        let all = BTreeMap::from([MEMORY, NODEFS, INODES, PIDS]);
        assert_eq!(hard(&format!("{merged}evictionHard: {{pid.available: 100}}")), all);
        let fewer = BTreeMap::from([MEMORY, INODES]);
        assert_eq!(hard(&format!("evictionHard: {{nodefs.available: 0%}}\n{merged}")), fewer);
    }

    #[test]
    fn no_and_all_percent_switch_a_signal_off() {
        assert_eq!(hard("evictionHard: {memory.available: 0%, nodefs.available: 100%}"), BTreeMap::new());
    }

    #[test]
    fn thresholds_are_amounts_or_shares() {
        for (text, threshold) in [
            ("100Mi", Threshold::Quantity(100 << 20)),
            ("1.5Gi", Threshold::Quantity(3 << 29)),
            ("1", Threshold::Quantity(1)),
            ("12.5%", Threshold::Percentage(12.5)),
        ] {
            let read = hard(&format!("evictionHard: {{memory.available: {text}}}"));
            assert_eq!(read, BTreeMap::from([(Signal::MemoryAvailable, threshold)]), "{text}");
        }
    }

    #[test]
    fn what_no_threshold_can_be_is_refused() {
        for (text, wrong) in [
            ("0", "must be more than 0, not \"0\""),
            ("-1Gi", "must be more than 0, not \"-1Gi\""),
            ("101%", "must be from 0% to 100%, not \"101%\""),
            ("-5%", "must be from 0% to 100%, not \"-5%\""),
            ("nan%", "must be from 0% to 100%, not \"nan%\""),
            ("'%'", "must be from 0% to 100%, not \"%\""),
            ("[]", "must be a single value, not a list"),
        ] {
            let problems = load(&format!("evictionHard: {{memory.available: {text}}}")).unwrap_err();
            assert_eq!(problems, [format!("f:3: evictionHard.memory.available: {wrong}")]);
        }
        let problems = load("evictionHard: {memory.available: lots}").unwrap_err();
        assert!(problems[0].ends_with("write for example 100Mi or 10%"), "{problems:?}");
        assert_eq!(
            load("evictionHard: {memory.availble: 1Gi, swap: 1}").unwrap_err(),
            [
                "f:3: evictionHard: unknown signal \"memory.availble\": did you mean memory.available?",
                "f:3: evictionHard: unknown signal \"swap\": the signals are memory.available, nodefs.available, \
                 nodefs.inodesFree, pid.available",
            ]
        );
        let problems = load("evictionHard: 10%").unwrap_err();
        assert!(problems[0].contains("must be a map of SIGNAL: AMOUNT"), "{problems:?}");
    }

    #[test]
    fn a_soft_threshold_needs_its_grace_period() {
        let problems = load("\nevictionSoft: {memory.available: 1Gi, pid.available: 0%}").unwrap_err();
        let text = "needs a grace period: add this signal to evictionSoftGracePeriod";
        assert_eq!(problems, [format!("f:4: evictionSoft.memory.available: {text}")]);
        let graced = "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 90s}";
        let eviction = load(graced).unwrap().eviction;
        assert_eq!(eviction.soft, BTreeMap::from([(Signal::MemoryAvailable, Threshold::Quantity(1 << 30))]));
        assert_eq!(eviction.soft_grace_period, BTreeMap::from([(Signal::MemoryAvailable, Duration::from_secs(90))]));
        let problems = load("evictionSoftGracePeriod: {memory.available: 90}").unwrap_err();
        assert!(problems[0].starts_with("f:3: evictionSoftGracePeriod.memory.available: \"90\" has no unit"));
    }

    #[test]
    fn a_minimum_reclaim_may_be_nothing_but_not_a_share_of_nothing() {
        let reclaim = |text: &str| load(&format!("evictionMinimumReclaim: {{nodefs.available: {text}}}"));
        let read = reclaim("0Mi").unwrap().eviction.minimum_reclaim;
        assert_eq!(read, BTreeMap::from([(Signal::NodefsAvailable, Threshold::Quantity(0))]));
        for (text, wrong) in [("0%", "must be more than 0%"), ("-1", "must not be negative, as \"-1\" is")] {
            assert_eq!(reclaim(text).unwrap_err(), [format!("f:3: evictionMinimumReclaim.nodefs.available: {wrong}")]);
        }
    }

    #[test]
    fn a_percentage_is_the_nearest_float() {
        for step in 0..200_000_u64 {
            // Spread over all places behind the point.
            let nano = step.wrapping_mul(7_919_777_333) % 100_000_000_001;
            let text = format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000);
            assert_eq!(plain_number(&text), text.parse().ok(), "{text}");
        }
        for text in [
            "10", "+10", "0", "-5", ".5", "5.", "1e1", "1E-1", "33.3333", "", ".", "1k", "5Ki", "x", "nan", "inf", "1e",
        ] {
            let is_finite = |number: &f32| number.is_finite();
            assert_eq!(plain_number(text), text.parse().ok().filter(is_finite), "{text}");
        }
    }
}
