//! Turns what became of both Nodes after something was done to them into what differs, each with its reason.

use super::super::cluster::{Cluster, Result};
use super::super::trials::Case;
use super::differences::{Leaves, changes, leaves};
use super::plain::Whose;
use super::reaction::{self, Reaction, is_report, told};
use super::record::{Seen, recording};
use super::table::{Row, judge, row, sometimes};
use serde_json::Value;

const NO_RUNTIME: &str = "no container runtime, so no pods";
const ADOPTED: &str = "D10: each adoption of the Lease is counted, so that who held it before notices";

pub fn cases() -> Vec<Case> {
    cases![
        a_restart_reconciles_the_same_and_leaves_the_rest_alone,
        a_deleted_lease_is_created_again_with_its_owner,
        a_wiped_os_label_is_restored_and_the_hostname_is_not,
        conditions_forced_to_unknown_are_repaired,
        conditions_forced_to_unknown_are_repaired_within_twelve_seconds_by_default,
        only_ready_gets_its_words_back,
        an_overwritten_status_is_the_machines_again,
        foreign_resources_and_conditions_are_kept,
        a_cordon_is_told_and_so_is_its_end,
        a_deleted_node_is_where_we_part,
    ]
}

fn a_restart_reconciles_the_same_and_leaves_the_rest_alone(cluster: &Cluster) -> Result<()> {
    const ONE: &str = "REG-8: what registration puts right is in the first report, one PATCH instead of two";
    const ROWS: &[Row] = &[
        row("PATCH.status.$setElementOrder/conditions[*].type", "-", "*", ONE),
        row("PATCH.status.conditions[*", "-", "*", ONE),
        row("PATCH.status.nodeInfo.bootID", "-", "*", ONE),
        row("Lease.spec.leaseTransitions", "-", "0 -> 1", ADOPTED),
        row("event Starting", "Normal: Starting kubelet.", "Normal: Starting nodepulse.", "TR-4: a name of our own"),
        sometimes("event NodeNotReady", "Normal: *", "-", "FST: there is no container runtime to wait for"),
        sometimes("event NodeReady", "Normal: *", "-", "FST: there is no container runtime to wait for"),
    ];
    compare(cluster, reaction::RESTART, "Reaction: changed while down, then restarted", Report::First, ROWS)
}

fn a_deleted_lease_is_created_again_with_its_owner(cluster: &Cluster) -> Result<()> {
    const ROWS: &[Row] = &[row("Lease.spec.leaseTransitions", "-", "1 -> 0", ADOPTED)];
    compare(cluster, reaction::DELETED_LEASE, "Reaction: deleted Lease", Report::None, ROWS)
}

fn a_wiped_os_label_is_restored_and_the_hostname_is_not(cluster: &Cluster) -> Result<()> {
    compare(cluster, reaction::WIPED_LABELS, "Reaction: wiped and altered labels", Report::Last, &[])
}

fn conditions_forced_to_unknown_are_repaired(cluster: &Cluster) -> Result<()> {
    compare(cluster, reaction::UNKNOWN, "Reaction: conditions forced to Unknown", Report::Last, &[])
}

fn conditions_forced_to_unknown_are_repaired_within_twelve_seconds_by_default(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    println!("conditions made Unknown were known again after {:?}: the kubelet, nodepulse", record.left_unknown);
    let [kubelet, nodepulse] = record.left_unknown.map(|left| {
        let text = if left.as_secs() < 12 { "within 12 s".to_owned() } else { format!("after {left:?}") };
        Leaves::from([("known again".to_owned(), text)])
    });
    judge("Reaction: conditions forced to Unknown, with the defaults of both", &kubelet, &nodepulse, &[])
}

fn only_ready_gets_its_words_back(cluster: &Cluster) -> Result<()> {
    compare(cluster, reaction::WORDING, "Reaction: other words in MemoryPressure and Ready", Report::Last, &[])
}

fn an_overwritten_status_is_the_machines_again(cluster: &Cluster) -> Result<()> {
    compare(
        cluster,
        reaction::OVERWRITTEN,
        "Reaction: overwritten addresses, resources and nodeInfo",
        Report::Last,
        &[],
    )
}

fn foreign_resources_and_conditions_are_kept(cluster: &Cluster) -> Result<()> {
    compare(cluster, reaction::FOREIGN, "Reaction: a foreign resource and a foreign condition", Report::Last, &[])
}

fn a_cordon_is_told_and_so_is_its_end(cluster: &Cluster) -> Result<()> {
    compare(cluster, reaction::CORDON, "Reaction: cordon", Report::None, &[])?;
    compare(cluster, reaction::UNCORDON, "Reaction: uncordon", Report::None, &[])
}

fn a_deleted_node_is_where_we_part(cluster: &Cluster) -> Result<()> {
    const WHY: &str = "D1: the most repeated complaint of the field";
    const ROWS: &[Row] = &[row("Node", "gone", "registered again", WHY)];
    let found = find(cluster, reaction::DELETED_NODE)?;
    let [kubelet, nodepulse] = [0, 1].map(|n| {
        let is = if found.after[n].node.is_object() { "registered again" } else { "gone" };
        Leaves::from([("Node".to_owned(), is.to_owned())])
    });
    judge("Reaction: deleted Node", &kubelet, &nodepulse, ROWS)
}

fn find(cluster: &Cluster, name: &str) -> Result<&'static Reaction> {
    let record = recording(cluster)?;
    record.reactions.iter().find(|one| one.name == name).ok_or_else(|| format!("{name} was not done"))
}

/// What depends on the machine, and comes whenever the kubelet has looked.
const MACHINE: &[Row] = &[
    sometimes("event CgroupV1", "Warning: *", "-", "EVI-12: cgroup v1 is no fault of a machine without pods"),
    sometimes("event InvalidDiskCapacity", "Warning: *", "-", NO_RUNTIME),
    sometimes("event PossibleMemoryBackedVolumesOnDisk", "Warning: *", "-", NO_RUNTIME),
    sometimes("event ContainerGCFailed", "Warning: *", "-", NO_RUNTIME),
    sometimes("event ImageGCFailed", "Warning: *", "-", NO_RUNTIME),
    sometimes(
        "PATCH.status.$setElementOrder/conditions[ReadonlyFilesystem].type",
        "-",
        "*",
        "NPD-1: node-problem-detector's",
    ),
    sometimes(
        "PATCH.status.$setElementOrder/conditions[FilesystemCorruptionProblem].type",
        "-",
        "*",
        "a condition of the board",
    ),
    sometimes("PATCH.status.$setElementOrder/conditions[UplinkDegraded].type", "-", "*", "a condition of the board"),
    sometimes("PATCH.status.$setElementOrder/conditions[NTPProblem].type", "-", "*", "node-problem-detector's"),
];

/// Which of the reports that followed is compared, byte for byte but for times.
#[derive(Clone, Copy)]
enum Report {
    /// None has to follow.
    None,
    /// What registration reconciles.
    First,
    /// What brought the Node in order.
    Last,
}

/// Compares what changed, so that what always differs (table of the Node) is not explained again.
fn compare(cluster: &Cluster, name: &str, title: &'static str, report: Report, rows: &[Row]) -> Result<()> {
    let found = find(cluster, name)?;
    let [kubelet, nodepulse] = [0, 1].map(|n| outcome(&found.before[n], &found.after[n], found.done[n], report));
    judge(title, &kubelet, &nodepulse, &[rows, MACHINE].concat())
}

fn outcome(before: &Seen, after: &Seen, done: bool, report: Report) -> Leaves {
    let mut all = changes(&state(before), &state(after));
    all.insert("what was waited for".to_owned(), if done { "came" } else { "did not come" }.to_owned());
    let whose = Whose::of(before);
    all.extend(told(before, after).into_iter().map(|(reason, text)| (format!("event {reason}"), whose.text(&text))));
    let patch = match report {
        Report::None => None,
        Report::First => reports(before, after).next(),
        Report::Last => reports(before, after).next_back(),
    };
    if let Some(patch) = patch {
        all.extend(leaves("PATCH", &whose.plain(patch)));
    }
    all
}

/// The reports that were sent in between.
fn reports<'a>(before: &Seen, after: &'a Seen) -> impl DoubleEndedIterator<Item = &'a Value> {
    let since = before.requests.last().map_or(0, |entry| entry.received_at_us);
    let fresh = after.requests.iter().filter(move |entry| entry.received_at_us > since);
    fresh.filter(|entry| is_report(entry)).map(|entry| &entry.body)
}

/// The Node and its Lease, without who wrote which field: that is the table of the Node.
fn state(seen: &Seen) -> Leaves {
    let whose = Whose::of(seen);
    let mut all = leaves("Node", &whose.plain(&without_managers(&seen.node)));
    all.extend(leaves("Lease", &whose.plain(&without_managers(&seen.lease))));
    all
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    object
}
