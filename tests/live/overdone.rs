//! A Node of which others made more than a megabyte (D4).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Result, node_path};
use super::super::trials::Case;
use super::{SOON, is_renewal, line, now_us, status_of, wait_for_node, wait_for_requests, wait_until_ready};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![&[], a_node_of_more_than_a_megabyte_keeps_its_lease_and_its_status]
}

/// `evictionHard` under which there is memory enough, or too little.
const CALM: &str = "{memory.available: 1Mi, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}";
const PRESSED: &str = "{memory.available: 8Ti, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}";

fn start(cluster: &Cluster, node: &NodeIdentity, eviction_hard: &str) -> Result<Nodepulse> {
    let launch = Launch::quick(node).set("evictionPressureTransitionPeriod", "1s").set("evictionHard", eviction_hard);
    launch.start(cluster)
}

fn says(cluster: &Cluster, node: &NodeIdentity, kind: &str, status: &str) -> Result<()> {
    let is_so = |found: &Value| (status_of(found, kind) == status).then_some(());
    wait_for_node(cluster, node, &format!("{kind} {status}"), 2 * SOON, is_so)
}

fn peak_kib(agent: &Nodepulse) -> Result<u64> {
    let pid = agent.pid().ok_or("it does not run")?;
    let text = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| line.to_owned())
}

fn longest_gap_ms(all: &[AuditEntry], since_us: u64) -> u64 {
    let times: Vec<u64> = all.iter().filter(|e| is_renewal(e)).map(|e| e.received_at_us).collect();
    times.windows(2).filter(|two| two[1] > since_us).map(|two| (two[1] - two[0]) / 1000).max().unwrap_or(u64::MAX)
}

/// D4. No more than 256 KiB of annotations fit an object, and in JSON six bytes stand for one of these.
fn a_node_of_more_than_a_megabyte_keeps_its_lease_and_its_status(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("huge")?;
    let mut agent = start(cluster, &node, CALM)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held:"], SOON)?;
    let (peace_kib, begun_us) = (peak_kib(&agent)?, now_us());
    cluster.patch_node(&node.name, &json!({"metadata": {"annotations": {"example.com/huge": "<".repeat(250_000)}}}))?;
    let long = cluster.kubectl(&["get", "--raw", &node_path(&node.name)])?.len();
    assert!(long > 1 << 20, "only {long} bytes");
    // While it runs: a change is reported, and so is what others make of it.
    agent.reload_with("evictionHard", PRESSED)?;
    says(cluster, &node, "MemoryPressure", "True")?;
    agent.wait_for_line(&["node-too-large:", "longer than 1048576 bytes"], SOON)?;
    agent.reload_with("evictionHard", CALM)?;
    says(cluster, &node, "MemoryPressure", "False")?;
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    cluster.patch_node_status(&node.name, &unknown)?;
    wait_for_node(cluster, &node, "Ready again", Duration::from_secs(75), |found| {
        (status_of(found, "Ready") == "True").then_some(())
    })?;
    let all = cluster.audit_of(&node)?;
    let gap_ms = longest_gap_ms(&all, begun_us);
    assert!(gap_ms < 4000, "{gap_ms} ms between renewals");
    let more_kib = peak_kib(&agent)?.saturating_sub(peace_kib);
    eprintln!("  a Node of {long} bytes: {more_kib} KiB more, {gap_ms} ms at most between renewals");
    assert!(more_kib < 4096, "{more_kib} KiB more than in peace");
    assert_eq!(agent.count_lines("failing:")?, 0, "{}", agent.said()?);
    // Another process, which knows nothing of it.
    assert_eq!(agent.stop()?, 0);
    let restarted_us = now_us();
    let mut agent = start(cluster, &node, PRESSED)?;
    says(cluster, &node, "MemoryPressure", "True")?;
    agent.wait_for_line(&["lease-held:"], SOON)?;
    // It looks at what the controllers make of that, and then no more.
    wait_for_requests(&cluster.api, &node, "three renewals without a look between", SOON, |all| {
        let since: Vec<bool> = all
            .iter()
            .filter(|e| e.received_at_us > restarted_us && (is_renewal(e) || line(e).starts_with("GET nodes")))
            .map(is_renewal)
            .collect();
        since.ends_with(&[true; 3])
    })?;
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    // What nobody needs is gone, and the next process reads it.
    assert_eq!(agent.stop()?, 0);
    cluster.patch_node(&node.name, &json!({"metadata": {"annotations": {"example.com/huge": null}}}))?;
    let mut agent = start(cluster, &node, CALM)?;
    says(cluster, &node, "MemoryPressure", "False")?;
    assert_eq!(agent.count_lines("node-too-large")?, 0);
    agent.check()
}
