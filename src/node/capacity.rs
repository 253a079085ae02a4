//! Turns machine facts and reservations into capacity, allocatable and the identity part of `nodeInfo` (MI-1..10, ALC-*).

use std::collections::BTreeMap;

use super::NodeError;
use super::desired::{Board, NodeEvent, Remembered};
use super::object::{Node, ResourceList, Swap};
use super::pressure::threshold_value;
use crate::config::labels;
use crate::config::quantity::Quantity;
use crate::config::settings::{Settings, Signal};
use crate::probe::{Absent, Fact};

pub(super) const HUGEPAGES: &str = "hugepages-";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Writes capacity and allocatable in place: resources of others stay, with allocatable equal to capacity (MI-1).
pub(super) fn set(
    node: &mut Node,
    board: &Board,
    remembered: &mut Remembered,
    events: &mut Vec<NodeEvent>,
    problems: &mut Vec<NodeError>,
) {
    set_identity(node, board, remembered, events, problems);
    let mut capacity = node.status.capacity.take().unwrap_or_default();
    set_capacity(&mut capacity, board, remembered, problems);
    let mut allocatable = node.status.allocatable.take().unwrap_or_default();
    set_allocatable(&mut allocatable, &capacity, &reservations(board.settings, &capacity));
    node.status.capacity = Some(capacity);
    node.status.allocatable = Some(allocatable);
}

/// `nodeInfo` as far as it says which machine this is, and the event of a reboot (MI-5). An unknown boot id is no
/// reboot, and leaves the stored one for the next run to compare with.
fn set_identity(
    node: &mut Node,
    board: &Board,
    remembered: &mut Remembered,
    events: &mut Vec<NodeEvent>,
    problems: &mut Vec<NodeError>,
) {
    let machine = &board.facts.machine;
    let info = &mut node.status.node_info;
    info.machine_id = fact(&machine.machine_id, "status.nodeInfo.machineID", problems).cloned().unwrap_or_default();
    info.system_uuid = fact(&machine.system_uuid, "status.nodeInfo.systemUUID", problems).cloned().unwrap_or_default();
    if let Some(boot_id) = fact(&machine.boot_id, "status.nodeInfo.bootID", problems) {
        if !info.boot_id.is_empty() && info.boot_id != *boot_id && !remembered.reboot_reported {
            remembered.reboot_reported = true;
            let message = format!("Node {} has been rebooted, boot id: {boot_id}", board.name);
            events.push(NodeEvent { warning: true, reason: "Rebooted", message });
        }
        info.boot_id.clone_from(boot_id);
    }
    if let Some(bytes) = machine.swap_total_bytes.as_ref().ok().filter(|bytes| **bytes != 0) {
        info.swap = Some(Swap { capacity_bytes: i64::try_from(*bytes).ok() });
    }
}

fn set_capacity(
    capacity: &mut ResourceList,
    board: &Board,
    remembered: &mut Remembered,
    problems: &mut Vec<NodeError>,
) {
    let (machine, settings) = (&board.facts.machine, board.settings);
    let mut put = |name: &str, quantity: Quantity| capacity.insert(name.to_owned(), quantity.to_string());
    let cpu_count = fact(&machine.cpu_count, "status.capacity.cpu", problems).copied();
    put("cpu", Quantity::from_count(u64::from(cpu_count.unwrap_or(0))));
    let memory = fact(&machine.memory_total_bytes, "status.capacity.memory", problems).copied();
    put("memory", Quantity::from_bytes(memory.unwrap_or(0)));
    put("pods", Quantity::from_count(pods(settings, cpu_count)));
    for size in &machine.hugepages {
        let name = format!("{HUGEPAGES}{}", Quantity::from_bytes(size.page_size_bytes));
        put(&name, Quantity::from_bytes(size.page_size_bytes.saturating_mul(size.pages)));
    }
    if settings.local_storage_capacity_isolation {
        let bytes = remembered.ephemeral_storage_bytes.or_else(|| {
            let field = "status.capacity.ephemeral-storage";
            fact(&board.facts.readings.node_file_system, field, problems).map(|system| system.capacity_bytes)
        });
        remembered.ephemeral_storage_bytes = bytes;
        if let Some(bytes) = bytes {
            put(EPHEMERAL_STORAGE, Quantity::from_bytes(bytes));
        }
    }
}

/// MI-4, MI-2 and D8.
fn pods(settings: &Settings, cpu_count: Option<u32>) -> u64 {
    let per_core = cpu_count.map_or(0, |cores| u64::from(cores) * u64::from(settings.pods_per_core));
    match (settings.podless, per_core) {
        (true, _) => 0,
        (false, 0) => u64::from(settings.max_pods),
        (false, per_core) => per_core.min(u64::from(settings.max_pods)),
    }
}

/// ALC-1: what settings reserve, and what hard eviction keeps free of memory and of the node file system.
fn reservations(settings: &Settings, capacity: &ResourceList) -> BTreeMap<String, Quantity> {
    let mut reserved = settings.system_reserved.clone();
    for (name, more) in &settings.kube_reserved {
        let sum = reserved.get(name).map_or(*more, |reserved| reserved.plus(*more));
        reserved.insert(name.clone(), sum);
    }
    if let Some(cores) = settings.reserved_system_cpus {
        reserved.insert("cpu".to_owned(), Quantity::from_count(u64::from(cores)));
    }
    let kept_free = [(Signal::MemoryAvailable, "memory"), (Signal::NodefsAvailable, EPHEMERAL_STORAGE)];
    for (signal, name) in kept_free {
        let total = capacity.get(name).and_then(|text| Quantity::parse(text).ok()).map(|total| total.value());
        let kept = settings.eviction.hard.get(&signal).and_then(|threshold| threshold_value(*threshold, total));
        let Some(kept) = kept.and_then(|bytes| u64::try_from(bytes).ok()).map(Quantity::from_bytes) else { continue };
        let sum = reserved.get(name).map_or(kept, |reserved| reserved.plus(kept));
        reserved.insert(name.to_owned(), sum);
    }
    reserved
}

/// MI-9. What cannot be read as a quantity was put there by others and is repeated as it is.
fn set_allocatable(allocatable: &mut ResourceList, capacity: &ResourceList, reservations: &BTreeMap<String, Quantity>) {
    allocatable.retain(|name, _| capacity.contains_key(name) || !is_extended_resource(name));
    for (name, text) in capacity {
        let reserved = reservations.get(name).copied().unwrap_or(Quantity::from_count(0));
        let left = Quantity::parse(text).map_or_else(|_| text.clone(), |all| all.minus_floored(reserved).to_string());
        allocatable.insert(name.clone(), left);
    }
    let Some(mut memory) = allocatable.get("memory").and_then(|text| Quantity::parse(text).ok()) else { return };
    for (_, pages) in capacity.iter().filter(|(name, _)| name.starts_with(HUGEPAGES)) {
        memory = Quantity::parse(pages).map_or(memory, |pages| memory.minus_floored(pages));
    }
    allocatable.insert("memory".to_owned(), memory.to_string());
}

/// `IsExtendedResourceName`: made by a device plug-in or an administrator, not by Kubernetes.
fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && labels::check_key(&format!("requests.{name}")).is_ok()
}

fn fact<'a, T>(fact: &'a Fact<T>, field: &'static str, problems: &mut Vec<NodeError>) -> Option<&'a T> {
    let absent = |absent: &Absent| problems.push(NodeError::NoFact { field, absent: absent.clone() });
    fact.as_ref().map_err(absent).ok()
}
