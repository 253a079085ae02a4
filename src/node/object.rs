//! The parts of the Kubernetes Node, Lease and Event objects that the agent reads or writes, as the API spells them.
//!
//! Fields of others are neither read nor kept: every write is a patch, so they survive on the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

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
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// `v1.NodeSpec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<String>,
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Read as far as we know their effects: one of tomorrow's must not make a Node unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "known_taints")]
    pub taints: Vec<Taint>,
}

fn known_taints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Taint>, D::Error> {
    let taints = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(taints.into_iter().filter_map(|taint| serde_json::from_value(taint).ok()).collect())
}

/// Resource name to quantity text; compared as quantities, never as text (CHG-2).
pub type ResourceList = BTreeMap<String, String>;

/// `v1.NodeStatus`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<ResourceList>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    pub daemon_endpoints: DaemonEndpoints,
    pub node_info: NodeInfo,
}

/// `v1.NodeCondition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    /// `None` while it is `Unknown`.
    pub fn is_true(&self) -> Option<bool> {
        match self.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }
}

/// `v1.NodeAddress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
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
    #[serde(rename = "machineID")]
    pub machine_id: String,
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    #[serde(rename = "bootID")]
    pub boot_id: String,
    #[serde(rename = "kernelVersion")]
    pub kernel_version: String,
    #[serde(rename = "osImage")]
    pub os_image: String,
    #[serde(rename = "containerRuntimeVersion")]
    pub container_runtime_version: String,
    #[serde(rename = "kubeletVersion")]
    pub kubelet_version: String,
    #[serde(rename = "kubeProxyVersion")]
    pub kube_proxy_version: String,
    #[serde(rename = "operatingSystem")]
    pub operating_system: String,
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
    pub metadata: LeaseMetadata,
    pub spec: LeaseSpec,
}

/// The metadata of a [`Lease`] that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseMetadata {
    pub owner_references: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    pub kind: String,
    pub uid: String,
}

/// `coordination.k8s.io/v1.LeaseSpec`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub holder_identity: Option<String>,
    pub lease_duration_seconds: Option<i64>,
    pub renew_time: Option<String>,
}
