//! Turns peers of HTTP/2 that keep the rules, break each of them, or are somebody else's program into proof of `src/http2`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics where it fails, and has sockets")]

#[path = "http2/another.rs"]
mod another;
#[path = "http2/cuts.rs"]
mod cuts;
#[path = "http2/floods.rs"]
mod floods;
#[path = "support/left_out.rs"]
mod left_out;
#[path = "http2/nghttpd.rs"]
mod nghttpd;
#[path = "http2/peer.rs"]
mod peer;
#[path = "http2/planted.rs"]
mod planted;
#[path = "http2/rules.rs"]
mod rules;
#[path = "http2/serving.rs"]
mod serving;
#[path = "http2/stories.rs"]
mod stories;
