//! Fifty agents and one API server that goes away and comes back: nobody may be run over.

use super::super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::super::cluster::{AuditEntry, Cluster, Credential, NodeIdentity, Result, Validity, wait_until};
use super::super::requests::{is_renewal, lines, now_us};
use super::Case;
use super::site::Site;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const AGENTS: usize = 50;
/// Lease and status; what happened meanwhile is told later.
const REQUESTS_EACH: usize = 2;
/// Within half a second: in step it would be all of them, evenly spread over their longest pause four.
const AT_ONCE: usize = AGENTS * 7 / 10;
const OUTAGE: Duration = Duration::from_secs(20);
/// Enough for fifty starts on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    cases![a_server_that_restarts_under_fifty_agents_is_asked_twice_by_each_and_not_by_all_at_once]
}

fn a_server_that_restarts_under_fifty_agents_is_asked_twice_by_each_and_not_by_all_at_once(
    cluster: &Cluster,
) -> Result<()> {
    let (site, api) = (Site::new(cluster)?, cluster.api_server(Validity::Now)?);
    let nodes: Vec<NodeIdentity> =
        (0..AGENTS).map(|_| cluster.node_at(&api, "fleet", Credential::Valid)).collect::<Result<_>>()?;
    let (key, eviction_hard) = ROOM_ON_DISK;
    let launch = |node| Launch::with_defaults(node).set(key, eviction_hard);
    let start = |node| site.launch(&api, node, launch(node))?.start(cluster);
    let mut agents: Vec<Nodepulse> = nodes.iter().map(start).collect::<Result<_>>()?;
    let of_each = |since_us: u64, keep: fn(&AuditEntry) -> bool| -> Result<BTreeMap<String, Vec<AuditEntry>>> {
        let all = api.audit(|e| e.user.contains(":fleet-") && e.received_at_us > since_us && keep(e))?;
        let mut sorted: BTreeMap<String, Vec<AuditEntry>> = BTreeMap::new();
        all.into_iter().for_each(|e| sorted.entry(e.user.clone()).or_default().push(e));
        Ok(sorted)
    };
    let renewed_by_all = |since_us: u64| {
        wait_until("a renewal of every agent", PATIENCE, || match of_each(since_us, is_renewal)?.len() {
            AGENTS => Ok(()),
            some => Err(format!("{some} have renewed")),
        })
    };
    renewed_by_all(0)?;
    api.stop();
    let stopped = Instant::now();
    wait_until("the end of the outage", PATIENCE, || {
        if stopped.elapsed() >= OUTAGE { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    // A server that begins to listen before it can answer collects requests, and answers them all at once; what is judged
    // here is when they come.
    site.turn_away(api.port)?;
    api.restart()?;
    let back_us = now_us();
    site.let_through(api.port)?;
    renewed_by_all(back_us)?;
    let since = of_each(back_us, |_| true)?;
    let first_us = since.values().flatten().map(|e| e.received_at_us).min().unwrap_or(back_us);
    wait_until("ten seconds since the first request", PATIENCE, || {
        if now_us() > first_us + 10_500_000 { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let mut when_ms: Vec<u64> = Vec::new();
    for (user, requests) in of_each(back_us, |_| true)? {
        let early: Vec<AuditEntry> =
            requests.into_iter().filter(|e| e.received_at_us < first_us + 10_000_000).collect();
        let bodies: Vec<String> = early.iter().map(|e| e.body.to_string()).collect();
        // What the controllers make of its return is looked at once, when the watch tells.
        let looks = early.iter().filter(|e| e.verb == "get" && e.uri.contains("/nodes/")).count();
        assert!(looks <= 1 && early.len() - looks <= REQUESTS_EACH, "{user} asked {:#?}: {bodies:#?}", lines(&early));
        when_ms.extend(early.first().map(|e| (e.received_at_us - first_us) / 1000));
    }
    when_ms.sort_unstable();
    let fullest = when_ms.iter().map(|start| when_ms.iter().filter(|at| (*start..start + 500).contains(*at)).count());
    let fullest = fullest.max().unwrap_or_default();
    eprintln!("  fifty agents came back within {} ms, at most {fullest} in half a second", when_ms[AGENTS - 1]);
    assert_eq!(when_ms.len(), AGENTS);
    assert!(fullest <= AT_ONCE, "{fullest} within half a second: {when_ms:?}");
    agents.iter_mut().try_for_each(Nodepulse::check)
}
