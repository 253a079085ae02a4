//! Turns the agent, a Node's objects and the server's audit log into one answer for each behaviour: seen, or not.
//!
//! Everything is judged from the server's side. What the agent logs is only asserted where the message itself is the
//! behaviour.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($needs:expr, $($run:ident),+ $(,)?) => {
        vec![$(super::Case { name: stringify!($run), needs: $needs, run: $run }),+]
    };
}

mod absence;
mod attacks;
mod budget;
mod check;
mod clocks;
mod credentials;
mod devices;
mod earlier;
mod expected;
mod faults;
mod fence;
mod fleet;
mod health;
mod http2;
mod k3s;
mod kernel_log;
mod labels;
mod lease;
mod leaving;
mod left;
mod logind;
mod machine_bus;
mod names;
mod old_kernel;
mod overdone;
mod plugins;
mod proxy;
mod recipes;
mod registration;
mod revoked;
mod rights;
mod roads;
mod start;
mod status;
mod supervised;
mod thief;
mod throttled;
mod upgrade;
mod watch;

use super::cluster::{AuditEntry, Options};
use super::requests::*;
use super::trials::Case;
use serde_json::Value;
use std::time::Duration;

/// After so much silence the controller calls a Node Unknown: as short as default renewals allow.
pub const GRACE: Duration = Duration::from_secs(12);

/// A controller with so little patience that a test can outlast it.
pub fn options() -> Options {
    Options { node_monitor_grace_period: GRACE, node_startup_grace_period: GRACE, ..Options::default() }
}

/// The longest first, so that the short ones fill the gaps at the end.
pub fn cases() -> Vec<Case> {
    let groups = [
        attacks::cases(),
        fence::cases(),
        revoked::cases(),
        k3s::cases(),
        labels::cases(),
        supervised::cases(),
        recipes::cases(),
        upgrade::cases(),
        status::cases(),
        watch::cases(),
        lease::cases(),
        kernel_log::cases(),
        credentials::cases(),
        faults::cases(),
        health::cases(),
        http2::cases(),
        rights::cases(),
        start::cases(),
        old_kernel::cases(),
        overdone::cases(),
        throttled::cases(),
        names::cases(),
        left::cases(),
        devices::cases(),
        plugins::cases(),
        check::cases(),
        clocks::cases(),
        registration::cases(),
        roads::cases(),
        budget::cases(),
        absence::cases(),
        fleet::cases(),
        leaving::cases(),
        logind::cases(),
    ];
    groups.into_iter().flatten().collect()
}

/// A Node as an administrator, or another machine, left it.
pub fn stored_node(name: &str, rest: Value) -> Value {
    let mut node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    merge(&mut node, rest);
    node
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
