//! Turns pressures and problems into the Node's four conditions, and their transitions into events (PRS-*, RDY-*).

use super::desired::{Board, NodeEvent, Remembered};
use super::object::{Condition, Node};
use super::pressure::Pressures;
use crate::config::Settings;
use crate::probe::Facts;

/// The conditions that are ours, in the order of a new Node: Ready last.
pub const OWN: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", READY];
pub const READY: &str = "Ready";

const STORAGE: &str = "ephemeral-storage";

/// What the node controller writes into conditions of a node it no longer hears.
const CONTROLLER_REASONS: [&str; 2] = ["NodeStatusUnknown", "NodeStatusNeverUpdated"];

/// Status, reason, message and event of one answer of a pressure condition.
struct Face {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
    event: &'static str,
}

/// What one look at the board says of each condition of ours, in the order of [`OWN`]; `None`: nobody can say yet.
///
/// The same judgement as the setters', without a Node of the server's to set it on: it is wanted while there is none.
pub fn judge(
    pressures: Pressures,
    settings: &Settings,
    facts: &Facts,
    remembered: &Remembered,
    base: Option<&Node>,
) -> [Option<bool>; 4] {
    // Every other resource of a capacity is always put there (RDY-3).
    let size_is_known = !settings.local_storage_capacity_isolation
        || remembered.ephemeral_storage_bytes.is_some()
        || facts.readings.node_file_system.is_ok();
    let stored = base.map(|base| base.status.capacity.as_ref().is_some_and(|stored| stored.contains_key(STORAGE)));
    let ready = if size_is_known { Some(true) } else { stored };
    [Some(pressures.memory), Some(pressures.disk), Some(pressures.pid), ready]
}

/// The reason that a condition of ours has in this status.
pub fn reason(kind: &str, is_true: bool) -> &'static str {
    face(kind, is_true).reason
}

/// What is told when a condition of ours comes to this status.
pub fn transition(node: &str, kind: &str, is_true: bool) -> NodeEvent {
    NodeEvent::status_is_now(node, face(kind, is_true).event)
}

/// The condition of ours that an event of this reason is about.
pub fn of_event(reason: &str) -> Option<&'static str> {
    OWN.into_iter().find(|kind| [true, false].into_iter().any(|is_true| face(kind, is_true).event == reason))
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
        if condition.status == face.status && !is_ours_by_status_only(condition) {
            continue;
        }
        condition.status = face.status.to_owned();
        condition.reason = face.reason.to_owned();
        condition.message = face.message.to_owned();
        condition.last_transition_time = Some(stamp.clone());
        events.push(NodeEvent::status_is_now(board.name, face.event));
    }
}

/// RDY-6: reason, message and heartbeat always; the transition time, and the event, only when the status changes.
pub(super) fn set_ready(node: &mut Node, board: &Board, events: &mut Vec<NodeEvent>) {
    let stamp = Some(board.stamp.to_seconds_stamp());
    let message = not_ready_message(node, board);
    let face = face(READY, message.is_none());
    let ready = Condition {
        kind: READY.to_owned(),
        status: face.status.to_owned(),
        last_heartbeat_time: stamp.clone(),
        last_transition_time: stamp,
        reason: face.reason.to_owned(),
        message: message.unwrap_or_else(|| face.message.to_owned()),
    };
    let Some(old) = node.status.conditions.iter_mut().find(|one| one.kind == READY) else {
        node.status.conditions.push(ready);
        return;
    };
    if old.status == ready.status && !is_ours_by_status_only(old) {
        let last_transition_time = old.last_transition_time.take();
        *old = Condition { last_transition_time, ..ready };
    } else {
        events.push(NodeEvent::status_is_now(board.name, face.event));
        *old = ready;
    }
}

/// RDY-2, RDY-3; `None` when there is nothing against Ready.
fn not_ready_message(node: &Node, board: &Board) -> Option<String> {
    let mut required = vec!["cpu", "memory", "pods"];
    if board.settings.local_storage_capacity_isolation {
        required.push(STORAGE);
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

/// Whether no more than the status of this condition can be ours: repaired since the controller or an older report of ours
/// that came late wrote it (see [`super::updated`]), or asserted on a Node that somebody had just made anew.
pub fn is_ours_by_status_only(condition: &Condition) -> bool {
    let other_face = face(&condition.kind, condition.status != "True");
    CONTROLLER_REASONS.contains(&condition.reason.as_str())
        || condition.reason == other_face.reason
        || condition.last_transition_time.is_none()
}

/// PRS-1..6, RDY-6; what is against Ready has no fixed message.
fn face(kind: &str, is_true: bool) -> Face {
    let (reason, message, event) = match (kind, is_true) {
        (READY, true) => ("KubeletReady", "kubelet is posting ready status", "NodeReady"),
        (READY, false) => ("KubeletNotReady", "", "NodeNotReady"),
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
    Face { status: if is_true { "True" } else { "False" }, reason, message, event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::samples::{self, LATER, LATER_STAMP, START_STAMP, condition, condition_mut, foreign_condition};

    fn pressed(kind: &str) -> Pressures {
        Pressures { memory: kind == "MemoryPressure", disk: kind == "DiskPressure", pid: kind == "PIDPressure" }
    }

    fn reasons(events: &[NodeEvent]) -> Vec<&str> {
        assert!(events.iter().all(|event| !event.warning));
        events.iter().map(|event| event.reason).collect()
    }

    /// Runs both setters over `node`, at LATER.
    fn run(node: &mut Node, settings: &Settings, pressures: Pressures, problems: &[String]) -> Vec<NodeEvent> {
        let facts = samples::facts();
        let board = Board { pressures, problems, ..samples::board(settings, &facts, LATER) };
        let mut events = Vec::new();
        set_pressures(node, &board, &mut events);
        set_ready(node, &board, &mut events);
        events
    }

    fn calm(node: &mut Node) -> Vec<NodeEvent> {
        run(node, &samples::settings(), Pressures::default(), &[])
    }

    #[test]
    fn new_conditions_stand_in_order_with_ready_last_and_only_the_pressures_emit_events() {
        let mut node = samples::node();
        node.status.conditions.clear();
        let events = calm(&mut node);
        let kinds: Vec<&str> = node.status.conditions.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, OWN);
        assert_eq!(reasons(&events), ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(events[0].message, "Node edge-1 status is now: NodeHasSufficientMemory");
        for one in &node.status.conditions {
            assert_eq!(one.status, if one.kind == READY { "True" } else { "False" });
            assert_eq!(one.last_heartbeat_time.as_deref(), Some(LATER_STAMP));
            assert_eq!(one.last_transition_time.as_deref(), Some(LATER_STAMP));
        }
        assert_eq!(condition(&node, READY).reason, "KubeletReady");
        assert_eq!(condition(&node, READY).message, "kubelet is posting ready status");
    }

    #[test]
    fn each_pressure_has_the_kubelets_words_in_both_directions() {
        for (kind, bad, bad_words, bad_event, good, good_words, good_event) in [
            (
                "MemoryPressure",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                "NodeHasSufficientMemory",
            ),
            (
                "DiskPressure",
                "KubeletHasDiskPressure",
                "kubelet has disk pressure",
                "NodeHasDiskPressure",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                "NodeHasNoDiskPressure",
            ),
            (
                "PIDPressure",
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                "NodeHasInsufficientPID",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                "NodeHasSufficientPID",
            ),
        ] {
            let mut node = samples::node();
            let events = run(&mut node, &samples::settings(), pressed(kind), &[]);
            assert_eq!(reasons(&events), [bad_event]);
            let now = condition(&node, kind);
            assert_eq!((now.status.as_str(), now.reason.as_str(), now.message.as_str()), ("True", bad, bad_words));
            assert_eq!(now.last_transition_time.as_deref(), Some(LATER_STAMP));
            assert_eq!(reasons(&calm(&mut node)), [good_event]);
            let now = condition(&node, kind);
            assert_eq!((now.status.as_str(), now.reason.as_str(), now.message.as_str()), ("False", good, good_words));
        }
    }

    #[test]
    fn a_pressure_condition_keeps_its_reason_when_the_status_stays() {
        for pressures in [Pressures::default(), pressed("MemoryPressure")] {
            let mut node = samples::node();
            let memory = condition_mut(&mut node, "MemoryPressure");
            memory.status = if pressures.memory { "True" } else { "False" }.to_owned();
            memory.reason = "Somebody".to_owned();
            memory.message = "else".to_owned();
            assert!(run(&mut node, &samples::settings(), pressures, &[]).is_empty());
            let memory = condition(&node, "MemoryPressure");
            assert_eq!((memory.reason.as_str(), memory.message.as_str()), ("Somebody", "else"));
            assert_eq!(memory.last_heartbeat_time.as_deref(), Some(LATER_STAMP));
            assert_eq!(memory.last_transition_time.as_deref(), Some(START_STAMP));
        }
    }

    #[test]
    fn ready_gets_new_words_on_every_run_and_a_new_transition_only_with_a_new_status() {
        let mut node = samples::node();
        let down = ["uplink is down".to_owned()];
        assert_eq!(reasons(&run(&mut node, &samples::settings(), Pressures::default(), &down)), ["NodeNotReady"]);
        let ready = condition_mut(&mut node, READY);
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "KubeletNotReady"));
        assert_eq!(ready.last_transition_time.as_deref(), Some(LATER_STAMP));
        ready.last_transition_time = Some(START_STAMP.to_owned());
        let other = ["disk is gone".to_owned()];
        assert!(run(&mut node, &samples::settings(), Pressures::default(), &other).is_empty());
        let ready = condition(&node, READY);
        assert_eq!(ready.message, "disk is gone");
        assert_eq!(ready.last_transition_time.as_deref(), Some(START_STAMP));
        assert_eq!(reasons(&calm(&mut node)), ["NodeReady"]);
        assert!(calm(&mut node).is_empty());
    }

    #[test]
    fn several_reasons_stand_in_brackets_once_each_with_missing_capacity_last() {
        let message = |node: &mut Node, settings: &Settings, problems: &[&str]| {
            let problems: Vec<String> = problems.iter().map(|text| (*text).to_owned()).collect();
            run(node, settings, Pressures::default(), &problems);
            condition(node, READY).message.clone()
        };
        let mut node = samples::node();
        let settings = samples::settings();
        assert_eq!(message(&mut node, &settings, &["runtime"]), "runtime");
        assert_eq!(message(&mut node, &settings, &["runtime", "network", "runtime"]), "[runtime, network]");
        node.status.capacity = None;
        let missing = "missing node capacity for resources: cpu, memory, pods, ephemeral-storage";
        assert_eq!(message(&mut node, &settings, &[]), missing);
        assert_eq!(message(&mut node, &settings, &["runtime"]), format!("[runtime, {missing}]"));
        let isolated = Settings { local_storage_capacity_isolation: false, ..settings };
        assert_eq!(message(&mut node, &isolated, &[]), "missing node capacity for resources: cpu, memory, pods");
    }

    #[test]
    fn an_unknown_status_is_repaired_with_transition_and_event() {
        let mut node = samples::node();
        for one in &mut node.status.conditions {
            one.status = "Unknown".to_owned();
            one.reason = "NodeStatusUnknown".to_owned();
        }
        let events = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
        assert_eq!(reasons(&calm(&mut node)), events);
        assert_eq!(condition(&node, READY).last_transition_time.as_deref(), Some(LATER_STAMP));
    }

    #[test]
    fn a_status_that_an_assertion_repaired_still_gets_its_reason_transition_and_event() {
        for reason in CONTROLLER_REASONS {
            let mut node = samples::node();
            for one in &mut node.status.conditions {
                one.reason = reason.to_owned();
                one.message = "Kubelet stopped posting node status.".to_owned();
            }
            assert_eq!(calm(&mut node).len(), 4);
            let expected = samples::node();
            for kind in OWN {
                assert_eq!(condition(&node, kind).reason, condition(&expected, kind).reason);
                assert_eq!(condition(&node, kind).message, condition(&expected, kind).message);
                assert_eq!(condition(&node, kind).last_transition_time.as_deref(), Some(LATER_STAMP));
            }
            assert!(calm(&mut node).is_empty());
        }
    }

    #[test]
    fn a_status_that_its_reason_contradicts_is_told_whole_once() {
        let mut node = samples::node();
        for one in &mut node.status.conditions {
            one.reason = face(&one.kind, one.status != "True").reason.to_owned();
        }
        assert_eq!(calm(&mut node).len(), 4);
        for kind in OWN {
            assert_eq!(condition(&node, kind).reason, condition(&samples::node(), kind).reason);
            assert_eq!(condition(&node, kind).last_transition_time.as_deref(), Some(LATER_STAMP));
        }
        assert!(calm(&mut node).is_empty());
    }

    #[test]
    fn a_judgement_is_what_the_setters_say() {
        for (size_is_known, isolation) in [(true, true), (false, true), (false, false)] {
            let settings = Settings { local_storage_capacity_isolation: isolation, ..samples::settings() };
            let mut facts = samples::facts();
            if !size_is_known {
                facts.readings.node_file_system = samples::absent();
            }
            for kind in OWN {
                let board = Board { pressures: pressed(kind), ..samples::board(&settings, &facts, LATER) };
                let node = crate::node::desired::initial(&board).0;
                let judged = judge(board.pressures, &settings, &facts, &Remembered::default(), Some(&node));
                let set = OWN.map(|kind| Some(condition(&node, kind).status == "True"));
                assert_eq!(judged, set);
                let unseen = judge(board.pressures, &settings, &facts, &Remembered::default(), None);
                assert_eq!(unseen[..3], judged[..3]);
                assert_eq!(unseen[3], (size_is_known || !isolation).then_some(true));
            }
        }
    }

    #[test]
    fn every_event_of_a_transition_leads_back_to_its_condition() {
        for kind in OWN {
            for is_true in [true, false] {
                assert_eq!(of_event(transition("edge-1", kind, is_true).reason), Some(kind));
            }
        }
        assert_eq!(of_event("Starting"), None);
    }

    #[test]
    fn conditions_of_others_stay_where_they_are() {
        let mut node = samples::node();
        node.status.conditions.insert(1, foreign_condition());
        run(&mut node, &samples::settings(), pressed("DiskPressure"), &["down".to_owned()]);
        assert_eq!(node.status.conditions[1], foreign_condition());
        assert_eq!(node.status.conditions.len(), 5);
    }
}
