//! The parts of the Kubernetes Node, Lease and Event objects that the agent reads or writes, as the API spells them.
//!
//! Fields of others are neither read nor kept: every write is a patch, so they survive on the server. What is kept is
//! bounded, whatever the server sends. Here as in the API, what is not there, `null` and what is empty are the same.

use serde::Serialize;

use super::bounded::{Entry, Field, Flat, read_flat};
use crate::config::taint::Taint;
use crate::config::text_map::TextMap;
use crate::probe::{ContainerImage, HandlerFeatures, RuntimeFeatures, RuntimeHandler};

read_flat!(Node, Lease);
#[cfg(test)]
read_flat!(Condition);

/// `v1.Node`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Node {
    pub metadata: Metadata,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

impl Flat for Node {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "metadata" => Field::Flat(&mut self.metadata),
            "spec" => Field::Flat(&mut self.spec),
            "status" => Field::Flat(&mut self.status),
            _ => return None,
        })
    }
}

/// `metav1.ObjectMeta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub labels: TextMap<String>,
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub annotations: TextMap<String>,
    /// `managedFields` says who wrote which field, and none of them by server-side apply, to whom alone it matters.
    #[serde(skip_serializing)]
    pub has_needless_managers: bool,
}

impl Flat for Metadata {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "name" => Field::Text(&mut self.name),
            "uid" => Field::Text(&mut self.uid),
            "resourceVersion" => Field::Text(&mut self.resource_version),
            "labels" => Field::Map(&mut self.labels),
            "annotations" => Field::Map(&mut self.annotations),
            "managedFields" => Field::HasNeedlessManagers(&mut self.has_needless_managers),
            _ => return None,
        })
    }
}

/// `v1.NodeSpec`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    #[serde(rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<String>,
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Read as far as we know their effects: one of tomorrow's must not make a Node unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

impl Flat for NodeSpec {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "podCIDRs" => Field::Texts(&mut self.pod_cidrs),
            "providerID" => Field::Text(&mut self.provider_id),
            "unschedulable" => Field::Boolean(&mut self.unschedulable),
            "taints" => Field::Taints(&mut self.taints),
            _ => return None,
        })
    }
}

/// Resource name to quantity text; compared as quantities, never as text (CHG-2).
pub type ResourceList = TextMap<String>;

/// `v1.NodeStatus`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub capacity: ResourceList,
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub allocatable: ResourceList,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    pub daemon_endpoints: DaemonEndpoints,
    pub node_info: NodeInfo,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtime_handlers: Vec<RuntimeHandler>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<RuntimeFeatures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ContainerImage>,
}

impl Flat for NodeStatus {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "capacity" => Field::Map(&mut self.capacity),
            "allocatable" => Field::Map(&mut self.allocatable),
            "conditions" => Field::List(&mut self.conditions),
            "addresses" => Field::List(&mut self.addresses),
            "daemonEndpoints" => Field::Flat(&mut self.daemon_endpoints),
            "nodeInfo" => Field::Flat(&mut self.node_info),
            "runtimeHandlers" => Field::List(&mut self.runtime_handlers),
            "features" => Field::Flat(self.features.get_or_insert_default()),
            "images" => Field::List(&mut self.images),
            _ => return None,
        })
    }
}

/// `v1.NodeCondition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_heartbeat_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Flat for Condition {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "type" => Field::Text(&mut self.kind),
            "status" => Field::Text(&mut self.status),
            "lastHeartbeatTime" => Field::Text(&mut self.last_heartbeat_time),
            "lastTransitionTime" => Field::Text(&mut self.last_transition_time),
            "reason" => Field::Text(&mut self.reason),
            "message" => Field::Text(&mut self.message),
            _ => return None,
        })
    }
}

impl Flat for RuntimeHandler {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "name" => Field::Text(&mut self.name),
            "features" => Field::Flat(&mut self.features),
            _ => return None,
        })
    }
}

impl Entry for RuntimeHandler {
    fn bytes(&self) -> usize {
        self.name.len()
    }
}

impl Flat for HandlerFeatures {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "recursiveReadOnlyMounts" => Field::Boolean(&mut self.recursive_read_only_mounts),
            "userNamespaces" => Field::Boolean(&mut self.user_namespaces),
            _ => return None,
        })
    }
}

impl Flat for RuntimeFeatures {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        (name == "supplementalGroupsPolicy").then_some(Field::Boolean(&mut self.supplemental_groups_policy))
    }
}

impl Flat for ContainerImage {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "names" => Field::Texts(&mut self.names),
            "sizeBytes" => Field::Number(&mut self.size_bytes),
            _ => return None,
        })
    }
}

impl Entry for ContainerImage {
    fn bytes(&self) -> usize {
        self.names_bytes()
    }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Address {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

impl Flat for Address {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "type" => Field::Text(&mut self.kind),
            "address" => Field::Text(&mut self.address),
            _ => return None,
        })
    }
}

impl Entry for Address {
    fn bytes(&self) -> usize {
        self.kind.len() + self.address.len()
    }
}

/// `v1.NodeDaemonEndpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonEndpoints {
    pub kubelet_endpoint: Endpoint,
}

impl Flat for DaemonEndpoints {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        (name == "kubeletEndpoint").then_some(Field::Flat(&mut self.kubelet_endpoint))
    }
}

/// `v1.DaemonEndpoint`; the capital P is the API's (INI-7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    #[serde(rename = "Port")]
    pub port: u16,
}

impl Flat for Endpoint {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        (name == "Port").then_some(Field::Port(&mut self.port))
    }
}

/// `v1.NodeSystemInfo`; empty strings are sent, never omitted (INI-7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    #[serde(skip_serializing_if = "Swap::is_empty")]
    pub swap: Swap,
}

impl Flat for NodeInfo {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "machineID" => Field::Text(&mut self.machine_id),
            "systemUUID" => Field::Text(&mut self.system_uuid),
            "bootID" => Field::Text(&mut self.boot_id),
            "kernelVersion" => Field::Text(&mut self.kernel_version),
            "osImage" => Field::Text(&mut self.os_image),
            "containerRuntimeVersion" => Field::Text(&mut self.container_runtime_version),
            "kubeletVersion" => Field::Text(&mut self.kubelet_version),
            "kubeProxyVersion" => Field::Text(&mut self.kube_proxy_version),
            "operatingSystem" => Field::Text(&mut self.operating_system),
            "architecture" => Field::Text(&mut self.architecture),
            "swap" => Field::Flat(&mut self.swap),
            _ => return None,
        })
    }
}

/// `v1.NodeSwapStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Swap {
    #[serde(rename = "capacity", skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
}

impl Swap {
    fn is_empty(&self) -> bool {
        self.capacity_bytes.is_none()
    }
}

impl Flat for Swap {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "capacity" => Field::Number(&mut self.capacity_bytes),
            _ => return None,
        })
    }
}

/// `coordination.k8s.io/v1.Lease`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    pub metadata: Metadata,
    pub spec: LeaseSpec,
}

impl Flat for Lease {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "metadata" => Field::Flat(&mut self.metadata),
            "spec" => Field::Flat(&mut self.spec),
            _ => return None,
        })
    }
}

/// `coordination.k8s.io/v1.LeaseSpec`, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseSpec {
    pub lease_duration_seconds: Option<i64>,
    pub renew_time: String,
    /// How often it went from one holder to another.
    pub lease_transitions: Option<u64>,
}

impl Flat for LeaseSpec {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "leaseDurationSeconds" => Field::Number(&mut self.lease_duration_seconds),
            "renewTime" => Field::Text(&mut self.renew_time),
            "leaseTransitions" => Field::Count(&mut self.lease_transitions),
            _ => return None,
        })
    }
}
