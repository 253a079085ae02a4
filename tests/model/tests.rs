//! Each rule of the model, request by request.

use serde_json::{Value, json};

use super::controller::{MONITOR_PERIOD_US, condition};
use super::http::Response;
use super::*;

const NOW: i64 = 1_767_225_600_000_000;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn caller() -> Caller {
    Caller::Node("n1".to_owned())
}

fn send_as(
    server: &mut ModelServer,
    caller: &Caller,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Response {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let content_type = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    let mut all = vec![
        ("content-type".to_owned(), content_type.to_owned()),
        ("user-agent".to_owned(), "nodepulse/0.1".to_owned()),
    ];
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let request =
        Request { method: method.to_owned(), path: path.to_owned(), query: Default::default(), headers: all, body };
    server.answer(&request, caller, NOW)
}

fn send(server: &mut ModelServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let response = send_as(server, &caller(), method, path, &[], body);
    (response.code, serde_json::from_slice(&response.body).unwrap())
}

fn node() -> Value {
    json!({"kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux"}},
        "spec": {}, "status": {"capacity": {"cpu": "4", "memory": "16265484Ki"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}})
}

fn lease(uid: &str) -> Value {
    json!({"metadata": {"name": "n1", "namespace": "kube-node-lease",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.123456Z"}})
}

fn event() -> Value {
    json!({"metadata": {"name": "n1.18867251edfa0000", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1", "apiVersion": "v1"}, "reason": "Starting", "message": "Starting kubelet.",
        "source": {"component": "kubelet", "host": "n1"}, "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1, "type": "Normal", "eventTime": null,
        "reportingComponent": "kubelet", "reportingInstance": "n1"})
}

fn registered() -> (ModelServer, String) {
    let mut server = ModelServer::default();
    let (code, stored) = send(&mut server, "POST", "/api/v1/nodes", &node());
    assert_eq!(code, 201);
    let uid = stored["metadata"]["uid"].as_str().unwrap().to_owned();
    (server, uid)
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[test]
fn a_node_is_born_with_uid_version_defaults_and_the_not_ready_taint() {
    let (mut server, uid) = registered();
    assert_eq!(uid.len(), 36);
    let (_, stored) = send(&mut server, "GET", "/api/v1/nodes/n1", &Value::Null);
    assert_eq!(stored["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
    assert_eq!(stored["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(stored["status"]["nodeInfo"]["kubeProxyVersion"], "");
    assert_eq!(stored["status"]["allocatable"], stored["status"]["capacity"]);
    assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "nodepulse");
    let (code, again) = send(&mut server, "POST", "/api/v1/nodes", &node());
    assert_eq!(
        (code, &again["reason"], &again["message"]),
        (409, &json!("AlreadyExists"), &json!("nodes \"n1\" already exists"))
    );
}

#[test]
fn a_missing_object_is_404_and_its_status_too() {
    let mut server = ModelServer::default();
    for path in ["/api/v1/nodes/n1".to_owned(), format!("{LEASES}/n1")] {
        let (code, status) = send(&mut server, "GET", &path, &Value::Null);
        assert_eq!((code, &status["kind"], &status["reason"]), (404, &json!("Status"), &json!("NotFound")));
    }
    for path in ["/api/v1/nodes/n1/status".to_owned(), format!("{LEASES}/n1"), format!("{EVENTS}/n1.1")] {
        assert_eq!(send(&mut server, "PATCH", &path, &json!({})).0, 404, "{path}");
    }
    assert_eq!(send(&mut server, "GET", "/apis/apps/v1/deployments", &Value::Null).0, 404);
}

#[test]
fn a_no_op_patch_leaves_the_version_alone() {
    let (mut server, _) = registered();
    let before = version(server.node("n1").unwrap());
    let (code, _) = send(
        &mut server,
        "PATCH",
        "/api/v1/nodes/n1/status",
        &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    assert_eq!((code, version(server.node("n1").unwrap())), (200, before.clone()));
    send(
        &mut server,
        "PATCH",
        "/api/v1/nodes/n1/status",
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    assert_ne!(version(server.node("n1").unwrap()), before);
}

#[test]
fn a_status_patch_changes_metadata_but_never_spec() {
    let (mut server, _) = registered();
    let patch = json!({"metadata": {"labels": {"kubernetes.io/arch": "arm64"}, "annotations": {"a": "b"}},
        "spec": {"providerID": "x"}, "status": {"capacity": {"hugepages-2Mi": "0"}}});
    let (code, stored) = send(&mut server, "PATCH", "/api/v1/nodes/n1/status", &patch);
    assert_eq!(code, 200);
    assert_eq!(stored["metadata"]["labels"]["kubernetes.io/arch"], "arm64");
    assert!(stored["spec"].get("providerID").is_none());
    assert_eq!(stored["status"]["capacity"], json!({"cpu": "4", "memory": "16265484Ki", "hugepages-2Mi": "0"}));
    let patch = json!({"status": {"capacity": {"cpu": "8"}}, "spec": {"providerID": "x"}});
    let (_, stored) = send(&mut server, "PATCH", "/api/v1/nodes/n1", &patch);
    assert_eq!((&stored["status"]["capacity"]["cpu"], &stored["spec"]["providerID"]), (&json!("4"), &json!("x")));
    let (code, status) = send(&mut server, "PATCH", "/api/v1/nodes/n1", &json!({"spec": {"providerID": "y"}}));
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

#[test]
fn a_forbidden_label_fails_the_whole_request() {
    let (mut server, _) = registered();
    let patch = json!({"metadata": {"labels": {"node-role.kubernetes.io/edge": ""}}, "status": {"phase": "x"}});
    let (code, status) = send(&mut server, "PATCH", "/api/v1/nodes/n1/status", &patch);
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert!(server.node("n1").unwrap()["status"].get("phase").is_none());
    let (code, _) = send(&mut server, "PATCH", "/api/v1/nodes/n1/status", &json!({"spec": {"taints": []}}));
    assert_eq!(code, 403);
    let mut other = node();
    other["metadata"]["name"] = json!("n2");
    assert_eq!(send(&mut server, "POST", "/api/v1/nodes", &other).0, 403);
    assert_eq!(send(&mut server, "GET", "/api/v1/nodes/n2", &Value::Null).0, 403);
}

#[test]
fn addresses_are_merged_as_the_real_server_merges_them() {
    let (mut server, _) = registered();
    let path = "/api/v1/nodes/n1/status";
    let dual = |directive: bool| {
        let mut list = vec![
            json!({"type": "InternalIP", "address": "10.0.0.1"}),
            json!({"type": "InternalIP", "address": "fd00::1"}),
        ];
        list.extend(directive.then(|| json!({"$patch": "replace"})));
        json!({"status": {"addresses": list}})
    };
    send(
        &mut server,
        "PATCH",
        path,
        &json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
    );
    let (_, stored) = send(&mut server, "PATCH", path, &dual(false));
    assert_eq!(stored["status"]["addresses"], json!([{"type": "InternalIP", "address": "fd00::1"}]));
    let (_, stored) = send(&mut server, "PATCH", path, &dual(true));
    assert_eq!(stored["status"]["addresses"].as_array().unwrap().len(), 2);
    let twice = json!({"status": {"addresses": [{"type": "a", "address": "b"}, {"type": "a", "address": "b"}, {"$patch": "replace"}]}});
    assert_eq!(send(&mut server, "PATCH", path, &twice).0, 422);
}

#[test]
fn a_lease_is_made_by_post_or_put_and_renewed_by_patch() {
    let (mut server, uid) = registered();
    let renew = json!({"metadata": {"managedFields": [{}]}, "spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}});
    assert_eq!(send(&mut server, "PATCH", &format!("{LEASES}/n1"), &renew).0, 404);
    assert_eq!(send(&mut server, "PUT", &format!("{LEASES}/n1"), &lease(&uid)).0, 201);
    assert_eq!(send(&mut server, "POST", LEASES, &lease(&uid)).1["reason"], "AlreadyExists");
    assert!(server.lease("n1").unwrap()["metadata"].get("managedFields").is_some());
    let (code, stored) = send(&mut server, "PATCH", &format!("{LEASES}/n1"), &renew);
    assert_eq!((code, &stored["spec"]["renewTime"]), (200, &json!("2026-01-01T00:00:10.000000Z")));
    assert!(stored["metadata"].get("managedFields").is_none(), "stripped");
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], json!(uid));
    let later = json!({"spec": {"renewTime": "2026-01-01T00:00:20.000000Z"}});
    let (_, stored) = send(&mut server, "PATCH", &format!("{LEASES}/n1"), &later);
    assert!(stored["metadata"].get("managedFields").is_none(), "stays stripped");
}

#[test]
fn a_lease_put_needs_the_version_and_a_stale_one_conflicts() {
    let (mut server, uid) = registered();
    let path = format!("{LEASES}/n1");
    let (_, mut stored) = send(&mut server, "POST", LEASES, &lease(&uid));
    assert_eq!(send(&mut server, "PUT", &path, &lease(&uid)).0, 422);
    stored["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");
    assert_eq!(send(&mut server, "PUT", &path, &stored).0, 200);
    let (code, status) = send(&mut server, "PUT", &path, &stored);
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    server.delete_lease("n1");
    assert_eq!(send(&mut server, "PUT", &path, &stored).0, 409);
}

#[test]
fn a_renew_time_without_six_digits_is_422_on_patch_and_400_on_post() {
    let (mut server, uid) = registered();
    send(&mut server, "POST", LEASES, &lease(&uid));
    for stamp in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.1234567Z"] {
        assert_eq!(send(&mut server, "PATCH", &format!("{LEASES}/n1"), &json!({"spec": {"renewTime": stamp}})).0, 422);
        let mut posted = lease(&uid);
        posted["spec"]["renewTime"] = json!(stamp);
        assert_eq!(send(&mut server, "POST", LEASES, &posted).0, 400);
    }
    assert_eq!(
        send(&mut server, "PATCH", &format!("{LEASES}/n1"), &json!({"spec": {"leaseDurationSeconds": 0}})).0,
        422
    );
}

#[test]
fn an_event_is_posted_once_and_patched_after() {
    let mut server = ModelServer::default();
    let patch = json!({"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "Starting kubelet."});
    let path = format!("{EVENTS}/n1.18867251edfa0000");
    assert_eq!(send(&mut server, "PATCH", &path, &patch).0, 404);
    assert_eq!(send(&mut server, "POST", EVENTS, &event()).0, 201);
    assert_eq!(send(&mut server, "POST", EVENTS, &event()).1["reason"], "AlreadyExists");
    let (code, stored) = send(&mut server, "PATCH", &path, &patch);
    assert_eq!((code, &stored["count"]), (200, &json!(2)));
    assert_eq!(send(&mut server, "GET", &path, &Value::Null).0, 403, "a node cannot read its own events back");
    let mut misplaced = event();
    misplaced["involvedObject"]["namespace"] = json!("other");
    assert_eq!(send(&mut server, "POST", EVENTS, &misplaced).0, 422);
}

#[test]
fn unknown_fields_are_warned_of_and_not_kept() {
    let mut server = ModelServer::default();
    let mut wrong = node();
    wrong["status"]["nodeInfo"] = json!({"machineId": "x"});
    let response = send_as(&mut server, &caller(), "POST", "/api/v1/nodes", &[], &wrong);
    assert_eq!(response.code, 201);
    assert!(
        response.headers.iter().any(|(name, value)| *name == "Warning" && value.contains("status.nodeInfo.machineId"))
    );
    assert_eq!(server.warnings.len(), 1);
}

#[test]
fn the_accept_header_decides_the_form_of_the_answer() {
    let (mut server, uid) = registered();
    send(&mut server, "POST", LEASES, &lease(&uid));
    let partial = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let response = send_as(&mut server, &caller(), "PATCH", "/api/v1/nodes/n1/status", &partial, &json!({}));
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((&body["kind"], &body["metadata"]["uid"]), (&json!("PartialObjectMetadata"), &json!(uid)));
    assert!(body.get("status").is_none());
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}});
    let response = send_as(&mut server, &caller(), "PATCH", &format!("{LEASES}/n1"), &protobuf, &renew);
    assert!(
        response.body.starts_with(b"k8s\0")
            && response.headers.contains(&("Content-Type", "application/vnd.kubernetes.protobuf".to_owned()))
    );
    let nothing_done = [("accept", "application/json;as=PartialObjectMetadata")];
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:20.000000Z"}});
    assert_eq!(send_as(&mut server, &caller(), "PATCH", &format!("{LEASES}/n1"), &nothing_done, &renew).code, 406);
    assert_eq!(server.lease("n1").unwrap()["spec"]["renewTime"], "2026-01-01T00:00:10.000000Z");
}

#[test]
fn who_is_nobody_gets_401_and_may_still_read_the_version() {
    let mut server = ModelServer::default();
    assert_eq!(send_as(&mut server, &Caller::Nobody, "GET", "/api/v1/nodes/n1", &[], &Value::Null).code, 401);
    assert_eq!(send_as(&mut server, &Caller::Nobody, "GET", "/version", &[], &Value::Null).code, 200);
    assert_eq!(send(&mut server, "GET", "/version", &Value::Null).1["gitVersion"], "v1.36.2");
}

#[test]
fn an_access_review_asks_the_authorizer() {
    let mut server = ModelServer::default();
    let mut allowed = |attributes: Value| {
        let body = json!({"spec": {"resourceAttributes": attributes}});
        send(&mut server, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &body).1["status"]["allowed"]
            == true
    };
    assert!(allowed(json!({"verb": "patch", "resource": "nodes", "subresource": "status", "name": "n1"})));
    assert!(allowed(
        json!({"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "namespace": "kube-node-lease", "name": "n1"})
    ));
    assert!(!allowed(json!({"verb": "list", "resource": "nodes"})));
    assert!(!allowed(json!({"verb": "create", "resource": "pods"})));
}

#[test]
fn silence_of_fifty_seconds_turns_four_conditions_unknown_and_taints() {
    let (mut server, _) = registered();
    let mut now = NOW;
    while condition(server.node("n1").unwrap(), "Ready").unwrap()["status"] == "True" {
        now += MONITOR_PERIOD_US;
        server.tick(now);
        assert!(now <= NOW + 65_000_000, "never declared silent");
    }
    assert!(now > NOW + 50_000_000);
    let node = server.node("n1").unwrap();
    assert_eq!(condition(node, "Ready").unwrap()["reason"], "NodeStatusUnknown");
    assert_eq!(condition(node, "PIDPressure").unwrap()["reason"], "NodeStatusNeverUpdated");
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 2);
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.244.0.0/24"]));
    let version_then = version(node);
    server.tick(now + MONITOR_PERIOD_US);
    assert_eq!(version(server.node("n1").unwrap()), version_then, "said once");
}

#[test]
fn a_renewal_counts_only_when_it_is_later_and_never_heals_unknown() {
    let (mut server, uid) = registered();
    send(&mut server, "POST", LEASES, &lease(&uid));
    server.tick(NOW);
    for second in (5..200).step_by(5) {
        let stamp = stamp::micros(NOW + second * 1_000_000);
        send(&mut server, "PATCH", &format!("{LEASES}/n1"), &json!({"spec": {"renewTime": stamp}}));
        server.tick(NOW + second * 1_000_000);
    }
    assert_eq!(condition(server.node("n1").unwrap(), "Ready").unwrap()["status"], "True");
    for second in (200..300).step_by(5) {
        let stamp = stamp::micros(NOW + (second - 150) * 1_000_000);
        send(&mut server, "PATCH", &format!("{LEASES}/n1"), &json!({"spec": {"renewTime": stamp}}));
        server.tick(NOW + second * 1_000_000);
    }
    assert_eq!(condition(server.node("n1").unwrap(), "Ready").unwrap()["status"], "Unknown");
    let stamp = stamp::micros(NOW + 300_000_000);
    send(&mut server, "PATCH", &format!("{LEASES}/n1"), &json!({"spec": {"renewTime": stamp}}));
    server.tick(NOW + 300_000_000);
    assert_eq!(condition(server.node("n1").unwrap(), "Ready").unwrap()["status"], "Unknown");
}

#[test]
fn a_ready_node_loses_the_taint_it_was_born_with_and_a_cordoned_one_gains_another() {
    let (mut server, _) = registered();
    server.tick(NOW);
    assert!(server.node("n1").unwrap()["spec"].get("taints").is_none());
    assert!(server.set_unschedulable("n1", true));
    server.tick(NOW + MONITOR_PERIOD_US);
    assert_eq!(server.node("n1").unwrap()["spec"]["taints"][0]["key"], "node.kubernetes.io/unschedulable");
    assert!(server.set_unschedulable("n1", false));
    server.tick(NOW + 2 * MONITOR_PERIOD_US);
    assert!(server.node("n1").unwrap()["spec"].get("taints").is_none());
}

#[test]
fn a_lease_goes_with_the_node_that_owned_it() {
    let (mut server, uid) = registered();
    send(&mut server, "POST", LEASES, &lease(&uid));
    server.tick(NOW);
    assert!(server.lease("n1").is_some());
    server.replace_node("n1", NOW);
    assert_ne!(server.node("n1").unwrap()["metadata"]["uid"], json!(uid));
    server.tick(NOW);
    assert!(server.lease("n1").is_none());
    assert_eq!(server.controllers.happened.iter().filter(|line| line.contains("garbage")).count(), 1);
}

#[test]
fn events_are_forgotten_after_an_hour() {
    let mut server = ModelServer::default();
    send(&mut server, "POST", EVENTS, &event());
    server.tick(NOW + 3_599_000_000);
    assert_eq!(server.store.names(Resource::Events).len(), 1);
    server.tick(NOW + 3_700_000_000);
    assert_eq!(server.store.names(Resource::Events).len(), 0);
}

#[test]
fn a_request_that_is_no_request_is_400_and_every_answer_has_its_headers() {
    let mut server = ModelServer::default();
    let bytes = server.exchange(b"nonsense", &caller(), NOW);
    assert!(bytes.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    let bytes = server.exchange(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n", &caller(), NOW);
    let text = String::from_utf8(bytes).unwrap();
    for header in [
        "Audit-Id: ",
        "Date: Thu, 01 Jan 2026 00:00:00 GMT",
        "Content-Type: application/json",
        "X-Kubernetes-Pf-Flowschema-Uid: ",
    ] {
        assert!(text.contains(header), "{header} in {text}");
    }
}

#[test]
fn who_is_too_busy_says_so_in_plain_words_or_as_a_status_in_the_form_that_was_asked_for() {
    let mut server = ModelServer::default();
    let protobuf = "Accept: application/vnd.kubernetes.protobuf\r\n";
    let busy = Problem::injected(429, Some(1));
    for (accept, problem, content_type, body) in [
        (
            protobuf,
            busy.clone().in_plain_words(),
            "text/plain; charset=utf-8",
            &b"Too many requests, please try again later.\n"[..],
        ),
        (protobuf, busy.clone(), "application/vnd.kubernetes.protobuf", b"k8s\0"),
        ("", busy, "application/json", b"{"),
    ] {
        let request = format!("GET /version HTTP/1.1\r\nHost: x\r\nAudit-ID: abc\r\n{accept}\r\n");
        let response = server.refuse(request.as_bytes(), problem, NOW);
        let header = |name| response.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!((response.code, header("Retry-After"), header("Audit-Id")), (429, Some("1"), Some("abc")));
        assert_eq!(header("Content-Type"), Some(content_type));
        assert!(response.body.starts_with(body), "{}", String::from_utf8_lossy(&response.body));
    }
}
