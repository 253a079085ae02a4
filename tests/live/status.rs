//! NodeStatus while the world changes it: conditions, labels, CIDRs, the cordon, events, SIGHUP (PRS-7, UPD-*, SCH-1).

use super::super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::super::cluster::{Cluster, NodeIdentity, Result, condition, wait_until};
use super::super::trials::Case;
use super::{
    SOON, events_of, is_assertion, is_report, lines, now_us, status_of, stored_node, uid, wait_for_event,
    wait_for_node, wait_for_requests, wait_until_ready,
};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// As a kubelet takes.
const WATCHED: Duration = Duration::from_secs(10);
/// An assertion a minute, the look at the Node, the report, and a machine that is busy.
const ASSERTED: Duration = Duration::from_secs(75);

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        what_others_write_is_answered_within_ten_seconds_by_default,
        what_others_write_is_answered_within_a_minute_where_the_node_is_not_watched,
        pod_cidrs_are_noticed_with_one_report_and_then_nothing_is_sent,
        memory_pressure_from_reloaded_settings_is_told_with_its_event,
        settings_that_are_wrong_at_reload_change_nothing,
        a_lease_duration_from_reloaded_settings_is_on_the_lease,
        assertions_that_find_nothing_write_nothing,
    ]
}

/// Several Nodes at once (D4).
fn what_others_write_is_answered_within_ten_seconds_by_default(cluster: &Cluster) -> Result<()> {
    let parts = cases![
        &[],
        conditions_that_somebody_made_unknown_are_repaired_with_reason_and_time,
        a_condition_of_somebody_else_stays_where_it_is,
        labels_of_system_and_architecture_are_restored,
        a_cordon_is_told_and_so_is_its_end,
        every_event_is_in_kubectls_description_of_the_node,
    ];
    let failed: Vec<String> = thread::scope(|scope| {
        let begun: Vec<_> = parts.iter().map(|part| (part.name, scope.spawn(move || (part.run)(cluster)))).collect();
        let ended = begun.into_iter().map(|(name, part)| match part.join() {
            Ok(result) => result.map_err(|why| format!("{name}: {why}")),
            Err(_) => Err(format!("{name}: panicked, see above")),
        });
        ended.filter_map(Result::err).collect()
    });
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// With the defaults, and a protocol that carries a watch (`make test-http1`).
fn watching(cluster: &Cluster, node: &NodeIdentity) -> Result<Nodepulse> {
    let agent = Launch::with_defaults(node).set(ROOM_ON_DISK.0, ROOM_ON_DISK.1).set("alpnProtocol", "h2");
    let mut agent = agent.start(cluster)?;
    agent.wait_for_line(&["node-watched:"], 2 * SOON)?;
    Ok(agent)
}

fn what_others_write_is_answered_within_a_minute_where_the_node_is_not_watched(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("asserted")?;
    let mut agent = Launch::with_defaults(&node).set("nodeWatch", "false").start(cluster)?;
    let before = wait_until_ready(cluster, &node)?;
    let key = "kubernetes.io/arch";
    cluster.patch_node(&node.name, &json!({"metadata": {"labels": {key: null}}}))?;
    let label = |found: &Value| found["metadata"]["labels"][key].clone();
    wait_for_node(cluster, &node, "its label", ASSERTED, |found| (label(found) == label(&before)).then_some(()))?;
    assert_eq!(cluster.api.watches(|e| e.user == node.user)?.len(), 0);
    agent.check()
}

fn conditions_that_somebody_made_unknown_are_repaired_with_reason_and_time(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("doubted")?;
    let _agent = watching(cluster, &node)?;
    let before = wait_until_ready(cluster, &node)?;
    let long_ago = "2020-01-01T00:00:00Z";
    let unknown: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|kind| {
            json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting.",
                "lastTransitionTime": long_ago,
            })
        })
        .into();
    cluster.patch_node_status(&node.name, &json!({"status": {"conditions": unknown}}))?;
    let after = wait_for_node(cluster, &node, "four conditions with their own reasons", WATCHED, |found| {
        let repaired = |c: &Value| c["status"] != "Unknown" && c["reason"] != "NodeStatusUnknown";
        found["status"]["conditions"].as_array()?.iter().all(repaired).then(|| found.clone())
    })?;
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let (old, new) = (condition(&before, kind).ok_or(kind)?, condition(&after, kind).ok_or(kind)?);
        for field in ["status", "reason", "message"] {
            assert_eq!(new[field], old[field], "{kind}");
        }
        assert!(new["lastTransitionTime"].as_str() >= old["lastTransitionTime"].as_str(), "{kind}: {new}");
    }
    wait_for_event(cluster, &node, "NodeReady").map(drop)
}

fn a_condition_of_somebody_else_stays_where_it_is(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("shared")?;
    let _agent = watching(cluster, &node)?;
    let before = wait_until_ready(cluster, &node)?;
    let count = |node: &Value| node["status"]["conditions"].as_array().map_or(0, Vec::len);
    let theirs = json!({
        "type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "message": "all is well",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    cluster.patch_node_status(&node.name, &json!({"status": {"conditions": [theirs]}}))?;
    // Something to report, so that a whole PATCH goes over it.
    let ready = json!({"type": "Ready", "status": "False", "reason": "Meddling"});
    cluster.patch_node_status(&node.name, &json!({"status": {"conditions": [ready]}}))?;
    let after = wait_for_node(cluster, &node, "Ready with its own reason", WATCHED, |found| {
        (condition(found, "Ready")?["reason"] == "KubeletReady").then(|| found.clone())
    })?;
    assert_eq!(condition(&after, "KernelDeadlock"), Some(&theirs));
    assert_eq!(count(&after), count(&before) + 1);
    Ok(())
}

fn labels_of_system_and_architecture_are_restored(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("relabelled")?;
    let _agent = watching(cluster, &node)?;
    // The first report puts all of them right, as a registration does.
    wait_for_requests(&cluster.api, &node, "the first report", SOON, |all| {
        all.iter().any(|e| is_report(e) && e.code == 200)
    })?;
    let before = wait_until_ready(cluster, &node)?;
    let labels = json!({
        "kubernetes.io/os": "windows", "kubernetes.io/arch": null, "kubernetes.io/hostname": "somebody-else",
        "example.com/room": "cellar",
    });
    cluster.patch_node(&node.name, &json!({"metadata": {"labels": labels}}))?;
    let label = |node: &Value, key: &str| node["metadata"]["labels"][key].clone();
    let after = wait_for_node(cluster, &node, "both labels", WATCHED, |found| {
        let same = |key| label(found, key) == label(&before, key);
        (same("kubernetes.io/os") && same("kubernetes.io/arch")).then(|| found.clone())
    })?;
    assert_eq!(label(&after, "kubernetes.io/hostname"), "somebody-else", "UPD-2: only these two");
    assert_eq!(label(&after, "example.com/room"), "cellar");
    // The server writes its audit log a moment after the answer.
    let is_fix = |e: &super::AuditEntry| !e.body["metadata"]["labels"].is_null() && e.verb == "patch";
    let requests = wait_for_requests(&cluster.api, &node, "the labels", SOON, |all| all.iter().any(is_fix))?;
    let fix = requests.iter().find(|e| is_fix(e));
    assert!(fix.is_some_and(|e| e.uri.ends_with("/status?timeout=10s")), "{:#?}", lines(&requests));
    Ok(())
}

fn pod_cidrs_are_noticed_with_one_report_and_then_nothing_is_sent(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("routed")?;
    let _agent = Launch::quick(&node).asserting("2s").start(cluster)?;
    let is_known = |e: &super::AuditEntry| e.reply["spec"]["podCIDRs"].is_array();
    let requests = wait_for_requests(&cluster.api, &node, "five assertions since the CIDR is known", SOON, |all| {
        let known = all.iter().position(is_known).unwrap_or(all.len());
        all.iter().skip(known).filter(|e| is_assertion(e)).count() >= 5
    })?;
    let known = requests.iter().position(is_known).ok_or("nothing it read has a pod CIDR")?;
    let reports = requests.iter().skip(known + 1).filter(|e| is_report(e)).count();
    assert_eq!(reports, 1, "UPD-1: {:#?}", lines(&requests));
    let written = requests.iter().any(|e| !e.body["spec"]["podCIDR"].is_null());
    assert!(!written, "the CIDR belongs to the controller");
    Ok(())
}

fn a_cordon_is_told_and_so_is_its_end(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("cordoned")?;
    // Cordoned before the start, which tells it at once; its end has to be noticed.
    let cordoned = json!({"spec": {"unschedulable": true}});
    cluster.api.admin.post("/api/v1/nodes", &stored_node(&node.name, cordoned))?;
    let _agent = watching(cluster, &node)?;
    let found = wait_until_ready(cluster, &node)?;
    for (reason, within) in [("NodeNotSchedulable", SOON), ("NodeSchedulable", WATCHED)] {
        let events = event(cluster, &node, reason, within)?;
        assert_eq!((events.len(), &events[0]["type"]), (1, &json!("Normal")));
        assert_eq!(events[0]["message"], format!("Node {} status is now: {reason}", node.name));
        assert_eq!(events[0]["involvedObject"]["uid"], uid(&found));
        cluster.patch_node(&node.name, &json!({"spec": {"unschedulable": false}}))?;
    }
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    Ok(())
}

fn event(cluster: &Cluster, node: &NodeIdentity, reason: &str, within: Duration) -> Result<Vec<Value>> {
    wait_until(&format!("event {reason}"), within, || {
        let mut events = events_of(cluster, node)?;
        events.retain(|event| event["reason"] == reason);
        if events.is_empty() { Err("there is none".to_owned()) } else { Ok(events) }
    })
}

fn every_event_is_in_kubectls_description_of_the_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("described")?;
    let _agent = watching(cluster, &node)?;
    let found = wait_until_ready(cluster, &node)?;
    cluster.patch_node(&node.name, &json!({"spec": {"unschedulable": true}}))?;
    event(cluster, &node, "NodeNotSchedulable", WATCHED)?;
    let sent = events_of(cluster, &node)?;
    let reasons: Vec<&str> = sent.iter().filter_map(|e| e["reason"].as_str()).collect();
    for reason in ["Starting", "NodeHasSufficientMemory", "NodeHasSufficientPID", "NodeNotSchedulable"] {
        assert!(reasons.contains(&reason), "{reason} is not among {reasons:?}");
    }
    let listed = cluster.described_events(&found)?;
    for event in &sent {
        let name = &event["metadata"]["name"];
        assert!(listed.iter().any(|e| e["metadata"]["name"] == *name), "describe would not find {event}");
    }
    let printed = cluster.kubectl(&["describe", "node", &node.name])?;
    let printed = printed.split_once("\nEvents:").map_or("", |(_, events)| events);
    for reason in reasons {
        let line = printed.lines().find(|line| line.split_whitespace().nth(1) == Some(reason));
        assert!(line.is_some_and(|line| line.contains("nodepulse")), "{reason} is not in\n{printed}");
    }
    // EVT-2, EVT-4: the parts that other tools read.
    let event = sent.iter().find(|e| e["reason"] == "NodeNotSchedulable").ok_or("no event")?;
    assert_eq!(event["source"], json!({"component": "nodepulse", "host": node.name}));
    assert_eq!((&event["count"], &event["reportingInstance"]), (&json!(1), &json!(node.name)));
    let name = event["metadata"]["name"].as_str().unwrap_or_default();
    let nanoseconds = name.strip_prefix(&format!("{}.", node.name)).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    assert!(nanoseconds.is_some_and(|ns| ns / 1000 <= now_us() && ns / 1000 + 60_000_000 > now_us()), "{name}");
    Ok(())
}

fn memory_pressure_from_reloaded_settings_is_told_with_its_event(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("pressed")?;
    let mut agent = Launch::quick(&node).set("evictionPressureTransitionPeriod", "1s").start(cluster)?;
    let before = wait_until_ready(cluster, &node)?;
    let transition = |node: &Value, kind: &str| condition(node, kind).map(|c| c["lastTransitionTime"].clone());
    agent.reload_with("evictionHard", "{memory.available: 8Ti}")?;
    let pressed = cluster.wait_for_condition(&node.name, "MemoryPressure", "True", SOON)?;
    assert_eq!(
        condition(&pressed, "MemoryPressure").map(|c| &c["reason"]),
        Some(&json!("KubeletHasInsufficientMemory"))
    );
    assert_eq!(transition(&pressed, "Ready"), transition(&before, "Ready"), "pressure is no lack of readiness");
    assert_eq!(status_of(&pressed, "Ready"), "True");
    let events = wait_for_event(cluster, &node, "NodeHasInsufficientMemory")?;
    assert_eq!((events.len(), &events[0]["involvedObject"]["uid"]), (1, &json!(uid(&pressed))));
    // EVI-11: the controller turns it into a taint.
    wait_for_node(cluster, &node, "the taint of memory pressure", SOON, |found| {
        let taints = found["spec"]["taints"].as_array()?;
        taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/memory-pressure").then_some(())
    })?;
    agent.reload_with("evictionHard", "{memory.available: 8Mi}")?;
    cluster.wait_for_condition(&node.name, "MemoryPressure", "False", SOON)?;
    // EVT-5: the same reason as at registration is counted, not sent anew.
    wait_until("a second sighting of NodeHasSufficientMemory", SOON, || {
        let events = wait_for_event(cluster, &node, "NodeHasSufficientMemory")?;
        let counts: Vec<&Value> = events.iter().map(|e| &e["count"]).collect();
        if counts == [&json!(2)] { Ok(()) } else { Err(format!("counts are {counts:?}")) }
    })
}

fn settings_that_are_wrong_at_reload_change_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("stubborn")?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.reload_with("nodeLeaseDurationSecond", "7")?;
    let line = agent.wait_for_line(&["reload-refused:"], SOON)?;
    assert!(line.contains("nodeLeaseDurationSeconds"), "names the nearest setting: {line}");
    let renewed = wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?["spec"]["renewTime"].clone();
    wait_until("a renewal after the refused reload", SOON, || {
        let now = cluster.get_lease(&node.name)?["spec"]["renewTime"].clone();
        if now.as_str() > renewed.as_str() { Ok(()) } else { Err(format!("it is {now}")) }
    })?;
    agent.check()
}

fn a_lease_duration_from_reloaded_settings_is_on_the_lease(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("patient")?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    agent.reload_with("nodeLeaseDurationSeconds", "8")?;
    wait_until("a Lease of eight seconds", SOON, || {
        let duration = cluster.get_lease(&node.name)?["spec"]["leaseDurationSeconds"].clone();
        if duration == 8 { Ok(()) } else { Err(format!("it is {duration}")) }
    })
}

fn assertions_that_find_nothing_write_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("quiet")?;
    let _agent = Launch::quick(&node).asserting("2s").start(cluster)?;
    let settled = settled(cluster, &node)?;
    let before = cluster.audit_of(&node)?.len();
    let requests = wait_for_requests(&cluster.api, &node, "three assertions", SOON, |all| {
        all.iter().skip(before).filter(|e| is_assertion(e)).count() >= 3
    })?;
    let others: Vec<_> = requests.iter().skip(before).filter(|e| !is_assertion(e) && !super::is_lease(e)).collect();
    assert!(others.is_empty(), "{:#?}", others.iter().map(|e| super::line(e)).collect::<Vec<_>>());
    let after = cluster.get_node(&node.name)?;
    assert_eq!(after["metadata"]["resourceVersion"], settled["metadata"]["resourceVersion"]);
    Ok(())
}

/// The Node once the controllers have written what they write to a new one, and the agent has seen it.
fn settled(cluster: &Cluster, node: &NodeIdentity) -> Result<Value> {
    wait_for_node(cluster, node, "the controllers to be done", SOON, |found| {
        let is_tainted = found["spec"]["taints"].as_array()?.iter().any(|t| t["key"] == "node.kubernetes.io/not-ready");
        let is_annotated = found["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].is_string();
        (!is_tainted && is_annotated && found["spec"]["podCIDR"].is_string()).then_some(())
    })?;
    let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
    wait_until("the agent to know the Node as it is", SOON, || {
        let found = cluster.get_node(&node.name)?;
        let requests = cluster.audit_of(node)?;
        let seen = requests.iter().rev().find(|e| is_assertion(e) || is_report(e)).map(|e| version(&e.reply));
        let last_two = requests.iter().rev().filter(|e| !super::is_lease(e)).take(2).all(is_assertion);
        if last_two && seen == Some(version(&found)) { Ok(found) } else { Err(format!("it saw {seen:?}")) }
    })
}
