//! Turns arguments into one [`Invocation`], or one sentence that says what to write instead.

use std::ffi::OsString;
use std::fmt;

use lexopt::Arg;

use super::commands::{COMMANDS, Command, CommandRow, Format, OPTIONS, OptionRow, Picture, RUN};
use crate::config::settings::{Form, SETTINGS, Setting};
use crate::config::unknown;

/// One command with its arguments; what it does not take has its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub command: Command,
    /// What help is asked for: a command, `settings` or `exit-codes`; empty: everything.
    pub topic: String,
    /// Folder of `--root`.
    pub root: String,
    /// Where each line was read is said, too.
    pub with_sources: bool,
    pub file: Option<String>,
    pub picture: Option<Picture>,
    pub from_events: Option<String>,
    pub until: Option<String>,
    pub reason: Option<String>,
    /// Again and again.
    pub watch: bool,
    pub format: Format,
    pub sources: Sources,
}

/// Where settings come from.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `--config`; `None`: [`super::commands::DEFAULT_CONFIG`], if it is there.
    pub config: Option<String>,
    /// Settings by flag: name without dashes, value; in the order given, as [`crate::config::settings`] takes them.
    pub flags: Vec<(String, String)>,
}

impl fmt::Debug for Sources {
    /// Never prints a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |(flag, value): &(String, String)| (flag.clone(), if flag == "token" { ".." } else { value }.to_owned());
        let flags: Vec<(String, String)> = self.flags.iter().map(shown).collect();
        f.debug_struct("Sources").field("config", &self.config).field("flags", &flags).finish()
    }
}

/// Reads the arguments, the program's own name left out.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation, String> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut words = Vec::new();
    // By their long names.
    let mut options = Vec::new();
    let mut flags: Vec<(String, String)> = Vec::new();
    while let Some(arg) = parser.next().map_err(from_lexopt)? {
        let written = match arg {
            Arg::Value(word) => {
                words.push(into_text(word, "an argument")?);
                continue;
            }
            Arg::Short(letter) => format!("-{letter}"),
            Arg::Long(name) => format!("--{name}"),
        };
        if written == "--json" {
            options.push(("--output", "json".to_owned()));
        } else if let Some(row) = OPTIONS.iter().find(|row| row.names().any(|name| name == written)) {
            let value = if row.takes_value() { value_of(&written, &mut parser)? } else { String::new() };
            options.push((row.long_name(), value));
        } else {
            flags.push(setting(&written, &mut parser)?);
        }
    }
    let mut tokens = flags.iter().filter(|(flag, _)| flag == "token").map(|(_, token)| token);
    let first = tokens.next();
    if tokens.any(|token| Some(token) != first) {
        return Err(
            "two different tokens are given: one does both, discovery and bootstrap; give that alone".to_owned()
        );
    }
    invocation(&words, options, flags)
}

/// What kubeadm calls some of the settings in the line that `kubeadm token create --print-join-command` prints.
const KUBEADM: [(&str, &str); 5] = [
    ("--discovery-token", "--token"),
    ("--tls-bootstrap-token", "--token"),
    ("--discovery-token-ca-cert-hash", "--ca-hash"),
    ("--discovery-token-unsafe-skip-ca-verification", "--unsafe-skip-ca-verification"),
    ("--node-name", "--hostname-override"),
];

/// The name of a setting's flag, and its value.
fn setting(written: &str, parser: &mut lexopt::Parser) -> Result<(String, String), String> {
    let ours = KUBEADM.iter().find(|(name, _)| *name == written).map_or(written, |(_, ours)| ours);
    // `--v=4` is how most people write the kubelet's verbosity.
    let setting = Setting::by_flag(ours.trim_start_matches('-')).ok_or_else(|| unknown_option(written))?;
    let value = match parser.optional_value() {
        Some(value) => into_text(value, written)?,
        None if setting.form == Form::Boolean => "true".to_owned(),
        None => value_of(written, parser)?,
    };
    Ok((setting.flag.to_owned(), value))
}

fn invocation(
    words: &[String],
    options: Vec<(&str, String)>,
    mut flags: Vec<(String, String)>,
) -> Result<Invocation, String> {
    // The last one counts if one was given twice.
    let value = |name: &str| options.iter().rfind(|(option, _)| *option == name).map(|(_, value)| value.clone());
    let (word, more) = words.split_first().map_or((None, words), |(word, more)| (Some(word), more));
    let row = word.map_or(Ok(RUN), |word| CommandRow::by_name(word).ok_or_else(|| unknown_command(word)))?;
    let (topic, extra) = match row.command {
        Command::Help | Command::Why => (more.first(), more.get(1)),
        Command::Join => (None, None),
        _ => (None, more.first()),
    };
    if row.command == Command::Join {
        flags.extend(more.iter().map(|server| ("servers".to_owned(), server.clone())));
    }
    if let Some(extra) = extra {
        return Err(format!("{extra:?} is one argument too many: see nodepulse help"));
    }
    let (mut command, mut topic) = (row.command, topic.cloned().unwrap_or_default());
    let mut format = None;
    if value("--help").is_some() {
        (command, topic) = (Command::Help, word.cloned().unwrap_or_default());
    } else if value("--version").is_some() {
        command = Command::Version;
    } else {
        check_taken(row, &options, &flags)?;
        format = value("--output");
    }
    let [file, until, reason, from_events] = ["--file", "--until", "--reason", "--from-events"].map(value);
    let is_drawn = value("--plot").is_some() || from_events.is_some();
    let mut picture = is_drawn.then_some(Picture::Text);
    let format = match format.as_deref() {
        None | Some("text") => Format::Text,
        Some("json") if is_drawn => {
            return Err("a picture is text or svg; without --plot -o json has all of it".to_owned());
        }
        Some("json") => Format::Json,
        Some("svg") if row.takes("--plot") => {
            picture = Some(Picture::Svg);
            Format::Text
        }
        Some(other) => return Err(format!("unknown format {other:?}: use text or json")),
    };
    let root = value("--root").unwrap_or_else(|| "/".to_owned());
    let sources = Sources { config: value("--config"), flags };
    let [watch, with_sources] = ["--watch", "--sources"].map(|name| value(name).is_some());
    #[rustfmt::skip]
    let invocation = Invocation {
        command, topic, root, with_sources, file, picture, from_events, until, reason, watch, format, sources
    };
    Ok(invocation)
}

fn check_taken(row: &CommandRow, options: &[(&str, String)], flags: &[(String, String)]) -> Result<(), String> {
    let option = options.iter().find(|(option, _)| !row.takes(option)).map(|(option, _)| (*option).to_owned());
    let flag = flags.first().filter(|_| !row.takes_settings()).and_then(|(flag, _)| Setting::by_flag(flag));
    match option.or_else(|| flag.map(Setting::dashed_flag)) {
        Some(option) => Err(format!("{name} does not take {option}: see nodepulse help {name}", name = row.name())),
        None => Ok(()),
    }
}

fn value_of(option: &str, parser: &mut lexopt::Parser) -> Result<String, String> {
    into_text(parser.value().map_err(from_lexopt)?, option)
}

fn into_text(value: OsString, whose: &str) -> Result<String, String> {
    value.into_string().map_err(|_| format!("the value of {whose} is not UTF-8 text"))
}

fn unknown_command(word: &str) -> String {
    // Where someone wrote `--podless false`.
    if matches!(word, "true" | "false") {
        return format!("{word:?} is no command: write the value of a setting with `=`, as in --podless={word}");
    }
    unknown("command", word, &mut COMMANDS.iter().map(|row| row.name()), "see nodepulse help")
}

fn unknown_option(option: &str) -> String {
    let settings = SETTINGS.iter().map(Setting::dashed_flag);
    let known: Vec<String> = settings.chain(OPTIONS.iter().flat_map(OptionRow::names).map(str::to_owned)).collect();
    unknown("option", option, &mut known.iter().map(String::as_str), "see nodepulse help settings")
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
