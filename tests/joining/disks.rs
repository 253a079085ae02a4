//! Turns disks that are full, read-only or break at a sync into boards that join and renew all the same, say so once, and lose
//! no certificate that the disk had a key for (CSR-3, CSR-11).

use super::agent::{Launch, Nodepulse, preload};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::first::joining_at;
use super::join::{YEAR, group, own_cluster};
use super::requests::{SOON, is_renewal, now_us};
use super::trials::{Case, Need};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Root],
        a_disk_that_takes_nothing_makes_a_node_whose_identity_is_in_memory,
        a_disk_that_fills_up_before_the_certificate_comes_loses_none,
        a_disk_that_is_full_has_another_key_for_each_certificate,
        a_sync_that_fails_at_any_file_makes_a_node_all_the_same,
    ]
}

/// A file system of its own in the place of a board's state directory, as long as this lives.
struct Card(PathBuf);

impl Card {
    fn new(node: &NodeIdentity) -> Result<Card> {
        let place = node.dir.join("state");
        fs::create_dir_all(&place).map_err(|e| e.to_string())?;
        let card = Card(place);
        card.mount(&["-t", "tmpfs", "-o", "size=1m,mode=0700", "nodepulse-test"])?;
        Ok(card)
    }

    fn mount(&self, options: &[&str]) -> Result<()> {
        let output = Command::new("mount").args(options).arg(&self.0).output().map_err(|e| format!("mount: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("mount {options:?}: {said}")) }
    }

    /// Not one byte more.
    fn fill(&self) -> Result<()> {
        let mut file = fs::File::create(self.0.join("filler")).map_err(|e| e.to_string())?;
        for size in [4096, 1] {
            while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
        }
        Ok(())
    }

    fn empty(&self) -> Result<()> {
        fs::remove_file(self.0.join("filler")).map_err(|e| e.to_string())
    }

    fn has(&self, file: &str) -> bool {
        self.0.join("identity").join(file).exists()
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Whoever is in it yet ends with the test.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Settings to join with: renewals are told from each other, and the rest is quick.
fn launch<'a>(cluster: &Cluster, node: &'a NodeIdentity, token: &Token) -> Launch<'a> {
    joining_at(&cluster.api.url(), node, token, &[cluster.pin()])
}

fn is_ready(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse) -> Result<()> {
    let ready = cluster.wait_for_condition(&node.name, "Ready", "True", SOON * 3);
    ready.map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default()))?;
    agent.check()
}

/// Since then, so that it is no Ready of an earlier process.
fn is_renewing(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse, since_us: u64) -> Result<()> {
    wait_until(&format!("a renewal of {}", node.name), SOON * 3, || {
        agent.check()?;
        let is_new = |e: &_| is_renewal(e) && e.user == node.user && e.code == 200 && e.received_at_us > since_us;
        if cluster.api.audit(is_new)?.is_empty() { Err(agent.said()?) } else { Ok(()) }
    })
}

fn names(requests: &[Value]) -> BTreeSet<String> {
    requests.iter().map(|request| request["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn a_disk_that_takes_nothing_makes_a_node_whose_identity_is_in_memory(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let mut boards = Vec::new();
    for hint in ["full", "read-only"] {
        let node = cluster.node(hint)?;
        let card = Card::new(&node)?;
        if hint == "full" {
            card.fill()?
        } else {
            card.mount(&["-o", "remount,ro"])?
        }
        let agent = launch(&cluster, &node, &token).start(&cluster)?;
        boards.push((node, card, agent));
    }
    for (node, card, agent) in &mut boards {
        is_ready(&cluster, node, agent)?;
        agent.wait_for_line(&["certificate-issued"], SOON)?;
        // Of key, cluster and certificate.
        assert_eq!(agent.count_lines("identity-in-memory")?, 1, "{}", agent.said()?);
        assert_eq!(cluster.requests_for(&node.name)?.len(), 1, "{}", node.name);
        assert!(!card.has("node.pem") && !card.has("kubeconfig") && !card.has("pending.pem"));
        // The power goes before there is room: the token brings it back, and it is said again.
        agent.kill()?;
        *agent = launch(&cluster, node, &token).start(&cluster)?;
    }
    for (node, card, agent) in &mut boards {
        agent.wait_for_line(&["certificate-issued"], SOON * 3)?;
        assert_eq!(names(&cluster.requests_for(&node.name)?).len(), 2, "one for each start");
        if node.name.contains("full") { card.empty()? } else { card.mount(&["-o", "remount,rw"])? }
    }
    for (node, card, agent) in &mut boards {
        // It is asked again after 10, 20, 40 seconds.
        agent.wait_for_line(&["identity-kept"], SOON * 6)?;
        for words in ["identity-in-memory", "identity-kept"] {
            assert_eq!(agent.count_lines(words)?, 1, "{}", agent.said()?);
        }
        assert!(card.has("node.pem") && card.has("kubeconfig") && !card.has("pending.pem"));
        // Now the power may go, and the token with it.
        agent.kill()?;
        let since = now_us();
        let mut agent = Launch::quick(node).without_kubeconfig().start(&cluster)?;
        is_renewing(&cluster, node, &mut agent, since)?;
        assert_eq!(names(&cluster.requests_for(&node.name)?).len(), 2, "it is the same");
        assert_eq!(agent.count_lines("identity-in-memory")?, 0, "{}", agent.said()?);
    }
    Ok(())
}

/// Between the key and its certificate, where each write is yet to come or has been.
fn a_disk_that_fills_up_before_the_certificate_comes_loses_none(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[&group(&cluster, "by-hand")?], None)?;
    let node = cluster.node("filled-up")?;
    let card = Card::new(&node)?;
    let mut agent = launch(&cluster, &node, &token).start(&cluster)?;
    agent.wait_for_line(&["waiting for approval"], SOON * 2)?;
    card.fill()?;
    let name = names(&cluster.requests_for(&node.name)?).pop_first().unwrap_or_default();
    cluster.approve(&name)?;
    is_ready(&cluster, &node, &mut agent)?;
    agent.wait_for_line(&["identity-in-memory", "node.pem cannot be written"], SOON)?;
    assert!(card.has("pending.pem") && !card.has("node.pem"));
    agent.kill()?;
    card.empty()?;
    let since = now_us();
    let mut agent = launch(&cluster, &node, &token).start(&cluster)?;
    is_renewing(&cluster, &node, &mut agent, since)?;
    assert_eq!(names(&cluster.requests_for(&node.name)?), BTreeSet::from([name]), "the key that was kept goes on");
    wait_until("the certificate on the disk", SOON, || {
        if card.has("node.pem") && !card.has("pending.pem") { Ok(()) } else { Err(agent.said()?) }
    })
}

/// Certificates of forty seconds, none of which the disk takes: the key of the first was kept when there was room.
fn a_disk_that_is_full_has_another_key_for_each_certificate(cluster: &Cluster) -> Result<()> {
    const RENEWALS: usize = 1;
    let group = group(cluster, "full-disk")?;
    let token = cluster.token(&[&group], None)?;
    let node = cluster.node("fullest")?;
    let card = Card::new(&node)?;
    let mut agent = launch(cluster, &node, &token).start(cluster)?;
    agent.wait_for_line(&["waiting for approval"], SOON * 2)?;
    card.fill()?;
    let first = names(&cluster.requests_for(&node.name)?).pop_first().unwrap_or_default();
    cluster.approve(&first)?;
    is_ready(cluster, &node, &mut agent)?;
    assert!(card.has("pending.pem") && !card.has("node.pem"));
    wait_until("renewals", Duration::from_secs(120), || {
        agent.check()?;
        let said = agent.count_lines("certificate-renewed")?;
        if said >= RENEWALS { Ok(()) } else { Err(format!("{said}\n{}", agent.said()?)) }
    })?;
    let asked = cluster.requests_for(&node.name)?;
    let keys: BTreeSet<&str> = asked.iter().filter_map(|request| request["spec"]["request"].as_str()).collect();
    assert!(keys.len() > RENEWALS && keys.len() == asked.len(), "{} keys of {} requests", keys.len(), asked.len());
    agent.check()?;
    Ok(())
}

/// The program with a sync that fails for whatever has this name.
fn with_failing_sync(node: &NodeIdentity, name: &str) -> Result<Vec<String>> {
    let preload = preload(node, "joining/sync.c")?;
    let program = env!("CARGO_BIN_EXE_nodepulse");
    Ok(["env", &preload, &format!("SYNC_FAILS_FOR=/identity{name}"), program].map(str::to_owned).into())
}

fn a_sync_that_fails_at_any_file_makes_a_node_all_the_same(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let mut boards = Vec::new();
    // The folder itself as well: there the file is renamed, and its name may be lost.
    for (hint, name) in
        [("sync-1", "/kubeconfig.new"), ("sync-2", "/pending.pem.new"), ("sync-3", "/node.pem.new"), ("sync-4", "")]
    {
        let node = cluster.node(hint)?;
        let program = with_failing_sync(&node, name)?;
        let agent = launch(&cluster, &node, &token).program(program).start(&cluster)?;
        boards.push((hint, node, agent));
    }
    for (hint, node, agent) in &mut boards {
        is_ready(&cluster, node, agent).map_err(|e| format!("{hint}: {e}"))?;
        agent.wait_for_line(&["identity-in-memory"], SOON).map_err(|e| format!("{hint}: {e}"))?;
        let before = names(&cluster.requests_for(&node.name)?);
        assert_eq!(before.len(), 1, "{hint}: {}", agent.said()?);
        // It may be trying again just now.
        wait_until("nothing half done", SOON, || match unfinished(&node.dir.join("state/identity")).pop() {
            None => Ok(()),
            Some(left) => Err(format!("{hint}: {} is left", left.display())),
        })?;
        agent.kill()?;
        let since = now_us();
        let mut agent = launch(&cluster, node, &token).start(&cluster)?;
        is_renewing(&cluster, node, &mut agent, since).map_err(|e| format!("{hint}: {e}"))?;
        let after = names(&cluster.requests_for(&node.name)?);
        assert!(after.is_superset(&before) && after.len() <= 2, "{hint}: {before:?}, then {after:?}");
        // Whose certificate, or key, was on the disk asks with no other one.
        let is_other = after.len() == 2;
        assert!(!is_other || matches!(*hint, "sync-1" | "sync-2"), "{hint}: {after:?}\n{}", agent.said()?);
        assert_eq!(agent.count_lines("identity-in-memory")?, 0, "{hint}: {}", agent.said()?);
    }
    Ok(())
}

fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|kind| kind == "new")).collect()
}
