//! How a Node comes to be: created, taken over as somebody left it, created again (REG-*, REC-*, INI-*, D1).

use super::super::agent::Launch;
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Result, condition, node_path, wait_until};
use super::super::trials::Case;
use super::{
    SOON, events_of, expected, is_assertion, is_event, is_lease, is_report, line, lines, status_of, stored_node, uid,
    wait_for_event, wait_for_node, wait_for_requests, wait_until_ready,
};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_new_node_is_registered_as_this_machine_is,
        the_server_keeps_the_new_node_and_adds_only_its_own,
        an_existing_node_gets_back_what_belongs_to_the_agent_and_keeps_the_rest,
        what_nobody_applied_to_is_tracked_no_more,
        a_node_without_status_gets_its_resources_with_its_first_report,
        an_existing_node_in_order_is_not_patched_before_its_first_report,
        a_reboot_is_told_once_as_a_warning,
        a_deleted_node_is_registered_again_and_owns_its_lease,
        a_deleted_node_stays_deleted_where_the_settings_say_so,
        a_node_that_is_not_to_be_registered_is_waited_for,
        settings_of_a_cloud_appear_on_a_new_node,
        a_node_that_takes_pods_gets_its_csi_node_and_another_one_when_it_is_made_anew,
    ]
}

/// The requests about the Node itself, up to the first report.
fn until_first_report(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<AuditEntry>> {
    let all =
        wait_for_requests(&cluster.api, node, "a first report", SOON, |entries| entries.iter().any(is_heartbeat))?;
    let first = all.iter().position(is_heartbeat).ok_or("no report")?;
    Ok(all.into_iter().take(first + 1).filter(|e| !is_event(e) && !is_lease(e)).collect())
}

/// The status report itself; what reconciles carries no `timeout`.
fn is_heartbeat(entry: &AuditEntry) -> bool {
    is_report(entry) && entry.uri.ends_with("?timeout=10s")
}

fn a_new_node_is_registered_as_this_machine_is(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("new")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = until_first_report(cluster, &node)?;
    let sequence = ["GET /version 200", "POST nodes 201", "PATCH nodes 200", "PATCH nodes/status?timeout=10s 200"];
    assert_eq!(lines(&requests), sequence);
    assert!(requests[1].user_agent.starts_with("nodepulse/"), "{}", requests[1].user_agent);
    let mut sent = without_nulls(requests[1].body.clone());
    let stamps = take_stamps(&mut sent);
    let expected = expected::node(cluster, &node)?;
    assert_eq!(sent, expected, "\nsent     {sent}\nexpected {expected}");
    assert!(stamps.windows(2).all(|pair| pair[0] == pair[1]), "one moment in all conditions: {stamps:?}");
    assert_eq!(requests[2].body, json!({"metadata": {"managedFields": [{}]}}));
    assert_eq!(requests[3].body["spec"], Value::Null, "a report never touches the spec");
    // ST-2: the first event waits for the first answer, and for nothing else.
    let all = wait_for_requests(&cluster.api, &node, "the first event", SOON, |all| all.iter().any(is_event))?;
    let first = |wanted: fn(&AuditEntry) -> bool| all.iter().position(wanted);
    assert!(first(|e| line(e) == "GET /version 200") < first(is_event), "{:#?}", lines(&all));
    assert_eq!(all.iter().find(|e| is_event(e)).map(|e| &e.body["reason"]), Some(&json!("Starting")));
    Ok(())
}

fn the_server_keeps_the_new_node_and_adds_only_its_own(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("kept")?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = until_first_report(cluster, &node)?;
    let created = &requests[1].reply;
    // INI-9: the server adds its taint at creation, and the controller takes it away once the Node is Ready.
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let podless = |effect: &str| json!({"key": "nodepulse.dev/podless", "effect": effect});
    assert_eq!(created["spec"]["taints"], json!([podless("NoSchedule"), podless("NoExecute"), not_ready]));
    let settled = wait_for_node(cluster, &node, "the taint to go and a pod CIDR to come", SOON, |found| {
        let mut found = found.clone();
        // The disk of the machine that runs the tests may be full.
        found["spec"]["taints"].as_array_mut()?.retain(|taint| taint["key"] != "node.kubernetes.io/disk-pressure");
        let is_settled = found["spec"]["taints"].as_array()?.len() == 2 && found["spec"]["podCIDRs"].is_array();
        is_settled.then_some(found)
    })?;
    assert_eq!(settled["spec"]["taints"], json!([podless("NoSchedule"), podless("NoExecute")]));
    let mut stored = without_nulls(settled.clone());
    take_stamps(&mut stored);
    let expected = expected::node(cluster, &node)?;
    assert_eq!(stored["status"], expected["status"]);
    assert_eq!(stored["metadata"]["labels"], expected["metadata"]["labels"]);
    assert_eq!(settled["metadata"]["managedFields"], Value::Null, "nobody tracks what the controller wrote, either");
    Ok(())
}

/// D3: who wrote which field comes along in each answer, and matters to server-side apply alone.
fn what_nobody_applied_to_is_tracked_no_more(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("tracked")?;
    let managers = || -> Result<Vec<String>> {
        let node = cluster.get_node(&node.name)?;
        let list = node["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        Ok(list.iter().map(|entry| format!("{} {}", entry["operation"], entry["manager"])).collect())
    };
    let strips = || -> Result<usize> {
        Ok(cluster.audit_of(&node)?.iter().filter(|entry| line(entry) == "PATCH nodes 200").count())
    };
    cluster.create_node(&stored_node(&node.name, json!({"metadata": {"labels": {"example.com/shelf": "upper"}}})))?;
    assert!(managers()?.contains(&r#""Update" "cluster-test""#.to_owned()));
    let mut agent = Launch::quick(&node).start(cluster)?;
    until_first_report(cluster, &node)?;
    wait_until_ready(cluster, &node)?;
    assert_eq!((managers()?, strips()?), (Vec::new(), 1));
    assert_eq!(agent.stop()?, 0);
    let applied = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"example.com/room": "cellar"}}});
    let path = format!("{}?fieldManager=somebody", node_path(&node.name));
    let kind = "application/apply-patch+yaml";
    cluster.api.admin.request("PATCH", &path, Some((kind, &applied)))?.accepted("PATCH", &path)?;
    let before = managers()?;
    assert!(before.contains(&r#""Apply" "somebody""#.to_owned()), "{before:?}");
    let old = cluster.audit_of(&node)?.len();
    let _agent = Launch::quick(&node).start(cluster)?;
    wait_for_requests(&cluster.api, &node, "the report of a second start", SOON, |all| {
        all.iter().skip(old).any(is_heartbeat)
    })?;
    assert_eq!(strips()?, 1, "somebody makes use of it");
    assert!(managers()?.contains(&r#""Apply" "somebody""#.to_owned()));
    Ok(())
}

fn an_existing_node_gets_back_what_belongs_to_the_agent_and_keeps_the_rest(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("existing")?;
    let rest = json!({
        "metadata": {
            "labels": {
                "kubernetes.io/hostname": "somebody-else", "kubernetes.io/os": "plan9", "example.com/room": "cellar",
            },
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "false", "example.com/note": "mind the step",
            },
        },
        "spec": {
            "providerID": "attic://7", "unschedulable": true,
            "taints": [{"key": "example.com/damp", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": {"hugepages-32Mi": "64Mi", "example.com/lamp": "3", "pods": "5"},
            "allocatable": {"hugepages-32Mi": "64Mi", "example.com/lamp": "3", "pods": "5"},
        },
    });
    let before = cluster.create_node(&stored_node(&node.name, rest))?;
    let launch = Launch::quick(&node).set("nodeLabels", "{example.com/shelf: upper}").set("providerID", "cellar://1");
    let _agent = launch.start(cluster)?;
    let requests = until_first_report(cluster, &node)?;
    let sequence = [
        "GET /version 200",
        "POST nodes 409",
        "GET nodes 200",
        "PATCH nodes 200",
        "PATCH nodes/status?timeout=10s 200",
    ];
    assert_eq!(lines(&requests), sequence);
    // REC-1, REC-2, REC-5, and what they leave alone.
    let architecture = expected::node(cluster, &node)?["metadata"]["labels"]["kubernetes.io/arch"].clone();
    let patch = &requests[4].body;
    assert_eq!(
        patch["metadata"]["labels"],
        json!({
            "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": architecture, "beta.kubernetes.io/arch": architecture,
        })
    );
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(annotations["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
    assert_eq!(patch["spec"], Value::Null);
    for list in ["capacity", "allocatable"] {
        let list = patch["status"][list].as_object().ok_or("no list of resources")?;
        assert!(!list.contains_key("example.com/lamp"), "{list:?}");
        assert_eq!(list.get("hugepages-32Mi"), Some(&Value::Null), "{list:?}");
    }
    let after = wait_until_ready(cluster, &node)?;
    assert_eq!(uid(&after), uid(&before));
    assert_eq!(after["metadata"]["labels"]["example.com/room"], "cellar");
    assert_eq!(after["metadata"]["labels"]["example.com/shelf"], Value::Null, "REG-9: labels only at creation");
    assert_eq!(after["metadata"]["annotations"]["example.com/note"], "mind the step");
    assert_eq!(after["spec"]["providerID"], "attic://7");
    assert_eq!(after["spec"]["unschedulable"], true);
    let taints = after["spec"]["taints"].as_array().ok_or("no taints")?;
    assert!(taints.iter().any(|taint| taint["key"] == "example.com/damp"), "{taints:?}");
    assert!(!taints.iter().any(|taint| taint["key"] == "nodepulse.dev/podless"), "{taints:?}");
    for list in ["capacity", "allocatable"] {
        let list = &after["status"][list];
        assert_eq!((&list["example.com/lamp"], &list["pods"]), (&json!("3"), &json!("0")), "{list}");
        assert_eq!(list["hugepages-32Mi"], Value::Null, "{list}");
    }
    Ok(())
}

fn a_node_without_status_gets_its_resources_with_its_first_report(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("bare")?;
    cluster.create_node(&stored_node(&node.name, json!({})))?;
    let _agent = Launch::quick(&node).start(cluster)?;
    let requests = until_first_report(cluster, &node)?;
    let expected = expected::node(cluster, &node)?;
    let report = requests.last().ok_or("no report")?;
    for list in ["capacity", "allocatable"] {
        assert_eq!(report.body["status"][list], expected["status"][list], "REC-3");
    }
    let conditions = report.body["status"]["conditions"].as_array().ok_or("a report without conditions")?;
    assert_eq!(Some(conditions.len()), expected["status"]["conditions"].as_array().map(Vec::len));
    assert_eq!(report.body["status"]["$setElementOrder/conditions"], Value::Null, "PAT-5: the base has none");
    assert_eq!(status_of(&wait_until_ready(cluster, &node)?, "Ready"), "True");
    Ok(())
}

fn an_existing_node_in_order_is_not_patched_before_its_first_report(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("again")?;
    let mut first = Launch::quick(&node).start(cluster)?;
    until_first_report(cluster, &node)?;
    let before = wait_until_ready(cluster, &node)?;
    assert_eq!(first.stop()?, 0);
    let old = cluster.audit_of(&node)?.len();
    let _second = Launch::quick(&node).start(cluster)?;
    let all = wait_for_requests(&cluster.api, &node, "the report of a second start", SOON, |all| {
        all.iter().skip(old).any(is_heartbeat)
    })?;
    let requests: Vec<String> = all[old..].iter().filter(|e| !is_event(e) && !is_lease(e)).map(line).take(4).collect();
    let sequence = ["GET /version 200", "POST nodes 409", "GET nodes 200", "PATCH nodes/status?timeout=10s 200"]
        .map(str::to_owned);
    assert_eq!(requests, sequence, "REG-8: nothing differs, so nothing reconciles; SYN-6: one report all the same");
    let after = wait_until_ready(cluster, &node)?;
    let transition = |node: &Value| condition(node, "Ready").map(|c| c["lastTransitionTime"].clone());
    assert_eq!(transition(&after), transition(&before), "a restart is no transition");
    Ok(())
}

fn a_reboot_is_told_once_as_a_warning(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("rebooted")?;
    let machine_id = expected::node(cluster, &node)?["status"]["nodeInfo"]["machineID"].clone();
    let boot_id = "00000000-1111-2222-3333-444444444444";
    let status = json!({"status": {"nodeInfo": {
        "machineID": machine_id, "systemUUID": "", "bootID": boot_id, "kernelVersion": "", "osImage": "",
        "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
        "architecture": "",
    }}});
    cluster.create_node(&stored_node(&node.name, status))?;
    let mut agent = Launch::quick(&node).asserting("2s").start(cluster)?;
    let now = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|e| e.to_string())?;
    let events = wait_for_event(cluster, &node, "Rebooted")?;
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["message"], format!("Node {} has been rebooted, boot id: {}", node.name, now.trim()));
    wait_for_requests(&cluster.api, &node, "three assertions", SOON, |all| {
        all.iter().filter(|e| is_assertion(e)).count() >= 3
    })?;
    let events = wait_for_event(cluster, &node, "Rebooted")?;
    assert_eq!((events.len(), &events[0]["count"]), (1, &json!(1)), "told once");
    assert_eq!(cluster.get_node(&node.name)?["status"]["nodeInfo"]["bootID"], now.trim());
    agent.check()
}

fn a_deleted_node_is_registered_again_and_owns_its_lease(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("reborn")?;
    let mut agent = Launch::quick(&node).set("statusAssertFrequency", "2s").start(cluster)?;
    let first = wait_until_ready(cluster, &node)?;
    lease_of(cluster, &node, uid(&first))?;
    cluster.delete_node(&node.name)?;
    let second = wait_until("another Node of the same name", SOON, || match cluster.find_node(&node.name)? {
        Some(found) if uid(&found) != uid(&first) && status_of(&found, "Ready") == "True" => Ok(found),
        found => Err(format!("it is {found:?}")),
    })?;
    lease_of(cluster, &node, uid(&second))?;
    agent.wait_for_line(&["node-deleted:", "registering it again"], SOON)?;
    let described = wait_for_event(cluster, &node, "Starting")?;
    assert_eq!(described.len(), 1, "the process started once");
    // Its events are those of the new Node from now on.
    cluster.patch_node(&node.name, &json!({"spec": {"unschedulable": true}}))?;
    let events = wait_for_event(cluster, &node, "NodeNotSchedulable")?;
    assert_eq!(events[0]["involvedObject"]["uid"], uid(&second));
    Ok(())
}

fn a_deleted_node_stays_deleted_where_the_settings_say_so(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("mourned")?;
    let mut agent = Launch::quick(&node).set("reregister", "false").start(cluster)?;
    wait_until_ready(cluster, &node)?;
    cluster.delete_node(&node.name)?;
    agent.wait_for_line(&["does not exist", "reregister"], SOON)?;
    wait_for_requests(&cluster.api, &node, "four more looks", SOON, |all| {
        all.iter().filter(|e| e.code == 404 && e.uri.starts_with("/api/v1/nodes/")).count() >= 4
    })?;
    let all = cluster.audit_of(&node)?;
    assert_eq!(all.iter().filter(|e| line(e).starts_with("POST nodes")).count(), 1, "{:#?}", lines(&all));
    assert_eq!(cluster.find_node(&node.name)?, None);
    // Somebody creates it by hand: that is the Node it reports for.
    cluster.create_node(&stored_node(&node.name, json!({})))?;
    let second = wait_until_ready(cluster, &node)?;
    lease_of(cluster, &node, uid(&second))
}

fn a_node_that_is_not_to_be_registered_is_waited_for(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("awaited")?;
    let mut agent = Launch::quick(&node).flag("--register-node=false").start(cluster)?;
    agent.wait_for_line(&["does not exist", "registerNode"], SOON)?;
    cluster.create_node(&stored_node(&node.name, json!({})))?;
    let found = wait_until_ready(cluster, &node)?;
    lease_of(cluster, &node, uid(&found))?;
    let all = cluster.audit_of(&node)?;
    assert!(!all.iter().any(|e| line(e).starts_with("POST nodes")), "REG-10: {:#?}", lines(&all));
    Ok(())
}

fn settings_of_a_cloud_appear_on_a_new_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("clouded")?;
    let launch = Launch::quick(&node)
        .set("providerID", "attic://9")
        .set("zone", "attic-north")
        .set("region", "attic")
        .set("instanceType", "shoebox")
        .set("podless", "false")
        .set("maxPods", "7")
        .set("registerWithTaints", "[{key: example.com/damp, value: very, effect: PreferNoSchedule}]")
        .flag("--cloud-provider=external")
        .flag("--node-labels=example.com/shelf=upper");
    let _agent = launch.start(cluster)?;
    let requests = until_first_report(cluster, &node)?;
    let sent = without_nulls(requests[1].body.clone());
    let taints = json!([
        {"key": "example.com/damp", "value": "very", "effect": "PreferNoSchedule"},
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    ]);
    assert_eq!(sent["spec"], json!({"providerID": "attic://9", "taints": taints}));
    let labels = &sent["metadata"]["labels"];
    for (key, value) in [
        ("topology.kubernetes.io/zone", "attic-north"),
        ("topology.kubernetes.io/region", "attic"),
        ("node.kubernetes.io/instance-type", "shoebox"),
        ("example.com/shelf", "upper"),
    ] {
        assert_eq!(labels[key], value, "{labels}");
    }
    assert_eq!(labels["node.kubernetes.io/exclude-from-external-load-balancers"], Value::Null);
    assert_eq!(sent["status"]["capacity"]["pods"], "7");
    assert_eq!(sent["status"]["addresses"], json!([{"type": "Hostname", "address": node.name}]), "ADR-4");
    let after = wait_until_ready(cluster, &node)?;
    assert_eq!(after["spec"]["providerID"], "attic://9");
    assert!(events_of(cluster, &node)?.iter().all(|event| event["type"] == "Normal"));
    Ok(())
}

/// The Lease of a node once this uid is its only owner.
fn a_node_that_takes_pods_gets_its_csi_node_and_another_one_when_it_is_made_anew(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("volumes")?;
    let _agent = Launch::quick(&node).set("podless", "false").set("nodeStatusReportFrequency", "5s").start(cluster)?;
    let csi_node_of = |owner: &str| {
        wait_until("its CSINode", Duration::from_secs(60), || {
            let found = cluster.api.admin.get(&format!("/apis/storage.k8s.io/v1/csinodes/{}", node.name))?;
            let owners = &found["metadata"]["ownerReferences"];
            let expected = json!([{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": owner}]);
            if *owners == expected { Ok(found) } else { Err(format!("owners are {owners}, not {owner}")) }
        })
    };
    let first = wait_until_ready(cluster, &node)?;
    let csi_node = csi_node_of(uid(&first))?;
    assert_eq!(csi_node["spec"], json!({"drivers": null}), "as the server says of none");
    cluster.delete_node(&node.name)?;
    let second = wait_until("another Node of the same name", SOON, || match cluster.find_node(&node.name)? {
        Some(found) if uid(&found) != uid(&first) && status_of(&found, "Ready") == "True" => Ok(found),
        found => Err(format!("it is {found:?}")),
    })?;
    csi_node_of(uid(&second))?;
    Ok(())
}

fn lease_of(cluster: &Cluster, node: &NodeIdentity, owner: &str) -> Result<()> {
    let within = Duration::from_secs(20);
    wait_until("the Lease to be owned by its Node", within, || {
        let lease = cluster.get_lease(&node.name)?;
        let owners = &lease["metadata"]["ownerReferences"];
        let expected = json!([{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": owner}]);
        if *owners == expected { Ok(()) } else { Err(format!("owners are {owners}, not {owner}")) }
    })
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(all) => all.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Puts `STAMP` in the place of every time of a condition, and answers what was there.
fn take_stamps(node: &mut Value) -> Vec<String> {
    let mut stamps = Vec::new();
    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
        for key in ["lastHeartbeatTime", "lastTransitionTime"] {
            let stamp = condition[key].as_str().unwrap_or_default().to_owned();
            let looks_right = stamp.len() == 20 && stamp.ends_with('Z');
            condition[key] = json!(if looks_right { "STAMP" } else { "no stamp" });
            stamps.push(stamp);
        }
    }
    stamps
}
