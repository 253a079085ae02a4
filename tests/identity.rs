//! Turns openssl and a real kubelet into judges of what the identity is made of: requests, their names, pins, signatures,
//! certificates. They share no code with it.

#![allow(clippy::disallowed_methods, reason = "a test waits for the real world")]
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[allow(dead_code, reason = "every user takes a part of it")]
#[path = "support/binaries.rs"]
mod binaries;
#[path = "identity/kubelet.rs"]
mod kubelet;
#[path = "support/left_out.rs"]
mod left_out;
#[path = "identity/openssl.rs"]
mod openssl;

/// An error here is only ever read by a person, so it is a sentence.
type Result<T> = std::result::Result<T, String>;
