//! Owns the clock, the sockets, TLS, signals and the files of the agent.

mod attempt;
pub mod clock;
mod connection;
#[cfg(feature = "container-runtime")]
pub mod container_runtime;
#[cfg(not(feature = "container-runtime"))]
#[path = "no_container_runtime.rs"]
pub mod container_runtime;
pub mod control;
pub mod credentials;
mod crypto;
#[cfg(feature = "device-plugins")]
mod device_plugins;
#[cfg(not(feature = "device-plugins"))]
#[path = "no_device_plugins.rs"]
mod device_plugins;
mod dial;
pub mod disk;
pub mod disk_error;
pub mod disk_writer;
pub mod file;
pub mod identity;
pub mod inbox;
pub mod kernel;
mod known_servers;
pub mod leaving;
pub mod log;
mod logind;
#[cfg(test)]
#[path = "../../tests/support/loopback.rs"]
mod loopback;
mod meter;
pub mod network;
pub mod notify;
pub mod pool;
pub mod reactor;
pub mod resolve;
pub mod run;
pub mod sandbox;
mod server_verifier;
mod silences;
mod stderr;
mod successor;
mod thread;
pub mod tls;
pub mod turns;
pub mod watches;

pub use run::{Session, Start, run};

use std::io;

use crate::agent::{Level, Notice};
use crate::api::traffic::Day;
use known_servers::KnownServers;

/// What the agent of this state directory counted of its traffic and kept: of its last day, and of the day before.
pub fn kept_days(state_directory: &str) -> [Day; 2] {
    KnownServers::read(state_directory).days()
}

/// What keeps the process from running at all. Nothing that a network, a server or a credential does is among it.
fn no_kernel(word: &'static str, what: &str, error: &io::Error) -> Notice {
    let advice = "look at the limit on open files and at any system call filter of the service";
    Notice::new(Level::Error, word, format!("{what}: {error}; {advice}"))
}
