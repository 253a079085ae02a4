//! Turns an operation that the agent asks for into request bytes, and reply bytes into an answer with a retry class.
//!
//! Which HTTP version carries an exchange is hidden here: [`Exchange`] takes and gives bytes, `io` owns the socket.

pub mod answer;
pub mod exchange;
pub mod failure;
pub mod http;
pub mod operation;
pub mod protobuf;
pub mod traffic;

pub use answer::{Answer, Class, Refusal, StatusError};
pub use exchange::{Exchange, Progress, Target, USER_AGENT};
pub use failure::Failure;
pub use http::AuditId;
pub use operation::{Document, Lane, Operation, PatchAnswer, SupervisorRequest};
