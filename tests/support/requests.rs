//! Turns the audit log of a server into the requests of one node, told apart by what they are for.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use super::cluster::{ApiServer, AuditEntry, Cluster, NodeIdentity, Result, condition, wait_until};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Long enough for anything that should happen at once, on a machine that is busy with other things.
pub const SOON: Duration = Duration::from_secs(15);

/// What stood back after a gap or an outage (D6) comes 10 to 20 s later, by the name of the Node, and one a second.
pub const STOOD_BACK: Duration = Duration::from_secs(25);

/// The Node once it is Ready.
pub fn wait_until_ready(cluster: &Cluster, node: &NodeIdentity) -> Result<Value> {
    cluster.wait_for_condition(&node.name, "Ready", "True", SOON)
}

/// The uid of an object.
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The status of a condition of a Node, empty if it has none.
pub fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    condition(node, kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// Microseconds since 1970 now, for comparison with the audit log.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// `PATCH nodes/status?timeout=10s 200`: what a sequence of requests is compared as.
pub fn line(entry: &AuditEntry) -> String {
    let verb = match entry.verb.as_str() {
        "create" => "POST",
        "patch" => "PATCH",
        "get" => "GET",
        other => other,
    };
    let (path, query) = entry.uri.split_once('?').map_or((entry.uri.as_str(), ""), |(path, query)| (path, query));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let what = match parts.as_slice() {
        ["api", "v1", "nodes"] | ["api", "v1", "nodes", _] => "nodes",
        ["api", "v1", "nodes", _, "status"] => "nodes/status",
        ["apis", "coordination.k8s.io", "v1", "namespaces", "kube-node-lease", "leases", ..] => "leases",
        ["api", "v1", "namespaces", "default", "events", ..] => "events",
        _ => path,
    };
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("{verb} {what}{query} {}", entry.code)
}

pub fn lines(entries: &[AuditEntry]) -> Vec<String> {
    entries.iter().map(line).collect()
}

pub fn is_lease(entry: &AuditEntry) -> bool {
    entry.uri.contains("/leases")
}

pub fn is_event(entry: &AuditEntry) -> bool {
    entry.uri.contains("/events")
}

pub fn is_renewal(entry: &AuditEntry) -> bool {
    is_lease(entry) && entry.verb == "patch" && entry.code == 200
}

/// What a write of the Lease, one that is merged or a JSON patch, says.
pub fn renew_time(entry: &AuditEntry) -> Option<&str> {
    let patched = entry.body.as_array().and_then(|patch| patch.iter().find(|one| one["path"] == "/spec/renewTime"));
    patched.map_or(&entry.body["spec"]["renewTime"], |one| &one["value"]).as_str()
}

/// A PATCH of the status that says of which version the Node should be, and nothing else.
pub fn is_assertion(entry: &AuditEntry) -> bool {
    is_status_patch(entry) && entry.body["metadata"]["resourceVersion"].is_string() && entry.body["status"].is_null()
}

pub fn is_status_patch(entry: &AuditEntry) -> bool {
    entry.verb == "patch" && entry.uri.contains("/status")
}

/// A PATCH of the status that says something.
pub fn is_report(entry: &AuditEntry) -> bool {
    is_status_patch(entry) && !is_assertion(entry)
}

/// The requests of a node once `enough` of them are in the log of this server.
pub fn wait_for_requests(
    api: &ApiServer,
    node: &NodeIdentity,
    what: &str,
    within: Duration,
    enough: impl Fn(&[AuditEntry]) -> bool,
) -> Result<Vec<AuditEntry>> {
    wait_until(&format!("{what} in the audit log"), within, || {
        let entries = api.audit(|e| e.user == node.user)?;
        if enough(&entries) { Ok(entries) } else { Err(format!("there are {:#?}", lines(&entries))) }
    })
}

/// Looks until `seen` answers with something; the last object it looked at is in the error.
pub fn wait_for_node<T>(
    cluster: &Cluster,
    node: &NodeIdentity,
    what: &str,
    within: Duration,
    seen: impl Fn(&Value) -> Option<T>,
) -> Result<T> {
    wait_until(what, within, || {
        let found = cluster.get_node(&node.name)?;
        seen(&found).ok_or_else(|| format!("the Node is {found}"))
    })
}

/// The events that the agent sent about its Node, oldest first: reason and type.
pub fn events_of(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<Value>> {
    let selector = format!("involvedObject.kind=Node,involvedObject.name={},source=nodepulse", node.name);
    cluster.events(&selector)
}

/// The events of one reason once there is at least one.
pub fn wait_for_event(cluster: &Cluster, node: &NodeIdentity, reason: &str) -> Result<Vec<Value>> {
    wait_until(&format!("event {reason}"), SOON + STOOD_BACK, || {
        let all = events_of(cluster, node)?;
        let found: Vec<Value> = all.iter().filter(|e| e["reason"] == reason).cloned().collect();
        let reasons: Vec<&Value> = all.iter().map(|e| &e["reason"]).collect();
        if found.is_empty() { Err(format!("there are {reasons:?}")) } else { Ok(found) }
    })
}
