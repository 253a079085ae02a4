//! Turns two API servers of one cluster and a box before them into a place where an agent lives, and judges how it fares.

use super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::cluster::{ApiServer, AuditEntry, Cluster, NodeIdentity, Result, Validity, condition, wait_until};
use super::programs::Middle;
use super::requests::{SOON, is_renewal, now_us, wait_until_ready};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// After so long without a renewal the controller calls a Node Unknown, as by default.
const GRACE: Duration = Duration::from_secs(50);

/// An agent behind a box, and the servers behind that.
pub struct Site<'a> {
    cluster: &'a Cluster,
    pub servers: [ApiServer; 2],
    pub middle: Middle,
    pub node: NodeIdentity,
    pub agent: Nodepulse,
    /// Ready, as it was at first.
    ready: Value,
    began_us: u64,
}

impl<'a> Site<'a> {
    /// Starts everything and waits until the Node is Ready and its Lease renewed.
    pub fn start(
        cluster: &'a Cluster,
        hint: &str,
        middle: fn(&Cluster, &[&ApiServer]) -> Result<Middle>,
        kubeconfig: impl FnOnce(&NodeIdentity, &Middle) -> Result<PathBuf>,
    ) -> Result<Site<'a>> {
        let servers = [cluster.api_server(Validity::Now)?, cluster.api_server(Validity::Now)?];
        let middle = middle(cluster, &servers.each_ref())?;
        let node = cluster.node(hint)?;
        let kubeconfig = kubeconfig(&node, &middle)?;
        let (key, room) = ROOM_ON_DISK;
        let agent = Launch::with_defaults(&node).kubeconfig(&kubeconfig).set(key, room).start(cluster)?;
        let began_us = now_us();
        let stored = wait_until_ready(cluster, &node)?;
        let ready = condition(&stored, "Ready").cloned().unwrap_or_default();
        let site = Site { cluster, servers, middle, node, agent, ready, began_us };
        site.wait_for_renewal(began_us, |_| true)?;
        Ok(site)
    }

    /// What the servers have answered of the agent's requests, in the order in which they came, each with its server's place.
    pub fn requests(&self) -> Result<Vec<(usize, AuditEntry)>> {
        // The token of a service account is another user.
        let is_ours = |entry: &AuditEntry| entry.user.ends_with(&format!(":{}", self.node.name));
        let mut all = Vec::new();
        for (place, server) in self.servers.iter().enumerate() {
            all.extend(server.audit(is_ours)?.into_iter().map(|entry| (place, entry)));
        }
        all.sort_by_key(|(_, entry)| entry.received_at_us);
        Ok(all)
    }

    /// Place of the server that took the last renewal.
    pub fn in_use(&self) -> Result<usize> {
        let all = self.requests()?;
        all.iter().rev().find(|(_, entry)| is_renewal(entry)).map(|(place, _)| *place).ok_or("no renewal".to_owned())
    }

    /// Until a server that is meant has taken a renewal since; answers how long that was after it.
    pub fn wait_for_renewal(&self, since_us: u64, is_meant: impl Fn(usize) -> bool) -> Result<Duration> {
        wait_until("a renewal", GRACE, || {
            let all = self.requests()?;
            let mut renewals = all.iter().filter(|(place, entry)| is_renewal(entry) && is_meant(*place));
            let found = renewals.find(|(_, entry)| entry.received_at_us > since_us);
            found.map(|(_, entry)| Duration::from_micros(entry.received_at_us - since_us)).ok_or("none yet".to_owned())
        })
    }

    /// IP bytes that the agent has counted so far, both ways, and connections.
    pub fn counted(&self) -> Result<(u64, u64)> {
        let said = self.agent.cost(&[])?;
        // Of all days: it may be midnight.
        let of = |path: &str| {
            let days = said["days"].as_array().into_iter().flatten();
            days.filter_map(|day| day.pointer(path)?.as_u64()).sum::<u64>()
        };
        Ok((of("/sentBytes") + of("/receivedBytes"), of("/purposes/handshake/count")))
    }

    /// Until the server that is not at this place has taken a renewal since; says how long that took and what it cost, from
    /// what was counted before.
    pub fn change_over(&self, used: usize, since_us: u64, before: (u64, u64)) -> Result<String> {
        let after = self.wait_for_renewal(since_us, |place| place != used)?;
        // The server may have said so a moment before the agent reads its answer.
        let (bytes, connections) = wait_until("the agent to have counted the connection", SOON, || {
            let counted = self.counted()?;
            let (bytes, connections) = (counted.0 - before.0, counted.1 - before.1);
            if connections > 0 { Ok((bytes, connections)) } else { Err(format!("{bytes} bytes and no connection")) }
        })?;
        Ok(format!(
            "renewed at the other after {:.1} s, {bytes} IP bytes and {connections} connections",
            after.as_secs_f64()
        ))
    }

    /// The Node was Ready all the time; answers the longest time between two renewals.
    pub fn stayed_ready(mut self) -> Result<Duration> {
        self.agent.check()?;
        let stored = self.cluster.get_node(&self.node.name)?;
        let ready = condition(&stored, "Ready").cloned().unwrap_or_default();
        for field in ["status", "lastTransitionTime"] {
            if ready[field] != self.ready[field] {
                return Err(format!("Ready was {} and is {ready}", self.ready));
            }
        }
        let all = self.requests()?;
        let renewals = all.iter().filter(|(_, entry)| is_renewal(entry)).map(|(_, entry)| entry.received_at_us);
        let mut last_us = self.began_us;
        let gaps = renewals.map(|at_us| at_us - std::mem::replace(&mut last_us, at_us));
        let longest = Duration::from_micros(gaps.max().unwrap_or_default());
        if longest < GRACE { Ok(longest) } else { Err(format!("{longest:?} without a renewal")) }
    }
}
