//! What the API server said: a document, or a refusal with a retry class.

use std::time::Duration;

use super::failure::Failure;
use crate::node::object::{Lease, Node};
use crate::time::Wall;

/// The end of one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The server's clock, from its `Date` header (verified TLS).
    pub date: Option<Wall>,
    pub result: Result<Document, Refusal>,
}

/// What a success carried, as far as it is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    Node(Box<Node>),
    Metadata {
        uid: String,
        resource_version: String,
    },
    Lease(Box<Lease>),
    /// `gitVersion`, such as `v1.36.3`.
    Version(String),
    /// SelfSubjectAccessReview: `status.allowed`.
    Access(bool),
    /// A success whose body nobody reads.
    Nothing,
}

/// Why there was no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The server answered with a status other than 2xx.
    Status(StatusError),
    /// There was no answer.
    Failed(Failure),
}

/// `metav1.Status` of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusError {
    pub code: u16,
    /// `AlreadyExists`, `Conflict`, `Forbidden` ...; empty when the server gave none.
    pub reason: String,
    pub message: String,
    pub retry_after: Option<Duration>,
}

/// What a refusal means for the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// 401, 403: read the credentials again, back off, keep going.
    Rights,
    /// 404, 410.
    Missing,
    /// 409 `AlreadyExists`.
    Exists,
    /// 409 otherwise, 422: read, recompute, once more.
    Conflict,
    /// 429 or 5xx with Retry-After: the same request, that much later (TR-5).
    After(Duration),
    /// No answer, or one that cannot be understood: a fresh connection, then the lane's back-off.
    Unreachable,
    /// Everything else.
    Error,
}

impl Refusal {
    /// The retry class.
    pub fn class(&self) -> Class {
        match self {
            Refusal::Failed(_) => Class::Unreachable,
            Refusal::Status(status) => status.class(),
        }
    }
}

impl StatusError {
    fn class(&self) -> Class {
        match (self.code, self.retry_after) {
            (401 | 403, _) => Class::Rights,
            (404 | 410, _) => Class::Missing,
            (409, _) if self.reason == "AlreadyExists" => Class::Exists,
            (409 | 422, _) => Class::Conflict,
            (429 | 500..=599, Some(wait)) => Class::After(wait),
            _ => Class::Error,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Failed(failure) => failure.fmt(f),
            Refusal::Status(status) => {
                write!(f, "server answered {}", status.code)?;
                if !status.reason.is_empty() {
                    write!(f, " {}", status.reason)?;
                }
                if !status.message.is_empty() {
                    write!(f, ": {}", status.message)?;
                }
                Ok(())
            }
        }
    }
}
