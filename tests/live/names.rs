//! Names that may not be used: labels that a node may not set, a Node that another machine holds (D9, D10).

use super::super::agent::Launch;
use super::super::cluster::{Cluster, Result, wait_until};
use super::super::trials::{Case, Need};
use super::{SOON, line, lines, stored_node, wait_for_node, wait_until_ready};
use serde_json::json;

pub fn cases() -> Vec<Case> {
    let mut all = cases![
        &[],
        a_label_that_a_node_may_not_set_is_refused_before_anything_is_sent,
        settings_with_several_faults_are_refused_with_all_of_them,
        a_node_of_a_machine_that_is_gone_is_taken_over,
    ];
    all.extend(cases![&[Need::Root], of_two_machines_with_one_name_the_second_gives_way]);
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
    wait_until_ready(cluster, &node).map(drop)
}

fn of_two_machines_with_one_name_the_second_gives_way(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("twin")?;
    let mut first = Launch::quick(&node).start(cluster)?;
    let before = wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    let other = "fedcba9876543210fedcba9876543210";
    let elsewhere = node.dir.join("elsewhere").display().to_string();
    let mut second = Launch::quick(&node).machine_id(other).set("stateDirectory", &elsewhere).start(cluster)?;
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
