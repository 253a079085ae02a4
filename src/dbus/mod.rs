//! Turns what a machine's D-Bus sends into whether the machine is about to go down, and what is asked of logind into bytes for it:
//! four calls and two signals, knowing neither sockets nor time.

mod client;
mod message;

pub use client::{Client, Event, Refusal, Taken};

/// Why a connection to the bus is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The bus does not want us: its own words.
    Refused(String),
    /// Longer than anything that is asked for ([`crate::config::limits::DBUS_MESSAGE_BYTES`], or a line of its greeting).
    TooLarge,
    /// No message of D-Bus.
    Malformed,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused(words) => f.write_str(words),
            Error::TooLarge => f.write_str("a message is too large"),
            Error::Malformed => f.write_str("what it sends is no D-Bus"),
        }
    }
}
