//! Turns each operation into what the specification says of its path, right, body and answer.

use super::*;

fn every_operation() -> [Operation; 26] {
    let body = || "{}".to_owned();
    let status = |answer| Operation::PatchStatus { body: body(), answer };
    [
        Operation::ReadVersion,
        Operation::CreateNode { body: body() },
        Operation::ReadNode { heartbeat: false },
        Operation::ReadNode { heartbeat: true },
        status(PatchAnswer::Node),
        status(PatchAnswer::Metadata),
        Operation::ReadLease,
        Operation::CreateLease { body: body() },
        Operation::RenewLease { body: body(), answer: PatchAnswer::Nothing },
        Operation::CreateEvent { body: body() },
        Operation::PatchEvent { name: "n1.1".to_owned(), body: body() },
        Operation::ReviewAccess { body: body() },
        Operation::ListPods,
        Operation::ReadMetadata,
        Operation::StripNode,
        Operation::CreateCertificateRequest { body: body() },
        Operation::ReadCertificateRequest { name: "node-csr-1".to_owned(), metadata_only: false },
        Operation::ReadCertificateRequest { name: "node-csr-1".to_owned(), metadata_only: true },
        Operation::ReadClusterInfo,
        Operation::ReadEndpoints,
        of_supervisor("config", b""),
        of_supervisor("client-kubelet.crt", b"DER"),
        Operation::DeleteLease,
        Operation::ProveCertificate,
        Operation::WatchNode,
        Operation::CreateCsiNode { body: body() },
    ]
}

fn of_supervisor(what: &str, body: &[u8]) -> Operation {
    let headers = Zeroizing::new("k3s-Node-Password: secret\r\n".to_owned());
    let path = format!("/v1-k3s/{what}");
    Operation::AskSupervisor(SupervisorRequest { path, headers, body: body.to_vec() })
}

#[test]
fn nothing_secret_of_a_request_to_a_supervisor_is_printed() {
    assert_eq!(format!("{:?}", of_supervisor("config", b"")), "AskSupervisor(SupervisorRequest(/v1-k3s/config))");
}

/// A PATCH or POST over HTTP/1.1 brings the whole object back unless something else is accepted (CSR-5).
#[test]
fn a_certificate_is_asked_for_read_and_proved_with_the_shortest_answers() {
    let read = |metadata_only| Operation::ReadCertificateRequest { name: "node-csr-1".to_owned(), metadata_only };
    let accepted = |operation: Operation| operation.wanted().content_type();
    assert_eq!(accepted(Operation::CreateCertificateRequest { body: String::new() }), METADATA_ONLY);
    assert_eq!([true, false].map(|metadata_only| accepted(read(metadata_only))), [METADATA_ONLY, PROTOBUF]);
    assert_eq!(accepted(Operation::ProveCertificate), PROTOBUF, "a Lease is shorter than a Node's metadata");
}

/// Verb and path of everything that the Node authorizer lets `system:node:n1` do and that we have a use for; `/version` and
/// one's own access are everybody's; cluster-info is for those who are nobody yet; what a supervisor is asked, no API server is.
const ALLOWED: [&str; 21] = [
    "GET /version",
    "POST /api/v1/nodes",
    "GET /api/v1/nodes/n1",
    "GET /api/v1/nodes",
    "PATCH /api/v1/nodes/n1",
    "PATCH /api/v1/nodes/n1/status",
    "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
    "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
    "DELETE /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
    "POST /api/v1/namespaces/default/events",
    "PATCH /api/v1/namespaces/default/events/n1.1",
    "POST /apis/storage.k8s.io/v1/csinodes",
    "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "GET /api/v1/pods",
    "POST /apis/certificates.k8s.io/v1/certificatesigningrequests",
    "GET /apis/certificates.k8s.io/v1/certificatesigningrequests/node-csr-1",
    "GET /api/v1/namespaces/kube-public/configmaps/cluster-info",
    "GET /api/v1/namespaces/default/endpoints/kubernetes",
    "GET /v1-k3s/config",
    "POST /v1-k3s/client-kubelet.crt",
];

#[test]
fn nothing_is_asked_that_a_node_may_not_ask() {
    for operation in every_operation() {
        let path = operation.path("n1");
        let request = format!("{} {}", operation.verb(), path.split('?').next().unwrap());
        assert!(ALLOWED.contains(&request.as_str()), "{request}");
        assert!(!path.contains("resourceVersion") && !path.contains("fieldManager"));
        // Of all Nodes it may see no other.
        let is_watch = operation == Operation::WatchNode;
        assert_eq!(path.contains("watch=true"), is_watch);
        assert_eq!(path.contains("fieldSelector=metadata.name=n1&"), is_watch);
        assert_eq!(path.contains(&format!("timeoutSeconds={}&", limits::WATCH_SECONDS)), is_watch);
    }
}

#[test]
fn heartbeats_but_renewals_carry_their_time_out_and_everything_else_does_not() {
    for operation in every_operation() {
        let is_heartbeat = match &operation {
            Operation::ReadNode { heartbeat } => *heartbeat,
            Operation::PatchStatus { .. }
            | Operation::ReadMetadata
            | Operation::ReadLease
            | Operation::CreateLease { .. } => true,
            _ => false,
        };
        assert_eq!(operation.path("n1").ends_with("?timeout=10s"), is_heartbeat, "{operation:?}");
    }
}

#[test]
fn a_patch_is_a_strategic_merge_and_other_bodies_are_json() {
    for operation in every_operation() {
        let is_patch = operation.verb() == "PATCH";
        let expected = match operation {
            Operation::AskSupervisor(_) => "application/pkcs10",
            _ if is_patch => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        assert_eq!(operation.content_type(), expected);
        assert_eq!(operation.body().is_some(), !["GET", "DELETE"].contains(&operation.verb()), "{operation:?}");
    }
}

#[test]
fn only_what_is_read_is_asked_for_in_json() {
    let accepts: Vec<_> = every_operation().iter().map(|operation| operation.wanted().content_type()).collect();
    assert_eq!(accepts[1], "application/json", "the Node, as the server made it");
    assert!(accepts[5].contains("PartialObjectMetadata"), "an assertion wants the metadata only");
    assert_eq!(accepts[13], accepts[5]);
    assert_eq!(accepts[8], "application/vnd.kubernetes.protobuf", "of a renewal only the version is read");
}

#[test]
fn a_label_names_verb_and_resource_as_rbac_does() {
    for operation in every_operation() {
        let verb = match operation.verb() {
            "DELETE" => "delete",
            "GET" if operation == Operation::ListPods => "list",
            "GET" if operation == Operation::WatchNode => "watch",
            "POST" => "create",
            "PATCH" => "patch",
            _ => "get",
        };
        assert_eq!(operation.label().split(' ').next(), Some(verb));
    }
}
