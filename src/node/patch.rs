//! Turns two Nodes, or one, into the bodies of the requests that lead the server's Node (INI-7, PAT-1..6, D4).

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::condition;
use super::object::{Condition, Node};

/// Body of `POST /api/v1/nodes`.
pub fn create_body(node: &Node) -> String {
    let mut body = object(node);
    body.insert("apiVersion".to_owned(), json!("v1"));
    body.insert("kind".to_owned(), json!("Node"));
    Value::Object(body).to_string()
}

/// The strategic merge patch of `nodes/NAME/status` that leads from `old`, the server's Node, to `new`: labels,
/// annotations and status, never spec (PAT-2). `{}` when nothing differs.
pub fn status_patch(old: &Node, new: &Node) -> String {
    let mut metadata = Map::new();
    put(&mut metadata, "labels", difference(&object(&old.metadata.labels), &object(&new.metadata.labels)));
    put(
        &mut metadata,
        "annotations",
        difference(&object(&old.metadata.annotations), &object(&new.metadata.annotations)),
    );
    let mut status = difference(&plain_status(old), &plain_status(new));
    if old.status.addresses != new.status.addresses {
        status.insert("addresses".to_owned(), addresses_patch(old, new));
    }
    status.extend(conditions_patch(&old.status.conditions, &new.status.conditions));
    let mut patch = Map::new();
    put(&mut patch, "metadata", metadata);
    put(&mut patch, "status", status);
    Value::Object(patch).to_string()
}

/// What should change nothing (D4): type and status of our conditions and nothing else, so that the server writes nothing
/// while they are right. Where others changed a status it is repaired, without reason and times: the next
/// [`super::updated`] over the answer owes those.
pub fn assertion(node: &Node) -> String {
    let own = |one: &&Condition| condition::OWN.contains(&one.kind.as_str());
    let conditions: Vec<Value> = (node.status.conditions.iter().filter(own))
        .map(|one| json!({ "type": one.kind, "status": one.status }))
        .collect();
    json!({ "status": { "conditions": conditions } }).to_string()
}

/// Our conditions whole, with the true time of their last transition: sent after a gap, when the base may be stale.
pub fn full_report(node: &Node) -> String {
    let conditions = &node.status.conditions;
    let own: Vec<Value> = (conditions.iter().filter(|one| condition::OWN.contains(&one.kind.as_str())))
        .map(|one| Value::Object(object(one)))
        .collect();
    json!({ "status": { "conditions": own, SET_ELEMENT_ORDER: element_order(conditions) } }).to_string()
}

const SET_ELEMENT_ORDER: &str = "$setElementOrder/conditions";

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

/// PAT-3, PAT-5: of each condition what changed and its type; the order of all; all whole when the base has none.
fn conditions_patch(old: &[Condition], new: &[Condition]) -> Map<String, Value> {
    let mut patch = Map::new();
    let mut changed = Vec::new();
    for condition in new {
        let before = old.iter().find(|before| before.kind == condition.kind);
        let mut fields = difference(&before.map(object).unwrap_or_default(), &object(condition));
        if !fields.is_empty() {
            fields.insert("type".to_owned(), json!(condition.kind));
            changed.push(Value::Object(fields));
        }
    }
    let gone = old.iter().filter(|before| !new.iter().any(|one| one.kind == before.kind));
    changed.extend(gone.map(|gone| json!({ "$patch": "delete", "type": gone.kind })));
    let reordered = !old.iter().map(|one| &one.kind).eq(new.iter().map(|one| &one.kind));
    if !old.is_empty() && (reordered || !changed.is_empty()) {
        patch.insert(SET_ELEMENT_ORDER.to_owned(), element_order(new));
    }
    if !changed.is_empty() {
        patch.insert("conditions".to_owned(), Value::Array(changed));
    }
    patch
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

/// Our types are objects with text keys: they always become one.
fn object<T: Serialize>(value: &T) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}
