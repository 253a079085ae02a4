//! Turns a settings file and command-line flags into checked settings, or every problem at once.
//!
//! Flags win over the file, the file wins over the defaults, setting by setting (behaviour 1.Q).

use std::time::Duration;

use super::duration;
use super::eviction;
use super::kubelet_fields;
use super::nearest::nearest;
use super::problem::{Findings, Origin, Problem, Report, quoted};
use super::setting::{Setting, Whose};
use super::settings::Settings;
use super::table::{self, SETTINGS};
use super::yaml::{self, Entry, Value};

/// Settings that hold together.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    /// What is not wrong and yet may surprise, each one line: fields that do not apply, values without effect.
    pub notices: Vec<String>,
}

/// `apiVersion` and `kind` of a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    /// The kubelet's own file: what applies is used.
    Kubelet,
}

const KINDS: [(&str, &str, Kind); 2] = [
    ("nodepulse.dev/v1", "NodePulseConfiguration", Kind::Ours),
    ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", Kind::Kubelet),
];

/// Fields whose zero means "not set" in a file, as to a kubelet: kubeadm writes most of them out as zero. A flag means it.
const ZERO_IS_DEFAULT: [&str; 6] = [
    "eventBurst",
    "evictionPressureTransitionPeriod",
    "maxPods",
    "nodeLeaseDurationSeconds",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
];

/// Reads everything. `file` is its path, for messages and as the base of relative paths, and its text; `flags` are
/// names without dashes and values, in the order given.
pub fn settings(file: Option<(&str, &str)>, flags: &[(String, String)]) -> Result<Loaded, Vec<Problem>> {
    let mut reading = Reading::default();
    if let Some((path, text)) = file {
        reading.read_file(path, text);
    }
    reading.read_flags(flags);
    reading.finish()
}

/// A value of the file or of a flag, not yet checked.
struct Given {
    setting: &'static Setting,
    origin: Origin,
    /// Name in the file, or the flag with its dashes.
    field: String,
    value: Value,
}

#[derive(Default)]
struct Reading {
    /// Those of the file before those of the flags.
    given: Vec<Given>,
    findings: Findings,
}

impl Reading {
    fn read_file(&mut self, path: &str, text: &str) {
        let origin = Origin::File(path.to_owned());
        let yaml::Parsed { tree, problems } = yaml::parse(text);
        for (line, text) in problems {
            self.findings.refuse(&origin, line, "", text);
        }
        if !matches!(tree, Value::Map { .. } | Value::Null { .. }) {
            let text = format!("must be a map of settings, not {}", tree.kind());
            self.findings.refuse(&origin, tree.line(), "", text);
        }
        let Value::Map { entries, .. } = &tree else { return };
        let Some(kind) = self.kind_of(&origin, &tree) else { return };
        let mut ignored = Vec::new();
        for entry in entries.iter().filter(|entry| entry.key != "apiVersion" && entry.key != "kind") {
            match &entry.value {
                Value::Map { entries, .. } if entry.key == "logging" => {
                    for inner in entries {
                        let dotted = Entry { key: format!("logging.{}", inner.key), ..inner.clone() };
                        self.read_entry(&origin, kind, &dotted, &mut ignored);
                    }
                }
                _ => self.read_entry(&origin, kind, entry, &mut ignored),
            }
        }
        if !ignored.is_empty() {
            let text = format!("fields of the kubelet without meaning here, ignored: {}", ignored.join(", "));
            self.findings.notices.push(Problem { origin, line: 0, field: String::new(), text });
        }
    }

    fn kind_of(&mut self, origin: &Origin, tree: &Value) -> Option<Kind> {
        let text_of = |name| tree.get(name).map_or(("", 0), |value| (value.as_text().unwrap_or(""), value.line()));
        let ((version, version_line), (kind, kind_line)) = (text_of("apiVersion"), text_of("kind"));
        let Some((known_version, _, found)) = KINDS.into_iter().find(|(_, name, _)| *name == kind) else {
            let expected = "write `apiVersion: nodepulse.dev/v1` and `kind: NodePulseConfiguration`";
            let text = match nearest(kind, KINDS.map(|(_, name, _)| name)) {
                Some(near) => format!("unknown kind {}: did you mean {near}?", quoted(kind)),
                None if kind.is_empty() => format!("is missing: {expected}"),
                None => format!("unknown kind {}: {expected}", quoted(kind)),
            };
            self.findings.refuse(origin, kind_line, "kind", text);
            return None;
        };
        if version != known_version {
            let text = format!("must be {known_version} for kind {kind}, not {}", quoted(version));
            self.findings.refuse(origin, version_line, "apiVersion", text);
        }
        Some(found)
    }

    fn read_entry(&mut self, origin: &Origin, kind: Kind, entry: &Entry, ignored: &mut Vec<String>) {
        if self.findings.are_full() {
            return; // Nothing more would be told, and looking for the nearest key costs time.
        }
        let name = entry.key.as_str();
        let Some(setting) = table::by_name(name) else {
            return match kind {
                Kind::Kubelet if kubelet_fields::is_not_applicable(name) => ignored.push(name.to_owned()),
                _ => self.findings.refuse(origin, entry.line, "", unknown_key(name, kind)),
            };
        };
        if kind == Kind::Kubelet && setting.whose != Whose::Kubelet {
            let text = "is no field of kind KubeletConfiguration: use kind NodePulseConfiguration, or the flag";
            return self.findings.refuse(origin, entry.line, name, format!("{text} {}", setting.dashed_flag()));
        }
        let is_default = entry.value.is_null() || (ZERO_IS_DEFAULT.contains(&name) && is_zero(&entry.value));
        if !is_default {
            let (field, value) = (name.to_owned(), entry.value.clone());
            self.given.push(Given { setting, origin: origin.clone(), field, value });
        }
    }

    fn read_flags(&mut self, flags: &[(String, String)]) {
        for (flag, text) in flags {
            let Some(setting) = table::by_flag(flag) else {
                let hint = match nearest(flag, SETTINGS.iter().map(|setting| setting.flag)) {
                    Some(near) => format!("unknown flag: did you mean --{near}?"),
                    None => "unknown flag: see nodepulse help settings".to_owned(),
                };
                self.findings.refuse(&Origin::Flag, 0, &format!("--{flag}"), hint);
                continue;
            };
            let (field, value) = (setting.dashed_flag(), setting.flag_value(text));
            match self.given.iter_mut().find(|before| before.field == field) {
                Some(before) => merge(&mut before.value, value),
                None => self.given.push(Given { setting, origin: Origin::Flag, field, value }),
            }
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        let mut settings = Settings::default();
        for setting in SETTINGS {
            for Given { origin, field, value, .. } in
                self.given.iter().filter(|given| given.setting.name == setting.name)
            {
                let line = value.line();
                setting.read(&mut settings, value, &mut Report { origin, field, line, findings: &mut self.findings });
                // The kubelet's rule: where a file sets only the update frequency, the report frequency is the same.
                if setting.name == "nodeStatusUpdateFrequency" && *origin != Origin::Flag {
                    settings.node_status_report_frequency = settings.node_status_update_frequency;
                }
            }
        }
        if let Some(Given { origin, field, value, .. }) =
            self.given.iter().rfind(|given| given.setting.name == "evictionSoft")
        {
            for signal in eviction::without_grace_period(&settings.eviction) {
                let text = "needs a grace period: add this signal to evictionSoftGracePeriod";
                self.findings.refuse(origin, value.line(), &format!("{field}.{signal}"), text);
            }
        }
        let Findings { mut problems, mut notices } = self.findings;
        // Files before flags, in the order of their lines.
        let place = |problem: &Problem| (problem.origin == Origin::Flag, problem.line);
        problems.sort_by_key(place);
        notices.sort_by_key(place);
        let mut notices: Vec<String> = notices.iter().map(Problem::to_string).collect();
        if settings.podless && (settings.max_pods, settings.pods_per_core) != (110, 0) {
            let text = "maxPods and podsPerCore have no effect as long as podless is true: capacity pods is 0";
            notices.push(text.to_owned());
        }
        if problems.is_empty() { Ok(Loaded { settings, notices }) } else { Err(problems) }
    }
}

fn unknown_key(name: &str, kind: Kind) -> String {
    if kind == Kind::Ours && kubelet_fields::is_not_applicable(name) {
        return format!("{name} is a field of the kubelet that has no meaning without pods: remove it");
    }
    let known = SETTINGS.iter().filter(|setting| kind == Kind::Ours || setting.whose == Whose::Kubelet);
    match nearest(name, known.map(|setting| setting.name)) {
        Some(near) => format!("unknown key {}: did you mean {near}?", quoted(name)),
        None => format!("unknown key {}: nodepulse help settings lists them", quoted(name)),
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_text().is_some_and(|text| text.is_empty() || duration::parse(text) == Ok(Duration::ZERO))
}

/// A flag that is given again: maps and lists grow, all others are replaced.
fn merge(before: &mut Value, value: Value) {
    match (before, value) {
        (Value::List { items, .. }, Value::List { items: more, .. }) => items.extend(more),
        (Value::Map { entries, .. }, Value::Map { entries: more, .. }) => {
            entries.retain(|entry| more.iter().all(|other| other.key != entry.key));
            entries.extend(more);
        }
        (before, value) => *before = value,
    }
}

#[cfg(test)]
mod tests;
