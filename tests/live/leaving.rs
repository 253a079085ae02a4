//! A machine that goes down, as an init script says it: what the server has of it, how soon, and in how many requests (D15).

use super::super::agent::Launch;
use super::super::cluster::audit::micros;
use super::super::cluster::{Cluster, Result, condition, wait_until};
use super::super::trials::{Case, Need};
use super::{
    SOON, STOOD_BACK, is_event, is_renewal, is_status_patch, lines, now_us, status_of, wait_for_event,
    wait_for_requests, wait_until_ready,
};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    let mut all = cases![&[], a_shutdown_is_told_in_two_requests_and_300_ms_and_over_with_the_next_start];
    all.extend(cases![&[Need::Root], a_board_that_went_down_under_the_agent_says_so_until_it_is_shut_down_in_order]);
    all
}

const KIND: &str = "UnexpectedReboot";
const A_DAY_LATE: Duration = Duration::from_secs(25 * 3600);
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

/// Four boots of one board: its power fails in the first and in the third, and it is shut down in the second. In the fourth the
/// agent comes a day late.
fn a_board_that_went_down_under_the_agent_says_so_until_it_is_shut_down_in_order(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("cut-short")?;
    let boot = |number: u32, up: Duration| {
        let id = format!("{number:08}-2222-4333-8444-555555555555");
        Launch::quick(&node).board("/proc/sys/kernel/random/boot_id", &id).up_for(up).start(cluster)
    };
    let mut agent = boot(1, SOON)?;
    let found = wait_until_ready(cluster, &node)?;
    assert!(condition(&found, KIND).is_none(), "nothing where nothing happened: {found:#}");
    wait_for_event(cluster, &node, "Starting")?;
    agent.kill()?;

    let began_us = now_us();
    let mut agent = boot(2, SOON)?;
    cluster.wait_for_condition(&node.name, KIND, "True", SOON)?;
    let found = cluster.get_node(&node.name)?;
    let said = condition(&found, KIND).ok_or("it is gone again")?;
    assert!(["Unknown", "WatchdogReset", "PowerLoss"].iter().any(|reason| said["reason"] == *reason), "{said:#}");
    assert_eq!(said["message"], "The board went down while nobody had shut it down");
    let since_us = said["lastTransitionTime"].as_str().and_then(micros).ok_or_else(|| format!("no time: {said}"))?;
    assert!((began_us - 1_000_000..now_us()).contains(&since_us), "{said:#}, the process began at {began_us}");
    let told = wait_for_event(cluster, &node, KIND)?;
    assert_eq!((told.len(), &told[0]["count"]), (1, &json!(1)), "{told:#?}");
    assert_eq!(agent.stop()?, 0);

    let mut agent = boot(3, SOON)?;
    cluster.wait_for_condition(&node.name, KIND, "False", SOON)?;
    wait_for_event(cluster, &node, "NoUnexpectedReboot")?;
    assert_eq!(wait_for_event(cluster, &node, KIND)?.len(), 1, "told once");
    agent.kill()?;

    // It went down, which is told; that the Node says so is over by then.
    let mut agent = boot(4, A_DAY_LATE)?;
    agent.wait_for_line(&["status-sent"], SOON)?;
    let went_down = "the second time that it went down";
    wait_until(went_down, SOON + STOOD_BACK, || {
        let told = wait_for_event(cluster, &node, KIND)?;
        let count: u64 = told.iter().filter_map(|event| event["count"].as_u64()).sum();
        if count == 2 { Ok(()) } else { Err(format!("{told:#?}")) }
    })?;
    assert_eq!(status_of(&cluster.get_node(&node.name)?, KIND), "False");
    Ok(())
}
