//! A certificate and its successors: nobody notices the change, and each has one request.

use super::agent::Launch;
use super::cluster::{AuditEntry, Cluster, Credential, NodeIdentity, Result, wait_until};
use super::requests::{SOON, is_renewal, wait_until_ready};
use super::trials::Case;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longer than two lives of a certificate; `ROTATION_SECONDS` watches for longer.
const WATCHED: Duration = Duration::from_secs(90);
/// A Lease is renewed each second, and its duration is four: on a machine that has the time, nobody waits longer.
const LONGEST_GAP: Duration = Duration::from_millis(2500);

pub fn cases() -> Vec<Case> {
    cases![&[], certificates_of_seconds_follow_each_other_without_a_gap]
}

fn certificates_of_seconds_follow_each_other_without_a_gap(cluster: &Cluster) -> Result<()> {
    cluster.make_joinable()?;
    // Its first certificate ends before those that are issued: one that ends later would stay in use.
    let node = cluster.node_at(&cluster.api, "renewed", Credential::Ending(super::life() * 3 / 4))?;
    // Another that keeps its certificate: what both suffer is the machine's.
    let other = cluster.node("not-renewed")?;
    let mut beside = Launch::quick(&other).start(cluster)?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &other)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["certificate-renewed"], SOON)?;
    let began = Instant::now();
    let watched = std::env::var("ROTATION_SECONDS").ok().and_then(|text| text.parse().ok());
    let watched = watched.map_or(WATCHED, Duration::from_secs);
    wait_until("the end of the watch", watched * 2, || {
        agent.check()?;
        beside.check()?;
        if began.elapsed() >= watched { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let (all, asked) = (cluster.audit_of(&node)?, requests_of(cluster, &node)?);
    let lasted = began.elapsed();
    let longest = longest_gap(&all, &cluster.audit_of(&other)?)?;
    // From the first on each is due after 30 to 40 % of its life; as many as there is time for, and of these at least half.
    let life = super::life();
    let most = lasted.as_secs_f64() / (life.as_secs_f64() * 0.3) + 2.0;
    let due = watched.as_secs_f64() / life.as_secs_f64()..=most;
    assert!(due.contains(&(asked.len() as f64)), "{} requests in {watched:?}", asked.len());
    let names: BTreeSet<&String> = asked.iter().collect();
    assert_eq!(names.len(), asked.len(), "one request for each key: {asked:?}");
    wait_until("one connection", SOON, || match connections(agent.pid(), cluster.api.port)? {
        1 => Ok(()),
        many => Err(format!("there are {many}")),
    })?;
    assert!(!agent.said()?.contains("answered 401"), "a request with a certificate that had ended: {}", agent.said()?);
    agent.stop()?;
    beside.stop()?;
    let renewals = all.iter().filter(|e| is_renewal(e)).count();
    eprintln!(
        "  {}: {} certificates of {} s in {} s, {renewals} renewals of the Lease, the longest {} ms apart",
        node.name,
        asked.len(),
        life.as_secs(),
        lasted.as_secs(),
        longest.as_millis()
    );
    let folder = node.dir.join("state/identity");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|e| e.to_string())?
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .collect();
    files.sort();
    files.retain(|file| file != "pending.pem");
    assert_eq!(files, ["node.pem", "node.pem.old"]);
    Ok(())
}

/// The longest span without a renewal that the other node has not suffered as well: there one of half of it overlaps.
fn longest_gap(all: &[AuditEntry], others: &[AuditEntry]) -> Result<Duration> {
    let gaps = |all: &[AuditEntry]| -> Vec<(u64, u64)> {
        let renewals: Vec<u64> = all.iter().filter(|e| is_renewal(e)).map(|e| e.received_at_us).collect();
        renewals.windows(2).map(|pair| (pair[0], pair[1])).collect()
    };
    let (own, others) = (gaps(all), gaps(others));
    for (from, to) in &own {
        let overlapping = others.iter().filter(|(begin, end)| begin < to && from < end);
        let others_us = overlapping.map(|(begin, end)| end - begin).max().unwrap_or_default();
        let limit_us = (LONGEST_GAP.as_micros() as u64).max(others_us * 2);
        assert!(to - from <= limit_us, "{} us without a renewal, and {others_us} us of the other node", to - from);
    }
    let longest_us = own.iter().map(|(from, to)| to - from).max().ok_or("no renewals")?;
    Ok(Duration::from_micros(longest_us))
}

/// Names of the requests that the node made, in their order.
fn requests_of(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<String>> {
    let all = cluster.api.audit(|e| e.user == node.user && e.verb == "create" && e.uri.contains("signingrequests"))?;
    Ok(all.iter().map(|e| e.body["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
}

/// Connections of a process to a port that are open.
pub fn connections(pid: Option<i32>, port: u16) -> Result<usize> {
    let folder = format!("/proc/{}", pid.ok_or("it has ended")?);
    let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).map_err(|e| format!("{path}: {e}"));
    let files = std::fs::read_dir(format!("{folder}/fd")).map_err(|e| e.to_string())?;
    let names = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let own: BTreeSet<String> = names.map(|name| name.display().to_string()).collect();
    // Its own end and the other, the state (1: established), and in the tenth column the number of the socket.
    let is_open = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_there = columns.get(2).is_some_and(|end| end.ends_with(&format!(":{port:04X}")));
        let is_own = columns.get(9).is_some_and(|number| own.contains(&format!("socket:[{number}]")));
        is_there && is_own && columns.get(3) == Some(&"01")
    };
    Ok(read("net/tcp")?.lines().chain(read("net/tcp6")?.lines()).filter(is_open).count())
}
