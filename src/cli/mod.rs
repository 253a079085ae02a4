//! Turns arguments into one command, text and an exit code.

pub mod args;
mod check;
mod check_node;
pub mod commands;
pub mod completions;
mod document;
mod error;
pub mod help;
mod journal;
mod load;
pub mod man;
pub mod palette;
mod render;
mod run;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use args::{Invocation, Sources};
use commands::{Format, exit};
use palette::Palette;

pub use error::CliError;

use crate::config::plain_text;
use crate::io;
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
    match &invocation {
        Invocation::Version => print(&help::version())?,
        Invocation::Help(topic) => print(&help::help(*topic, &palette))?,
        Invocation::Man => print(&man::man())?,
        Invocation::Completions(shell) => print(&completions::completions(*shell))?,
        Invocation::Probe { root, format, sources } => print_probe(root, *format, sources)?,
        Invocation::Render { root, format, sources } => {
            let (node, notes) = render::render(sources, root)?;
            notes.iter().for_each(|note| complain(note));
            print(&document(&node, *format))?;
        }
        Invocation::Check(sources) => {
            let report = check::check(sources)?;
            report.findings.iter().try_for_each(|finding| print(&finding.to_line(&palette)))?;
            return Ok(report.exit_code());
        }
        Invocation::Journal { file, format, sources } => print_journal(file.as_deref(), *format, sources, &palette)?,
        Invocation::Run(_) => {}
    }
    if let Invocation::Run(sources) = invocation {
        let ended = run::run(sources);
        log::logger().flush();
        ended?;
    }
    Ok(exit::OK)
}

fn print_probe(root: &str, format: Format, sources: &Sources) -> Result<(), CliError> {
    let settings = load::settings(sources)?.settings;
    let root_folder = load::root(root)?;
    let mut facts = probe::facts(&root_folder, &settings.state_directory);
    if root == "/" {
        facts.network = io::network::with_live_addresses(facts.network);
    }
    probe::remarks(&root_folder).iter().for_each(|remark| complain(remark));
    match format {
        Format::Text => print(&probe::report::to_text(&facts)),
        Format::Json | Format::Yaml => print(&document(&probe::report::to_json(&facts), format)),
    }
}

fn print_journal(file: Option<&str>, format: Format, sources: &Sources, palette: &Palette) -> Result<(), CliError> {
    let file = journal::read(file, sources)?;
    match format {
        Format::Text => print(&file.to_text(palette)),
        Format::Json | Format::Yaml => print(&document(&file.to_json(), format)),
    }
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
