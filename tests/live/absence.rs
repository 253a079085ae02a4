//! An absence that people announce: what the server has of it at once, over a start, and at its end (ABS-1).

use super::super::agent::Launch;
use super::super::cluster::{Cluster, Result, condition};
use super::super::trials::Case;
use super::{SOON, is_status_patch, status_of, wait_for_event, wait_for_node, wait_until_ready};

use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub fn cases() -> Vec<Case> {
    cases![&[], an_absence_is_announced_kept_over_a_start_and_over_at_its_time_or_when_somebody_says_so]
}

const AWAY: &str = "PlannedAbsence";

/// The time in so many seconds, as `date -u` writes it.
fn stamp_in(seconds: u64) -> String {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + Duration::from_secs(seconds);
    nodepulse::time::Wall::from_unix_seconds(at.as_secs().cast_signed()).to_seconds_stamp()
}

fn an_absence_is_announced_kept_over_a_start_and_over_at_its_time_or_when_somebody_says_so(
    cluster: &Cluster,
) -> Result<()> {
    let node = cluster.node("away")?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    assert!(condition(&cluster.get_node(&node.name)?, AWAY).is_none(), "nothing without an announcement");
    let (code, said) = agent.command("back")?;
    assert_eq!((code, said.as_str()), (0, "no absence was announced\n"));

    let until = stamp_in(3600);
    let said: Value = agent.json(&["away", "--until", &until, "--reason", "a new fan"])?;
    assert_eq!(said, serde_json::json!({"awayUntil": until, "wasAway": true, "told": true}));
    // The command has ended because the server has it.
    let found = cluster.get_node(&node.name)?;
    let stored = condition(&found, AWAY).ok_or("no condition")?.clone();
    let message = format!("Absence announced until {until}: a new fan");
    assert_eq!((stored["status"].as_str(), stored["reason"].as_str()), (Some("True"), Some("Announced")));
    assert_eq!(stored["message"], message.as_str());
    assert_eq!(status_of(&found, "Ready"), "True", "that is untouched");
    wait_for_event(cluster, &node, "AbsenceAnnounced")?;

    assert_eq!(agent.stop()?, 0);
    let mut agent = Launch::quick(&node).start(cluster)?;
    let reports = |cluster: &Cluster| cluster.api.audit(|e| e.user == node.user && is_status_patch(e));
    let before = reports(cluster)?.len();
    wait_for_node(cluster, &node, "a report of the next process", SOON, |_| {
        reports(cluster).is_ok_and(|all| all.len() > before).then_some(())
    })?;
    assert_eq!(condition(&cluster.get_node(&node.name)?, AWAY), Some(&stored), "nothing of it has changed");

    let said: Value = agent.json(&["status"])?;
    let ready = condition(&found, "Ready").ok_or("no Ready")?;
    assert_eq!((&said["state"], &said["ready"]["since"]), (&"ready".into(), &ready["lastTransitionTime"]), "{said}");
    let (_, said) = agent.command("status")?;
    let line =
        format!("\n  condition    {AWAY} True since {} (", stored["lastTransitionTime"].as_str().unwrap_or_default());
    assert!(said.contains(&line) && said.contains(&format!("): {message}\n")), "{said}");
    let (code, why) = agent.command("why")?;
    let reads = |text: &str| why.contains(text);
    assert!(code == 0 && reads(&format!("{AWAY} True since ")), "{why}");
    assert!(reads("\n  read from  nodepulse away, ") && reads("\n  to do      nothing: it ends by itself;"), "{why}");
    let (code, said) = agent.command("back")?;
    assert_eq!((code, said.as_str()), (0, "back: the server has it\n"));
    assert!(!agent.command("why")?.1.contains(AWAY));
    assert_eq!(status_of(&cluster.get_node(&node.name)?, AWAY), "False");
    wait_for_event(cluster, &node, "AbsenceOver")?;

    // And by itself.
    let said: Value = agent.json(&["away", "--until", "3s"])?;
    assert_eq!(said["told"], true, "{said}");
    assert_eq!(status_of(&cluster.get_node(&node.name)?, AWAY), "True");
    cluster.wait_for_condition(&node.name, AWAY, "False", SOON)?;
    let (_, journal) = agent.command("journal")?;
    assert!(!journal.contains("the board is away"), "{journal}");
    agent.check()
}
