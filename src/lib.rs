//! nodepulse: turns a Linux board into a live Kubernetes Node.
//!
//! ```text
//! time -> config -> probe -> node -> protobuf -> http2 -> grpc -> cri -> device_plugins -> dbus -> api -> identity -> journal -> agent -> io -> cli -> main   (a module imports only to its left)
//! ```
//!
//! Everything left of `io` is a function of its arguments: no clock, socket, lock, channel, reference count or
//! hash-ordered map. `ARCHITECTURE.md` has the map, `tests/tidy.rs` keeps the border.

#![deny(unsafe_code)]

pub mod agent;
pub mod api;
pub mod cli;
pub mod config;
pub mod cri;
pub mod dbus;
pub mod device_plugins;
pub mod grpc;
pub mod http2;
pub mod identity;
pub mod io;
pub mod journal;
pub mod node;
pub mod probe;
pub mod protobuf;
pub mod time;
