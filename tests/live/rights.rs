//! Turns the files of `targets/kubernetes` into rights on a real server: they are enough, and each of them is needed.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Reply, Result, daemon, node_path, wait_until};
use super::super::trials::{Case, Need};
use super::check::check;
use super::{SOON, STOOD_BACK, is_assertion, lines, stored_node, wait_for_event, wait_for_requests, wait_until_ready};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/targets/kubernetes");
const ACCOUNT: &str = include_str!("../../targets/kubernetes/service-account.yaml");
const NAMESPACE: &str = "/api/v1/namespaces/nodepulse";
const WATCH: &str = "watch nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

pub fn cases() -> Vec<Case> {
    let mut all = cases![
        &[],
        a_service_account_does_everything_with_the_rights_of_its_file_and_uses_each,
        without_any_one_of_them_its_lack_is_told_and_nothing_ends,
        a_service_account_can_neither_touch_nor_make_what_belongs_to_others,
        heartbeats_of_a_service_account_are_as_urgent_as_those_of_a_node,
        a_daemon_set_that_tolerates_everything_stays_away_with_the_affinity,
    ];
    all.extend(cases![&[Need::Openssl], a_certificate_that_was_asked_for_makes_a_board_a_node]);
    all
}

/// What `enroll` says, run in the node's folder as the administrator.
fn enroll(cluster: &Cluster, node: &NodeIdentity, arguments: &[&str]) -> Result<PathBuf> {
    let programs = cluster.kubectl_program().parent().ok_or("kubectl is nowhere")?;
    let path = std::env::var("PATH").unwrap_or_default();
    // Somebody else who may write here lies in wait for the key.
    for name in ["kubeconfig", "kubeconfig.new"] {
        let link = node.dir.join(format!("{}.{name}", node.name));
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("prepared", link).map_err(|e| e.to_string())?;
    }
    let output = Command::new(format!("{FOLDER}/enroll"))
        .args(arguments)
        .arg(&node.name)
        .current_dir(&node.dir)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .env("HOME", cluster.folder())
        .output()
        .map_err(|e| format!("cannot run enroll: {e}"))?;
    if !output.status.success() {
        return Err(format!("enroll: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let written = node.dir.join(String::from_utf8_lossy(&output.stdout).trim());
    let found = fs::symlink_metadata(&written).map_err(|e| e.to_string())?;
    assert!(found.is_file() && found.mode() & 0o777 == 0o600, "{found:?}");
    assert!(!node.dir.join("prepared").exists(), "the key went through a link of somebody else's");
    Ok(written)
}

/// What all service accounts share, applied once: of two that create it at the same time one would fail.
fn share(cluster: &Cluster) -> Result<()> {
    static SHARED: OnceLock<Result<()>> = OnceLock::new();
    let apply = || cluster.kubectl(&["apply", "-f", &format!("{FOLDER}/service-accounts.yaml")]).map(drop);
    SHARED.get_or_init(apply).clone()
}

fn user_of(name: &str) -> String {
    format!("system:serviceaccount:nodepulse:{name}")
}

/// What a service account is answered, asked through the administrator in its name.
fn ask_as(cluster: &Cluster, user: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
    let client = cluster.api.admin.clone().with_header("Impersonate-User", user);
    let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    client.request(method, path, body.map(|body| (kind, body)))
}

/// The rights of the file: its lines, and each as `patch nodes/status`.
fn rights() -> Vec<(&'static str, String)> {
    let between = |line: &str, before: &str| {
        line.split_once(before).and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_owned())
    };
    let lines = ACCOUNT.lines().filter(|line| line.contains("apiGroups:"));
    let named = |line| Some((line, format!("{} {}", between(line, "verbs: [")?, between(line, "resources: [")?)));
    lines.filter_map(named).collect()
}

/// `patch nodes/status`: a request as RBAC calls it.
fn right_of(entry: &AuditEntry) -> Option<String> {
    let path = entry.uri.split('?').next()?.trim_start_matches('/');
    let mut parts = path.split('/').filter(|part| !["api", "apis", "v1", "coordination.k8s.io"].contains(part));
    let mut resource = parts.next()?;
    if resource == "namespaces" {
        resource = parts.nth(1)?;
    }
    let below = parts.nth(1).map_or(String::new(), |below| format!("/{below}"));
    Some(format!("{} {resource}{below}", entry.verb))
}

/// Memory becomes short and is found again: at the end an event is sent that was sent before.
fn repeat_an_event(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse) -> Result<()> {
    for (threshold, status) in [("8Ti", "True"), ("8Mi", "False")] {
        agent.reload_with("evictionHard", &format!("{{memory.available: {threshold}}}"))?;
        cluster.wait_for_condition(&node.name, "MemoryPressure", status, SOON)?;
    }
    Ok(())
}

fn a_service_account_does_everything_with_the_rights_of_its_file_and_uses_each(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let node = cluster.node("account")?;
    let kubeconfig = enroll(cluster, &node, &["--service-account"])?;
    let node = NodeIdentity { user: user_of(&node.name), kubeconfig, ..node };
    let (code, said) = check(&node)?;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("all 9 verbs that the agent uses"), "{said}");
    // Over HTTP/1.1 nothing is watched.
    let launch = || Launch::quick(&node).set("evictionPressureTransitionPeriod", "1s").set("alpnProtocol", "h2");
    let mut first = launch().start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_event(cluster, &node, "NodeHasSufficientMemory")?;
    repeat_an_event(cluster, &node, &mut first)?;
    wait_until("an event that is counted", SOON + STOOD_BACK, || {
        let count = wait_for_event(cluster, &node, "NodeHasSufficientMemory")?[0]["count"].clone();
        if count == 2 { Ok(()) } else { Err(format!("its count is {count}")) }
    })?;
    assert_eq!(first.stop()?, 0);
    let second = launch().start(cluster)?;
    let is_own = |e: &&AuditEntry| e.code < 300 && !e.uri.starts_with("/version") && !e.uri.contains("accessreviews");
    let used = |all: &[AuditEntry]| all.iter().filter(is_own).filter_map(right_of).collect::<BTreeSet<String>>();
    let given: BTreeSet<String> = rights().into_iter().map(|(_, right)| right).collect();
    let is_all_used = |all: &[AuditEntry]| used(all).is_superset(&given);
    let all = wait_for_requests(&cluster.api, &node, &format!("the use of {given:?}"), SOON, is_all_used)?;
    assert_eq!(used(&all), given, "what is used, and what the file gives");
    let refused: Vec<_> = all.iter().filter(|e| [401, 403].contains(&e.code)).cloned().collect();
    // Once each start, and no word about it: with this right it could write taints and spec as well.
    assert_eq!(lines(&refused), ["PATCH nodes 403"; 2]);
    let said = [first.said()?, second.said()?].concat();
    assert!(!said.contains("server answered 403"), "{said}");
    Ok(())
}

/// A service account for `node` with the rights of the file but one, and its kubeconfig.
fn account_without(cluster: &Cluster, node: NodeIdentity) -> Result<NodeIdentity> {
    let path = format!("{NAMESPACE}/serviceaccounts/{}/token", node.name);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = cluster.api.admin.post(&path, &request)?["status"]["token"].clone();
    let text = fs::read_to_string(&node.kubeconfig).map_err(|e| e.to_string())?;
    let lines = text.lines().filter(|line| !line.contains("client-certificate:"));
    let lines = lines.map(|line| match line.split_once("client-key:") {
        Some((indent, _)) => format!("{indent}token: {token}\n"),
        None => format!("{line}\n"),
    });
    let kubeconfig = daemon::write_private(&node.dir.join("account.kubeconfig"), &lines.collect::<String>())?;
    Ok(NodeIdentity { user: user_of(&node.name), kubeconfig, ..node })
}

/// The words of one line in which the agent tells that it may not do this.
fn told(right: &str) -> [String; 3] {
    let (verb, resource) = right.split_once(' ').unwrap_or_default();
    let what = match (resource, verb) {
        ("nodes", "watch") => "node-unwatched: the Node is not watched, its statuses are asserted",
        ("nodes", _) => "registration failed",
        ("nodes/status", _) => "NodeStatus failed",
        ("leases", _) => "Lease renewal failed",
        _ => "event delivery failed",
    };
    [what.to_owned(), "server answered 403".to_owned(), format!("cannot {verb} resource \"{resource}\"")]
}

/// Whoever may not watch does what was done before there was a watch, and nothing more than once.
fn is_asserted_instead(cluster: &Cluster, node: &NodeIdentity, agent: &Nodepulse) -> Result<()> {
    const ASSERTIONS: usize = 8;
    let count = |all: &[AuditEntry]| all.iter().filter(|e| is_assertion(e)).count();
    let all = wait_for_requests(&cluster.api, node, "assertions", 2 * SOON, |all| count(all) >= ASSERTIONS)?;
    let asked = all.iter().filter(|e| right_of(e).as_deref() == Some(WATCH)).count();
    assert_eq!(asked, 1, "{:#?}", lines(&all));
    assert_eq!((agent.count_lines("watch")?, agent.count_lines("failing:")?), (1, 0), "{}", agent.said()?);
    Ok(())
}

fn without_any_one_of_them_its_lack_is_told_and_nothing_ends(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let rights = rights();
    assert_eq!(rights.len(), 9, "{rights:?}");
    let mut manifests = String::new();
    let mut nodes = Vec::new();
    for (line, _) in &rights {
        let node = cluster.node("lacking")?;
        let without = ACCOUNT.replace(line, "").replace("NAME", &node.name);
        manifests.push_str(&format!("---\n{without}"));
        nodes.push(node);
    }
    let file = daemon::write_private(&nodes[0].dir.join("accounts.yaml"), &manifests)?;
    cluster.kubectl(&["create", "-f", &file.display().to_string()])?;
    let mut running = Vec::new();
    for (node, (_, right)) in nodes.into_iter().zip(&rights) {
        let node = account_without(cluster, node)?;
        if right == "get nodes" {
            cluster.create_node(&stored_node(&node.name, json!({})))?;
        }
        let (code, said) = check(&node)?;
        // Without a watch there are assertions.
        assert_eq!(code, if right == WATCH { 0 } else { 77 }, "{right}: {said}");
        let next =
            format!("try: sed s/NAME/{}/g targets/kubernetes/service-account.yaml | kubectl apply -f -", node.name);
        for words in [&format!("may not {right}:"), &next] {
            assert!(said.contains(words), "{words}: {said}");
        }
        running.push((node, right));
    }
    let mut agents = Vec::new();
    for (node, right) in &running {
        let launch = Launch::quick(node).set("evictionPressureTransitionPeriod", "1s");
        let launch = match right.as_str() {
            WATCH => launch.set("alpnProtocol", "h2").set("statusAssertFrequency", "2s"),
            _ => launch,
        };
        agents.push((node, right, launch.start(cluster)?));
    }
    for (node, right, agent) in &mut agents {
        if right.as_str() == "patch events" {
            wait_for_event(cluster, node, "NodeHasSufficientMemory")?;
            repeat_an_event(cluster, node, agent)?;
        }
        let words = told(right);
        agent.wait_for_line(&words.each_ref().map(String::as_str), SOON)?;
        // Once in a start it is asked whether managedFields can go: a service account may not, and nothing depends on it.
        let is_refused = |e: &&AuditEntry| e.code == 403 && right_of(e).as_deref() != Some("patch nodes");
        let all = wait_for_requests(&cluster.api, node, "a refusal", SOON, |all| all.iter().any(|e| is_refused(&e)))?;
        let refused: BTreeSet<String> = all.iter().filter(is_refused).filter_map(right_of).collect();
        assert_eq!(refused, BTreeSet::from([right.to_string()]), "{:#?}", lines(&all));
        if right.as_str() == WATCH {
            is_asserted_instead(cluster, node, agent)?;
        }
        agent.check()?;
    }
    // Where an administrator makes the Nodes, nobody else needs that right (REG-6).
    let (node, _, agent) =
        agents.iter_mut().find(|(_, right, _)| right.as_str() == "create nodes").ok_or("it is not there")?;
    cluster.create_node(&stored_node(&node.name, json!({})))?;
    wait_until_ready(cluster, node)?;
    agent.check()
}

fn a_service_account_can_neither_touch_nor_make_what_belongs_to_others(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let (node, other) = (cluster.node("tenant")?, cluster.node("neighbour")?);
    let manifest = daemon::write_private(&node.dir.join("account.yaml"), &ACCOUNT.replace("NAME", &node.name))?;
    cluster.kubectl(&["apply", "-f", &manifest.display().to_string()])?;
    cluster.create_node(&stored_node(&other.name, json!({})))?;
    let user = user_of(&node.name);
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
    let ask = |method: &str, path: &str, body: Option<&Value>| ask_as(cluster, &user, method, path, body);
    let make_node = |name: &str| ask("POST", "/api/v1/nodes?dryRun=All", Some(&stored_node(name, json!({}))));
    let make_lease = |name: &str| ask("POST", &format!("{LEASES}?dryRun=All"), Some(&lease(name)));
    // Policies take a moment until the server follows them.
    let said = wait_until("the policy to hold", SOON, || match make_node("somebody")? {
        Reply { status: 403, body, .. } => Ok(body),
        Reply { status, body, .. } => Err(format!("{status} {body}")),
    })?;
    assert!(said["message"].as_str().unwrap_or_default().contains("may only create what has its own name"), "{said}");
    assert_eq!(make_node(&node.name)?.status, 201);
    assert_eq!((make_lease("somebody")?.status, make_lease(&node.name)?.status), (403, 201));
    let patch = json!({"metadata": {"labels": {"example.com/mine": "yes"}}});
    let own = node_path(&node.name);
    for (method, path, body) in [
        ("GET", node_path(&other.name), None),
        ("PATCH", format!("{}/status", node_path(&other.name)), Some(&patch)),
        ("PATCH", format!("{LEASES}/{}", other.name), Some(&patch)),
        ("GET", "/api/v1/nodes".to_owned(), None),
        ("GET", LEASES.to_owned(), None),
        ("GET", "/api/v1/namespaces/default/events".to_owned(), None),
        ("GET", format!("{NAMESPACE}/secrets/{}", node.name), None),
        ("GET", "/api/v1/pods".to_owned(), None),
        ("PATCH", own.clone(), Some(&patch)),
        ("DELETE", own.clone(), None),
    ] {
        let reply = ask(method, &path, body)?;
        assert_eq!(reply.status, 403, "{method} {path}: {}", reply.body);
    }
    assert_eq!(ask("GET", &own, None)?.status, 404, "its own Node it may look for");
    Ok(())
}

/// Which flow schema and which priority level a request was served by, from the headers of its answer.
fn flow(reply: &Reply) -> (String, String) {
    let header = |name| reply.header(name).to_owned();
    (header("X-Kubernetes-PF-FlowSchema-UID"), header("X-Kubernetes-PF-PriorityLevel-UID"))
}

fn heartbeats_of_a_service_account_are_as_urgent_as_those_of_a_node(cluster: &Cluster) -> Result<()> {
    share(cluster)?;
    let node = cluster.node("urgent")?;
    let uid = |kind: &str, name: &str| -> Result<String> {
        let found = cluster.api.admin.get(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/{kind}/{name}"))?;
        Ok(found["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    };
    let high = uid("prioritylevelconfigurations", "node-high")?;
    let ours = (uid("flowschemas", "nodepulse")?, high.clone());
    let lease = format!("{LEASES}/{}", node.name);
    let status = format!("{}/status", node_path(&node.name));
    let nothing = json!({});
    // Whether it may is another matter: who waits for whom is decided first.
    for (method, path, body) in
        [("GET", &lease, None), ("PATCH", &lease, Some(&nothing)), ("PATCH", &status, Some(&nothing))]
    {
        wait_until("the flow schema to be followed", SOON, || {
            let found = flow(&ask_as(cluster, &user_of(&node.name), method, path, body)?);
            if found == ours { Ok(()) } else { Err(format!("{method} {path} goes to {found:?}")) }
        })?;
    }
    let reply = node.client.request("GET", &lease, None)?;
    assert_eq!(flow(&reply), (uid("flowschemas", "system-node-high")?, high), "a node's own");
    let events = "/api/v1/namespaces/default/events";
    let reply = node.client.request("GET", events, None)?;
    assert_eq!(flow(&reply), (uid("flowschemas", "system-nodes")?, uid("prioritylevelconfigurations", "system")?));
    let reply = ask_as(cluster, &user_of(&node.name), "GET", events, None)?;
    let crowd = (uid("flowschemas", "service-accounts")?, uid("prioritylevelconfigurations", "workload-low")?);
    assert_eq!(flow(&reply), crowd, "events can wait");
    Ok(())
}

/// The Node that a DaemonSet means a pod for; it is the scheduler's to put it there.
fn node_of(pod: &Value) -> String {
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    terms[0]["matchFields"][0]["values"][0].as_str().unwrap_or_default().to_owned()
}

fn a_daemon_set_that_tolerates_everything_stays_away_with_the_affinity(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("unmanned")?;
    let mark = json!({"example.com/daemons": node.name});
    let labels = format!("{{example.com/daemons: {}}}", node.name);
    let _agent = Launch::quick(&node).set("nodeLabels", &labels).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    // A control plane as kubeadm makes it: the same key, and a taint of its own.
    let control_plane = format!("{}-control-plane", node.name);
    let mut labels = mark.clone();
    labels["node.kubernetes.io/exclude-from-external-load-balancers"] = json!("");
    let taint = json!({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"});
    let rest = json!({"metadata": {"labels": labels}, "spec": {"taints": [taint]}});
    cluster.create_node(&stored_node(&control_plane, rest))?;
    let tolerant = format!("{}-tolerant", node.name);
    let modest = format!("{}-modest", node.name);
    for (name, tolerations) in [(&tolerant, json!([{"operator": "Exists"}])), (&modest, json!([]))] {
        let selector = json!({"app": name});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {
                "nodeSelector": mark, "tolerations": tolerations,
                "containers": [{"name": "pause", "image": "registry.k8s.io/pause"}],
            }},
        }});
        cluster.api.admin.post(DAEMON_SETS, &set)?;
    }
    let wanted_on = |name: &str, nodes: &[&str]| {
        wait_until(&format!("{name} to want pods on {nodes:?}"), SOON, || {
            let set = cluster.api.admin.get(&format!("{DAEMON_SETS}/{name}"))?;
            let is_seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let pods = cluster.api.admin.get(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}"))?;
            let found: BTreeSet<String> = pods["items"].as_array().into_iter().flatten().map(node_of).collect();
            let is_so = is_seen && found.iter().eq(nodes) && set["status"]["desiredNumberScheduled"] == nodes.len();
            if is_so { Ok(()) } else { Err(format!("it wants {found:?}: {}", set["status"])) }
        })
    };
    wanted_on(&modest, &[])?;
    wanted_on(&tolerant, &[&node.name, &control_plane])?;
    let file = format!("{FOLDER}/daemonset.yaml");
    let patch = ["patch", "daemonset", &tolerant, "--patch-file", &file];
    cluster.kubectl(&[&patch[..], &["--dry-run=server"]].concat())?;
    wanted_on(&tolerant, &[&node.name, &control_plane])?;
    cluster.kubectl(&patch)?;
    wanted_on(&tolerant, &[&control_plane])?;
    for name in [&tolerant, &modest] {
        cluster.api.admin.delete(&format!("{DAEMON_SETS}/{name}"))?;
    }
    cluster.delete_node(&control_plane).map(drop)
}

fn a_certificate_that_was_asked_for_makes_a_board_a_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("enrolled")?;
    let kubeconfig = enroll(cluster, &node, &[])?;
    let node = NodeIdentity { kubeconfig, ..node };
    let (code, said) = check(&node)?;
    assert_eq!(code, 0, "{said}");
    let _agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_requests(&cluster.api, &node, "its own requests", SOON, |all| all.iter().any(super::is_renewal)).map(drop)
}
