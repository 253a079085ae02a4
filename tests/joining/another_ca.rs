//! The cluster gets another CA: a board learns it beforehand, believes one whose hash it has, and says so of any other (CA-*).

use super::agent::{Launch, Nodepulse};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, Rotation, wait_until};
use super::join::{WATCHED, YEAR, is_renewing, own_cluster, start};
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
