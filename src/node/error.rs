//! What can be wrong with a board or its settings when a Node is made from them.

use std::fmt;

use crate::probe::Absent;

/// Why a part of the Node cannot be told. None of these stops the agent, except those of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeError {
    word: &'static str,
    text: String,
    /// The field of the Node that has no source on this board.
    field: Option<String>,
}

impl NodeError {
    /// `text`: a sentence, with what to do next.
    pub(super) fn new(word: &'static str, text: String) -> NodeError {
        NodeError { word, text, field: None }
    }

    pub(super) fn no_fact(field: &str, absent: &Absent) -> NodeError {
        let text = format!("{field}: no source on this board ({absent})");
        NodeError { word: "fact-absent", text, field: Some(field.to_owned()) }
    }

    /// The machine word.
    pub fn word(&self) -> &'static str {
        self.word
    }

    /// What it is about: a file of noise reads otherwise at each look, and is one problem.
    pub fn subject(&self) -> &str {
        self.field.as_deref().unwrap_or(&self.text)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NodeError {}
