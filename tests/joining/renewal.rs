//! Turns slow approvers, signers that mean it ill and a process that is killed into a Node whose identity is renewed, or that
//! keeps the old one and says why (CSR-2 to CSR-6, CSR-11, ROT-7).

use super::agent::{Launch, Nodepulse};
use super::cluster::joining::{REQUESTS, stamp};
use super::cluster::pki::{self, Validity};
use super::cluster::{AuditEntry, Cluster, Credential, NodeIdentity, Options, Result, condition, wait_until};
use super::pkcs10::{Curve, node_subject, pem, request};
use super::requests::{SOON, is_renewal, lines, now_us, wait_until_ready};
use super::trials::Case;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// What is left of a certificate that is due: it was made five minutes ago, as signers date theirs.
const DUE: Credential = Credential::Ending(Duration::from_secs(120));

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_renewal_waits_for_an_administrator_and_survives_a_kill,
        a_renewal_that_was_denied_or_failed_keeps_the_old_certificate_and_asks_seldom,
        a_certificate_that_is_not_what_was_asked_for_is_not_used,
        a_request_of_somebody_else_under_our_name_is_told_from_ours,
        a_certificate_that_is_about_to_end_is_a_condition_until_its_successor_is_there,
    ]
}

/// A cluster of its own, where a person approves, and for an hour.
fn cluster() -> Result<Cluster> {
    Cluster::start(Options { signing_duration: Duration::from_secs(3600), ..Options::default() })
}

fn start(cluster: &Cluster, hint: &str) -> Result<(NodeIdentity, Nodepulse)> {
    let node = cluster.node_at(&cluster.api, hint, DUE)?;
    let agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    Ok((node, agent))
}

fn folder(node: &NodeIdentity) -> PathBuf {
    node.dir.join("state/identity")
}

fn files(node: &NodeIdentity) -> Vec<String> {
    let found = fs::read_dir(folder(node)).into_iter().flatten().flatten();
    let mut names: Vec<String> = found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Seconds since 1970 at which what is kept on the disk ends.
fn kept_until(node: &NodeIdentity) -> Result<u64> {
    let text = fs::read_to_string(folder(node).join("node.pem")).map_err(|e| e.to_string())?;
    let start = text.find("-----BEGIN CERTIFICATE").ok_or("no certificate")?;
    pki::dates(&text[start..]).map(|(_, end)| end)
}

fn name_of(request: &Value) -> String {
    request["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn pending(cluster: &Cluster, node: &NodeIdentity) -> Result<Value> {
    wait_until("a request", SOON, || {
        let mut found = cluster.requests_for(&node.name)?;
        if found.len() == 1 { Ok(found.remove(0)) } else { Err(format!("there are {}", found.len())) }
    })
}

/// Requests for certificates that were made, as the server saw them.
fn made(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<AuditEntry>> {
    cluster.api.audit(|e| e.user == node.user && e.verb == "create" && e.uri.starts_with(REQUESTS))
}

/// The certificate in use is another one, and the agent says so.
fn is_renewed(agent: &mut Nodepulse, node: &NodeIdentity) -> Result<()> {
    agent.wait_for_line(&["a new certificate is in use"], SOON)?;
    wait_until("nothing pending", SOON, || match files(node) {
        names if names.contains(&"node.pem".to_owned()) && !names.contains(&"pending.pem".to_owned()) => Ok(()),
        names => Err(format!("there are {names:?}")),
    })
}

fn a_renewal_waits_for_an_administrator_and_survives_a_kill(_: &Cluster) -> Result<()> {
    let cluster = cluster()?;
    let (node, mut agent) = start(&cluster, "patient")?;
    let name = name_of(&pending(&cluster, &node)?);
    agent.wait_for_line(&["waiting for approval: kubectl certificate approve", &name], SOON * 2)?;
    agent.kill()?;
    let mut agent = Launch::quick(&node).start(&cluster)?;
    agent.wait_for_line(&["waiting for approval", &name], SOON * 2)?;
    cluster.approve(&name)?;
    agent.wait_for_line(&["a new certificate is in use"], SOON * 2)?;
    is_renewed(&mut agent, &node)?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    // Before the kill, and after it: the second found its own request.
    let codes: Vec<u16> = made(&cluster, &node)?.iter().map(|e| e.code).collect();
    assert_eq!(codes, [201, 409]);
    let hour = kept_until(&node)? - now_us() / 1_000_000;
    assert!((3500..=3600).contains(&hour), "it ends in {hour} s");
    // What is on the disk goes before the kubeconfig's, which would be due.
    assert_eq!(agent.stop()?, 0);
    let since = now_us();
    let mut agent = Launch::quick(&node).start(&cluster)?;
    wait_until("ten renewals", SOON * 2, || {
        let renewals = cluster.api.audit(|e| e.user == node.user && is_renewal(e) && e.received_at_us > since)?.len();
        if renewals >= 10 { Ok(()) } else { Err(format!("{renewals}")) }
    })?;
    assert_eq!(made(&cluster, &node)?.len(), 2, "it asks for no other one");
    agent.check()
}

/// Who may write anything says that the signer could not.
fn fail(cluster: &Cluster, name: &str) -> Result<()> {
    let path = format!("{REQUESTS}/{name}");
    let mut object = cluster.api.admin.get(&path)?;
    let condition = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "no"});
    object["status"]["conditions"] = json!([condition]);
    cluster.api.admin.put(&format!("{path}/status"), &object).map(drop)
}

fn a_renewal_that_was_denied_or_failed_keeps_the_old_certificate_and_asks_seldom(_: &Cluster) -> Result<()> {
    let cluster = cluster()?;
    let (denied, mut first) = start(&cluster, "denied")?;
    let (failed, mut second) = start(&cluster, "failed")?;
    let (to_deny, to_fail) = (name_of(&pending(&cluster, &denied)?), name_of(&pending(&cluster, &failed)?));
    cluster.deny(&to_deny)?;
    fail(&cluster, &to_fail)?;
    // The next look is at most half a minute away.
    first.wait_for_line(&["certificate-denied", &to_deny, "KubectlDeny"], SOON * 3)?;
    second.wait_for_line(&["certificate-failed", &to_fail, "SignerValidationFailure"], SOON * 3)?;
    let since = now_us();
    std::thread::sleep(Duration::from_secs(60));
    for (node, agent) in [(&denied, &mut first), (&failed, &mut second)] {
        let of_node = |e: &AuditEntry| e.user == node.user && e.received_at_us > since;
        let asked = cluster.api.audit(|e| of_node(e) && e.uri.starts_with(REQUESTS))?;
        assert!(asked.len() <= 3, "{:#?}", lines(&asked));
        assert!(cluster.api.audit(|e| of_node(e) && is_renewal(e))?.len() > 30, "the old certificate is in use");
        agent.check()?;
    }
    Ok(())
}

/// Gives a request the answer of a signer that is not the cluster's own.
fn answer(cluster: &Cluster, name: &str, certificate: &str) -> Result<()> {
    cluster.approve(name)?;
    let path = format!("{REQUESTS}/{name}");
    let mut object = cluster.api.admin.get(&path)?;
    object["status"]["certificate"] = BASE64_STANDARD.encode(certificate).into();
    cluster.api.admin.put(&format!("{path}/status"), &object).map(drop)
}

fn a_certificate_that_is_not_what_was_asked_for_is_not_used(_: &Cluster) -> Result<()> {
    let mut cluster = cluster()?;
    let mut running = Vec::new();
    for (hint, word) in [
        ("another-name", "wrong-certificate"),
        ("another-key", "wrong-certificate"),
        ("another-ca", "certificate-refused"),
        ("no-group", "wrong-certificate"),
        ("ended", "wrong-certificate"),
    ] {
        let (node, agent) = start(&cluster, hint)?;
        let request = pending(&cluster, &node)?;
        running.push((hint, word, node, agent, request));
    }
    // What the test signs, nobody else may have signed before.
    cluster.stop_controllers()?;
    for (hint, word, node, agent, request) in &mut running {
        let text = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap_or_default());
        let key = pki::requested_key(&text.map_err(|e| e.to_string())?)?;
        let stranger = pki::Authority::new("nobody-trusts-this")?;
        let own = cluster.authority();
        let (group, week) = (Some("system:nodes"), Validity::Now);
        let certificate = match *hint {
            "another-name" => own.certify(&key, "system:node:somebody", group, week)?,
            "another-key" => own.client(&node.user, group, week)?.certificate,
            "another-ca" => stranger.certify(&key, &node.user, group, week)?,
            "no-group" => own.certify(&key, &node.user, None, week)?,
            _ => own.certify(&key, &node.user, group, Validity::Expired)?,
        };
        answer(&cluster, &name_of(request), &certificate)?;
        agent.wait_for_line(&[word], SOON * 3).map_err(|e| format!("{hint}: {e}"))?;
    }
    let since = now_us();
    std::thread::sleep(Duration::from_secs(30));
    for (hint, _, node, agent, _) in &mut running {
        let of_node = |e: &AuditEntry| e.user == node.user && e.received_at_us > since;
        let asked = cluster.api.audit(|e| of_node(e) && e.uri.starts_with(REQUESTS))?;
        assert!(asked.is_empty(), "{hint}: {:#?}", lines(&asked));
        assert!(cluster.api.audit(|e| of_node(e) && is_renewal(e))?.len() > 15, "{hint}: the old one is in use");
        assert!(!files(node).contains(&"node.pem".to_owned()), "{hint}: {:?}", files(node));
        agent.check()?;
    }
    Ok(())
}

fn a_request_of_somebody_else_under_our_name_is_told_from_ours(_: &Cluster) -> Result<()> {
    let cluster = cluster()?;
    let (node, mut agent) = start(&cluster, "imitated")?;
    let name = name_of(&pending(&cluster, &node)?);
    agent.kill()?;
    cluster.delete_request(&name)?;
    let text = pem(&request(&node_subject(&node.name), Curve::P256, &[])?);
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "request": BASE64_STANDARD.encode(text), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    node.client.post(REQUESTS, &object)?;
    cluster.approve(&name)?;
    let mut agent = Launch::quick(&node).start(&cluster)?;
    agent.wait_for_line(&["request-not-ours", &name], SOON * 2)?;
    assert!(!files(&node).contains(&"node.pem".to_owned()), "{:?}", files(&node));
    wait_until_ready(&cluster, &node)?;
    agent.check()
}

/// Most of its life is over, and nobody approves its successor: there are twenty minutes for that.
fn a_certificate_that_is_about_to_end_is_a_condition_until_its_successor_is_there(_: &Cluster) -> Result<()> {
    let cluster = cluster()?;
    let node = cluster.node_at(&cluster.api, "expiring", Credential::Old(Duration::from_secs(1200)))?;
    let mut agent = Launch::quick(&node).start(&cluster)?;
    let reason = |status: &str| -> Result<String> {
        let found = cluster.wait_for_condition(&node.name, "CertificateExpiring", status, SOON * 4)?;
        Ok(condition(&found, "CertificateExpiring").map(|one| one["reason"].to_string()).unwrap_or_default())
    };
    assert_eq!(reason("True")?, "\"CertificateExpiresSoon\"");
    let name = name_of(&pending(&cluster, &node)?);
    agent.wait_for_line(&["waiting for approval: kubectl certificate approve", &name], SOON * 2)?;
    cluster.approve(&name)?;
    agent.wait_for_line(&["a new certificate is in use"], SOON * 4)?;
    assert_eq!(reason("False")?, "\"CertificateIsValid\"");
    let ends = stamp(UNIX_EPOCH + Duration::from_secs(kept_until(&node)?))?;
    let found = cluster.get_node(&node.name)?;
    assert_eq!(found["metadata"]["annotations"]["nodepulse.dev/certificate-expiry"], ends);
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    agent.check()
}
