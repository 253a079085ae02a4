//! Turns the kubelet's four eviction maps into thresholds (EVI-1, EVI-2), and thresholds back into those maps.

use std::collections::BTreeMap;
use std::time::Duration;

use super::duration;
use super::nearest::nearest;
use super::quantity::Quantity;
use super::scalars::{Draft, Report, quoted};
use super::settings::{Eviction, Signal, Threshold};
use super::yaml::{Entry, Value};

/// The signals that this agent observes.
pub(super) const SIGNALS: [(&str, Signal); 4] = [
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

/// What a threshold may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Zero or less is an error, `0%` and `100%` switch the signal off.
    Pressure,
    /// May be zero, but not `0%`.
    Reclaim,
}

/// Reads `evictionHard`: replaces all defaults, unless they are to be merged (see [`finish`]).
pub(super) fn hard(draft: &mut Draft, value: &Value, report: &mut Report<'_>) {
    draft.eviction_hard = Some(thresholds(value, Use::Pressure, report));
}

pub(super) fn soft(draft: &mut Draft, value: &Value, report: &mut Report<'_>) {
    draft.settings.eviction.soft = switched_on(thresholds(value, Use::Pressure, report));
    draft.eviction_soft_at = Some(report.problem_at(value.line(), "", String::new()));
}

pub(super) fn minimum_reclaim(draft: &mut Draft, value: &Value, report: &mut Report<'_>) {
    draft.settings.eviction.minimum_reclaim = switched_on(thresholds(value, Use::Reclaim, report));
}

pub(super) fn soft_grace_period(draft: &mut Draft, value: &Value, report: &mut Report<'_>) {
    let mut periods = BTreeMap::new();
    each_signal(value, report, |signal, entry, text, report| match duration::parse(text) {
        Ok(period) => {
            periods.insert(signal, period);
        }
        Err(error) => report.refuse_below(entry.line, &format!(".{}", entry.key), format!("{} {error}", quoted(text))),
    });
    draft.settings.eviction.soft_grace_period = periods;
}

fn switched_on(thresholds: BTreeMap<Signal, Option<Threshold>>) -> BTreeMap<Signal, Threshold> {
    thresholds.into_iter().filter_map(|(signal, threshold)| Some((signal, threshold?))).collect()
}

/// Puts the hard thresholds together (EVI-2) and checks that every soft one has its grace period.
pub(super) fn finish(draft: &mut Draft, problems: &mut Vec<super::problem::Problem>) {
    let eviction = &mut draft.settings.eviction;
    if let Some(given) = draft.eviction_hard.take() {
        let mut hard = BTreeMap::new();
        if draft.merge_default_eviction_settings {
            hard = Eviction::default().hard;
            hard.retain(|signal, _| !given.contains_key(signal));
        }
        hard.extend(switched_on(given));
        eviction.hard = hard;
    }
    for (name, signal) in SIGNALS {
        if let Some(at) = &draft.eviction_soft_at
            && eviction.soft.contains_key(&signal)
            && !eviction.soft_grace_period.contains_key(&signal)
        {
            let text = "needs a grace period: add this signal to evictionSoftGracePeriod".to_owned();
            problems.push(super::problem::Problem { field: format!("{}.{name}", at.field), text, ..at.clone() });
        }
    }
}

fn thresholds(value: &Value, purpose: Use, report: &mut Report<'_>) -> BTreeMap<Signal, Option<Threshold>> {
    let mut thresholds = BTreeMap::new();
    each_signal(value, report, |signal, entry, text, report| match threshold(text, purpose) {
        Ok(threshold) => {
            thresholds.insert(signal, threshold);
        }
        Err(why) => report.refuse_below(entry.line, &format!(".{}", entry.key), why),
    });
    thresholds
}

/// Calls `read` for every signal that this agent has; tells or refuses the others.
fn each_signal(value: &Value, report: &mut Report<'_>, mut read: impl FnMut(Signal, &Entry, &str, &mut Report<'_>)) {
    let Value::Map { entries, .. } = value else {
        let names = SIGNALS.map(|(name, _)| name).join(", ");
        report.refuse(value, format!("must be a map of signals ({names}), not {}", value.kind()));
        return;
    };
    for entry in entries {
        let below = format!(".{}", entry.key);
        let signal = SIGNALS.iter().find(|(name, _)| *name == entry.key).map(|(_, signal)| *signal);
        match (signal, &entry.value) {
            (Some(signal), Value::Scalar { text, .. }) => read(signal, entry, text.trim(), report),
            (Some(_), other) => {
                report.refuse_below(entry.line, &below, format!("must be a single value, not {}", other.kind()));
            }
            (None, _) if RUNTIME_SIGNALS.contains(&entry.key.as_str()) => {
                report.tell(entry.line, &below, "has no effect: there are no images, containers or pods here");
            }
            (None, _) => report.refuse_below(entry.line, "", unknown_signal(&entry.key)),
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

/// Without a suffix, but with an exponent if need be.
fn plain_number(text: &str) -> Option<f32> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
    Quantity::parse(text).ok().filter(|_| is_plain).map(|number| number.nearest())
}

/// `100Mi` or `10%`; `None` switches the signal off.
fn threshold(text: &str, purpose: Use) -> Result<Option<Threshold>, String> {
    if let Some(percentage) = text.strip_suffix('%') {
        let Some(percentage) = plain_number(percentage).filter(|number| (0.0..=100.0).contains(number)) else {
            return Err(format!("must be from 0% to 100%, not {}", quoted(text)));
        };
        let edge = percentage == 0.0 || percentage == 100.0;
        return match purpose {
            Use::Pressure => Ok((!edge).then_some(Threshold::Percentage(percentage))),
            Use::Reclaim if percentage == 0.0 => Err("must be more than 0%".to_owned()),
            Use::Reclaim => Ok(Some(Threshold::Percentage(percentage))),
        };
    }
    let quantity = Quantity::parse(text).map_err(|error| format!("{error}; write for example 100Mi or 10%"))?;
    let amount = quantity.value();
    match purpose {
        Use::Pressure if amount <= 0 => Err(format!("must be more than 0, not {}", quoted(text))),
        Use::Reclaim if amount < 0 => Err(format!("must not be negative, as {} is", quoted(text))),
        Use::Pressure | Use::Reclaim => Ok(Some(Threshold::Quantity(amount))),
    }
}

/// `evictionHard` as a file has to say it; a default memory threshold is left to `mergeDefaultEvictionSettings`, so
/// every other default that is not wanted is switched off.
pub(super) fn print_hard(eviction: &Eviction) -> Value {
    let mut printed = eviction.hard.clone();
    if merges_defaults(eviction) {
        for signal in Eviction::default().hard.into_keys() {
            printed.entry(signal).or_insert(Threshold::Percentage(0.0));
        }
    }
    print_thresholds(&printed)
}

/// Whether only `mergeDefaultEvictionSettings: true` says what `evictionHard` is: D7's threshold has no text.
pub(super) fn merges_defaults(eviction: &Eviction) -> bool {
    eviction.hard.get(&Signal::MemoryAvailable) == Some(&Threshold::SmallBoardMemory)
}

pub(super) fn print_thresholds(thresholds: &BTreeMap<Signal, Threshold>) -> Value {
    print_signals(|signal| match thresholds.get(&signal)? {
        Threshold::Quantity(amount) => Some(amount.to_string()),
        Threshold::Percentage(percentage) => Some(format!("{percentage}%")),
        Threshold::SmallBoardMemory => None,
    })
}

pub(super) fn print_periods(periods: &BTreeMap<Signal, Duration>) -> Value {
    print_signals(|signal| periods.get(&signal).map(|period| duration::print(*period)))
}

fn print_signals(text_of: impl Fn(Signal) -> Option<String>) -> Value {
    Value::map(SIGNALS.into_iter().filter_map(|(name, signal)| Some((name.to_owned(), text_of(signal)?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Settings;

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
        assert!(problems[0].contains("must be a map of signals"), "{problems:?}");
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
