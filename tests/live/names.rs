//! Names that may not be used: labels that a node may not set, a Node that another machine holds (D9, D10).

use super::super::agent::Launch;
use super::super::cluster::{Cluster, Credential, NodeIdentity, Result, Validity, wait_until};
use super::super::trials::{Case, Need};
use super::{SOON, line, lines, now_us, stored_node, wait_for_event, wait_for_node, wait_until_ready};
use serde_json::json;
use std::time::Duration;

const MACHINE_ID: &str = "/etc/machine-id";
const CPUINFO: &str = "/proc/cpuinfo";

pub fn cases() -> Vec<Case> {
    let mut all = cases![
        &[],
        a_label_that_a_node_may_not_set_is_refused_before_anything_is_sent,
        settings_with_several_faults_are_refused_with_all_of_them,
        a_node_of_a_machine_that_is_gone_is_taken_over,
    ];
    all.extend(cases![
        &[Need::Root],
        of_two_machines_with_one_name_the_second_gives_way,
        boards_that_differ_in_one_name_are_told_apart_and_one_takes_over_from_the_other,
        of_two_boards_that_differ_in_nothing_one_gives_way_and_says_that_they_are_twins,
        a_board_that_was_replaced_in_an_outage_writes_nothing_after_it,
    ]);
    all
}

fn a_label_that_a_node_may_not_set_is_refused_before_anything_is_sent(cluster: &Cluster) -> Result<()> {
    for (key, value) in [("node-role.kubernetes.io/worker", ""), ("node-restriction.kubernetes.io/tier", "gold")] {
        let node = cluster.node("forbidden")?;
        let mut agent = Launch::quick(&node).flag(format!("--node-labels={key}={value}")).start(cluster)?;
        assert_eq!(agent.exit_code(SOON)?, 78, "{}", agent.said()?);
        let said = agent.said()?;
        assert!(said.contains(key), "{said}");
        assert!(said.contains("kubectl label node"), "what an administrator would run: {said}");
        // The test's own request is in the log: so would be everything before it.
        node.client.find(&super::super::cluster::node_path(&node.name))?;
        let requests =
            super::wait_for_requests(&cluster.api, &node, "the test's request", SOON, |all| !all.is_empty())?;
        assert_eq!(lines(&requests), ["GET nodes 404"], "nothing else was sent");
    }
    Ok(())
}

fn settings_with_several_faults_are_refused_with_all_of_them(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("faulty")?;
    let launch = Launch::quick(&node).set("nodeStatusUpdateFrequenzy", "1s").set("maxPods", "many");
    let mut agent = launch.start(cluster)?;
    assert_eq!(agent.exit_code(SOON)?, 78, "{}", agent.said()?);
    let said = agent.said()?;
    for words in ["nodeStatusUpdateFrequenzy", "nodeStatusUpdateFrequency", "maxPods"] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    Ok(())
}

fn a_node_of_a_machine_that_is_gone_is_taken_over(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("inherited")?;
    let status = json!({"status": {"nodeInfo": {
        "machineID": "0123456789abcdef0123456789abcdef", "systemUUID": "", "bootID": "", "kernelVersion": "",
        "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
        "operatingSystem": "", "architecture": "",
    }}});
    cluster.create_node(&stored_node(&node.name, status))?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    agent.wait_for_line(&["stranger:", "0123456789abcdef0123456789abcdef"], SOON)?;
    let own = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    wait_for_node(cluster, &node, "this machine's id on the Node", SOON, |found| {
        (found["status"]["nodeInfo"]["machineID"] == own.trim()).then_some(())
    })?;
    wait_until_ready(cluster, &node)?;
    let told = wait_for_event(cluster, &node, "NodeReplaced")?;
    let message = told[0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("0123456789abcdef0123456789abcdef") && message.contains(own.trim()), "{message}");
    Ok(())
}

fn of_two_machines_with_one_name_the_second_gives_way(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("twin")?;
    let mut first = Launch::quick(&node).start(cluster)?;
    let before = wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    let other = "fedcba9876543210fedcba9876543210";
    let elsewhere = node.dir.join("elsewhere").display().to_string();
    let mut second = Launch::quick(&node).board(MACHINE_ID, other).set("stateDirectory", &elsewhere).start(cluster)?;
    let said = second.wait_for_line(&["name-taken:"], SOON)?;
    for words in [node.name.as_str(), other, "--hostname-override"] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    let posted: Vec<String> = cluster.audit_of(&node)?.iter().filter(|e| e.verb == "create").map(line).collect();
    assert_eq!(posted.iter().filter(|l| *l == "POST leases?timeout=10s 201").count(), 1, "{posted:#?}");
    assert_eq!(posted.iter().filter(|l| *l == "POST nodes 409").count(), 1, "{posted:#?}");
    let after = cluster.get_node(&node.name)?;
    assert_eq!(after["status"]["nodeInfo"], before["status"]["nodeInfo"]);
    assert_eq!(super::status_of(&after, "Ready"), "True");
    second.check()?;
    first.check()
}

/// A board of its own, all of whose names are made up: `serial`, `machine_id` and `mac` are their last letters.
fn board<'a>(node: &'a NodeIdentity, state: &str, [serial, machine_id, mac]: [u8; 3]) -> Result<Launch<'a>> {
    let cpuinfo = std::fs::read_to_string(CPUINFO).map_err(|e| e.to_string())?;
    let cards = std::fs::read_dir("/sys/class/net").map_err(|e| e.to_string())?.flatten().map(|card| card.path());
    let mut cards: Vec<_> = cards.filter(|card| card.join("device").exists()).collect();
    cards.sort();
    let mut launch = Launch::quick(node)
        .board(CPUINFO, &format!("{}\nSerial : 10000000abcdef{serial:02}", cpuinfo.trim_end()))
        .board(MACHINE_ID, &format!("0123456789abcdef0123456789abcd{machine_id:02}"))
        .set("stateDirectory", &node.dir.join(state).display().to_string());
    if let Some(card) = cards.first() {
        launch = launch.board(&card.join("address").display().to_string(), &format!("dc:a6:32:ab:cd:{mac:02}"));
    }
    Ok(launch)
}

fn boards_that_differ_in_one_name_are_told_apart_and_one_takes_over_from_the_other(cluster: &Cluster) -> Result<()> {
    for (hint, names, what) in [
        ("serial", [2, 1, 1], "serial number"),
        ("machine", [1, 2, 1], "machine-id"),
        ("mac", [1, 1, 2], "MAC address"),
        ("all", [2, 2, 2], "serial number"),
    ] {
        let node = cluster.node(&format!("board-{hint}"))?;
        let mut first = board(&node, "first", [1, 1, 1])?.start(cluster)?;
        wait_until_ready(cluster, &node)?;
        first.wait_for_line(&["lease-held:"], SOON)?;
        let mut second = board(&node, "second", names)?.start(cluster)?;
        let said = second.wait_for_line(&["name-taken:", what], SOON)?;
        assert!(said.contains(&node.name), "{said}");
        assert_eq!(second.count_lines("lease-held:")?, 0, "{hint}: nothing is written beside the one that lives");
        // The first one goes away, and the other, started again, finds nobody there.
        assert_eq!((first.stop()?, second.stop()?), (0, 0));
        let mut second = board(&node, "second", names)?.start(cluster)?;
        second.wait_for_line(&["stranger-gone:", what], SOON)?;
        second.wait_for_line(&["lease-held:"], SOON)?;
        let serial = format!("10000000abcdef{:02}", names[0]);
        wait_for_node(cluster, &node, "the name of the second board", SOON, |found| {
            let info = &found["status"]["nodeInfo"]["machineID"];
            let is_second = info.as_str().is_some_and(|id| id.ends_with(&format!("{:02}", names[1])));
            (is_second && found["metadata"]["annotations"]["nodepulse.dev/board-serial"] == serial).then_some(())
        })?;
        // The original comes back, with what it knew.
        let mut first = board(&node, "first", [1, 1, 1])?.start(cluster)?;
        first.wait_for_line(&["name-taken:", what], SOON)?;
        assert_eq!(first.count_lines("lease-held:")?, 0, "{hint}");
        second.check()?;
    }
    Ok(())
}

fn of_two_boards_that_differ_in_nothing_one_gives_way_and_says_that_they_are_twins(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("twins")?;
    let mut first = board(&node, "first", [1, 1, 1])?.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    first.wait_for_line(&["lease-held:"], SOON)?;
    let mut second = board(&node, "second", [1, 1, 1])?.start(cluster)?;
    second.wait_for_line(&["lease-held:"], SOON)?;
    first.wait_for_line(&["lease-taken:"], SOON)?;
    let said = first.wait_for_line(&["name-taken:"], SOON)?;
    assert!(said.contains("tell them not apart"), "{said}");
    let transitions = cluster.get_lease(&node.name)?["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, 1, "the second took it, once");
    second.check()
}

/// Also where both were told not to register. The first board alone has the API server that goes away.
fn a_board_that_was_replaced_in_an_outage_writes_nothing_after_it(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::Now)?;
    let mut boards = Vec::new();
    for registers in ["true", "false"] {
        let node = cluster.node_at(&api, &format!("replaced-{registers}"), Credential::Valid)?;
        cluster.create_node(&stored_node(&node.name, json!({})))?;
        boards.push((node, registers));
    }
    let here = format!("https://127.0.0.1:{}", cluster.api.port);
    let mut lives = Vec::new();
    for (node, registers) in &boards {
        let mut first = board(node, "first", [1, 1, 1])?.set("registerNode", registers).start(cluster)?;
        wait_until_ready(cluster, node)?;
        first.wait_for_line(&["lease-held:"], SOON)?;
        lives.push((node, registers, first));
    }
    api.kill()?;
    let mut seconds = Vec::new();
    for (node, registers, first) in &mut lives {
        first.wait_for_line(&["failing:", "Lease renewal failed"], SOON)?;
        let second = board(node, "second", [2, 2, 2])?.set("registerNode", registers);
        let mut second = second.kubeconfig(&node.kubeconfig_via(&here)?).start(cluster)?;
        second.wait_for_line(&["stranger-gone:"], SOON)?;
        second.wait_for_line(&["lease-held:"], SOON)?;
        seconds.push(second);
    }
    let restarted_us = now_us();
    api.restart()?;
    for ((node, registers, first), second) in lives.iter_mut().zip(&mut seconds) {
        first
            .wait_for_line(&["name-taken:"], Duration::from_secs(30))
            .map_err(|e| format!("registerNode {registers}: {e}"))?;
        let since = api.audit(|e| e.user == node.user && e.received_at_us > restarted_us)?;
        let writes: Vec<String> = since.iter().filter(|e| e.verb != "get" && e.code < 300).map(line).collect();
        assert!(writes.len() <= 2, "registerNode {registers}: {writes:#?}");
        second.check()?;
        assert_eq!(second.count_lines("name-taken:")?, 0, "registerNode {registers}: the one that took over goes on");
    }
    Ok(())
}
