//! Turns arguments into one command, text and an exit code.

pub mod args;
mod ask;
mod away;
mod check;
mod colour;
pub mod commands;
mod cost;
mod error;
pub mod help;
mod identity;
mod join;
mod journal;
mod leave;
mod load;
mod means;
mod probe;
mod render;
mod renew;
mod run;
mod status;
mod timeline;
mod why;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use serde_json::Value;

use args::Invocation;
use away::Announced;
use commands::{Command, Format, exit};
use cost::Cost;
use error::CliError;
use identity::Identity;
use journal::JournalFile;
use status::Status;
use why::Why;

use crate::config::plain_text;

/// Runs the command that `args`, the program's own name left out, ask for; answers the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let invocation = args::parse(args).map_err(|wrong| CliError::new(exit::USAGE, wrong));
    invocation.and_then(execute).unwrap_or_else(|error| {
        error.sentences.iter().for_each(|sentence| complain(sentence));
        error.code
    })
}

fn execute(invocation: Invocation) -> Result<u8, CliError> {
    #[rustfmt::skip]
    let Invocation {
        command, topic, root, with_sources, file, picture, from_events, until, reason, watch, format, mut sources } = invocation;
    load::read_token(&mut sources, std::io::stdin().lock())?;
    match command {
        Command::Version => print(&help::version())?,
        Command::Help => {
            let unknown = || format!("no help on {topic:?}: name a command, settings or exit-codes");
            print(&help::help(&topic).ok_or_else(|| CliError::new(exit::USAGE, unknown()))?)?;
        }
        Command::Probe => {
            let (page, remarks) = probe::probe(&sources, &root, with_sources, format)?;
            remarks.iter().for_each(|remark| complain(remark));
            print(&page)?;
        }
        Command::Render => {
            let (node, notes) = render::render(&sources, &root)?;
            notes.iter().for_each(|note| complain(note));
            print(&document(&node))?;
        }
        Command::Check => {
            let findings = check::check(&sources)?;
            findings.iter().try_for_each(|finding| print(&finding.to_line()))?;
            return Ok(check::exit_code(&findings));
        }
        Command::Journal => {
            print(&match picture {
                Some(picture) => journal::drawn(picture, file.as_deref(), from_events.as_deref(), &sources)?,
                None => {
                    let journal = journal::read(file.as_deref(), &sources)?;
                    shown(&journal, format, JournalFile::to_text, JournalFile::to_json)
                }
            })?;
        }
        Command::Identity => {
            print(&shown(&identity::read(&sources)?, format, Identity::to_text, Identity::to_json))?;
        }
        Command::Cost => {
            print(&shown(&cost::cost(&sources)?, format, Cost::to_text, Cost::to_json))?;
        }
        Command::Status => loop {
            let text = shown(&status::status(&sources)?, format, Status::to_text, Status::to_json);
            let is_read = put(&(if watch && format == Format::Text { colour::CLEAR } else { "" }.to_owned() + &text))?;
            if !(watch && is_read) {
                break;
            }
            status::pause();
        },
        Command::Why => print(&shown(&why::why(&topic, &sources)?, format, Why::to_text, Why::to_json))?,
        Command::Renew => print(&renew::renew(&sources)?)?,
        Command::Away | Command::Back => {
            let announced = match command {
                Command::Away => away::away(until.as_deref(), reason, &sources)?,
                _ => away::back(&sources)?,
            };
            print(&shown(&announced, format, Announced::to_text, Announced::to_json))?;
        }
        Command::Leave => print(&leave::leave(&sources)?)?,
        Command::Run | Command::Join => {
            let ended = if command == Command::Join { join::join(sources) } else { run::run(sources, false) };
            log::logger().flush();
            ended?;
        }
    }
    Ok(exit::OK)
}

/// For people, or for programs.
fn shown<T>(what: &T, format: Format, to_text: fn(&T) -> String, to_json: fn(&T) -> Value) -> String {
    match format {
        Format::Text => to_text(what),
        Format::Json => document(&to_json(what)),
    }
}

fn document(value: &Value) -> String {
    plain_text::page(&format!("{value:#}\n")).into_owned()
}

/// One line on standard error.
fn complain(what: &dyn Display) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "nodepulse: {}", plain_text::line(&what.to_string()));
}

fn print(text: &str) -> Result<(), CliError> {
    put(text).map(|_| ())
}

/// Answers whether somebody still reads.
fn put(text: &str) -> Result<bool, CliError> {
    let mut output = std::io::stdout().lock();
    let plain = if wants_colour(&output) { text.to_owned() } else { colour::without(text) };
    match output.write_all(plain.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        // Whoever stops reading (`| head`) has what they want.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::new(exit::SOFTWARE, format!("cannot write the output: {error}"))),
    }
}

/// Colours only for people who want them: a terminal, not a dumb one, and no `NO_COLOR`.
fn wants_colour(output: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    output.is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
