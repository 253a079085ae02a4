//! The Lease: what is in it, how it is renewed, and what the controller makes of it (LSE-*, D2, D3, D5).

use super::super::agent::Launch;
use super::super::cluster::audit::micros;
use super::super::cluster::{AuditEntry, Client, Cluster, Credential, NodeIdentity, Result, condition, wait_until};
use super::super::trials::Case;
use super::{
    GRACE, SOON, is_lease, is_renewal, line, lines, renew_time, status_of, uid, wait_for_requests, wait_until_ready,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_renewed_lease_keeps_the_node_ready_for_many_grace_periods,
        a_lease_says_who_holds_it_and_belongs_to_the_node,
        a_renewal_is_sixty_bytes_and_only_moves_forward,
        a_renewal_is_called_in_the_audit_log_what_it_calls_itself,
        every_answer_of_the_server_repeats_the_audit_id_of_its_request,
        a_deleted_lease_is_created_again_with_its_owner,
        a_lease_that_somebody_else_took_is_taken_back,
        a_duration_that_somebody_else_wrote_is_ours_again_within_thirty_renewals,
        a_lease_from_the_future_is_renewed_past_it,
        a_lease_at_the_end_of_all_stamps_leaves_its_node_ready,
        a_lease_that_is_written_into_the_year_9999_while_it_is_renewed_costs_a_minute_at_most,
    ]
}

/// Lease requests of a node once it has renewed so many times.
fn renewals(cluster: &Cluster, node: &NodeIdentity, many: usize) -> Result<Vec<AuditEntry>> {
    let what = format!("{many} renewals");
    let enough = |all: &[AuditEntry]| all.iter().filter(|e| is_renewal(e)).count() >= many;
    let all = wait_for_requests(&cluster.api, node, &what, SOON, enough)?;
    Ok(all.into_iter().filter(is_lease).collect())
}

fn a_renewed_lease_keeps_the_node_ready_for_many_grace_periods(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("steady")?;
    // Status is as rare as by default: only the Lease can keep this Node Ready.
    let launch = Launch::with_defaults(&node).set("nodeLeaseDurationSeconds", "12");
    let _agent = launch.start(cluster)?;
    let first = wait_until_ready(cluster, &node)?;
    let since = |node: &Value| condition(node, "Ready").map(|c| c["lastTransitionTime"].clone());
    let began = Instant::now();
    wait_until("three grace periods to pass", 4 * GRACE, || {
        let found = cluster.get_node(&node.name)?;
        if status_of(&found, "Ready") != "True" || since(&found) != since(&first) {
            return Ok(Err(format!("after {:?} it is {:?}", began.elapsed(), condition(&found, "Ready"))));
        }
        if began.elapsed() > 3 * GRACE { Ok(Ok(())) } else { Err("they have not".to_owned()) }
    })??;
    let reports = cluster.audit_of(&node)?.iter().filter(|e| super::is_status_patch(e)).count();
    assert!(reports <= 3, "{reports} PATCHes of the status in {GRACE:?} * 3: the Lease was not alone");
    Ok(())
}

fn a_lease_says_who_holds_it_and_belongs_to_the_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("holder")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = renewals(cluster, &node, 1)?;
    let created = requests.iter().find(|e| e.verb == "create").ok_or("no POST of a Lease")?;
    assert_eq!(line(created), "POST leases?timeout=10s 201");
    let mut body = created.body.clone();
    let renewed = body["spec"]["renewTime"].take();
    let expected = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": node.name, "namespace": "kube-node-lease",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid(&cluster.get_node(&node.name)?)},
            ],
        },
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 4, "leaseTransitions": 0, "renewTime": null},
    });
    let mut found = body;
    if let Some(metadata) = found["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    assert_eq!(found, expected);
    // LSE-3, and D2: the Lease is there as soon as the Node is.
    let renewed = renewed.as_str().unwrap_or_default();
    assert_eq!(renewed.len(), "2026-01-01T00:00:00.123456Z".len(), "{renewed}");
    let registered = cluster.audit_of(&node)?.into_iter().find(|e| line(e) == "POST nodes 201").ok_or("no POST")?;
    let after_ms = created.received_at_us.saturating_sub(registered.completed_at_us) / 1000;
    assert!(after_ms < 2000, "the Lease came {after_ms} ms after the Node");
    Ok(())
}

fn a_renewal_is_sixty_bytes_and_only_moves_forward(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("renewed")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = renewals(cluster, &node, 5)?;
    let renewals: Vec<&AuditEntry> = requests.iter().filter(|e| is_renewal(e)).collect();
    assert!(requests.iter().all(|e| e.verb != "update"), "D3: {:#?}", lines(&requests));
    let times: Vec<&str> = renewals.iter().copied().filter_map(renew_time).collect();
    assert!(times.len() == renewals.len() && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    // The first one strips what the server wrote about who wrote what; from then on only the time is sent.
    assert_eq!(renewals[0].body["metadata"], json!({"managedFields": [{}]}));
    for renewal in &renewals[1..] {
        let body = renewal.body.to_string();
        // And each second time that the Lease is still held is tested (D10).
        let tested = json!({"op": "test", "path": "/spec/leaseTransitions", "value": 0});
        match renewal.body.as_array() {
            Some(patch) => {
                assert!(body.len() <= 140 && patch.len() == 2 && patch[0] == tested, "{} bytes: {body}", body.len())
            }
            None => assert!(body.len() <= 60 && renewal.body.as_object().map(|o| o.len()) == Some(1), "{body}"),
        }
        assert_eq!(line(renewal), "PATCH leases 200");
    }
    let stored = cluster.get_lease(&node.name)?;
    assert_eq!(stored["metadata"]["managedFields"], Value::Null, "stripped, and it stays so: {stored}");
    assert_eq!(stored["spec"]["holderIdentity"], node.name.as_str());
    // LSE-4: a quarter of four seconds, up to 4 % late, from the answer to one to the next.
    for pair in renewals[1..].windows(2) {
        let gap_ms = pair[1].received_at_us.saturating_sub(pair[0].completed_at_us) / 1000;
        assert!((900..2500).contains(&gap_ms), "{gap_ms} ms between two renewals");
    }
    Ok(())
}

/// Twelve characters where the server would make a UUID, in the log and in the answer.
fn a_renewal_is_called_in_the_audit_log_what_it_calls_itself(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("called")?;
    let _agent = Launch::quick(&node).set("alpnProtocol", "http/1.1").start(cluster)?;
    renewals(cluster, &node, 4)?;
    let (ours, others): (Vec<_>, Vec<_>) = cluster.audit_of(&node)?.into_iter().partition(is_renewal);
    let ids: BTreeSet<&str> = ours.iter().chain(&others).map(|e| e.audit_id.as_str()).collect();
    assert!(ids.len() == 1 && ids.iter().all(|id| id.len() == 12), "one connection, one name: {ids:?}");
    // TR-4: over HTTP/1.1 a renewal is named by the others of its connection.
    assert!(ours.iter().all(|e| e.user_agent.is_empty()), "{ours:#?}");
    assert!(others.iter().all(|e| e.user_agent.starts_with("nodepulse/")), "{others:#?}");
    let other = cluster.node("calling")?;
    let _second = Launch::quick(&other).set("alpnProtocol", "h2").start(cluster)?;
    renewals(cluster, &other, 1)?;
    let of_other = cluster.audit_of(&other)?;
    assert!(of_other.iter().all(|e| e.user_agent.starts_with("nodepulse/")), "over HTTP/2 it is a byte: {of_other:#?}");
    let theirs = of_other.iter().map(|e| e.audit_id.clone()).collect::<BTreeSet<String>>();
    assert!(theirs.len() == 1 && theirs.iter().all(|id| !ids.contains(id.as_str())), "{theirs:?}");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", node.name);
    let named = cluster.api.admin.clone().with_header("Audit-ID", "abcdefghij-_").request("GET", &path, None)?;
    assert_eq!(named.header("Audit-Id"), "abcdefghij-_");
    let unnamed = cluster.api.admin.request("GET", &path, None)?;
    assert_eq!(unnamed.header("Audit-Id").len(), 36, "what the server would make costs each answer 24 bytes more");
    Ok(())
}

/// D14 rests on this: on the paths that are used, with every code that the server is easily brought to.
fn every_answer_of_the_server_repeats_the_audit_id_of_its_request(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("echoed")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    renewals(cluster, &node, 1)?;
    let expired = cluster.node_at(&cluster.api, "outdated", Credential::OtherClientAuthority)?;
    let named = |client: &Client| client.clone().with_header("Audit-ID", "zyxwvutsr-_9");
    let (admin, own, nobody) = (named(&cluster.api.admin), named(&node.client), named(&expired.client));
    let (nodes, leases) = ("/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let events = "/api/v1/namespaces/default/events";
    let (this, other) = (format!("{nodes}/{}", node.name), format!("{nodes}/nobody"));
    let object = |name: &str| json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}});
    let attributes = json!({"resourceAttributes": {"verb": "get", "resource": "nodes"}});
    let review =
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": attributes});
    let (existing, nameless, text) = (object(&node.name), object("_"), json!("a text"));
    const JSON: &str = "application/json";
    for (client, method, path, body, code) in [
        (&own, "GET", "/version", None, 200),
        (&own, "GET", &*this, None, 200),
        (&own, "GET", &*format!("{leases}/{}", node.name), None, 200),
        (&own, "POST", reviews, Some((JSON, &review)), 201),
        (&nobody, "GET", &*this, None, 401),
        (&own, "GET", &*other, None, 403),
        (&admin, "GET", &*other, None, 404),
        (&admin, "GET", "/nowhere", None, 404),
        (&admin, "PUT", events, Some((JSON, &text)), 405),
        (&admin, "POST", nodes, Some((JSON, &existing)), 409),
        (&admin, "POST", nodes, Some(("text/plain", &text)), 415),
        (&admin, "POST", nodes, Some((JSON, &nameless)), 422),
        (&admin, "POST", events, Some((JSON, &text)), 400),
    ] {
        let reply = client.request(method, path, body)?;
        assert_eq!(reply.status, code, "{method} {path}: {reply:?}");
        assert_eq!(reply.header("Audit-Id"), "zyxwvutsr-_9", "{method} {path}: {reply:?}");
        assert_eq!(
            reply.body["kind"] == "Status",
            code >= 400 && path != "/nowhere",
            "{method} {path}: {}",
            reply.body
        );
    }
    Ok(())
}

fn a_deleted_lease_is_created_again_with_its_owner(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("robbed")?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    renewals(cluster, &node, 2)?;
    let before = cluster.get_lease(&node.name)?;
    cluster.delete_lease(&node.name)?;
    let after = wait_until("another Lease", SOON, || cluster.get_lease(&node.name))?;
    assert_ne!(uid(&after), uid(&before));
    for part in ["holderIdentity", "leaseDurationSeconds"] {
        assert_eq!(after["spec"][part], before["spec"][part]);
    }
    assert_eq!(after["metadata"]["ownerReferences"], before["metadata"]["ownerReferences"]);
    assert!(after["spec"]["renewTime"].as_str() > before["spec"]["renewTime"].as_str());
    agent.wait_for_line(&["lease-missing:"], SOON)?;
    wait_until("a new Lease without managed fields", SOON, || {
        let fields = cluster.get_lease(&node.name)?["metadata"]["managedFields"].clone();
        if fields.is_null() { Ok(()) } else { Err(format!("they are {fields}")) }
    })?;
    let requests: Vec<String> = cluster.audit_of(&node)?.iter().filter(|e| is_lease(e)).map(line).collect();
    let missed = requests.iter().position(|l| l == "PATCH leases 404").ok_or("no PATCH met the gap")?;
    assert_eq!(requests.get(missed + 1).map(String::as_str), Some("POST leases?timeout=10s 201"), "{requests:#?}");
    Ok(())
}

fn a_lease_that_somebody_else_took_is_taken_back(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("usurped")?;
    let strange = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node.name, "namespace": "kube-node-lease", "labels": {"example.com/room": "cellar"}},
        "spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 900},
    });
    cluster.api.admin.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &strange)?;
    let _agent = Launch::quick(&node).start(cluster)?;
    renewals(cluster, &node, 2)?;
    let lease = cluster.get_lease(&node.name)?;
    assert_eq!(lease["spec"]["holderIdentity"], node.name.as_str());
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid(&cluster.get_node(&node.name)?));
    assert_eq!(lease["metadata"]["labels"]["example.com/room"], "cellar", "what is not ours stays");
    Ok(())
}

fn a_duration_that_somebody_else_wrote_is_ours_again_within_thirty_renewals(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("stretched")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    renewals(cluster, &node, 1)?;
    cluster.patch_lease(&node.name, &json!({"spec": {"leaseDurationSeconds": 3600}}))?;
    let before = cluster.audit_of(&node)?.iter().filter(|e| is_renewal(e)).count();
    wait_until("the duration of before", 3 * SOON, || {
        let lease = cluster.get_lease(&node.name)?;
        let is_ours = lease["spec"]["leaseDurationSeconds"] == 4 && lease["metadata"]["managedFields"].is_null();
        if is_ours { Ok(()) } else { Err(lease.to_string()) }
    })?;
    let since = cluster.audit_of(&node)?.iter().filter(|e| is_renewal(e)).count() - before;
    // Where answers come without content each thirtieth shows it, and a look at the audit log comes a few late.
    assert!(since <= 30 + 4, "{since} renewals until then");
    Ok(())
}

/// D5: a board whose clock was ahead, and is right now, must not fall silent in the controller's eyes.
fn a_lease_from_the_future_is_renewed_past_it(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("early")?;
    let future = "2099-01-01T00:00:00.000000Z";
    let ahead = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node.name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 4, "renewTime": future},
    });
    cluster.api.admin.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &ahead)?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = renewals(cluster, &node, 4)?;
    let times: Vec<Option<u64>> = requests.iter().filter(|e| is_renewal(e)).map(|e| micros(renew_time(e)?)).collect();
    let first = micros(future);
    assert!(times[0] > first && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?} after {first:?}");
    let last = times.last().copied().flatten().unwrap_or_default();
    let past = Duration::from_micros(last.saturating_sub(first.unwrap_or_default()));
    assert!(past < Duration::from_secs(1), "no further ahead than it must: {past:?}");
    assert_eq!(status_of(&wait_until_ready(cluster, &node)?, "Ready"), "True");
    Ok(())
}

/// A Lease that somebody, or a server with a very wrong clock, dated so late that no later stamp can be written.
fn a_lease_at_the_end_of_all_stamps_leaves_its_node_ready(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("last")?;
    // Status is as rare as by default: only the Lease can keep this Node Ready.
    let launch = || Launch::with_defaults(&node).set("nodeLeaseDurationSeconds", "12");
    let mut agent = launch().start(cluster)?;
    renewals(cluster, &node, 1)?;
    agent.stop()?;
    cluster.patch_lease(&node.name, &json!({"spec": {"renewTime": "9999-12-31T23:59:59.999999Z"}}))?;
    // Once it has given its verdict, the controller has seen that Lease: nothing that is renewed can be later.
    cluster.wait_for_condition(&node.name, "Ready", "Unknown", 3 * GRACE)?;
    let _agent = launch().start(cluster)?;
    let first = wait_until_ready(cluster, &node)?;
    let since = |node: &Value| condition(node, "Ready").map(|c| c["lastTransitionTime"].clone());
    let began = Instant::now();
    wait_until("four grace periods to pass", 5 * GRACE, || {
        let found = cluster.get_node(&node.name)?;
        if status_of(&found, "Ready") != "True" || since(&found) != since(&first) {
            return Ok(Err(format!("after {:?} it is {:?}", began.elapsed(), condition(&found, "Ready"))));
        }
        if began.elapsed() > 4 * GRACE { Ok(Ok(())) } else { Err("they have not".to_owned()) }
    })??;
    let lease = cluster.get_lease(&node.name)?;
    let renewed = lease["spec"]["renewTime"].as_str().and_then(micros).ok_or("no renewTime")?;
    let age = Duration::from_micros(super::now_us().abs_diff(renewed));
    assert!(age < GRACE, "renewed {age:?} from now: {lease}");
    let reports = cluster.audit_of(&node)?.iter().filter(|e| super::is_status_patch(e)).count();
    assert!(reports <= 8, "{reports} PATCHes of the status by two processes: the Lease was not alone");
    Ok(())
}

/// The same, by somebody who writes it between two renewals until the controller has seen it.
fn a_lease_that_is_written_into_the_year_9999_while_it_is_renewed_costs_a_minute_at_most(
    cluster: &Cluster,
) -> Result<()> {
    /// The controller looks at each Node every five seconds.
    const SEEN: Duration = Duration::from_secs(8);
    /// From the verdict to the next assertion, which is a minute after the one before, and the report.
    const REPAIRED: Duration = Duration::from_secs(75);
    let node = cluster.node("postponed")?;
    let launch = Launch::with_defaults(&node).set("nodeLeaseDurationSeconds", "12");
    let mut agent = launch.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    renewals(cluster, &node, 1)?;
    let ready = |node: &Value| condition(node, "Ready").cloned().unwrap_or_default();
    let last = json!({"spec": {"renewTime": "9999-12-31T23:59:59.999999Z"}});
    let began = Instant::now();
    while began.elapsed() < SEEN {
        cluster.patch_lease(&node.name, &last)?;
    }
    // Whether the controller's patience ends before the next assertion is chance; that it begins anew then is not.
    let mut unknown = Vec::new();
    let watched = Instant::now();
    wait_until("the assertion to come and four grace periods to pass", REPAIRED + 5 * GRACE, || {
        let found = cluster.get_node(&node.name)?;
        if status_of(&found, "Ready") != "True" {
            unknown.push(watched.elapsed());
        }
        if watched.elapsed() > REPAIRED + 4 * GRACE { Ok(()) } else { Err(format!("{}", ready(&found))) }
    })?;
    let span = unknown.last().copied().unwrap_or_default().saturating_sub(unknown.first().copied().unwrap_or_default());
    eprintln!("  a Lease of the year 9999 that is written over: Unknown for {:.1} s", span.as_secs_f64());
    assert!(unknown.last().is_none_or(|last| *last < REPAIRED + GRACE), "Unknown after {unknown:?}");
    assert!(span < Duration::from_secs(65), "Unknown for {span:?}");
    let renewed =
        cluster.get_lease(&node.name)?["spec"]["renewTime"].as_str().and_then(micros).ok_or("no renewTime")?;
    let age = Duration::from_micros(super::now_us().abs_diff(renewed));
    assert!(age < GRACE, "renewed {age:?} from now");
    agent.check()
}
