//! Turns arguments into one [`Invocation`], or one sentence that says what to write instead.

use std::ffi::OsString;
use std::fmt;

use lexopt::Arg;

use super::commands::{COMMANDS, Command, Format, OPTIONS};
use crate::config::nearest;
use crate::config::setting::Kind;
use crate::config::table::{self, SETTINGS};

/// One command with all it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    Run(Sources),
    Probe { root: String, format: Format, sources: Sources },
    Render { root: String, format: Format, sources: Sources },
    Check(Sources),
    Journal { file: Option<String>, format: Format, sources: Sources },
    Version,
    Help(Topic),
    Man,
    Completions(Shell),
}

/// Where settings come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `--config`; `None`: [`super::commands::DEFAULT_CONFIG`], if it is there.
    pub config: Option<String>,
    /// Settings by flag: name without dashes, value; in the order given, as [`crate::config::settings`] takes them.
    pub flags: Vec<(String, String)>,
}

/// What help is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Main,
    Command(Command),
    Settings,
    /// The table of all settings for the README.
    SettingsTable,
    ExitCodes,
}

/// A shell that completions are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    pub const ALL: [(&'static str, Shell); 3] = [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];
}

/// Topics of help beside the names of commands; the last one is for the README's table.
pub const TOPICS: [(&str, Topic); 3] =
    [("settings", Topic::Settings), ("exit-codes", Topic::ExitCodes), ("settings-table", Topic::SettingsTable)];

/// What is wrong with a command line; always exit code 64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageError {
    UnknownCommand {
        word: String,
        near: Option<&'static str>,
    },
    UnknownOption {
        option: String,
        near: Option<String>,
    },
    /// The command does not take it.
    OptionNotHere {
        option: String,
        command: &'static str,
    },
    MissingValue(String),
    UnexpectedValue(String),
    ExtraArgument(String),
    UnknownFormat {
        format: String,
        allowed: String,
    },
    UnknownTopic(String),
    UnknownShell(String),
    NotText(String),
}

/// Reads the arguments, the program's own name left out.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation, UsageError> {
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
    config: Option<String>,
    root: Option<String>,
    file: Option<String>,
    /// As written, and the value.
    format: Option<(String, String)>,
    help: bool,
    version: bool,
    flags: Vec<(String, String)>,
}

impl Given {
    fn take(&mut self, option: String, parser: &mut lexopt::Parser) -> Result<(), UsageError> {
        match option.as_str() {
            "-h" | "--help" => self.help = true,
            "-V" | "--version" => self.version = true,
            "--config" => self.config = Some(value_of(&option, parser)?),
            "--root" => self.root = Some(value_of(&option, parser)?),
            "--file" => self.file = Some(value_of(&option, parser)?),
            "-o" | "--output" => self.format = Some((option.clone(), value_of(&option, parser)?)),
            // `--v=4` is how most people write the kubelet's verbosity.
            _ => match table::by_flag(option.trim_start_matches('-')) {
                Some(setting) if matches!(setting.kind, Kind::Boolean(_)) => {
                    let value =
                        parser.optional_value().map_or(Ok("true".to_owned()), |value| into_text(value, &option));
                    self.flags.push((setting.flag.to_owned(), value?));
                }
                Some(setting) => self.flags.push((setting.flag.to_owned(), value_of(&option, parser)?)),
                None => return Err(unknown_option(option)),
            },
        }
        Ok(())
    }

    fn into_invocation(self) -> Result<Invocation, UsageError> {
        let mut words = self.words.iter();
        let command = match words.next() {
            Some(word) => Command::named(word).ok_or_else(|| unknown_command(word))?,
            None if self.version => return Ok(Invocation::Version),
            None if self.help => return Ok(Invocation::Help(Topic::Main)),
            None => Command::Run,
        };
        let argument = words.next();
        let takes_one = !command.row().argument.is_empty();
        if let Some(extra) = if takes_one { words.next() } else { argument } {
            return Err(UsageError::ExtraArgument(extra.clone()));
        }
        if self.help {
            return Ok(Invocation::Help(Topic::Command(command)));
        }
        if self.version {
            return Ok(Invocation::Version);
        }
        self.check_options(command)?;
        let format = self.format_for(command)?;
        let sources = Sources { config: self.config, flags: self.flags };
        let root = self.root.unwrap_or_else(|| "/".to_owned());
        Ok(match command {
            Command::Run => Invocation::Run(sources),
            Command::Probe => Invocation::Probe { root, format, sources },
            Command::Render => Invocation::Render { root, format, sources },
            Command::Check => Invocation::Check(sources),
            Command::Journal => Invocation::Journal { file: self.file, format, sources },
            Command::Version => Invocation::Version,
            Command::Help => Invocation::Help(topic(argument.map_or("", String::as_str))?),
            Command::Man => Invocation::Man,
            Command::Completions => Invocation::Completions(shell(argument.map_or("", String::as_str))?),
        })
    }

    fn check_options(&self, command: Command) -> Result<(), UsageError> {
        let row = command.row();
        let refused = if !row.settings && self.config.is_some() {
            "--config".to_owned()
        } else if !row.root && self.root.is_some() {
            "--root".to_owned()
        } else if !row.file && self.file.is_some() {
            "--file".to_owned()
        } else if let Some((option, _)) = self.format.as_ref().filter(|_| row.formats.is_empty()) {
            option.clone()
        } else if let Some((flag, _)) = self.flags.first().filter(|_| !row.settings) {
            table::by_flag(flag).map(|setting| setting.dashed_flag()).unwrap_or_default()
        } else {
            return Ok(());
        };
        Err(UsageError::OptionNotHere { option: refused, command: row.name })
    }

    fn format_for(&self, command: Command) -> Result<Format, UsageError> {
        let formats = command.row().formats;
        let Some((_, name)) = &self.format else { return Ok(formats.first().copied().unwrap_or(Format::Text)) };
        formats.iter().copied().find(|format| format.name() == name).ok_or_else(|| UsageError::UnknownFormat {
            format: name.clone(),
            allowed: formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

fn topic(word: &str) -> Result<Topic, UsageError> {
    if word.is_empty() {
        return Ok(Topic::Main);
    }
    let named = TOPICS.iter().find(|(name, _)| *name == word).map(|(_, topic)| *topic);
    named.or_else(|| Command::named(word).map(Topic::Command)).ok_or_else(|| UsageError::UnknownTopic(word.to_owned()))
}

fn shell(word: &str) -> Result<Shell, UsageError> {
    let shell = Shell::ALL.iter().find(|(name, _)| *name == word);
    shell.map(|(_, shell)| *shell).ok_or_else(|| UsageError::UnknownShell(word.to_owned()))
}

fn value_of(option: &str, parser: &mut lexopt::Parser) -> Result<String, UsageError> {
    into_text(parser.value().map_err(from_lexopt)?, option)
}

fn into_text(value: OsString, whose: &str) -> Result<String, UsageError> {
    value.into_string().map_err(|_| UsageError::NotText(whose.to_owned()))
}

fn unknown_command(word: &str) -> UsageError {
    // A truth value stands alone where someone wrote `--podless false`.
    let visible = COMMANDS.iter().filter(|row| !row.hidden).map(|row| row.name);
    UsageError::UnknownCommand { word: word.to_owned(), near: nearest(word, visible) }
}

fn unknown_option(option: String) -> UsageError {
    let settings: Vec<String> = SETTINGS.iter().map(|setting| setting.dashed_flag()).collect();
    let options = OPTIONS.iter().flat_map(|row| row.names).copied();
    let near = nearest(&option, settings.iter().map(String::as_str).chain(options)).map(str::to_owned);
    UsageError::UnknownOption { option, near }
}

fn from_lexopt(error: lexopt::Error) -> UsageError {
    match error {
        lexopt::Error::MissingValue { option } => UsageError::MissingValue(option.unwrap_or_default()),
        lexopt::Error::UnexpectedOption(option) => unknown_option(option),
        lexopt::Error::UnexpectedArgument(word) => UsageError::ExtraArgument(word.to_string_lossy().into_owned()),
        lexopt::Error::UnexpectedValue { option, .. } => UsageError::UnexpectedValue(option),
        lexopt::Error::ParsingFailed { .. } | lexopt::Error::NonUnicodeValue(_) | lexopt::Error::Custom(_) => {
            UsageError::NotText("an argument".to_owned())
        }
    }
}

impl UsageError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            UsageError::UnknownCommand { .. } => "unknown-command",
            UsageError::UnknownOption { .. } => "unknown-option",
            UsageError::OptionNotHere { .. } => "option-not-here",
            UsageError::MissingValue(_) => "missing-value",
            UsageError::UnexpectedValue(_) => "unexpected-value",
            UsageError::ExtraArgument(_) => "extra-argument",
            UsageError::UnknownFormat { .. } => "unknown-format",
            UsageError::UnknownTopic(_) => "unknown-topic",
            UsageError::UnknownShell(_) => "unknown-shell",
            UsageError::NotText(_) => "not-text",
        }
    }
}

impl fmt::Display for UsageError {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::UnknownCommand { word, near: Some(near) } => {
                write!(f, "unknown command {word:?}: did you mean {near}?")
            }
            UsageError::UnknownCommand { word, .. } if matches!(word.as_str(), "true" | "false") => {
                write!(f, "{word:?} stands alone: write a truth value with `=`, as in --podless={word}")
            }
            UsageError::UnknownCommand { word, .. } => write!(f, "unknown command {word:?}: see nodepulse help"),
            UsageError::UnknownOption { option, near: Some(near) } => {
                write!(f, "unknown option {option}: did you mean {near}?")
            }
            UsageError::UnknownOption { option, .. } => {
                write!(f, "unknown option {option}: see nodepulse help settings")
            }
            UsageError::OptionNotHere { option, command } => {
                write!(f, "{command} does not take {option}: see nodepulse help {command}")
            }
            UsageError::MissingValue(option) => write!(f, "{option} needs a value: write {option} VALUE"),
            UsageError::UnexpectedValue(option) => write!(f, "{option} takes no value"),
            UsageError::ExtraArgument(word) => write!(f, "{word:?} is one argument too many: see nodepulse help"),
            UsageError::UnknownFormat { format, allowed } => write!(f, "unknown format {format:?}: use {allowed}"),
            UsageError::UnknownTopic(word) => {
                write!(f, "no help on {word:?}: name a command, settings or exit-codes")
            }
            UsageError::UnknownShell(word) => write!(f, "no completions for {word:?}: use bash, zsh or fish"),
            UsageError::NotText(whose) => write!(f, "the value of {whose} is not UTF-8 text"),
        }
    }
}

impl std::error::Error for UsageError {}

#[cfg(test)]
mod tests;
