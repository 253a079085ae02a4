//! The conditions of ours on a Node: written there, read from there, told as events (PRS-0, PRS-7, RDY-6).

use super::bounded::Entry;
use super::event::NodeEvent;
use super::judgement::Judgement;
use super::object::{Condition, Node, Status};
use super::pressure::Pressures;
use super::remembered::Remembered;
use super::rules::{self, COUNT, Evidence, Held, Like, ROWS, Row, Wanted, Words, judge, reason, row, transition};
use crate::config::Settings;
use crate::probe::Facts;
use crate::time::{Up, Wall};

/// What the node controller writes into conditions of a node it no longer hears.
const CONTROLLER_REASONS: [&str; 2] = ["NodeStatusUnknown", "NodeStatusNeverUpdated"];

/// What writing a condition to a Node did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It had this status.
    Same,
    /// It was not there.
    New,
    /// It had another status, or no more of it than the status was ours.
    Changed,
}

impl Written {
    /// What is told of it, where no record tells it.
    pub fn event(self, node: &str, kind: &str, wanted: &Wanted) -> Option<NodeEvent> {
        let is_pressure = row(kind).is_some_and(|row| row.like == Like::Pressure);
        let is_told = self == Written::Changed || self == Written::New && is_pressure;
        (is_told && wanted.judgement.is_sure).then(|| transition(node, kind, wanted.judgement.status))
    }
}

/// What a process wants on its Node that has looked once, and knows of nothing before.
pub fn first_look(settings: &Settings, facts: &Facts, up: Up) -> [Wanted; COUNT] {
    let (mut pressures, mut held, remembered) = (Pressures::default(), Held::default(), &Remembered::default());
    pressures.observe(settings, &facts.machine, &facts.readings, up);
    held.observe(settings, facts, up);
    let judged = judge(&Evidence::of_look(settings, facts, &pressures, &held, remembered));
    judged.map(Wanted::new)
}

/// Writes all conditions of ours: the heartbeat of those that a kubelet has always, the rest when the status changes (PRS-0), but for the words of Ready
/// (RDY-6) and of what was announced. Those of others stay where they are, also where they have a name of ours, and those that
/// the settings switch off go.
pub(super) fn set(node: &mut Node, wanted: &[Wanted; COUNT], settings: &Settings, stamp: Wall) -> [Written; COUNT] {
    let mut written = [Written::Same; COUNT];
    for ((row, wanted), written) in ROWS.iter().zip(wanted).zip(&mut written) {
        if wanted.is_others {
            continue;
        }
        if settings.is_condition_off(row.kind) {
            node.status.conditions.retain(|one| one.kind != row.kind);
        } else {
            *written = row.set(&mut node.status.conditions, wanted, stamp);
        }
    }
    written
}

impl Row {
    fn set(&self, conditions: &mut Vec<Condition>, wanted: &Wanted, stamp: Wall) -> Written {
        let Judgement { status, message, reason: other_reason, .. } = &wanted.judgement;
        let stored = conditions.iter().position(|one| one.kind == self.kind);
        if stored.is_none() && rules::is_left_out(self.kind, &wanted.judgement) {
            return Written::Same;
        }
        let at = stored.unwrap_or_else(|| {
            conditions.push(Condition::unknown(self.kind));
            conditions.len() - 1
        });
        let Some(condition) = conditions.get_mut(at) else { return Written::Same };
        let written = match stored {
            None => Written::New,
            Some(_) if condition.status != status.word() || is_ours_by_status_only(condition) => Written::Changed,
            Some(_) => Written::Same,
        };
        if written != Written::Same || self.like.is_kubelets() {
            condition.last_heartbeat_time = stamp.to_seconds_stamp();
        }
        let has_other_words = self.like == Like::Ready
            || self.like == Like::Plan && message.is_some()
            || other_reason.is_some_and(|other| other != condition.reason);
        if written != Written::Same || has_other_words {
            let Words(reason, text, _) = self.words(*status);
            status.word().clone_into(&mut condition.status);
            other_reason.unwrap_or(reason).clone_into(&mut condition.reason);
            message.as_deref().unwrap_or(text).clone_into(&mut condition.message);
        }
        let changed = (written != Written::Same).then_some(stamp);
        if let Some(since) = wanted.since.or(changed) {
            condition.last_transition_time = since.to_seconds_stamp();
        }
        written
    }
}

impl Entry for Condition {
    fn bytes(&self) -> usize {
        let texts = [&self.kind, &self.status, &self.reason, &self.message];
        texts.into_iter().chain([&self.last_heartbeat_time, &self.last_transition_time]).map(String::len).sum()
    }

    fn is_own(&self) -> bool {
        rules::is_own(&self.kind)
    }
}

/// The status that a board gave this condition; `None` where others did, or no more of it than the status can be ours.
pub fn status_from_board(condition: &Condition) -> Option<Status> {
    let status = Status::parse(&condition.status)?;
    let is_ours = status != Status::Unknown || condition.reason == reason(&condition.kind, status);
    (is_ours && !is_ours_by_status_only(condition)).then_some(status)
}

/// Whether no more than the status of this condition can be ours: repaired since the controller or an older report of ours
/// that came late wrote it (see [`super::updated`]), or asserted on a Node that somebody had just made anew.
pub fn is_ours_by_status_only(condition: &Condition) -> bool {
    let is_of =
        |status: Status| status.word() != condition.status && reason(&condition.kind, status) == condition.reason;
    CONTROLLER_REASONS.contains(&condition.reason.as_str())
        || Status::ALL.into_iter().any(is_of)
        || condition.last_transition_time.is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::node::pressure::Pressures;
    use crate::node::rules::{is_left_out, own};
    use crate::node::tests::samples::{
        self, LATER, LATER_STAMP, START_STAMP, condition, condition_mut, foreign_condition,
    };

    /// Of this kind alone.
    fn pressed(kind: &str) -> Pressures {
        let mut pressures = Pressures::default();
        let all = [&mut pressures.memory, &mut pressures.disk, &mut pressures.pid];
        for (own, pressure) in ["MemoryPressure", "DiskPressure", "PIDPressure"].into_iter().zip(all) {
            pressure.status = Some(Status::of(kind == own));
        }
        pressures
    }

    /// What every board has.
    fn everywhere() -> impl Iterator<Item = &'static str> {
        let all = own().zip(&samples::ALL_WELL);
        all.filter(|(kind, wanted)| !is_left_out(kind, &wanted.judgement)).map(|(kind, _)| kind)
    }

    fn no_pressure() -> Pressures {
        pressed("")
    }

    fn reasons(events: &[NodeEvent]) -> Vec<&str> {
        assert!(events.iter().all(|event| !event.warning));
        events.iter().map(|event| event.reason).collect()
    }

    /// A look at a board of which nobody knows more.
    fn evidence<'a>(
        settings: &'a Settings,
        facts: &'a Facts,
        pressures: &'a Pressures,
        remembered: &'a Remembered,
        base: Option<&'a Node>,
    ) -> Evidence<'a> {
        static NOTHING_HELD: LazyLock<Held> = LazyLock::new(Held::default);
        Evidence { base, ..Evidence::of_look(settings, facts, pressures, &NOTHING_HELD, remembered) }
    }

    /// Judges a look at a board of which `node` is the server's, and writes the conditions to it, at LATER.
    fn look(node: &mut Node, settings: &Settings, facts: &Facts, pressures: &Pressures) -> Vec<NodeEvent> {
        let remembered = &Remembered::default();
        let judged = judge(&evidence(settings, facts, pressures, remembered, Some(node)));
        let wanted = judged.map(Wanted::new);
        let written = set(node, &wanted, settings, LATER);
        let all = own().zip(&wanted).zip(written);
        all.filter_map(|((kind, wanted), written)| written.event("edge-1", kind, wanted)).collect()
    }

    fn run(node: &mut Node, settings: &Settings, pressures: &Pressures) -> Vec<NodeEvent> {
        look(node, settings, &samples::facts(), pressures)
    }

    /// A board whose CPUs nobody can count.
    fn uncounted() -> Facts {
        let mut facts = samples::facts();
        facts.machine.cpu_count = samples::absent();
        facts
    }

    fn calm(node: &mut Node) -> Vec<NodeEvent> {
        run(node, &samples::settings(), &no_pressure())
    }

    #[test]
    fn new_conditions_stand_in_order_with_ready_last_and_only_the_pressures_emit_events() {
        let mut node = samples::node();
        node.status.conditions.clear();
        let events = calm(&mut node);
        let kinds: Vec<&str> = node.status.conditions.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, everywhere().collect::<Vec<_>>());
        assert_eq!(reasons(&events), ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(events[0].message, "Node edge-1 status is now: NodeHasSufficientMemory");
        for one in &node.status.conditions {
            assert_eq!(one.status, if one.kind == "Ready" { "True" } else { "False" });
            assert_eq!(one.last_heartbeat_time, LATER_STAMP);
            assert_eq!(one.last_transition_time, LATER_STAMP);
        }
        assert_eq!(condition(&node, "Ready").reason, "KubeletReady");
        assert_eq!(condition(&node, "Ready").message, "kubelet is posting ready status");
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
            let events = run(&mut node, &samples::settings(), &pressed(kind));
            assert_eq!(reasons(&events), [bad_event]);
            let now = condition(&node, kind);
            assert_eq!((now.status.as_str(), now.reason.as_str(), now.message.as_str()), ("True", bad, bad_words));
            assert_eq!(now.last_transition_time, LATER_STAMP);
            assert_eq!(reasons(&calm(&mut node)), [good_event]);
            let now = condition(&node, kind);
            assert_eq!((now.status.as_str(), now.reason.as_str(), now.message.as_str()), ("False", good, good_words));
        }
    }

    #[test]
    fn a_pressure_condition_keeps_its_reason_when_the_status_stays() {
        for pressures in [no_pressure(), pressed("MemoryPressure")] {
            let mut node = samples::node();
            let memory = condition_mut(&mut node, "MemoryPressure");
            memory.status = pressures.memory.status.unwrap().word().to_owned();
            memory.reason = "Somebody".to_owned();
            memory.message = "else".to_owned();
            assert!(run(&mut node, &samples::settings(), &pressures).is_empty());
            let memory = condition(&node, "MemoryPressure");
            assert_eq!((memory.reason.as_str(), memory.message.as_str()), ("Somebody", "else"));
            assert_eq!(memory.last_heartbeat_time, LATER_STAMP);
            assert_eq!(memory.last_transition_time, START_STAMP);
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
            node.status.conditions.retain(|one| one.kind != "Ready" || stored.is_some());
            if let Some(status) = stored {
                let ready = condition_mut(&mut node, "Ready");
                // Words of somebody else are replaced, and are no transition.
                (ready.status, ready.reason, ready.message) =
                    (status.to_owned(), "Theirs".to_owned(), "theirs".to_owned());
            }
            let facts = if is_ready { samples::facts() } else { uncounted() };
            node.status.capacity.retain(|name, _| is_ready || name != "cpu");
            let before = node.status.conditions.iter().find(|one| one.kind == "Ready").cloned();
            assert_eq!(
                reasons(&look(&mut node, &settings, &facts, &no_pressure())),
                told.into_iter().collect::<Vec<_>>(),
                "{stored:?}"
            );
            let ready = condition(&node, "Ready");
            let expected = if is_ready { ("True", "KubeletReady") } else { ("False", "KubeletNotReady") };
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), expected, "{stored:?}");
            assert_ne!(ready.message, "theirs");
            let stays = before.filter(|_| told.is_none()).map(|before| before.last_transition_time);
            assert_eq!(ready.last_transition_time, stays.unwrap_or(LATER_STAMP.to_owned()), "{stored:?}");
        }
    }

    #[test]
    fn ready_gets_new_words_on_every_run_and_a_new_transition_only_with_a_new_status() {
        let mut node = samples::node();
        let settings = samples::settings();
        let capacity = std::mem::take(&mut node.status.capacity);
        assert_eq!(reasons(&look(&mut node, &settings, &uncounted(), &no_pressure())), ["NodeNotReady"]);
        let ready = condition_mut(&mut node, "Ready");
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "KubeletNotReady"));
        assert_eq!(ready.last_transition_time, LATER_STAMP);
        ready.last_transition_time = START_STAMP.to_owned();
        node.status.capacity.clone_from(&capacity);
        node.status.capacity.remove("cpu");
        assert!(look(&mut node, &settings, &uncounted(), &no_pressure()).is_empty());
        let ready = condition(&node, "Ready");
        assert_eq!(ready.message, "missing node capacity for resources: cpu");
        assert_eq!(ready.last_transition_time, START_STAMP);
        node.status.capacity = capacity;
        assert_eq!(reasons(&calm(&mut node)), ["NodeReady"]);
        assert!(calm(&mut node).is_empty());
    }

    #[test]
    fn missing_capacity_is_named_and_storage_only_where_it_is_isolated() {
        let mut facts = uncounted();
        facts.machine.memory_total_bytes = samples::absent();
        facts.readings.node_file_system = samples::absent();
        let message = |node: &mut Node, settings: &Settings| {
            look(node, settings, &facts, &no_pressure());
            condition(node, "Ready").message.clone()
        };
        let mut node = samples::node();
        let settings = samples::settings();
        node.status.capacity.clear();
        let missing = "missing node capacity for resources: cpu, memory, ephemeral-storage";
        assert_eq!(message(&mut node, &settings), missing);
        let isolated = Settings { local_storage_capacity_isolation: false, ..settings };
        assert_eq!(message(&mut node, &isolated), "missing node capacity for resources: cpu, memory");
    }

    #[test]
    fn what_cannot_be_read_is_unknown_with_the_reason_once_and_ready_all_the_same() {
        let (settings, mut facts) = (samples::settings(), samples::facts());
        facts.readings.memory = samples::absent();
        let unread = |facts: &Facts, node: &mut Node, memory| {
            let mut pressures = no_pressure();
            (pressures.memory.status, pressures.memory.absent) = (memory, facts.readings.memory.clone().err());
            reasons(&look(node, &settings, facts, &pressures)).join(" ")
        };
        let mut node = samples::node();
        assert_eq!(unread(&facts, &mut node, Some(Status::Unknown)), "NodeMemoryUnreadable");
        let memory = condition(&node, "MemoryPressure");
        assert_eq!((memory.status.as_str(), memory.reason.as_str()), ("Unknown", "MemoryUnreadable"));
        assert_eq!(memory.message, "memory cannot be read: proc/nothing: no such file");
        assert_eq!(
            (status_from_board(memory), condition(&node, "Ready").status.as_str()),
            (Some(Status::Unknown), "True")
        );
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
        assert_eq!(status_from_board(memory), None, "the controller's");
        assert_eq!(unread(&facts, &mut node, Some(Status::Unknown)), "NodeMemoryUnreadable");
    }

    #[test]
    fn a_file_system_that_became_read_only_is_a_change_with_its_place_and_one_that_nobody_can_judge_is_what_it_was() {
        let (settings, mut facts) = (samples::settings(), samples::facts());
        let mut node = samples::node();
        facts.readings.made_read_only = Ok(Some("/var".to_owned()));
        assert_eq!(reasons(&look(&mut node, &settings, &facts, &no_pressure())), ["FilesystemIsReadOnly"]);
        let stored = condition(&node, "ReadonlyFilesystem");
        assert_eq!((stored.status.as_str(), stored.reason.as_str()), ("True", "FilesystemIsReadOnly"));
        assert_eq!(stored.message, "Filesystem is read-only: /var");
        let times = |node: &Node| {
            let stored = condition(node, "ReadonlyFilesystem");
            (stored.last_heartbeat_time.clone(), stored.last_transition_time.clone())
        };
        assert_eq!(times(&node), (LATER_STAMP.to_owned(), LATER_STAMP.to_owned()));
        for one in &mut node.status.conditions {
            one.last_heartbeat_time = START_STAMP.to_owned();
        }
        assert!(look(&mut node, &settings, &facts, &no_pressure()).is_empty());
        assert_eq!(times(&node).0, START_STAMP, "nobody makes it Unknown: it has no heartbeat");
        assert_eq!(condition(&node, "Ready").last_heartbeat_time, LATER_STAMP);
        facts.readings.made_read_only = Ok(None);
        assert_eq!(reasons(&look(&mut node, &settings, &facts, &no_pressure())), ["FilesystemIsNotReadOnly"]);
        assert_eq!(condition(&node, "ReadonlyFilesystem").message, "Filesystem is not read-only");

        facts.readings.made_read_only = samples::absent();
        let (pressures, remembered) = (no_pressure(), Remembered::default());
        let look = evidence(&settings, &facts, &pressures, &remembered, None);
        let mut all = own().zip(judge(&look));
        let (_, judged) = all.find(|(kind, _)| *kind == "ReadonlyFilesystem").unwrap();
        assert_eq!((judged.status, judged.is_sure), (Status::Unknown, false));
        assert_eq!(judged.message.as_deref(), Some("mounts cannot be read: proc/nothing: no such file"));
    }

    #[test]
    fn an_unknown_status_is_repaired_with_transition_and_event() {
        let mut node = samples::node();
        for one in &mut node.status.conditions {
            one.status = "Unknown".to_owned();
            one.reason = "NodeStatusUnknown".to_owned();
        }
        let events = [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
            "FilesystemIsNotReadOnly",
            "NodeReady",
        ];
        assert_eq!(reasons(&calm(&mut node)), events);
        assert_eq!(condition(&node, "Ready").last_transition_time, LATER_STAMP);
    }

    #[test]
    fn a_status_that_an_assertion_repaired_still_gets_its_reason_transition_and_event() {
        for reason in CONTROLLER_REASONS {
            let mut node = samples::node();
            for one in &mut node.status.conditions {
                one.reason = reason.to_owned();
                one.message = "Kubelet stopped posting node status.".to_owned();
            }
            assert_eq!(calm(&mut node).len(), everywhere().count());
            let expected = samples::node();
            for kind in everywhere() {
                assert_eq!(condition(&node, kind).reason, condition(&expected, kind).reason);
                assert_eq!(condition(&node, kind).message, condition(&expected, kind).message);
                assert_eq!(condition(&node, kind).last_transition_time, LATER_STAMP);
            }
            assert!(calm(&mut node).is_empty());
        }
    }

    #[test]
    fn a_status_that_its_reason_contradicts_is_told_whole_once() {
        let mut node = samples::node();
        for one in &mut node.status.conditions {
            one.reason = reason(&one.kind, Status::of(one.status != "True")).to_owned();
        }
        assert_eq!(calm(&mut node).len(), everywhere().count());
        for kind in everywhere() {
            assert_eq!(condition(&node, kind).reason, condition(&samples::node(), kind).reason);
            assert_eq!(condition(&node, kind).last_transition_time, LATER_STAMP);
        }
        assert!(calm(&mut node).is_empty());
    }

    #[test]
    fn a_size_that_nobody_could_read_is_sure_to_be_missing_once_the_server_was_asked() {
        let (settings, facts, remembered) = (samples::settings(), uncounted(), Remembered::default());
        let (node, pressures) = (samples::node(), no_pressure());
        let of = |base| {
            let look = evidence(&settings, &facts, &pressures, &remembered, base);
            judge(&look).last().map(|ready| (ready.status, ready.is_sure))
        };
        assert_eq!(of(None), Some((Status::False, false)));
        assert_eq!(of(Some(&node)), Some((Status::True, true)), "the server has one of before");
        assert_eq!(of(Some(&Node::default())), Some((Status::False, true)));
    }

    #[test]
    fn conditions_of_others_stay_where_they_are() {
        let mut node = samples::node();
        node.status.conditions.insert(1, foreign_condition());
        run(&mut node, &samples::settings(), &pressed("DiskPressure"));
        assert_eq!(node.status.conditions[1], foreign_condition());
        assert_eq!(node.status.conditions.len(), everywhere().count() + 1);
    }
}
