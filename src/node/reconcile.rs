//! Turns a Node found at registration and the one we would have created into the one that should be there (REC-*), and
//! two Nodes into whether their status says the same (CHG-*).

use super::capacity::HUGEPAGES;
use super::desired::MANAGED_ATTACH_DETACH;
use super::object::{Condition, Node, ResourceList};
use crate::config::quantity::Quantity;
use crate::time::Wall;

/// REC-2: only these are made equal, and only where the initial Node has an opinion.
const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The existing Node made right (REC-1..5), or `None` when nothing differs.
///
/// Extended resources (REC-4) are left alone: the agent has no device plug-ins, so those it finds belong to somebody
/// else. Taints and all other labels are never touched: they are set at creation only.
pub fn reconcile(existing: &Node, initial: &Node) -> Option<Node> {
    let mut node = existing.clone();
    let attach_detach = reconcile_attach_detach(&mut node, initial);
    let labels = reconcile_labels(&mut node, initial);
    let resources = default_resources(&mut node, initial);
    let hugepages = reconcile_hugepages(&mut node, initial);
    (attach_detach || labels || resources || hugepages).then_some(node)
}

fn reconcile_attach_detach(node: &mut Node, initial: &Node) -> bool {
    let (ours, theirs) = (&initial.metadata.annotations, &mut node.metadata.annotations);
    let value = ours.get(MANAGED_ATTACH_DETACH);
    if value.map_or("", String::as_str) == theirs.get(MANAGED_ATTACH_DETACH).map_or("", String::as_str) {
        return false;
    }
    match value {
        Some(value) => theirs.insert(MANAGED_ATTACH_DETACH.to_owned(), value.clone()),
        None => theirs.remove(MANAGED_ATTACH_DETACH),
    };
    true
}

fn reconcile_labels(node: &mut Node, initial: &Node) -> bool {
    let mut changed = false;
    for key in DEFAULT_LABELS {
        let Some(value) = initial.metadata.labels.get(key) else { continue };
        let labels = &mut node.metadata.labels;
        if labels.get(key).map_or("", String::as_str) != value {
            labels.insert(key.to_owned(), value.clone());
            changed = true;
        }
        if value.is_empty() {
            labels.remove(key);
        }
    }
    changed
}

/// REC-3.
fn default_resources(node: &mut Node, initial: &Node) -> bool {
    let mut changed = false;
    let (existing, initial) = (&mut node.status, &initial.status);
    let pairs = [(&mut existing.capacity, &initial.capacity), (&mut existing.allocatable, &initial.allocatable)];
    for (theirs, ours) in pairs {
        if theirs.is_none() {
            changed |= ours.is_some();
            *theirs = Some(ours.clone().unwrap_or_default());
        }
    }
    changed
}

/// REC-5.
fn reconcile_hugepages(node: &mut Node, initial: &Node) -> bool {
    let empty = ResourceList::new();
    let wanted = initial.status.capacity.as_ref().unwrap_or(&empty);
    let wanted_allocatable = initial.status.allocatable.as_ref().unwrap_or(&empty);
    let capacity = node.status.capacity.get_or_insert_default();
    let allocatable = node.status.allocatable.get_or_insert_default();
    let mut changed = false;
    for (name, quantity) in wanted.iter().filter(|(name, _)| name.starts_with(HUGEPAGES)) {
        let free = wanted_allocatable.get(name).unwrap_or(quantity);
        for (list, value) in [(&mut *capacity, quantity), (&mut *allocatable, free)] {
            if !list.get(name).is_some_and(|old| same_quantity(old, value)) {
                list.insert(name.clone(), value.clone());
                changed = true;
            }
        }
    }
    let gone = |name: &String| name.starts_with(HUGEPAGES) && !wanted.contains_key(name);
    changed |= capacity.keys().any(gone);
    capacity.retain(|name, _| !gone(name));
    allocatable.retain(|name, _| !gone(name));
    changed
}

/// Whether two statuses say the same (CHG-1, CHG-2): heartbeats and the order of conditions do not count, quantities
/// compare as numbers, times as instants, nothing equals empty, the order of addresses counts.
pub fn same_status(left: &Node, right: &Node) -> bool {
    let (left, right) = (&left.status, &right.status);
    same_resources(left.capacity.as_ref(), right.capacity.as_ref())
        && same_resources(left.allocatable.as_ref(), right.allocatable.as_ref())
        && same_conditions(&left.conditions, &right.conditions)
        && left.addresses == right.addresses
        && left.daemon_endpoints == right.daemon_endpoints
        && left.node_info == right.node_info
}

fn same_resources(left: Option<&ResourceList>, right: Option<&ResourceList>) -> bool {
    let empty = ResourceList::new();
    let (left, right) = (left.unwrap_or(&empty), right.unwrap_or(&empty));
    left.len() == right.len()
        && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| same_quantity(value, other)))
}

fn same_quantity(left: &str, right: &str) -> bool {
    left == right || matches!((Quantity::parse(left), Quantity::parse(right)), (Ok(left), Ok(right)) if left == right)
}

fn same_conditions(left: &[Condition], right: &[Condition]) -> bool {
    let sorted = |conditions: &[Condition]| {
        let mut sorted: Vec<Condition> = conditions.to_vec();
        sorted.sort_by(|left, right| left.kind.cmp(&right.kind));
        sorted
    };
    let (left, right) = (sorted(left), sorted(right));
    left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| same_condition(left, right))
}

fn same_condition(left: &Condition, right: &Condition) -> bool {
    let instant = |stamp: &Option<String>| stamp.as_deref().and_then(Wall::parse_stamp);
    let transitions = (&left.last_transition_time, &right.last_transition_time);
    left.kind == right.kind
        && left.status == right.status
        && left.reason == right.reason
        && left.message == right.message
        && (transitions.0 == transitions.1
            || (instant(transitions.0).is_some() && instant(transitions.0) == instant(transitions.1)))
}
