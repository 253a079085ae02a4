//! The cluster gets another CA: a board learns it beforehand, believes one whose hash it has, and says so of any other (CA-*).

use super::agent::{Launch, Nodepulse};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, Rotation, wait_until};
use super::join::{WATCHED, YEAR, group, is_renewing, own_cluster, start};
use super::requests::{SOON, now_us};
use super::trials::Case;
use nix::sys::signal::Signal;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_new_ca_with_overlap_is_learned_and_used,
        a_new_ca_at_once_is_believed_if_its_hash_was_known,
        a_new_ca_that_nobody_announced_is_told_and_believed_when_a_person_says_so,
        a_new_ca_whose_hash_was_known_lets_in_a_board_that_waits_for_its_first_certificate,
        a_new_ca_whose_hash_was_known_is_believed_also_when_the_token_has_ended,
    ]
}

/// A board that is in its cluster; with the hash of the next CA or without.
fn before_rotation(hint: &str, knows_the_next: bool) -> Result<(Cluster, Token, NodeIdentity, Nodepulse)> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let pins = [cluster.pin(), cluster.other_pin()];
    let pins = if knows_the_next { &pins[..] } else { &pins[..1] };
    let (node, mut agent) = start(&cluster, hint, &token, pins)?;
    is_renewing(&cluster, &node, &mut agent, 0)?;
    Ok((cluster, token, node, agent))
}

/// A board that asked while the cluster was changing asks again in minutes; a person who is through with that need not wait.
fn hurried(agent: &mut Nodepulse, words: &[&str]) -> Result<String> {
    for _ in 0..10 {
        agent.signal(Signal::SIGHUP)?;
        if let Ok(line) = agent.wait_for_line(words, SOON) {
            return Ok(line);
        }
    }
    agent.wait_for_line(words, SOON)
}

fn a_new_ca_with_overlap_is_learned_and_used(_: &Cluster) -> Result<()> {
    let (mut cluster, token, node, mut agent) = before_rotation("overlapped", false)?;
    let kubeconfig = node.dir.join("state/identity/kubeconfig");
    let read = || std::fs::read_to_string(&kubeconfig).map_err(|e| e.to_string());
    let before = read()?;
    cluster.rotate(Rotation::Announced)?;
    cluster.wait_for_signature(&token)?;
    // It looks once a week; whoever cannot wait tells it to read everything again.
    agent.signal(Signal::SIGHUP)?;
    let line = agent.wait_for_line(&["ca-added"], SOON * 2)?;
    assert!(line.contains(cluster.other_pin()), "{line}");
    // What it has learned outlives the process.
    let is_kept = || if read()? == before { Err("it is as it was".to_owned()) } else { Ok(()) };
    wait_until("another kubeconfig", SOON, is_kept)?;
    agent.stop()?;
    let since = now_us();
    cluster.rotate(Rotation::Signing)?;
    let mut agent = Launch::quick(&node).without_kubeconfig().start(&cluster)?;
    is_renewing(&cluster, &node, &mut agent, since).map_err(|e| format!("signing: {e}"))?;
    Ok(())
}

fn a_new_ca_at_once_is_believed_if_its_hash_was_known(_: &Cluster) -> Result<()> {
    let (mut cluster, token, node, mut agent) = before_rotation("prepared", true)?;
    let since = now_us();
    cluster.rotate(Rotation::Over)?;
    cluster.wait_for_signature(&token)?;
    let line = hurried(&mut agent, &["ca-added"])?;
    assert!(line.contains(cluster.pin()) && !line.contains(cluster.other_pin()), "{line}");
    is_renewing(&cluster, &node, &mut agent, since)
}

fn a_new_ca_that_nobody_announced_is_told_and_believed_when_a_person_says_so(_: &Cluster) -> Result<()> {
    let (mut cluster, token, node, mut agent) = before_rotation("surprised", false)?;
    let since = now_us();
    cluster.rotate(Rotation::Over)?;
    cluster.wait_for_signature(&token)?;
    let advice =
        format!("signed with this board's token: if that is its new CA, nodepulse join --ca-hash {}", cluster.pin());
    hurried(&mut agent, &["ca-changed", &advice])?;
    // The same word, and the same command.
    let (code, said) = agent.command("check")?;
    assert!(code == 70 && said.contains("ca-changed: ") && said.contains(&advice), "{said}");
    assert!(said.contains(&format!("try: nodepulse join --ca-hash {}\n", cluster.pin())), "{said}");
    std::thread::sleep(WATCHED);
    let user = format!("system:bootstrap:{}", token.id);
    let told = || cluster.api.audit(|e| e.user == user && e.received_at_us > since);
    assert!(told()?.is_empty(), "the token was sent");
    agent.check()?;
    // The command as it was told; the token is in the settings.
    let config = agent.settings_file().display().to_string();
    agent.stop()?;
    let output = Command::new(env!("CARGO_BIN_EXE_nodepulse"))
        .args(["join", "--ca-hash", cluster.pin(), "--config", &config, "--hostname-override", &node.name])
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("ca-added"), "{said}");
    let since = now_us();
    let mut agent = Launch::quick(&node).without_kubeconfig().start(&cluster)?;
    is_renewing(&cluster, &node, &mut agent, since)
}

/// It has found its cluster, and nobody approves; then the CA that it has found is gone.
fn a_new_ca_whose_hash_was_known_lets_in_a_board_that_waits_for_its_first_certificate(_: &Cluster) -> Result<()> {
    let mut cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[&group(&cluster, "by-hand")?], None)?;
    let pins = [cluster.pin().to_owned(), cluster.other_pin().to_owned()];
    let (node, mut agent) = start(&cluster, "unapproved", &token, &[&pins[0], &pins[1]])?;
    agent.wait_for_line(&["waiting for approval"], SOON * 2)?;
    let found = cluster.requests_for(&node.name)?;
    let name = found[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.rotate(Rotation::Over)?;
    cluster.wait_for_signature(&token)?;
    cluster.approve(&name)?;
    hurried(&mut agent, &["certificate-issued"])?;
    is_renewing(&cluster, &node, &mut agent, 0)?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1, "with the same key");
    Ok(())
}

/// As kubeadm's do after a day: nobody signs cluster-info for this board any more. The CA of its certificate is another as well, so
/// that it is in when the token is made again, but it knows its cluster already.
fn a_new_ca_whose_hash_was_known_is_believed_also_when_the_token_has_ended(_: &Cluster) -> Result<()> {
    let (mut cluster, token, node, mut agent) = before_rotation("prepared-long-ago", true)?;
    cluster.delete_token(&token)?;
    let since = now_us();
    cluster.rotate(Rotation::Over)?;
    // Of another one: the cluster is through with it.
    cluster.wait_for_signature(&cluster.token(&[KUBEADM_GROUP], None)?)?;
    let line = hurried(&mut agent, &["ca-added"])?;
    assert!(line.contains(cluster.pin()) && !line.contains(cluster.other_pin()), "{line}");
    hurried(&mut agent, &["token-unknown", &format!("kubeadm token create {}.", token.id)])?;
    let user = format!("system:bootstrap:{}", token.id);
    assert!(cluster.api.audit(|e| e.user == user && e.received_at_us > since)?.is_empty(), "the token was sent");
    cluster.put_token(&token, &[KUBEADM_GROUP], None)?;
    cluster.wait_for_signature(&token)?;
    let since = now_us();
    agent.signal(Signal::SIGHUP)?;
    is_renewing(&cluster, &node, &mut agent, since)
}
