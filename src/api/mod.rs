//! Turns a wish of the agent into request bytes, and reply bytes into an answer with a retry class.
//!
//! Which HTTP version carries an exchange is hidden here: [`Exchange`] takes and gives bytes, `io` owns the socket.

pub mod answer;
pub mod exchange;
pub mod failure;
pub mod wish;

pub use answer::{Answer, Class, Document, Refusal};
pub use exchange::{Exchange, Progress, Target};
pub use failure::Failure;
pub use wish::{Lane, Wish};
