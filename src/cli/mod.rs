//! Turns arguments into one command, text and an exit code.

pub mod args;
pub mod commands;
pub mod completions;
pub mod help;
pub mod man;
pub mod palette;

use args::Invocation;
use palette::Palette;

/// The whole output of a command that only prints what is built in; `None` for those that do something.
pub fn built_in_text(invocation: &Invocation, palette: &Palette) -> Option<String> {
    match invocation {
        Invocation::Version => Some(help::version()),
        Invocation::Help(topic) => Some(help::help(*topic, palette)),
        Invocation::Man => Some(man::man()),
        Invocation::Completions(shell) => Some(completions::completions(*shell)),
        Invocation::Run(_) | Invocation::Probe { .. } | Invocation::Render { .. } | Invocation::Check(_) => None,
    }
}
