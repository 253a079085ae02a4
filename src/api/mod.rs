//! Turns an operation that the agent asks for into request bytes, and reply bytes into an answer with a retry class.
//!
//! Which HTTP version carries an exchange is hidden here: [`Exchanges`] takes and gives the bytes of a connection, `io` owns
//! its socket.

pub mod answer;
pub mod exchange;
mod exchanges;
pub mod failure;
pub mod http;
#[cfg(test)]
#[path = "../../tests/support/http2.rs"]
pub(crate) mod http2_client;
pub mod operation;
pub mod protobuf;
pub mod traffic;
pub mod watch;

pub use answer::{Answer, Class, Refusal, StatusError};
pub use exchange::{Exchange, Progress, Target, USER_AGENT};
pub use exchanges::{Exchanges, NoAnswer};
pub use failure::Failure;
pub use http::AuditId;
pub use operation::{Document, Lane, Operation, PatchAnswer, SupervisorRequest};
pub use watch::{EVENT_TOO_LARGE, Seen};
