//! A server that turns requests away, as one does that has too much to do: 429 with `Retry-After` (TR-5).

use super::super::agent::Launch;
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Result, node_path, wait_until};
use super::super::trials::Case;
use super::{
    SOON, events_of, is_lease, is_renewal, is_status_patch, lines, status_of, wait_for_node, wait_for_requests,
    wait_until_ready,
};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![&[], a_server_that_turns_requests_away_is_given_time_and_nothing_is_lost]
}

/// `evictionHard` under which there is memory enough, or too little.
const CALM: &str = "{memory.available: 1Mi, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}";
const PRESSED: &str = "{memory.available: 8Ti, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}";

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// API priority and fairness leaves this user one seat, and somebody holds it: each request of the user is turned away.
struct TurnedAway<'a> {
    cluster: &'a Cluster,
    name: String,
    /// Where an admission webhook is asked, and never answers.
    _silent: TcpListener,
    holder: JoinHandle<()>,
}

const EVENTS: &str = "/api/v1/namespaces/default/events";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// As long as a webhook may take.
const HELD_FOR: Duration = Duration::from_secs(30);

impl<'a> TurnedAway<'a> {
    fn begin(cluster: &'a Cluster, node: &NodeIdentity) -> Result<Self> {
        let name = node.name.clone();
        let silent = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = silent.local_addr().map_err(|e| e.to_string())?.port();
        let [hook, level, flow] = manifests(&name, &node.user, port);
        cluster.api.admin.post(&format!("{FLOW}/prioritylevelconfigurations"), &level)?;
        let flow = cluster.api.admin.post(&format!("{FLOW}/flowschemas"), &flow)?;
        // A request that hangs before the server has taken this in would hold a seat of another level.
        wait_until("this user's requests to be led to the level", 2 * SOON, || {
            let reply = node.client.request("GET", &node_path(&name), None)?;
            let by = reply.header("X-Kubernetes-PF-FlowSchema-UID");
            if flow["metadata"]["uid"] == by { Ok(()) } else { Err(format!("flow schema {by}")) }
        })?;
        cluster.api.admin.post(WEBHOOKS, &hook)?;
        let held = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.held"), "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": name}, "reason": "Held", "message": "for a test", "type": "Normal",
            "source": {"component": "test"},
        });
        // Without an effect until the server has taken the webhook in, which it tells nobody: so again, until it hangs.
        let client = node.client.clone().with_patience(HELD_FOR + SOON);
        let holder = spawn(move || {
            let (began, path) =
                (Instant::now(), format!("{EVENTS}/{}.held", held["involvedObject"]["name"].as_str().unwrap_or("")));
            while began.elapsed() < 2 * SOON {
                let asked = Instant::now();
                let _ = client.request("POST", EVENTS, Some(("application/json", &held)));
                if asked.elapsed() > SOON {
                    return;
                }
                let _ = client.request("DELETE", &path, None);
            }
        });
        Ok(Self { cluster, name, _silent: silent, holder })
    }

    fn end(self) -> Result<()> {
        let name = &self.name;
        self.cluster.api.admin.delete(&format!("{FLOW}/flowschemas/{name}"))?;
        self.cluster.api.admin.delete(&format!("{FLOW}/prioritylevelconfigurations/{name}"))?;
        self.cluster.api.admin.delete(&format!("{WEBHOOKS}/{name}"))?;
        self.holder.join().map_err(|_| "who holds the seat panicked".to_owned())
    }
}

/// What holds one request of `user`, the priority level without a seat, and what leads all of this user's requests there.
fn manifests(name: &str, user: &str, port: u16) -> [Value; 3] {
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "timeoutSeconds": HELD_FOR.as_secs(),
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"]}],
            "matchConditions": [{"name": "held", "expression": format!("object.metadata.name == '{name}.held'")}],
        }],
    });
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let everything = json!({
        "subjects": [{"kind": "User", "user": {"name": user}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true},
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let flow = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 50, "rules": [everything]},
    });
    [hook, level, flow]
}

/// With the program's defaults: what comes sooner than ten seconds comes because the server said when.
fn a_server_that_turns_requests_away_is_given_time_and_nothing_is_lost(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("throttled")?;
    let settings = |eviction_hard: &str| {
        let launch = Launch::with_defaults(&node).set("evictionPressureTransitionPeriod", "1s");
        launch.set("evictionHard", eviction_hard).with_whole_log()
    };
    let mut agent = settings(CALM).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held:"], SOON)?;
    let throttle = TurnedAway::begin(cluster, &node)?;
    // Events are posted by whoever holds the seat as well.
    let is_refused = |entry: &AuditEntry| entry.code == 429 && (is_lease(entry) || is_status_patch(entry));
    let reply = wait_until("the server to turn this user away", 2 * SOON, || {
        let reply = node.client.request("GET", &node_path(&node.name), None)?;
        if reply.status == 429 { Ok(reply) } else { Err(format!("{}", reply.status)) }
    })?;
    let asked = reply.header("Retry-After");
    let asked_ms = 1000 * asked.parse::<u64>().map_err(|e| format!("Retry-After: {asked}: {e}"))?;
    // Two changes to tell once the server lets us.
    agent.reload_with("evictionHard", PRESSED)?;
    wait_for_requests(&cluster.api, &node, "four renewals that are turned away", 3 * SOON, |all| {
        all.iter().filter(|entry| is_refused(entry) && is_lease(entry)).count() >= 4
    })?;
    agent.reload_with("evictionHard", CALM)?;
    agent.wait_for_line(&["node-event", "NodeHasSufficientMemory"], 2 * SOON)?;
    throttle.end()?;
    let all = wait_for_requests(&cluster.api, &node, "a renewal after it", 2 * SOON, |all| {
        let last = all.iter().rposition(is_refused);
        all.iter().skip(last.unwrap_or(all.len())).any(is_renewal)
    })?;
    let refused: Vec<AuditEntry> = all.iter().filter(|entry| is_refused(entry)).cloned().collect();
    let renewals: Vec<&AuditEntry> = refused.iter().filter(|entry| is_lease(entry)).collect();
    let pauses_ms: Vec<u64> =
        renewals.windows(2).map(|two| two[1].received_at_us.saturating_sub(two[0].completed_at_us) / 1000).collect();
    eprintln!(
        "  turned away with Retry-After {asked_ms} ms: renewals {pauses_ms:?} ms later, {} requests",
        refused.len()
    );
    assert!(pauses_ms.iter().all(|pause| *pause + 20 >= asked_ms), "{pauses_ms:?} {:#?}", lines(&refused));
    assert!(pauses_ms.iter().any(|pause| *pause < 3 * asked_ms), "nothing came when the server said: {pauses_ms:?}");
    let spent_us = refused.last().map_or(0, |last| last.received_at_us) - refused[0].received_at_us;
    assert!(refused.len() as u64 <= 10 + spent_us / 1_000_000, "{} in {spent_us} us", refused.len());
    let is_so = |kind: &'static str, status: &'static str| {
        move |found: &Value| (status_of(found, kind) == status).then_some(())
    };
    wait_for_node(cluster, &node, "Ready", 2 * SOON, is_so("Ready", "True"))?;
    wait_for_node(cluster, &node, "enough memory", 2 * SOON, is_so("MemoryPressure", "False"))?;
    wait_until("both changes as events", 6 * SOON, || {
        let events = events_of(cluster, &node)?;
        let reasons: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
        let told = ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"];
        if told.iter().all(|reason| reasons.contains(reason)) { Ok(()) } else { Err(format!("{reasons:?}")) }
    })?;
    agent.check()
}
