//! Turns pressures and problems into the Node's four conditions, and their transitions into events (PRS-*, RDY-*).

use super::desired::{Board, NodeEvent};
use super::object::{Condition, Node};

/// The conditions that are ours, in the order of a new Node: Ready last (1.I).
pub const OWN: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", READY];
pub const READY: &str = "Ready";

/// What the node controller writes into conditions of a node it no longer hears.
const CONTROLLER_REASONS: [&str; 2] = ["NodeStatusUnknown", "NodeStatusNeverUpdated"];

/// Status, reason, message and event of one answer of a pressure condition.
struct Face {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
    event: &'static str,
}

/// PRS-0: heartbeat always; the rest, and the event, only when the status changes.
pub(super) fn set_pressures(node: &mut Node, board: &Board, events: &mut Vec<NodeEvent>) {
    let stamp = board.stamp.to_seconds_stamp();
    let pressed = [board.pressures.memory, board.pressures.disk, board.pressures.pid];
    for (kind, pressed) in OWN.into_iter().zip(pressed) {
        let face = face(kind, pressed);
        let at = position(node, kind);
        let Some(condition) = node.status.conditions.get_mut(at) else { continue };
        condition.last_heartbeat_time = Some(stamp.clone());
        if condition.status == face.status && !is_the_controllers(condition) {
            continue;
        }
        condition.status = face.status.to_owned();
        condition.reason = face.reason.to_owned();
        condition.message = face.message.to_owned();
        condition.last_transition_time = Some(stamp.clone());
        events.push(NodeEvent::status_is_now(board.name, face.event));
    }
}

/// RDY-6: reason, message and heartbeat always; the transition time, and the event, only when an existing status changes.
pub(super) fn set_ready(node: &mut Node, board: &Board, events: &mut Vec<NodeEvent>) {
    let stamp = Some(board.stamp.to_seconds_stamp());
    let message = not_ready_message(node, board);
    let status = if message.is_none() { "True" } else { "False" };
    let ready = Condition {
        kind: READY.to_owned(),
        status: status.to_owned(),
        last_heartbeat_time: stamp.clone(),
        last_transition_time: stamp,
        reason: if message.is_none() { "KubeletReady" } else { "KubeletNotReady" }.to_owned(),
        message: message.unwrap_or_else(|| "kubelet is posting ready status".to_owned()),
    };
    let Some(old) = node.status.conditions.iter_mut().find(|one| one.kind == READY) else {
        node.status.conditions.push(ready);
        return;
    };
    if old.status == ready.status && !is_the_controllers(old) {
        let last_transition_time = old.last_transition_time.take();
        *old = Condition { last_transition_time, ..ready };
    } else {
        events.push(NodeEvent::status_is_now(board.name, if status == "True" { "NodeReady" } else { "NodeNotReady" }));
        *old = ready;
    }
}

/// RDY-2, RDY-3; `None` when there is nothing against Ready.
fn not_ready_message(node: &Node, board: &Board) -> Option<String> {
    let mut required = vec!["cpu", "memory", "pods"];
    if board.settings.local_storage_capacity_isolation {
        required.push("ephemeral-storage");
    }
    let capacity = node.status.capacity.as_ref();
    required.retain(|name| !capacity.is_some_and(|capacity| capacity.contains_key(*name)));
    let missing =
        (!required.is_empty()).then(|| format!("missing node capacity for resources: {}", required.join(", ")));
    let mut problems: Vec<&str> = Vec::new();
    for problem in board.problems.iter().chain(&missing) {
        if !problems.contains(&problem.as_str()) {
            problems.push(problem);
        }
    }
    match problems.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Where the condition stands; a new one is appended with status `Unknown`, so that it counts as a transition.
fn position(node: &mut Node, kind: &str) -> usize {
    let conditions = &mut node.status.conditions;
    conditions.iter().position(|one| one.kind == kind).unwrap_or_else(|| {
        conditions.push(Condition {
            kind: kind.to_owned(),
            status: "Unknown".to_owned(),
            last_heartbeat_time: None,
            last_transition_time: None,
            reason: String::new(),
            message: String::new(),
        });
        conditions.len() - 1
    })
}

/// Whether only the status of this condition was repaired since the controller wrote it (see [`super::updated`]).
fn is_the_controllers(condition: &Condition) -> bool {
    CONTROLLER_REASONS.contains(&condition.reason.as_str())
}

/// PRS-1..6.
fn face(kind: &str, pressed: bool) -> Face {
    let (reason, message, event) = match (kind, pressed) {
        ("MemoryPressure", true) => {
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory")
        }
        ("MemoryPressure", false) => {
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory")
        }
        ("DiskPressure", true) => ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("DiskPressure", false) => {
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure")
        }
        (_, true) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        (_, false) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    };
    Face { status: if pressed { "True" } else { "False" }, reason, message, event }
}
