//! Reads the kubelet's four eviction maps into thresholds (EVI-1, EVI-2).

use std::time::Duration;

use heapless::LinearMap;

use super::field::Field;
use super::nearest::unknown;
use super::problem::{Findings, Problem, quoted};
use super::quantity::Quantity;
use super::values::span;

/// The signals that pressure conditions are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    PidAvailable,
    /// Of the file system that holds the images of a container runtime, where there is one.
    ImagefsAvailable,
    ImagefsInodesFree,
}

/// One threshold: pressure when the signal is strictly below it (EVI-5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Bytes, inodes or PIDs.
    Quantity(i64),
    /// Of the capacity, 0 < percentage < 100, computed as EVI-5 / ALC-2 (`f32`, truncated).
    Percentage(f32),
    /// D7's default for memory: min(100 Mi, 10 % of the capacity), at least 8 Mi.
    SmallBoardMemory,
}

/// Something for each signal, or for some of them.
pub type PerSignal<T> = LinearMap<Signal, T, 6>;

/// EVI-1, with D7's memory threshold, which has no text in a file; none of PIDs.
pub(super) const DEFAULTS: [(Signal, Threshold); 5] = [
    (Signal::MemoryAvailable, Threshold::SmallBoardMemory),
    (Signal::NodefsAvailable, Threshold::Percentage(10.0)),
    (Signal::NodefsInodesFree, Threshold::Percentage(5.0)),
    (Signal::ImagefsAvailable, Threshold::Percentage(15.0)),
    (Signal::ImagefsInodesFree, Threshold::Percentage(5.0)),
];

/// The signals that this agent observes.
const SIGNALS: [(&str, Signal); 6] = [
    ("memory.available", Signal::MemoryAvailable),
    ("nodefs.available", Signal::NodefsAvailable),
    ("nodefs.inodesFree", Signal::NodefsInodesFree),
    ("pid.available", Signal::PidAvailable),
    ("imagefs.available", Signal::ImagefsAvailable),
    ("imagefs.inodesFree", Signal::ImagefsInodesFree),
];

/// Signals of the kubelet that need pods.
const POD_SIGNALS: [&str; 3] = ["allocatableMemory.available", "containerfs.available", "containerfs.inodesFree"];

/// What each signal has to fall below to mean pressure; `0%` and `100%` switch a signal off.
pub(super) fn thresholds(map: &Field<'_>, findings: &mut Findings) -> Result<PerSignal<Threshold>, Problem> {
    Ok(each_signal(map, findings, |entry| match threshold(entry)? {
        Threshold::Percentage(0.0 | 100.0) => Ok(None),
        Threshold::Quantity(amount) if amount <= 0 => {
            Err(entry.problem(format!("must be more than 0, not {}", quoted(entry.text()?.unwrap_or_default()))))
        }
        threshold => Ok(Some(threshold)),
    }))
}

pub(super) fn periods(map: &Field<'_>, findings: &mut Findings) -> Result<PerSignal<Duration>, Problem> {
    Ok(each_signal(map, findings, |entry| span(entry).map(Some)))
}

/// `evictionMinimumReclaim`: a quantity may be zero, a percentage may not.
pub(super) fn reclaims(map: &Field<'_>, findings: &mut Findings) -> Result<PerSignal<Threshold>, Problem> {
    Ok(each_signal(map, findings, |entry| match threshold(entry)? {
        Threshold::Percentage(0.0) => Err(entry.problem("must be more than 0%")),
        Threshold::Quantity(amount) if amount < 0 => Err(entry.problem("must not be negative")),
        threshold => Ok(Some(threshold)),
    }))
}

/// The defaults of the signals that a map does not name.
pub(super) fn defaults_not_in(map: &Field<'_>) -> impl Iterator<Item = (Signal, Threshold)> {
    DEFAULTS.into_iter().filter(|(signal, _)| map.value.get(name_of(*signal)).is_none())
}

pub(super) fn name_of(signal: Signal) -> &'static str {
    SIGNALS.iter().find(|(_, known)| *known == signal).map_or("", |(name, _)| name)
}

/// Calls `read` for every signal that this agent has; tells or refuses the others.
fn each_signal<T>(
    map: &Field<'_>,
    findings: &mut Findings,
    read: impl Fn(&Field<'_>) -> Result<Option<T>, Problem>,
) -> PerSignal<T> {
    let mut all = PerSignal::new();
    for (key, entry) in map.entries() {
        if let Some((_, signal)) = SIGNALS.iter().find(|(name, _)| *name == key) {
            let read = findings.accept(read(&entry)).flatten();
            read.map(|value| all.insert(*signal, value));
        } else if POD_SIGNALS.contains(&key) {
            findings.notice(entry.problem("has no effect: there are no containers or pods of the agent here"));
        } else {
            let names = SIGNALS.map(|(name, _)| name);
            let otherwise = format!("the signals are {}", names.join(", "));
            findings.refuse(entry.problem(unknown("signal", key, &mut names.into_iter(), &otherwise)));
        }
    }
    all
}

/// `100Mi` or `10%`.
fn threshold(entry: &Field<'_>) -> Result<Threshold, Problem> {
    let text = entry.text()?.unwrap_or_default();
    let Some(percentage) = text.strip_suffix('%') else {
        let quantity = Quantity::parse(text);
        let wrong = |wrong: String| entry.problem(format!("{wrong}; write for example 100Mi or 10%"));
        return quantity.map(|quantity| Threshold::Quantity(quantity.value())).map_err(wrong);
    };
    let percentage = plain_number(percentage).filter(|number| (0.0..=100.0).contains(number));
    let percentage = percentage.map(Threshold::Percentage);
    percentage.ok_or_else(|| entry.problem(format!("must be from 0% to 100%, not {}", quoted(text))))
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
    use crate::config::Settings;

    fn load(body: &str) -> Result<Settings, Vec<String>> {
        let text = format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{body}");
        match crate::config::settings(Some(("f", &text)), &[]) {
            Ok(loaded) => Ok(loaded.settings),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    fn hard(body: &str) -> PerSignal<Threshold> {
        load(body).unwrap().eviction_hard
    }

    const NODEFS: (Signal, Threshold) = (Signal::NodefsAvailable, Threshold::Percentage(10.0));
    const INODES: (Signal, Threshold) = (Signal::NodefsInodesFree, Threshold::Percentage(5.0));
    const IMAGES: [(Signal, Threshold); 2] = [
        (Signal::ImagefsAvailable, Threshold::Percentage(15.0)),
        (Signal::ImagefsInodesFree, Threshold::Percentage(5.0)),
    ];
    const MEMORY: (Signal, Threshold) = (Signal::MemoryAvailable, Threshold::SmallBoardMemory);
    const PIDS: (Signal, Threshold) = (Signal::PidAvailable, Threshold::Quantity(100));

    /// EVI-2.
    #[test]
    fn one_key_drops_all_other_defaults_unless_they_are_merged() {
        let defaults = || PerSignal::from_iter([MEMORY, NODEFS, INODES].into_iter().chain(IMAGES));
        assert_eq!(hard(""), defaults());
        assert_eq!(hard("evictionHard: {pid.available: 100}"), PerSignal::from_iter([PIDS]));
        assert_eq!(hard("evictionHard: {}"), PerSignal::new());
        assert_eq!(hard("evictionHard: null"), defaults());
        let merged = "mergeDefaultEvictionSettings: true\n";
        let all: PerSignal<_> = defaults().into_iter().chain([PIDS]).collect();
        assert_eq!(hard(&format!("{merged}evictionHard: {{pid.available: 100}}")), all);
        let fewer: PerSignal<_> = [MEMORY, INODES].into_iter().chain(IMAGES).collect();
        assert_eq!(hard(&format!("evictionHard: {{nodefs.available: 0%}}\n{merged}")), fewer);
    }

    #[test]
    fn no_and_all_percent_switch_a_signal_off() {
        assert_eq!(hard("evictionHard: {memory.available: 0%, nodefs.available: 100%}"), PerSignal::new());
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
            assert_eq!(read, PerSignal::from_iter([(Signal::MemoryAvailable, threshold)]), "{text}");
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
                "f:3: evictionHard.memory.availble: unknown signal \"memory.availble\": did you mean memory.available?",
                "f:3: evictionHard.swap: unknown signal \"swap\": the signals are memory.available, nodefs.available, \
                 nodefs.inodesFree, pid.available, imagefs.available, imagefs.inodesFree",
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
        let settings = load(graced).unwrap();
        assert_eq!(
            settings.eviction_soft,
            PerSignal::from_iter([(Signal::MemoryAvailable, Threshold::Quantity(1 << 30))])
        );
        assert_eq!(
            settings.eviction_soft_grace_period,
            PerSignal::from_iter([(Signal::MemoryAvailable, Duration::from_secs(90))])
        );
        let problems = load("evictionSoftGracePeriod: {memory.available: 90}").unwrap_err();
        assert!(problems[0].starts_with("f:3: evictionSoftGracePeriod.memory.available: \"90\" has no unit"));
    }

    #[test]
    fn a_minimum_reclaim_may_be_nothing_but_not_a_share_of_nothing() {
        let reclaim = |text: &str| load(&format!("evictionMinimumReclaim: {{nodefs.available: {text}}}"));
        let read = reclaim("0Mi").unwrap().eviction_minimum_reclaim;
        assert_eq!(read, PerSignal::from_iter([(Signal::NodefsAvailable, Threshold::Quantity(0))]));
        for (text, wrong) in [("0%", "must be more than 0%"), ("-1", "must not be negative")] {
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
