//! The first minute and the last second: what is sent by default, and that the end is quiet (ST-*, SHD-3).

use super::super::agent::{Launch, ROOM_ON_DISK};
use super::super::cluster::{Cluster, Result, wait_until};
use super::super::trials::Case;
use super::{SOON, is_event, is_lease, is_renewal, line, lines, now_us, wait_for_requests, wait_until_ready};
use std::collections::BTreeMap;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        the_first_half_minute_by_default_is_a_handful_of_requests,
        sigterm_ends_it_at_once_and_writes_nothing,
        a_second_start_writes_only_what_a_start_needs,
    ]
}

fn the_first_half_minute_by_default_is_a_handful_of_requests(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("default")?;
    let _agent = Launch::with_defaults(&node).start(cluster)?;
    let within = Duration::from_secs(40);
    let requests = wait_for_requests(&cluster.api, &node, "two renewals", within, |all| {
        all.iter().filter(|e| is_renewal(e)).count() >= 2
    })?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in &requests {
        *counts.entry(line(request)).or_default() += 1;
    }
    let mut count = |line: &str| counts.remove(line).unwrap_or_default();
    assert_eq!(count("GET /version 200"), 1);
    assert_eq!(count("POST nodes 201"), 1);
    assert_eq!(count("PATCH nodes 200"), 1);
    assert_eq!(count("GET leases?timeout=10s 404"), 1);
    assert_eq!(count("POST leases?timeout=10s 201"), 1);
    assert_eq!(count("PATCH leases 200"), 2);
    // Starting and three pressures that a new Node does not have.
    assert_eq!(count("POST events 201"), 4);
    // The first report, and one more if the pod CIDR was not in its answer.
    let reports = count("PATCH nodes/status?timeout=10s 200");
    assert!((1..=2).contains(&reports), "{reports} reports");
    // What the controllers wrote meanwhile, once it is watched.
    let looks = count("GET nodes?timeout=10s 200");
    assert!(looks <= 2, "{looks} looks");
    assert!(counts.is_empty(), "besides: {counts:?}");
    // ST-4: nothing before a tenth of a second, and then at once; LSE-4: a quarter of forty seconds.
    let created = requests.iter().find(|e| line(e) == "POST leases?timeout=10s 201").ok_or("no Lease")?;
    let renewals: Vec<_> = requests.iter().filter(|e| is_renewal(e)).collect();
    for (before, after) in [(created, renewals[0]), (renewals[0], renewals[1])] {
        let gap_ms = after.received_at_us.saturating_sub(before.completed_at_us) / 1000;
        assert!((9_900..12_000).contains(&gap_ms), "{gap_ms} ms between renewals");
    }
    Ok(())
}

fn sigterm_ends_it_at_once_and_writes_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("leaving")?;
    let mut agent = Launch::with_defaults(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_requests(&cluster.api, &node, "Lease and four events", SOON, |all| {
        all.iter().any(|e| is_lease(e) && e.code == 201) && all.iter().filter(|e| is_event(e)).count() >= 4
    })?;
    let before = cluster.get_node(&node.name)?;
    let asked_at_us = now_us();
    assert_eq!(agent.stop()?, 0);
    assert!(agent.said()?.contains("stopping:"), "{}", agent.said()?);
    // The test's own request is in the log: so is everything before it.
    node.client.get(&super::super::cluster::node_path(&node.name))?;
    let after = wait_for_requests(&cluster.api, &node, "the test's request", SOON, |all| {
        all.iter().any(|e| e.user_agent == "cluster-test")
    })?;
    let late: Vec<_> =
        after.iter().filter(|e| e.received_at_us > asked_at_us && e.user_agent != "cluster-test").cloned().collect();
    assert!(late.is_empty(), "SHD-3: {:#?}", lines(&late));
    assert!(cluster.find_lease(&node.name)?.is_some(), "LSE-1: the Lease runs out by itself");
    let conditions = |node: &serde_json::Value| node["status"]["conditions"].clone();
    assert_eq!(conditions(&cluster.get_node(&node.name)?), conditions(&before));
    Ok(())
}

fn a_second_start_writes_only_what_a_start_needs(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("restarted")?;
    let quick = || Launch::quick(&node).set(ROOM_ON_DISK.0, ROOM_ON_DISK.1);
    let mut first = quick().start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    let lease = cluster.get_lease(&node.name)?;
    assert_eq!(first.stop()?, 0);
    let old = cluster.audit_of(&node)?.len();
    let _second = quick().start(cluster)?;
    let all = wait_for_requests(&cluster.api, &node, "three renewals of the second", SOON, |all| {
        all.iter().skip(old).filter(|e| is_renewal(e)).count() >= 3
    })?;
    let leases: Vec<String> = all[old..].iter().filter(|e| is_lease(e)).map(line).collect();
    assert_eq!(leases[0], "GET leases?timeout=10s 200", "{leases:#?}");
    assert!(leases[1..].iter().all(|l| l == "PATCH leases 200"), "{leases:#?}");
    let after = cluster.get_lease(&node.name)?;
    assert_eq!(after["metadata"]["uid"], lease["metadata"]["uid"], "the Lease is the same");
    assert!(after["spec"]["renewTime"].as_str() > lease["spec"]["renewTime"].as_str());
    // PRS-0: the Node of a registration is built from nothing, so its pressures are new each time. Ready was True.
    let events: Vec<_> = all[old..].iter().filter(|e| is_event(e)).map(|e| e.body["reason"].clone()).collect();
    assert_eq!(events, ["Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
    Ok(())
}
