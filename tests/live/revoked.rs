//! Turns a stolen board's name in a ConfigMap into a board that writes nothing any more, and its removal into one that comes back (REV-1).

use super::super::agent::Launch;
use super::super::cluster::joining::REQUESTS;
use super::super::cluster::{Cluster, NodeIdentity, Result, lease_path, node_path, wait_until};
use super::super::pkcs10::{Curve, node_subject, pem, request};
use super::super::trials::Case;
use super::fence::apply_files;
use super::{SOON, is_renewal, lines, now_us, stored_node, wait_for_requests, wait_until_ready};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;

const REFUSAL: &str = "this node's identity is revoked";
const WATCHED: Duration = Duration::from_secs(30);
/// What was under way when the first one was refused.
const REQUESTS_WATCHED: usize = 3;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_revoked_board_is_told_so_and_comes_back_when_it_may,
        a_revoked_identity_writes_nothing_and_others_go_on,
    ]
}

/// The policy, applied once: of two that create it at the same time one would fail.
fn share(cluster: &Cluster) -> Result<()> {
    static SHARED: OnceLock<Result<()>> = OnceLock::new();
    SHARED.get_or_init(|| apply_files(cluster, &["revoked.yaml"])).clone()
}

/// As the page of recipes says it.
fn revoke(cluster: &Cluster, name: &str, why: Value) -> Result<()> {
    let patch = json!({"data": {name: why}}).to_string();
    cluster.kubectl(&["-n", "kube-system", "patch", "configmap", "nodepulse-revoked", "-p", &patch]).map(drop)
}

fn request_of(node: &NodeIdentity) -> Result<Value> {
    let text = pem(&request(&node_subject(&node.name), Curve::P256, &[])?);
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "again-"},
        "spec": {
            "request": BASE64_STANDARD.encode(text), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
}

fn a_revoked_identity_writes_nothing_and_others_go_on(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let (stolen, other) = (cluster.node("stolen")?, cluster.node("honest")?);
    for node in [&stolen, &other] {
        node.client.post("/api/v1/nodes", &stored_node(&node.name, json!({})))?;
    }
    revoke(cluster, &stolen.name, json!("stolen"))?;
    let patch = json!({"metadata": {"annotations": {"example.com/seen": "yes"}}});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": stolen.name},
        "spec": {"holderIdentity": stolen.name, "leaseDurationSeconds": 40},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let own = node_path(&stolen.name);
    let ask = |method: &str, path: &str, body: Option<&Value>| {
        let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
        stolen.client.request(method, path, body.map(|body| (kind, body)))
    };
    wait_until("the policy to hold", SOON, || match ask("PATCH", &format!("{own}/status"), Some(&patch))?.status {
        422 => Ok(()),
        status => Err(status.to_string()),
    })?;
    for (method, path, body) in [
        ("PATCH", own.clone(), Some(&patch)),
        ("POST", leases.to_owned(), Some(&lease)),
        ("POST", REQUESTS.to_owned(), Some(&request_of(&stolen)?)),
        ("POST", "/api/v1/namespaces/default/events".to_owned(), Some(&event_of(&stolen))),
    ] {
        let reply = ask(method, &path, body)?;
        assert_eq!(reply.status, 422, "{method} {path}: {}", reply.body);
        assert!(reply.body["message"].as_str().unwrap_or_default().contains(REFUSAL), "{}", reply.body);
    }
    assert_eq!(ask("GET", &own, None)?.status, 200, "it may go on reading");
    other.client.patch(&format!("{}/status", node_path(&other.name)), &patch)?;
    other.client.post(REQUESTS, &request_of(&other)?)?;
    // Its Node is gone, and it cannot make it again.
    cluster.delete_node(&stolen.name)?;
    assert_eq!(ask("POST", "/api/v1/nodes", Some(&stored_node(&stolen.name, json!({}))))?.status, 422);
    assert_eq!(cluster.find_node(&stolen.name)?, None);
    Ok(())
}

fn event_of(node: &NodeIdentity) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{}.1", node.name), "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node.name}, "reason": "Seen", "type": "Normal",
    })
}

fn a_revoked_board_is_told_so_and_comes_back_when_it_may(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let node = cluster.node("taken")?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_requests(&cluster.api, &node, "a renewal", SOON, |all| all.iter().any(is_renewal))?;
    revoke(cluster, &node.name, json!("stolen"))?;
    let line = agent.wait_for_line(&["revoked: ", REFUSAL], SOON)?;
    assert!(line.contains("kubectl -n kube-system patch configmap nodepulse-revoked"), "{line}");
    let since = now_us();
    cluster.delete_node(&node.name)?;
    // The garbage collector may have been sooner.
    cluster.api.admin.request("DELETE", &lease_path(&node.name), None)?;
    std::thread::sleep(WATCHED);
    let asked = cluster.api.audit(|e| e.user == node.user && e.received_at_us > since)?;
    assert!(asked.len() <= REQUESTS_WATCHED, "{} requests in {WATCHED:?}: {:#?}", asked.len(), lines(&asked));
    assert_eq!(cluster.find_node(&node.name)?, None);
    assert_eq!(agent.count_lines("revoked: ")?, 1);
    revoke(cluster, &node.name, Value::Null)?;
    agent.signal(nix::sys::signal::Signal::SIGHUP)?;
    wait_until_ready(cluster, &node)?;
    agent.check()
}
