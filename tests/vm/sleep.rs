//! Boards that are suspended until their Node is given up: awake again, each is Ready at once, over a connection that is new.

use super::super::board::{ARM64, PC};
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Result};
use super::super::machine::{Boot, Machine};
use super::super::relay::Relay;
use super::super::requests::{is_event, is_lease, is_renewal, line, lines, now_us, status_of, wait_for_requests};
use super::super::stamps::Stamps;
use super::{Case, READY_WITHIN, SLACK_SECONDS, boot, wait_until_ready};
use serde_json::Value;
use std::time::Duration;

/// More than the Lease lasts, and than the controller waits.
const SLEEP: Duration = Duration::from_secs(45);
/// From the moment when its programs go on to the answer that makes its Node Ready.
const BACK_WITHIN: Duration = Duration::from_secs(3);
/// QEMU 7.2 breaks one in five resumes of a PC on a busy machine, before anything of ours goes on.
const SLEEP_TRIES: usize = 3;
/// When it sleeps for certain.
const ASLEEP_AFTER_US: u64 = 5_000_000;

pub fn cases() -> Vec<Case> {
    cases![
        a_board_that_slept_is_ready_at_once,
        a_board_in_1970_that_slept_is_ready_at_once_with_true_stamps,
        a_board_in_2040_that_slept_is_ready_at_once_with_true_stamps,
        a_board_whose_clocks_go_on_while_it_sleeps_is_ready_at_once,
    ]
}

fn a_board_that_slept_is_ready_at_once(cluster: &Cluster) -> Result<()> {
    sleeps_and_is_ready(cluster, "slept", |node| boot(&PC, node), "mem")
}

fn a_board_in_1970_that_slept_is_ready_at_once_with_true_stamps(cluster: &Cluster) -> Result<()> {
    let in_1970 = || "1970-01-01T00:00:00".to_owned();
    sleeps_and_is_ready(cluster, "slept-in-1970", |node| boot(&PC, node).clock(in_1970()), "mem")
}

/// After the last second that 32 bits hold.
fn a_board_in_2040_that_slept_is_ready_at_once_with_true_stamps(cluster: &Cluster) -> Result<()> {
    let in_2040 = || "2040-01-01T00:00:00".to_owned();
    sleeps_and_is_ready(cluster, "slept-in-2040", |node| boot(&PC, node).clock(in_2040()), "mem")
}

/// Without a driver for deeper sleep a kernel only waits with all programs frozen: the clock that should not count suspend
/// counts this one.
fn a_board_whose_clocks_go_on_while_it_sleeps_is_ready_at_once(cluster: &Cluster) -> Result<()> {
    sleeps_and_is_ready(cluster, "froze", |node| boot(&ARM64, node), "freeze")
}

fn sleeps_and_is_ready(
    cluster: &Cluster,
    hint: &str,
    board: impl for<'a> Fn(&'a NodeIdentity) -> Boot<'a>,
    state: &str,
) -> Result<()> {
    for left in (0..SLEEP_TRIES).rev() {
        let node = cluster.node(hint)?;
        let mut sleeper = Sleeper::begin(cluster, &node, board(&node))?;
        let asleep_us = sleeper.sleep(state)?;
        match sleeper.machine.wait_until_awake() {
            Ok(awake_us) => return sleeper.is_ready(asleep_us, awake_us),
            Err(e) if left == 0 => return Err(e),
            Err(e) => eprintln!("  {}: once more: {}", node.name, e.lines().next().unwrap_or_default()),
        }
    }
    Err("it was never put to sleep".to_owned())
}

/// A board at work, and how it was before it sleeps.
struct Sleeper<'a> {
    cluster: &'a Cluster,
    node: &'a NodeIdentity,
    machine: Machine,
    relay: Relay,
    stamps: Stamps,
    connections: usize,
    conditions: Vec<String>,
    clocks: (i64, i64),
}

impl<'a> Sleeper<'a> {
    /// Ready, and its Lease renewed.
    fn begin(cluster: &'a Cluster, node: &'a NodeIdentity, boot: Boot) -> Result<Self> {
        let (stamps, relay) = (Stamps::begin(), Relay::to(cluster.api.port)?);
        let mut machine = boot.via(relay.port).start(cluster)?;
        let clocks = machine.clocks()?;
        machine.start_agent()?;
        wait_until_ready(cluster, node).map_err(|e| machine.with_console(&e))?;
        renews(cluster, node).map_err(|e| machine.with_console(&e))?;
        let (connections, conditions) = (relay.begun(), transitions(cluster, node)?);
        Ok(Self { cluster, node, machine, relay, stamps, connections, conditions, clocks })
    }

    /// Its Node is given up, and the way forgets its connection. The answer is a time when it slept.
    fn sleep(&mut self, state: &str) -> Result<u64> {
        let asleep_us = now_us() + ASLEEP_AFTER_US;
        self.machine.fall_asleep(state, SLEEP)?;
        self.cluster.wait_for_condition(&self.node.name, "Ready", "Unknown", SLEEP)?;
        self.relay.forget();
        Ok(asleep_us)
    }

    fn is_ready(&mut self, asleep_us: u64, awake_us: u64) -> Result<()> {
        let (cluster, node) = (self.cluster, self.node);
        let after = self.ready_in_two_requests(asleep_us, awake_us).map_err(|e| self.machine.with_console(&e))?;
        eprintln!("  {}: Ready {:.2} s after its programs went on", node.name, after.as_secs_f64());
        assert!(after < BACK_WITHIN, "{}", self.machine.with_console(&format!("{after:?}")));
        assert_eq!(self.relay.begun(), self.connections + 1, "what was connected is forgotten on the way");
        assert_eq!(transitions(cluster, node)?, self.conditions, "it was Ready, and is, and nothing else has changed");
        self.machine.wait_for_line(&["agent: ", "awake again after "], READY_WITHIN)?;

        renews(cluster, node).map_err(|e| self.machine.with_console(&e))?;
        let looked_at = self.stamps.are_true(cluster, node).map_err(|e| self.machine.with_console(&e))?;
        eprintln!("  {}: {looked_at} stamps, all true", node.name);
        let (wall, up) = self.machine.clocks()?;
        let moved = (wall - self.clocks.0 - (up - self.clocks.1)).abs();
        assert!(moved <= SLACK_SECONDS, "the board's own clock was set: it moved by {moved} s");
        self.machine.stop_agent()
    }

    /// Since it slept: the Lease, and then the status, which made its Node Ready. How long that took.
    fn ready_in_two_requests(&self, asleep_us: u64, awake_us: u64) -> Result<Duration> {
        let api = &self.cluster.api;
        // The answer to a report in full brings its version alone: then what was accepted is what was sent.
        let is_ready = |e: &AuditEntry| {
            e.code == 200 && [&e.reply, &e.body].into_iter().any(|node| status_of(node, "Ready") == "True")
        };
        let all = wait_for_requests(api, self.node, "a report that makes it Ready", READY_WITHIN, |all| {
            all.iter().any(|e| e.received_at_us > asleep_us && is_ready(e))
        })?;
        let since: Vec<&AuditEntry> = all.iter().filter(|e| e.received_at_us > asleep_us && !is_event(e)).collect();
        let [first, second, ..] = since[..] else { return Err(format!("{:#?}", lines(&all))) };
        // Sent in this order; over HTTP/2 both are under way at once, and the server looks at them in any.
        let (lease, status) = if is_lease(first) { (first, second) } else { (second, first) };
        let first_two = [line(lease), line(status)];
        assert_eq!(first_two, ["PATCH leases 200", "PATCH nodes/status?timeout=10s 200"], "{:#?}", lines(&all));
        assert!(is_ready(status), "{} answered by {}", status.body, status.reply);
        Ok(Duration::from_micros(status.completed_at_us.saturating_sub(awake_us)))
    }
}

/// A renewal that began now or later has been accepted.
fn renews(cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
    let since_us = now_us();
    let is_new = |e: &AuditEntry| is_renewal(e) && e.received_at_us > since_us;
    wait_for_requests(&cluster.api, node, "a renewal", READY_WITHIN, |all| all.iter().any(is_new)).map(drop)
}

/// Each condition with its status, and since when.
fn transitions(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<String>> {
    let found = cluster.get_node(&node.name)?;
    let conditions = found["status"]["conditions"].as_array().ok_or_else(|| found.to_string())?;
    let told = |one: &Value| format!("{}={} since {}", one["type"], one["status"], one["lastTransitionTime"]);
    Ok(conditions.iter().map(told).collect())
}
