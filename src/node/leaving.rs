//! Turns the word of an init system for what the machine is about to do into what its Node says of that (SHD-1).

use super::event::NodeEvent;
use super::object::{Condition, Node, Status};
use crate::time::Wall;

/// What the machine is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    Reboot,
    PowerOff,
    Halt,
    Kexec,
    SoftReboot,
    /// It goes down; nobody says for how long.
    Shutdown,
}

/// The word of an init script, and the reason of the condition.
const KINDS: [(Leaving, &str, &str); 6] = [
    (Leaving::Reboot, "reboot", "Reboot"),
    (Leaving::PowerOff, "poweroff", "PowerOff"),
    (Leaving::Halt, "halt", "Halt"),
    (Leaving::Kexec, "kexec", "Kexec"),
    (Leaving::SoftReboot, "soft-reboot", "SoftReboot"),
    (Leaving::Shutdown, "shutdown", "Shutdown"),
];

/// RDY-2: what a kubelet says of Ready then.
const SHUTTING_DOWN: &str = "node is shutting down";

/// What a board says of itself that goes down.
pub const CONDITIONS: [&str; 2] = ["PlannedAbsence", "Ready"];

impl Leaving {
    /// A word that is there and says nothing known is a shutdown all the same.
    pub fn parse(word: &str) -> Leaving {
        KINDS.iter().find(|(_, known, _)| *known == word.trim()).map_or(Leaving::Shutdown, |(kind, ..)| *kind)
    }

    pub fn reason(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("Shutdown", |(.., reason)| reason)
    }
}

/// The Node of a board that goes down: not Ready, and that is planned.
pub fn leave(node: &mut Node, kind: Leaving, since: Wall) {
    let [absence, ready] = CONDITIONS;
    put(node, absence, Status::True, (kind.reason(), SHUTTING_DOWN), since);
    put(node, ready, Status::False, ("KubeletNotReady", SHUTTING_DOWN), since);
}

/// Writes one of ours as it is to be, whatever was judged: since now, where it was another.
fn put(node: &mut Node, kind: &str, status: Status, (reason, message): (&str, &str), since: Wall) {
    let conditions = &mut node.status.conditions;
    let at = conditions.iter().position(|one| one.kind == kind).unwrap_or_else(|| {
        conditions.push(Condition::unknown(kind));
        conditions.len() - 1
    });
    let Some(condition) = conditions.get_mut(at) else { return };
    let stamp = since.to_seconds_stamp();
    if condition.status != status.word() {
        condition.last_transition_time.clone_from(&stamp);
    }
    condition.last_heartbeat_time = stamp;
    status.word().clone_into(&mut condition.status);
    reason.clone_into(&mut condition.reason);
    message.clone_into(&mut condition.message);
}

/// SHD-1, in a kubelet's words.
pub fn event() -> NodeEvent {
    let message = "Shutdown manager detected shutdown event".to_owned();
    NodeEvent { warning: false, reason: "Shutdown", message }
}

/// The same of one that was called off.
pub fn event_of_end() -> NodeEvent {
    NodeEvent { message: "Shutdown manager detected shutdown cancellation".to_owned(), ..event() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::samples::{self, LATER, LATER_STAMP, START_STAMP, condition, condition_mut};
    use super::*;

    #[test]
    fn every_word_has_its_reason_and_any_other_is_a_shutdown() {
        for (kind, word, reason) in KINDS {
            assert_eq!((Leaving::parse(&format!("{word}\n")), kind.reason()), (kind, reason));
        }
        assert_eq!(Leaving::parse("nap"), Leaving::Shutdown);
    }

    #[test]
    fn a_node_that_goes_down_is_not_ready_and_says_that_this_is_planned() {
        let mut node = samples::node();
        leave(&mut node, Leaving::PowerOff, LATER);
        let said = |node: &Node, kind: &str| {
            let one = condition(node, kind);
            [&one.status, &one.reason, &one.message, &one.last_transition_time].map(String::clone)
        };
        assert_eq!(said(&node, "Ready"), ["False", "KubeletNotReady", SHUTTING_DOWN, LATER_STAMP]);
        assert_eq!(said(&node, "PlannedAbsence"), ["True", "PowerOff", SHUTTING_DOWN, LATER_STAMP]);
        // One that was announced, and was not Ready, is so since then.
        for kind in ["Ready", "PlannedAbsence"] {
            condition_mut(&mut node, kind).last_transition_time = START_STAMP.to_owned();
        }
        condition_mut(&mut node, "PlannedAbsence").reason = "Announced".to_owned();
        leave(&mut node, Leaving::Reboot, LATER);
        assert_eq!(said(&node, "Ready")[3], START_STAMP);
        assert_eq!(said(&node, "PlannedAbsence"), ["True", "Reboot", SHUTTING_DOWN, START_STAMP]);
    }
}
