//! Turns what Nodes and Leases say, and the controllers' own clock, into what the control plane concludes: Unknown after
//! silence, taints, pod CIDRs, Leases without an owner collected (NLC-*).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ModelServer;
use super::stamp;
use super::store::{Resource, Store};

/// The lifecycle controller looks at every Node this often.
pub const MONITOR_PERIOD_US: i64 = 5_000_000;
const GRACE_US: i64 = 50_000_000;
const STARTUP_GRACE_US: i64 = 60_000_000;
const EVENT_TTL_US: i64 = 3_600_000_000;
/// The four that silence turns Unknown, with the taint that each puts on a Node while it is `True`.
const MONITORED: [(&str, Option<&str>); 4] = [
    ("Ready", None),
    ("MemoryPressure", Some("node.kubernetes.io/memory-pressure")),
    ("DiskPressure", Some("node.kubernetes.io/disk-pressure")),
    ("PIDPressure", Some("node.kubernetes.io/pid-pressure")),
];

/// What the controllers remember between two looks.
#[derive(Debug, Clone, Default)]
pub struct Controllers {
    health: BTreeMap<String, Health>,
    /// The versions of Nodes in which nothing is left to do.
    looked_at: BTreeMap<String, Value>,
    cidrs: u32,
    events_expired_us: i64,
    /// What they did, in plain words; the owner of the server takes the lines out.
    pub happened: Vec<String>,
}

#[derive(Debug, Clone)]
struct Health {
    /// By the controller's own clock (NLC-2).
    heartbeat_us: i64,
    /// `lastHeartbeatTime` of Ready; `None` while there is no such condition.
    ready_heartbeat: Option<String>,
    renewed: Option<i64>,
}

impl ModelServer {
    /// One look at everything; real ones look every [`MONITOR_PERIOD_US`].
    pub fn tick(&mut self, now_us: i64) {
        let (store, controllers) = (&mut self.store, &mut self.controllers);
        for name in store.names(Resource::Nodes) {
            let is_known = |controllers: &Controllers, store: &Store| {
                let version = store.get(Resource::Nodes, &name).map(|node| &node["metadata"]["resourceVersion"]);
                controllers.looked_at.get(&name) == version
            };
            if !is_known(controllers, store) {
                controllers.assign_pod_cidr(store, &name);
                controllers.copy_beta_labels(store, &name);
            }
            controllers.judge(store, &name, now_us);
            if !is_known(controllers, store) {
                taint(store, &name);
                let version = store.get(Resource::Nodes, &name).map(|node| node["metadata"]["resourceVersion"].clone());
                controllers.looked_at.insert(name, version.unwrap_or_default());
            }
        }
        controllers.collect_owned(store, Resource::Leases);
        controllers.collect_owned(store, Resource::CsiNodes);
        if now_us - controllers.events_expired_us > EVENT_TTL_US / 60 {
            controllers.events_expired_us = now_us;
            expire_events(store, now_us);
        }
    }
}

fn expire_events(store: &mut Store, now_us: i64) {
    let is_old = |event: &Value| {
        let stamp = event["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse);
        stamp.is_some_and(|stamp| now_us - stamp > EVENT_TTL_US)
    };
    let old = store.list(Resource::Events).filter(|(_, event)| is_old(event));
    let old: Vec<String> = old.map(|(name, _)| name.to_owned()).collect();
    for name in old {
        store.delete(Resource::Events, &name);
    }
}

impl Controllers {
    fn assign_pod_cidr(&mut self, store: &mut Store, name: &str) {
        let assigned = store.get(Resource::Nodes, name).is_some_and(|node| node["spec"].get("podCIDRs").is_some());
        if assigned {
            return;
        }
        let cidr = format!("10.244.{}.0/24", self.cidrs % 256);
        self.cidrs += 1;
        store.edit(Resource::Nodes, name, "spec", |spec| {
            spec["podCIDR"] = json!(cidr);
            spec["podCIDRs"] = json!([cidr]);
        });
        self.happened.push(format!("controller: Node {name} is given the pod addresses {cidr}"));
    }

    /// NLC-5.
    fn copy_beta_labels(&mut self, store: &mut Store, name: &str) {
        for key in ["os", "arch"] {
            let (stable, beta) = (format!("kubernetes.io/{key}"), format!("beta.kubernetes.io/{key}"));
            let Some(labels) = store.get(Resource::Nodes, name).map(|node| &node["metadata"]["labels"]) else { return };
            let wanted = labels.get(&stable).filter(|wanted| labels.get(&beta) != Some(*wanted)).cloned();
            if let Some(wanted) = wanted {
                store.edit(Resource::Nodes, name, "metadata", |metadata| metadata["labels"][&beta] = wanted);
            }
        }
    }

    /// NLC-1 to NLC-3, as `tryUpdateNodeHealth` does it: what is remembered of a name outlives its Node; a status
    /// heartbeat makes it forget the last renewal, and so does a verdict, so that the next one counts whatever it says.
    fn judge(&mut self, store: &mut Store, name: &str, now_us: i64) {
        let Some(node) = store.get(Resource::Nodes, name) else { return };
        let ready_heartbeat = ready_heartbeat_of(node);
        let renewed = store.get(Resource::Leases, name).and_then(|lease| lease["spec"]["renewTime"].as_str());
        let renewed = renewed.and_then(stamp::parse);
        let grace_us = if ready_heartbeat.is_some() { GRACE_US } else { STARTUP_GRACE_US };
        let to_remember = |heartbeat_us| {
            let ready_heartbeat = ready_heartbeat.map(str::to_owned);
            Health { heartbeat_us, ready_heartbeat, renewed: None }
        };
        if !self.health.contains_key(name) {
            let created = node["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse);
            let first = created.filter(|_| ready_heartbeat.is_none()).unwrap_or(now_us);
            self.health.insert(name.to_owned(), to_remember(first));
        }
        let Some(health) = self.health.get_mut(name) else { return };
        let saved_renewal = health.renewed;
        if health.ready_heartbeat.as_deref() != ready_heartbeat {
            *health = to_remember(now_us);
        }
        if renewed > saved_renewal {
            health.renewed = renewed;
            health.heartbeat_us = now_us;
        }
        if now_us - health.heartbeat_us > grace_us && set_unknown(store, name, now_us) {
            self.happened
                .push(format!("controller: Node {name} has been silent for {} s: Ready=Unknown", grace_us / 1_000_000));
            health.renewed = renewed;
            let node = store.get(Resource::Nodes, name);
            health.ready_heartbeat = node.and_then(ready_heartbeat_of).map(str::to_owned);
        }
    }

    /// The garbage collector: an owner that is gone takes its Lease and its CSINode with it.
    fn collect_owned(&mut self, store: &mut Store, resource: Resource) {
        for name in store.names(resource) {
            let Some(owned) = store.get(resource, &name) else { continue };
            let Some(owners) = owned["metadata"]["ownerReferences"].as_array() else { continue };
            let is_alive = |owner: &Value| {
                let node = store.get(Resource::Nodes, owner["name"].as_str().unwrap_or_default());
                node.is_some_and(|node| node["metadata"]["uid"] == owner["uid"])
            };
            if !owners.is_empty() && !owners.iter().any(is_alive) {
                store.delete(resource, &name);
                let kind = resource.kind();
                self.happened.push(format!("garbage collector: {kind} {name} deleted, the Node that owned it is gone"));
            }
        }
    }
}

fn ready_heartbeat_of(node: &Value) -> Option<&str> {
    condition(node, "Ready").map(|ready| ready["lastHeartbeatTime"].as_str().unwrap_or_default())
}

/// The condition of this type.
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// What the controller writes after silence; false when it was written before.
pub fn set_unknown(store: &mut Store, name: &str, now_us: i64) -> bool {
    // Said once, it is found so at every look while the silence lasts.
    let is_unknown = |(kind, _): &(&str, _)| {
        let node = store.get(Resource::Nodes, name);
        node.and_then(|node| condition(node, kind)).is_some_and(|condition| condition["status"] == "Unknown")
    };
    if MONITORED.iter().all(is_unknown) {
        return false;
    }
    let now = stamp::seconds(now_us);
    let created = store.get(Resource::Nodes, name).map(|node| node["metadata"]["creationTimestamp"].clone());
    store.edit(Resource::Nodes, name, "status", |status| {
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let Some(conditions) = status["conditions"].as_array_mut() else { return };
        for (kind, _) in MONITORED {
            match conditions.iter_mut().find(|condition| condition["type"] == kind) {
                Some(condition) if condition["status"] == "Unknown" => {}
                Some(condition) => {
                    condition["status"] = json!("Unknown");
                    condition["reason"] = json!("NodeStatusUnknown");
                    condition["message"] = json!("Kubelet stopped posting node status.");
                    condition["lastTransitionTime"] = json!(now);
                }
                None => conditions.push(json!({
                    "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": created, "lastTransitionTime": now,
                })),
            }
        }
    })
}

/// Taints follow conditions; those of others stay.
fn taint(store: &mut Store, name: &str) {
    let Some(node) = store.get(Resource::Nodes, name) else { return };
    let Some(wanted) = wanted_taints(node) else { return };
    let ours = ["not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "unschedulable"];
    let is_ours = |taint: &Value| {
        let key = taint["key"].as_str().and_then(|key| key.strip_prefix("node.kubernetes.io/"));
        key.is_some_and(|key| ours.contains(&key))
    };
    let stored = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut taints = stored.clone();
    taints.retain(|taint| !is_ours(taint) || wanted.contains(taint));
    let missing: Vec<Value> = wanted.into_iter().filter(|taint| !taints.contains(taint)).collect();
    taints.extend(missing);
    if taints != stored {
        store.edit(Resource::Nodes, name, "spec", |spec| match spec.as_object_mut() {
            Some(spec) if taints.is_empty() => drop(spec.remove("taints")),
            Some(spec) => drop(spec.insert("taints".to_owned(), Value::Array(taints))),
            None => {}
        });
    }
}

/// `None` while nothing is known of Ready.
fn wanted_taints(node: &Value) -> Option<Vec<Value>> {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let both = |key: &str| vec![taint(key, "NoSchedule"), taint(key, "NoExecute")];
    let mut wanted = match condition(node, "Ready")?["status"].as_str()? {
        "True" => Vec::new(),
        "False" => both("node.kubernetes.io/not-ready"),
        _ => both("node.kubernetes.io/unreachable"),
    };
    for (kind, key) in MONITORED {
        let is_true = condition(node, kind).is_some_and(|condition| condition["status"] == "True");
        wanted.extend(key.filter(|_| is_true).map(|key| taint(key, "NoSchedule")));
    }
    if node["spec"]["unschedulable"] == true {
        wanted.push(taint("node.kubernetes.io/unschedulable", "NoSchedule"));
    }
    Some(wanted)
}
