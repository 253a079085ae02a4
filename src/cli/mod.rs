//! Turns arguments into one command, text and an exit code.

pub mod args;
mod check;
pub mod commands;
pub mod completions;
mod document;
pub mod help;
mod load;
pub mod man;
pub mod palette;
mod render;
mod run;

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, Write};

use args::{Invocation, Sources};
use commands::{Format, exit};
use palette::Palette;

use crate::config::Problem;
use crate::config::kubeconfig::KubeconfigError;
use crate::io::{self, IoError};
use crate::node::NodeError;
use crate::probe;

/// Read when neither `--kubeconfig` nor the settings name one and it exists.
pub const DEFAULT_KUBECONFIG: &str = "/etc/nodepulse/kubeconfig";

/// Runs the command that `args`, the program's own name left out, ask for; answers the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let invocation = match args::parse(args) {
        Ok(invocation) => invocation,
        Err(error) => {
            eprintln!("nodepulse: {error}");
            return exit::USAGE;
        }
    };
    match execute(invocation) {
        Ok(code) => code,
        // Whoever reads no further (`| head`) has what they want.
        Err(CliError::Output(_)) if !std::io::stdout().is_terminal() => exit::OK,
        Err(error) => {
            eprintln!("nodepulse: {error}");
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
            notes.iter().for_each(|note| eprintln!("nodepulse: {note}"));
            print(&document(&node, *format))?;
        }
        Invocation::Check(sources) => {
            let report = check::check(sources)?;
            report.findings.iter().try_for_each(|finding| print(&finding.to_line(&palette)))?;
            return Ok(report.exit_code());
        }
        Invocation::Run(_) => {}
    }
    if let Invocation::Run(sources) = invocation {
        run::run(sources)?;
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
    probe::remarks(&root_folder).iter().for_each(|remark| eprintln!("nodepulse: {remark}"));
    match format {
        Format::Text => print(&probe::report::to_text(&facts)),
        Format::Json | Format::Yaml => print(&document(&probe::report::to_json(&facts), format)),
    }
}

fn document(value: &serde_json::Value, format: Format) -> String {
    match format {
        Format::Json => format!("{value:#}\n"),
        Format::Yaml | Format::Text => document::to_yaml(value),
    }
}

fn print(text: &str) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.map_err(|error| CliError::Output(error.to_string()))
}

/// Colours only for people who want them: a terminal, not a dumb one, and no `NO_COLOR`.
fn wants_colour(output: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    output.is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// Everything that is wrong with the settings.
    Settings(Vec<Problem>),
    /// A file that must be read cannot be.
    File {
        path: String,
        detail: String,
    },
    Kubeconfig {
        path: String,
        error: KubeconfigError,
    },
    /// `--root` names no folder.
    Root {
        path: String,
    },
    /// `run` and `check` need a server.
    NoKubeconfig,
    Node(NodeError),
    Io(IoError),
    /// Standard output is closed or full.
    Output(String),
}

impl CliError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Settings(_)
            | CliError::File { .. }
            | CliError::Kubeconfig { .. }
            | CliError::NoKubeconfig
            | CliError::Node(_) => exit::CONFIG,
            CliError::Root { .. } => exit::USAGE,
            CliError::Io(_) | CliError::Output(_) => exit::SOFTWARE,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Settings(problems) => {
                for (place, problem) in problems.iter().enumerate() {
                    if place > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{problem}")?;
                }
                Ok(())
            }
            CliError::File { path, detail } => write!(f, "{path}: {detail}"),
            CliError::Root { path } => {
                write!(f, "--root {path}: there is no such folder; name one with proc, sys and etc of a board in it")
            }
            CliError::Kubeconfig { path, error } => write!(f, "{path}: {error}"),
            CliError::NoKubeconfig => write!(
                f,
                "no kubeconfig: give --kubeconfig FILE, set kubeconfig in the settings, or put it at {}; `nodepulse render` shows the Node without a cluster",
                DEFAULT_KUBECONFIG
            ),
            CliError::Node(error) => error.fmt(f),
            CliError::Io(error) => error.fmt(f),
            CliError::Output(detail) => write!(f, "cannot write the output: {detail}"),
        }
    }
}
