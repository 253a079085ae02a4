//! Turns one request and what it did into a line a person understands.

use serde_json::Value;

use super::ModelServer;
use super::http::{Request, Response};
use super::rights::Caller;
use super::route::{Route, Verb};
use super::store::Resource;

impl ModelServer {
    /// Answers, and says what happened.
    pub fn answer_aloud(&mut self, request: &Request, caller: &Caller, now_us: i64) -> (Response, String) {
        let route = Route::of(request).ok();
        let stored = |server: &ModelServer| match &route {
            Some(Route::Object { resource, name, .. }) => server.store.get(*resource, name).cloned(),
            _ => None,
        };
        let before = stored(self);
        let response = self.answer(request, caller, now_us);
        let after = stored(self);
        let line = match &route {
            _ if !response.is_success() => refusal(request, &response, route.as_ref()),
            Some(Route::Version) => format!("asked which version this is: {}", self.git_version),
            Some(Route::Review) => "asked what it may do".to_owned(),
            Some(Route::Object { verb, resource, subresource, name }) => {
                let written = after.unwrap_or_else(|| serde_json::from_slice(&request.body).unwrap_or_default());
                done(*verb, *resource, subresource, name, before.as_ref(), &written)
            }
            None => format!("{} {}", request.method, request.path),
        };
        (response, line)
    }
}

fn refusal(request: &Request, response: &Response, route: Option<&Route>) -> String {
    let status: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    match route {
        Some(Route::Object { verb: Verb::Get, resource, name, .. }) if response.code == 404 => {
            format!("{} {name} asked for: there is none", resource.kind())
        }
        Some(Route::Object { verb: Verb::Create, .. }) if response.code == 409 => format!("nothing created: {message}"),
        _ => {
            format!("{} {} is answered {} {message}", request.method, request.path, response.code).trim_end().to_owned()
        }
    }
}

fn done(
    verb: Verb,
    resource: Resource,
    subresource: &str,
    name: &str,
    before: Option<&Value>,
    written: &Value,
) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match (resource, verb) {
        (Resource::Nodes, Verb::Create) => {
            format!("Node {} registered: {}", text(&written["metadata"]["name"]), machine(written))
        }
        (Resource::Nodes, Verb::Get) => format!("Node {name} read"),
        (Resource::Nodes, _) if subresource == "status" => {
            format!("status of {name}: {}", status_change(before, written))
        }
        (Resource::Nodes, _) => format!("Node {name} changed"),
        (Resource::Leases, Verb::Create) => format!("Lease {} created", text(&written["metadata"]["name"])),
        (Resource::Leases, Verb::Get) => format!("Lease {name} read"),
        (Resource::Leases, _) => format!("Lease {name} renewed at {}", text(&written["spec"]["renewTime"])),
        (Resource::CsiNodes, _) => format!("CSINode {} made", text(&written["metadata"]["name"])),
        (Resource::Events, Verb::Create) => {
            format!("event {}: {}", text(&written["reason"]), text(&written["message"]))
        }
        (Resource::Events, _) => {
            format!(
                "event {} again, {} times now: {}",
                text(&written["reason"]),
                written["count"],
                text(&written["message"])
            )
        }
    }
}

/// `4 CPUs, 1.9 GB, arm64`.
fn machine(node: &Value) -> String {
    let capacity = &node["status"]["capacity"];
    let cpus = capacity["cpu"].as_str().unwrap_or("?");
    let memory = capacity["memory"].as_str().unwrap_or("?");
    let kibibytes = memory.strip_suffix("Ki").and_then(|number| number.parse::<f64>().ok());
    let memory = kibibytes.map_or(memory.to_owned(), |number| format!("{:.1} GB", number * 1024.0 / 1e9));
    let architecture = node["status"]["nodeInfo"]["architecture"].as_str().unwrap_or("?");
    format!("{cpus} CPU{}, {memory}, {architecture}", if cpus == "1" { "" } else { "s" })
}

/// What differs, conditions first.
fn status_change(before: Option<&Value>, after: &Value) -> String {
    let Some(before) = before else { return "written".to_owned() };
    if before == after {
        return "asserted, nothing differs".to_owned();
    }
    let mut changes = Vec::new();
    for condition in after["status"]["conditions"].as_array().into_iter().flatten() {
        let known = before["status"]["conditions"].as_array().into_iter().flatten();
        let mut known = known.filter(|known| known["type"] == condition["type"]);
        let differs = |known: &Value| ["status", "reason"].iter().any(|key| known[*key] != condition[*key]);
        if known.next().is_none_or(differs) {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            changes.push(format!("{}={} ({})", text("type"), text("status"), text("reason")));
        }
    }
    for (field, word) in
        [("addresses", "addresses"), ("capacity", "capacity"), ("allocatable", "allocatable"), ("nodeInfo", "versions")]
    {
        if before["status"][field] != after["status"][field] {
            changes.push(format!("{word} changed"));
        }
    }
    for field in ["labels", "annotations"] {
        if before["metadata"][field] != after["metadata"][field] {
            changes.push(format!("{field} changed"));
        }
    }
    if changes.is_empty() { "heartbeat".to_owned() } else { changes.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_told_in_few_words() {
        let node = |cpu: &str, memory: &str| json!({"status": {"capacity": {"cpu": cpu, "memory": memory}, "nodeInfo": {"architecture": "arm64"}}});
        assert_eq!(machine(&node("4", "1855468Ki")), "4 CPUs, 1.9 GB, arm64");
        assert_eq!(machine(&node("1", "512Mi")), "1 CPU, 512Mi, arm64");
    }

    #[test]
    fn a_status_is_told_by_what_changed() {
        let node = |status: &str, reason: &str, heartbeat: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "lastHeartbeatTime": heartbeat}]}});
        let ready = node("True", "KubeletReady", "1");
        assert_eq!(status_change(Some(&ready), &ready), "asserted, nothing differs");
        assert_eq!(status_change(Some(&ready), &node("True", "KubeletReady", "2")), "heartbeat");
        let unknown = node("True", "NodeStatusUnknown", "1");
        assert_eq!(status_change(Some(&unknown), &ready), "Ready=True (KubeletReady)");
    }
}
