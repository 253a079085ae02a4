//! Turns a settings file and command-line flags into checked settings, or every problem at once.
//!
//! Flags win over the file, the file wins over the defaults, setting by setting (behaviour 1.Q).

use std::time::Duration;

use super::budget;
use super::duration;
use super::eviction;
use super::field::Field;
use super::join;
use super::kubelet_fields;
use super::nearest::unknown;
use super::problem::{Findings, Origin, Problem, quoted};
use super::profile;
use super::settings::{DefinedBy, SETTINGS, Setting, Settings};
use super::yaml::{self, Content, Entry, Value};

/// Settings that hold together.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    /// What is not wrong and yet may surprise, each one line: fields that do not apply, values without effect.
    pub notices: Vec<String>,
}

/// `apiVersion` and `kind` of a settings file; of the kubelet's own what applies is used.
const KINDS: [(&str, &str, DefinedBy); 2] = [
    ("nodepulse.dev/v1", "NodePulseConfiguration", DefinedBy::Ours),
    ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", DefinedBy::Kubelet),
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
    name: String,
    value: Value,
}

impl Given {
    fn field(&self) -> Field<'_> {
        Field { origin: &self.origin, name: self.name.clone(), line: self.value.line, value: &self.value }
    }
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
        let (tree, problems) = yaml::parse(text);
        let file = Field::of_file(&origin, &tree);
        for (line, text) in problems {
            self.findings.refuse(Problem { line, ..file.problem(text) });
        }
        if !matches!(tree.content, Content::Map(_)) {
            if !tree.is_null() {
                self.findings.refuse(file.problem(format!("must be a map of settings, not {}", tree.kind())));
            }
            return;
        }
        let Some(kind) = self.kind_of(&file) else { return };
        let mut ignored = Vec::new();
        for entry in tree.entries().iter().filter(|entry| entry.key != "apiVersion" && entry.key != "kind") {
            match &entry.value.content {
                Content::Map(inner) if entry.key == "logging" => {
                    for entry in inner {
                        let dotted = Entry { key: format!("logging.{}", entry.key), ..entry.clone() };
                        self.read_entry(&origin, kind, &dotted, &mut ignored);
                    }
                }
                _ => self.read_entry(&origin, kind, entry, &mut ignored),
            }
        }
        if !ignored.is_empty() {
            let text = format!("fields of the kubelet without meaning here, ignored: {}", ignored.join(", "));
            self.findings.notice(Problem { line: 0, ..file.problem(text) });
        }
    }

    fn kind_of(&mut self, file: &Field<'_>) -> Option<DefinedBy> {
        let [version, kind] = ["apiVersion", "kind"].map(|key| file.at(key));
        let text_of = |field: &Field<'_>| field.value.as_text().unwrap_or_default().to_owned();
        let (version_text, name) = (text_of(&version), text_of(&kind));
        let Some((known_version, _, found)) = KINDS.into_iter().find(|(_, known, _)| *known == name) else {
            let expected = "write `apiVersion: nodepulse.dev/v1` and `kind: NodePulseConfiguration`";
            let text = match name.is_empty() {
                true => format!("is missing: {expected}"),
                false => unknown("kind", &name, &mut KINDS.iter().map(|(_, name, _)| *name), expected),
            };
            self.findings.refuse(kind.problem(text));
            return None;
        };
        if version_text != known_version {
            let text = format!("must be {known_version} for kind {name}, not {}", quoted(&version_text));
            self.findings.refuse(version.problem(text));
        }
        Some(found)
    }

    fn read_entry(&mut self, origin: &Origin, kind: DefinedBy, entry: &Entry, ignored: &mut Vec<String>) {
        if self.findings.are_full() {
            return; // Nothing more would be told, and looking for the nearest key costs time.
        }
        let name = entry.key.as_str();
        let problem =
            |field: &str, text| Problem { origin: origin.clone(), line: entry.line, field: field.to_owned(), text };
        match Setting::by_name(name) {
            None if kind == DefinedBy::Kubelet && kubelet_fields::is_not_applicable(name) => {
                ignored.push(name.to_owned())
            }
            None => self.findings.refuse(problem("", unknown_key(name, kind))),
            Some(setting) if kind == DefinedBy::Kubelet && setting.defined_by != DefinedBy::Kubelet => {
                let text = "is no field of kind KubeletConfiguration: use kind NodePulseConfiguration, or the flag";
                self.findings.refuse(problem(name, format!("{text} {}", setting.dashed_flag())));
            }
            Some(_) if entry.value.is_null() || (ZERO_IS_DEFAULT.contains(&name) && is_zero(&entry.value)) => {}
            Some(setting) => {
                let (name, value) = (name.to_owned(), entry.value.clone());
                self.given.push(Given { setting, origin: origin.clone(), name, value });
            }
        }
    }

    fn read_flags(&mut self, flags: &[(String, String)]) {
        for (flag, text) in flags {
            let Some(setting) = Setting::by_flag(flag) else {
                let known = SETTINGS.iter().map(|setting| setting.flag);
                let text = unknown("flag", flag, &mut known.into_iter(), "see nodepulse help settings");
                self.findings.refuse(Problem { origin: Origin::Flag, line: 0, field: String::new(), text });
                continue;
            };
            let (name, value) = (setting.dashed_flag(), setting.flag_value(text));
            match self.given.iter_mut().find(|before| before.name == name) {
                Some(before) => merge(&mut before.value, value),
                None => self.given.push(Given { setting, origin: Origin::Flag, name, value }),
            }
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        let mut settings = Settings::default();
        let brings_token = |given: &Given| join::TOKENS.contains(&given.setting.name);
        if self.given.iter().any(|given| given.origin == Origin::Flag && brings_token(given)) {
            self.given.retain(|given| given.origin == Origin::Flag || !brings_token(given));
        }
        for setting in SETTINGS {
            if setting.name == "nodeLeaseDurationSeconds" {
                // The first of the cadences: what says which they are stands before it.
                profile::apply(&mut settings);
            }
            for given in self.given.iter().filter(|given| given.setting.name == setting.name) {
                setting.read(&mut settings, &given.field(), &mut self.findings);
                // The kubelet's rule: where a file sets only the update frequency, the report frequency is the same.
                if setting.name == "nodeStatusUpdateFrequency" && given.origin != Origin::Flag {
                    settings.node_status_report_frequency = settings.node_status_update_frequency;
                }
            }
        }
        let last = |name: &str| self.given.iter().rfind(|given| given.setting.name == name).map(Given::field);
        if let Some(hard) = last("evictionHard").filter(|_| settings.merge_default_eviction_settings) {
            settings.eviction_hard = eviction::defaults_not_in(&hard).chain(settings.eviction_hard).collect();
        }
        if let Some(soft) = last("evictionSoft") {
            for signal in settings.eviction_soft.keys() {
                if !settings.eviction_soft_grace_period.contains_key(signal) {
                    let field = format!("{}.{}", soft.name, eviction::name_of(*signal));
                    let text = "needs a grace period: add this signal to evictionSoftGracePeriod";
                    self.findings.refuse(Problem { field, ..soft.problem(text) });
                }
            }
        }
        join::check(&settings, last, &mut self.findings);
        profile::check(&settings, last, &mut self.findings);
        budget::check(&settings, last, &mut self.findings);
        let Findings { mut problems, mut notices } = self.findings;
        for found in [&mut problems, &mut notices] {
            found.sort_by(|one, other| (&one.origin, one.line).cmp(&(&other.origin, other.line)));
        }
        let mut notices: Vec<String> = notices.iter().map(Problem::to_string).collect();
        if settings.podless && (settings.max_pods, settings.pods_per_core) != (110, 0) {
            let text = "maxPods and podsPerCore have no effect as long as podless is true: capacity pods is 0";
            notices.push(text.to_owned());
        }
        if problems.is_empty() { Ok(Loaded { settings, notices }) } else { Err(problems) }
    }
}

fn unknown_key(name: &str, kind: DefinedBy) -> String {
    if kind == DefinedBy::Ours && kubelet_fields::is_not_applicable(name) {
        return format!("{name} is a field of the kubelet that has no meaning without pods: remove it");
    }
    let known = SETTINGS.iter().filter(|setting| kind == DefinedBy::Ours || setting.defined_by == DefinedBy::Kubelet);
    unknown("key", name, &mut known.map(|setting| setting.name), "nodepulse help settings lists them")
}

fn is_zero(value: &Value) -> bool {
    value.as_text().is_some_and(|text| text.is_empty() || duration::parse(text) == Ok(Duration::ZERO))
}

/// A flag that is given again: maps and lists grow, all others are replaced.
fn merge(before: &mut Value, value: Value) {
    match (&mut before.content, value.content) {
        (Content::List(items), Content::List(more)) => items.extend(more),
        (Content::Map(entries), Content::Map(more)) => {
            entries.retain(|entry| more.iter().all(|other| other.key != entry.key));
            entries.extend(more);
        }
        (before, content) => *before = content,
    }
}

#[cfg(test)]
mod tests;
