//! A budget of bytes for each day that is soon used up: what is put off, what is not, and what comes of it (D16).

use super::super::agent::Launch;
use super::super::cluster::{AuditEntry, Cluster, Result};
use super::super::trials::Case;
use super::{
    SOON, is_event, is_renewal, is_status_patch, lines, status_of, wait_for_event, wait_for_node, wait_for_requests,
    wait_until_ready,
};

pub fn cases() -> Vec<Case> {
    cases![&[], a_small_budget_leaves_renewals_and_the_condition_and_nothing_is_lost]
}

const BUDGET: &str = "MeteredBudgetLow";
/// Of everything else there would be one every other second.
const RENEWALS: usize = 12;

fn a_small_budget_leaves_renewals_and_the_condition_and_nothing_is_lost(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("budget")?;
    // Each second a renewal, of 331 bytes at least: by no more than a kilobyte less it would be refused.
    let mut agent = Launch::quick(&node)
        .set("alpnProtocol", "h2")
        .set("dailyBytes", "28600000")
        .set("nodeStatusReportFrequency", "2s")
        .set("statusAssertFrequency", "2s")
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
