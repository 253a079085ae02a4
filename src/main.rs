//! Turns the process into one command of `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(nodepulse::cli::main(std::env::args_os().skip(1)))
}
