//! Turns what keeps a command from its work into a sentence with what to do next, and an exit code.

use std::fmt;
use std::io;

use super::commands::exit;
use crate::agent::Notice;
use crate::config::Problem;
use crate::io::file::Unreadable;
use crate::node::NodeError;

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// How the process ends, one of [`exit`].
    pub code: u8,
    /// What happened, where, and what to do next; more than one where a settings file has several problems.
    pub sentences: Vec<String>,
}

impl CliError {
    pub fn new(code: u8, sentence: impl fmt::Display) -> CliError {
        CliError { code, sentences: vec![sentence.to_string()] }
    }

    /// Everything that is wrong with the settings, or the first thing that is with the kubeconfig.
    pub fn settings(problems: &[Problem]) -> CliError {
        CliError { code: exit::CONFIG, sentences: problems.iter().map(Problem::to_string).collect() }
    }

    /// The settings file or the kubeconfig cannot be read; `flag` names another one.
    pub fn file(what: &str, flag: &str, path: &str, why: &Unreadable) -> CliError {
        let (mut code, mut advice) = (exit::CONFIG, None);
        let text: &str = match why {
            Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound => "is not there: put it there",
            Unreadable::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                code = exit::NO_PERMISSION;
                "may not be read by this user: run as root or change its owner (ls -l shows it)"
            }
            Unreadable::Io(_) => advice.insert(format!("cannot be read: {why}; look at its disk")),
            Unreadable::NotAFile(what) => advice.insert(format!("is {what}: name a file")),
            Unreadable::NotText => "is not text in UTF-8: save it as such",
            Unreadable::TooLong { limit_bytes } => {
                advice.insert(format!("is longer than {limit_bytes} bytes: shorten it"))
            }
        };
        CliError::new(code, format!("the {what} {path} {text}, or name another with {flag}"))
    }
}

impl From<NodeError> for CliError {
    fn from(error: NodeError) -> CliError {
        CliError::new(exit::CONFIG, error)
    }
}

impl From<Notice> for CliError {
    fn from(error: Notice) -> CliError {
        let code = if error.word == "state-denied" { exit::NO_PERMISSION } else { exit::SOFTWARE };
        CliError::new(code, error)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentences.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let error = CliError::file("kubeconfig", "--kubeconfig", "/k", &why);
            let text = error.to_string();
            assert!(text.starts_with("the kubeconfig /k ") && text.contains(words), "{text}");
            assert!(text.ends_with(", or name another with --kubeconfig"), "{text}");
            assert_eq!(error.code, code, "{text}");
        }
    }
}
