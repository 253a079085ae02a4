//! What the agent may want of the API server, each operation one row: its verb and path, its name and what its success brings.

use zeroize::Zeroizing;

use crate::config::limits;
use crate::node::object::{Lease, Node};

/// Requests of one lane are never in flight together; lanes do not wait for each other (LSE-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Lease,
    /// Registration, and then NodeStatus.
    Status,
    Events,
    /// The node's certificate: how it is got, and its successors.
    Identity,
    /// A watch of the Node.
    Watch,
}

/// One request. Bodies are JSON, made by `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `GET /version`: what `kubeletVersion` follows, and the first `Date`.
    ReadVersion,
    CreateNode {
        body: String,
    },
    /// PATCH of the Node after which the server tracks no more who wrote which of its fields.
    StripNode,
    /// `heartbeat`: carries `timeout=10s` (TR-2).
    ReadNode {
        heartbeat: bool,
    },
    /// Which Node it is and which version of it, where the whole is too long.
    ReadMetadata,
    /// Watch of the Node's metadata (D4): it goes on until somebody ends it, and brings [`super::watch::Seen`]. Without a
    /// version to begin from, so that its first event says which one there is.
    WatchNode,
    /// Strategic-merge PATCH of `nodes/NAME/status`.
    PatchStatus {
        body: String,
        answer: PatchAnswer,
    },
    ReadLease,
    /// Whether the server knows whose the certificate is that was issued: the shortest that it answers to a Node alone (CSR-6).
    ProveCertificate,
    CreateLease {
        body: String,
    },
    /// PATCH of the Lease, a strategic merge (D3) or a JSON patch that tests who holds it (D10); of the answer its head matters
    /// (D14), and version and change of holders are read where `answer` asks for them, or where they come anyway.
    RenewLease {
        body: String,
        answer: PatchAnswer,
    },
    /// Of a board that leaves its cluster (REV-3).
    DeleteLease,
    /// Of a Node that takes pods: that no CSI driver runs there.
    CreateCsiNode {
        body: String,
    },
    CreateEvent {
        body: String,
    },
    PatchEvent {
        name: String,
        body: String,
    },
    /// A CertificateSigningRequest (CSR-4).
    CreateCertificateRequest {
        body: String,
    },
    ReadCertificateRequest {
        name: String,
        /// Only whether it is another version by now.
        metadata_only: bool,
    },
    /// The ConfigMap by which a cluster says who it is (JOIN-1).
    ReadClusterInfo,
    /// The control plane's own addresses (JOIN-7).
    ReadEndpoints,
    /// What the supervisor of k3s or rke2 is asked, which is no API server (K3S-1 to K3S-3).
    AskSupervisor(SupervisorRequest),
    /// Names of pods that are bound to the Node, the first few; for `check`.
    ListPods,
    /// SelfSubjectAccessReview, for `check`.
    ReviewAccess {
        body: String,
    },
}

/// A request to a supervisor; nothing prints what is secret in it.
#[derive(Clone, PartialEq, Eq)]
pub struct SupervisorRequest {
    pub path: String,
    /// Whole lines of the head: who asks, and what proves it.
    pub headers: Zeroizing<String>,
    /// DER of a PKCS#10, of a POST; empty for a GET.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for SupervisorRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SupervisorRequest({})", self.path)
    }
}

/// How much of its object a PATCH wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchAnswer {
    /// The Node: the next base.
    Node,
    /// Its metadata only (uid, resourceVersion): of a report without a change, and of a Lease what stands beside it.
    Metadata,
    /// Nothing, as the watch tells which version it made: of a report without a change to a Node that is watched.
    OnWatch,
    /// That it was done: an assertion, which changes nothing.
    Nothing,
}

/// What a success carried, as far as it is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    Node(Box<Node>),
    Metadata {
        uid: String,
        resource_version: String,
        /// `spec.leaseDurationSeconds`, where it is the answer to a renewal.
        lease_duration_seconds: Option<u32>,
        /// `spec.leaseTransitions`, how often a Lease changed its holder; 0 for anything else.
        transitions: u64,
    },
    Lease(Box<Lease>),
    /// `gitVersion`, such as `v1.36.3`.
    Version(String),
    /// JSON that whoever asked reads.
    Json(Vec<u8>),
    /// The same in protobuf.
    Protobuf(Vec<u8>),
    /// The same of what a supervisor handed out: PEM or JSON.
    HandedOut(Vec<u8>),
    /// A success whose body nobody reads.
    Nothing,
}

/// Which document it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Node,
    /// Of an object's metadata the beginning is enough.
    Metadata,
    Lease,
    /// The same of a Lease, where the answer has them.
    LeaseMetadata,
    Version,
    /// Of each object of a list.
    Names,
    Json,
    Protobuf,
    /// Whatever a supervisor says: it knows of no Audit-ID.
    HandedOut,
    /// Those of a watch.
    Events,
    Nothing,
}

const NODE: &str = "/api/v1/nodes/*";
const WATCH: &str = "/api/v1/nodes?fieldSelector=metadata.name=*&includeObject=None&timeoutSeconds=86400&watch=true";
const STATUS: &str = "/api/v1/nodes/*/status";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/*";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const EVENT: &str = "/api/v1/namespaces/default/events/*";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const REQUEST: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/*";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName=*&limit=10";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON: &str = "application/json";
const PKCS10: &str = "application/pkcs10";
const ANYTHING: &str = "*/*";
/// The smallest answer where nobody reads the body, or no more of it than the version.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// In protobuf, which is shorter, managedFields above all.
const METADATA_ONLY: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Of each event the row that `kubectl get node` prints: it has the version, and neither labels nor managedFields.
const EVENTS_OF_ROWS: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// Of a list what is needed to count it.
const NAMES_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// One empty entry for all there are: from then on only server-side apply is tracked (`managedfields/internal`).
const NO_MANAGED_FIELDS: &str = r#"{"metadata":{"managedFields":[{}]}}"#;

/// Verb; path, in which `*` is the name of the Node, which is also the Lease's, or of the event; the right that
/// it needs, as RBAC names verb and resource; what its success brings.
type Row = (&'static str, &'static str, &'static str, Wanted);

impl Operation {
    fn row(&self) -> Row {
        match self {
            Self::ReadVersion => ("GET", "/version", "get /version", Wanted::Version),
            Self::CreateNode { .. } => ("POST", "/api/v1/nodes", "create nodes", Wanted::Node),
            Self::StripNode => ("PATCH", NODE, "patch nodes", Wanted::Node),
            Self::ReadNode { .. } => ("GET", NODE, "get nodes", Wanted::Node),
            Self::ReadMetadata => ("GET", NODE, "get nodes", Wanted::Metadata),
            Self::WatchNode => ("GET", WATCH, "watch nodes", Wanted::Events),
            Self::PatchStatus { answer: PatchAnswer::Node, .. } => {
                ("PATCH", STATUS, "patch nodes/status", Wanted::Node)
            }
            Self::PatchStatus { .. } => ("PATCH", STATUS, "patch nodes/status", Wanted::Metadata),
            Self::ReadLease => ("GET", LEASE, "get leases", Wanted::Lease),
            Self::ProveCertificate => ("GET", LEASE, "get leases", Wanted::LeaseMetadata),
            Self::CreateLease { .. } => ("POST", LEASES, "create leases", Wanted::LeaseMetadata),
            Self::RenewLease { .. } => ("PATCH", LEASE, "patch leases", Wanted::LeaseMetadata),
            Self::DeleteLease => ("DELETE", LEASE, "delete leases", Wanted::Nothing),
            Self::CreateCsiNode { .. } => ("POST", CSI_NODES, "create csinodes", Wanted::Nothing),
            Self::CreateEvent { .. } => ("POST", EVENTS, "create events", Wanted::Nothing),
            Self::PatchEvent { .. } => ("PATCH", EVENT, "patch events", Wanted::Nothing),
            Self::CreateCertificateRequest { .. } => {
                ("POST", REQUESTS, "create certificatesigningrequests", Wanted::Metadata)
            }
            Self::ReadCertificateRequest { metadata_only: true, .. } => {
                ("GET", REQUEST, "get certificatesigningrequests", Wanted::Metadata)
            }
            Self::ReadCertificateRequest { .. } => ("GET", REQUEST, "get certificatesigningrequests", Wanted::Protobuf),
            Self::ReadClusterInfo => ("GET", CLUSTER_INFO, "get configmaps", Wanted::Json),
            Self::ReadEndpoints => ("GET", ENDPOINTS, "get endpoints", Wanted::Protobuf),
            Self::AskSupervisor(request) if request.body.is_empty() => ("GET", "*", "get settings", Wanted::HandedOut),
            Self::AskSupervisor(_) => ("POST", "*", "create certificates", Wanted::HandedOut),
            Self::ListPods => ("GET", PODS, "list pods", Wanted::Names),
            Self::ReviewAccess { .. } => ("POST", REVIEWS, "create selfsubjectaccessreviews", Wanted::Json),
        }
    }

    /// HTTP method.
    pub fn verb(&self) -> &'static str {
        self.row().0
    }

    /// Path and query. Heartbeats carry the client's own time-out, so that the server gives up when we do (TR-2). A
    /// renewal does without: the server gives up as well when we close the connection, which we do at the same time, and
    /// 12 bytes are one in ninety of what a renewal costs.
    pub fn path(&self, node_name: &str) -> String {
        let has_timeout = match self {
            Self::ReadNode { heartbeat } => *heartbeat,
            Self::PatchStatus { .. } | Self::ReadMetadata | Self::ReadLease | Self::CreateLease { .. } => true,
            _ => false,
        };
        let name = match self {
            Self::PatchEvent { name, .. } | Self::ReadCertificateRequest { name, .. } => name,
            Self::AskSupervisor(request) => &request.path,
            _ => node_name,
        };
        let timeout = if has_timeout { "?timeout=10s" } else { "" };
        let pattern = self.row().1;
        match pattern.split_once('*') {
            Some((before, after)) => [before, name, after, timeout].concat(),
            None => [pattern, timeout].concat(),
        }
    }

    /// The right that it needs, as RBAC names verb and resource: `patch nodes/status`.
    pub fn label(&self) -> &'static str {
        self.row().2
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.row().3
    }

    /// Bytes of its success's content that are worth waiting for; `None`: all. Of a report over a known version they hold the new one.
    pub(super) fn content_bytes(&self, node_name: &str) -> Option<u32> {
        let beginning_bytes = limits::METADATA_BEGINNING_BYTES.saturating_add(u32::try_from(node_name.len()).ok()?);
        match self {
            Self::PatchStatus { answer: PatchAnswer::Metadata, .. } => Some(beginning_bytes),
            Self::RenewLease { answer: PatchAnswer::Nothing, .. }
            | Self::PatchStatus { answer: PatchAnswer::Nothing | PatchAnswer::OnWatch, .. } => Some(0),
            _ => (self.wanted() == Wanted::Nothing).then_some(0),
        }
    }

    /// Whether its path comes again.
    pub(super) fn has_common_path(&self) -> bool {
        !matches!(self, Self::PatchEvent { .. } | Self::ReadCertificateRequest { .. } | Self::AskSupervisor(_))
    }

    pub(super) fn body(&self) -> Option<&[u8]> {
        match self {
            Self::ReadVersion
            | Self::ReadNode { .. }
            | Self::ReadMetadata
            | Self::WatchNode
            | Self::ReadLease
            | Self::ProveCertificate
            | Self::DeleteLease
            | Self::ReadCertificateRequest { .. }
            | Self::ReadClusterInfo
            | Self::ReadEndpoints
            | Self::ListPods => None,
            Self::AskSupervisor(request) => Some(request.body.as_slice()).filter(|body| !body.is_empty()),
            Self::StripNode => Some(NO_MANAGED_FIELDS.as_bytes()),
            Self::CreateNode { body }
            | Self::PatchStatus { body, .. }
            | Self::CreateLease { body }
            | Self::RenewLease { body, .. }
            | Self::CreateCsiNode { body }
            | Self::CreateEvent { body }
            | Self::PatchEvent { body, .. }
            | Self::CreateCertificateRequest { body }
            | Self::ReviewAccess { body } => Some(body.as_bytes()),
        }
    }

    /// Lines of the head that only this one has.
    pub(super) fn headers(&self) -> &str {
        if let Self::AskSupervisor(request) = self { &request.headers } else { "" }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self {
            Self::AskSupervisor(_) => PKCS10,
            // A JSON patch is a list, what is merged is an object.
            Self::RenewLease { body, .. } if body.starts_with('[') => JSON_PATCH,
            _ if self.verb() == "PATCH" => STRATEGIC_MERGE,
            _ => JSON,
        }
    }

    /// Whether it says which program asks. A renewal does not, as nine in ten requests are renewals and 29 bytes are one in
    /// forty of what each costs: the others of its connection do, and bear the same Audit-ID.
    pub(super) fn names_the_program(&self) -> bool {
        !matches!(self, Self::RenewLease { .. })
    }
}

impl Wanted {
    /// What the request accepts, and its success must be.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Wanted::Node | Wanted::Lease | Wanted::Version | Wanted::Json => JSON,
            Wanted::Names => NAMES_ONLY,
            Wanted::HandedOut => ANYTHING,
            Wanted::Metadata => METADATA_ONLY,
            Wanted::Events => EVENTS_OF_ROWS,
            Wanted::LeaseMetadata | Wanted::Protobuf | Wanted::Nothing => PROTOBUF,
        }
    }

    /// How much of the content of its success may come before some of it was read, where any of it is.
    pub(super) fn window_bytes(self) -> u32 {
        if self == Wanted::Events { limits::WATCH_WINDOW_BYTES } else { limits::STREAM_WINDOW_BYTES }
    }

    /// The longest body that a reply may have.
    pub(super) fn limit_bytes(self) -> usize {
        if self == Wanted::Node { limits::NODE_BODY_BYTES } else { limits::REPLY_BODY_BYTES }
    }
}

#[cfg(test)]
mod tests;
