//! Turns two API servers of one cluster and a box before them into a place where an agent lives, and judges how it fares.

use super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::cluster::{ApiServer, AuditEntry, Cluster, NodeIdentity, Result, Validity, condition, wait_until};
use super::programs::Middle;
use super::requests::{is_renewal, now_us, wait_until_ready};
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
