//! Turns arguments into one command, text and an exit code.

mod check;
mod document;
mod load;
mod render;
mod run;

use std::fmt;

use crate::config::kubeconfig::KubeconfigError;
use crate::config::problem::Problem;
use crate::io::IoError;
use crate::node::NodeError;

/// Done.
pub const EXIT_OK: u8 = 0;
/// The command line is wrong (sysexits EX_USAGE).
pub const EXIT_USAGE: u8 = 64;
/// It did not work, and not because of settings or rights (EX_SOFTWARE).
pub const EXIT_FAILED: u8 = 70;
/// The server or the kernel does not allow it (EX_NOPERM).
pub const EXIT_NO_RIGHTS: u8 = 77;
/// Settings or kubeconfig are wrong (EX_CONFIG).
pub const EXIT_SETTINGS: u8 = 78;

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
            | CliError::Node(_) => EXIT_SETTINGS,
            CliError::Io(_) | CliError::Output(_) => EXIT_FAILED,
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
            CliError::Kubeconfig { path, error } => write!(f, "{path}: {error}"),
            CliError::NoKubeconfig => write!(
                f,
                "no kubeconfig: give --kubeconfig FILE, set kubeconfig in the settings, or put it at {}; `nodepulse render` shows the Node without a cluster",
                load::DEFAULT_KUBECONFIG
            ),
            CliError::Node(error) => error.fmt(f),
            CliError::Io(error) => error.fmt(f),
            CliError::Output(detail) => write!(f, "cannot write the output: {detail}"),
        }
    }
}
