//! One connection for everything (HTTP/2): what hangs on it, what ends it, and servers that do without.

use super::super::agent::Launch;
use super::super::cluster::{ApiServer, AuditEntry, Cluster, Credential, NodeIdentity, Result, wait_until};
use super::super::trials::Case;
use super::proxy::Proxy;
use super::{
    SOON, is_assertion, is_renewal, is_report, is_status_patch, line, lines, now_us, renew_time, status_of,
    wait_for_requests, wait_until_ready,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        over_http2_a_request_that_a_webhook_holds_up_costs_neither_a_renewal_nor_a_second_connection,
        over_http2_a_connection_that_is_dead_ends_with_the_first_request_that_hangs_on_it,
        over_http2_a_server_that_sends_its_clients_away_gets_every_request_once,
        over_http2_a_server_that_restarts_in_good_order_is_found_again,
        over_http2_what_nobody_reads_is_not_sent_unless_a_setting_says_so,
        a_server_without_http2_is_a_server,
    ]
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// The longest that the agent waits for an answer (TR-1).
const DEADLINE: Duration = Duration::from_secs(10);

/// Whatever the others speak (`make test-http1`).
fn over_http2(node: &NodeIdentity) -> Launch<'_> {
    Launch::quick(node).set("alpnProtocol", "h2")
}

fn renewals(all: &[AuditEntry]) -> Vec<u64> {
    all.iter().filter(|e| is_renewal(e)).map(|e| e.received_at_us).collect()
}

fn longest_gap_ms(times: &[u64]) -> u64 {
    times.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).max().unwrap_or_default()
}

/// Whatever is asked twice bears the same stamp twice.
fn assert_nothing_came_twice(all: &[AuditEntry]) {
    let stamps: Vec<Option<&str>> = all.iter().filter(|e| is_renewal(e)).map(renew_time).collect();
    let different: BTreeSet<Option<&str>> = stamps.iter().copied().collect();
    assert_eq!(stamps.len(), different.len(), "{stamps:#?}");
    // Each is made over another version of the Node, or says when it was made; but for one that differs in nothing, as in the
    // second of the report before it: pod CIDRs that appear are one PATCH whatever it says (UPD-1).
    let is_told = |e: &&AuditEntry| is_report(e) && e.body != json!({});
    let reports: Vec<String> = all.iter().filter(is_told).map(|e| e.body.to_string()).collect();
    let different: BTreeSet<&String> = reports.iter().collect();
    assert_eq!(reports.len(), different.len(), "{reports:#?}");
}

/// A webhook that never answers holds up what is written to the status of this Node, for as long as a webhook may.
struct SlowWebhook<'a> {
    cluster: &'a Cluster,
    name: String,
    _silent: TcpListener,
}

impl<'a> SlowWebhook<'a> {
    fn begin(cluster: &'a Cluster, node: &NodeIdentity) -> Result<Self> {
        let silent = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = silent.local_addr().map_err(|e| e.to_string())?.port();
        let name = node.name.clone();
        let hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore", "timeoutSeconds": 30,
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"]},
                ],
                "matchConditions": [{"name": "held", "expression": format!("request.name == '{name}'")}],
            }],
        });
        cluster.api.admin.post(WEBHOOKS, &hook)?;
        Ok(Self { cluster, name, _silent: silent })
    }

    fn end(self) -> Result<()> {
        self.cluster.api.admin.delete(&format!("{WEBHOOKS}/{}", self.name)).map(drop)
    }
}

/// LSE-16: one request hangs, its connection does not.
fn over_http2_a_request_that_a_webhook_holds_up_costs_neither_a_renewal_nor_a_second_connection(
    cluster: &Cluster,
) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let node = cluster.node("held-up")?;
    let launch = over_http2(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).asserting("1s");
    let mut agent = launch.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let assertions = |all: &[AuditEntry]| all.iter().filter(|e| is_assertion(e)).count();
    wait_for_requests(&cluster.api, &node, "two assertions", SOON, |all| assertions(all) >= 2)?;
    let hook = SlowWebhook::begin(cluster, &node)?;
    // Which of the two gives up first, after as long a time, nobody can say.
    agent.wait_for_line(&["failing:", "NodeStatus failed"], SOON + 2 * DEADLINE)?;
    let all = cluster.audit_of(&node)?;
    let gap_ms = longest_gap_ms(&renewals(&all));
    assert!(gap_ms < 4000, "{gap_ms} ms without a renewal");
    assert_eq!(proxy.accepted(), 1, "one connection carries what hangs and what does not");
    hook.end()?;
    let ended_us = now_us();
    wait_for_requests(&cluster.api, &node, "an assertion that is answered", SOON + DEADLINE, |all| {
        all.iter().any(|e| is_status_patch(e) && e.code == 200 && e.received_at_us > ended_us)
    })?;
    assert_eq!(proxy.accepted(), 1, "at most the stream was reset");
    let all = cluster.audit_of(&node)?;
    assert!(longest_gap_ms(&renewals(&all)) < 4000);
    assert_nothing_came_twice(&all);
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    agent.check()
}

/// LSE-16: nothing comes over it any more, and the first deadline that passes ends it for all.
fn over_http2_a_connection_that_is_dead_ends_with_the_first_request_that_hangs_on_it(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let node = cluster.node("dead-way")?;
    let mut agent = over_http2(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_requests(&cluster.api, &node, "two renewals", SOON, |all| renewals(all).len() >= 2)?;
    assert_eq!(proxy.accepted(), 1, "TR-1: everything over one kept connection");
    proxy.stall();
    let stalled_us = now_us();
    let all = wait_for_requests(&cluster.api, &node, "renewals over another connection", DEADLINE + SOON, |all| {
        renewals(all).iter().filter(|at_us| **at_us > stalled_us).count() >= 2
    })?;
    let gap_ms = longest_gap_ms(&renewals(&all));
    assert!(gap_ms < DEADLINE.as_millis() as u64 + 3000, "{gap_ms} ms without a renewal");
    assert_eq!(proxy.accepted(), 2);
    agent.check()
}

/// `--goaway-chance` at its highest: one answer in fifty says GOAWAY.
fn over_http2_a_server_that_sends_its_clients_away_gets_every_request_once(cluster: &Cluster) -> Result<()> {
    const CONNECTIONS: usize = 4;
    let api = cluster.api_server_with(&["--goaway-chance=0.02"])?;
    let proxy = Proxy::forward(api.port)?;
    let node = cluster.node_at(&api, "sent-away", Credential::Valid)?;
    let launch = over_http2(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).asserting("1s");
    let mut agent = launch.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    // About a hundred requests for each; the chance that it takes five times as long is one in a thousand.
    wait_until("other connections", Duration::from_secs(900), || match proxy.accepted() {
        few if few < CONNECTIONS => Err(format!("{few} of {CONNECTIONS} so far")),
        _ => Ok(()),
    })?;
    let all = api.audit(|e| e.user == node.user)?;
    let before = renewals(&all).len();
    let all = wait_for_requests(&api, &node, "two renewals over the last one", SOON, |all| {
        renewals(all).len() >= before + 2
    })?;
    assert_nothing_came_twice(&all);
    let refused: Vec<String> = all.iter().skip_while(|e| !is_renewal(e)).filter(|e| e.code != 200).map(line).collect();
    // The control plane may write the Node after its first report: the next assertion is refused then, and learns it (D4).
    let is_meant = |line: &String| line.starts_with("POST events 201") || line == "PATCH nodes/status?timeout=10s 409";
    assert!(refused.iter().all(is_meant), "{refused:#?}");
    let gap_ms = longest_gap_ms(&renewals(&all));
    assert!(gap_ms < 4000, "{gap_ms} ms without a renewal");
    assert_eq!(agent.count_lines("failing:")?, 0, "{}", agent.said()?);
    agent.check()
}

fn over_http2_a_server_that_restarts_in_good_order_is_found_again(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server_with(&[])?;
    let node = cluster.node_at(&api, "restarted", Credential::Valid)?;
    let mut agent = over_http2(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held:"], SOON)?;
    api.restart()?;
    let restarted_us = now_us();
    let all = wait_for_requests(&api, &node, "two renewals since", SOON + DEADLINE, |all| {
        renewals(all).iter().filter(|at_us| **at_us > restarted_us).count() >= 2
    })?;
    assert_nothing_came_twice(&all);
    wait_until_ready(cluster, &node)?;
    agent.check()
}

/// Bytes above TCP, TLS included: three packets of IPv4 with timestamps add 156 to each renewal.
fn over_http2_what_nobody_reads_is_not_sent_unless_a_setting_says_so(cluster: &Cluster) -> Result<()> {
    // A multiple of those of which one shows the Lease.
    const MANY: usize = 24;
    let mut mean_bytes = Vec::new();
    let ways = [("h2", "true", true), ("h2", "true", false), ("h2", "false", false), ("http/1.1", "true", false)];
    for (protocol, zero_window, is_watched) in ways {
        let proxy = Proxy::forward(cluster.api.port)?;
        let node = cluster.node(&format!("window-{}", mean_bytes.len()))?;
        let launch = Launch::quick(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).set("alpnProtocol", protocol);
        let launch = launch.set("http2ZeroWindow", zero_window).set("nodeStatusUpdateFrequency", "1h");
        // Renewals and nothing else.
        let launch = if is_watched { launch } else { launch.asserting("1h") };
        let mut agent = launch.start(cluster)?;
        let count = |many: usize| {
            let enough = |all: &[AuditEntry]| renewals(all).len() >= many;
            let all = wait_for_requests(&cluster.api, &node, &format!("{many} renewals"), 4 * SOON, enough)?;
            Ok::<_, String>((all.len(), renewals(&all).len(), proxy.moved_bytes()))
        };
        // After registration, what is told of it, and a table of fields that has been filled.
        let (_, first, before_bytes) = count(10)?;
        let (all, last, after_bytes) = count(first + MANY)?;
        let bytes = (after_bytes - before_bytes) / (last - first) as u64;
        eprintln!(
            "  {protocol}, zero window {zero_window}, watched {is_watched}: {bytes} bytes a renewal above TCP ({} of {all})",
            last - first
        );
        mean_bytes.push(bytes);
        assert_nothing_came_twice(&cluster.audit_of(&node)?);
        agent.check()?;
    }
    // Of what is not watched each second renewal tests who holds the Lease (D10).
    let [watched, saved, read, http1] = mean_bytes[..] else { return Err(format!("{mean_bytes:?}")) };
    assert!(watched + 30 < saved && saved + 100 < read && read < http1, "{mean_bytes:?}");
    Ok(())
}

fn a_server_without_http2_is_a_server(cluster: &Cluster) -> Result<()> {
    let api: ApiServer = cluster.api_server_with(&["--disable-http2-serving=true"])?;
    let node = cluster.node_at(&api, "plainer", Credential::Valid)?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let all = wait_for_requests(&api, &node, "three renewals", SOON, |all| renewals(all).len() >= 3)?;
    assert!(lines(&all).iter().all(|line| !line.ends_with(" 0")), "{:#?}", lines(&all));
    // Whoever insists on HTTP/2 is told.
    let other = cluster.node_at(&api, "insisting", Credential::Valid)?;
    let mut insisting = Launch::quick(&other).set("alpnProtocol", "h2").start(cluster)?;
    insisting.wait_for_line(&["alpnProtocol"], SOON)?;
    agent.check()
}
