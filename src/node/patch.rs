//! Turns two Nodes, or one, into the bodies of the requests that lead the server's Node (INI-7, PAT-1..6, D4).

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::object::{Condition, Node, NodeStatus};
use super::version;

/// Body of `POST /api/v1/nodes`.
pub fn create_body(node: &Node) -> String {
    let mut body = object(node);
    body.insert("apiVersion".to_owned(), json!("v1"));
    body.insert("kind".to_owned(), json!("Node"));
    Value::Object(body).to_string()
}

/// The strategic merge patch of `nodes/NAME/status` that leads from `old`, the server's Node, to `new`: labels,
/// annotations and status, never spec (PAT-2). `{}` when nothing differs.
///
/// Byte for byte what the kubelet sends, but for one case: the last of its labels or annotations that goes is removed
/// by its key, not by `null` for the whole map, which would take along what others added since `old` was read. And where a
/// kubelet wrote `old`, what it reported and we do not goes: an image or a volume in use that stays is waited for by others.
pub fn status_patch(old: &Node, new: &Node) -> String {
    patch_of(old, new, false)
}

/// The same, refused by the server (409) where somebody else has written the Node since `old`: nobody has to read in the answer
/// to a report without a change what came of it, and no late report brings extended resources back (`node::extended`).
pub fn status_patch_of_version(old: &Node, new: &Node) -> String {
    patch_of(old, new, true)
}

fn patch_of(old: &Node, new: &Node, names_version: bool) -> String {
    let mut metadata = Map::new();
    let (before, after) = (&old.metadata, &new.metadata);
    // Most of a Node is mostly the same: a tree is only made of what is not.
    if before.labels != after.labels {
        put(&mut metadata, "labels", difference(&object(&before.labels), &object(&after.labels)));
    }
    let mut annotations = Map::new();
    if before.annotations != after.annotations {
        annotations = difference(&object(&before.annotations), &object(&after.annotations));
    }
    put(&mut metadata, "annotations", annotations);
    let is_same = is_plain_status_same(&old.status, &new.status);
    let mut status = if is_same { Map::new() } else { difference(&plain_status(old), &plain_status(new)) };
    if old.status.addresses != new.status.addresses {
        status.insert("addresses".to_owned(), addresses_patch(old, new));
    }
    status.extend(conditions_patch(&old.status.conditions, &new.status.conditions));
    if version::is_kubelets(old) && !version::is_kubelets(new) {
        let ours = object(&new.status);
        let gone = OF_A_KUBELET.into_iter().filter(|key| !ours.contains_key(*key));
        status.extend(gone.map(|key| (key.to_owned(), Value::Null)));
    }
    if names_version {
        metadata.insert("resourceVersion".to_owned(), Value::from(old.metadata.resource_version.as_str()));
        // Which are there is known, and in which order.
        if has_same_kinds(&old.status.conditions, &new.status.conditions) {
            status.remove(SET_ELEMENT_ORDER);
        }
    }
    let mut patch = Map::new();
    put(&mut patch, "metadata", metadata);
    put(&mut patch, "status", status);
    Value::Object(patch).to_string()
}

/// What changes nothing (D4), and is refused (409) where somebody else has written the Node since: its statuses are then not
/// known to be ours any more, and it is read.
pub fn assertion(node: &Node) -> String {
    // Without a tree, which would take two pages and give them back every minute.
    format!(r#"{{"metadata":{{"resourceVersion":{}}}}}"#, Value::from(node.metadata.resource_version.as_str()))
}

/// What a kubelet reports of itself, and we do not, or only where there is a runtime.
const OF_A_KUBELET: [&str; 5] = ["runtimeHandlers", "features", "images", "volumesInUse", "declaredFeatures"];

const SET_ELEMENT_ORDER: &str = "$setElementOrder/conditions";

fn is_plain_status_same(old: &NodeStatus, new: &NodeStatus) -> bool {
    let NodeStatus { capacity, allocatable, daemon_endpoints, node_info, runtime_handlers, features, images, .. } = old;
    let resources_are = (capacity, allocatable) == (&new.capacity, &new.allocatable);
    let runtime_is = (runtime_handlers, features, images) == (&new.runtime_handlers, &new.features, &new.images);
    resources_are && runtime_is && (daemon_endpoints, node_info) == (&new.daemon_endpoints, &new.node_info)
}

/// The status without its two lists, which have rules of their own.
fn plain_status(node: &Node) -> Map<String, Value> {
    let mut status = object(&node.status);
    status.remove("conditions");
    status.remove("addresses");
    status
}

/// PAT-4: the merge key `type` would make one of two InternalIPs, so a list that changes is replaced whole.
fn addresses_patch(old: &Node, new: &Node) -> Value {
    let mut addresses: Vec<Value> = new.status.addresses.iter().map(|one| Value::Object(object(one))).collect();
    if !old.status.addresses.is_empty() {
        addresses.push(json!({ "$patch": "replace" }));
    }
    Value::Array(addresses)
}

/// PAT-3, PAT-5: of each condition what changed and its type; the order of all; all whole when the base has none. One whose
/// time changes is whole, too: a request that comes late must not give its time to another status.
fn conditions_patch(old: &[Condition], new: &[Condition]) -> Map<String, Value> {
    let mut patch = Map::new();
    let mut changed = Vec::new();
    for condition in new {
        let before = old.iter().find(|before| before.kind == condition.kind);
        let known = before.map_or([None; 6], |before| fields_of(before).map(|(_, value)| value));
        let is_whole = before.is_none_or(|before| before.last_transition_time != condition.last_transition_time);
        let mut fields = Map::new();
        for ((key, value), known) in fields_of(condition).into_iter().zip(known) {
            if value != known || is_whole && value.is_some() {
                fields.insert(key.to_owned(), value.map_or(Value::Null, Value::from));
            }
        }
        if !fields.is_empty() {
            fields.insert("type".to_owned(), json!(condition.kind));
            changed.push(Value::Object(fields));
        }
    }
    let gone = old.iter().filter(|before| !new.iter().any(|one| one.kind == before.kind));
    changed.extend(gone.map(|gone| json!({ "$patch": "delete", "type": gone.kind })));
    if !old.is_empty() && (!has_same_kinds(old, new) || !changed.is_empty()) {
        patch.insert(SET_ELEMENT_ORDER.to_owned(), element_order(new));
    }
    if !changed.is_empty() {
        patch.insert("conditions".to_owned(), Value::Array(changed));
    }
    patch
}

fn has_same_kinds(old: &[Condition], new: &[Condition]) -> bool {
    old.iter().map(|one| &one.kind).eq(new.iter().map(|one| &one.kind))
}

/// Its fields as they are written, without the tree that would take: an unchanged report compares nothing else. What is empty is
/// left out, but for what the API demands.
fn fields_of(condition: &Condition) -> [(&'static str, Option<&str>); 6] {
    let Condition { kind, status, last_heartbeat_time, last_transition_time, reason, message } = condition;
    fn unless_empty(text: &str) -> Option<&str> {
        Some(text).filter(|text| !text.is_empty())
    }
    [
        ("type", Some(kind)),
        ("status", Some(status)),
        ("lastHeartbeatTime", unless_empty(last_heartbeat_time)),
        ("lastTransitionTime", unless_empty(last_transition_time)),
        ("reason", unless_empty(reason)),
        ("message", unless_empty(message)),
    ]
}

fn element_order(conditions: &[Condition]) -> Value {
    conditions.iter().map(|one| json!({ "type": one.kind })).collect()
}

/// The merge patch from one object to another: changed and new keys, nested objects in turn, `null` for what is gone.
/// An empty object counts as absent, as in the API's own JSON.
fn difference(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let is_there = |value: Option<&Value>| value.is_some_and(|value| !value.as_object().is_some_and(Map::is_empty));
    let mut patch = Map::new();
    for (key, value) in new.iter().filter(|(_, value)| is_there(Some(*value))) {
        match (old.get(key), value) {
            (Some(before), value) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => put(&mut patch, key, difference(before, after)),
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| is_there(old.get(*key)) && !is_there(new.get(*key))) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

fn put(patch: &mut Map<String, Value>, key: &str, inner: Map<String, Value>) {
    if !inner.is_empty() {
        patch.insert(key.to_owned(), Value::Object(inner));
    }
}

/// Our types are objects with text keys: they always become one. Written and read again, as a second serializer for a Node,
/// straight into values, takes 3 KB of the program.
fn object<T: Serialize>(value: &T) -> Map<String, Value> {
    match serde_json::to_vec(value).and_then(|text| serde_json::from_slice(&text)) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::object::Address;
    use crate::node::reconcile::MANAGED_ATTACH_DETACH;
    use crate::node::report::whole_status;
    use crate::node::rules;
    use crate::node::tests::samples::{self, LATER_STAMP, condition_mut, foreign_condition};

    const ORDER: &str = concat!(
        r#""$setElementOrder/conditions":[{"type":"MemoryPressure"},{"type":"DiskPressure"},"#,
        r#"{"type":"PIDPressure"},{"type":"ReadonlyFilesystem"},{"type":"Ready"}]"#
    );

    /// As an idle report does: no condition that only we have gets one.
    fn beat(node: &mut Node) {
        for one in node.status.conditions.iter_mut().filter(|one| one.kind != "ReadonlyFilesystem") {
            one.last_heartbeat_time = LATER_STAMP.to_owned();
        }
    }

    fn addressed(list: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        let address = |(kind, address): &(&str, &str)| Address { kind: (*kind).into(), address: (*address).into() };
        node.status.addresses = list.iter().map(address).collect();
        node
    }

    #[test]
    fn nothing_but_heartbeats_names_every_condition_and_the_heartbeats_of_a_kubelets() {
        let (old, mut new) = (samples::node(), samples::node());
        beat(&mut new);
        let beats: Vec<String> = (["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].iter())
            .map(|kind| format!(r#"{{"lastHeartbeatTime":"2026-01-01T00:05:00Z","type":"{kind}"}}"#))
            .collect();
        let expected = format!(r#"{{"status":{{{ORDER},"conditions":[{}]}}}}"#, beats.join(","));
        assert_eq!(status_patch(&old, &new), expected);
    }

    #[test]
    fn a_condition_that_changed_is_whole_and_the_others_are_not() {
        let (old, mut new) = (samples::node(), samples::node());
        beat(&mut new);
        let memory = condition_mut(&mut new, "MemoryPressure");
        memory.status = "True".to_owned();
        memory.reason = "KubeletHasInsufficientMemory".to_owned();
        memory.message = "kubelet has insufficient memory available".to_owned();
        memory.last_transition_time = LATER_STAMP.to_owned();
        let expected = format!(
            concat!(
                r#"{{"status":{{{},"conditions":[{{"lastHeartbeatTime":"2026-01-01T00:05:00Z","#,
                r#""lastTransitionTime":"2026-01-01T00:05:00Z","message":"kubelet has insufficient memory available","#,
                r#""reason":"KubeletHasInsufficientMemory","status":"True","type":"MemoryPressure"}},"#,
                r#"{{"lastHeartbeatTime":"2026-01-01T00:05:00Z","type":"DiskPressure"}},"#,
                r#"{{"lastHeartbeatTime":"2026-01-01T00:05:00Z","type":"PIDPressure"}},"#,
                r#"{{"lastHeartbeatTime":"2026-01-01T00:05:00Z","type":"Ready"}}]}}}}"#
            ),
            ORDER
        );
        assert_eq!(status_patch(&old, &new), expected);
    }

    #[test]
    fn a_time_that_is_put_right_brings_its_status() {
        let (old, mut new) = (samples::node(), samples::node());
        condition_mut(&mut new, "MemoryPressure").last_transition_time = LATER_STAMP.to_owned();
        let patch: Value = serde_json::from_str(&status_patch(&old, &new)).unwrap();
        let expected = serde_json::to_value(condition_mut(&mut new, "MemoryPressure")).unwrap();
        assert_eq!(patch["status"]["conditions"], json!([expected]));
    }

    #[test]
    fn a_condition_of_others_is_named_in_the_order_and_nowhere_else() {
        let mut old = samples::node();
        old.status.conditions.insert(1, foreign_condition());
        let mut new = old.clone();
        condition_mut(&mut new, "Ready").message = "x".to_owned();
        let expected = concat!(
            r#"{"status":{"$setElementOrder/conditions":[{"type":"MemoryPressure"},{"type":"FrequentKubeletRestart"},"#,
            r#"{"type":"DiskPressure"},{"type":"PIDPressure"},{"type":"ReadonlyFilesystem"},{"type":"Ready"}],"#,
            r#""conditions":[{"message":"x","type":"Ready"}]}}"#
        );
        assert_eq!(status_patch(&old, &new), expected);
    }

    #[test]
    fn a_condition_that_is_gone_is_deleted_and_no_other() {
        let (old, mut new) = (samples::node(), samples::node());
        new.status.conditions.retain(|one| one.kind != "ReadonlyFilesystem");
        let patch: Value = serde_json::from_str(&status_patch(&old, &new)).unwrap();
        let gone = json!([{ "$patch": "delete", "type": "ReadonlyFilesystem" }]);
        assert_eq!(patch["status"]["conditions"], gone);
    }

    #[test]
    fn a_base_without_conditions_gets_the_list_whole_and_without_an_order() {
        let (mut old, new) = (samples::node(), samples::node());
        old.status.conditions.clear();
        let patch: Value = serde_json::from_str(&status_patch(&old, &new)).unwrap();
        assert_eq!(patch, json!({ "status": { "conditions": new.status.conditions } }));
    }

    #[test]
    fn addresses_that_change_are_replaced_whole() {
        let one = addressed(&[("InternalIP", "10.0.0.1"), ("Hostname", "n1")]);
        let other = addressed(&[("InternalIP", "10.0.0.2"), ("Hostname", "n1")]);
        let both = addressed(&[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("Hostname", "n1")]);
        let swapped = addressed(&[("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.1"), ("Hostname", "n1")]);
        let none = addressed(&[]);
        let written = |node: &Node| {
            let list = node.status.addresses.iter();
            list.map(|one| format!(r#"{{"address":"{}","type":"{}"}}"#, one.address, one.kind))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert_eq!(
            status_patch(&one, &other),
            concat!(
                r#"{"status":{"addresses":[{"address":"10.0.0.2","type":"InternalIP"},"#,
                r#"{"address":"n1","type":"Hostname"},{"$patch":"replace"}]}}"#
            )
        );
        assert_eq!(status_patch(&one, &none), r#"{"status":{"addresses":[{"$patch":"replace"}]}}"#);
        assert_eq!(status_patch(&none, &both), format!(r#"{{"status":{{"addresses":[{}]}}}}"#, written(&both)));
        for (old, new) in [(&one, &both), (&both, &one), (&both, &swapped)] {
            let expected = format!(r#"{{"status":{{"addresses":[{},{{"$patch":"replace"}}]}}}}"#, written(new));
            assert_eq!(status_patch(old, new), expected);
            assert_eq!(status_patch(new, new), "{}");
        }
    }

    #[test]
    fn metadata_and_removed_resources_ride_in_the_same_patch() {
        let mut new = Node::default();
        new.metadata.labels.insert("kubernetes.io/arch".to_owned(), "arm64".to_owned());
        new.status.capacity = [("cpu".to_owned(), "4".to_owned())].into();
        let mut old = new.clone();
        old.metadata.labels.insert("kubernetes.io/arch".to_owned(), "amd64".to_owned());
        old.metadata.annotations.insert(MANAGED_ATTACH_DETACH.to_owned(), "true".to_owned());
        old.metadata.annotations.insert("other".to_owned(), "stays".to_owned());
        new.metadata.annotations.insert("other".to_owned(), "stays".to_owned());
        old.status.capacity.insert("hugepages-1Gi".to_owned(), "1Gi".to_owned());
        let expected = concat!(
            r#"{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":null},"#,
            r#""labels":{"kubernetes.io/arch":"arm64"}},"status":{"capacity":{"hugepages-1Gi":null}}}"#
        );
        assert_eq!(status_patch(&old, &new), expected);
    }

    #[test]
    fn nested_objects_are_patched_field_by_field_and_spec_never() {
        let (old, mut new) = (samples::node(), samples::node());
        new.status.node_info.boot_id = "boot-2".to_owned();
        new.status.daemon_endpoints.kubelet_endpoint.port = 10250;
        new.spec.unschedulable = true;
        new.spec.provider_id = "edge://1".to_owned();
        let expected =
            r#"{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}},"nodeInfo":{"bootID":"boot-2"}}}"#;
        assert_eq!(status_patch(&old, &new), expected);
        assert_eq!(status_patch(&old, &old), "{}");
    }

    #[test]
    fn what_a_kubelet_reported_and_we_do_not_goes_with_the_first_report() {
        let (mut old, new) = (samples::node(), samples::node());
        let is_cleared = |patch: &str| {
            ["images", "volumesInUse", "runtimeHandlers", "features", "declaredFeatures"]
                .map(|key| patch.contains(&format!(r#""{key}":null"#)))
        };
        old.status.node_info.kubelet_version = "v1.36.3".to_owned();
        let mut ours = new.clone();
        ours.status.node_info.kubelet_version = version::kubelet_version(None);
        assert_eq!(is_cleared(&status_patch(&old, &ours)), [true; 5]);
        assert_eq!(is_cleared(&whole_status(&old, &ours, rules::is_own)), [true; 5]);
        assert_eq!(is_cleared(&status_patch(&ours, &ours)), [false; 5]);
        assert_eq!(is_cleared(&whole_status(&ours, &ours, rules::is_own)), [false; 5]);
    }

    #[test]
    fn an_assertion_is_the_version_that_the_node_should_have() {
        let mut node = samples::node();
        node.metadata.resource_version = "4711".to_owned();
        assert_eq!(assertion(&node), r#"{"metadata":{"resourceVersion":"4711"}}"#);
    }

    #[test]
    fn a_report_without_a_change_names_its_version_and_each_heartbeat() {
        let (mut old, mut new) = (samples::node(), samples::node());
        old.metadata.resource_version = "4711".to_owned();
        beat(&mut new);
        let beat = |kind: &str| format!(r#"{{"lastHeartbeatTime":"{LATER_STAMP}","type":"{kind}"}}"#);
        let beats = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(beat).join(",");
        let expected = format!(r#"{{"metadata":{{"resourceVersion":"4711"}},"status":{{"conditions":[{beats}]}}}}"#);
        assert_eq!(status_patch_of_version(&old, &new), expected);
        // Whatever differs is in it.
        new.metadata.labels.insert("a".to_owned(), "b".to_owned());
        let patch = status_patch_of_version(&old, &new);
        assert!(patch.starts_with(r#"{"metadata":{"labels":{"a":"b"},"resourceVersion":"4711"},"#), "{patch}");
    }
}
