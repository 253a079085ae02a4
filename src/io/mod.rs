//! Owns the clock, the sockets, TLS, signals and the files of the agent.

pub mod certificate;
pub mod clock;
mod connection;
pub mod credentials;
mod dial;
#[cfg(test)]
mod loopback;
pub mod pool;
pub mod reactor;
pub mod resolve;
pub mod tls;
