//! The parts of the Kubernetes Node, Lease and Event objects that the agent reads or writes, as the API spells them.
//!
//! Fields of others are neither read nor kept: every write is a patch, so they survive on the server. What is kept is
//! bounded, whatever the server sends. Here as in the API, what is not there, `null` and what is empty are the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bounded::{self, Entry};
use crate::config::taint::Taint;

/// `v1.Node`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

/// `metav1.ObjectMeta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[serde(deserialize_with = "bounded::text")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map")]
    pub annotations: BTreeMap<String, String>,
    /// `managedFields` says who wrote which field, and none of them by server-side apply, to whom alone it matters.
    #[serde(rename = "managedFields", skip_serializing, deserialize_with = "bounded::has_needless_managers")]
    pub has_needless_managers: bool,
}

/// `v1.NodeSpec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDRs", skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::texts")]
    pub pod_cidrs: Vec<String>,
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub provider_id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Read as far as we know their effects: one of tomorrow's must not make a Node unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::taints")]
    pub taints: Vec<Taint>,
}

/// Resource name to quantity text; compared as quantities, never as text (CHG-2).
pub type ResourceList = BTreeMap<String, String>;

/// `v1.NodeStatus`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map")]
    pub capacity: ResourceList,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "bounded::map")]
    pub allocatable: ResourceList,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list")]
    pub addresses: Vec<Address>,
    pub daemon_endpoints: DaemonEndpoints,
    pub node_info: NodeInfo,
}

/// `v1.NodeCondition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "bounded::text")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "bounded::text")]
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub last_heartbeat_time: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "bounded::text")]
    pub message: String,
}

impl Node {
    /// Whether its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

impl Condition {
    /// One of which nobody has said anything yet.
    pub fn unknown(kind: &str) -> Condition {
        let status = Status::Unknown.word().to_owned();
        Condition { kind: kind.to_owned(), status, ..Condition::default() }
    }
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub const ALL: [Status; 3] = [Status::True, Status::False, Status::Unknown];

    /// As the API spells it.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.word() == word)
    }

    pub fn of(is_true: bool) -> Status {
        if is_true { Status::True } else { Status::False }
    }

    /// As the API spells it.
    pub fn word(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

/// `v1.NodeAddress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    #[serde(rename = "type", deserialize_with = "bounded::text")]
    pub kind: String,
    #[serde(deserialize_with = "bounded::text")]
    pub address: String,
}

impl Entry for Address {
    fn bytes(&self) -> usize {
        self.kind.len() + self.address.len()
    }
}

/// `v1.NodeDaemonEndpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonEndpoints {
    pub kubelet_endpoint: Endpoint,
}

/// `v1.DaemonEndpoint`; the capital P is the API's (INI-7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    #[serde(rename = "Port")]
    pub port: u16,
}

/// `v1.NodeSystemInfo`; empty strings are sent, never omitted (INI-7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    #[serde(rename = "machineID", deserialize_with = "bounded::text")]
    pub machine_id: String,
    #[serde(rename = "systemUUID", deserialize_with = "bounded::text")]
    pub system_uuid: String,
    #[serde(rename = "bootID", deserialize_with = "bounded::text")]
    pub boot_id: String,
    #[serde(rename = "kernelVersion", deserialize_with = "bounded::text")]
    pub kernel_version: String,
    #[serde(rename = "osImage", deserialize_with = "bounded::text")]
    pub os_image: String,
    #[serde(rename = "containerRuntimeVersion", deserialize_with = "bounded::text")]
    pub container_runtime_version: String,
    #[serde(rename = "kubeletVersion", deserialize_with = "bounded::text")]
    pub kubelet_version: String,
    #[serde(rename = "kubeProxyVersion", deserialize_with = "bounded::text")]
    pub kube_proxy_version: String,
    #[serde(rename = "operatingSystem", deserialize_with = "bounded::text")]
    pub operating_system: String,
    #[serde(deserialize_with = "bounded::text")]
    pub architecture: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
}

/// `v1.NodeSwapStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Swap {
    #[serde(rename = "capacity", skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
}

/// `coordination.k8s.io/v1.Lease`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub metadata: Metadata,
    pub spec: LeaseSpec,
}

/// `coordination.k8s.io/v1.LeaseSpec`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub lease_duration_seconds: Option<i64>,
    #[serde(deserialize_with = "bounded::text")]
    pub renew_time: String,
    /// How often it went from one holder to another.
    pub lease_transitions: Option<u64>,
}
