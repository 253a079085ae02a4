//! Turns what keeps a command from its work into a sentence with what to do next, and an exit code.

use std::fmt;
use std::io;

use super::DEFAULT_KUBECONFIG;
use super::commands::exit;
use crate::config::kubeconfig::KubeconfigError;
use crate::config::{Problem, limits};
use crate::io::IoError;
use crate::io::disk_error::DiskError;
use crate::node::NodeError;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// Everything that is wrong with the settings.
    Settings(Vec<Problem>),
    /// The settings file or the kubeconfig cannot be read; `flag` names another one.
    File {
        what: &'static str,
        flag: &'static str,
        path: String,
        why: Unreadable,
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
    /// The journal cannot be read.
    Disk(DiskError),
    /// Standard output is closed or full.
    Output(io::Error),
}

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    Io(io::Error),
    Directory,
    NotText,
    TooLong,
}

impl CliError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::File { why: Unreadable::Io(error), .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                exit::NO_PERMISSION
            }
            CliError::Settings(_)
            | CliError::File { .. }
            | CliError::Kubeconfig { .. }
            | CliError::NoKubeconfig
            | CliError::Node(_) => exit::CONFIG,
            CliError::Root { .. } => exit::USAGE,
            CliError::Disk(error) if error.word() == "state-denied" => exit::NO_PERMISSION,
            CliError::Io(_) | CliError::Disk(_) | CliError::Output(_) => exit::SOFTWARE,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Settings(problems) => {
                for (place, problem) in problems.iter().enumerate() {
                    let separator = if place > 0 { "; " } else { "" };
                    write!(f, "{separator}{problem}")?;
                }
                Ok(())
            }
            CliError::File { what, flag, path, why } => {
                write!(f, "the {what} {path} {why}, or name another with {flag}")
            }
            CliError::Root { path } => {
                write!(f, "--root {path}: there is no such folder; name one with proc, sys and etc of a board in it")
            }
            CliError::Kubeconfig { path, error } if error.line > 0 => write!(f, "{path}:{error}"),
            CliError::Kubeconfig { path, error } => write!(f, "{path}: {error}"),
            CliError::NoKubeconfig => write!(
                f,
                "no kubeconfig: give --kubeconfig FILE, set kubeconfig in the settings, or put it at \
                 {DEFAULT_KUBECONFIG}; `nodepulse render` shows the Node without a cluster"
            ),
            CliError::Node(error) => error.fmt(f),
            CliError::Io(error) => error.fmt(f),
            CliError::Disk(error) => error.fmt(f),
            CliError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl fmt::Display for Unreadable {
    /// To stand after the path and before another way.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("is not there: put it there")
            }
            Unreadable::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                f.write_str("may not be read by this user: run as root or change its owner (ls -l shows it)")
            }
            Unreadable::Io(error) => write!(f, "cannot be read: {error}; look at its disk"),
            Unreadable::Directory => f.write_str("is a directory: name a file in it"),
            Unreadable::NotText => f.write_str("is not text in UTF-8: save it as such"),
            Unreadable::TooLong => {
                let limit_bytes = limits::SETTINGS_FILE_BYTES;
                write!(f, "is longer than {limit_bytes} bytes: shorten it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(why: Unreadable) -> CliError {
        CliError::File { what: "kubeconfig", flag: "--kubeconfig", path: "/k".to_owned(), why }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_the_reason_and_the_way_out() {
        let of_kind = |kind| Unreadable::Io(io::Error::from(kind));
        for (why, code, words) in [
            (of_kind(io::ErrorKind::NotFound), exit::CONFIG, "is not there"),
            (of_kind(io::ErrorKind::PermissionDenied), exit::NO_PERMISSION, "run as root"),
            (of_kind(io::ErrorKind::TimedOut), exit::CONFIG, "cannot be read: timed out"),
            (Unreadable::Directory, exit::CONFIG, "is a directory"),
            (Unreadable::NotText, exit::CONFIG, "is not text in UTF-8"),
            (Unreadable::TooLong, exit::CONFIG, "is longer than 262144 bytes"),
        ] {
            let error = error(why);
            let text = error.to_string();
            assert!(text.starts_with("the kubeconfig /k ") && text.contains(words), "{text}");
            assert!(text.ends_with(", or name another with --kubeconfig"), "{text}");
            assert_eq!(error.exit_code(), code, "{text}");
        }
    }
}
