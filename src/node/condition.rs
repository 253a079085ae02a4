//! Turns pressures and problems into the Node's four conditions, and their transitions into events (PRS-*, RDY-*).

use super::desired::{Board, NodeEvent, Remembered};
use super::object::{Condition, Node, Status};
use super::pressure::{Pressures, why_unread};
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

/// Without which of these a Node is not Ready (RDY-3).
pub(super) const REQUIRED: [&str; 4] = ["cpu", "memory", "pods", STORAGE];

/// What one look at the board says of each condition of ours, in the order of [`OWN`]; `None`: nobody can say yet.
///
/// The same judgement as the setters', without a Node of the server's to set it on: it is wanted while there is none.
pub fn judge(
    pressures: Pressures,
    settings: &Settings,
    facts: &Facts,
    remembered: &Remembered,
    base: Option<&Node>,
) -> [Option<Status>; 4] {
    let Facts { machine, readings, .. } = facts;
    let has_size = remembered.ephemeral_storage_bytes.is_some() || readings.node_file_system.is_ok();
    let is_known = |name: &str| match name {
        _ if remembered.sizes.contains_key(name) => true,
        "cpu" => machine.cpu_count.is_ok(),
        "memory" => machine.memory_total_bytes.is_ok(),
        STORAGE => has_size,
        _ => true,
    };
    let stored = base.map(|base| base.status.capacity.clone().unwrap_or_default());
    let mut missing = required(settings).filter(|name| !is_known(name)).peekable();
    let ready = match (missing.peek(), stored) {
        (None, _) => Some(true),
        (Some(_), None) => None,
        (Some(_), Some(stored)) => Some(missing.all(|name| stored.contains_key(name))),
    };
    [pressures.memory, pressures.disk, pressures.pid, ready.map(Status::of)]
}

/// The reason that a condition of ours has in this status.
pub fn reason(kind: &str, status: Status) -> &'static str {
    face(kind, status).reason
}

/// What is told when a condition of ours comes to this status.
pub fn transition(node: &str, kind: &str, status: Status) -> NodeEvent {
    NodeEvent::status_is_now(node, face(kind, status).event)
}

/// The condition of ours that an event of this reason is about.
pub fn of_event(reason: &str) -> Option<&'static str> {
    OWN.into_iter().find(|kind| Status::ALL.into_iter().any(|status| face(kind, status).event == reason))
}

/// The status that a board gave this condition; `None` where others did, or no more of it than the status can be ours.
pub fn given(condition: &Condition) -> Option<Status> {
    let status = Status::parse(&condition.status)?;
    let is_ours = status != Status::Unknown || condition.reason == face(&condition.kind, status).reason;
    (is_ours && !is_ours_by_status_only(condition)).then_some(status)
}

/// PRS-0: heartbeat always; the rest, and the event, only when the status changes.
pub(super) fn set_pressures(node: &mut Node, board: &Board, events: &mut Vec<NodeEvent>) {
    let stamp = board.stamp.to_seconds_stamp();
    let Pressures { memory, disk, pid } = board.pressures;
    for (kind, judged) in OWN.into_iter().zip([memory, disk, pid]) {
        let at = position(node, kind);
        let Some(condition) = node.status.conditions.get_mut(at) else { continue };
        condition.last_heartbeat_time = Some(stamp.clone());
        let status = judged.unwrap_or(Status::Unknown);
        let face = face(kind, status);
        if condition.status == face.status && !is_ours_by_status_only(condition) {
            continue;
        }
        condition.status = face.status.to_owned();
        condition.reason = face.reason.to_owned();
        condition.message = face.message.to_owned();
        let Facts { machine, readings, .. } = board.facts;
        if let Some(absent) = why_unread(kind, machine, readings).filter(|_| status == Status::Unknown) {
            condition.message = format!("{}: {absent}", face.message);
        }
        condition.last_transition_time = Some(stamp.clone());
        if judged.is_some() {
            events.push(NodeEvent::status_is_now(board.name, face.event));
        }
    }
}

/// RDY-6: reason, message and heartbeat always; the transition time, and the event, only when the status changes.
pub(super) fn set_ready(node: &mut Node, board: &Board, events: &mut Vec<NodeEvent>) {
    let stamp = Some(board.stamp.to_seconds_stamp());
    let message = not_ready_message(node, board);
    let face = face(READY, Status::of(message.is_none()));
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
    let capacity = node.status.capacity.as_ref();
    let is_missing = |name: &&str| !capacity.is_some_and(|capacity| capacity.contains_key(*name));
    let missing: Vec<&str> = required(board.settings).filter(is_missing).collect();
    (!missing.is_empty()).then(|| format!("missing node capacity for resources: {}", missing.join(", ")))
}

fn required(settings: &Settings) -> impl Iterator<Item = &'static str> {
    let isolation = settings.local_storage_capacity_isolation;
    REQUIRED.into_iter().filter(move |name| isolation || *name != STORAGE)
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
    let mut faces = Status::ALL.into_iter().map(|status| face(&condition.kind, status));
    CONTROLLER_REASONS.contains(&condition.reason.as_str())
        || faces.any(|face| face.status != condition.status && face.reason == condition.reason)
        || condition.last_transition_time.is_none()
}

/// PRS-1..6, RDY-6; what is against Ready has no fixed message, and neither has what is Unknown, which a kubelet does not
/// know: it judges from nothing that there is enough.
fn face(kind: &str, status: Status) -> Face {
    use Status::{False, True, Unknown};
    let (reason, message, event) = match (kind, status) {
        (READY, True) => ("KubeletReady", "kubelet is posting ready status", "NodeReady"),
        (READY, _) => return Face { status: "False", reason: "KubeletNotReady", message: "", event: "NodeNotReady" },
        ("MemoryPressure", True) => {
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory")
        }
        ("MemoryPressure", False) => {
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory")
        }
        ("MemoryPressure", Unknown) => ("MemoryUnreadable", "memory cannot be read", "NodeMemoryUnreadable"),
        ("DiskPressure", True) => ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("DiskPressure", False) => {
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure")
        }
        ("DiskPressure", Unknown) => ("DiskUnreadable", "the disk cannot be read", "NodeDiskUnreadable"),
        (_, True) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        (_, False) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
        (_, Unknown) => ("PIDsUnreadable", "PIDs cannot be read", "NodePIDsUnreadable"),
    };
    Face { status: status.word(), reason, message, event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::samples::{
        self, CALM, LATER, LATER_STAMP, START_STAMP, condition, condition_mut, foreign_condition,
    };

    fn pressed(kind: &str) -> Pressures {
        let is = |own: &str| Some(Status::of(kind == own));
        Pressures { memory: is("MemoryPressure"), disk: is("DiskPressure"), pid: is("PIDPressure") }
    }

    fn reasons(events: &[NodeEvent]) -> Vec<&str> {
        assert!(events.iter().all(|event| !event.warning));
        events.iter().map(|event| event.reason).collect()
    }

    /// Runs both setters over `node`, at LATER.
    fn run(node: &mut Node, settings: &Settings, pressures: Pressures) -> Vec<NodeEvent> {
        let facts = samples::facts();
        let board = Board { pressures, ..samples::board(settings, &facts, LATER) };
        let mut events = Vec::new();
        set_pressures(node, &board, &mut events);
        set_ready(node, &board, &mut events);
        events
    }

    fn calm(node: &mut Node) -> Vec<NodeEvent> {
        run(node, &samples::settings(), CALM)
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
            let events = run(&mut node, &samples::settings(), pressed(kind));
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
        for pressures in [CALM, pressed("MemoryPressure")] {
            let mut node = samples::node();
            let memory = condition_mut(&mut node, "MemoryPressure");
            memory.status = pressures.memory.unwrap().word().to_owned();
            memory.reason = "Somebody".to_owned();
            memory.message = "else".to_owned();
            assert!(run(&mut node, &samples::settings(), pressures).is_empty());
            let memory = condition(&node, "MemoryPressure");
            assert_eq!((memory.reason.as_str(), memory.message.as_str()), ("Somebody", "else"));
            assert_eq!(memory.last_heartbeat_time.as_deref(), Some(LATER_STAMP));
            assert_eq!(memory.last_transition_time.as_deref(), Some(START_STAMP));
        }
    }

    #[test]
    fn ready_is_told_only_where_it_was_there_before_and_is_another_now() {
        let settings = samples::settings();
        for (stored, is_ready, told) in [
            (None, true, None),
            (None, false, None),
            (Some("True"), true, None),
            (Some("False"), false, None),
            (Some("False"), true, Some("NodeReady")),
            (Some("Unknown"), true, Some("NodeReady")),
            (Some("True"), false, Some("NodeNotReady")),
            (Some("Unknown"), false, Some("NodeNotReady")),
        ] {
            let mut node = samples::node();
            node.status.conditions.retain(|one| one.kind != READY || stored.is_some());
            if let Some(status) = stored {
                let ready = condition_mut(&mut node, READY);
                // Words of somebody else are replaced, and are no transition.
                (ready.status, ready.reason, ready.message) =
                    (status.to_owned(), "Theirs".to_owned(), "theirs".to_owned());
            }
            node.status.capacity.as_mut().unwrap().retain(|name, _| is_ready || name != "cpu");
            let before = node.status.conditions.iter().find(|one| one.kind == READY).cloned();
            assert_eq!(reasons(&run(&mut node, &settings, CALM)), told.into_iter().collect::<Vec<_>>(), "{stored:?}");
            let ready = condition(&node, READY);
            let expected = if is_ready { ("True", "KubeletReady") } else { ("False", "KubeletNotReady") };
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), expected, "{stored:?}");
            assert_ne!(ready.message, "theirs");
            let stays = before.filter(|_| told.is_none()).and_then(|before| before.last_transition_time);
            assert_eq!(ready.last_transition_time, stays.or(Some(LATER_STAMP.to_owned())), "{stored:?}");
        }
    }

    #[test]
    fn ready_gets_new_words_on_every_run_and_a_new_transition_only_with_a_new_status() {
        let mut node = samples::node();
        let settings = samples::settings();
        let capacity = node.status.capacity.take();
        assert_eq!(reasons(&run(&mut node, &settings, CALM)), ["NodeNotReady"]);
        let ready = condition_mut(&mut node, READY);
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "KubeletNotReady"));
        assert_eq!(ready.last_transition_time.as_deref(), Some(LATER_STAMP));
        ready.last_transition_time = Some(START_STAMP.to_owned());
        node.status.capacity.clone_from(&capacity);
        node.status.capacity.as_mut().unwrap().remove("cpu");
        assert!(run(&mut node, &settings, CALM).is_empty());
        let ready = condition(&node, READY);
        assert_eq!(ready.message, "missing node capacity for resources: cpu");
        assert_eq!(ready.last_transition_time.as_deref(), Some(START_STAMP));
        node.status.capacity = capacity;
        assert_eq!(reasons(&calm(&mut node)), ["NodeReady"]);
        assert!(calm(&mut node).is_empty());
    }

    #[test]
    fn missing_capacity_is_named_and_storage_only_where_it_is_isolated() {
        let message = |node: &mut Node, settings: &Settings| {
            run(node, settings, CALM);
            condition(node, READY).message.clone()
        };
        let mut node = samples::node();
        let settings = samples::settings();
        node.status.capacity = None;
        let missing = "missing node capacity for resources: cpu, memory, pods, ephemeral-storage";
        assert_eq!(message(&mut node, &settings), missing);
        let isolated = Settings { local_storage_capacity_isolation: false, ..settings };
        assert_eq!(message(&mut node, &isolated), "missing node capacity for resources: cpu, memory, pods");
    }

    #[test]
    fn what_cannot_be_read_is_unknown_with_the_reason_once_and_ready_all_the_same() {
        let (settings, mut facts) = (samples::settings(), samples::facts());
        facts.readings.memory = samples::absent();
        let unread = |facts: &Facts, node: &mut Node, memory| {
            let board = Board { pressures: Pressures { memory, ..CALM }, ..samples::board(&settings, facts, LATER) };
            let mut events = Vec::new();
            set_pressures(node, &board, &mut events);
            set_ready(node, &board, &mut events);
            reasons(&events).join(" ")
        };
        let mut node = samples::node();
        assert_eq!(unread(&facts, &mut node, Some(Status::Unknown)), "NodeMemoryUnreadable");
        let memory = condition(&node, "MemoryPressure");
        assert_eq!((memory.status.as_str(), memory.reason.as_str()), ("Unknown", "MemoryUnreadable"));
        assert_eq!(memory.message, "memory cannot be read: proc/nothing: no such file");
        assert_eq!((given(memory), condition(&node, READY).status.as_str()), (Some(Status::Unknown), "True"));
        facts.readings.memory = Err(crate::probe::Absent::new("proc/other", crate::probe::Why::Empty));
        let said = node.clone();
        assert_eq!(unread(&facts, &mut node, Some(Status::Unknown)), "");
        assert_eq!(node.status.conditions, said.status.conditions, "another reason is no change");
        assert_eq!(reasons(&calm(&mut node)), ["NodeHasSufficientMemory"]);
        node.status.conditions.clear();
        assert_eq!(
            unread(&facts, &mut node, None),
            "NodeHasNoDiskPressure NodeHasSufficientPID",
            "nobody can say yet, and nobody knows what it was: no event"
        );
        assert_eq!(condition(&node, "MemoryPressure").message, "memory cannot be read: proc/other: empty");
        let memory = condition_mut(&mut node, "MemoryPressure");
        memory.reason = "NodeStatusUnknown".to_owned();
        assert_eq!(given(memory), None, "the controller's");
        assert_eq!(unread(&facts, &mut node, Some(Status::Unknown)), "NodeMemoryUnreadable");
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
            one.reason = face(&one.kind, Status::of(one.status != "True")).reason.to_owned();
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
                let set = OWN.map(|kind| Status::parse(&condition(&node, kind).status));
                assert_eq!(judged, set);
                let unseen = judge(board.pressures, &settings, &facts, &Remembered::default(), None);
                assert_eq!(unseen[..3], judged[..3]);
                assert_eq!(unseen[3], (size_is_known || !isolation).then_some(Status::True));
            }
        }
    }

    #[test]
    fn every_event_of_a_transition_leads_back_to_its_condition() {
        for kind in OWN {
            for status in Status::ALL {
                assert_eq!(of_event(transition("edge-1", kind, status).reason), Some(kind));
            }
        }
        assert_eq!(of_event("Starting"), None);
    }

    #[test]
    fn conditions_of_others_stay_where_they_are() {
        let mut node = samples::node();
        node.status.conditions.insert(1, foreign_condition());
        run(&mut node, &samples::settings(), pressed("DiskPressure"));
        assert_eq!(node.status.conditions[1], foreign_condition());
        assert_eq!(node.status.conditions.len(), 5);
    }
}
