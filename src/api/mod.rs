//! Turns a wish of the agent into request bytes, and reply bytes into an answer with a retry class.
//!
//! Which HTTP version carries an exchange is hidden here: [`Exchange`] takes and gives bytes, `io` owns the socket.

pub mod answer;
pub mod exchange;
pub mod failure;
mod protobuf;
pub mod wish;

pub use answer::{Answer, Class, Document, Refusal, StatusError};
pub use exchange::{Exchange, Progress, Target, USER_AGENT};
pub use failure::{Failure, TlsFailure};
pub use wish::{AuditId, Lane, PatchAnswer, Wish};
