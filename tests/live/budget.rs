//! A budget of bytes for each day that is soon used up: what is put off, what is not, and what comes of it (D16).

use super::super::agent::Launch;
use super::super::cluster::{AuditEntry, Cluster, Result};
use super::super::trials::Case;
use super::{
    SOON, is_event, is_renewal, is_status_patch, lines, status_of, wait_for_event, wait_for_node, wait_for_requests,
    wait_until_ready,
};

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn cases() -> Vec<Case> {
    cases![&[], a_small_budget_leaves_renewals_and_the_condition_and_nothing_is_lost]
}

const BUDGET: &str = "MeteredBudgetLow";
/// Of everything else there would be one every other second.
const RENEWALS: usize = 12;

/// What an earlier process has counted today, so that besides the renewals of the rest of the day, as short as they can be, so
/// many bytes are left: too few, whatever the hour is, as soon as it is known how long they are.
fn has_spent_all_but(state: &Path, left_bytes: u64) -> io::Result<()> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (today, rest) = (seconds / 86_400, 86_400 - seconds % 86_400);
    let bytes = 28_600_000_u64.saturating_sub(331 * rest + left_bytes);
    let body = format!("nodepulse uplink 1\ntraffic {today} 60 {bytes} 0 9 0 0 0 9 {bytes}\n");
    std::fs::create_dir_all(state)?;
    std::fs::write(state.join("uplink"), format!("{body}sum {:08x}\n", crc32c(body.as_bytes())))
}

/// Castagnoli's, bit by bit (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

fn a_small_budget_leaves_renewals_and_the_condition_and_nothing_is_lost(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("budget")?;
    has_spent_all_but(&node.dir.join("state"), 100_000).map_err(|e| format!("what was spent cannot be left: {e}"))?;
    // Each second a renewal, of 331 bytes at least: by no more than a kilobyte less it would be refused.
    let mut agent = Launch::quick(&node)
        .set("alpnProtocol", "h2")
        .set("dailyBytes", "28600000")
        .set("nodeStatusReportFrequency", "2s")
        .asserting("2s")
        .set("evictionPressureTransitionPeriod", "1s")
        .start(cluster)?;
    wait_until_ready(cluster, &node)?;
    cluster.wait_for_condition(&node.name, BUDGET, "True", SOON)?;
    agent.wait_for_line(&["put-off:", "all but renewals"], SOON)?;
    // A change that is put off as well.
    agent.reload_with("evictionHard", "{memory.available: 8Ti}")?;
    agent.wait_for_line(&["NodeHasInsufficientMemory"], SOON)?;
    let of_node = |entries: &[AuditEntry]| entries.iter().filter(|e| !is_renewal(e)).count();
    let before = cluster.api.audit(|e| e.user == node.user)?;
    let renewals = |entries: &[AuditEntry]| entries.iter().filter(|e| is_renewal(e)).count();
    let enough = renewals(&before) + RENEWALS;
    let after = wait_for_requests(&cluster.api, &node, "renewals", 4 * SOON, |all| renewals(all) >= enough)?;
    let more = of_node(&after) - of_node(&before);
    // Of the last moment before it was put off something may have been under way.
    assert!(more <= 1, "{more} besides renewals: {:#?}", lines(&after));
    let last: Vec<&AuditEntry> = after.iter().rev().take(RENEWALS / 2).collect();
    assert!(last.iter().all(|e| !is_event(e) && !is_status_patch(e)), "{:#?}", lines(&after));
    let found = cluster.get_node(&node.name)?;
    assert_eq!((status_of(&found, "Ready"), status_of(&found, "MemoryPressure")), ("True", "False"));
    let said = agent.cost(&[])?;
    assert_eq!(said["dailyBytes"], 28_600_000, "{said:#}");
    assert!(said["leftBytes"].as_u64() < Some(28_600_000), "{said:#}");
    // Whoever pays for it has enough.
    agent.reload_with("dailyBytes", "null")?;
    cluster.wait_for_condition(&node.name, "MemoryPressure", "True", SOON)?;
    for reason in ["DailyBytesRunLow", "NodeHasInsufficientMemory", "DailyBytesSuffice"] {
        wait_for_event(cluster, &node, reason)?;
    }
    wait_for_node(cluster, &node, "an end of the condition", SOON, |found| {
        (status_of(found, BUDGET) == "False").then_some(())
    })?;
    agent.check()
}
