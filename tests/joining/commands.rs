//! A person at a board whose agent runs: the certificate is renewed now, and the board leaves its cluster (ROT-2, REV-3).

use super::agent::Nodepulse;
use super::cluster::joining::KUBEADM_GROUP;
use super::cluster::{Cluster, NodeIdentity, Options, Result, wait_until};
use super::first::joining_at;
use super::requests::{SOON, now_us, wait_until_ready};
use super::trials::Case;
use std::time::Duration;

/// A tenth of it goes by before a certificate may be renewed.
const LIFE: Duration = Duration::from_secs(300);

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_person_who_asks_for_another_certificate_is_told_when_it_is_in_use,
        a_board_that_leaves_is_not_ready_without_a_lease_and_stays_away,
    ]
}

fn joined(cluster: &Cluster, hint: &str) -> Result<(NodeIdentity, Nodepulse)> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node(hint)?;
    let mut agent = joining_at(&cluster.api.url(), &node, &token, &[cluster.pin()]).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    Ok((node, agent))
}

fn kept(node: &NodeIdentity, name: &str) -> Result<String> {
    std::fs::read_to_string(node.dir.join("state/identity").join(name)).map_err(|e| e.to_string())
}

fn a_person_who_asks_for_another_certificate_is_told_when_it_is_in_use(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options { signing_duration: LIFE, ..Options::default() })?;
    let (node, agent) = joined(&cluster, "impatient")?;
    let first = kept(&node, "node.pem")?;
    let mut refusals = Vec::new();
    wait_until("a tenth of its life", LIFE, || match agent.command("renew")? {
        (0, said) if said.starts_with("a new certificate is in use, valid until ") => Ok(()),
        (70, said) if said.contains("it is not renewed before") => {
            refusals.push(said);
            Err("not yet".to_owned())
        }
        other => panic!("{other:?}"),
    })?;
    assert!(!refusals.is_empty(), "the first one would have been renewed at once");
    let (second, before) = (kept(&node, "node.pem")?, kept(&node, "node.pem.old")?);
    assert!(second != first && before == first);
    assert_eq!(cluster.requests_for(&node.name)?.len(), 2);
    let (code, said) = agent.command("renew")?;
    assert!(code == 70 && said.contains("it is not renewed before"), "{said}");
    assert_eq!(cluster.requests_for(&node.name)?.len(), 2);
    Ok(())
}

fn a_board_that_leaves_is_not_ready_without_a_lease_and_stays_away(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = joined(cluster, "leaver")?;
    let (code, said) = agent.command("leave")?;
    let since = now_us();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("is not Ready any more (Left), and its Lease is deleted\n"), "{said}");
    assert!(said.contains(&format!("kubectl delete node {}\n", node.name)), "{said}");
    assert_eq!(agent.exit_code(SOON)?, 0);
    assert_eq!(cluster.find_lease(&node.name)?, None);
    // The last word of the board: the controller may have had its own since.
    let all = cluster.api.audit(|e| e.user == node.user && e.verb == "patch" && e.uri.contains("/status"))?;
    let ready = &all.last().ok_or("no report")?.body["status"]["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["status"], &ready["reason"]),
        (&"Ready".into(), &"False".into(), &"Left".into())
    );
    let names: Vec<_> = std::fs::read_dir(node.dir.join("state/identity"))
        .map_err(|e| e.to_string())?
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .collect();
    assert_eq!(names, ["left"]);
    // With its token, and all that it joined with.
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let mut again = joining_at(&cluster.api.url(), &node, &token, &[cluster.pin()]).start(cluster)?;
    assert_eq!(again.exit_code(SOON)?, 78);
    assert!(again.said()?.contains("this board has left its cluster, and joins none by itself"), "{}", again.said()?);
    let later = cluster.api.audit(|e| e.user == node.user && e.received_at_us > since)?;
    assert!(later.is_empty(), "{later:#?}");
    Ok(())
}
