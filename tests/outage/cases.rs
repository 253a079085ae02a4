//! Turns networks that fail in every way a board's does into one case each, and lists them.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($($run:ident),+ $(,)?) => {
        vec![$(super::Case { name: stringify!($run), needs: &[super::Need::Root, super::Need::Networks], run: $run }),+]
    };
}

mod fleet;
mod forgetting;
mod links;
mod metered;
mod mounts;
mod moved;
mod name_server;
mod names;
mod remembered;
mod site;

pub use site::OUTER_NETWORK;

use super::cluster::Options;
use super::trials::{Case, Need};
use std::time::Duration;

/// So little patience that an outage can outlast it, and as much as renewals every ten seconds need.
pub fn options() -> Options {
    let grace = Duration::from_secs(12);
    Options {
        node_monitor_grace_period: grace,
        node_startup_grace_period: grace,
        more_addresses: site::SERVER_ADDRESSES.to_vec(),
        ..Options::default()
    }
}

/// The longest first, so that the short ones fill the gaps at the end.
pub fn all() -> Vec<Case> {
    [
        forgetting::cases(),
        remembered::cases(),
        moved::cases(),
        mounts::cases(),
        fleet::cases(),
        links::cases(),
        metered::cases(),
        names::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
