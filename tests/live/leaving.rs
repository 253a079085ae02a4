//! A machine that goes down, as an init script says it: what the server has of it, how soon, and in how many requests (D15).

use super::super::agent::Launch;
use super::super::cluster::{Cluster, Result, condition};
use super::super::trials::Case;
use super::{
    SOON, is_event, is_renewal, is_status_patch, lines, now_us, status_of, wait_for_event, wait_for_requests,
    wait_until_ready,
};
use std::fs;
use std::path::Path;

pub fn cases() -> Vec<Case> {
    cases![&[], a_shutdown_is_told_in_two_requests_and_300_ms_and_over_with_the_next_start]
}

/// Of the process, to its end, on loopback.
const WITHIN_MS: u64 = 300;

fn launch<'a>(node: &'a super::super::cluster::NodeIdentity, folder: &Path) -> Launch<'a> {
    let program = [
        "env".to_owned(),
        format!("RUNTIME_DIRECTORY={}", folder.display()),
        env!("CARGO_BIN_EXE_nodepulse").to_owned(),
    ];
    Launch::with_defaults(node).program(program.into())
}

fn a_shutdown_is_told_in_two_requests_and_300_ms_and_over_with_the_next_start(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("going-down")?;
    let folder = node.dir.join("run");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let mut agent = launch(&node, &folder).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_requests(&cluster.api, &node, "what a start tells", SOON, |all| {
        all.iter().filter(|e| is_event(e)).count() >= 4 && all.iter().any(is_renewal)
    })?;
    let before = cluster.api.audit(|e| e.user == node.user)?.len();
    // As a script of targets/ does.
    fs::write(folder.join("leaving"), "reboot\n").map_err(|e| e.to_string())?;
    let asked_at_us = now_us();
    assert_eq!(agent.stop()?, 0);
    let spent_ms = now_us().saturating_sub(asked_at_us) / 1000;
    // It has ended because the server has it.
    let found = cluster.get_node(&node.name)?;
    let said = |kind: &str| {
        let one = condition(&found, kind).ok_or(format!("no {kind}"))?;
        Ok::<_, String>(["status", "reason", "message"].map(|key| one[key].as_str().unwrap_or_default().to_owned()))
    };
    assert_eq!(said("Ready")?, ["False", "KubeletNotReady", "node is shutting down"]);
    assert_eq!(said("PlannedAbsence")?, ["True", "Reboot", "node is shutting down"]);
    wait_for_event(cluster, &node, "Shutdown")?;
    let all = cluster.api.audit(|e| e.user == node.user)?;
    let told: Vec<_> = all.into_iter().skip(before).filter(|e| !is_renewal(e)).collect();
    assert_eq!(told.len(), 2, "{:#?}", lines(&told));
    assert!(told.iter().any(is_status_patch) && told.iter().any(is_event), "{:#?}", lines(&told));
    println!("  a shutdown is told, and the process has ended, within {spent_ms} ms");
    assert!(spent_ms <= WITHIN_MS, "{spent_ms} ms: {}", agent.said()?);

    let _agent = launch(&node, &folder).start(cluster)?;
    cluster.wait_for_condition(&node.name, "PlannedAbsence", "False", SOON)?;
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    assert!(!folder.join("leaving").exists(), "the word was of the last time");
    wait_for_event(cluster, &node, "AbsenceOver").map(drop)
}
