//! What the agent has to say to people: one notice for each change of state, with a level, a word and a sentence.

use std::fmt;

pub use log::Level;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// The machine word, stable: `registered`, `lease-renewed`, `status-sent` ...
    pub word: &'static str,
    pub text: String,
}

impl Notice {
    /// A notice of this level, word and text.
    pub fn new(level: Level, word: &'static str, text: impl Into<String>) -> Notice {
        Notice { level, word, text: text.into() }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
