//! What a look at the board says of one condition.

use super::object::Status;

/// Of [`super::rules`], one for each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub status: Status,
    /// In place of the message in the table: what exactly is missing.
    pub message: Option<String>,
    /// In place of the reason in the table, where there are several.
    pub reason: Option<&'static str>,
    /// `false`: nobody can say yet. Then what the condition was before counts, if anybody knows that.
    pub is_sure: bool,
}

impl Judgement {
    /// `None`: nobody can say yet.
    pub(super) fn known(is_so: Option<bool>, message: Option<String>) -> Judgement {
        let status = is_so.map_or(Status::Unknown, Status::of);
        Judgement { status, message, reason: None, is_sure: is_so.is_some() }
    }
}
