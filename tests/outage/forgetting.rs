//! Boxes that forget a connection which was silent for too long, and tell nobody: NAT and firewalls of mobile networks.

use super::super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::super::cluster::{Cluster, NodeIdentity, Options, Result, condition, wait_until};
use super::super::requests::{is_renewal, line, now_us, wait_until_ready};
use super::Case;
use super::links::say;
use super::site::{Link, SERVER_ADDRESSES, Site};
use serde_json::Value;
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![a_node_stays_ready_behind_a_box_that_forgets_its_connection_between_two_renewals]
}

/// As a controller has it where nobody says otherwise: the profile `metered` renews every 20 s then.
const GRACE: Duration = Duration::from_secs(50);
/// Between the periods of `lan` and of `metered`.
const FORGETS_AFTER: Duration = Duration::from_secs(15);
/// Until a second connection was forgotten, and the Lease renewed over another; a watch that begins keeps one for a renewal more.
const TWICE: Duration = Duration::from_secs(150);

/// An agent behind such a box.
struct Behind {
    _site: Site,
    node: NodeIdentity,
    agent: Nodepulse,
    ready: Value,
    began_us: u64,
}

impl Behind {
    fn start(cluster: &Cluster, profile: &str) -> Result<Self> {
        let link = Link { delay: Duration::from_millis(20), mtu_bytes: 1400, forgets_after: Some(FORGETS_AFTER) };
        let (site, node) = (Site::over(cluster, link)?, cluster.node(profile)?);
        let (key, room) = ROOM_ON_DISK;
        let launch = Launch::with_defaults(&node).set("profile", profile).set(key, room);
        let (began_us, agent) = (now_us(), site.launch(&cluster.api, &node, launch)?.start(cluster)?);
        let ready = condition(&wait_until_ready(cluster, &node)?, "Ready").cloned().unwrap_or_default();
        Ok(Self { _site: site, node, agent, ready, began_us })
    }

    /// How often it has said since then how it is.
    fn reports_since(&self, cluster: &Cluster, since_us: u64) -> Result<usize> {
        let is_report = |text: &str| text.starts_with("PATCH nodes/status");
        let since = cluster.audit_of(&self.node)?.into_iter().filter(|entry| entry.received_at_us > since_us);
        Ok(since.filter(|entry| is_report(&line(entry))).count())
    }

    /// How many connections it has made, and the longest time between two renewals; an error where it was not Ready throughout.
    fn fared(&mut self, cluster: &Cluster) -> Result<(u64, Duration)> {
        self.agent.check()?;
        let ready = condition(&cluster.get_node(&self.node.name)?, "Ready").cloned().unwrap_or_default();
        for field in ["status", "lastTransitionTime"] {
            if ready[field] != self.ready[field] {
                return Err(format!("Ready was {} and is {ready}", self.ready));
            }
        }
        let mut last_us = self.began_us;
        let renewals = cluster.audit_of(&self.node)?.into_iter().filter(is_renewal).map(|entry| entry.received_at_us);
        let longest_us = renewals.map(|at_us| at_us - std::mem::replace(&mut last_us, at_us)).max();
        let said = self.agent.cost(&[])?;
        let days = said["days"].as_array().into_iter().flatten();
        let made = days.filter_map(|day| day.pointer("/purposes/handshake/count")?.as_u64()).sum();
        let longest = Duration::from_micros(longest_us.unwrap_or_default());
        if longest < GRACE { Ok((made, longest)) } else { Err(format!("{longest:?} without a renewal")) }
    }
}

fn a_node_stays_ready_behind_a_box_that_forgets_its_connection_between_two_renewals(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options {
        node_monitor_grace_period: GRACE,
        node_startup_grace_period: GRACE,
        more_addresses: SERVER_ADDRESSES.to_vec(),
        ..Options::default()
    })?;
    let [mut often, mut rarely] = [Behind::start(&cluster, "lan")?, Behind::start(&cluster, "metered")?];
    let (began, began_us, word) = (Instant::now(), now_us(), "connection-forgotten");
    let line = rarely.agent.wait_for_line(&[word, "s of silence", "nodeLeaseDurationSeconds"], TWICE)?;
    eprintln!("  after {:.0} s: {line}", began.elapsed().as_secs_f64());
    // What is forgotten a third time is not said again.
    wait_until("a third time", TWICE, || match rarely.fared(&cluster)?.0 {
        few @ ..4 => Err(format!("{few} connections")),
        _ => Ok(()),
    })?;
    assert_eq!(rarely.agent.count_lines(word)?, 1, "{}", rarely.agent.said()?);
    let (connections, longest) = rarely.fared(&cluster)?;
    say(&format!("metered, {connections} connections; longest time between two renewals"), longest);
    // A controller that has waited for less than its patience has written nothing that a report would have to put right; one
    // report is of the beginning.
    let reports = rarely.reports_since(&cluster, began_us)?;
    assert!(reports <= 1, "{reports} reports: {}", rarely.agent.said()?);
    let (connections, longest) = often.fared(&cluster)?;
    say(&format!("lan, {connections} connection; longest time between two renewals"), longest);
    assert_eq!(connections, 1, "what is sent anyway keeps it: {}", often.agent.said()?);
    assert_eq!(often.agent.count_lines(word)?, 0, "{}", often.agent.said()?);
    Ok(())
}
