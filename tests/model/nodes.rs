//! Turns writes to Nodes into stored Nodes: defaults, validation and what each subresource may change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::problem::Problem;
use super::store::Resource;

const NODE_INFO_TEXTS: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

/// What Go prints though it is empty, and `SetDefaults_NodeStatus`.
pub fn set_defaults(node: &mut Value) {
    let make_object = |value: &mut Value| {
        if !value.is_object() {
            *value = json!({});
        }
    };
    for key in ["metadata", "spec", "status"] {
        make_object(&mut node[key]);
    }
    let status = &mut node["status"];
    if status.get("allocatable").is_none()
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status["allocatable"] = capacity;
    }
    for key in ["daemonEndpoints", "nodeInfo"] {
        make_object(&mut status[key]);
    }
    make_object(&mut status["daemonEndpoints"]["kubeletEndpoint"]);
    if status["daemonEndpoints"]["kubeletEndpoint"].get("Port").is_none() {
        status["daemonEndpoints"]["kubeletEndpoint"]["Port"] = json!(0);
    }
    for key in NODE_INFO_TEXTS {
        if status["nodeInfo"].get(key).is_none() {
            status["nodeInfo"][key] = json!("");
        }
    }
    let first_cidr = node["spec"]["podCIDRs"].get(0).cloned();
    if let Some(first_cidr) = first_cidr {
        node["spec"]["podCIDR"] = first_cidr;
    }
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
}

/// The admission plug-in TaintNodesByCondition: a Node is born not-ready (INI-9).
pub fn taint_at_birth(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.contains(&taint) => {}
        Some(taints) => taints.push(taint),
        None => node["spec"]["taints"] = json!([taint]),
    }
}

/// What a write through this path may change: `/status` never spec, the Node itself never status.
pub fn prepare_for_update(subresource: &str, old: &Value, new: &mut Value) {
    let kept = if subresource == "status" { "spec" } else { "status" };
    if new[kept] != old[kept] {
        new[kept] = old[kept].clone();
    }
}

/// `ValidateNode` and, with `old`, `ValidateNodeUpdate`, as far as an agent can offend them.
pub fn validate(name: &str, old: Option<&Value>, new: &Value) -> Result<(), Problem> {
    let invalid = |why: String| Err(Problem::invalid(Resource::Nodes, name, &why));
    if let Some(why) = bad_metadata(new) {
        return invalid(why);
    }
    let mut taints = BTreeSet::new();
    for (index, taint) in list(&new["spec"]["taints"]).enumerate() {
        let effect = taint["effect"].as_str().unwrap_or_default();
        let key = taint["key"].as_str().unwrap_or_default();
        if !is_qualified_name(key) || !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return invalid(format!("spec.taints[{index}]: Invalid value: {taint}"));
        }
        if !taints.insert((key.to_owned(), effect.to_owned())) {
            return invalid(format!(
                "spec.taints[{index}]: Duplicate value: {taint}: taints must be unique by key and effect pair"
            ));
        }
    }
    let Some(old) = old else { return Ok(()) };
    for (index, address) in list(&new["status"]["addresses"]).enumerate() {
        if list(&new["status"]["addresses"]).take(index).any(|before| before == address) {
            return invalid(format!("status.addresses[{index}]: Duplicate value: {address}"));
        }
    }
    for (key, why) in [
        ("podCIDRs", "node updates may not change podCIDR except from \"\" to valid"),
        ("providerID", "node updates may not change providerID except from \"\" to valid"),
    ] {
        let (before, after) = (old["spec"].get(key), new["spec"].get(key));
        if before.is_some() && before != after {
            return invalid(format!("spec.{key}: Forbidden: {why}"));
        }
    }
    Ok(())
}

/// `ValidateObjectMeta`: name, label and annotation syntax.
pub fn bad_metadata(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !is_dns_subdomain(name) {
        return Some(format!(
            "metadata.name: Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        ));
    }
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if !is_qualified_name(key) {
            return Some(format!(
                "metadata.labels: Invalid value: \"{key}\": name part must consist of alphanumeric characters"
            ));
        }
        if !is_label_value(value.as_str().unwrap_or_default()) {
            return Some(format!(
                "metadata.labels: Invalid value: {value}: a valid label must be an empty string or consist of alphanumeric characters"
            ));
        }
    }
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut bad = annotations.map(|(key, _)| key).filter(|key| !is_qualified_name(&key.to_lowercase()));
    bad.next().map(|key| format!("metadata.annotations: Invalid value: \"{key}\""))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        !bytes.is_empty() && bytes.iter().all(inner) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && edge(bytes.first())
        && edge(bytes.last())
}
