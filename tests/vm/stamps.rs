//! Turns everything that a node ever sent and everything that the server keeps of it into complaints about its stamps.

use super::cluster::audit::micros;
use super::cluster::{Cluster, NodeIdentity, Result, lease_path};
use super::requests::{events_of, is_lease, now_us};
use serde_json::Value;
use std::time::Duration;

/// What the `Date` of a reply leaves open, what stamps in whole seconds cut off, and a processor that is emulated.
const NEARLY: Duration = Duration::from_secs(5);

/// What is yet to come, by its very nature.
const ENDS: &str = "nodepulse.dev/certificate-expiry";

/// When a node's life began here, by the clock of this machine, which is the server's.
pub struct Stamps {
    since_us: u64,
}

impl Stamps {
    pub fn begin() -> Self {
        Self { since_us: now_us() }
    }

    /// Every stamp in what the node sent was true when it was sent: no earlier than its life, no later than then; and a
    /// renewal's is of that moment. So is every stamp that the server keeps. The answer counts those that were looked at.
    pub fn are_true(&self, cluster: &Cluster, node: &NodeIdentity) -> Result<usize> {
        let mut looked_at = 0;
        let mut wrong = Vec::new();
        let mut look = |what: &str, found: &Value, from_us: u64, to_us: u64| {
            let nearly_us = NEARLY.as_micros() as u64;
            for (path, stamp) in stamps_in(found, String::new()) {
                looked_at += 1;
                let at_us = micros(&stamp).unwrap_or_default();
                if at_us + nearly_us < from_us || at_us > to_us + nearly_us {
                    wrong.push(format!("{what}{path} is {stamp}"));
                }
            }
        };
        for request in cluster.audit_of(node)? {
            let from_us = if is_lease(&request) { request.received_at_us } else { self.since_us };
            look(&format!("{} {}: ", request.verb, request.uri), &request.body, from_us, request.completed_at_us);
        }
        look("the Node: ", &cluster.get_node(&node.name)?, self.since_us, now_us());
        look("the Lease: ", &cluster.api.admin.get(&lease_path(&node.name))?, self.since_us, now_us());
        for event in events_of(cluster, node)? {
            look("an event: ", &event, self.since_us, now_us());
        }
        if wrong.is_empty() { Ok(looked_at) } else { Err(format!("stamps that are not true:\n{}", wrong.join("\n"))) }
    }
}

/// Every text that is a stamp, with the path to it.
fn stamps_in(value: &Value, path: String) -> Vec<(String, String)> {
    match value {
        Value::String(text) if micros(text).is_some() => vec![(path, text.clone())],
        Value::Array(all) => all.iter().flat_map(|item| stamps_in(item, format!("{path}[]"))).collect(),
        Value::Object(fields) => {
            let dated = fields.iter().filter(|(name, _)| *name != ENDS);
            dated.flat_map(|(name, field)| stamps_in(field, format!("{path}.{name}"))).collect()
        }
        _ => Vec::new(),
    }
}
