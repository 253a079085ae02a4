//! The Node is watched: what others write is answered at once, and what ends a watch ends nothing else (D4).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{ApiServer, AuditEntry, Cluster, Credential, NodeIdentity, Result, wait_until};
use super::super::trials::Case;
use super::proxy::Proxy;
use super::{
    SOON, is_assertion, is_lease, is_renewal, is_report, line, lines, now_us, uid, wait_for_event, wait_for_node,
    wait_for_requests, wait_until_ready,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        what_others_write_on_a_watched_node_is_answered_at_once_with_one_look,
        a_watched_node_that_is_deleted_is_back_at_once,
        each_report_without_a_change_names_the_version_that_the_one_before_it_made,
        a_watch_begins_again_over_a_server_that_restarted_and_over_each_connection_that_goaway_ends,
        a_watch_over_a_dead_connection_is_begun_over_the_next,
        an_event_of_a_node_with_sixty_four_labels_takes_no_more_than_one_of_a_node_with_few,
    ]
}

/// On a machine that is busy with other things; what nothing but the watch tells would take an hour.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Nobody but the watch says what others write.
fn watching(node: &NodeIdentity) -> Launch<'_> {
    Launch::quick(node).set("alpnProtocol", "h2").set("statusAssertFrequency", "1h")
}

fn wait_for_watches(api: &ApiServer, node: &NodeIdentity, count: usize) -> Result<()> {
    wait_until(&format!("{count} watches"), SOON, || {
        let all = api.watches(|e| e.user == node.user && e.uri.contains("/nodes?"))?;
        if all.len() >= count { Ok(()) } else { Err(format!("there are {:#?}", lines(&all))) }
    })
}

/// The Node once the controllers have written what they write to a new one, and the agent has seen it: two seconds without
/// a request but for renewals.
fn settled(cluster: &Cluster, api: &ApiServer, node: &NodeIdentity) -> Result<Value> {
    wait_for_watches(api, node, 1)?;
    wait_for_node(cluster, node, "the controllers to be done", SOON, |found| {
        let is_tainted = found["spec"]["taints"].as_array()?.iter().any(|t| t["key"] == "node.kubernetes.io/not-ready");
        let is_annotated = found["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].is_string();
        (!is_tainted && is_annotated && found["spec"]["podCIDR"].is_string()).then_some(())
    })?;
    wait_until("the agent to be done", SOON, || {
        let all = api.audit(|e| e.user == node.user && !is_lease(e))?;
        let last_us = all.last().map_or(0, |e| e.completed_at_us);
        if now_us() > last_us + 2_000_000 { Ok(()) } else { Err("it asks something".to_owned()) }
    })?;
    cluster.get_node(&node.name)
}

fn is_read(entry: &AuditEntry) -> bool {
    entry.verb == "get" && entry.uri.contains("/nodes/")
}

fn restores_its_label(cluster: &Cluster, node: &NodeIdentity) -> Result<Duration> {
    let key = "kubernetes.io/arch";
    let begun = Instant::now();
    cluster.patch_node(&node.name, &json!({"metadata": {"labels": {key: null}}}))?;
    wait_for_node(cluster, node, "its label", SOON, |found| found["metadata"]["labels"][key].as_str().map(drop))?;
    Ok(begun.elapsed())
}

fn what_others_write_on_a_watched_node_is_answered_at_once_with_one_look(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("watched")?;
    let mut agent = watching(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    settled(cluster, &cluster.api, &node)?;
    let before = cluster.audit_of(&node)?;
    let spent = restores_its_label(cluster, &node)?;
    assert!(spent < AT_ONCE, "{spent:?}");
    let begun = Instant::now();
    let taint = json!([{"key": "example.com/room", "value": "cellar", "effect": "NoSchedule"}]);
    cluster.patch_node(&node.name, &json!({"spec": {"taints": taint, "unschedulable": true}}))?;
    wait_for_event(cluster, &node, "NodeNotSchedulable")?;
    eprintln!("  a label after {} ms, a cordon after {} ms", spent.as_millis(), begun.elapsed().as_millis());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    settled(cluster, &cluster.api, &node)?;
    let all = cluster.audit_of(&node)?;
    let since: Vec<AuditEntry> = all.into_iter().skip(before.len()).filter(|e| !is_lease(e)).collect();
    // The controller adds a taint of its own to a Node that is cordoned.
    let reads = since.iter().filter(|e| is_read(e)).count();
    assert!((2..=3).contains(&reads), "{:#?}", lines(&since));
    assert!(!since.iter().any(is_assertion), "{:#?}", lines(&since));
    let cost = agent.cost(&[])?;
    eprintln!("  {cost}");
    agent.check()
}

fn an_event_of_a_node_with_sixty_four_labels_takes_no_more_than_one_of_a_node_with_few(
    cluster: &Cluster,
) -> Result<()> {
    let mut each = Vec::new();
    for (hint, labels) in [("few-labels", 4), ("many-labels", 64)] {
        let node = cluster.node(hint)?;
        let one = |number: usize| format!("example.com/what-this-board-has-{number:02}: something-worth-a-label");
        let labels = format!("{{{}}}", (0..labels).map(one).collect::<Vec<_>>().join(", "));
        let launch = watching(&node).set("nodeStatusReportFrequency", "1h").set("nodeLabels", &labels);
        let mut agent = launch.start(cluster)?;
        wait_until_ready(cluster, &node)?;
        settled(cluster, &cluster.api, &node)?;
        let watched = |agent: &Nodepulse| -> Result<u64> {
            let cost = agent.cost(&[])?;
            cost["days"][0]["purposes"]["watch"]["bytes"].as_u64().ok_or_else(|| cost.to_string())
        };
        let before = watched(&agent)?;
        // What nobody repairs.
        for number in 0..4 {
            cluster
                .patch_node(&node.name, &json!({"metadata": {"labels": {"example.com/seen": number.to_string()}}}))?;
            settled(cluster, &cluster.api, &node)?;
        }
        each.push((watched(&agent)? - before) / 4);
        agent.check()?;
    }
    eprintln!("  an event of a Node with few labels {} bytes, with many {}", each[0], each[1]);
    assert!(each.iter().all(|bytes| (300..700).contains(bytes)), "{each:?}");
    Ok(())
}

fn each_report_without_a_change_names_the_version_that_the_one_before_it_made(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("echoed")?;
    let mut agent = watching(&node).set("nodeStatusReportFrequency", "4s").start(cluster)?;
    wait_until_ready(cluster, &node)?;
    settled(cluster, &cluster.api, &node)?;
    let before = cluster.audit_of(&node)?.len();
    let all = wait_for_requests(&cluster.api, &node, "four reports", SOON * 2, |all| {
        all.iter().skip(before).filter(|e| is_report(e)).count() >= 4
    })?;
    let since: Vec<&AuditEntry> = all.iter().skip(before).filter(|e| !is_lease(e)).collect();
    assert!(
        since.iter().all(|e| is_report(e) && e.code == 200),
        "{:#?}",
        since.iter().map(|e| line(e)).collect::<Vec<_>>()
    );
    let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
    for pair in since.windows(2) {
        assert_eq!(version(&pair[1].body), version(&pair[0].reply));
    }
    agent.check()
}

fn a_watched_node_that_is_deleted_is_back_at_once(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("missed")?;
    let mut agent = watching(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let before = settled(cluster, &cluster.api, &node)?;
    let begun = Instant::now();
    cluster.delete_node(&node.name)?;
    let after = wait_until("another Node", SOON, || {
        let found = cluster.get_node(&node.name)?;
        if uid(&found) == uid(&before) { Err("it is the old one".to_owned()) } else { Ok(found) }
    })?;
    let spent = begun.elapsed();
    eprintln!("  back after {} ms", spent.as_millis());
    assert!(spent < AT_ONCE && !uid(&after).is_empty(), "{spent:?}");
    wait_until_ready(cluster, &node)?;
    settled(cluster, &cluster.api, &node)?;
    assert_eq!(cluster.api.watches(|e| e.user == node.user)?.len(), 1, "it goes on");
    agent.check()
}

fn a_watch_begins_again_over_a_server_that_restarted_and_over_each_connection_that_goaway_ends(
    cluster: &Cluster,
) -> Result<()> {
    let api = cluster.api_server_with(&["--goaway-chance=0.02"])?;
    let proxy = Proxy::forward(api.port)?;
    let node = cluster.node_at(&api, "moving", Credential::Valid)?;
    // Reports make the requests one of which in fifty is answered with GOAWAY.
    let launch = watching(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?);
    let mut agent = launch.set("nodeStatusReportFrequency", "1s").start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_watches(&api, &node, 1)?;
    wait_until("another connection", Duration::from_secs(600), || match proxy.accepted() {
        0..2 => Err("there is one".to_owned()),
        _ => Ok(()),
    })?;
    // The first pause of a watch that lived for less than some minutes is ten seconds.
    patiently(&api, &node, 2)?;
    restores_its_label(cluster, &node)?;
    let watches = api.watches(|e| e.user == node.user)?.len();
    api.restart()?;
    patiently(&api, &node, watches + 1)?;
    restores_its_label(cluster, &node)?;
    assert_eq!(agent.count_lines("watching the Node")?, 0, "{}", agent.said()?);
    agent.check()
}

/// The pause before the next watch grows with each GOAWAY, which comes by chance.
fn patiently(api: &ApiServer, node: &NodeIdentity, count: usize) -> Result<()> {
    (0..20).find(|_| wait_for_watches(api, node, count).is_ok()).map(drop).ok_or("no further watch began".into())
}

/// Nobody waits for a watch: renewals find out that nothing comes over it any more.
fn a_watch_over_a_dead_connection_is_begun_over_the_next(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let node = cluster.node("cut-off")?;
    let mut agent = watching(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    settled(cluster, &cluster.api, &node)?;
    assert_eq!(proxy.accepted(), 1, "one connection carries the watch and all else");
    proxy.stall();
    let stalled_us = now_us();
    wait_for_requests(&cluster.api, &node, "renewals over another connection", SOON + SOON, |all| {
        all.iter().filter(|e| is_renewal(e) && e.received_at_us > stalled_us).count() >= 2
    })?;
    wait_for_watches(&cluster.api, &node, 2).or_else(|_| wait_for_watches(&cluster.api, &node, 2))?;
    let spent = restores_its_label(cluster, &node)?;
    assert!(spent < AT_ONCE, "{spent:?}");
    assert_eq!(proxy.accepted(), 2);
    agent.check()
}
