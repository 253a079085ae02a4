//! One setting: what files, flags, help and completions have to know of it, and how its value is read.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::duration;
use super::limits;
use super::problem::{Origin, Report, quoted};
use super::settings::Settings;
use super::yaml::{Entry, Value};

/// One row of [`super::table::SETTINGS`].
pub struct Setting {
    /// Key in the settings file. A dot means a key of a map: `logging.verbosity`.
    pub name: &'static str,
    /// Flag, without its dashes; one letter means one dash.
    pub flag: &'static str,
    /// As a file would say it; empty: none.
    pub default: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    pub whose: Whose,
    pub kind: Kind,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A field of the kubelet's configuration file: name, default and meaning are the kubelet's.
    Kubelet,
    /// Only a flag of the kubelet; here also a key of the file.
    KubeletFlag,
    Ours,
}

/// What a value looks like, and where it goes once it is checked.
pub enum Kind {
    Boolean(fn(&mut Settings, bool)),
    /// A whole number that is allowed to be in this range.
    Number(RangeInclusive<u32>, fn(&mut Settings, u32)),
    /// A time span that is allowed to be this short.
    Duration(Duration, fn(&mut Settings, Duration)),
    /// One line of text; first what stands for it in the help.
    Text(&'static str, ReadText),
    /// A path; one from a file is relative to that file's folder, as in the kubelet's settings.
    File(fn(&mut Settings, String)),
    /// An absolute path.
    Directory(fn(&mut Settings, String)),
    /// A map in a file, `KEY=VALUE,...` in a flag; what stands for a key, the separator, what stands for a value.
    Map(&'static str, char, &'static str, fn(&mut Settings, &[Entry], &mut Report<'_>)),
    /// A list in a file, commas in a flag; what stands for an item in a flag, and in a file; how many are allowed.
    List(&'static str, &'static str, usize, fn(&mut Settings, &[Value], &mut Report<'_>)),
}

/// Reads one line of text; an error says what is wrong with it.
pub type ReadText = fn(&mut Settings, &str, &mut Report<'_>) -> Result<(), String>;

impl Setting {
    /// One that [`Setting::means`] and [`Setting::is`] complete.
    pub(super) const fn new(name: &'static str, flag: &'static str, default: &'static str, whose: Whose) -> Setting {
        Setting { name, flag, default, whose, meaning: "", kind: Kind::Boolean(|_, _| {}) }
    }

    pub(super) const fn means(self, meaning: &'static str) -> Setting {
        Setting { meaning, ..self }
    }

    pub(super) const fn is(self, kind: Kind) -> Setting {
        Setting { kind, ..self }
    }

    /// `--node-labels`, `-v`.
    pub fn dashed_flag(&self) -> String {
        format!("{}{}", if self.flag.len() == 1 { "-" } else { "--" }, self.flag)
    }

    /// `--node-labels KEY=VALUE,...`, for the help; a truth value may be left out.
    pub fn form(&self) -> String {
        let flag = self.dashed_flag();
        match &self.kind {
            Kind::Boolean(_) => format!("{flag}[=true|false]"),
            Kind::Number(..) => format!("{flag} N"),
            Kind::Duration(..) => format!("{flag} DURATION"),
            Kind::Text(placeholder, _) => format!("{flag} {placeholder}"),
            Kind::File(_) => format!("{flag} FILE"),
            Kind::Directory(_) => format!("{flag} DIR"),
            Kind::Map(key, separator, value, _) => format!("{flag} {key}{separator}{value},..."),
            Kind::List(item, ..) => format!("{flag} {item},..."),
        }
    }

    /// Cuts a flag's text as the kubelet's flags do.
    pub(super) fn flag_value(&self, text: &str) -> Value {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        match self.kind {
            Kind::List(..) => Value::List { items: parts.map(Value::of_flag).collect(), line: 0 },
            Kind::Map(_, separator, ..) => {
                let entry = |part: &str| match part.split_once(separator) {
                    Some((key, text)) => {
                        Entry { key: key.trim().to_owned(), line: 0, value: Value::of_flag(text.trim()) }
                    }
                    None => Entry { key: part.to_owned(), line: 0, value: Value::Null { line: 0 } },
                };
                Value::Map { entries: parts.map(entry).collect(), line: 0 }
            }
            _ => Value::of_flag(text),
        }
    }

    /// Checks a value and puts it in its place; what is refused changes nothing.
    pub(super) fn read(&self, to: &mut Settings, value: &Value, report: &mut Report<'_>) {
        if let Err(wrong) = self.read_or_refuse(to, value, report) {
            report.refuse(wrong);
        }
    }

    fn read_or_refuse(&self, to: &mut Settings, value: &Value, report: &mut Report<'_>) -> Result<(), String> {
        match (&self.kind, value) {
            (Kind::Map(_, _, _, read), Value::Map { entries, .. }) => {
                check_count(entries.len(), limits::NODE_LABELS)?;
                read(to, entries, report);
            }
            (Kind::List(_, _, most, read), Value::List { items, .. }) => {
                check_count(items.len(), *most)?;
                read(to, items, report);
            }
            (Kind::Map(key, _, of, _), other) => {
                return Err(format!("must be a map of {key}: {of}, not {}", other.kind()));
            }
            (Kind::List(_, of, ..), other) => return Err(format!("must be a list of {of}, not {}", other.kind())),
            (_, Value::Scalar { text, .. }) => return self.read_text(to, text.trim(), report),
            (_, other) => return Err(format!("must be a single value, not {}", other.kind())),
        }
        Ok(())
    }

    fn read_text(&self, to: &mut Settings, text: &str, report: &mut Report<'_>) -> Result<(), String> {
        if text.chars().any(char::is_control) {
            return Err("must be one line without control characters".to_owned());
        }
        match &self.kind {
            Kind::Boolean(set) => match text {
                "true" | "True" | "TRUE" => set(to, true),
                "false" | "False" | "FALSE" => set(to, false),
                other => return Err(format!("must be true or false, not {}", quoted(other))),
            },
            Kind::Number(range, set) => match text.parse().ok().filter(|number| range.contains(number)) {
                Some(number) => set(to, number),
                None => {
                    let (least, most) = (range.start(), range.end());
                    return Err(format!("must be a whole number from {least} to {most}, not {}", quoted(text)));
                }
            },
            Kind::Duration(least, set) => match duration::parse(text) {
                Ok(span) if span >= *least => set(to, span),
                Ok(_) => return Err(format!("must be at least {least:?}, not {}", quoted(text))),
                Err(wrong) => return Err(format!("{} {wrong}", quoted(text))),
            },
            Kind::File(set) => set(to, path(text, report)),
            Kind::Directory(set) => match path(text, report) {
                path if path.starts_with('/') => set(to, path),
                _ => return Err("must be an absolute path".to_owned()),
            },
            Kind::Text(_, read) => return read(to, text, report),
            Kind::Map(..) | Kind::List(..) => {}
        }
        Ok(())
    }
}

fn check_count(count: usize, most: usize) -> Result<(), String> {
    if count > most { Err(format!("has {count} entries; {most} are allowed")) } else { Ok(()) }
}

fn path(text: &str, report: &Report<'_>) -> String {
    match report.origin {
        Origin::File(file) if !text.is_empty() => beside(file, text),
        _ => text.to_owned(),
    }
}

/// `path`, which is relative to the folder of `file`.
pub(super) fn beside(file: &str, path: &str) -> String {
    Path::new(file).with_file_name(path).display().to_string()
}
