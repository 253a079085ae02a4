//! Turns arguments into one command, text and an exit code.

pub mod args;
mod check;
mod check_node;
pub mod commands;
mod document;
mod error;
pub mod help;
mod journal;
mod load;
pub mod palette;
mod render;
mod run;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use args::Invocation;
use commands::{Command, Format, exit};
use palette::Palette;

pub use error::CliError;

use crate::config::plain_text;
use crate::probe;

/// Read when neither `--kubeconfig` nor the settings name one and it exists.
pub const DEFAULT_KUBECONFIG: &str = "/etc/nodepulse/kubeconfig";

/// Runs the command that `args`, the program's own name left out, ask for; answers the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let invocation = match args::parse(args) {
        Ok(invocation) => invocation,
        Err(error) => {
            complain(&error);
            return exit::USAGE;
        }
    };
    match execute(invocation) {
        Ok(code) => code,
        // Whoever reads no further (`| head`) has what they want.
        Err(CliError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            match &error {
                CliError::Settings(problems) => problems.iter().for_each(|problem| complain(problem)),
                error => complain(error),
            }
            error.exit_code()
        }
    }
}

fn execute(invocation: Invocation) -> Result<u8, CliError> {
    let palette = Palette::for_terminal(wants_colour(&std::io::stdout()));
    let Invocation { command, topic, root, file, format, sources } = invocation;
    match command {
        Command::Version => print(&help::version())?,
        Command::Help => print(&help::help(topic, &palette))?,
        Command::Probe => {
            let state_directory = load::settings(&sources)?.settings.state_directory;
            let (facts, remarks) = load::facts(&root, &state_directory)?;
            remarks.iter().for_each(|remark| complain(remark));
            print(&match format {
                Format::Text => probe::report::to_text(&facts),
                Format::Json | Format::Yaml => document(&probe::report::to_json(&facts), format),
            })?;
        }
        Command::Render => {
            let (node, notes) = render::render(&sources, &root)?;
            notes.iter().for_each(|note| complain(note));
            print(&document(&node, format))?;
        }
        Command::Check => {
            let report = check::check(&sources)?;
            report.findings.iter().try_for_each(|finding| print(&finding.to_line(&palette)))?;
            return Ok(report.exit_code());
        }
        Command::Journal => {
            let journal = journal::read(file.as_deref(), &sources)?;
            print(&match format {
                Format::Text => journal.to_text(&palette),
                Format::Json | Format::Yaml => document(&journal.to_json(), format),
            })?;
        }
        Command::Run => {
            let ended = run::run(sources);
            log::logger().flush();
            ended?;
        }
    }
    Ok(exit::OK)
}

fn document(value: &serde_json::Value, format: Format) -> String {
    let text = match format {
        Format::Json => format!("{value:#}\n"),
        Format::Yaml | Format::Text => document::to_yaml(value),
    };
    plain_text::page(&text).into_owned()
}

/// One line on standard error.
fn complain(what: &dyn Display) {
    // Where nobody reads, nobody misses it.
    let _ = writeln!(std::io::stderr(), "nodepulse: {}", plain_text::line(&what.to_string()));
}

fn print(text: &str) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.map_err(CliError::Output)
}

/// Colours only for people who want them: a terminal, not a dumb one, and no `NO_COLOR`.
fn wants_colour(output: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    output.is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
