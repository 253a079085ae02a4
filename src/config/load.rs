//! Turns a settings file and command-line flags into checked settings, or every problem at once.
//!
//! Flags win over the file, the file wins over the defaults, setting by setting (behaviour 1.Q).

use std::time::Duration;

use super::duration;
use super::eviction;
use super::kubelet_fields;
use super::limits;
use super::nearest::nearest;
use super::problem::{Origin, Problem};
use super::scalars::{Draft, Report, quoted};
use super::setting::{Setting, Shape, Whose};
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

#[derive(Default)]
struct Reading {
    draft: Draft,
    problems: Vec<Problem>,
    notices: Vec<String>,
}

impl Reading {
    fn read_file(&mut self, path: &str, text: &str) {
        let origin = Origin::File(path.to_owned());
        let parsed = yaml::parse(text);
        for error in &parsed.problems {
            self.refuse(&origin, error.line, "", error.why.to_string());
        }
        let entries = match &parsed.tree {
            Value::Map { entries, .. } => entries,
            Value::Null { .. } => return,
            other => {
                let text = format!("must be a map of settings, not {}", other.kind());
                return self.refuse(&origin, other.line(), "", text);
            }
        };
        let Some(kind) = self.kind_of(&origin, &parsed.tree) else { return };
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
            let text = format!("{path}: fields of the kubelet without meaning here, ignored: {}", ignored.join(", "));
            self.notices.push(text);
        }
        self.follow_update_frequency(&parsed.tree);
    }

    /// The kubelet's rule: where a file sets only the update frequency, the report frequency is the same.
    fn follow_update_frequency(&mut self, tree: &Value) {
        let says = |name| tree.get(name).is_some_and(|value| !is_zero(value));
        if says("nodeStatusUpdateFrequency") && !says("nodeStatusReportFrequency") {
            let settings = &mut self.draft.settings;
            settings.node_status_report_frequency = settings.node_status_update_frequency;
        }
    }

    fn kind_of(&mut self, origin: &Origin, tree: &Value) -> Option<Kind> {
        let text_of = |name| match tree.get(name) {
            Some(Value::Scalar { text, line }) => (text.as_str(), *line),
            Some(other) => ("", other.line()),
            None => ("", 0),
        };
        let ((version, version_line), (kind, kind_line)) = (text_of("apiVersion"), text_of("kind"));
        let Some((known_version, _, found)) = KINDS.into_iter().find(|(_, name, _)| *name == kind) else {
            let expected = "write `apiVersion: nodepulse.dev/v1` and `kind: NodePulseConfiguration`";
            let text = match nearest(kind, KINDS.map(|(_, name, _)| name)) {
                Some(near) => format!("unknown kind {}: did you mean {near}?", quoted(kind)),
                None if kind.is_empty() => format!("is missing: {expected}"),
                None => format!("unknown kind {}: {expected}", quoted(kind)),
            };
            self.refuse(origin, kind_line, "kind", text);
            return None;
        };
        if version != known_version {
            let text = format!("must be {known_version} for kind {kind}, not {}", quoted(version));
            self.refuse(origin, version_line, "apiVersion", text);
        }
        Some(found)
    }

    fn read_entry(&mut self, origin: &Origin, kind: Kind, entry: &Entry, ignored: &mut Vec<String>) {
        if self.problems.len() >= limits::PROBLEMS {
            return; // Nothing more would be told, and looking for the nearest key costs time.
        }
        let name = entry.key.as_str();
        let Some(setting) = table::by_name(name) else {
            return match kind {
                Kind::Kubelet if kubelet_fields::is_not_applicable(name) => {
                    if ignored.len() < limits::PROBLEMS {
                        ignored.push(name.to_owned());
                    }
                }
                _ => self.refuse(origin, entry.line, "", unknown_key(name, kind)),
            };
        };
        if kind == Kind::Kubelet && setting.whose != Whose::Kubelet {
            let text = "is no field of kind KubeletConfiguration: use kind NodePulseConfiguration, or the flag";
            return self.refuse(origin, entry.line, name, format!("{text} {}", setting.dashed_flag()));
        }
        let is_default = entry.value.is_null() || (ZERO_IS_DEFAULT.contains(&name) && is_zero(&entry.value));
        if !is_default {
            self.apply(setting, origin, name, &entry.value);
        }
    }

    fn read_flags(&mut self, flags: &[(String, String)]) {
        let mut given: Vec<(&Setting, Value)> = Vec::new();
        for (flag, text) in flags {
            let Some(setting) = table::by_flag(flag) else {
                let hint = match nearest(flag, SETTINGS.iter().map(|setting| setting.flag)) {
                    Some(near) => format!("unknown flag: did you mean --{near}?"),
                    None => "unknown flag: see nodepulse help settings".to_owned(),
                };
                self.refuse(&Origin::Flag, 0, &format!("--{flag}"), hint);
                continue;
            };
            let value = flag_value(setting.shape, text);
            match given.iter_mut().find(|(known, _)| known.name == setting.name) {
                Some((_, before)) => merge(before, value),
                None => given.push((setting, value)),
            }
        }
        for (setting, value) in given {
            self.apply(setting, &Origin::Flag, &setting.dashed_flag(), &value);
        }
    }

    fn apply(&mut self, setting: &Setting, origin: &Origin, field: &str, value: &Value) {
        let mut report = Report { origin, field, problems: &mut self.problems, notices: &mut self.notices };
        (setting.read)(&mut self.draft, value, &mut report);
    }

    fn refuse(&mut self, origin: &Origin, line: u32, field: &str, text: String) {
        let line = (line > 0).then_some(line);
        let problem = Problem { origin: origin.clone(), line, field: field.to_owned(), text };
        if self.problems.len() < limits::PROBLEMS && self.problems.last() != Some(&problem) {
            self.problems.push(problem);
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        eviction::finish(&mut self.draft, &mut self.problems);
        let settings = self.draft.settings;
        if settings.podless && (settings.max_pods, settings.pods_per_core) != (110, 0) {
            let text = "maxPods and podsPerCore have no effect as long as podless is true: capacity pods is 0";
            self.notices.push(text.to_owned());
        }
        if self.problems.is_empty() {
            return Ok(Loaded { settings, notices: self.notices });
        }
        // Files before flags, in the order of their lines.
        self.problems.sort_by_key(|problem| (problem.origin == Origin::Flag, problem.line));
        Err(self.problems)
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
    let zero = |text: &str| text.is_empty() || duration::parse(text) == Ok(Duration::ZERO);
    matches!(value, Value::Scalar { text, .. } if zero(text.trim()))
}

/// Cuts a flag's text as the kubelet's flags do.
fn flag_value(shape: Shape, text: &str) -> Value {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    match shape {
        Shape::List(_) => Value::list(parts().map(Value::text)),
        Shape::Map(separator) => {
            let entry = |part: &str| match part.split_once(separator) {
                Some((key, text)) => Entry { key: key.trim().to_owned(), line: 0, value: Value::text(text.trim()) },
                None => Entry { key: part.to_owned(), line: 0, value: Value::Null { line: 0 } },
            };
            Value::Map { entries: parts().map(entry).collect(), line: 0 }
        }
        _ => Value::text(text),
    }
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
