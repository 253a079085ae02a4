//! Turns the two Nodes, Leases and lists of events into what differs, each with its reason.

use super::super::cluster::{Cluster, Result};
use super::super::trials::Case;
use super::differences::{Leaves, leaves};
use super::plain::Whose;
use super::record::{Seen, recording};
use super::table::{Row, judge, row, sometimes, verdict};
use serde_json::Value;

const NO_RUNTIME: &str = "no container runtime, so no pods";
const OWN_NAME: &str = "TR-4: a client with a name of its own";

const STRIPPED: &str =
    "D3: stripped where nobody applies on the server's side: half the bytes of each answer about the Node";
const CLONED: &str = "D10: tells a cloned SD card from its original";

const FOR_OWNERS: &str = "CRT-1: for whoever looks at a fleet";
const NOT_A_KUBELETS: &str = "NPD-1: node-problem-detector's";

const NODE: &[Row] = &[
    row("metadata.managedFields.the agent", "kubelet", "-", STRIPPED),
    row("metadata.managedFields.kube-controller-manager", "kube-controller-manager", "-", STRIPPED),
    sometimes("metadata.annotations.nodepulse.dev/board-serial", "-", "*", CLONED),
    sometimes("metadata.annotations.nodepulse.dev/board-mac", "-", "*:*:*:*:*:*", CLONED),
    row("metadata.annotations.nodepulse.dev/certificate-expiry", "-", "<time>", FOR_OWNERS),
    row("status.daemonEndpoints.kubeletEndpoint.Port", "*", "0", "DEP-1: nothing listens"),
    row("status.nodeInfo.kubeletVersion", "v1.*", "v1.*-nodepulse.*", "VER-2: parseable as the server's, and honest"),
    row("status.nodeInfo.containerRuntimeVersion", "containerd://*", "none://Unknown", NO_RUNTIME),
    row("status.conditions[ReadonlyFilesystem].type", "-", "ReadonlyFilesystem", NOT_A_KUBELETS),
    row("status.conditions[ReadonlyFilesystem].status", "-", "False", NOT_A_KUBELETS),
    row("status.conditions[ReadonlyFilesystem].reason", "-", "FilesystemIsNotReadOnly", NOT_A_KUBELETS),
    row("status.conditions[ReadonlyFilesystem].message", "-", "Filesystem is not read-only", NOT_A_KUBELETS),
    row("status.conditions[ReadonlyFilesystem].last*Time", "-", "<time>", NOT_A_KUBELETS),
    // Of a machine with ext4.
    sometimes(
        "status.conditions[FilesystemCorruptionProblem].type",
        "-",
        "FilesystemCorruptionProblem",
        NOT_A_KUBELETS,
    ),
    sometimes("status.conditions[FilesystemCorruptionProblem].status", "-", "False", NOT_A_KUBELETS),
    sometimes("status.conditions[FilesystemCorruptionProblem].reason", "-", "FilesystemIsOK", NOT_A_KUBELETS),
    sometimes(
        "status.conditions[FilesystemCorruptionProblem].message",
        "-",
        "No file system has had errors since the boot",
        NOT_A_KUBELETS,
    ),
    sometimes("status.conditions[FilesystemCorruptionProblem].last*Time", "-", "<time>", NOT_A_KUBELETS),
    row("status.conditions[NTPProblem].type", "-", "NTPProblem", NOT_A_KUBELETS),
    row("status.conditions[NTPProblem].status", "-", "False", NOT_A_KUBELETS),
    row("status.conditions[NTPProblem].reason", "-", "NTPIsUp", NOT_A_KUBELETS),
    row("status.conditions[NTPProblem].message", "-", "The clock is kept right", NOT_A_KUBELETS),
    row("status.conditions[NTPProblem].last*Time", "-", "<time>", NOT_A_KUBELETS),
    // Of a machine with a default route.
    sometimes("status.conditions[UplinkDegraded].type", "-", "UplinkDegraded", NOT_A_KUBELETS),
    sometimes("status.conditions[UplinkDegraded].status", "-", "False", NOT_A_KUBELETS),
    sometimes("status.conditions[UplinkDegraded].reason", "-", "UplinkOK", NOT_A_KUBELETS),
    sometimes("status.conditions[UplinkDegraded].message", "-", "The connection of the board is good", NOT_A_KUBELETS),
    sometimes("status.conditions[UplinkDegraded].last*Time", "-", "<time>", NOT_A_KUBELETS),
    row("status.runtimeHandlers*", "*", "-", NO_RUNTIME),
    row("status.features.*", "*", "-", NO_RUNTIME),
    row("status.declaredFeatures*", "*", "-", "UPD-4: these features are about pods; no container runtime"),
];

const PODLESS: &str = "D8: nothing may be scheduled onto it";
const PODLESS_NODE: &[Row] = &[
    row("metadata.labels.node.kubernetes.io/exclude-from-external-load-balancers", "-", "podless", PODLESS),
    row("spec.taints[0].key", "-", "nodepulse.dev/podless", PODLESS),
    row("spec.taints[0].effect", "-", "NoSchedule", PODLESS),
    row("spec.taints[1].key", "-", "nodepulse.dev/podless", PODLESS),
    row("spec.taints[1].effect", "-", "NoExecute", PODLESS),
    row("status.allocatable.pods", "110", "0", PODLESS),
    row("status.capacity.pods", "110", "0", PODLESS),
];

const COUNTED: &str = "D10: a renewal tests how often the Lease has changed its holder, so it says so from the first";
const LEASE: &[Row] = &[
    row(
        "stored.metadata.managedFields.the agent",
        "kubelet",
        "-",
        "D3: the first renewal strips managedFields: fewer bytes in every answer",
    ),
    row("created.spec.leaseTransitions", "-", "0", COUNTED),
    row("stored.spec.leaseTransitions", "-", "0", COUNTED),
];

const EVENTS: &[Row] = &[
    row("*.involvedObject.uid", "-", "<the Node>", "D6: kubectl describe node shows only events with a uid"),
    row("*.metadata.managedFields.the agent", "kubelet", "nodepulse", OWN_NAME),
    row("*.reportingComponent", "kubelet", "nodepulse", OWN_NAME),
    row("*.source.component", "kubelet", "nodepulse", OWN_NAME),
    row("Starting.message", "Starting kubelet.", "Starting nodepulse.", OWN_NAME),
    row(
        "NodeReady",
        "Normal: Node NODE status is now: NodeReady",
        "-",
        "FST: no container runtime to wait for, so it is Ready from the first (RDY-8)",
    ),
    row(
        "*.count",
        "*",
        "1",
        "a kubelet also builds its Node to ask itself about pods, and tells of each; once is true",
    ),
    sometimes("CgroupV1", "Warning: *", "-", "EVI-12: cgroup v1 is no fault of a machine without pods"),
    sometimes("InvalidDiskCapacity", "Warning: *", "-", NO_RUNTIME),
    sometimes("PossibleMemoryBackedVolumesOnDisk", "Warning: *", "-", NO_RUNTIME),
];

pub fn cases() -> Vec<Case> {
    cases![
        every_field_of_the_node_is_the_kubelets,
        what_keeps_pods_away_is_all_that_podless_changes,
        conditions_are_in_the_kubelets_order,
        the_lease_is_the_kubelets,
        the_first_events_are_the_kubelets,
        what_nobody_explains_fails_and_so_does_a_stale_reason,
    ]
}

fn every_field_of_the_node_is_the_kubelets(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    judge("Node", &node(&record.kubelet), &node(&record.nodepulse), NODE)
}

fn what_keeps_pods_away_is_all_that_podless_changes(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    // Between two of ours nothing else is explained.
    judge("Node of the default settings", &node(&record.nodepulse), &node(&record.podless), PODLESS_NODE)
}

fn conditions_are_in_the_kubelets_order(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    let [kubelet, nodepulse] = [&record.kubelet, &record.nodepulse].map(|seen| {
        let list = seen.node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Leaves::from([("conditions".to_owned(), texts(&list, "type"))])
    });
    assert_eq!(kubelet["conditions"], "MemoryPressure, DiskPressure, PIDPressure, Ready");
    // Whether there is ext4, and a default route, is the machine's.
    let all = "MemoryPressure, DiskPressure, PIDPressure, ReadonlyFilesystem, NTPProblem, Ready|\
               MemoryPressure, DiskPressure, PIDPressure, ReadonlyFilesystem, NTPProblem, UplinkDegraded, Ready|\
               MemoryPressure, DiskPressure, PIDPressure, ReadonlyFilesystem, FilesystemCorruptionProblem, NTPProblem, \
               Ready|\
               MemoryPressure, DiskPressure, PIDPressure, ReadonlyFilesystem, FilesystemCorruptionProblem, NTPProblem, \
               UplinkDegraded, Ready";
    judge("Order of conditions", &kubelet, &nodepulse, &[row("conditions", "*", all, NOT_A_KUBELETS)])
}

fn the_lease_is_the_kubelets(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    judge("Lease", &lease(&record.kubelet)?, &lease(&record.nodepulse)?, LEASE)
}

fn the_first_events_are_the_kubelets(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    let (kubelet, nodepulse) = (&record.kubelet, &record.nodepulse);
    judge("Events", &events(kubelet, nodepulse), &events(nodepulse, kubelet), EVENTS)
}

/// The comparison itself: whatever is changed in a Node of ours is noticed, and so is a row too many or too few.
fn what_nobody_explains_fails_and_so_does_a_stale_reason(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    let (kubelet, nodepulse) = (node(&record.kubelet), node(&record.nodepulse));
    let fails = |nodepulse: &Leaves, rows: &[Row], word: &str| {
        let (_, verdict) = verdict("planted", &kubelet, nodepulse, rows);
        assert!(verdict.as_ref().is_err_and(|e| e.contains(word)), "{word}: {verdict:?}");
    };
    for path in nodepulse.keys() {
        let mut changed = nodepulse.clone();
        changed.insert(path.clone(), "planted".to_owned());
        fails(&changed, NODE, path);
        changed.remove(path);
        if kubelet.contains_key(path) {
            fails(&changed, NODE, path);
        }
    }
    let (first, rest) = NODE.split_first().ok_or("no rows")?;
    fails(&nodepulse, rest, first.at);
    fails(&nodepulse, &[NODE, &[row("status.phase", "*", "-", "planted")]].concat(), "stale");
    Ok(())
}

fn node(seen: &Seen) -> Leaves {
    leaves("", &Whose::of(seen).plain(&seen.node))
}

/// The Lease as it is after three renewals, and as it was created.
fn lease(seen: &Seen) -> Result<Leaves> {
    let created = seen.requests.iter().find(|e| e.verb == "create" && e.uri.contains("/leases"));
    let created = created.ok_or_else(|| format!("{} created no Lease", seen.name))?;
    let whose = Whose::of(seen);
    let mut all = leaves("stored", &whose.plain(&seen.lease));
    all.extend(leaves("created", &whose.plain(&without_nulls(&created.body))));
    Ok(all)
}

/// The audit log writes the kubelet's protobuf as JSON with a null for what is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let there = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

/// Each event by its reason, and the order in which they came about. Of what only one of the two tells, only that.
fn events(seen: &Seen, other: &Seen) -> Leaves {
    let whose = Whose::of(seen);
    let both = |event: &Value| other.events.iter().any(|theirs| theirs["reason"] == event["reason"]);
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut all = Leaves::new();
    for event in &seen.events {
        let mut event = whose.plain(event);
        let reason = text(&event, "reason");
        if !both(&event) {
            all.insert(reason, format!("{}: {}", text(&event, "type"), text(&event, "message")));
            continue;
        }
        let name = text(&event["metadata"], "name");
        let digits = name.strip_prefix("NODE.").unwrap_or_default();
        if digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            event["metadata"]["name"] = "NODE.<16 digits>".into();
        }
        // The first ones are sent before the Node exists and has a uid.
        if matches!(event["involvedObject"]["uid"].as_str(), Some("<uid>" | "NODE")) {
            event["involvedObject"]["uid"] = "<the Node>".into();
        }
        all.extend(leaves(&reason, &event));
    }
    let common: Vec<Value> = seen.events.iter().filter(|event| both(event)).cloned().collect();
    all.insert("order".to_owned(), texts(&common, "reason"));
    all
}

fn texts(list: &[Value], key: &str) -> String {
    list.iter().filter_map(|value| value[key].as_str()).collect::<Vec<_>>().join(", ")
}
