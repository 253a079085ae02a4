//! Turns something done to both Nodes at once into what each of their owners made of it.

use super::super::cluster::{AuditEntry, Cluster, Result, condition, wait_until};
use super::plain::LONG_AGO;
use super::record::{Pair, Seen, see};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Many times what it takes either of them with quick settings.
const WITHIN: Duration = Duration::from_secs(20);
/// The same with the defaults: a kubelet looks every ten seconds.
const BY_DEFAULT: Duration = Duration::from_secs(40);
/// Nobody who has more to say waits as long, and what is said then has another heartbeat than what was said last: stamps have
/// whole seconds, and a Node that is watched is put right in milliseconds.
const QUIET: Duration = Duration::from_millis(1100);

/// Both Nodes before and after something was done to them: the kubelet's, then ours.
pub struct Reaction {
    pub name: &'static str,
    pub before: [Seen; 2],
    pub after: [Seen; 2],
    /// Whether what was waited for came.
    pub done: [bool; 2],
}

/// Something that is done to a Node, and how to see that its owner is through with it.
pub struct Provocation {
    name: &'static str,
    provoke: fn(&Cluster, &str) -> Result<()>,
    done: fn(&Seen, &Seen) -> bool,
}

pub const RESTART: &str = "restart";
pub const DELETED_LEASE: &str = "deleted Lease";
pub const WIPED_LABELS: &str = "wiped labels";
pub const UNKNOWN: &str = "conditions forced to Unknown";
pub const WORDING: &str = "another wording";
pub const OVERWRITTEN: &str = "overwritten status";
pub const FOREIGN: &str = "foreign entries";
pub const CORDON: &str = "cordon";
pub const UNCORDON: &str = "uncordon";
pub const DELETED_NODE: &str = "deleted Node";

/// In the order in which they are done; the first one while both are down, the rest while they run.
const PROVOCATIONS: [Provocation; 10] = [
    Provocation { name: RESTART, provoke: change_while_down, done: is_reconciled },
    Provocation { name: DELETED_LEASE, provoke: delete_lease, done: has_new_lease },
    Provocation { name: WIPED_LABELS, provoke: wipe_labels, done: has_os_label },
    Provocation { name: UNKNOWN, provoke: force_unknown, done: is_known_again },
    Provocation { name: WORDING, provoke: reword, done: has_own_words },
    Provocation { name: OVERWRITTEN, provoke: overwrite, done: has_own_facts },
    Provocation { name: FOREIGN, provoke: add_foreign, done: accounts_for_foreign },
    Provocation { name: CORDON, provoke: cordon, done: tells_of_cordon },
    Provocation { name: UNCORDON, provoke: uncordon, done: tells_of_uncordon },
    Provocation { name: DELETED_NODE, provoke: delete_node, done: is_missed },
];

/// Conditions that somebody else made Unknown.
pub struct Doubted<'a> {
    cluster: &'a Cluster,
    name: String,
    since: Duration,
}

pub fn doubt<'a>(cluster: &'a Cluster, name: &str) -> Result<Doubted<'a>> {
    let since = SystemTime::UNIX_EPOCH.elapsed().map_err(|e| e.to_string())?;
    force_unknown(cluster, name)?;
    Ok(Doubted { cluster, name: name.to_owned(), since })
}

impl Doubted<'_> {
    /// How long it took until its owner had said otherwise of every one, by the server's log.
    pub fn gone(self) -> Result<Duration> {
        let is_known = |entry: &AuditEntry| {
            let conditions = entry.reply["status"]["conditions"].as_array();
            entry.body["status"]["conditions"].is_array()
                && conditions.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["status"] != "Unknown"))
        };
        wait_until("conditions that were made Unknown", BY_DEFAULT, || {
            let seen = see(self.cluster, &self.name)?;
            let after = seen.requests.iter().filter(|e| Duration::from_micros(e.received_at_us) > self.since);
            let answered = after.filter(|e| is_known(e)).map(|e| Duration::from_micros(e.completed_at_us)).next();
            answered.map(|at| at - self.since).ok_or_else(|| format!("{} leaves them so", self.name))
        })
    }
}

pub fn provoke_all(pair: &mut Pair) -> Result<Vec<Reaction>> {
    PROVOCATIONS.iter().map(|one| provoke(pair, one)).collect()
}

fn provoke(pair: &mut Pair, one: &Provocation) -> Result<Reaction> {
    let (cluster, [kubelet, nodepulse]) = (pair.cluster, pair.names());
    let see_both = || -> Result<[Seen; 2]> { Ok([see(cluster, &kubelet)?, see(cluster, &nodepulse)?]) };
    // What the last provocation left to say must not be taken for an answer to this one.
    let before = wait_until("both to have said all", WITHIN, || {
        let both = see_both()?;
        if both.iter().all(is_quiet) { Ok(both) } else { Err("one of them still speaks".to_owned()) }
    })?;
    let provoke_both = || [&kubelet, &nodepulse].iter().try_for_each(|name| (one.provoke)(cluster, name));
    if one.name == RESTART {
        pair.restart(provoke_both)?
    } else {
        provoke_both()?
    }
    let mut after = see_both()?;
    let is_done = |after: &[Seen; 2]| [0, 1].map(|n| (one.done)(&before[n], &after[n]));
    // Whoever does not get there is a difference like any other; only the kubelet has to.
    let _ = wait_until(one.name, WITHIN, || {
        after = see_both()?;
        if is_done(&after) == [true; 2] { Ok(()) } else { Err(String::new()) }
    });
    pair.check()?;
    let done = is_done(&after);
    // What led there was answered before; by now it is in the audit log too.
    let after = see_both()?;
    if !done[0] {
        return Err(format!("{}: the kubelet itself did not react as expected: {:?}", one.name, after[0].node));
    }
    Ok(Reaction { name: one.name, before, after, done })
}

/// Neither an event nor a report for a while.
fn is_quiet(seen: &Seen) -> bool {
    let said = seen.requests.iter().filter(|e| e.uri.contains("/events") || is_report(e));
    let last = said.map(|entry| Duration::from_micros(entry.completed_at_us)).max().unwrap_or_default();
    SystemTime::UNIX_EPOCH.elapsed().is_ok_and(|now| now.saturating_sub(last) > QUIET)
}

/// A status PATCH that says more than the version, which D4 asserts now and then.
pub fn is_report(entry: &AuditEntry) -> bool {
    entry.verb == "patch" && entry.uri.contains("/status") && !entry.body["status"].is_null()
}

/// The events that are new, or were seen again: type and message by reason.
pub fn told(before: &Seen, after: &Seen) -> BTreeMap<String, String> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let is_known = |event: &Value| {
        let same = |old: &&Value| old["metadata"]["name"] == event["metadata"]["name"];
        before.events.iter().find(same).is_some_and(|old| old["count"] == event["count"])
    };
    let fresh = after.events.iter().filter(|event| !is_known(event));
    fresh.map(|event| (text(event, "reason"), format!("{}: {}", text(event, "type"), text(event, "message")))).collect()
}

fn has_told(before: &Seen, after: &Seen, reasons: &[&str]) -> bool {
    let told = told(before, after);
    reasons.iter().all(|reason| told.contains_key(*reason))
}

/// What the controllers do about a Node that is not Ready has been undone.
fn is_at_peace(seen: &Seen) -> bool {
    condition(&seen.node, "Ready").is_some_and(|ready| ready["status"] == "True")
        && !seen.node["spec"]["taints"].to_string().contains("node.kubernetes.io/")
}

/// What registration reconciles on an existing Node (REC-1, REC-2, REC-5), what it leaves alone (REG-9), and another
/// machine's boot (MI-5).
fn change_while_down(cluster: &Cluster, name: &str) -> Result<()> {
    let metadata = json!({
        "labels": {"kubernetes.io/hostname": "elsewhere", "example.com/theirs": "kept"},
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": null, "example.com/theirs": "kept"},
    });
    let taints = json!([{"key": "example.com/theirs", "effect": "NoSchedule"}]);
    cluster.patch_node(name, &json!({"metadata": metadata, "spec": {"taints": taints}}))?;
    // None of them: a kubelet takes pages off its memory while its watch still shows them (MI-9).
    let pages = json!({"hugepages-64Ki": "0"});
    let status = json!({"capacity": pages, "allocatable": pages, "nodeInfo": {"bootID": "another-boot"}});
    cluster.patch_node_status(name, &json!({"status": status})).map(drop)
}

fn is_reconciled(before: &Seen, after: &Seen) -> bool {
    let [old, new] = [before, after].map(|seen| &seen.node);
    let lease_seconds = &after.lease["spec"]["leaseDurationSeconds"];
    is_at_peace(after)
        && new["metadata"]["labels"]["kubernetes.io/hostname"] == old["metadata"]["labels"]["kubernetes.io/hostname"]
        && new["status"]["nodeInfo"]["bootID"] == old["status"]["nodeInfo"]["bootID"]
        && *lease_seconds == 8
        && has_told(before, after, &["Starting", "Rebooted", "NodeHasSufficientPID"])
}

fn delete_lease(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.delete_lease(name).map(drop)
}

fn has_new_lease(before: &Seen, after: &Seen) -> bool {
    let [old, new] = [before, after].map(|seen| &seen.lease["metadata"]["uid"]);
    new.is_string() && old != new
}

/// UPD-2: the first two come back while the agent runs, the hostname does not. The controller knows the old names of
/// the first two by heart.
fn wipe_labels(cluster: &Cluster, name: &str) -> Result<()> {
    let labels =
        json!({"kubernetes.io/os": null, "kubernetes.io/arch": "wrong", "kubernetes.io/hostname": "elsewhere"});
    cluster.patch_node(name, &json!({"metadata": {"labels": labels}})).map(drop)
}

fn has_os_label(_: &Seen, after: &Seen) -> bool {
    let labels = &after.node["metadata"]["labels"];
    labels["kubernetes.io/os"] == "linux"
        && labels["kubernetes.io/arch"] != "wrong"
        && labels["beta.kubernetes.io/arch"] == labels["kubernetes.io/arch"]
        && labels["beta.kubernetes.io/os"] == "linux"
}

/// As the controller does it when a Node falls silent (NLC-3), long ago.
fn force_unknown(cluster: &Cluster, name: &str) -> Result<()> {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "Unknown", "lastTransitionTime": LONG_AGO, "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status."})
    };
    let all = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    cluster.patch_node_status(name, &json!({"status": {"conditions": all}})).map(drop)
}

fn is_known_again(before: &Seen, after: &Seen) -> bool {
    let reasons = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
    is_at_peace(after) && has_told(before, after, &reasons)
}

/// A pressure condition keeps whatever words it has while its status stays (PRS-0), Ready never (RDY-6).
fn reword(cluster: &Cluster, name: &str) -> Result<()> {
    let words = |kind: &str| json!({"type": kind, "reason": "Theirs", "message": "their words"});
    let all = [words("MemoryPressure"), words("Ready")];
    cluster.patch_node_status(name, &json!({"status": {"conditions": all}})).map(drop)
}

fn has_own_words(_: &Seen, after: &Seen) -> bool {
    condition(&after.node, "Ready").is_some_and(|ready| ready["reason"] == "KubeletReady")
}

/// All of these are the agent's to say (1.I).
fn overwrite(cluster: &Cluster, name: &str) -> Result<()> {
    let theirs = json!({
        "addresses": [{"type": "InternalIP", "address": "192.0.2.99"}, {"$patch": "replace"}],
        "capacity": {"cpu": "64"},
        "allocatable": {"memory": "1Gi"},
        "nodeInfo": {"kernelVersion": "theirs"},
    });
    cluster.patch_node_status(name, &json!({"status": theirs})).map(drop)
}

fn has_own_facts(before: &Seen, after: &Seen) -> bool {
    let [old, new] = [before, after].map(|seen| &seen.node["status"]);
    ["addresses", "capacity", "allocatable", "nodeInfo"].iter().all(|field| old[field] == new[field])
}

/// A resource and a condition that somebody else keeps: the one gets its allocatable (MI-1), both stay.
fn add_foreign(cluster: &Cluster, name: &str) -> Result<()> {
    let condition =
        json!({"type": "TheirProblem", "status": "True", "lastTransitionTime": LONG_AGO, "reason": "Theirs"});
    let status = json!({"capacity": {"example.com/widget": "3"}, "conditions": [condition]});
    cluster.patch_node_status(name, &json!({"status": status})).map(drop)
}

fn accounts_for_foreign(_: &Seen, after: &Seen) -> bool {
    after.node["status"]["allocatable"]["example.com/widget"] == "3"
}

fn cordon(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.patch_node(name, &json!({"spec": {"unschedulable": true}})).map(drop)
}

fn tells_of_cordon(before: &Seen, after: &Seen) -> bool {
    has_told(before, after, &["NodeNotSchedulable"])
        && after.node["spec"]["taints"].to_string().contains("node.kubernetes.io/unschedulable")
}

fn uncordon(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.patch_node(name, &json!({"spec": {"unschedulable": null}})).map(drop)
}

fn tells_of_uncordon(before: &Seen, after: &Seen) -> bool {
    has_told(before, after, &["NodeSchedulable"]) && is_at_peace(after)
}

fn delete_node(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.delete_node(name).map(drop)
}

/// A whole status run has gone by without its Node.
fn is_missed(before: &Seen, after: &Seen) -> bool {
    let is_new = |seen: &Seen| seen.node.is_object() && seen.node["metadata"]["uid"] != before.node["metadata"]["uid"];
    let failed = |seen: &Seen| seen.requests.iter().filter(|e| e.code == 404 && e.uri.contains("/nodes/")).count();
    is_new(after) || failed(after) >= failed(before) + 5
}
