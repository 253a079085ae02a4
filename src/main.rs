//! Turns the process into one command of `cli`.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use nodepulse::cli::commands::exit;
use nodepulse::cli::palette::Palette;
use nodepulse::cli::{args, built_in_text};

fn main() -> ExitCode {
    let invocation = match args::parse(std::env::args_os().skip(1)) {
        Ok(invocation) => invocation,
        Err(error) => {
            // A reader that has gone away is no reason to panic.
            let _ = writeln!(stderr(), "nodepulse: {error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let palette = Palette::for_terminal(stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    match built_in_text(&invocation, &palette) {
        Some(text) => {
            let _ = stdout().write_all(text.as_bytes());
            ExitCode::from(exit::OK)
        }
        None => ExitCode::from(exit::SOFTWARE),
    }
}
