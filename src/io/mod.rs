//! Owns the clock, the sockets, TLS, signals and the files of the agent.

pub mod certificate;
pub mod clock;
pub mod reactor;
pub mod tls;
