//! A board that has nothing but a token: it becomes a Node, and is one again after each restart.

use super::agent::{Launch, Nodepulse};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::requests::{SOON, wait_until_ready};
use super::rotation::connections;
use super::trials::Case;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_token_and_a_hash_make_a_board_a_node_with_one_request,
        a_board_that_has_joined_needs_no_settings_any_more,
        a_wrong_hash_is_told_and_the_token_is_never_sent,
        a_token_that_is_made_later_is_found,
        a_board_whose_certificate_has_ended_comes_back_with_the_token,
    ]
}

/// Settings to join this cluster with.
fn joining<'a>(cluster: &Cluster, node: &'a NodeIdentity, token: &Token, pin: &str) -> Launch<'a> {
    joining_at(&cluster.api.url(), node, token, &[pin])
}

/// The same of a server that may be another's. A board that joins may have more to tell than a minute's log has lines.
pub fn joining_at<'a>(server: &str, node: &'a NodeIdentity, token: &Token, pins: &[&str]) -> Launch<'a> {
    let launch = Launch::quick(node)
        .without_kubeconfig()
        .with_whole_log()
        .set("servers", &format!("['{server}']"))
        .set("token", &format!("'{token}'"));
    if pins.is_empty() { launch } else { launch.set("caHash", &format!("['{}']", pins.join("', '"))) }
}

fn start(cluster: &Cluster, hint: &str) -> Result<(NodeIdentity, Token, Nodepulse)> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node(hint)?;
    let agent = joining(cluster, &node, &token, cluster.pin()).start(cluster)?;
    Ok((node, token, agent))
}

fn a_token_and_a_hash_make_a_board_a_node_with_one_request(cluster: &Cluster) -> Result<()> {
    let (node, token, mut agent) = start(cluster, "joined")?;
    wait_until_ready(cluster, &node)?;
    agent.check()?;
    let user = format!("system:bootstrap:{}", token.id);
    let by_token = cluster.api.audit(|e| e.user == user)?;
    let asked: Vec<_> = by_token.iter().filter(|e| e.verb == "create").collect();
    assert_eq!(asked.len(), 1, "one request: {by_token:#?}");
    assert_eq!(asked[0].code, 201);
    assert!(by_token.iter().all(|e| !e.uri.contains("cluster-info")), "it is for nobody's eyes but nobody's");
    let said = agent.said()?;
    assert!(!said.contains(&token.secret), "the secret is in the log");
    // The connections that it joined over are closed: each is memory, here and at the server.
    wait_until("one connection", SOON, || match connections(agent.pid(), cluster.api.port)? {
        1 => Ok(()),
        many => Err(format!("there are {many}")),
    })
}

fn a_board_that_has_joined_needs_no_settings_any_more(cluster: &Cluster) -> Result<()> {
    let (node, token, mut agent) = start(cluster, "restarted")?;
    wait_until_ready(cluster, &node)?;
    agent.stop()?;
    cluster.delete_token(&token)?;
    let mut agent = Launch::quick(&node).without_kubeconfig().start(cluster)?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    let requests = cluster.api.audit(|e| e.user == format!("system:bootstrap:{}", token.id) && e.verb == "create")?;
    assert_eq!(requests.len(), 1, "{requests:#?}");
    Ok(())
}

fn a_wrong_hash_is_told_and_the_token_is_never_sent(cluster: &Cluster) -> Result<()> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("mistaken")?;
    let mut agent = joining(cluster, &node, &token, cluster.other_pin()).start(cluster)?;
    let line = agent.wait_for_line(&["pin-mismatch"], SOON)?;
    assert!(line.contains(cluster.pin()), "the hash that was found: {line}");
    assert_eq!(cluster.api.audit(|e| e.user == format!("system:bootstrap:{}", token.id))?.len(), 0);
    Ok(())
}

fn a_token_that_is_made_later_is_found(cluster: &Cluster) -> Result<()> {
    let (token, node) = (cluster.new_token(), cluster.node("early")?);
    cluster.make_joinable()?;
    let mut agent = joining(cluster, &node, &token, cluster.pin()).start(cluster)?;
    let line = agent.wait_for_line(&["token-unknown", "kubeadm token create"], SOON)?;
    assert!(!line.contains(&token.secret), "{line}");
    cluster.put_token(&token, &[KUBEADM_GROUP], None)?;
    cluster.wait_for_condition(&node.name, "Ready", "True", Duration::from_secs(45))?;
    agent.check()
}

/// Stopped past its end: the server says 401, and the token is the way back.
fn a_board_whose_certificate_has_ended_comes_back_with_the_token(cluster: &Cluster) -> Result<()> {
    let (node, token, mut agent) = start(cluster, "expired")?;
    wait_until_ready(cluster, &node)?;
    agent.stop()?;
    let folder = node.dir.join("state/identity");
    wait_until("the end of its certificate", Duration::from_secs(90), || {
        let pem = std::fs::read_to_string(folder.join("node.pem")).map_err(|e| e.to_string())?;
        let (_, end) = super::cluster::pki::dates(&pem)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(|e| e.to_string())?;
        if now.as_secs() > end + 2 { Ok(()) } else { Err(format!("it ends at {end}, it is {}", now.as_secs())) }
    })?;
    let mut agent = joining(cluster, &node, &token, cluster.pin()).start(cluster)?;
    agent.wait_for_line(&["certificate-issued"], Duration::from_secs(60))?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    agent.check()
}
