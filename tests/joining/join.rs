//! Clusters that are slow, closed or dishonest: a board becomes a Node, or has a word for what is in the
//! way, and tells its token to nobody who is not proven (JOIN-*, CSR-8, EXP-*).

use super::agent::Nodepulse;
use super::cluster::joining::{CLUSTER_INFO, KUBEADM_GROUP, Token};
use super::cluster::pki::{Authority, Validity};
use super::cluster::{Cluster, NodeIdentity, Options, Result, wait_until};
use super::first::joining_at;
use super::impostor::{Impostor, cluster_info, tampered};
use super::requests::{SOON, is_renewal, now_us, wait_for_event};
use super::trials::Case;
use nix::sys::signal::Signal;
use serde_json::json;
use std::time::Duration;

/// How long an impostor is watched: no secret may come in this time, and few requests.
pub const WATCHED: Duration = Duration::from_secs(20);
const A_MINUTE: Duration = Duration::from_secs(60);
/// What a board may ask in a minute where something is wrong with the cluster.
const FEW: usize = 3;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_board_that_slept_past_its_certificate_comes_back_with_its_token,
        a_renewal_that_nobody_approves_comes_by_the_token,
        a_board_whose_token_has_ended_as_well_comes_back_when_it_is_valid_again,
        a_token_that_ends_while_its_board_waits_goes_on_when_it_is_made_again,
        a_board_waits_for_its_approval_and_is_ready_after_it,
        a_stranger_among_the_certificates_is_told_nothing,
        a_token_with_another_secret_is_told_and_sent_nowhere,
        a_cluster_info_that_was_changed_is_told_and_no_token_sent,
        a_server_whose_date_is_outside_its_certificate_is_told_nothing,
        a_name_that_another_board_holds_is_left_alone_until_that_one_is_gone,
        a_cluster_without_cluster_info_is_joined_with_its_ca_in_a_file,
    ]
}

pub fn own_cluster(signing_duration: Duration) -> Result<Cluster> {
    Cluster::start(Options { signing_duration, ..Options::default() })
}

pub const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A group of this test alone, whose requests nobody approves by himself.
pub fn group(cluster: &Cluster, name: &str) -> Result<String> {
    let group = format!("system:bootstrappers:{name}");
    let (role, bound) = ("--clusterrole=system:node-bootstrapper", format!("--group={group}"));
    cluster.kubectl(&["create", "clusterrolebinding", name, role, &bound])?;
    Ok(group)
}

pub fn start(cluster: &Cluster, hint: &str, token: &Token, pins: &[&str]) -> Result<(NodeIdentity, Nodepulse)> {
    start_at(cluster, &cluster.api.url(), hint, token, pins)
}

fn start_at(
    cluster: &Cluster,
    server: &str,
    hint: &str,
    token: &Token,
    pins: &[&str],
) -> Result<(NodeIdentity, Nodepulse)> {
    let node = cluster.node(hint)?;
    let agent = joining_at(server, &node, token, pins).start(cluster)?;
    Ok((node, agent))
}

/// Whether the server heard of it: in the log a token that is not valid has no name.
fn was_used(cluster: &Cluster, token: &Token) -> Result<bool> {
    let user = format!("system:bootstrap:{}", token.id);
    let is_its = |user_agent: &str| user_agent.contains("nodepulse");
    Ok(!cluster.api.audit(|e| e.user == user || (e.user.is_empty() && is_its(&e.user_agent)))?.is_empty())
}

/// Leases that were renewed since then.
pub fn is_renewing(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse, since: u64) -> Result<()> {
    wait_until(&format!("a renewal of {}", node.name), SOON * 5, || {
        agent.check()?;
        let seen = cluster.api.audit(|e| e.user == node.user && is_renewal(e) && e.received_at_us > since)?;
        if seen.is_empty() { Err(agent.said()?) } else { Ok(()) }
    })
}

fn a_board_waits_for_its_approval_and_is_ready_after_it(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[&group(&cluster, "by-hand")?], None)?;
    let (node, mut agent) = start(&cluster, "patient", &token, &[cluster.pin()])?;
    let line = agent.wait_for_line(&["waiting for approval: kubectl certificate approve node-csr-"], SOON * 2)?;
    let found = cluster.requests_for(&node.name)?;
    let name = found[0]["metadata"]["name"].as_str().unwrap_or_default();
    assert!(line.contains(name), "{line}");
    cluster.approve(name)?;
    cluster.wait_for_condition(&node.name, "Ready", "True", SOON * 3)?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    Ok(())
}

/// A bundle in which one certificate is pinned, signed by somebody who knows the token: kubeadm tells him.
fn a_stranger_among_the_certificates_is_told_nothing(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    // Of another name, and of the same name as the real one.
    let lure = |name: &str| {
        let thief = Authority::new(name)?;
        let impostor = Impostor::start(&thief, Validity::Now, None)?;
        impostor.say(cluster_info(&impostor.url(), &[cluster.authority(), &thief], &token));
        let (node, agent) = start_at(&cluster, &impostor.url(), "lured", &token, &[cluster.pin()])?;
        wait_until("the first connection", SOON, || {
            if impostor.heads().is_empty() { Err(agent.said()?) } else { Ok(()) }
        })?;
        Ok((impostor, node, agent))
    };
    let lured = ["thief", "nodepulse-test-cluster"].map(lure).into_iter().collect::<Result<Vec<_>>>()?;
    std::thread::sleep(A_MINUTE);
    for (impostor, node, mut agent) in lured {
        agent.check()?;
        assert!(!impostor.was_told(&token), "{:#?}", impostor.heads());
        assert!(impostor.heads().len() <= FEW, "{:#?}", impostor.heads());
        assert_eq!(cluster.find_node(&node.name)?, None);
    }
    Ok(())
}

fn a_token_with_another_secret_is_told_and_sent_nowhere(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let wrong = Token { secret: "zzzzzzzzzzzzzzzz".to_owned(), ..token };
    let (_, mut agent) = start(&cluster, "mistaken", &wrong, &[cluster.pin()])?;
    agent.wait_for_line(&["signature-wrong"], SOON)?;
    std::thread::sleep(WATCHED);
    agent.check()?;
    assert!(!was_used(&cluster, &wrong)?);
    Ok(())
}

/// Even by a server whose certificate is the cluster's.
fn a_cluster_info_that_was_changed_is_told_and_no_token_sent(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let impostor = Impostor::start(cluster.authority(), Validity::Now, None)?;
    impostor.say(tampered(&cluster.api, &impostor.url())?);
    let (_, mut agent) = start_at(&cluster, &impostor.url(), "tampered", &token, &[cluster.pin()])?;
    agent.wait_for_line(&["signature-wrong"], SOON)?;
    std::thread::sleep(WATCHED);
    agent.check()?;
    assert!(!impostor.was_told(&token), "{:#?}", impostor.heads());
    assert!(impostor.heads().len() <= FEW, "{:#?}", impostor.heads());
    Ok(())
}

/// The cluster's own certificate that has ended, and a server that says so by its `Date` (CLK-3).
fn a_server_whose_date_is_outside_its_certificate_is_told_nothing(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    for (validity, date) in
        [(Validity::Now, "Sun, 01 Jan 2045 00:00:00 GMT"), (Validity::NotYet, "Thu, 01 Jan 2026 00:00:00 GMT")]
    {
        let impostor = Impostor::start(cluster.authority(), validity, None)?;
        impostor.dated(date);
        impostor.say(cluster_info(&impostor.url(), &[cluster.authority()], &token));
        let (_, mut agent) = start_at(&cluster, &impostor.url(), "untimely", &token, &[cluster.pin()])?;
        wait_until("the first connection", SOON, || {
            if impostor.heads().is_empty() { Err(agent.said()?) } else { Ok(()) }
        })?;
        std::thread::sleep(WATCHED);
        agent.check()?;
        assert!(!impostor.was_told(&token), "{date}: {:#?}\n{}", impostor.heads(), agent.said()?);
    }
    Ok(())
}

/// A Node of another machine that is alive (CSR-8).
fn a_name_that_another_board_holds_is_left_alone_until_that_one_is_gone(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let holder = cluster.node("held")?;
    let other = json!({"nodeInfo": {
        "machineID": "0f".repeat(16), "systemUUID": "0f".repeat(16), "bootID": "", "kernelVersion": "", "osImage": "",
        "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": "",
    }, "conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    cluster.create_node(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": holder.name}}))?;
    // The controller calls a Node whose Lease nobody renews Unknown.
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": holder.name},
        "spec": {"holderIdentity": holder.name, "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z"},
    });
    cluster.api.admin.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease)?;
    cluster.patch_node_status(&holder.name, &json!({"status": other}))?;
    let mut agent = joining_at(&cluster.api.url(), &holder, &token, &[cluster.pin()]).start(&cluster)?;
    agent.wait_for_line(&["name-taken"], SOON)?;
    std::thread::sleep(WATCHED);
    agent.check()?;
    assert!(cluster.requests_for(&holder.name)?.is_empty());
    // It is switched off.
    cluster
        .api
        .admin
        .delete(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", holder.name))?;
    cluster.patch_node_status(
        &holder.name,
        &json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    )?;
    agent.signal(Signal::SIGHUP)?;
    cluster
        .wait_for_condition(&holder.name, "Ready", "True", SOON * 3)
        .map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default()))?;
    let told = wait_for_event(&cluster, &holder, "NodeReplaced")?;
    assert!(told[0]["message"].as_str().is_some_and(|message| message.contains(&"0f".repeat(16))), "{told:?}");
    agent.check()
}

/// A window that closes before anybody approved, and opens again: the same request goes on.
fn a_token_that_ends_while_its_board_waits_goes_on_when_it_is_made_again(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let group = group(&cluster, "by-hand")?;
    let token = cluster.token(&[&group], None)?;
    let (node, mut agent) = start(&cluster, "shut-out", &token, &[cluster.pin()])?;
    agent.wait_for_line(&["waiting for approval"], SOON * 2)?;
    let found = cluster.requests_for(&node.name)?;
    let name = found[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.delete_token(&token)?;
    agent.wait_for_line(&[&format!("kubeadm token create {}.", token.id)], SOON * 6)?;
    cluster.approve(&name)?;
    cluster.put_token(&token, &[&group], None)?;
    cluster.wait_for_signature(&token)?;
    agent.signal(Signal::SIGHUP)?;
    cluster
        .wait_for_condition(&node.name, "Ready", "True", SOON * 3)
        .map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default()))?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    agent.check()
}

/// A cluster that signs for half a minute, with a board in it.
fn short_lived(hint: &str) -> Result<(Cluster, Token, NodeIdentity, Nodepulse)> {
    let cluster = own_cluster(Duration::from_secs(30))?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let (node, mut agent) = start(&cluster, hint, &token, &[cluster.pin()])?;
    is_renewing(&cluster, &node, &mut agent, 0)?;
    Ok((cluster, token, node, agent))
}

const PAST_ITS_END: Duration = Duration::from_secs(40);

fn a_board_that_slept_past_its_certificate_comes_back_with_its_token(_: &Cluster) -> Result<()> {
    let (cluster, token, node, mut agent) = short_lived("sleeper")?;
    agent.freeze()?;
    let user = format!("system:bootstrap:{}", token.id);
    let before = cluster.api.audit(|e| e.user == user)?.len();
    std::thread::sleep(PAST_ITS_END);
    let since = now_us();
    agent.thaw()?;
    is_renewing(&cluster, &node, &mut agent, since)?;
    assert!(cluster.api.audit(|e| e.user == user)?.len() > before, "it came back with the token");
    Ok(())
}

/// Nobody approves what a node asks for as itself, and its token lives (ROT-6).
fn a_renewal_that_nobody_approves_comes_by_the_token(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(Duration::from_secs(120))?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let binding = "kubeadm:node-autoapprove-certificate-rotation";
    cluster.api.admin.delete(&format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{binding}"))?;
    let (node, mut agent) = start(&cluster, "unapproved", &token, &[cluster.pin()])?;
    is_renewing(&cluster, &node, &mut agent, 0)?;
    agent.wait_for_line(&["asking with the token, and another key"], SOON * 10)?;
    agent.wait_for_line(&["a new certificate is in use"], SOON * 3)?;
    is_renewing(&cluster, &node, &mut agent, now_us())?;
    // The join's, the one that waits, and the one that was approved.
    assert_eq!(cluster.requests_for(&node.name)?.len(), 3);
    let refused = cluster.api.audit(|e| e.user == node.user && e.code == 401)?;
    assert!(refused.is_empty(), "the certificate in use never ended: {refused:#?}");
    agent.check()
}

fn a_board_whose_token_has_ended_as_well_comes_back_when_it_is_valid_again(_: &Cluster) -> Result<()> {
    let (cluster, token, node, mut agent) = short_lived("locked-out")?;
    agent.freeze()?;
    cluster.delete_token(&token)?;
    std::thread::sleep(PAST_ITS_END);
    let since = now_us();
    agent.thaw()?;
    agent.wait_for_line(&[&format!("kubeadm token create {}.", token.id)], SOON * 5)?;
    // With what is not valid nothing is asked: one look at cluster-info, by nobody, for each try.
    std::thread::sleep(WATCHED);
    let user = format!("system:bootstrap:{}", token.id);
    assert!(cluster.api.audit(|e| e.user == user && e.received_at_us > since)?.is_empty());
    cluster.put_token(&token, &[KUBEADM_GROUP], None)?;
    cluster.wait_for_signature(&token)?;
    let since = now_us();
    agent.signal(Signal::SIGHUP)?;
    is_renewing(&cluster, &node, &mut agent, since)
}

fn a_cluster_without_cluster_info_is_joined_with_its_ca_in_a_file(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    cluster.api.admin.delete(CLUSTER_INFO)?;
    let (_, mut agent) = start(&cluster, "uninformed", &token, &[cluster.pin()])?;
    agent.wait_for_line(&["no-cluster-info", "--ca-file"], SOON)?;
    assert!(!was_used(&cluster, &token)?);
    drop(agent);
    let node = cluster.node("with-file")?;
    let launch = joining_at(&cluster.api.url(), &node, &token, &[]);
    let mut agent = launch.set("caFile", &cluster.authority_file().display().to_string()).start(&cluster)?;
    cluster
        .wait_for_condition(&node.name, "Ready", "True", SOON)
        .map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default()))?;
    agent.check()
}
