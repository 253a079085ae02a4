//! Turns what is wrong with a setting into one line: where it stands, which field, what is allowed.

use std::fmt;

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    /// Of the file, counted from 1; `None` for flags and for what concerns the whole file.
    pub line: Option<u32>,
    /// `evictionHard.memory.available`, `--node-labels`; empty when no field is to blame.
    pub field: String,
    /// What is wrong and what is allowed.
    pub text: String,
}

/// Where a setting was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Path of the settings file, as given.
    File(String),
    Flag,
}

impl fmt::Display for Problem {
    /// `config.yaml:12: nodeLeaseDurationSeconds: must be ...`, `--node-ip: must be ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Origin::File(path) = &self.origin {
            f.write_str(path)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}
