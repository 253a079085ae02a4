//! Turns an object and a strategic-merge patch into the patched object, as apimachinery's `strategicpatch` does.
//!
//! Its surprises are kept: a list merged by a key that is not unique collapses (PAT-4), and an element that is new is put
//! in front unless `$setElementOrder` says otherwise (PAT-6).

use serde_json::{Map, Value};

use super::schema::Shape;

const DIRECTIVE: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList/";
const RETAIN: &str = "$retainKeys";

/// Applies `patch`; `Err` says what is wrong with it.
pub fn apply(shape: Shape, original: Value, patch: Value) -> Result<Value, String> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err("Invalid JSON document".to_owned());
    };
    merge_map(shape, original, patch).map(Value::Object)
}

type Object = Map<String, Value>;

fn merge_map(shape: Shape, mut original: Object, mut patch: Object) -> Result<Object, String> {
    match patch.remove(DIRECTIVE) {
        Some(directive) if directive == "replace" => return Ok(patch),
        Some(directive) if directive == "delete" => return Ok(Object::new()),
        Some(directive) => return Err(format!("unknown patch type: {directive}")),
        None => {}
    }
    if patch.contains_key(RETAIN) {
        return Err("$retainKeys is not modelled".to_owned());
    }
    merge_ordered_lists(shape, &mut original, &mut patch)?;
    for (key, value) in patch {
        if let Some(key) = key.strip_prefix(DELETE_SCALARS) {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (original.get_mut(key), value) {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        let Some(known) = original.get_mut(&key) else {
            original.extend(without_directives(value).filter(|new| !new.is_null()).map(|new| (key, new)));
            continue;
        };
        let merged = match (known.take(), value) {
            (_, Value::Null) => None,
            (Value::Object(old), Value::Object(new)) => Some(merge_map(shape.field(&key), old, new)?.into()),
            (Value::Array(old), Value::Array(new)) => Some(merge_list(shape.field(&key), old, new)?.into()),
            (_, value) => without_directives(value),
        };
        match merged {
            Some(merged) => *known = merged,
            None => drop(original.remove(&key)),
        }
    }
    Ok(original)
}

/// Where there is nothing to merge into, the patch's value is taken without its directives and nulls.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            let kept = kept.filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(list.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

/// Lists that come with `$setElementOrder/KEY`; removes both from the patch.
fn merge_ordered_lists(shape: Shape, original: &mut Object, patch: &mut Object) -> Result<(), String> {
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for order_key in orders {
        let key = order_key[ORDER.len()..].to_owned();
        let Some(Value::Array(order)) = patch.remove(&order_key) else {
            return Err(format!("{order_key} must be a list"));
        };
        let in_patch = patch.remove(&key);
        let live = original.remove(&key);
        let list_shape = shape.field(&key);
        let live_order = keys(list_shape, live.as_ref().and_then(Value::as_array).map_or(&[], Vec::as_slice));
        let merged = match (live, in_patch) {
            (None, None) => continue,
            (Some(Value::Array(live)), None) => live,
            (None, Some(Value::Array(new))) => {
                check_order(list_shape, &new, &order)?;
                new
            }
            (Some(Value::Array(live)), Some(Value::Array(new))) => {
                check_order(list_shape, &new, &order)?;
                merge_list(list_shape, live, new)?
            }
            _ => return Err(format!("{key} must be a list")),
        };
        original.insert(key, in_order(list_shape, merged, &keys(list_shape, &order), &live_order)?.into());
    }
    Ok(())
}

/// The patch's elements must all be named in `$setElementOrder`, in that order.
fn check_order(shape: Shape, patch: &[Value], order: &[Value]) -> Result<(), String> {
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let key = identity(shape, item)?;
        if !rest.any(|named| identity(shape, named).is_ok_and(|named| named == key)) {
            return Err(format!(
                "The order in patch list:\n{patch:?}\n doesn't match $setElementOrder list:\n{order:?}\n"
            ));
        }
    }
    Ok(())
}

fn merge_list(shape: Shape, original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, String> {
    match shape {
        Shape::ListByKey(key, item) => merge_list_by_key(shape, key, *item, original, patch),
        Shape::ScalarSet(_) => {
            let (live, order) = (keys(shape, &original), keys(shape, &patch));
            let new: Vec<Value> = patch.into_iter().filter(|item| !original.contains(item)).collect();
            let merged = original.into_iter().chain(new).collect();
            in_order(shape, merged, &order, &live)
        }
        _ => Ok(patch),
    }
}

fn merge_list_by_key(
    shape: Shape,
    key: &str,
    item_shape: Shape,
    mut original: Vec<Value>,
    patch: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE).and_then(Value::as_str) {
            None => plain.push(item),
            Some("replace") => replace = true,
            Some("delete") => {
                let gone = identity(shape, &item)?.clone();
                original.retain(|known| known.get(key) != Some(&gone));
            }
            Some(other) => return Err(format!("unknown patch type: {other}")),
        }
    }
    if replace {
        return Ok(plain);
    }
    let (live, order) = (keys(shape, &original), keys(shape, &plain));
    let mut merged = original;
    for item in plain {
        let value = identity(shape, &item)?.clone();
        match merged.iter_mut().find(|known| known.get(key) == Some(&value)) {
            Some(known) => {
                let (Value::Object(old), Value::Object(new)) = (known.take(), item) else {
                    return Err("list element types are not identical".to_owned());
                };
                *known = merge_map(item_shape, old, new)?.into();
            }
            None => merged.push(item),
        }
    }
    in_order(shape, merged, &order, &live)
}

/// What tells each element of a list apart; `None` for one that does not say.
type Keys = Vec<Option<Value>>;

fn keys(shape: Shape, list: &[Value]) -> Keys {
    list.iter().map(|item| identity(shape, item).ok().cloned()).collect()
}

/// `normalizeElementOrder`: elements named in `order` in that order, the server's own kept where they stood among them.
fn in_order(shape: Shape, merged: Vec<Value>, order: &Keys, live: &Keys) -> Result<Vec<Value>, String> {
    let place = |list: &Keys, item: &Value| -> Result<Option<usize>, String> {
        let key = identity(shape, item)?;
        Ok(list.iter().position(|known| known.as_ref() == Some(key)))
    };
    let mut named = Vec::new();
    let mut server_only = Vec::new();
    for item in merged {
        let live_place = place(live, &item)?;
        match place(order, &item)? {
            Some(order_place) => named.push((order_place, live_place, item)),
            None => server_only.push((live_place, item)),
        }
    }
    named.sort_by_key(|(order_place, _, _)| *order_place);
    server_only.sort_by_key(|(live_place, _)| *live_place);
    let mut result = Vec::new();
    let mut server_only = server_only.into_iter().peekable();
    for (_, live_place, item) in named {
        let before = |left: &Option<usize>| left.is_some() && live_place.is_some() && *left < live_place;
        while let Some((_, kept)) = server_only.next_if(|(left, _)| before(left)) {
            result.push(kept);
        }
        result.push(item);
    }
    result.extend(server_only.map(|(_, item)| item));
    Ok(result)
}

/// What tells elements of a merged list apart: the value of the merge key, or the scalar itself.
fn identity(shape: Shape, item: &Value) -> Result<&Value, String> {
    match shape {
        Shape::ListByKey(key, _) => {
            item.get(key).ok_or_else(|| format!("map: {item} does not contain declared merge key: {key}"))
        }
        _ => Ok(item),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::schema::{LEASE, NODE};
    use super::*;

    fn types(node: &Value) -> Vec<&str> {
        node["status"]["conditions"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
    }

    fn with_conditions(types: &[&str]) -> Value {
        let conditions: Vec<Value> =
            types.iter().map(|kind| json!({"type": kind, "status": "False", "reason": "R"})).collect();
        json!({"status": {"conditions": conditions}})
    }

    #[test]
    fn maps_merge_by_key_and_null_deletes() {
        let node = json!({"metadata": {"annotations": {"a": "1", "b": "2"}}, "status": {"capacity": {"cpu": "4", "hugepages-1Gi": "1Gi"}}});
        let patch = json!({"metadata": {"annotations": {"a": null, "never": null}, "labels": {"l": "x", "n": null}},
            "status": {"capacity": {"hugepages-1Gi": null, "cpu": "2"}}});
        let expected = json!({"metadata": {"annotations": {"b": "2"}, "labels": {"l": "x"}}, "status": {"capacity": {"cpu": "2"}}});
        assert_eq!(apply(NODE, node, patch).unwrap(), expected);
    }

    #[test]
    fn the_heartbeat_vector_changes_only_times() {
        let node = with_conditions(&["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        let patch = json!({"status": {"$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "DiskPressure"}, {"type": "PIDPressure"}, {"type": "Ready"}],
            "conditions": [{"lastHeartbeatTime": "2026-01-01T00:05:00Z", "type": "MemoryPressure"}, {"lastHeartbeatTime": "2026-01-01T00:05:00Z", "type": "Ready"}]}});
        let patched = apply(NODE, node, patch).unwrap();
        assert_eq!(types(&patched), ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        let first = json!({"type": "MemoryPressure", "status": "False", "reason": "R", "lastHeartbeatTime": "2026-01-01T00:05:00Z"});
        assert_eq!(patched["status"]["conditions"][0], first);
        assert!(patched["status"].get("$setElementOrder/conditions").is_none());
    }

    #[test]
    fn a_new_condition_goes_in_front_unless_an_order_is_set() {
        let node = with_conditions(&["MemoryPressure", "Ready"]);
        let new = json!({"status": {"conditions": [{"type": "Extra", "status": "True"}]}});
        assert_eq!(types(&apply(NODE, node.clone(), new).unwrap()), ["Extra", "MemoryPressure", "Ready"]);
        let ordered = json!({"status": {"$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "Ready"}, {"type": "Extra"}],
            "conditions": [{"type": "Extra", "status": "True"}]}});
        assert_eq!(types(&apply(NODE, node, ordered).unwrap()), ["MemoryPressure", "Ready", "Extra"]);
    }

    #[test]
    fn a_condition_the_patch_does_not_name_keeps_its_place() {
        let node = with_conditions(&["Kernel", "MemoryPressure", "Ready"]);
        let patch = json!({"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(types(&apply(NODE, node, patch).unwrap()), ["Kernel", "MemoryPressure", "Ready"]);
    }

    #[test]
    fn a_patch_whose_list_disagrees_with_its_order_is_refused() {
        let patch =
            json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [{"type": "Extra"}]}});
        assert!(apply(NODE, with_conditions(&["Ready"]), patch).unwrap_err().contains("doesn't match"));
        let keyless = json!({"status": {"conditions": [{"status": "True"}]}});
        assert!(apply(NODE, with_conditions(&["Ready"]), keyless).unwrap_err().contains("merge key"));
    }

    #[test]
    fn two_addresses_of_one_type_collapse_without_the_replace_directive() {
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}]}});
        let dual = [
            json!({"type": "InternalIP", "address": "10.0.0.1"}),
            json!({"type": "InternalIP", "address": "fd00::1"}),
            json!({"type": "Hostname", "address": "n1"}),
        ];
        let collapsed = apply(NODE, node.clone(), json!({"status": {"addresses": dual}})).unwrap();
        let expected = json!([{"type": "InternalIP", "address": "fd00::1"}, {"type": "Hostname", "address": "n1"}]);
        assert_eq!(collapsed["status"]["addresses"], expected);
        let mut replace = dual.to_vec();
        replace.push(json!({"$patch": "replace"}));
        let replaced = apply(NODE, node.clone(), json!({"status": {"addresses": replace}})).unwrap();
        assert_eq!(replaced["status"]["addresses"], json!(dual));
        let emptied = apply(NODE, node, json!({"status": {"addresses": [{"$patch": "replace"}]}})).unwrap();
        assert_eq!(emptied["status"]["addresses"], json!([]));
    }

    #[test]
    fn a_list_that_is_not_there_yet_is_taken_whole_without_directives() {
        let dual = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}, {"$patch": "replace"}]);
        let patched = apply(NODE, json!({"status": {}}), json!({"status": {"addresses": dual}})).unwrap();
        assert_eq!(patched["status"]["addresses"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn owner_references_merge_by_uid_and_can_be_replaced() {
        let lease = json!({"metadata": {"ownerReferences": [{"kind": "Node", "uid": "old"}]}});
        let merged =
            apply(LEASE, lease.clone(), json!({"metadata": {"ownerReferences": [{"kind": "Node", "uid": "new"}]}}))
                .unwrap();
        assert_eq!(merged["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
        let replaced =
            json!({"metadata": {"ownerReferences": [{"kind": "Node", "uid": "new"}, {"$patch": "replace"}]}});
        assert_eq!(
            apply(LEASE, lease, replaced).unwrap()["metadata"]["ownerReferences"],
            json!([{"kind": "Node", "uid": "new"}])
        );
    }

    #[test]
    fn scalar_lists_merge_and_atomic_lists_are_replaced() {
        let node = json!({"spec": {"podCIDRs": ["a"], "taints": [{"key": "k"}]}});
        let patch = json!({"spec": {"podCIDRs": ["b"], "taints": [{"key": "l"}]}});
        let patched = apply(NODE, node, patch).unwrap();
        assert_eq!(patched["spec"]["podCIDRs"], json!(["b", "a"]));
        assert_eq!(patched["spec"]["taints"], json!([{"key": "l"}]));
    }
}
