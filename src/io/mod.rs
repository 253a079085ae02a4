//! Owns the clock, the sockets, TLS, signals and the files of the agent.

mod attempt;
pub mod certificate;
pub mod clock;
mod connection;
pub mod credentials;
mod crypto;
mod dial;
pub mod disk;
pub mod disk_error;
pub mod disk_writer;
pub mod file;
pub mod inbox;
pub mod kernel;
mod known_servers;
pub mod log;
#[cfg(test)]
#[path = "../../tests/support/loopback.rs"]
mod loopback;
pub mod netlink;
pub mod network;
pub mod notify;
pub mod pool;
pub mod reactor;
pub mod resolve;
pub mod run;
pub mod sandbox;
mod server_verifier;
pub mod signals;
mod stderr;
mod thread;
pub mod tls;

pub use run::{Session, Start, run};

use std::fmt;

use disk_error::DiskError;

/// What keeps the process from running at all. Nothing that a network, a server or a credential does is among it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IoError {
    /// No epoll, or no descriptors left.
    NoReactor { detail: String },
    /// Signals cannot be read.
    NoSignals { detail: String },
    /// The kernel refuses to wait.
    CannotSleep { detail: String },
    /// Another process has the state directory: [`DiskError::Held`].
    StateInUse(DiskError),
}

impl IoError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            IoError::NoReactor { .. } => "no-reactor",
            IoError::NoSignals { .. } => "no-signals",
            IoError::CannotSleep { .. } => "cannot-sleep",
            IoError::StateInUse(held) => held.word(),
        }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, detail) = match self {
            IoError::NoReactor { detail } => ("the kernel gives no epoll", detail),
            IoError::NoSignals { detail } => ("the kernel gives no signalfd", detail),
            IoError::CannotSleep { detail } => ("epoll_wait failed", detail),
            IoError::StateInUse(held) => return held.fmt(f),
        };
        write!(f, "{what}: {detail}; look at the limit on open files and at any system call filter of the service")
    }
}

impl std::error::Error for IoError {}
