//! Turns the files below a root into facts, each present or absent with a reason.

pub mod facts;

pub use facts::{Absent, Fact, Facts, Machine, Network, Readings, Why};
