//! What a server answers that does not do what it was asked.

use std::time::Duration;

use crate::api::{Document, Failure, Refusal, StatusError};

pub(super) fn refused(code: u16, reason: &str) -> Result<Document, Refusal> {
    let message = "for a test".to_owned();
    Err(Refusal::Status(StatusError { code, reason: reason.to_owned(), message, retry_after: None }))
}

pub(super) fn refused_after(code: u16, seconds: u64) -> Result<Document, Refusal> {
    let retry_after = Some(Duration::from_secs(seconds));
    Err(Refusal::Status(StatusError { code, reason: String::new(), message: String::new(), retry_after }))
}

/// What a proxy, a portal or a load balancer answers.
pub(super) fn unconfirmed(code: u16, retry_after_seconds: Option<u64>) -> Result<Document, Refusal> {
    let retry_after = retry_after_seconds.map(Duration::from_secs);
    Err(Refusal::Failed(Failure::unconfirmed(code, "text/html", "an Audit-Id", retry_after)))
}

pub(super) fn unreachable() -> Result<Document, Refusal> {
    Err(Refusal::Failed(Failure::timed_out(Duration::from_secs(10))))
}
