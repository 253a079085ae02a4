//! Turns the harness on itself: what every other cluster test takes for granted.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use super::cluster::{self, Cluster, Credential, Kubelet, Options, Result, Validity, wait_until};
use super::trials::{Case, Need};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// Makes this program the parent that `daemons_end_with_a_killed_parent` kills.
const HOLD: &str = "CLUSTER_TEST_HOLD";

/// The tests of the control plane's harness.
pub fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, needs: &[], run };
    vec![
        case("harness_cluster_is_ready", cluster_is_ready),
        case("harness_node_may_create_only_itself", node_may_create_only_itself),
        case("harness_audit_log_has_bodies", audit_log_has_bodies),
        case("harness_wrong_credentials_are_refused", wrong_credentials_are_refused),
        case("harness_api_server_returns_on_its_port", api_server_returns_on_its_port),
        case("harness_api_server_freezes", api_server_freezes),
        case("harness_serving_certificate_may_be_out_of_date", serving_certificate_may_be_out_of_date),
        case("harness_silent_node_becomes_unknown", silent_node_becomes_unknown),
        case("harness_lease_goes_with_its_node", lease_goes_with_its_node),
        case("harness_bootstrap_token_gets_a_certificate", bootstrap_token_gets_a_certificate),
        case("harness_daemons_end_with_a_killed_parent", daemons_end_with_a_killed_parent),
    ]
}

/// The tests of the real kubelet's harness.
pub fn kubelet_cases() -> Vec<Case> {
    let needs = &[Need::Root, Need::Kubelet];
    vec![Case { name: "harness_kubelet_is_ready", needs, run: kubelet_is_ready }]
}

/// For the start of `main`: the exit code of this program if it was only started to be killed.
pub fn held() -> Option<ExitCode> {
    std::env::var_os(HOLD)?;
    Some(hold().map_or_else(|e| panic!("{e}"), |()| ExitCode::SUCCESS))
}

fn cluster_is_ready(cluster: &Cluster) -> Result<()> {
    let version = cluster.api.admin.get("/version")?;
    assert_eq!(version["major"], "1", "{version}");
    assert_eq!(cluster.api.admin.get("/readyz")?, "ok");
    let said = cluster.kubectl(&["get", "namespaces", "--output=name"])?;
    assert!(said.contains("namespace/kube-node-lease"), "{said}");
    Ok(())
}

fn node_may_create_only_itself(cluster: &Cluster) -> Result<()> {
    let (own, other) = (cluster.node("own")?, cluster.node("other")?);
    own.client.post("/api/v1/nodes", &bare_node(&own.name))?;
    let refused = own.client.request("POST", "/api/v1/nodes", Some(("application/json", &bare_node(&other.name))))?;
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(cluster.find_node(&other.name)?, None);
    let node = cluster.get_node(&own.name)?;
    assert_eq!(node["metadata"]["name"], own.name.as_str());
    // The controller-manager's CIDR allocator has seen it too.
    wait_until("a pod CIDR", SOON, || {
        cluster.get_node(&own.name)?["spec"]["podCIDR"].as_str().map(drop).ok_or_else(|| "none yet".to_owned())
    })
}

fn audit_log_has_bodies(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("audited")?;
    node.client.post("/api/v1/nodes", &bare_node(&node.name))?;
    node.client.get(&cluster::node_path(&node.name))?;
    let entries = wait_until("both requests in the audit log", SOON, || {
        let entries = cluster.audit_of(&node)?;
        if entries.len() == 2 { Ok(entries) } else { Err(format!("{} entries", entries.len())) }
    })?;
    let (post, get) = (&entries[0], &entries[1]);
    assert_eq!((post.verb.as_str(), post.uri.as_str(), post.code), ("create", "/api/v1/nodes", 201));
    assert_eq!(post.body["metadata"]["name"], node.name.as_str());
    assert!(post.reply["metadata"]["uid"].is_string(), "{}", post.reply);
    assert_eq!(post.user_agent, "cluster-test");
    assert_eq!((get.verb.as_str(), get.code), ("get", 200));
    assert!(post.completed_at_us >= post.received_at_us && get.received_at_us > post.received_at_us);
    Ok(())
}

fn wrong_credentials_are_refused(cluster: &Cluster) -> Result<()> {
    for (credential, status) in [
        (Credential::Valid, 404),
        (Credential::Expired, 401),
        (Credential::NotYetValid, 401),
        (Credential::OtherClientAuthority, 401),
        (Credential::NoGroup, 403),
    ] {
        let node = cluster.node_at(&cluster.api, "refused", credential)?;
        let reply = node.client.request("GET", &cluster::node_path(&node.name), None)?;
        assert_eq!(reply.status, status, "{credential:?}: {}", reply.body);
    }
    Ok(())
}

fn api_server_returns_on_its_port(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node_at(&api, "restarted", Credential::Valid)?;
    node.client.post("/api/v1/nodes", &bare_node(&node.name))?;
    api.stop();
    let refused = node.client.get(&cluster::node_path(&node.name));
    assert!(refused.as_ref().is_err_and(|e| e.contains("refused")), "{refused:?}");
    api.restart()?;
    node.client.get(&cluster::node_path(&node.name))?;
    api.kill()?;
    api.restart()?;
    node.client.get(&cluster::node_path(&node.name))?;
    let seen = wait_until("the requests before and after in one audit log", SOON, || {
        let seen = api.audit(|e| e.user == node.user && e.verb == "get")?;
        if seen.len() == 2 { Ok(seen) } else { Err(format!("{} entries", seen.len())) }
    })?;
    assert!(seen.iter().all(|e| e.code == 200), "{seen:?}");
    Ok(())
}

fn api_server_freezes(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node_at(&api, "frozen", Credential::Valid)?;
    let path = cluster::node_path(&node.name);
    api.freeze()?;
    let hasty = node.client.clone().with_patience(Duration::from_millis(300));
    let unanswered = hasty.request("GET", &path, None);
    api.thaw()?;
    assert!(unanswered.is_err(), "answered while frozen: {unanswered:?}");
    assert_eq!(node.client.request("GET", &path, None)?.status, 404);
    // One that is frozen when its time comes ends all the same, at once.
    api.freeze()?;
    let began = Instant::now();
    api.stop();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    Ok(())
}

fn serving_certificate_may_be_out_of_date(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Expired)?;
    let node = cluster.node_at(&api, "late", Credential::Valid)?;
    assert_eq!(node.client.request("GET", &cluster::node_path(&node.name), None)?.status, 404);
    let kubeconfig = format!("--kubeconfig={}", node.kubeconfig.display());
    let refused = cluster.kubectl(&[&kubeconfig, "get", "node", &node.name]);
    assert!(refused.as_ref().is_err_and(|e| e.contains("certificate has expired")), "{refused:?}");
    // The same node by another name of the server that is in order.
    let kubeconfig = node.kubeconfig_via(&format!("https://localhost:{}", cluster.api.port))?;
    let absent = cluster.kubectl(&[&format!("--kubeconfig={}", kubeconfig.display()), "get", "node", &node.name]);
    assert!(absent.as_ref().is_err_and(|e| e.contains("NotFound")), "{absent:?}");
    Ok(())
}

fn silent_node_becomes_unknown(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("silent")?;
    node.client.post("/api/v1/nodes", &bare_node(&node.name))?;
    let found = cluster.wait_for_condition(&node.name, "Ready", "Unknown", Duration::from_secs(40))?;
    assert_eq!(cluster::condition(&found, "Ready").map(|c| &c["reason"]), Some(&json!("NodeStatusNeverUpdated")));
    Ok(())
}

/// The garbage collector at work: what the agent's owner reference on its Lease is for.
fn lease_goes_with_its_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("owner")?;
    let uid = node.client.post("/api/v1/nodes", &bare_node(&node.name))?["metadata"]["uid"].clone();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node.name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid},
        ]},
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 40},
    });
    node.client.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease)?;
    cluster.delete_node(&node.name)?;
    wait_until("the Lease of a deleted Node to go", Duration::from_secs(60), || {
        match cluster.find_lease(&node.name)? {
            None => Ok(()),
            Some(_) => Err("it is there".to_owned()),
        }
    })
}

/// The whole way of a node that has nothing but a token: request, approval, signature.
fn bootstrap_token_gets_a_certificate(cluster: &Cluster) -> Result<()> {
    let (token, node) = (cluster.bootstrap_token()?, cluster.node("bootstrapped")?);
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, node.user.as_str());
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    let key = rcgen::KeyPair::generate().map_err(|e| e.to_string())?;
    let request = params.serialize_request(&key).and_then(|r| r.pem()).map_err(|e| e.to_string())?;
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": node.name},
        "spec": {
            "request": base64(request.as_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    let file = node.dir.join("request.json");
    fs::write(&file, object.to_string()).map_err(|e| e.to_string())?;
    cluster.kubectl(&[
        "--kubeconfig=/dev/null",
        &format!("--server={}", cluster.api.url()),
        &format!("--certificate-authority={}", cluster.authority_file().display()),
        &format!("--token={token}"),
        "create",
        &format!("--filename={}", file.display()),
    ])?;
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{}", node.name);
    wait_until("an approved and signed certificate", SOON, || {
        let answer = cluster.api.admin.get(&path)?;
        answer["status"]["certificate"].as_str().map(drop).ok_or_else(|| answer["status"].to_string())
    })
}

/// This program again, as the parent: SIGKILL leaves it no chance to clean up.
fn daemons_end_with_a_killed_parent(_: &Cluster) -> Result<()> {
    let mut parent = Command::new(std::env::current_exe().map_err(|e| e.to_string())?)
        .env(HOLD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut line = String::new();
    let said = BufReader::new(parent.stdout.take().ok_or("no standard output")?).read_line(&mut line);
    let (folder, pids) = line.trim().split_once(' ').unwrap_or_default();
    let pids: Vec<i32> = pids.split(' ').filter_map(|pid| pid.parse().ok()).collect();
    let alive = || pids.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).count();
    let before = (alive(), Path::new(folder).is_dir());
    parent.kill().and_then(|()| parent.wait()).map_err(|e| e.to_string())?;
    said.map_err(|e| e.to_string())?;
    assert_eq!(before, (3, true), "three daemons and their folder, while the parent lived: {line}");
    wait_until("the daemons of a killed parent to end, and their folder", SOON, || {
        match (alive(), Path::new(folder).exists()) {
            (0, false) => Ok(()),
            (left, there) => Err(format!("{left} daemons are alive, folder {}", if there { "there" } else { "gone" })),
        }
    })
}

/// Starts a cluster, says where it is, and keeps it until standard input ends.
fn hold() -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    let pids: Vec<String> = cluster.pids().iter().map(i32::to_string).collect();
    println!("{} {}", cluster.folder().display(), pids.join(" "));
    std::io::stdin().read_line(&mut String::new()).map(drop).map_err(|e| e.to_string())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, b| bits << 8 | usize::from(*b)) << (8 * (3 - group.len()));
        let digit = |n: usize| char::from(DIGITS[bits >> (18 - 6 * n) & 63]);
        (0..4).for_each(|n| text.push(if n <= group.len() { digit(n) } else { '=' }));
    }
    text
}

fn bare_node(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn kubelet_is_ready(cluster: &Cluster) -> Result<()> {
    let mut kubelet = Kubelet::start(cluster, "kubelet", "")?;
    let node = kubelet.wait_until_ready(cluster)?;
    assert_eq!(node["metadata"]["name"], kubelet.identity.name.as_str());
    let program = fs::read_to_string(format!("/proc/{}/comm", kubelet.kubelet.pid())).map_err(|e| e.to_string())?;
    assert_eq!(program.trim(), "kubelet", "what the process id stands for");
    assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], kubelet.port);
    Ok(())
}
