//! A cluster with several API servers: a board goes on with each of them when the others are dead (JOIN-7).

use super::agent::Launch;
use super::cluster::joining::KUBEADM_GROUP;
use super::cluster::{ApiServer, Cluster, NodeIdentity, Result, Validity, wait_until};
use super::first::joining_at;
use super::requests::{SOON, is_renewal, now_us};
use super::trials::Case;

pub fn cases() -> Vec<Case> {
    cases![&[], a_board_goes_on_with_whichever_server_lives_also_after_a_restart]
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
