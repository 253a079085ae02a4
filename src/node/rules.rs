//! The rules: one table of the conditions that are ours, how each is judged, and in which words (PRS-*, RDY-*).
//!
//! A look at the board is judged once ([`judge`]). What changes by that judgement is recorded, told as an event and written to
//! the Node, and nothing else knows a condition by its name: a new condition is a row of [`ROWS`] and its function.

mod rows;

use super::event::NodeEvent;
use super::health::{Gauge, HeldCondition, Warns};
use super::judgement::Judgement;
use super::object::{Node, Status};
use super::pressure::{Pressure, Pressures};
use super::remembered::Remembered;
use crate::config::Settings;
use crate::probe::Facts;
use crate::probe::facts::Trouble;
use crate::time::{Up, Wall};
pub(super) use rows::ROWS;

/// How many conditions are ours.
pub const COUNT: usize = 19;

/// Which condition came to which status, by the reason of the event that tells of it.
pub fn told_by(event: &str) -> Option<(&'static str, Status)> {
    let all = ROWS.iter().flat_map(|row| {
        [Status::True, Status::False, Status::Unknown].map(|status| (row.kind, status, row.words(status).2))
    });
    all.into_iter().find(|(.., reason)| *reason == event && !event.is_empty()).map(|(kind, status, _)| (kind, status))
}

/// Their names, in the order of a new Node: Ready last.
pub fn own() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.kind)
}

/// Whether a condition of this name is ours.
pub fn is_own(kind: &str) -> bool {
    row(kind).is_some()
}

/// Whether a condition of this name is one that the node controller writes as well.
pub fn is_asserted(kind: &str) -> bool {
    row(kind).is_some_and(|row| row.like.is_kubelets())
}

/// Without which of these a Node is not Ready (RDY-3).
pub(super) const REQUIRED: [&str; 4] = ["cpu", "memory", "pods", STORAGE];
const STORAGE: &str = "ephemeral-storage";

/// One condition.
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) judge: Judge,
    /// Words of True, False and Unknown, in the order of [`Status::ALL`].
    words: [Words; 3],
    pub(super) like: Like,
}

/// How a condition is judged.
pub(super) enum Judge {
    /// By what is known now.
    Known(fn(&Row, &Evidence) -> Judgement),
    /// By what the board's own sensors said, look after look. A Node has it only where the board has such a sensor.
    Board(Gauge),
}

/// What a condition is treated like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Like {
    /// A kubelet's pressure (PRS-0): the words change with the status only, and a new condition is an event.
    Pressure,
    /// A kubelet's Ready (RDY-6): it has new words with each look, and is told only where it was there before.
    Ready,
    /// A permanent problem of node-problem-detector: words and times change with the status only, and it is told only where it was
    /// there before.
    Problem,
    /// The same where it is node-problem-detector's on many a Node whose agent cannot tell: then it stays as it is there.
    Shared,
    /// What people announce: as a problem, but with the words of the last announcement.
    Plan,
}

impl Like {
    /// The node controller makes all of a kubelet's conditions Unknown when it hears nothing. So they have a heartbeat in each
    /// report, and are asserted (D4); of others nothing is sent but what changed.
    pub(super) fn is_kubelets(self) -> bool {
        matches!(self, Like::Pressure | Like::Ready)
    }
}

/// Reason, message and reason of the event.
pub(super) struct Words(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

/// What has to be remembered of the conditions of the board from one look to the next, in the order of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    all: [HeldCondition; COUNT],
}

impl Held {
    /// Judges one look at the board.
    pub fn observe(&mut self, settings: &Settings, facts: &Facts, up: Up) {
        for (row, held) in ROWS.iter().zip(&mut self.all) {
            match &row.judge {
                Judge::Board(_) if settings.is_condition_off(row.kind) => *held = HeldCondition::default(),
                Judge::Board(gauge) => held.observe((gauge.look)(facts, settings), gauge, up),
                Judge::Known(_) => {}
            }
        }
    }

    /// What is worth a warning beside the changes of the conditions, the last of each kind.
    pub fn warnings(&self) -> impl Iterator<Item = &Trouble> {
        self.all.iter().filter_map(HeldCondition::warning)
    }
}

/// `text`, of a record of before, where it is the event of a warning that there is.
pub fn warning(text: &str) -> Option<&'static str> {
    let all = ROWS.iter().filter_map(|row| match &row.judge {
        Judge::Board(Gauge { warns: Warns::OfReason { event, .. } | Warns::InADay { event, .. }, .. }) => Some(*event),
        _ => None,
    });
    { all }.find(|event| *event == text)
}

/// Everything that conditions are judged from.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub settings: &'a Settings,
    pub facts: &'a Facts,
    /// By the thresholds of the settings, with their hysteresis.
    pub pressures: &'a Pressures,
    /// What the board's own sensors said, with the times of the table.
    pub held: &'a Held,
    pub remembered: &'a Remembered,
    /// Whether the client certificate ends soon, and when; `None` without one, or without a clock.
    pub expires: Option<(bool, Wall)>,
    /// Something is put off for `dailyBytes`; `None` before the day's bytes are known.
    pub is_budget_low: Option<bool>,
    /// What was announced (`nodepulse away`), as far as it is not over.
    pub absence: Absence<'a>,
    /// How the boot before this one ended; some time after the boot nobody asks any more.
    pub last_boot: LastBoot,
    /// The server's Node; `None` before it is known.
    pub base: Option<&'a Node>,
}

impl<'a> Evidence<'a> {
    /// Of a look at a board without a certificate, of which no server is known and nothing was announced.
    pub(super) fn of_look(
        settings: &'a Settings,
        facts: &'a Facts,
        pressures: &'a Pressures,
        held: &'a Held,
        remembered: &'a Remembered,
    ) -> Evidence<'a> {
        let (expires, is_budget_low, absence, last_boot, base) =
            (None, Some(false), Absence::None, LastBoot::Ended, None);
        Evidence { settings, facts, pressures, held, remembered, expires, is_budget_low, absence, last_boot, base }
    }
}

/// Whether the board is away, as people announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence<'a> {
    None,
    /// Until then, and why.
    Until(Wall, &'a str),
    /// It would be over by a clock that nobody has compared.
    MayBeOver,
}

/// How the boot before this one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastBoot {
    /// This process is not the first of its boot.
    Unknown,
    /// In good order, or without an agent that could tell.
    Ended,
    /// While the agent ran and nobody had announced anything: one of [`REBOOT_REASONS`].
    CutShort(&'static str),
}

/// Why a board went down that nobody shut down; the last one where nobody knows.
const REBOOT_REASONS: [&str; 5] = ["WatchdogReset", "PowerLoss", "KernelPanic", "Overheated", "Unknown"];

/// Why a board would go down by itself, by what was found of its conditions; empty where they say nothing.
pub fn risk(judged: &[Judgement; COUNT]) -> &'static str {
    let is_so = |(row, judged): (&Row, &Judgement)| {
        judged.is_sure && judged.status == Status::True && LOSES_POWER.contains(&row.kind)
    };
    if ROWS.iter().zip(judged).any(is_so) { "PowerLoss" } else { "" }
}

/// What a board suffers from before its power goes.
const LOSES_POWER: [&str; 2] = ["Undervoltage", "BatteryLow"];

/// That of a reset which the board gives this reason for.
pub fn reboot_reason(reset: &str) -> &'static str {
    REBOOT_REASONS.into_iter().find(|reason| *reason == reset).unwrap_or("Unknown")
}

/// What is to stand on a Node for one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub judgement: Judgement,
    /// When it came to this status; `None`: when the Node says so, or now if the Node says otherwise.
    pub since: Option<Wall>,
    /// Another program writes it: it stays as it is there.
    pub is_others: bool,
}

impl Wanted {
    pub const fn new(judgement: Judgement) -> Wanted {
        Wanted { judgement, since: None, is_others: false }
    }
}

/// Judges one look at the board: an answer for each of [`own`].
pub fn judge(look: &Evidence) -> [Judgement; COUNT] {
    let mut held = look.held.all.iter();
    ROWS.each_ref().map(|row| match (&row.judge, held.next()) {
        (Judge::Known(judge), _) => judge(row, look),
        (Judge::Board(_), Some(held)) => {
            let is_stored = look.base.is_some_and(|base| base.status.conditions.iter().any(|one| one.kind == row.kind));
            match look.settings.is_condition_off(row.kind) {
                // It goes from the Node, and with that nothing of it is owed.
                true => Judgement { is_sure: is_stored, ..Judgement::known(None, None) },
                false => held.judgement(is_stored && row.like != Like::Shared, |status| row.words(status).1),
            }
        }
        (Judge::Board(_), None) => Judgement::known(None, None),
    })
}

/// Of the client certificate in use (ROT-7). Where there is none, as with a token, or nobody knows the time, it is what it was.
fn certificate_expiring(row: &Row, look: &Evidence) -> Judgement {
    let end = look.expires.filter(|(is_soon, _)| *is_soon).map(|(_, end)| end.to_seconds_stamp());
    let message = end.map(|end| format!("{}: {end}", row.words(Status::True).1));
    Judgement::known(look.expires.map(|(is_soon, _)| is_soon), message)
}

/// Ready is nobody's business here: the board may be there all the same.
fn planned_absence(row: &Row, look: &Evidence) -> Judgement {
    let (is_away, message) = match look.absence {
        Absence::None => (Some(false), None),
        Absence::MayBeOver => (None, None),
        Absence::Until(until, reason) => {
            let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let text = row.words(Status::True).1;
            (Some(true), Some(format!("{text} until {}{because}", until.to_seconds_stamp())))
        }
    };
    Judgement::known(is_away, message)
}

/// As the process knows that was the first one of this boot; to a later one it is what it was.
fn unexpected_reboot(_: &Row, look: &Evidence) -> Judgement {
    let (is_so, reason) = match look.last_boot {
        LastBoot::Unknown => (None, None),
        LastBoot::Ended => (Some(false), None),
        LastBoot::CutShort(reason) => (Some(true), Some(reason)),
    };
    Judgement { reason, ..Judgement::known(is_so, None) }
}

/// Of the state directory. One that cannot be judged any more is what it was.
fn readonly_filesystem(row: &Row, look: &Evidence) -> Judgement {
    let found = &look.facts.readings.made_read_only;
    let status = found.as_ref().map_or(Status::Unknown, |mounted| Status::of(mounted.is_some()));
    let detail = match found {
        Ok(mounted) => mounted.clone(),
        Err(absent) => Some(absent.to_string()),
    };
    let message = detail.map(|detail| format!("{}: {detail}", row.words(status).1));
    Judgement { status, message, reason: None, is_sure: found.is_ok() }
}

/// RDY-2, RDY-3: a size that could not be read is missing, unless the server has one of before. As long as nobody has asked
/// the server, that is not sure.
fn ready(_: &Row, look: &Evidence) -> Judgement {
    let Facts { machine, readings, .. } = look.facts;
    let is_known = |name: &str| match name {
        _ if look.remembered.sizes.contains_key(name) => true,
        _ if look.base.is_some_and(|base| base.status.capacity.contains_key(name)) => true,
        "cpu" => machine.cpu_count.is_ok(),
        "memory" => machine.memory_total_bytes.is_ok(),
        STORAGE => look.remembered.disk_bytes.is_some() || readings.node_file_system.is_ok(),
        _ => true,
    };
    let is_isolated = look.settings.local_storage_capacity_isolation;
    let required = REQUIRED.into_iter().filter(|name| is_isolated || *name != STORAGE);
    let missing: Vec<&str> = required.filter(|name| !is_known(name)).collect();
    let missing = (!missing.is_empty()).then(|| format!("missing node capacity for resources: {}", missing.join(", ")));
    // RDY-2, RDY-4.
    let of_runtime = readings.container_runtime.iter().flat_map(|runtime| runtime.problems.iter().cloned());
    let mut errors: Vec<String> = of_runtime.chain(missing).collect();
    let is_ready = errors.is_empty();
    let is_sure = is_ready || look.base.is_some();
    let message = if errors.len() > 1 { Some(format!("[{}]", errors.join(", "))) } else { errors.pop() };
    Judgement { status: Status::of(is_ready), message, reason: None, is_sure }
}

impl Row {
    /// Where it is Unknown, the message says what cannot be read.
    fn pressure(&self, pressure: &Pressure) -> Judgement {
        let status = pressure.status.unwrap_or(Status::Unknown);
        let absent = pressure.absent.as_ref().filter(|_| status == Status::Unknown);
        let message = absent.map(|absent| format!("{}: {absent}", self.words(status).1));
        Judgement { status, message, reason: None, is_sure: pressure.status.is_some() }
    }

    pub(super) fn words(&self, status: Status) -> &Words {
        let [is_true, is_false, is_unknown] = &self.words;
        match status {
            Status::True => is_true,
            Status::False => is_false,
            Status::Unknown => is_unknown,
        }
    }
}

/// Whether a condition of ours that was judged so is not put on a Node that lacks it.
pub fn is_left_out(kind: &str, judgement: &Judgement) -> bool {
    let is_broken = judgement.is_sure && row(kind).is_some_and(|row| matches!(row.judge, Judge::Board(_)));
    may_be_absent(kind, judgement.status) && !is_broken
}

/// Whether a condition of ours stays what it was as long as its judgement is not sure. Ready has to say what is missing even so.
pub fn stays_until_sure(kind: &str) -> bool {
    row(kind).is_some_and(|row| row.like != Like::Ready)
}

pub(super) fn row(kind: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.kind == kind)
}

/// Whether a kubelet has it too, so that nobody but the controller writes it beside us.
pub fn is_kubelets(kind: &str) -> bool {
    row(kind).is_some_and(|row| row.like.is_kubelets())
}

/// Whether it may be node-problem-detector's where the board cannot tell.
pub fn is_shared(kind: &str) -> bool {
    row(kind).is_some_and(|row| row.like == Like::Shared)
}

/// Whether a Node may lack a condition of ours that has this status.
pub fn may_be_absent(kind: &str, status: Status) -> bool {
    let may_lack = |row: &Row| match row.judge {
        Judge::Board(_) => status == Status::Unknown,
        Judge::Known(_) => status != Status::True && row.words(Status::Unknown).0.is_empty(),
    };
    row(kind).is_some_and(may_lack)
}

fn words(kind: &str, status: Status) -> &'static Words {
    const NONE: &Words = &Words("", "", "");
    row(kind).map_or(NONE, |row| row.words(status))
}

/// The reason that a condition of ours has in this status.
pub fn reason(kind: &str, status: Status) -> &'static str {
    words(kind, status).0
}

/// The message that a condition of ours has in this status, where its judgement has none.
pub fn message(kind: &str, status: Status) -> &'static str {
    words(kind, status).1
}

/// What is told when a condition of ours comes to this status.
pub fn transition(node: &str, kind: &str, status: Status) -> NodeEvent {
    NodeEvent::status_is_now(node, words(kind, status).2)
}

#[cfg(test)]
mod tests {
    use super::super::condition::{self, Written};
    use super::super::tests::samples::{self, LATER};
    use super::*;

    /// Judges a look at a board whose certificate is so, and writes that to its Node: status, reason and message, and the event.
    fn look(node: &mut Node, expires: Option<(bool, Wall)>) -> (Option<[String; 3]>, Option<NodeEvent>) {
        let (settings, facts) = (&samples::settings(), &samples::facts());
        let (pressures, remembered) = (&Pressures::default(), &Remembered::default());
        let held = &Held::default();
        let look = Evidence::of_look(settings, facts, pressures, held, remembered);
        let judged = judge(&Evidence { expires, base: Some(node), ..look });
        let wanted = judged.map(Wanted::new);
        let written: [Written; COUNT] = condition::set(node, &wanted, settings, LATER);
        let all = own().zip(&wanted).zip(written).find(|((kind, _), _)| *kind == "CertificateExpiring");
        let ((kind, wanted), written) = all.unwrap();
        let stored = node.status.conditions.iter().find(|one| one.kind == kind);
        let words = stored.map(|one| [one.status.clone(), one.reason.clone(), one.message.clone()]);
        (words, written.event("edge-1", kind, wanted))
    }

    #[test]
    fn a_certificate_that_ends_soon_is_a_condition_from_then_on_and_before_that_there_is_none() {
        let (mut node, end) = (samples::node(), Wall::from_unix_seconds(1_800_000_000));
        let words = |words: [&str; 3]| Some(words.map(str::to_owned));
        let event = |reason| Some(NodeEvent::status_is_now("edge-1", reason));
        for none in [None, Some((false, end))] {
            assert_eq!(look(&mut node, none), (None, None));
        }
        let soon = words(["True", "CertificateExpiresSoon", "Client certificate expires soon: 2027-01-15T08:00:00Z"]);
        assert_eq!(look(&mut node, Some((true, end))), (soon.clone(), None));
        assert_eq!(look(&mut node, Some((true, end))), (soon.clone(), None));
        let over = words(["False", "CertificateIsValid", "Client certificate does not expire soon"]);
        assert_eq!(look(&mut node, Some((false, end))), (over, event("CertificateIsValid")));
        assert_eq!(look(&mut node, Some((true, end))), (soon, event("CertificateExpiresSoon")));
    }
}
