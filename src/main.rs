//! Turns the process into one command of `cli`.

use std::process::ExitCode;

/// musl's own allocator gives pages back to the kernel with the last block of their size. In an agent that sleeps between
/// two answers that is every time: two system calls for each growth of a list of headers, twenty for a report.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    ExitCode::from(nodepulse::cli::main(std::env::args_os().skip(1)))
}
