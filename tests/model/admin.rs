//! Turns what people and other controllers do to a Node into changes of the store.

use serde_json::{Value, json};

use super::ModelServer;
use super::controller::set_unknown;
use super::nodes;
use super::stamp;
use super::store::{Resource, Writer};

impl ModelServer {
    /// `kubectl delete node`.
    pub fn delete_node(&mut self, name: &str) -> bool {
        self.store.delete(Resource::Nodes, name).is_some()
    }

    /// `kubectl -n kube-node-lease delete lease`.
    pub fn delete_lease(&mut self, name: &str) -> bool {
        self.store.delete(Resource::Leases, name).is_some()
    }

    /// Somebody writes into the Lease when it was renewed.
    pub fn set_renew_time(&mut self, name: &str, stamp: &str) -> bool {
        self.store.edit(Resource::Leases, name, "spec", |spec| spec["renewTime"] = json!(stamp))
    }

    /// `kubectl cordon` and `uncordon`.
    pub fn set_unschedulable(&mut self, name: &str, unschedulable: bool) -> bool {
        self.store.edit(Resource::Nodes, name, "spec", |spec| match spec.as_object_mut() {
            Some(spec) if unschedulable => drop(spec.insert("unschedulable".to_owned(), json!(true))),
            Some(spec) => drop(spec.remove("unschedulable")),
            None => {}
        })
    }

    /// `kubectl label node NAME KEY=VALUE`, or `KEY-`.
    pub fn set_label(&mut self, name: &str, key: &str, value: Option<&str>) -> bool {
        self.store.edit(Resource::Nodes, name, "metadata", |metadata| {
            match (metadata["labels"].as_object_mut(), value) {
                (Some(labels), Some(value)) => drop(labels.insert(key.to_owned(), json!(value))),
                (Some(labels), None) => drop(labels.remove(key)),
                (None, Some(value)) => metadata["labels"] = json!({key: value}),
                (None, None) => {}
            }
        })
    }

    /// `kubectl patch lease`: how long it lasts.
    pub fn set_lease_duration(&mut self, name: &str, seconds: u64) -> bool {
        self.store.edit(Resource::Leases, name, "spec", |spec| spec["leaseDurationSeconds"] = json!(seconds))
    }

    /// What the lifecycle controller writes, without waiting for silence.
    pub fn force_unknown(&mut self, name: &str, now_us: i64) -> bool {
        set_unknown(&mut self.store, name, now_us)
    }

    /// A node-problem-detector adds its own condition.
    pub fn add_foreign_condition(&mut self, name: &str, kind: &str, now_us: i64) -> bool {
        let now = stamp::seconds(now_us);
        self.store.edit(Resource::Nodes, name, "status", |status| {
            let condition = json!({"type": kind, "status": "False", "reason": "Fine", "message": "fine",
                "lastHeartbeatTime": now, "lastTransitionTime": now});
            match status["conditions"].as_array_mut() {
                Some(conditions) if conditions.iter().any(|known| known["type"] == kind) => {}
                Some(conditions) => conditions.push(condition),
                None => status["conditions"] = json!([condition]),
            }
        })
    }

    /// The Node is deleted and made again by somebody else, empty, under a new uid.
    pub fn replace_node(&mut self, name: &str, now_us: i64) {
        self.store.delete(Resource::Nodes, name);
        let mut node = json!({"metadata": {"name": name}});
        nodes::set_defaults(&mut node);
        nodes::taint_at_birth(&mut node);
        let writer = Writer { manager: "kubectl".to_owned(), subresource: "" };
        // The name was free: it was deleted above.
        let _ = self.store.create(Resource::Nodes, name, node, &writer, now_us);
    }

    /// The stored Node.
    pub fn node(&self, name: &str) -> Option<&Value> {
        self.store.get(Resource::Nodes, name)
    }

    /// The stored Lease.
    pub fn lease(&self, name: &str) -> Option<&Value> {
        self.store.get(Resource::Leases, name)
    }
}
