//! Turns what the agent may want of the API server into the verb, path and headers of one request each.

use crate::config::limits;

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
    /// Strategic-merge PATCH of the Lease (D3); of the answer its head matters (D14), version and change of holders are read.
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
    /// Names of pods that are bound to the Node, the first few; for `check`.
    ListPods,
    /// SelfSubjectAccessReview, for `check`.
    ReviewAccess {
        body: String,
    },
}

/// `Audit-ID` of the requests of one connection. The server takes it for its own and repeats it in each answer, whatever it
/// answers (`k8s.io/apiserver`, `audit_init.go`, its outermost filter): by that an answer is known to be the server's (D14).
/// In an audit log it tells connections apart, and two requests of one by their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditId([u8; 12]);

impl AuditId {
    /// From the lowest 72 bits of a random number.
    pub fn new(random: u128) -> AuditId {
        const DIGITS: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let digit = |place: usize| DIGITS.get((random >> (6 * place)) as usize % DIGITS.len()).copied();
        AuditId(std::array::from_fn(|place| digit(place).unwrap_or_default()))
    }

    /// What the header says.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
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
/// The smallest answer where nobody reads the body, or no more of it than the version.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// In protobuf, which is shorter, managedFields above all.
const METADATA_ONLY: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Of a list what is needed to count it.
const NAMES_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Pods that are named; of more it is enough to know that there are.
pub const PODS_LISTED: usize = 10;
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
/// One empty entry for all there are: from then on only server-side apply is tracked (`managedfields/internal`).
const NO_MANAGED_FIELDS: &str = r#"{"metadata":{"managedFields":[{}]}}"#;

impl Operation {
    /// HTTP method.
    pub fn verb(&self) -> &'static str {
        match self {
            Operation::ReadVersion
            | Operation::ReadNode { .. }
            | Operation::ReadMetadata
            | Operation::ReadLease
            | Operation::ListPods => "GET",
            Operation::StripNode
            | Operation::PatchStatus { .. }
            | Operation::RenewLease { .. }
            | Operation::PatchEvent { .. } => "PATCH",
            Operation::CreateNode { .. }
            | Operation::CreateLease { .. }
            | Operation::CreateEvent { .. }
            | Operation::ReviewAccess { .. } => "POST",
        }
    }

    /// Path and query. Heartbeats carry the client's own time-out, so that the server gives up when we do (TR-2). A
    /// renewal does without: the server gives up as well when we close the connection, which we do at the same time, and
    /// 12 bytes are one in ninety of what a renewal costs.
    pub fn path(&self, node_name: &str) -> String {
        match self {
            Operation::ReadVersion => "/version".to_owned(),
            Operation::CreateNode { .. } => "/api/v1/nodes".to_owned(),
            Operation::StripNode => format!("/api/v1/nodes/{node_name}"),
            Operation::ReadNode { heartbeat } => format!("/api/v1/nodes/{node_name}{}", timeout(*heartbeat)),
            Operation::ReadMetadata => format!("/api/v1/nodes/{node_name}{}", timeout(true)),
            Operation::PatchStatus { heartbeat, .. } => {
                format!("/api/v1/nodes/{node_name}/status{}", timeout(*heartbeat))
            }
            Operation::ReadLease => format!("{LEASES}/{node_name}{}", timeout(true)),
            Operation::RenewLease { .. } => format!("{LEASES}/{node_name}"),
            Operation::CreateLease { .. } => format!("{LEASES}{}", timeout(true)),
            Operation::CreateEvent { .. } => EVENTS.to_owned(),
            Operation::PatchEvent { name, .. } => format!("{EVENTS}/{name}"),
            Operation::ListPods => format!("/api/v1/pods?fieldSelector=spec.nodeName={node_name}&limit={PODS_LISTED}"),
            Operation::ReviewAccess { .. } => REVIEWS.to_owned(),
        }
    }

    /// What a person calls this request: `PATCH nodes/status`, as RBAC would name verb and resource.
    pub fn label(&self) -> &'static str {
        match self {
            Operation::ReadVersion => "get /version",
            Operation::CreateNode { .. } => "create nodes",
            Operation::StripNode => "patch nodes",
            Operation::ReadNode { .. } | Operation::ReadMetadata => "get nodes",
            Operation::PatchStatus { .. } => "patch nodes/status",
            Operation::ReadLease => "get leases (kube-node-lease)",
            Operation::CreateLease { .. } => "create leases (kube-node-lease)",
            Operation::RenewLease { .. } => "patch leases (kube-node-lease)",
            Operation::CreateEvent { .. } => "create events (default)",
            Operation::PatchEvent { .. } => "patch events (default)",
            Operation::ListPods => "list pods",
            Operation::ReviewAccess { .. } => "create selfsubjectaccessreviews",
        }
    }

    pub(super) fn body(&self) -> Option<&str> {
        match self {
            Operation::ReadVersion
            | Operation::ReadNode { .. }
            | Operation::ReadMetadata
            | Operation::ReadLease
            | Operation::ListPods => None,
            Operation::StripNode => Some(NO_MANAGED_FIELDS),
            Operation::CreateNode { body }
            | Operation::PatchStatus { body, .. }
            | Operation::CreateLease { body }
            | Operation::RenewLease { body, .. }
            | Operation::CreateEvent { body }
            | Operation::PatchEvent { body, .. }
            | Operation::ReviewAccess { body } => Some(body),
        }
    }

    pub(super) fn content_type(&self) -> &'static str {
        if self.verb() == "PATCH" { STRATEGIC_MERGE } else { JSON }
    }

    pub(super) fn accept(&self) -> &'static str {
        match self {
            _ if self.wants_metadata() => METADATA_ONLY,
            Operation::RenewLease { .. } | Operation::CreateLease { .. } => PROTOBUF,
            Operation::ListPods => NAMES_ONLY,
            _ if self.reads_success_body() => JSON,
            _ => PROTOBUF,
        }
    }

    /// Whether the answer is an object's metadata, of which the beginning is enough.
    pub(super) fn wants_metadata(&self) -> bool {
        matches!(self, Operation::ReadMetadata | Operation::PatchStatus { answer: PatchAnswer::Metadata, .. })
    }

    /// Whether it says which program asks. A renewal does not, as nine in ten requests are renewals and 29 bytes are one in
    /// forty of what each costs: the others of its connection do, and bear the same Audit-ID.
    pub(super) fn names_the_program(&self) -> bool {
        !matches!(self, Operation::RenewLease { .. })
    }

    /// The longest body that its reply may have.
    pub(super) fn body_limit_bytes(&self) -> usize {
        match self {
            Operation::CreateNode { .. }
            | Operation::StripNode
            | Operation::ReadNode { .. }
            | Operation::PatchStatus { .. } => limits::NODE_BODY_BYTES,
            _ => limits::REPLY_BODY_BYTES,
        }
    }

    /// Whether anybody reads the body of a success; the body of a refusal is always read.
    pub(super) fn reads_success_body(&self) -> bool {
        match self {
            Operation::ReadVersion
            | Operation::CreateNode { .. }
            | Operation::StripNode
            | Operation::ReadNode { .. }
            | Operation::ReadMetadata
            | Operation::PatchStatus { .. }
            | Operation::ReadLease
            | Operation::ListPods
            | Operation::CreateLease { .. }
            | Operation::RenewLease { .. }
            | Operation::ReviewAccess { .. } => true,
            Operation::CreateEvent { .. } | Operation::PatchEvent { .. } => false,
        }
    }
}

fn timeout(heartbeat: bool) -> &'static str {
    if heartbeat { "?timeout=10s" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_wish() -> [Operation; 16] {
        let body = || "{}".to_owned();
        let status = |answer, heartbeat| Operation::PatchStatus { body: body(), answer, heartbeat };
        [
            Operation::ReadVersion,
            Operation::CreateNode { body: body() },
            Operation::ReadNode { heartbeat: false },
            Operation::ReadNode { heartbeat: true },
            status(PatchAnswer::Node, false),
            status(PatchAnswer::Node, true),
            status(PatchAnswer::Metadata, true),
            Operation::ReadLease,
            Operation::CreateLease { body: body() },
            Operation::RenewLease { body: body() },
            Operation::CreateEvent { body: body() },
            Operation::PatchEvent { name: "n1.1".to_owned(), body: body() },
            Operation::ReviewAccess { body: body() },
            Operation::ListPods,
            Operation::ReadMetadata,
            Operation::StripNode,
        ]
    }

    /// Verb and path of everything that the Node authorizer lets `system:node:n1` do and that we have a use for;
    /// reading `/version` and reviewing one's own access is everybody's.
    const ALLOWED: [&str; 12] = [
        "GET /version",
        "POST /api/v1/nodes",
        "GET /api/v1/nodes/n1",
        "PATCH /api/v1/nodes/n1",
        "PATCH /api/v1/nodes/n1/status",
        "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
        "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
        "POST /api/v1/namespaces/default/events",
        "PATCH /api/v1/namespaces/default/events/n1.1",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "GET /api/v1/pods",
    ];

    #[test]
    fn nothing_is_asked_that_a_node_may_not_ask() {
        for operation in every_wish() {
            let path = operation.path("n1");
            let request = format!("{} {}", operation.verb(), path.split('?').next().unwrap());
            assert!(ALLOWED.contains(&request.as_str()), "{request}");
            assert!(!path.contains("watch") && !path.contains("resourceVersion") && !path.contains("fieldManager"));
        }
    }

    #[test]
    fn heartbeats_but_renewals_carry_their_time_out_and_everything_else_does_not() {
        for operation in every_wish() {
            let is_heartbeat = match &operation {
                Operation::ReadNode { heartbeat } | Operation::PatchStatus { heartbeat, .. } => *heartbeat,
                Operation::ReadMetadata | Operation::ReadLease | Operation::CreateLease { .. } => true,
                _ => false,
            };
            assert_eq!(operation.path("n1").ends_with("?timeout=10s"), is_heartbeat, "{operation:?}");
        }
    }

    #[test]
    fn an_audit_id_is_twelve_characters_that_every_log_takes_and_differs_with_each_of_its_bits() {
        let text = |random| String::from_utf8(AuditId::new(random).as_bytes().to_vec()).unwrap();
        let ids = [text(0), text(u128::MAX), text(1 | 26 << 6 | 52 << 12)];
        assert_eq!(ids, ["AAAAAAAAAAAA", "____________", "Ba0AAAAAAAAA"]);
        let ids: std::collections::BTreeSet<String> = (0..72).map(|bit| text(1 << bit)).collect();
        assert_eq!(ids.len(), 72);
    }

    #[test]
    fn a_patch_is_a_strategic_merge_and_other_bodies_are_json() {
        for operation in every_wish() {
            let is_patch = operation.verb() == "PATCH";
            let expected = if is_patch { "application/strategic-merge-patch+json" } else { "application/json" };
            assert_eq!(operation.content_type(), expected);
            assert_eq!(operation.body().is_some(), operation.verb() != "GET", "{operation:?}");
        }
    }

    #[test]
    fn only_what_is_read_is_asked_for_in_json() {
        let accepts: Vec<_> = every_wish().iter().map(Operation::accept).collect();
        assert_eq!(accepts[1], "application/json", "the Node, as the server made it");
        assert!(accepts[6].contains("PartialObjectMetadata"), "an assertion wants the metadata only");
        assert_eq!(accepts[14], accepts[6]);
        assert_eq!(
            accepts[9], "application/vnd.kubernetes.protobuf",
            "of the answer to a renewal only the version is read"
        );
    }

    #[test]
    fn a_label_names_verb_and_resource_as_rbac_does() {
        for operation in every_wish() {
            let verb = match operation.verb() {
                "GET" if operation == Operation::ListPods => "list",
                "POST" => "create",
                "PATCH" => "patch",
                _ => "get",
            };
            assert_eq!(operation.label().split(' ').next(), Some(verb));
        }
    }
}
