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

/// Where a setting was given.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Everything that was found in the settings so far.
#[derive(Debug, Default)]
pub struct Findings {
    pub problems: Vec<Problem>,
    /// What is not wrong and yet may surprise.
    pub notices: Vec<Problem>,
}

impl Findings {
    /// Keeps a problem: no more than are read by anybody, and none twice in a row.
    pub fn refuse(&mut self, origin: &Origin, line: u32, field: &str, text: impl Into<String>) {
        let problem = Problem { origin: origin.clone(), line, field: field.to_owned(), text: text.into() };
        if !self.are_full() && self.problems.last() != Some(&problem) {
            self.problems.push(problem);
        }
    }

    pub fn are_full(&self) -> bool {
        self.problems.len() >= limits::PROBLEMS
    }
}

/// Takes what there is to say about one setting.
pub struct Report<'a> {
    pub origin: &'a Origin,
    /// Name in the file, or the flag with its dashes.
    pub field: &'a str,
    /// Of the value, 0 for a flag.
    pub line: u32,
    pub findings: &'a mut Findings,
}

impl Report<'_> {
    /// A problem with the setting itself.
    pub fn refuse(&mut self, text: impl Into<String>) {
        self.findings.refuse(self.origin, self.line, self.field, text);
    }

    /// A problem with a part of it: `part` is `.key` or `[index]`.
    pub fn refuse_part(&mut self, line: u32, part: &str, text: impl Into<String>) {
        self.findings.refuse(self.origin, line, &format!("{}{part}", self.field), text);
    }

    /// Something about a part of it that is not wrong and yet may surprise.
    pub fn notice(&mut self, line: u32, part: &str, text: String) {
        if self.findings.notices.len() < limits::PROBLEMS {
            let field = format!("{}{part}", self.field);
            self.findings.notices.push(Problem { origin: self.origin.clone(), line, field, text });
        }
    }
}

/// `"text"` for a sentence: cut where it is long, escaped where it is strange.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).collect();
    let ellipsis = if shown.len() < text.len() { "..." } else { "" };
    format!("{shown:?}{ellipsis}")
}
