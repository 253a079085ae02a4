//! The first start after an upgrade: the board's own Node under the name it had, what waits is told once, and what was
//! learned of the server is of use (D10, ST-6).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::audit::micros;
use super::super::cluster::{ApiServer, AuditEntry, Cluster, Result, wait_until};
use super::super::trials::{Case, Need};
use super::check::check_with;
use super::earlier::{self, Left};
use super::{SOON, events_of, line, lines, now_us, uid, wait_for_requests, wait_until_ready};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// What waited is told slowly, ten to twenty seconds after the heartbeats.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let mut all = cases![
        &[],
        a_board_is_the_node_that_its_certificate_is_for_whatever_its_host_is_called,
        a_name_that_the_certificate_forbids_is_told,
    ];
    // Both are about Nodes of the same names. `make upgrade` brings the program.
    if program().is_some() {
        all.extend(cases![&[Need::Root], a_program_of_an_earlier_version_is_followed_by_this_one]);
    } else {
        all.extend(cases![&[Need::Root], what_an_earlier_version_left_is_the_boards_own]);
    }
    all
}

fn program() -> Option<String> {
    std::env::var("UPGRADE_FROM").ok().filter(|program| !program.is_empty())
}

fn what_an_earlier_version_left_is_the_boards_own(cluster: &Cluster) -> Result<()> {
    go_on(cluster, &cluster.api, &earlier::kept(cluster)?)
}

fn a_program_of_an_earlier_version_is_followed_by_this_one(cluster: &Cluster) -> Result<()> {
    let program = program().ok_or("UPGRADE_FROM names no program")?;
    let (api, lives) = earlier::lived(cluster, &program)?;
    if let Some(folder) = std::env::var_os("UPGRADE_KEEP").filter(|folder| !folder.is_empty()) {
        lives.iter().try_for_each(|left| earlier::keep(cluster, left, Path::new(&folder)))?;
    }
    go_on(cluster, &api, &lives)
}

fn go_on(cluster: &Cluster, api: &ApiServer, all: &[Left]) -> Result<()> {
    let mut agents = all.iter().map(|left| left.launch().start(cluster)).collect::<Result<Vec<_>>>()?;
    for (left, agent) in all.iter().zip(&mut agents) {
        let name = left.board.node;
        is_its_own(cluster, api, left, agent).map_err(|e| format!("{name}: {e}"))?;
    }
    for (left, agent) in all.iter().zip(&mut agents) {
        let name = left.board.node;
        is_told_once(cluster, left).map_err(|e| format!("{name}: {e}\n{}", agent.said().unwrap_or_default()))?;
        assert_eq!(agent.stop()?, 0, "{}", agent.said()?);
        let uplink = std::fs::read_to_string(left.state("uplink")).map_err(|e| e.to_string())?;
        let known = |text: &str| text.lines().filter(|line| line.starts_with("address ")).map(str::to_owned).collect();
        let (before, after): (Vec<String>, Vec<String>) = (known(&left.uplink), known(&uplink));
        assert!(!before.is_empty() && before.iter().all(|line| after.contains(line)), "{name}: {uplink}");
    }
    Ok(())
}

/// Ready without a contest, under the name and the uid it had, and called by what is believed of the board now.
fn is_its_own(cluster: &Cluster, api: &ApiServer, left: &Left, agent: &mut Nodepulse) -> Result<()> {
    let started = agent.wait_for_line(&["lease-held:"], SOON);
    let said = agent.said()?;
    started.map_err(|e| format!("{e}\n{said}"))?;
    for word in ["stranger", "name-taken", "lease-taken", "node-name:"] {
        assert!(!said.contains(word), "{}: {said}", left.board.node);
    }
    let now = wait_until("what the board goes by now", SOON, || {
        let now = cluster.get_node(left.board.node)?;
        let called = ["nodepulse.dev/board-serial", "nodepulse.dev/board-mac"]
            .map(|key| now["metadata"]["annotations"][key].as_str());
        if called == left.board.now { Ok(now) } else { Err(format!("it is {called:?}")) }
    })?;
    wait_until_ready(cluster, &left.identity)?;
    assert_eq!(uid(&now), uid(&left.node), "{}", left.board.node);
    let path = format!("/nodes/{}", left.board.node);
    let is_elsewhere = |e: &&AuditEntry| e.uri.contains("/nodes/") && !e.uri.contains(&path);
    let is_made =
        |e: &&AuditEntry| line(e) == "POST nodes 201" && e.reply["metadata"]["uid"] != left.node["metadata"]["uid"];
    let all = wait_for_requests(api, &left.identity, "a report", SOON, |all| all.iter().any(super::is_report))?;
    assert_eq!(all.iter().filter(|e| is_elsewhere(e) || is_made(e)).count(), 0, "{:#?}", lines(&all));
    Ok(())
}

/// Reason and time of what the earlier program's journal had to tell, in microseconds since 1970.
fn owed(left: &Left) -> Vec<(&str, u64)> {
    let records = left.waiting["records"].as_array().into_iter().flatten();
    let told = records.filter_map(|record| {
        let reason = match (record["kind"].as_str()?, record["condition"].as_str(), record["to"].as_str()) {
            ("ProcessStarted", ..) => "Starting",
            ("ConditionChanged", Some("MemoryPressure"), Some("True")) => "NodeHasInsufficientMemory",
            ("OutageBegan" | "NodeKnown", ..) => return None,
            _ => "a record that this test does not know",
        };
        // Another boot was over when this one began, whatever its clock said.
        let latest_us = if left.has_rebooted() { booted_us() } else { u64::MAX };
        Some((reason, micros(record["time"].as_str()?)?.min(latest_us)))
    });
    told.collect()
}

fn booted_us() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = uptime.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
    now_us().saturating_sub(Duration::from_secs_f64(seconds).as_micros().try_into().unwrap_or_default())
}

fn is_told_once(cluster: &Cluster, left: &Left) -> Result<()> {
    let owed = owed(left);
    let reasons: Vec<&str> = owed.iter().map(|(reason, _)| *reason).collect();
    assert!(reasons.contains(&"Starting") && reasons.contains(&"NodeHasInsufficientMemory"), "{}", left.waiting);
    wait_until("the end of what waits", TOLD_WITHIN, || {
        let waits = earlier::waiting(env!("CARGO_BIN_EXE_nodepulse"), &left.state("journal"))?;
        if waits["records"].as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(waits.to_string()) }
    })?;
    let events = events_of(cluster, &left.identity)?;
    let told: Vec<(&str, u64, &Value)> = events
        .iter()
        .filter_map(|event| {
            Some((event["reason"].as_str()?, micros(event["firstTimestamp"].as_str()?)?, &event["count"]))
        })
        .collect();
    for (reason, at_us) in owed {
        // Stamps of events are in seconds.
        let is_it = |event: &&(&str, u64, &Value)| event.0 == reason && event.1.abs_diff(at_us) < 1_500_000;
        let found: Vec<_> = told.iter().filter(is_it).collect();
        assert!(matches!(found[..], [(_, _, count)] if *count == 1), "{reason} at {at_us}: {told:#?}");
    }
    let count = |reason: &str| told.iter().filter(|event| event.0 == reason).count();
    assert_eq!((count("UplinkRestored"), count("Rebooted")), (1, usize::from(left.has_rebooted())), "{told:#?}");
    Ok(())
}

fn a_board_is_the_node_that_its_certificate_is_for_whatever_its_host_is_called(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("certified")?;
    let mut agent = Launch::quick(&node).named_by_itself().start(cluster)?;
    let said = agent.wait_for_line(&["node-name:"], SOON)?;
    assert!(said.contains(&format!("this Node is {}", node.name)) && said.contains("hostnamectl"), "{said}");
    wait_until_ready(cluster, &node)?;
    let (code, said) = check_with(&node, &[])?;
    assert_eq!(code, 0, "{said}");
    let found = said.lines().find(|line| line.starts_with("warning   node name")).ok_or(said.as_str())?;
    assert!(found.contains(&format!("this Node is {}", node.name)), "{said}");
    agent.check()
}

/// Nobody may be that Node; what somebody set is what they get all the same, with the reason.
fn a_name_that_the_certificate_forbids_is_told(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("forbidden-name")?;
    let mut agent = Launch::quick(&node).named_by_itself().flag("--hostname-override=another").start(cluster)?;
    agent.wait_for_line(&["node-name:", "hostnameOverride says another", &node.name], SOON)?;
    let (code, said) = check_with(&node, &["--hostname-override", "another"])?;
    assert_eq!(code, 77, "{said}");
    assert!(said.contains("hostnameOverride says another"), "{said}");
    assert_eq!(cluster.find_node("another")?, None);
    agent.check()
}
