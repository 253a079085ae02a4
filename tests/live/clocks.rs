//! Boards whose clock is wrong, kept right by nobody or by somebody, before a real API server (D11, `clock.c`).

use super::super::agent::{Launch, Nodepulse, preload};
use super::super::cluster::audit::micros;
use super::super::cluster::{Cluster, NodeIdentity, Result, Validity, wait_until};
use super::super::trials::Case;
use super::{SOON, expected, is_renewal, now_us, renew_time, wait_for_node, wait_for_requests, wait_until_ready};
use serde_json::Value;
use std::time::Duration;

const YEAR_SECONDS: i64 = 31_556_952;
/// What a `Date` and the way of a request leave open.
const NEARLY: Duration = Duration::from_secs(5);

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_board_in_1970_whose_servers_certificate_was_renewed_meanwhile_is_ready,
        a_clock_that_is_kept_right_is_said_so,
        a_board_70_years_ahead_that_nobody_synchronises_is_ready,
        a_board_70_years_ahead_that_is_called_synchronised_is_told_why_it_cannot,
        what_the_network_took_is_told_when_a_day_is_over,
    ]
}

/// The agent on a board whose clock is so far off, and `synchronised` if its kernel says that it is right.
fn start(cluster: &Cluster, node: &NodeIdentity, off_seconds: i64, synchronised: bool) -> Result<Nodepulse> {
    launch(node, off_seconds, synchronised)?.start(cluster)
}

fn launch(node: &NodeIdentity, off_seconds: i64, synchronised: bool) -> Result<Launch<'_>> {
    let off = format!("CLOCK_OFF_SECONDS={off_seconds}");
    let mut command = vec!["env".to_owned(), preload(node, "live/clock.c")?, off];
    command.extend(synchronised.then(|| "CLOCK_SYNCHRONISED=1".to_owned()));
    command.push(env!("CARGO_BIN_EXE_nodepulse").to_owned());
    Ok(Launch::quick(node).program(command))
}

/// Registered and renewing, dated by the server's clock.
fn is_ready_and_dated_right(cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
    wait_until_ready(cluster, node)?;
    let enough = |all: &[_]| all.iter().filter(|e| is_renewal(e)).count() >= 3;
    let requests = wait_for_requests(&cluster.api, node, "three renewals", SOON, enough)?;
    for renewal in requests.iter().filter(|e| is_renewal(e)) {
        let stamp = renew_time(renewal).and_then(micros).ok_or("no renewTime")?;
        let off = Duration::from_micros(stamp.abs_diff(renewal.received_at_us));
        assert!(off < NEARLY, "a renewal is dated {off:?} off: {}", renewal.body);
    }
    Ok(())
}

fn a_board_in_1970_whose_servers_certificate_was_renewed_meanwhile_is_ready(cluster: &Cluster) -> Result<()> {
    let own = cluster.node("waited")?;
    // Certificates are dated in seconds: the server's is to be younger than the board's.
    let issued = now_us() / 1_000_000;
    wait_until("the next second", SOON, || {
        if now_us() / 1_000_000 > issued { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let api = cluster.api_server(Validity::Now)?;
    let renewed = own.kubeconfig_via(&api.url())?;
    std::fs::copy(renewed, &own.kubeconfig).map_err(|e| e.to_string())?;
    let since_1970 = i64::try_from(issued).map_err(|e| e.to_string())?;
    let _agent = start(cluster, &own, 12 - since_1970, false)?;
    wait_until_ready(cluster, &own)?;
    wait_for_clock(
        cluster,
        &own,
        ["True", "ClockUnset", "Nobody keeps the clock right: it is before this program was built"],
    )
}

/// Status, reason and message of what the Node says of its board's clock.
fn wait_for_clock(cluster: &Cluster, node: &NodeIdentity, said: [&str; 3]) -> Result<()> {
    wait_for_node(cluster, node, &format!("the clock {said:?}"), SOON, |found| {
        let conditions = found["status"]["conditions"].as_array()?;
        let clock = conditions.iter().find(|one| one["type"] == "NTPProblem")?;
        (["status", "reason", "message"].map(|key| &clock[key]) == said).then_some(())
    })
}

fn a_clock_that_is_kept_right_is_said_so(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("punctual")?;
    let _agent = start(cluster, &node, 0, true)?;
    wait_for_clock(cluster, &node, ["False", "NTPIsUp", "The clock is kept right"])
}

fn a_board_70_years_ahead_that_nobody_synchronises_is_ready(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("prophet")?;
    let _agent = start(cluster, &node, 70 * YEAR_SECONDS, false)?;
    is_ready_and_dated_right(cluster, &node)
}

fn a_board_70_years_ahead_that_is_called_synchronised_is_told_why_it_cannot(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("misled-by-ntp")?;
    let mut agent = start(cluster, &node, 70 * YEAR_SECONDS, true)?;
    agent.wait_for_line(
        &["registration failed", "the server's certificate has expired", "set this board's clock"],
        SOON,
    )?;
    assert_eq!(cluster.find_node(&node.name)?, None);
    agent.check()
}

/// By the clock of a board that is so far ahead that its midnight is near.
fn what_the_network_took_is_told_when_a_day_is_over(cluster: &Cluster) -> Result<()> {
    const DAY_SECONDS: u64 = 86_400;
    const LEFT_SECONDS: u64 = 20;
    let node = cluster.node("midnight")?;
    let now = now_us() / 1_000_000;
    let ahead = (2 * DAY_SECONDS - LEFT_SECONDS - now % DAY_SECONDS) % DAY_SECONDS;
    let today = expected::date(&["-d", &format!("@{}", now + ahead), "+%F"])?;
    let _agent = launch(&node, ahead.cast_signed(), true)?.set("nodeStatusReportFrequency", "2s").start(cluster)?;
    let found = wait_until_ready(cluster, &node)?;
    let (expiry, bytes) = ("nodepulse.dev/certificate-expiry", "nodepulse.dev/network-bytes");
    let annotations = &found["metadata"]["annotations"];
    assert_eq!(annotations[expiry], expected::certificate_expiry(&node)?);
    assert_eq!(annotations[bytes], Value::Null, "it is its first day");
    wait_for_node(cluster, &node, &format!("the bytes of {today}"), 2 * SOON, |found| {
        let said: Value = serde_json::from_str(found["metadata"]["annotations"][bytes].as_str()?).ok()?;
        (said["day"] == today && said["bytes"].as_u64()? > 4000).then_some(())
    })
}
