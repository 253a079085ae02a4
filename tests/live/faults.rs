//! What breaks between the agent and its server, and that it is whole again by itself (TR-7, LSE-16).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::apiserver::free_port;
use super::super::cluster::{AuditEntry, Cluster, Credential, NodeIdentity, Result, Validity, condition, wait_until};
use super::super::trials::Case;
use super::proxy::{Manner, Proxy};
use super::{
    SOON, is_event, is_lease, is_renewal, is_status_patch, line, lines, now_us, status_of, wait_for_requests,
    wait_until_ready,
};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_machine_that_was_suspended_is_ready_again_with_two_requests,
        a_frozen_server_costs_time_and_nothing_else,
        a_killed_server_is_found_again_on_its_port,
        a_status_that_hangs_does_not_delay_the_lease,
        a_connection_that_is_cut_is_opened_again_at_once,
        a_server_that_is_not_there_at_the_start_is_waited_for,
    ]
}

/// The API server came back under the agent: Node and Lease are as they should be.
fn wait_for_recovery(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse, since_us: u64) -> Result<()> {
    wait_until("a renewal after the fault", Duration::from_secs(25), || {
        let renewed = cluster.get_lease(&node.name)?["spec"]["renewTime"].clone();
        let renewed_us = renewed.as_str().and_then(super::super::cluster::audit::micros).unwrap_or_default();
        if renewed_us > since_us { Ok(()) } else { Err(format!("the last one is of {renewed}")) }
    })?;
    wait_until_ready(cluster, node)?;
    agent.check()
}

/// PRS-7 and D4: the controller gave it up, and one Lease and one report later nothing is left of that.
fn a_machine_that_was_suspended_is_ready_again_with_two_requests(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("suspended")?;
    let mut agent = Launch::with_defaults(&node).start(cluster)?;
    let before = wait_until_ready(cluster, &node)?;
    // The server may have the Lease before the agent knows.
    agent.wait_for_line(&["lease-held:"], SOON)?;
    agent.freeze()?;
    let frozen = Instant::now();
    cluster.wait_for_condition(&node.name, "Ready", "Unknown", Duration::from_secs(30))?;
    // The gap after which the agent must assume the worst is 15 s (D4), and this controller's patience less.
    wait_until("a gap of 16 s", Duration::from_secs(20), || {
        if frozen.elapsed() > Duration::from_secs(16) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let thawed_us = now_us();
    agent.thaw()?;
    cluster.wait_for_condition(&node.name, "Ready", "True", Duration::from_secs(3))?;
    let is_after = |e: &&AuditEntry| e.received_at_us > thawed_us && !is_event(e);
    let all = wait_for_requests(&cluster.api, &node, "two requests since", SOON, |all| {
        all.iter().filter(is_after).count() >= 2
    })?;
    let since: Vec<&AuditEntry> = all.iter().filter(is_after).collect();
    // Sent in this order; over HTTP/2 both are under way at once, and the server looks at them in any.
    let mut first_two: Vec<String> = since.iter().take(2).map(|e| line(e)).collect();
    first_two.sort_unstable();
    assert_eq!(first_two, ["PATCH leases 200", "PATCH nodes/status?timeout=10s 200"]);
    // The answer brings its version alone.
    let sent = &since[usize::from(is_lease(since[0]))].body;
    let ready = condition(sent, "Ready").ok_or("no Ready in the report")?;
    assert_eq!((&ready["status"], &ready["reason"]), (&"True".into(), &"KubeletReady".into()), "{ready}");
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        let field = |node: &Value, field: &str| condition(node, kind).map(|c| c[field].clone());
        assert_eq!(field(sent, "status"), field(&before, "status"), "{kind}");
        assert_eq!(field(sent, "reason"), field(&before, "reason"), "{kind}");
    }
    agent.check()
}

fn a_frozen_server_costs_time_and_nothing_else(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node_at(&api, "waiting", Credential::Valid)?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    api.freeze()?;
    // The Lease, not an event: that one is told in its own time again.
    let failed = agent.wait_for_line(&["failing:", "Lease renewal failed"], Duration::from_secs(20))?;
    // Its own time is over, or that of another request over the same connection, just before.
    let reasons = ["no complete answer within", "nothing was answered over it for too long"];
    assert!(reasons.iter().any(|reason| failed.contains(reason)), "{failed}");
    let thawed_us = now_us();
    api.thaw()?;
    wait_for_recovery(cluster, &node, &mut agent, thawed_us)?;
    agent.wait_for_line(&["works again after"], SOON).map(drop)
}

fn a_killed_server_is_found_again_on_its_port(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node_at(&api, "bereft", Credential::Valid)?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    // Held, not only there: one whose creation was not answered is looked for first.
    agent.wait_for_line(&["lease-held:"], SOON)?;
    api.kill()?;
    let killed = Instant::now();
    // The Lease, not an event: a server that starts takes connections long before it answers, and loses no renewal by that.
    agent.wait_for_line(&["failing:", "Lease renewal failed"], SOON)?;
    // After a shorter one than a gap of five seconds (D4) there is nothing to report.
    wait_until("a gap of 6 s", SOON, || {
        if killed.elapsed() > Duration::from_secs(6) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let restarted_us = now_us();
    api.restart()?;
    wait_for_recovery(cluster, &node, &mut agent, restarted_us)?;
    agent.wait_for_line(&["uplink-restored:"], SOON)?;
    let is_new = |e: &&AuditEntry| {
        e.received_at_us > restarted_us && (is_lease(e) || is_status_patch(e)) && line(e).ends_with(" 200")
    };
    let all =
        wait_for_requests(&api, &node, "a report since", SOON, |all| all.iter().filter(is_new).any(is_status_patch))?;
    // A server that starts may do a renewal and answer it too late: then it is sent again, and the report waits for that.
    let since: Vec<&AuditEntry> = all.iter().filter(is_new).collect();
    let reported = since.iter().position(|e| is_status_patch(e)).ok_or("no report")?;
    let renewed = since[..reported].last().ok_or_else(|| format!("a report before the Lease: {:#?}", lines(&all)))?;
    let between_us = since[reported].received_at_us - renewed.received_at_us;
    assert!(reported <= 3 && between_us < 2_000_000, "{between_us} us: {:#?}\n{}", lines(&all), agent.said()?);
    // A repeated failure is one line, not one for each try.
    let failing = agent.count_lines("Lease renewal failed")?;
    assert!(failing <= 2, "{failing} lines for one outage:\n{}", agent.said()?);
    Ok(())
}

/// LSE-16 over HTTP/1.1; the same over HTTP/2 is in `http2`. A proxy between the two holds back what is on its way on one
/// connection; another one is not touched.
fn a_status_that_hangs_does_not_delay_the_lease(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let node = cluster.node("stalled")?;
    let launch = Launch::quick(&node)
        .kubeconfig(&node.kubeconfig_via(&proxy.url())?)
        .set("alpnProtocol", "http/1.1")
        .set("nodeLeaseDurationSeconds", "12")
        .asserting("1s");
    let mut agent = launch.start(cluster)?;
    let assertions = |all: &[AuditEntry]| all.iter().filter(|e| super::is_assertion(e)).count();
    wait_for_requests(&cluster.api, &node, "assertions every second", SOON, |all| assertions(all) >= 3)?;
    // Right after a renewal the next one is three seconds away, and an assertion one at most.
    let renewals = |all: &[AuditEntry]| all.iter().filter(|e| is_renewal(e)).count();
    let before = renewals(&cluster.audit_of(&node)?);
    wait_for_requests(&cluster.api, &node, "one more renewal", SOON, |all| renewals(all) > before)?;
    let connections = proxy.accepted();
    proxy.stall();
    let stalled_us = now_us();
    let three_more =
        |all: &[AuditEntry]| all.iter().filter(|e| is_renewal(e) && e.received_at_us > stalled_us).count() >= 2;
    let all = wait_for_requests(&cluster.api, &node, "two renewals past the hung status", SOON, three_more)?;
    let since: Vec<String> = all.iter().filter(|e| e.received_at_us > stalled_us).map(line).collect();
    // One may have been past the proxy when that fell silent.
    let passed = since.iter().take_while(|l| !l.starts_with("PATCH leases")).count();
    assert!(passed <= 1, "the status hangs: {since:#?}");
    assert!(since.iter().skip(passed).all(|l| l.starts_with("PATCH leases")), "the status hangs: {since:#?}");
    let times: Vec<u64> = all.iter().filter(|e| is_renewal(e)).map(|e| e.received_at_us).collect();
    let gaps_ms: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).collect();
    // The first of the two waits half a second for the connection that hangs.
    assert!(gaps_ms.iter().skip(1).all(|gap| *gap < 5000), "{gaps_ms:?} ms between renewals");
    assert_eq!(proxy.accepted(), connections + 1, "one more connection, for all that does not hang");
    proxy.release();
    let released_us = now_us();
    wait_for_requests(&cluster.api, &node, "the status that was held back", SOON, |all| {
        all.iter().any(|e| is_status_patch(e) && e.received_at_us >= stalled_us && e.completed_at_us >= released_us)
    })?;
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    agent.check()
}

fn a_connection_that_is_cut_is_opened_again_at_once(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let node = cluster.node("cut")?;
    let launch = Launch::quick(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?);
    let mut agent = launch.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let renewals = |all: &[AuditEntry]| all.iter().filter(|e| is_renewal(e)).count();
    wait_for_requests(&cluster.api, &node, "a renewal", SOON, |all| renewals(all) >= 1)?;
    assert_eq!(proxy.accepted(), 1, "TR-1: everything over one kept connection");
    for _ in 0..3 {
        let before = renewals(&cluster.audit_of(&node)?);
        proxy.cut();
        wait_for_requests(&cluster.api, &node, "two more renewals", SOON, |all| renewals(all) >= before + 2)?;
    }
    let all = cluster.audit_of(&node)?;
    let times: Vec<u64> = all.iter().filter(|e| is_renewal(e)).map(|e| e.received_at_us).collect();
    let longest_ms = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).max().unwrap_or_default();
    assert!(longest_ms < 4000, "{longest_ms} ms without a renewal");
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    agent.check()
}

fn a_server_that_is_not_there_at_the_start_is_waited_for(cluster: &Cluster) -> Result<()> {
    let port = free_port()?;
    let node = cluster.node("first")?;
    let launch = Launch::quick(&node).kubeconfig(&node.kubeconfig_via(&format!("https://127.0.0.1:{port}"))?);
    let mut agent = launch.start(cluster)?;
    agent.wait_for_line(&["registration fail", "cannot connect"], SOON)?;
    let _proxy = Proxy::start((Ipv4Addr::LOCALHOST, port).into(), cluster.api.port, Manner::Forward)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["registration works again"], SOON).map(drop)
}
