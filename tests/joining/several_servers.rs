//! A cluster with several API servers: a board goes on with each of them when the others are dead (JOIN-7).

use super::agent::Launch;
use super::cluster::joining::KUBEADM_GROUP;
use super::cluster::{ApiServer, Cluster, NodeIdentity, Result, Validity, wait_until};
use super::first::joining_at;
use super::requests::{SOON, is_renewal, now_us};
use super::trials::Case;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_board_goes_on_with_whichever_server_lives_also_after_a_restart,
        a_board_goes_to_the_servers_that_its_settings_name_by_now,
    ]
}

/// A Lease that this server has renewed since then.
fn is_renewed_at(api: &ApiServer, node: &NodeIdentity, since: u64, said: impl Fn() -> Result<String>) -> Result<()> {
    wait_until(&format!("a renewal of {} at {}", node.name, api.url()), SOON * 5, || {
        let seen = api.audit(|e| e.user == node.user && is_renewal(e) && e.received_at_us > since)?;
        if seen.is_empty() { Err(said()?) } else { Ok(()) }
    })
}

fn a_board_goes_on_with_whichever_server_lives_also_after_a_restart(cluster: &Cluster) -> Result<()> {
    let (first, second) = (cluster.api_server(Validity::Now)?, cluster.api_server(Validity::Now)?);
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("two-servers")?;
    let launch = joining_at(&first.url(), &node, &token, &[cluster.pin()]);
    let mut agent = launch.set("servers", &format!("['{}', '{}']", first.url(), second.url())).start(cluster)?;
    is_renewed_at(&first, &node, 0, || agent.said())?;
    let since = now_us();
    first.kill()?;
    is_renewed_at(&second, &node, since, || agent.said())?;
    let line = agent.wait_for_line(&["server-changed"], SOON)?;
    assert!(line.contains(&second.url().replace("https://", "")), "{line}");
    agent.stop()?;
    // Without settings: what it has joined is in its own files. The first is dead still.
    let (since, launch) = (now_us(), Launch::quick(&node).without_kubeconfig());
    let mut agent = launch.start(cluster)?;
    is_renewed_at(&second, &node, since, || agent.said())?;
    // The last one is that of cluster-info.
    let since = now_us();
    second.freeze()?;
    is_renewed_at(&cluster.api, &node, since, || agent.said())?;
    second.thaw()?;
    agent.check()
}

/// The control plane has moved: the card is told where, and nothing else. The old one may live still, as an impostor or a backup.
fn a_board_goes_to_the_servers_that_its_settings_name_by_now(cluster: &Cluster) -> Result<()> {
    let (old, new) = (cluster.api_server(Validity::Now)?, cluster.api_server(Validity::Now)?);
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("moved")?;
    let mut agent = joining_at(&old.url(), &node, &token, &[cluster.pin()]).start(cluster)?;
    is_renewed_at(&old, &node, 0, || agent.said())?;
    agent.stop()?;
    let (since, launch) = (now_us(), Launch::quick(&node).without_kubeconfig());
    let mut agent = launch.set("servers", &format!("['{}']", new.url())).start(cluster)?;
    is_renewed_at(&new, &node, since, || agent.said())?;
    // By SIGHUP as well.
    let since = now_us();
    agent.reload_with("servers", &format!("['{}']", old.url()))?;
    is_renewed_at(&old, &node, since, || agent.said())?;
    agent.reload_with("servers", &format!("['{}']", new.url()))?;
    let since = now_us();
    is_renewed_at(&new, &node, since, || agent.said())?;
    agent.stop()?;
    // What it was told is in its own files by now: the settings are not needed for it, and the others are not forgotten.
    let kept = std::fs::read_to_string(node.dir.join("state/identity/kubeconfig")).map_err(|e| e.to_string())?;
    let places: Vec<_> = [new.url(), old.url()].iter().map(|url| kept.find(&**url)).collect();
    assert!(places[0].is_some() && places[0] < places[1], "{kept}");
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1, "it is the same identity");
    Ok(())
}
