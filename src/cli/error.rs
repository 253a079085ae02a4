//! Turns what keeps a command from its work into a sentence with what to do next, and an exit code.

use std::fmt;
use std::io;

use super::DEFAULT_KUBECONFIG;
use super::commands::exit;
use crate::api::failure::Failure;
use crate::config::Problem;
use crate::io::IoError;
use crate::io::disk_error::DiskError;
use crate::io::file::Unreadable;
use crate::node::NodeError;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// Everything that is wrong with the settings, or the first thing that is with the kubeconfig.
    Settings(Vec<Problem>),
    /// The settings file or the kubeconfig cannot be read; `flag` names another one.
    File {
        what: &'static str,
        flag: &'static str,
        path: String,
        why: Unreadable,
    },
    /// `--root` names no folder.
    Root {
        path: String,
    },
    /// `run` and `check` need a server.
    NoKubeconfig,
    Node(NodeError),
    /// The certificate that may say the Node's name cannot be read.
    Nameless(Failure),
    Io(IoError),
    /// The journal cannot be read.
    Disk(DiskError),
    /// Standard output is closed or full.
    Output(io::Error),
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
            | CliError::NoKubeconfig
            | CliError::Node(_)
            | CliError::Nameless(_) => exit::CONFIG,
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
                write!(f, "the {what} {path} {}, or name another with {flag}", advice(why))
            }
            CliError::Root { path } => {
                write!(f, "--root {path}: there is no such folder; name one with proc, sys and etc of a board in it")
            }
            CliError::NoKubeconfig => write!(
                f,
                "no kubeconfig: give --kubeconfig FILE, set kubeconfig in the settings, or put it at \
                 {DEFAULT_KUBECONFIG}; `nodepulse render` shows the Node without a cluster"
            ),
            CliError::Node(error) => error.fmt(f),
            CliError::Nameless(failure) => {
                write!(
                    f,
                    "{failure}: it may say the name of this Node, as the host has none; or give --hostname-override NAME"
                )
            }
            CliError::Io(error) => error.fmt(f),
            CliError::Disk(error) => error.fmt(f),
            CliError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

/// To stand after the path and before another way.
fn advice(why: &Unreadable) -> String {
    let text = match why {
        Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound => "is not there: put it there",
        Unreadable::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "may not be read by this user: run as root or change its owner (ls -l shows it)"
        }
        Unreadable::Io(_) => return format!("cannot be read: {why}; look at its disk"),
        Unreadable::NotAFile(what) => return format!("is {what}: name a file"),
        Unreadable::NotText => "is not text in UTF-8: save it as such",
        Unreadable::TooLong { limit_bytes } => return format!("is longer than {limit_bytes} bytes: shorten it"),
    };
    text.to_owned()
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
            (Unreadable::NotAFile("a directory"), exit::CONFIG, "is a directory"),
            (Unreadable::NotText, exit::CONFIG, "is not text in UTF-8"),
            (Unreadable::TooLong { limit_bytes: 262_144 }, exit::CONFIG, "is longer than 262144 bytes"),
        ] {
            let error = error(why);
            let text = error.to_string();
            assert!(text.starts_with("the kubeconfig /k ") && text.contains(words), "{text}");
            assert!(text.ends_with(", or name another with --kubeconfig"), "{text}");
            assert_eq!(error.exit_code(), code, "{text}");
        }
    }
}
