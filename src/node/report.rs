//! Turns a base that may no longer be the server's into a PATCH that leads any Node to the one we want (D4), and an outage
//! into the annotation that sums it up; two more annotations say of a board what its owner would have to ask it for.

use serde_json::json;

use super::leaving::{self, Leaving, leave};
use super::object::{Address, Condition, DaemonEndpoints, Endpoint, Node, NodeInfo, ResourceList};
use super::patch::status_patch;
use super::{extended, rules, version};
use crate::time::Wall;

/// Annotation of the Node: the last outage, as JSON text.
pub const LAST_OUTAGE: &str = "nodepulse.dev/last-outage";

/// What stands under [`LAST_OUTAGE`]: when the API server was reached last, and when again (`None` where the board had no clock),
/// the machine word of the first failure, the changes of conditions that are told of, and the records that made room for others.
pub fn last_outage(from: Option<Wall>, to: Option<Wall>, cause: &str, changes: u32, dropped: u32) -> String {
    let [from, to] = [from, to].map(|wall| wall.map(Wall::to_seconds_stamp));
    json!({ "from": from, "to": to, "cause": cause, "changes": changes, "dropped": dropped }).to_string()
}

/// Annotation of the Node: when its client certificate ends, as a time of RFC 3339. A Node with a token has none.
pub const CERTIFICATE_EXPIRY: &str = "nodepulse.dev/certificate-expiry";
/// Annotation of the Node: the last day that is over, and what the network took on it, as JSON text.
pub const NETWORK_BYTES: &str = "nodepulse.dev/network-bytes";

/// What stands under [`NETWORK_BYTES`]. `date`: `2026-11-27`, of UTC.
pub fn network_bytes(date: &str, bytes: u64) -> String {
    json!({ "day": date, "bytes": bytes }).to_string()
}

/// After a gap: what differs, and every condition whole that the node controller may have written, whatever the server believes
/// of them now. `patch`: one of the two that `node::patch` has.
pub fn report_in_full(base: &Node, wanted: &Node, patch: fn(&Node, &Node) -> String) -> String {
    let mut old = without_conditions(base, rules::is_asserted);
    if old.status.addresses != wanted.status.addresses {
        old.status.addresses = another_list();
    }
    patch(&old, wanted)
}

/// Any list of addresses but the wanted one makes the wanted one replace what is there, whatever that is (PAT-4).
fn another_list() -> Vec<Address> {
    vec![Address { kind: "Hostname".to_owned(), address: String::new() }]
}

/// After a PATCH whose answer was lost: all of the status whole, as the server may have either version of each field. `is_ours`:
/// whether a condition of ours is not another program's, whose may be newer.
pub fn whole_status(base: &Node, wanted: &Node, is_ours: impl Fn(&str) -> bool) -> String {
    let mut old = without_conditions(base, is_ours);
    // Of what was there only what goes: that has to be named. Extended resources are not said anew without a version.
    let is_kept = |list: &ResourceList, name: &str| extended::is_one(name) || !list.contains_key(name);
    old.status.capacity.retain(|name, _| is_kept(&wanted.status.capacity, name));
    old.status.allocatable.retain(|name, _| is_kept(&wanted.status.allocatable, name));
    // But for who wrote it: it decides what else goes.
    let kubelet_version = if version::is_kubelets(base) { old.status.node_info.kubelet_version } else { String::new() };
    old.status.node_info = NodeInfo { kubelet_version, ..NodeInfo::default() };
    old.status.daemon_endpoints = DaemonEndpoints { kubelet_endpoint: Endpoint { port: u16::MAX } };
    old.status.addresses = another_list();
    status_patch(&old, wanted)
}

/// Of a board that goes down: the two conditions whole, as it is told once and nobody looks before.
/// `is_sure`: the base is the server's, so what stays keeps its time.
pub fn departure(base: &Node, is_sure: bool, kind: Leaving, since: Wall) -> String {
    let old = without_conditions(base, |kind| leaving::CONDITIONS.contains(&kind));
    let mut wanted = if is_sure { base.clone() } else { old.clone() };
    leave(&mut wanted, kind, since);
    status_patch(&old, &wanted)
}

/// The base with nothing known of these conditions but that they are there, in their order.
fn without_conditions(base: &Node, is_forgotten: impl Fn(&str) -> bool) -> Node {
    let mut old = base.clone();
    for condition in old.status.conditions.iter_mut().filter(|condition| is_forgotten(&condition.kind)) {
        *condition = Condition { status: String::new(), ..Condition::unknown(&condition.kind) };
    }
    old
}

/// Of a board that leaves its cluster (REV-3): it is not Ready, and will not be.
pub fn left(name: &str, stamp: Wall) -> String {
    let at = stamp.to_seconds_stamp();
    let message = format!("this board has left the cluster: kubectl delete node {name}");
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "Left", "message": message,
        "lastHeartbeatTime": at, "lastTransitionTime": at,
    });
    json!({ "status": { "conditions": [ready] } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn node(address: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n1", "labels": { "kubernetes.io/os": "linux" } },
            "status": {
                "capacity": { "cpu": "4" },
                "conditions": [
                    { "type": "NetworkUnavailable", "status": "False", "reason": "Theirs" },
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady" }
                ],
                "addresses": [{ "type": "InternalIP", "address": address }]
            }
        }))
        .unwrap()
    }

    #[test]
    fn a_report_in_full_sends_an_unchanged_condition_whole_and_no_foreign_one() {
        let patch: Value =
            serde_json::from_str(&report_in_full(&node("10.0.0.1"), &node("10.0.0.1"), status_patch)).unwrap();
        assert_eq!(
            patch["status"]["conditions"],
            json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady" }])
        );
        assert_eq!(patch["status"]["$setElementOrder/conditions"][0]["type"], "NetworkUnavailable");
        assert_eq!(patch["status"].get("addresses"), None);
    }

    /// The server may have got them since from a report whose answer was lost.
    #[test]
    fn a_report_in_full_replaces_the_addresses_that_a_base_lacks() {
        let (mut base, wanted) = (node(""), node("10.0.0.1"));
        base.status.addresses.clear();
        let patch: Value = serde_json::from_str(&report_in_full(&base, &wanted, status_patch)).unwrap();
        let whole = json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "$patch": "replace" }]);
        assert_eq!(patch["status"]["addresses"], whole);
    }

    #[test]
    fn the_whole_status_holds_what_the_base_seems_to_have_already() {
        let patch: Value =
            serde_json::from_str(&whole_status(&node("10.0.0.1"), &node("10.0.0.1"), rules::is_own)).unwrap();
        assert_eq!(patch["status"]["capacity"], json!({ "cpu": "4" }));
        assert_eq!(
            patch["status"]["addresses"],
            json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "$patch": "replace" }])
        );
        assert_eq!(patch["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
        // A label that an administrator removed meanwhile must not come back: NodeRestriction might refuse it.
        assert_eq!(patch.get("metadata"), None);
    }

    #[test]
    fn what_is_unknown_is_said_so_in_full() {
        let mut unknown = node("10.0.0.1");
        unknown.status.conditions[1].status = "Unknown".to_owned();
        let patch: Value = serde_json::from_str(&report_in_full(&unknown, &unknown, status_patch)).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["status"], "Unknown");
    }

    #[test]
    fn the_whole_status_takes_away_what_a_kubelet_left_and_of_ours_nothing() {
        let version = |version: &str| {
            let mut node = node("10.0.0.1");
            node.status.node_info.kubelet_version = version.to_owned();
            node
        };
        let ours = version("v1.36.3-nodepulse.0.1.0");
        for (base, is_taken_away) in [(version("v1.36.3"), true), (version(""), false), (ours.clone(), false)] {
            let patch: Value = serde_json::from_str(&whole_status(&base, &ours, rules::is_own)).unwrap();
            assert_eq!(patch["status"].get("features") == Some(&Value::Null), is_taken_away, "{patch}");
            assert_eq!(patch["status"]["nodeInfo"]["kubeletVersion"], "v1.36.3-nodepulse.0.1.0");
        }
    }

    #[test]
    fn an_outage_is_summed_up_in_one_annotation_of_json_text() {
        let (from, to) = (Wall::from_unix_seconds(1_767_225_600), Wall::from_unix_seconds(1_767_225_690));
        let outage = last_outage(Some(from), Some(to), "timed-out", 3, 0);
        let expected = json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:01:30Z", "cause": "timed-out",
            "changes": 3, "dropped": 0 });
        assert_eq!(serde_json::from_str::<Value>(&outage).unwrap(), expected);
    }
}
