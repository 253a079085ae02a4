//! Turns arguments into one [`Invocation`], or one sentence that says what to write instead.

use std::ffi::OsString;

use lexopt::Arg;

use super::commands::{COMMANDS, Command, CommandRow, Format, OPTIONS, OptionRow};
use super::help::Topic;
use crate::config::nearest;
use crate::config::settings::{Form, SETTINGS, Setting};

/// One command with all it needs; what it does not take is left as it is without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub command: Command,
    /// What help is asked for.
    pub topic: Topic,
    /// Folder of `--root`.
    pub root: String,
    pub file: Option<String>,
    pub format: Format,
    pub sources: Sources,
}

/// Where settings come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `--config`; `None`: [`super::commands::DEFAULT_CONFIG`], if it is there.
    pub config: Option<String>,
    /// Settings by flag: name without dashes, value; in the order given, as [`crate::config::settings`] takes them.
    pub flags: Vec<(String, String)>,
}

/// Reads the arguments, the program's own name left out.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation, String> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut given = Given::default();
    while let Some(arg) = parser.next().map_err(from_lexopt)? {
        let option = match arg {
            Arg::Value(word) => {
                given.words.push(into_text(word, "an argument")?);
                continue;
            }
            Arg::Short(letter) => format!("-{letter}"),
            Arg::Long(name) => format!("--{name}"),
        };
        given.take(option, &mut parser)?;
    }
    given.into_invocation()
}

/// Everything on the command line, not yet held against the command.
#[derive(Default)]
struct Given {
    words: Vec<String>,
    /// As written, and the value.
    options: Vec<(&'static OptionRow, String, String)>,
    flags: Vec<(String, String)>,
}

impl Given {
    fn take(&mut self, written: String, parser: &mut lexopt::Parser) -> Result<(), String> {
        if let Some(row) = OPTIONS.iter().find(|row| row.long == written || row.short == written) {
            let value = if row.placeholder.is_empty() { String::new() } else { value_of(&written, parser)? };
            self.options.push((row, written, value));
            return Ok(());
        }
        // `--v=4` is how most people write the kubelet's verbosity.
        let Some(setting) = Setting::by_flag(written.trim_start_matches('-')) else {
            return Err(unknown_option(&written));
        };
        let value = match (setting.form, parser.optional_value()) {
            (_, Some(value)) => into_text(value, &written)?,
            (Form::Boolean, None) => "true".to_owned(),
            (_, None) => value_of(&written, parser)?,
        };
        self.flags.push((setting.flag.to_owned(), value));
        Ok(())
    }

    /// The value of an option, the last one if it was given twice.
    fn option(&self, long: &str) -> Option<&String> {
        self.options.iter().rfind(|(row, ..)| row.long == long).map(|(_, _, value)| value)
    }

    fn into_invocation(self) -> Result<Invocation, String> {
        let mut words = self.words.iter();
        let word = words.next();
        let row = match word {
            Some(word) => CommandRow::named(word).ok_or_else(|| unknown_command(word))?,
            None => Command::Run.row(),
        };
        let argument = if row.command == Command::Help { words.next() } else { None };
        if let Some(extra) = words.next() {
            return Err(format!("{extra:?} is one argument too many: see nodepulse help"));
        }
        let mut format = row.formats.first().copied().unwrap_or(Format::Text);
        let (command, topic) = if self.option("--help").is_some() {
            (Command::Help, word.map_or(Topic::Main, |_| Topic::Command(row.command)))
        } else if self.option("--version").is_some() {
            (Command::Version, Topic::Main)
        } else {
            self.check_options(row)?;
            format = self.option("--output").map_or(Ok(format), |name| format_named(name, row))?;
            (row.command, argument.map_or(Ok(Topic::Main), |word| topic_named(word))?)
        };
        let root = self.option("--root").map_or("/", String::as_str).to_owned();
        let (file, config) = (self.option("--file").cloned(), self.option("--config").cloned());
        Ok(Invocation { command, topic, root, file, format, sources: Sources { config, flags: self.flags } })
    }

    fn check_options(&self, row: &CommandRow) -> Result<(), String> {
        let refused =
            self.options.iter().find(|(option, ..)| !row.has(option.long)).map(|(_, written, _)| written.clone());
        let flag = self.flags.first().filter(|_| !row.has_settings()).and_then(|(flag, _)| Setting::by_flag(flag));
        match refused.or_else(|| flag.map(Setting::dashed_flag)) {
            Some(option) => Err(format!("{name} does not take {option}: see nodepulse help {name}", name = row.name)),
            None => Ok(()),
        }
    }
}

fn format_named(name: &str, row: &CommandRow) -> Result<Format, String> {
    row.formats.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
        let allowed: Vec<&str> = row.formats.iter().map(|format| format.name()).collect();
        format!("unknown format {name:?}: use {}", allowed.join(", "))
    })
}

fn topic_named(word: &str) -> Result<Topic, String> {
    match (word, CommandRow::named(word)) {
        ("settings", _) => Ok(Topic::Settings),
        ("exit-codes", _) => Ok(Topic::ExitCodes),
        (_, Some(row)) => Ok(Topic::Command(row.command)),
        (_, None) => Err(format!("no help on {word:?}: name a command, settings or exit-codes")),
    }
}

fn value_of(option: &str, parser: &mut lexopt::Parser) -> Result<String, String> {
    into_text(parser.value().map_err(from_lexopt)?, option)
}

fn into_text(value: OsString, whose: &str) -> Result<String, String> {
    value.into_string().map_err(|_| format!("the value of {whose} is not UTF-8 text"))
}

fn unknown_command(word: &str) -> String {
    match nearest(word, COMMANDS.iter().map(|row| row.name)) {
        Some(near) => format!("unknown command {word:?}: did you mean {near}?"),
        // Where someone wrote `--podless false`.
        None if matches!(word, "true" | "false") => {
            format!("{word:?} stands alone: write a truth value with `=`, as in --podless={word}")
        }
        None => format!("unknown command {word:?}: see nodepulse help"),
    }
}

fn unknown_option(option: &str) -> String {
    let settings: Vec<String> = SETTINGS.iter().map(Setting::dashed_flag).collect();
    let options = OPTIONS.iter().flat_map(|row| [row.long, row.short]);
    match nearest(option, settings.iter().map(String::as_str).chain(options)) {
        Some(near) => format!("unknown option {option}: did you mean {near}?"),
        None => format!("unknown option {option}: see nodepulse help settings"),
    }
}

fn from_lexopt(error: lexopt::Error) -> String {
    match error {
        lexopt::Error::MissingValue { option } => {
            let option = option.unwrap_or_default();
            format!("{option} needs a value: write {option} VALUE")
        }
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
