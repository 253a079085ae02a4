//! Turns what the agent may want of the API server into the verb, path and headers of one request each.

/// Requests of one lane are never in flight together; lanes do not wait for each other (LSE-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Lease,
    /// Registration, and then NodeStatus.
    Status,
    Events,
}

/// One request. Bodies are JSON, made by `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// `GET /version`: what `kubeletVersion` follows, and the first `Date`.
    ReadVersion,
    CreateNode {
        body: String,
    },
    /// `heartbeat`: carries `timeout=10s` (TR-2).
    ReadNode {
        heartbeat: bool,
    },
    /// Strategic-merge PATCH of `nodes/NAME/status`.
    PatchStatus {
        body: String,
        answer: PatchAnswer,
        heartbeat: bool,
    },
    ReadLease,
    CreateLease {
        body: String,
    },
    /// Strategic-merge PATCH of the Lease; only the status code of the answer matters (D3).
    RenewLease {
        body: String,
    },
    CreateEvent {
        body: String,
    },
    PatchEvent {
        name: String,
        body: String,
    },
    /// SelfSubjectAccessReview, for `check`.
    ReviewAccess {
        body: String,
    },
}

/// How much of the Node a status PATCH wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchAnswer {
    /// The Node: the next base.
    Node,
    /// Its metadata only (uid, resourceVersion): an assertion that should change nothing.
    Metadata,
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON: &str = "application/json";
/// The smallest answer where nobody reads the body (`wire.md` 3).
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

impl Wish {
    /// HTTP method.
    pub fn verb(&self) -> &'static str {
        match self {
            Wish::ReadVersion | Wish::ReadNode { .. } | Wish::ReadLease => "GET",
            Wish::PatchStatus { .. } | Wish::RenewLease { .. } | Wish::PatchEvent { .. } => "PATCH",
            Wish::CreateNode { .. }
            | Wish::CreateLease { .. }
            | Wish::CreateEvent { .. }
            | Wish::ReviewAccess { .. } => "POST",
        }
    }

    /// Path and query. Heartbeats carry the client's own time-out, so that the server gives up when we do (TR-2).
    pub fn path(&self, node_name: &str) -> String {
        match self {
            Wish::ReadVersion => "/version".to_owned(),
            Wish::CreateNode { .. } => "/api/v1/nodes".to_owned(),
            Wish::ReadNode { heartbeat } => format!("/api/v1/nodes/{node_name}{}", timeout(*heartbeat)),
            Wish::PatchStatus { heartbeat, .. } => format!("/api/v1/nodes/{node_name}/status{}", timeout(*heartbeat)),
            Wish::ReadLease | Wish::RenewLease { .. } => format!("{LEASES}/{node_name}{}", timeout(true)),
            Wish::CreateLease { .. } => format!("{LEASES}{}", timeout(true)),
            Wish::CreateEvent { .. } => EVENTS.to_owned(),
            Wish::PatchEvent { name, .. } => format!("{EVENTS}/{name}"),
            Wish::ReviewAccess { .. } => REVIEWS.to_owned(),
        }
    }

    /// What a person calls this request: `PATCH nodes/status`, as RBAC would name verb and resource.
    pub fn label(&self) -> &'static str {
        match self {
            Wish::ReadVersion => "get /version",
            Wish::CreateNode { .. } => "create nodes",
            Wish::ReadNode { .. } => "get nodes",
            Wish::PatchStatus { .. } => "patch nodes/status",
            Wish::ReadLease => "get leases (kube-node-lease)",
            Wish::CreateLease { .. } => "create leases (kube-node-lease)",
            Wish::RenewLease { .. } => "patch leases (kube-node-lease)",
            Wish::CreateEvent { .. } => "create events (default)",
            Wish::PatchEvent { .. } => "patch events (default)",
            Wish::ReviewAccess { .. } => "create selfsubjectaccessreviews",
        }
    }

    pub(super) fn body(&self) -> Option<&str> {
        match self {
            Wish::ReadVersion | Wish::ReadNode { .. } | Wish::ReadLease => None,
            Wish::CreateNode { body }
            | Wish::PatchStatus { body, .. }
            | Wish::CreateLease { body }
            | Wish::RenewLease { body }
            | Wish::CreateEvent { body }
            | Wish::PatchEvent { body, .. }
            | Wish::ReviewAccess { body } => Some(body),
        }
    }

    pub(super) fn content_type(&self) -> &'static str {
        if self.verb() == "PATCH" { STRATEGIC_MERGE } else { JSON }
    }

    pub(super) fn accept(&self) -> &'static str {
        match self {
            Wish::PatchStatus { answer: PatchAnswer::Metadata, .. } => METADATA_ONLY,
            _ if self.reads_success_body() => JSON,
            _ => PROTOBUF,
        }
    }

    /// Whether anybody reads the body of a success; the body of a refusal is always read.
    pub(super) fn reads_success_body(&self) -> bool {
        match self {
            Wish::ReadVersion
            | Wish::CreateNode { .. }
            | Wish::ReadNode { .. }
            | Wish::PatchStatus { .. }
            | Wish::ReadLease
            | Wish::ReviewAccess { .. } => true,
            Wish::CreateLease { .. } | Wish::RenewLease { .. } | Wish::CreateEvent { .. } | Wish::PatchEvent { .. } => {
                false
            }
        }
    }
}

fn timeout(heartbeat: bool) -> &'static str {
    if heartbeat { "?timeout=10s" } else { "" }
}
