//! Turns emulated boards whose clock, link or power fails into one case each, and lists them.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($($run:ident),+ $(,)?) => {
        vec![$(super::Case { name: stringify!($run), needs: &[super::Need::Machines], run: $run }),+]
    };
}

mod boards;
mod clocks;
mod joining;
mod sleep;

use super::board::Board;
use super::cluster::{Cluster, NodeIdentity, Result};
use super::machine::Boot;
use super::trials::{Case, Need};
use serde_json::Value;
use std::time::Duration;

/// An emulated processor takes its time for a handshake.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What a clock may gain or lose on an emulated machine while the other is read.
const SLACK_SECONDS: i64 = 3;

/// With settings that make a test take seconds, and under which a small board is at peace.
const SETTINGS: [(&str, &str); 5] = [
    ("nodeLeaseDurationSeconds", "12"),
    ("nodeStatusUpdateFrequency", "2s"),
    ("statusAssertFrequency", "10s"),
    ("evictionHard", "{memory.available: 48Mi, nodefs.available: 1Mi, nodefs.inodesFree: '10'}"),
    ("evictionPressureTransitionPeriod", "1s"),
];

pub fn all() -> Vec<Case> {
    [clocks::cases(), sleep::cases(), boards::cases(), joining::cases()].into_iter().flatten().collect()
}

fn boot<'a>(board: &'a Board, node: &'a NodeIdentity) -> Boot<'a> {
    SETTINGS.iter().fold(Boot::new(board, node), |boot, (key, yaml)| boot.set(key, yaml))
}

fn wait_until_ready(cluster: &Cluster, node: &NodeIdentity) -> Result<Value> {
    cluster.wait_for_condition(&node.name, "Ready", "True", READY_WITHIN)
}
