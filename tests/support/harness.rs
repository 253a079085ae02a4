//! Turns the harness on itself: what every other cluster test takes for granted.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use super::cluster::joining::{FLEET_GROUP, KUBEADM_GROUP};
use super::cluster::{
    self, AuditEntry, Client, Cluster, Credential, Kubelet, Options, Result, Rotation, Token, Validity, joining, pki,
    wait_until,
};
use super::trials::{Case, Need};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
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
        case("harness_certificates_and_their_authority_change", certificates_and_their_authority_change),
        case("harness_bootstrap_token_gets_a_certificate", bootstrap_token_gets_a_certificate),
        case("harness_cluster_info_is_for_nobody", cluster_info_is_for_nobody),
        case("harness_requests_wait_for_an_administrator", requests_wait_for_an_administrator),
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

/// A request for a certificate in this name, by a key that nobody keeps.
fn request_for(name: &str, user: &str) -> Result<Value> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, rcgen::DnValue::PrintableString(printable(user)?));
    let key = rcgen::KeyPair::generate().map_err(|e| e.to_string())?;
    let request = params.serialize_request(&key).and_then(|r| r.pem()).map_err(|e| e.to_string())?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "request": BASE64_STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
}

fn printable(text: &str) -> Result<rcgen::string::PrintableString> {
    text.try_into().map_err(|e: rcgen::Error| e.to_string())
}

/// The whole way of a node that has nothing but a token: request, approval, signature.
fn bootstrap_token_gets_a_certificate(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("bootstrapped")?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let client = cluster.api.anonymous()?.with_header("Authorization", &format!("Bearer {token}"));
    assert_eq!(client.request("GET", &cluster::node_path(&node.name), None)?.status, 404, "kubeadm lets it look");
    client.post(joining::REQUESTS, &request_for(&node.name, &node.user)?)?;
    certificate_of(cluster, &node.name)?;
    let found = cluster.requests_for(&node.name)?;
    assert_eq!(found.len(), 1, "{found:?}");
    let asked = wait_until("the request in the audit log", SOON, || {
        let asked = cluster.api.audit(|e| e.verb == "create" && e.body["metadata"]["name"] == node.name.as_str())?;
        if asked.len() == 1 { Ok(asked) } else { Err(format!("{asked:?}")) }
    })?;
    assert_eq!((asked[0].code, asked[0].user.as_str()), (201, format!("system:bootstrap:{}", token.id).as_str()));
    // A token that is deleted is no token; the server may remember it for ten seconds.
    cluster.delete_token(&token)?;
    wait_until("the token to end", Duration::from_secs(30), || {
        let reply = client.request("GET", &cluster::node_path(&node.name), None)?;
        if reply.status == 401 { Ok(()) } else { Err(format!("{} {}", reply.status, reply.body)) }
    })
}

fn certificate_of(cluster: &Cluster, request: &str) -> Result<String> {
    wait_until("an approved and signed certificate", SOON, || {
        let answer = cluster.api.admin.get(&format!("{}/{request}", joining::REQUESTS))?;
        let pem = answer["status"]["certificate"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        pem.and_then(|pem| String::from_utf8(pem).ok()).ok_or_else(|| answer["status"].to_string())
    })
}

/// In the group of a fleet somebody decides.
fn requests_wait_for_an_administrator(cluster: &Cluster) -> Result<()> {
    let (role, group) = ("--clusterrole=system:node-bootstrapper", format!("--group={FLEET_GROUP}"));
    cluster.kubectl(&["create", "clusterrolebinding", "harness-bootstrappers", role, &group])?;
    let token = cluster.token(&[FLEET_GROUP], Some(Duration::from_secs(3600)))?;
    let client = cluster.api.anonymous()?.with_header("Authorization", &format!("Bearer {token}"));
    let (taken, refused) = (cluster.node("approved")?, cluster.node("denied")?);
    for node in [&taken, &refused] {
        client.post(joining::REQUESTS, &request_for(&node.name, &node.user)?)?;
    }
    cluster.approve(&taken.name)?;
    certificate_of(cluster, &taken.name)?;
    cluster.deny(&refused.name)?;
    let found = &cluster.requests_for(&refused.name)?[0];
    assert_eq!(found["status"]["conditions"][0]["type"], "Denied", "{found}");
    cluster.delete_request(&refused.name)?;
    assert_eq!(cluster.requests_for(&refused.name)?, Vec::<Value>::new());
    Ok(())
}

/// What a board may read before it is anybody: with nothing in its hands, and only so.
fn cluster_info_is_for_nobody(cluster: &Cluster) -> Result<()> {
    // RFC 7515 with the content taken out, from an independent implementation.
    let known = Token { id: "abcdef".to_owned(), secret: "0123456789abcdef".to_owned() };
    let signature = known.signature("apiVersion: v1\nkind: Config\n");
    assert_eq!(signature, "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..vH_kT4yiol-nrAWgjfCYqvum5wsKETXe0S7OOp1VgnE");
    let token = cluster.token(&[KUBEADM_GROUP], Some(Duration::from_secs(3600)))?;
    let (valid, expired) = (cluster.node("curious")?, cluster.node_at(&cluster.api, "late", Credential::Expired)?);
    let anonymous = cluster.api.anonymous()?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(|e| e.to_string())?;
    for (who, client, code) in [
        ("system:anonymous", &anonymous, 200),
        (&format!("system:bootstrap:{}", token.id), &bearer(&anonymous, &token.to_string()), 403),
        (&valid.user, &valid.client, 403),
        ("", &expired.client, 401),
        ("", &bearer(&anonymous, "zzzzzz.0123456789abcdef"), 401),
    ] {
        let reply = client.request("GET", joining::CLUSTER_INFO, None)?;
        assert_eq!(reply.status, code, "{who}: {}", reply.body);
        // The audit log tells a request that brought nothing from every other one.
        wait_until(&format!("{who} in the audit log"), SOON, || {
            let is_it =
                |e: &AuditEntry| e.uri == joining::CLUSTER_INFO && u128::from(e.received_at_us) > since.as_micros();
            let found = cluster.api.audit(|e| is_it(e) && e.user == who && e.code == code)?;
            if found.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })?;
    }
    let said = cluster.kubeadm(&["token", "create", "--print-join-command", "--ttl=1h"])?;
    let words = format!("kubeadm join 127.0.0.1:{} --token ", cluster.api.port);
    assert!(said.starts_with(&words) && said.trim().ends_with(cluster.pin()), "{said}");
    Ok(())
}

fn bearer(client: &Client, token: &str) -> Client {
    client.clone().with_header("Authorization", &format!("Bearer {token}"))
}

/// A cluster of its own: short certificates, and then another authority in three steps.
fn certificates_and_their_authority_change(_: &Cluster) -> Result<()> {
    let options = Options { signing_duration: Duration::from_secs(30), ..Options::default() };
    let mut cluster = Cluster::start(options)?;
    let (old, new) = (cluster.pin().to_owned(), cluster.other_pin().to_owned());
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let sign = |cluster: &Cluster, name: &str| -> Result<String> {
        let client = bearer(&cluster.api.anonymous()?, &token.to_string());
        client.post(joining::REQUESTS, &request_for(name, &format!("system:node:{name}"))?)?;
        certificate_of(cluster, name)
    };
    let life = |pem: &str| pki::dates(pem).map(|(begin, end)| end - begin);
    // It is dated five minutes back.
    assert_eq!(life(&sign(&cluster, "short")?)?, 330);
    cluster.sign_for(Duration::from_secs(3600))?;
    assert_eq!(life(&sign(&cluster, "hour")?)?, 3900);
    let by_old = cluster.client_keys("system:node:by-old", Some("system:nodes"))?;
    for (to, pins, is_known) in [
        (Rotation::Announced, vec![&old, &new], true),
        (Rotation::Signing, vec![&new, &old], true),
        (Rotation::Over, vec![&new], false),
    ] {
        cluster.rotate(to)?;
        cluster.wait_for_signature(&token)?;
        assert_eq!(cluster.pin(), *if to == Rotation::Announced { &old } else { &new });
        let said = cluster.kubeadm(&["token", "create", "--print-join-command", "--ttl=1h"])?;
        let found: Vec<&str> = said.split_whitespace().filter(|word| word.starts_with("sha256:")).collect();
        assert_eq!(found, pins, "{to:?}: {said}");
        sign(&cluster, &format!("{to:?}").to_lowercase())?;
        let status = cluster.api.client(&by_old)?.request("GET", "/version", None)?.status;
        assert_eq!(status == 200, is_known, "{to:?}: {status}");
    }
    Ok(())
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
