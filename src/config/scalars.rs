//! Turns one value of the file or of a flag into a truth value, a number, a duration, a text or a path.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::duration;
use super::limits;
use super::problem::{Origin, Problem};
use super::quantity::Quantity;
use super::settings::{Settings, Signal, Threshold};
use super::yaml::Value;

/// Settings under construction: what the file and the flags said so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub settings: Settings,
    /// `evictionHard` as given, `None` for a signal that is switched off; `None` outside: not given (EVI-2).
    pub eviction_hard: Option<BTreeMap<Signal, Option<Threshold>>>,
    pub merge_default_eviction_settings: bool,
    /// Where `evictionSoft` was given, for what its grace periods lack.
    pub eviction_soft_at: Option<Problem>,
}

/// Collects what is wrong with one setting, and what is worth knowing about it.
pub(super) struct Report<'a> {
    pub origin: &'a Origin,
    /// Name in the file, or the flag with its dashes.
    pub field: &'a str,
    pub problems: &'a mut Vec<Problem>,
    pub notices: &'a mut Vec<String>,
}

impl Report<'_> {
    /// A problem with the setting itself.
    pub fn refuse(&mut self, value: &Value, text: impl Into<String>) {
        self.refuse_below(value.line(), "", text);
    }

    /// A problem with a part of it: `below` is `.key` or `[index]`.
    pub fn refuse_below(&mut self, line: u32, below: &str, text: impl Into<String>) {
        if self.problems.len() < limits::PROBLEMS {
            let problem = self.problem_at(line, below, text.into());
            self.problems.push(problem);
        }
    }

    pub fn problem_at(&self, line: u32, below: &str, text: String) -> Problem {
        let line = (line > 0).then_some(line);
        Problem { origin: self.origin.clone(), line, field: format!("{}{below}", self.field), text }
    }

    /// Something that is not wrong and yet may surprise.
    pub fn tell(&mut self, line: u32, below: &str, text: &str) {
        if self.notices.len() < limits::PROBLEMS {
            let notice = self.problem_at(line, below, text.to_owned()).to_string();
            self.notices.push(notice);
        }
    }
}

/// Keeps the old value where the new one was refused.
pub(super) fn set<T>(slot: &mut T, read: Option<T>) {
    if let Some(read) = read {
        *slot = read;
    }
}

/// The text of a single value.
pub(super) fn scalar<'v>(value: &'v Value, report: &mut Report<'_>) -> Option<&'v str> {
    match value {
        Value::Scalar { text, .. } => Some(text.trim()),
        other => {
            report.refuse(other, format!("must be a single value, not {}", other.kind()));
            None
        }
    }
}

/// Free text; control characters have no place in a name.
pub(super) fn text(value: &Value, report: &mut Report<'_>) -> Option<String> {
    let text = scalar(value, report)?;
    if text.chars().any(char::is_control) {
        report.refuse(value, "must be one line without control characters");
        return None;
    }
    Some(text.to_owned())
}

pub(super) fn boolean(value: &Value, report: &mut Report<'_>) -> Option<bool> {
    match scalar(value, report)? {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        other => {
            report.refuse(value, format!("must be true or false, not {}", quoted(other)));
            None
        }
    }
}

/// A quantity of bytes within what is allowed.
pub(super) fn bytes(value: &Value, allowed: RangeInclusive<usize>, report: &mut Report<'_>) -> Option<usize> {
    let text = scalar(value, report)?;
    let read = Quantity::parse(text).ok().and_then(|quantity| usize::try_from(quantity.value()).ok());
    let within = read.filter(|bytes| allowed.contains(bytes));
    if within.is_none() {
        let [low, high] = [allowed.start(), allowed.end()].map(|bound| Quantity::from_bytes(*bound as u64));
        report.refuse(value, format!("must be a quantity from {low} to {high}, not {}", quoted(text)));
    }
    within
}

pub(super) fn number(value: &Value, allowed: RangeInclusive<u32>, report: &mut Report<'_>) -> Option<u32> {
    let text = scalar(value, report)?;
    let read = text.parse().ok().filter(|number| allowed.contains(number));
    if read.is_none() {
        let (least, most) = (allowed.start(), allowed.end());
        report.refuse(value, format!("must be a whole number from {least} to {most}, not {}", quoted(text)));
    }
    read
}

/// A duration of at least `least`.
pub(super) fn span(value: &Value, least: Duration, report: &mut Report<'_>) -> Option<Duration> {
    let text = scalar(value, report)?;
    match duration::parse(text) {
        Ok(span) if span >= least => Some(span),
        Ok(_) => {
            report.refuse(value, format!("must be at least {}, not {}", duration::print(least), quoted(text)));
            None
        }
        Err(error) => {
            report.refuse(value, format!("{} {error}", quoted(text)));
            None
        }
    }
}

/// A path; one from a file is relative to that file's folder, as in the kubelet's settings.
pub(super) fn path(value: &Value, report: &mut Report<'_>) -> Option<String> {
    let text = text(value, report)?;
    Some(match report.origin {
        Origin::File(settings_path) if !text.is_empty() => joined(folder(settings_path), &text),
        _ => text,
    })
}

/// The folder of a path; empty for a bare file name.
pub(super) fn folder(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

/// `path`, below `folder` unless it is absolute.
pub(super) fn joined(folder: &str, path: &str) -> String {
    if path.starts_with('/') || folder.is_empty() {
        return path.to_owned();
    }
    format!("{}/{path}", folder.strip_suffix('/').unwrap_or(folder))
}

/// `"text"` for a sentence: cut where it is long, escaped where it is strange.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).collect();
    let ellipsis = if shown.len() < text.len() { "..." } else { "" };
    format!("{shown:?}{ellipsis}")
}
