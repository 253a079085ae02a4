//! Turns wrong clocks, a cleaner, a restart of the server and a board that was told to leave into Nodes that come or stay away
//! (CLK-*, CSR-4, REV-3).

use super::agent::{Launch, Nodepulse, preload};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, Validity, wait_until};
use super::first::joining_at;
use super::join::{YEAR, group, own_cluster};
use super::requests::{SOON, now_us, wait_until_ready};
use super::trials::Case;
use std::process::Command;
use std::time::Duration;

/// In it nobody asks who was told no: the least pause is five minutes.
const WATCHED: Duration = Duration::from_secs(20);

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        boards_whose_clocks_are_wrong_join_and_renew,
        a_request_that_was_cleaned_up_outlives_a_restart_of_the_server,
        a_join_that_was_denied_or_has_no_rights_asks_seldom,
        a_board_that_was_told_to_leave_stays_away_until_a_person_joins_it,
    ]
}

fn launch<'a>(cluster: &Cluster, node: &'a NodeIdentity, token: &Token) -> Launch<'a> {
    joining_at(&cluster.api.url(), node, token, &[cluster.pin()])
}

/// The program with another wall clock, which its kernel does not call right (`tests/live/clock.c`).
fn off_by(node: &NodeIdentity, seconds: i64) -> Result<Vec<String>> {
    let (preload, off) = (preload(node, "live/clock.c")?, format!("CLOCK_OFF_SECONDS={seconds}"));
    Ok(["env", &preload, &off, env!("CARGO_BIN_EXE_nodepulse")].map(str::to_owned).into())
}

/// Certificates live for forty seconds here: the renewal is dated by the same clock.
fn boards_whose_clocks_are_wrong_join_and_renew(cluster: &Cluster) -> Result<()> {
    const YEAR_SECONDS: i64 = 31_556_952;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let since_1970 = i64::try_from(now_us() / 1_000_000).map_err(|e| e.to_string())?;
    let mut boards = Vec::new();
    for (hint, off) in [("in-1970", 12 - since_1970), ("a-year-behind", -YEAR_SECONDS), ("in-2099", 73 * YEAR_SECONDS)]
    {
        let node = cluster.node(hint)?;
        let agent = launch(cluster, &node, &token).program(off_by(&node, off)?).start(cluster)?;
        boards.push((node, agent));
    }
    for (node, agent) in &mut boards {
        is_ready(cluster, node, agent)?;
        agent.wait_for_line(&["certificate-renewed"], SOON * 3)?;
        agent.check()?;
    }
    Ok(())
}

fn is_ready(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse) -> Result<()> {
    let ready = cluster.wait_for_condition(&node.name, "Ready", "True", SOON * 3);
    ready.map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default())).map(drop)
}

fn a_request_that_was_cleaned_up_outlives_a_restart_of_the_server(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[&group(&cluster, "by-hand")?], None)?;
    // The controllers have a server of their own, which goes on.
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node("cleaned-up")?;
    let mut agent = joining_at(&api.url(), &node, &token, &[cluster.pin()]).start(&cluster)?;
    agent.wait_for_line(&["waiting for approval"], SOON * 2)?;
    let only = || -> Result<(String, String)> {
        let found = cluster.requests_for(&node.name)?;
        let text = |key: &str| found.first().and_then(|f| f["metadata"][key].as_str()).unwrap_or_default().to_owned();
        if found.len() == 1 { Ok((text("name"), text("uid"))) } else { Err(format!("there are {}", found.len())) }
    };
    let (name, uid) = only()?;
    cluster.delete_request(&name)?;
    let again = wait_until("another one of that name", SOON * 4, || match only()? {
        (found, other) if found == name && other != uid => Ok(other),
        (found, _) => Err(format!("{found}\n{}", agent.said()?)),
    })?;
    assert_ne!(again, uid);
    api.kill()?;
    cluster.approve(&name)?;
    agent.wait_for_line(&["failing"], SOON * 6)?;
    api.restart()?;
    let ready = cluster.wait_for_condition(&node.name, "Ready", "True", SOON * 6);
    ready.map_err(|e| format!("{e}\n{}", agent.said().unwrap_or_default()))?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    agent.check()
}

fn a_join_that_was_denied_or_has_no_rights_asks_seldom(_: &Cluster) -> Result<()> {
    let cluster = own_cluster(YEAR)?;
    let token = cluster.token(&[&group(&cluster, "by-hand")?], None)?;
    let powerless = cluster.token(&["system:bootstrappers:nobody"], None)?;
    let (denied, forbidden) = (cluster.node("denied")?, cluster.node("forbidden")?);
    let mut first = launch(&cluster, &denied, &token).start(&cluster)?;
    let mut second = launch(&cluster, &forbidden, &powerless).start(&cluster)?;
    first.wait_for_line(&["waiting for approval"], SOON * 2)?;
    let name = cluster.requests_for(&denied.name)?[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.deny(&name)?;
    first.wait_for_line(&["certificate-denied", &name], SOON * 3)?;
    second.wait_for_line(&["certificatesigningrequests"], SOON * 2)?;
    let since = now_us();
    std::thread::sleep(WATCHED);
    for (token, agent) in [(&token, &mut first), (&powerless, &mut second)] {
        let user = format!("system:bootstrap:{}", token.id);
        let asked = cluster.api.audit(|e| e.user == user && e.received_at_us > since)?;
        assert!(asked.is_empty(), "{asked:#?}");
        agent.check()?;
    }
    assert_eq!(cluster.find_node(&denied.name)?, None);
    Ok(())
}

/// No agent runs while it leaves; afterwards one is started with the image's own settings, which have a token that is valid.
fn a_board_that_was_told_to_leave_stays_away_until_a_person_joins_it(cluster: &Cluster) -> Result<()> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("left")?;
    let mut agent = launch(cluster, &node, &token).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    assert_eq!(agent.stop()?, 0);
    let state = node.dir.join("state");
    let leave = Command::new(env!("CARGO_BIN_EXE_nodepulse")).args(["leave", "--state-directory"]).arg(&state).output();
    let leave = leave.map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&[leave.stdout, leave.stderr].concat()).into_owned();
    assert!(leave.status.success() && said.contains(&format!("kubectl delete node {}", node.name)), "{said}");
    let since = now_us();
    for _ in 0..2 {
        let mut agent = launch(cluster, &node, &token).start(cluster)?;
        assert_eq!(agent.exit_code(SOON)?, 78, "{}", agent.said()?);
        assert!(agent.said()?.contains("this board has left its cluster"), "{}", agent.said()?);
    }
    let users = [node.user.clone(), format!("system:bootstrap:{}", token.id)];
    let asked = cluster.api.audit(|e| users.contains(&e.user) && e.received_at_us > since)?;
    assert!(asked.is_empty(), "{asked:#?}");
    std::fs::remove_file(state.join("identity/left")).map_err(|e| e.to_string())?;
    let mut agent = launch(cluster, &node, &token).start(cluster)?;
    agent.wait_for_line(&["lease-held"], SOON * 2)?;
    agent.check()
}
