//! Changes that happen while nobody listens: the node is Ready again in two requests, and then all of them are told.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::audit::micros;
use super::super::cluster::{
    ApiServer, AuditEntry, Cluster, Credential, NodeIdentity, Result, Validity, condition, wait_until,
};
use super::super::requests::{SOON, is_event, line, lines, now_us, status_of, wait_for_requests, wait_until_ready};
use super::Case;
use super::links::{say, wait_for_renewal};
use super::site::Site;
use serde_json::Value;
use std::time::{Duration, Instant};

/// `evictionHard` of four acts: calm, the memory is short, the disk too, only the disk. The last three are changes.
const ACTS: [&str; 4] = [
    "{memory.available: 1Mi, nodefs.available: 1Mi, nodefs.inodesFree: '1'}",
    "{memory.available: 8Ti, nodefs.available: 1Mi, nodefs.inodesFree: '1'}",
    "{memory.available: 8Ti, nodefs.available: 8Ti, nodefs.inodesFree: '1'}",
    "{memory.available: 1Mi, nodefs.available: 8Ti, nodefs.inodesFree: '1'}",
];
/// What the changes are told as, and what the end of an outage is.
const TOLD: [&str; 4] =
    ["NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasSufficientMemory", "UplinkRestored"];
/// The least of an act: the board is looked at every second where it is registered, and a pressure ends a second after it
/// was seen last.
const ACT: Duration = Duration::from_millis(3500);
/// A server that is back is left in peace for ten to twenty seconds, and then told one thing a second.
const TELLING: Duration = Duration::from_secs(40);

pub fn cases() -> Vec<Case> {
    cases![
        what_changes_while_the_link_is_down_is_told_when_it_returns,
        what_changes_while_the_link_is_down_outlives_the_process,
        what_changes_while_the_server_is_down_is_told_when_it_returns,
    ]
}

/// One outage of one agent, and when (in microseconds since 1970) each act of it began.
struct Outage<'a> {
    cluster: &'a Cluster,
    api: &'a ApiServer,
    site: Site,
    node: NodeIdentity,
    agent: Nodepulse,
    acts_us: Vec<u64>,
}

impl<'a> Outage<'a> {
    fn prepare(cluster: &'a Cluster, api: &'a ApiServer, hint: &str) -> Result<Self> {
        let (site, node) = (Site::new(cluster)?, cluster.node_at(api, hint, Credential::Valid)?);
        let agent = start(cluster, api, &site, &node, ACTS[0])?;
        wait_until_ready(cluster, &node)?;
        let outage = Self { cluster, api, site, node, agent, acts_us: Vec::new() };
        wait_for_requests(api, &outage.node, "two renewals", SOON, |all| {
            all.iter().filter(|e| super::super::requests::is_renewal(e)).count() >= 2
        })?;
        Ok(outage)
    }

    /// The link is cut, memory runs short, and the agent is killed.
    fn killed(cluster: &'a Cluster, hint: &str) -> Result<Self> {
        let mut outage = Self::prepare(cluster, &cluster.api, hint)?;
        let cut_us = now_us();
        outage.site.cut(0)?;
        outage.begins(cut_us)?;
        outage.act(1)?;
        outage.agent.kill()?;
        Ok(outage)
    }

    /// The agent has noticed that since then there is no server any more.
    fn begins(&mut self, since_us: u64) -> Result<()> {
        self.acts_us.push(since_us);
        self.agent.wait_for_line(&["Lease renewal failed"], SOON).map(drop)
    }

    fn act(&mut self, number: usize) -> Result<()> {
        self.acts_us.push(now_us());
        self.agent.reload_with("evictionHard", ACTS[number])?;
        let began = Instant::now();
        // While it cannot register, the board is looked at with each try, and every ten seconds.
        self.agent.wait_for_line(&[TOLD[number - 1]], SOON)?;
        wait_until(
            "the end of an act",
            SOON,
            || {
                if began.elapsed() >= ACT { Ok(()) } else { Err("not yet".to_owned()) }
            },
        )
    }

    /// The controller has given the node up, and it lasted as long as `OUTAGE_SECONDS` says.
    fn ends(&mut self) -> Result<()> {
        self.acts_us.push(now_us());
        self.cluster.wait_for_condition(&self.node.name, "Ready", "Unknown", Duration::from_secs(40))?;
        let wanted_s: u64 = std::env::var("OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let over_us = self.acts_us[0] + wanted_s * 1_000_000;
        wait_until("the end of the outage", Duration::from_secs(wanted_s + 1), || {
            if now_us() >= over_us { Ok(()) } else { Err("not yet".to_owned()) }
        })
    }

    /// Ready, soon; the requests since then but for events.
    fn is_over(&self, back_us: u64) -> Result<Vec<AuditEntry>> {
        let is_since = |e: &&AuditEntry| e.received_at_us > back_us && !is_event(e);
        // The answer to a report in full brings its version alone: then what was accepted is what was sent.
        let is_ready = |e: &AuditEntry| [&e.reply, &e.body].into_iter().any(|node| status_of(node, "Ready") == "True");
        let says_ready = |e: &AuditEntry| e.received_at_us > back_us && e.code == 200 && is_ready(e);
        let all = wait_for_requests(self.api, &self.node, "a report that makes it Ready", SOON, |all| {
            all.iter().any(says_ready)
        })?;
        let ready_us = all.iter().find(|e| says_ready(e)).map(|e| e.completed_at_us).ok_or("none")?;
        let after = Duration::from_micros(ready_us - back_us);
        say(&format!("{}: the way back, to Ready", self.node.name), after);
        assert!(after < Duration::from_secs(3), "Ready after {after:?}: {:#?}", lines(&all));
        Ok(all.iter().filter(is_since).cloned().collect())
    }

    /// Each change in its order and with its own time, and then the end of the outage, as events and in an annotation.
    fn is_told(&self, back_us: u64) -> Result<()> {
        let is_told = |e: &&AuditEntry| e.received_at_us > back_us && is_event(e) && e.code == 201;
        let is_ours = |e: &&AuditEntry| TOLD.iter().any(|reason| e.body["reason"] == *reason);
        let all = wait_for_requests(self.api, &self.node, "four events", TELLING, |all| {
            all.iter().filter(is_told).filter(is_ours).count() >= TOLD.len()
        })?;
        let events: Vec<&Value> = all.iter().filter(is_told).filter(is_ours).map(|e| &e.body).collect();
        let reasons: Vec<&str> = events.iter().filter_map(|e| e["reason"].as_str()).collect();
        assert_eq!(reasons, TOLD, "{:#?}", lines(&all));
        for (number, event) in events.iter().take(3).enumerate() {
            for field in ["firstTimestamp", "lastTimestamp"] {
                let at_us = stamp_us(&event[field])?;
                let (begin, end) = (self.acts_us[number + 1], self.acts_us[number + 2]);
                // Stamps are cut to the second.
                assert!((begin - 1_000_000..end).contains(&at_us), "{field} {at_us}, act {begin} to {end}: {event}");
            }
        }
        let noted = wait_until("the annotation", TELLING, || {
            let node = self.cluster.get_node(&self.node.name)?;
            let text = node["metadata"]["annotations"]["nodepulse.dev/last-outage"].as_str().map(str::to_owned);
            text.ok_or_else(|| node["metadata"].to_string())
        })?;
        let noted: Value = serde_json::from_str(&noted).map_err(|e| format!("{noted}: {e}"))?;
        assert_eq!((&noted["changes"], &noted["dropped"]), (&3.into(), &0.into()), "{noted}");
        let (from, to, cut) = (stamp_us(&noted["from"])?, stamp_us(&noted["to"])?, self.acts_us[0]);
        // From the last answer on: one may be up to a second before the cut, and a server that ends answers to its end.
        assert!((cut - 3_000_000..self.acts_us[1]).contains(&from), "cut at {cut}: {noted}");
        assert!((back_us - 1_000_000..back_us + 4_000_000).contains(&to), "back at {back_us}: {noted}");
        assert!(noted["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{noted}");
        Ok(())
    }

    /// The conditions as they are, each since it is so.
    fn is_true(&self, report: &Value) -> Result<()> {
        for (kind, status, act) in [("MemoryPressure", "False", 3), ("DiskPressure", "True", 2)] {
            let found = condition(report, kind).ok_or(kind)?;
            let since_us = stamp_us(&found["lastTransitionTime"])?;
            let (begin, end) = (self.acts_us[act], self.acts_us[act + 1]);
            assert_eq!(found["status"], status, "{found}");
            assert!((begin - 1_000_000..end).contains(&since_us), "act {begin} to {end}: {found}");
        }
        Ok(())
    }
}

fn start(
    cluster: &Cluster,
    api: &ApiServer,
    site: &Site,
    node: &NodeIdentity,
    eviction_hard: &str,
) -> Result<Nodepulse> {
    let launch = Launch::quick(node).set("evictionPressureTransitionPeriod", "1s").set("evictionHard", eviction_hard);
    // A link that fails in several ways takes lines from the changes that are waited for.
    site.launch(api, node, launch.with_whole_log())?.start(cluster)
}

fn stamp_us(stamp: &Value) -> Result<u64> {
    stamp.as_str().and_then(micros).ok_or_else(|| format!("{stamp} is no stamp"))
}

/// Lease, then status: nothing else is between the way back and Ready.
fn only_two_requests(since: &[AuditEntry]) -> &AuditEntry {
    let first_two: Vec<String> = since.iter().take(2).map(line).collect();
    let at_ms = |e: &AuditEntry| format!("{} at {} ms", line(e), e.received_at_us / 1000 % 100_000);
    let told: Vec<String> = since.iter().map(at_ms).collect();
    assert_eq!(first_two, ["PATCH leases 200", "PATCH nodes/status?timeout=10s 200"], "{told:#?}");
    &since[1]
}

fn what_changes_while_the_link_is_down_is_told_when_it_returns(cluster: &Cluster) -> Result<()> {
    let mut outage = Outage::prepare(cluster, &cluster.api, "cut-off")?;
    let cut_us = now_us();
    outage.site.cut(0)?;
    outage.begins(cut_us)?;
    (1..=3).try_for_each(|act| outage.act(act))?;
    outage.ends()?;
    let back_us = now_us();
    outage.site.mend(0)?;
    let since = outage.is_over(back_us)?;
    outage.is_true(&only_two_requests(&since).body)?;
    outage.is_told(back_us)?;
    wait_for_renewal(cluster, &outage.node, now_us(), SOON)?;
    outage.agent.check()
}

fn what_changes_while_the_link_is_down_outlives_the_process(cluster: &Cluster) -> Result<()> {
    let mut outage = Outage::killed(cluster, "cut-down")?;
    outage.agent = start(cluster, &cluster.api, &outage.site, &outage.node, ACTS[1])?;
    outage.agent.wait_for_line(&["registration fail", "cannot connect"], SOON)?;
    outage.act(2)?;
    outage.act(3)?;
    outage.ends()?;
    let back_us = now_us();
    outage.site.mend(0)?;
    // It asks what every process asks first, and reports what the records say.
    let since = outage.is_over(back_us)?;
    let is_report = |e: &&AuditEntry| e.code == 200 && line(e).starts_with("PATCH nodes/status");
    outage.is_true(&since.iter().rfind(is_report).ok_or("no report")?.reply)?;
    // What the controllers write on a Node that is Ready again is looked at.
    let asked = since.iter().filter(|e| !line(e).starts_with("GET nodes?")).count();
    assert!(asked <= 7, "{:#?}", lines(&since));
    eprintln!("  after a kill in the outage: {:?}", lines(&since));
    outage.is_told(back_us)?;
    outage.agent.check()
}

fn what_changes_while_the_server_is_down_is_told_when_it_returns(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let mut outage = Outage::prepare(cluster, &api, "left-alone")?;
    let stopped_us = now_us();
    api.stop();
    outage.begins(stopped_us)?;
    (1..=3).try_for_each(|act| outage.act(act))?;
    outage.ends()?;
    api.restart()?;
    // Nothing of ours changes when a server returns; the agent comes by within its longest pause.
    let all = wait_for_requests(&api, &outage.node, "a renewal", SOON, |all| {
        all.iter().any(|e| super::super::requests::is_renewal(e) && e.received_at_us > outage.acts_us[4])
    })?;
    let is_after = |e: &&AuditEntry| e.received_at_us > outage.acts_us[4] && e.code == 200;
    let back_us = all.iter().find(is_after).map(|e| e.received_at_us - 1).ok_or("nothing since")?;
    let since = outage.is_over(back_us)?;
    outage.is_true(&only_two_requests(&since).body)?;
    outage.is_told(back_us)?;
    outage.agent.check()
}
