//! What a container runtime says of itself, as a Node has it. `cri` finds it out.

use serde::Serialize;

/// The runtime that the settings name, when it was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntime {
    /// `containerd://2.2.9`; `containerd://Unknown` as long as it does not say.
    pub version: String,
    /// Why no pod could run, in a kubelet's words and order (RDY-4); empty: it is ready.
    pub problems: Vec<String>,
    /// Sorted by name; the default one has none.
    pub handlers: Vec<RuntimeHandler>,
    /// `None`: it says nothing of them.
    pub features: Option<RuntimeFeatures>,
    /// The largest of its images, as many as the settings want.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ContainerImage>,
    /// The addresses of the Node's pods that it was told and took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    /// Why it was not heard, or not all that a Node has of one, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// `v1.NodeRuntimeHandler`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeHandler {
    pub name: String,
    pub features: HandlerFeatures,
}

/// `v1.NodeRuntimeHandlerFeatures`: both are always there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerFeatures {
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

/// `v1.NodeFeatures`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeFeatures {
    pub supplemental_groups_policy: bool,
}

/// `v1.ContainerImage`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerImage {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
}

impl ContainerImage {
    pub fn names_bytes(&self) -> usize {
        self.names.iter().map(String::len).sum()
    }
}
