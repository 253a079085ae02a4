//! Turns facts and settings into the Node to register, and the Node of the server into the one it should be.

use std::collections::BTreeMap;

use super::object::{Endpoint, Metadata, Node, NodeSpec, NodeStatus};
use super::pressure::Pressures;
use super::reconcile::same_status;
use super::{NodeError, address, capacity, condition, version};
use crate::config::Settings;
use crate::config::settings::CloudProvider;
use crate::config::taint::{Effect, Taint};
use crate::probe::Facts;
use crate::time::Wall;

/// INI-4: the attach/detach controller then never expects this node to attach a volume.
pub const MANAGED_ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// D8: key of the two taints that keep pods away.
pub const PODLESS_TAINT: &str = "nodepulse.dev/podless";
/// D8: service controllers ask only whether the key is there.
pub const NO_LOAD_BALANCER_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// UPD-2: restored on every run.
const ASSERTED_LABELS: [&str; 2] = ["kubernetes.io/os", "kubernetes.io/arch"];

/// Everything one status run is made from.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    pub settings: &'a Settings,
    pub facts: &'a Facts,
    /// The Node's name (`node::name`).
    pub name: &'a str,
    /// `nodeInfo.kubeletVersion` (`node::version`).
    pub kubelet_version: &'a str,
    pub pressures: Pressures,
    /// The time of this run: heartbeats and transitions carry it.
    pub stamp: Wall,
    /// Reasons for Ready=False beside missing capacity, in order; constant wording (CHG-4).
    pub problems: &'a [String],
}

/// What the kubelet keeps in memory between runs; lost with the process on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Comma-joined (UPD-1).
    pub pod_cidrs: String,
    /// SCH-1.
    pub unschedulable: bool,
    /// MI-5: at most one `Rebooted` per process.
    pub reboot_reported: bool,
    /// The first size seen of the state directory's file system: ZFS and btrfs change theirs all the time, and each
    /// change would be a PATCH (CHG-4). The kubelet reads it once as well.
    pub ephemeral_storage_bytes: Option<u64>,
}

/// An event about the Node, not yet stamped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The outcome of one status run.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub node: Node,
    /// Whether this must be sent now (SYN-5), or can wait for the next report.
    pub changed: bool,
    pub events: Vec<NodeEvent>,
    pub problems: Vec<NodeError>,
}

/// The Node to register (INI-1..7): every setter has run on it. Its events are those of new conditions (PRS-0).
pub fn initial(board: &Board) -> (Node, Vec<NodeEvent>, Vec<NodeError>) {
    let mut annotations = BTreeMap::new();
    if board.settings.enable_controller_attach_detach {
        annotations.insert(MANAGED_ATTACH_DETACH.to_owned(), "true".to_owned());
    }
    let metadata = Metadata { name: board.name.to_owned(), labels: labels(board), annotations, ..Metadata::default() };
    let spec = NodeSpec {
        provider_id: board.settings.provider_id.clone(),
        taints: taints(board.settings),
        ..NodeSpec::default()
    };
    let mut node = Node { metadata, spec, status: NodeStatus::default() };
    let (events, problems) = run_setters(&mut node, board, &mut Remembered::default());
    (node, events, problems)
}

/// The Node as it should be, from the Node as the server has it (SYN-5, UPD-1..3).
///
/// A condition of ours whose status is right but whose reason is still the node controller's (`NodeStatusUnknown`,
/// `NodeStatusNeverUpdated`) counts as a transition (PRS-7): an assertion ([`super::patch::assertion`]) has then
/// already repaired the status alone, and reason, message, transition time and event are still owed.
pub fn updated(base: &Node, board: &Board, remembered: &mut Remembered) -> Update {
    let mut node = base.clone();
    let mut changed = false;
    let pod_cidrs = base.spec.pod_cidrs.join(",");
    if !pod_cidrs.is_empty() && pod_cidrs != remembered.pod_cidrs {
        remembered.pod_cidrs = pod_cidrs;
        changed = true;
    }
    for (key, value) in default_labels(board).into_iter().filter(|(key, _)| ASSERTED_LABELS.contains(key)) {
        changed |= node.metadata.labels.insert(key.to_owned(), value.to_owned()).is_none_or(|old| old != value);
    }
    let (events, problems) = run_setters(&mut node, board, remembered);
    changed |= !same_status(base, &node);
    Update { node, changed, events, problems }
}

/// The setters in the kubelet's order (1.I); one that fails leaves its fields and the others still run (UPD-3).
fn run_setters(node: &mut Node, board: &Board, remembered: &mut Remembered) -> (Vec<NodeEvent>, Vec<NodeError>) {
    let (mut events, mut problems) = (Vec::new(), Vec::new());
    problems.extend(address::set(node, board).err());
    capacity::set(node, board, remembered, &mut events, &mut problems);
    version::set(node, board, &mut problems);
    node.status.daemon_endpoints.kubelet_endpoint = Endpoint { port: board.settings.port };
    condition::set_pressures(node, board, &mut events);
    condition::set_ready(node, board, &mut events);
    if node.spec.unschedulable != remembered.unschedulable {
        remembered.unschedulable = node.spec.unschedulable;
        let reason = if node.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        events.push(NodeEvent::status_is_now(board.name, reason));
    }
    (events, problems)
}

fn default_labels<'a>(board: &Board<'a>) -> [(&'static str, &'a str); 5] {
    let (os, architecture) = (version::OPERATING_SYSTEM, version::architecture());
    [
        ("kubernetes.io/hostname", board.name),
        ("kubernetes.io/os", os),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", architecture),
    ]
}

/// INI-1, INI-2, D8 and what a cloud provider would have said; the user's labels win.
fn labels(board: &Board) -> BTreeMap<String, String> {
    let settings = board.settings;
    let cloud = [
        ("node.kubernetes.io/instance-type", settings.instance_type.as_str()),
        ("topology.kubernetes.io/zone", settings.zone.as_str()),
        ("topology.kubernetes.io/region", settings.region.as_str()),
    ];
    let known = default_labels(board).into_iter().chain(cloud.into_iter().filter(|(_, value)| !value.is_empty()));
    let mut labels: BTreeMap<_, _> = known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if settings.podless {
        labels.insert(NO_LOAD_BALANCER_LABEL.to_owned(), String::new());
    }
    labels.extend(settings.node_labels.clone());
    labels
}

/// INI-3 and D8; one of the user's own with the same key and effect stands for ours, as the API takes no two.
fn taints(settings: &Settings) -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
    let mut ours = Vec::new();
    if settings.podless {
        ours.push(taint(PODLESS_TAINT, "", Effect::NoSchedule));
        ours.push(taint(PODLESS_TAINT, "", Effect::NoExecute));
    }
    if settings.cloud_provider == CloudProvider::External {
        ours.push(taint(UNINITIALIZED_TAINT, "true", Effect::NoSchedule));
    }
    let mut taints = settings.register_with_taints.clone();
    ours.retain(|ours| !taints.iter().any(|theirs| theirs.collides_with(ours)));
    taints.extend(ours);
    taints
}

impl NodeEvent {
    /// The wording of all events about a condition or about scheduling.
    pub fn status_is_now(node: &str, reason: &'static str) -> NodeEvent {
        NodeEvent { warning: false, reason, message: format!("Node {node} status is now: {reason}") }
    }
}
