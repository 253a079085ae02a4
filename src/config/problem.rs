//! What is wrong with the settings or with a kubeconfig, each problem as one line: where it stands, which field, what is
//! allowed.

use std::fmt;

use super::limits;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    /// Of the file, counted from 1; 0 for flags and for what concerns the whole file.
    pub line: u32,
    /// `evictionHard.memory.available`, `--node-labels`; empty when no field is to blame.
    pub field: String,
    /// What is wrong and what is allowed.
    pub text: String,
}

/// Where a setting was given: files sort before flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Path of the file, as given.
    File(String),
    Flag,
}

impl fmt::Display for Problem {
    /// `config.yaml:12: nodeLeaseDurationSeconds: must be ...`, `--node-ip: must be ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File(path) if self.line > 0 => write!(f, "{path}:{}: ", self.line)?,
            Origin::File(path) => write!(f, "{path}: ")?,
            Origin::Flag => {}
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Problem {}

/// Everything that was found in the settings so far: no more than anybody reads.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub problems: Vec<Problem>,
    /// What is not wrong and yet may surprise.
    pub notices: Vec<Problem>,
}

impl Findings {
    /// Keeps a problem, but none twice in a row.
    pub fn refuse(&mut self, problem: Problem) {
        if !self.are_full() && self.problems.last() != Some(&problem) {
            self.problems.push(problem);
        }
    }

    /// What was read, or the problem kept.
    pub fn accept<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.refuse(problem)).ok()
    }

    pub fn notice(&mut self, notice: Problem) {
        if self.notices.len() < limits::PROBLEMS {
            self.notices.push(notice);
        }
    }

    pub fn are_full(&self) -> bool {
        self.problems.len() >= limits::PROBLEMS
    }
}

/// `"text"` for a sentence: cut where it is long, escaped where it is strange.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).collect();
    let ellipsis = if shown.len() < text.len() { "..." } else { "" };
    format!("{shown:?}{ellipsis}")
}
