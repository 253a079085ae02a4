//! Boards whose clock is wrong when they are switched on: what they say to the server is dated right all the same.

use super::super::board::{ARMV7, PC};
use super::super::cluster::{Cluster, NodeIdentity, Result};
use super::super::machine::{Boot, Machine};
use super::super::requests::{is_renewal, wait_for_requests};
use super::super::stamps::Stamps;
use super::{Case, READY_WITHIN, SLACK_SECONDS, boot, wait_until_ready};
use nodepulse::time::Wall;
use std::time::Duration;

const RENEWALS: usize = 3;
const DAY_SECONDS: i64 = 86_400;

pub fn cases() -> Vec<Case> {
    cases![
        a_board_in_1970_is_ready_with_true_stamps,
        a_board_a_day_ahead_is_ready_with_true_stamps,
        a_board_of_32_bits_in_2040_is_ready_with_true_stamps,
    ]
}

fn a_board_in_1970_is_ready_with_true_stamps(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("in-1970")?;
    let machine = becomes_ready(cluster, boot(&PC, &node), &node, Wall::from_unix_seconds(0))?;
    let skews = machine.agent_said().iter().filter(|line| line.contains("clock is")).count();
    assert_eq!(skews, 0, "a board without a clock was told that its clock is off:\n{}", machine.said());
    Ok(())
}

fn a_board_a_day_ahead_is_ready_with_true_stamps(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("ahead")?;
    let tomorrow = Wall::from_unix_seconds(now_seconds()?.saturating_add(DAY_SECONDS));
    let machine = becomes_ready(cluster, boot(&PC, &node), &node, tomorrow)?;
    let skews = machine.agent_said().iter().filter(|line| line.contains("s ahead of the server's")).count();
    assert_eq!(skews, 1, "who sets a clock that is off must hear of it, once:\n{}", machine.said());
    Ok(())
}

/// More seconds than 31 bits hold. Linux takes such a time from no battery there, but from whoever sets it.
fn a_board_of_32_bits_in_2040_is_ready_with_true_stamps(cluster: &Cluster) -> Result<()> {
    const IN_2040: i64 = 2_208_988_800;
    let node = cluster.node("in-2040")?;
    let mut machine = boot(&ARMV7, &node).start(cluster)?;
    machine.tell(&format!("date -s @{IN_2040}"))?;
    let (shown, _) = machine.clocks()?;
    assert!((IN_2040..IN_2040.saturating_add(60)).contains(&shown), "it could not be set: {shown}");
    let machine = stays_ready(cluster, machine, &node)?;
    let skews = machine.agent_said().iter().filter(|line| line.contains("s ahead of the server's")).count();
    assert_eq!(skews, 1, "{}", machine.said());
    Ok(())
}

/// A board that shows `clock` when it is switched on: Ready, renewing, dated right; and its clock goes on as it was.
pub fn becomes_ready(cluster: &Cluster, boot: Boot, node: &NodeIdentity, clock: Wall) -> Result<Machine> {
    let shown = clock.to_seconds_stamp();
    let mut machine = boot.clock(shown.trim_end_matches('Z').to_owned()).start(cluster)?;
    let (before, up) = machine.clocks()?;
    let off = (before - up - clock.unix_seconds()).abs();
    assert!(off <= 60, "the board was to begin at {shown}, and began {off} s from it");
    stays_ready(cluster, machine, node)
}

/// The same of one that is switched on.
fn stays_ready(cluster: &Cluster, mut machine: Machine, node: &NodeIdentity) -> Result<Machine> {
    let stamps = Stamps::begin();
    let (before, up) = machine.clocks()?;
    machine.start_agent()?;
    wait_until_ready(cluster, node).map_err(|e| machine.with_console(&e))?;
    wait_for_requests(&cluster.api, node, "renewals", READY_WITHIN, |all| {
        all.iter().filter(|e| is_renewal(e)).count() >= RENEWALS
    })
    .map_err(|e| machine.with_console(&e))?;
    let looked_at = stamps.are_true(cluster, node).map_err(|e| machine.with_console(&e))?;
    eprintln!("  {}: its clock shows {before} s since 1970, Ready; {looked_at} stamps, all true", node.name);
    let (after, up_after) = machine.clocks()?;
    let moved = (after - before - (up_after - up)).abs();
    assert!(moved <= SLACK_SECONDS, "the board's own clock was set: it moved by {moved} s");
    machine.stop_agent()?;
    Ok(machine)
}

fn now_seconds() -> Result<i64> {
    let now = Duration::from_micros(super::super::requests::now_us());
    i64::try_from(now.as_secs()).map_err(|e| e.to_string())
}
