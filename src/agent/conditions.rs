//! What is believed of our conditions: when each changed, and which changes no server has acknowledged yet.
//!
//! What a condition was before is what the last record says, or else the server's Node once that is known, or else the
//! first look, which is then no change.

use std::time::Duration;

use super::clock::apart;
use super::notice::Level;
use super::replay::Unreported;
use super::shared::Shared;
use crate::journal::record::cut;
use crate::journal::{Happened, Moment, Record, Sequence, Status};
use crate::node::condition::{self, Written};
use crate::node::leaving;
use crate::node::object::{Condition, Node};
use crate::node::rules::{self, COUNT, Wanted};
use crate::node::{Judgement, NodeEvent};
use crate::time::{Now, Up, Wall};
use writers::Writers;

mod writers;

/// All of ours, in the order of [`rules::own`].
#[derive(Debug, Default)]
pub(super) struct Conditions {
    all: [Believed; COUNT],
    /// When this process last asked for a Node to be made, and the time that it gave it.
    made: Option<(Moment, Wall)>,
}

#[derive(Debug, Default)]
struct Believed {
    /// By the last look.
    judged: Option<Judgement>,
    /// `None` before anybody could say.
    status: Option<Status>,
    basis: Basis,
    /// When this process first could say.
    first_look: Option<Now>,
    change: Option<Change>,
    /// The last change that a server has acknowledged, and the time that it was given.
    acknowledged: Option<(Moment, Wall)>,
    /// The status whose event was told without a record, since the server last acknowledged a report.
    told: Option<Status>,
    /// What a Node that is made has to say of it, since when: told once there is one, unless a record tells it then. A Node that
    /// was there already may say otherwise, which is a change.
    told_if_made: Option<(Up, Status, NodeEvent)>,
    writers: Writers,
}

/// What the status rests on, until the server's Node is known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Basis {
    #[default]
    Nothing,
    /// Nothing but this process's first look: no change.
    FirstLook,
    /// The last record of earlier processes, of a change from what the one before it had changed to, if there is one.
    Record { made: Moment, sequence: Sequence, one_before: Option<Moment> },
    /// What this process saw since, or the server's Node.
    Known,
}

/// The last change, which no server has acknowledged.
#[derive(Debug, Clone, Copy)]
struct Change {
    at: Moment,
    /// Of its record; `None` where others wrote the Node and no record tells of it.
    record: Option<Sequence>,
    /// It is in the report that was made last.
    is_reported: bool,
    /// The time that this report gives it, if it gives one.
    told: Option<Wall>,
}

impl Change {
    /// In no report yet.
    fn new(at: Moment, record: Option<Sequence>) -> Change {
        Change { at, record, is_reported: false, told: None }
    }
}

impl Conditions {
    /// After a start: what the records of earlier processes say.
    pub(super) fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Conditions {
        let mut conditions = Conditions::default();
        for record in records {
            let Happened::ConditionChanged { condition, to, .. } = &record.what else { continue };
            let mut all = rules::own().zip(&mut conditions.all);
            let Some((_, believed)) = all.find(|(kind, _)| kind == condition) else { continue };
            let one_before = match believed.basis {
                Basis::Record { made, .. } => Some(made),
                _ => None,
            };
            believed.status = Some(*to);
            believed.basis = Basis::Record { made: record.at, sequence: record.sequence, one_before };
            believed.change = Some(Change::new(record.at, Some(record.sequence)));
        }
        conditions
    }

    /// One look at the board: what changed is recorded in this moment. `has_base`: the server's Node is known already.
    /// Answers whether it says the same as the look before.
    pub(super) fn judged(&mut self, judged: [Judgement; COUNT], has_base: bool, shared: &mut Shared, now: Now) -> bool {
        let mut is_same = true;
        for ((kind, believed), judged) in rules::own().zip(&mut self.all).zip(judged) {
            if judged.is_sure && !believed.writers.is_others(now.up) {
                believed.first_look.get_or_insert(now);
                match believed.status {
                    None => {
                        believed.status = Some(judged.status);
                        believed.basis = if has_base { Basis::Known } else { Basis::FirstLook };
                    }
                    Some(before) if before != judged.status => {
                        believed.change(kind, before, judged.status, judged.reason, shared, now);
                    }
                    Some(_) => {}
                }
            }
            is_same &= believed.judged.as_ref() == Some(&judged);
            believed.judged = Some(judged);
        }
        is_same
    }

    /// The server's Node is known: where only a first look spoke, this is what was before.
    ///
    /// A record is less than that where the server knows of a later change: the record of that one was lost with a disk
    /// that failed. So is one that was made then, of a change from what the server knew to be over.
    pub(super) fn node_known(&mut self, node: &Node, shared: &mut Shared, now: Now) {
        self.look_for_others(node, shared, now);
        self.compare(node, shared, now);
        for believed in &mut self.all {
            let is_recorded = believed.change.is_some_and(|change| change.record.is_some());
            if let Some((since, status, event)) = believed.told_if_made.take().filter(|_| !is_recorded) {
                believed.told = Some(status);
                shared.tell(Level::Debug, since, event);
            }
        }
    }

    /// Which conditions another program writes on this Node: each is left to it, and what we believed of it is forgotten.
    fn look_for_others(&mut self, node: &Node, shared: &mut Shared, now: Now) {
        // These have a date of ours with each report, or with each departure.
        let has_more_dates = |kind: &str| rules::is_kubelets(kind) || leaving::CONDITIONS.contains(&kind);
        for (kind, believed) in rules::own().zip(&mut self.all).filter(|(kind, _)| !has_more_dates(kind)) {
            let date = find(node, kind).and_then(|stored| Wall::parse_stamp(&stored.last_heartbeat_time));
            if believed.writers.seen(date, now.up) {
                let writers = std::mem::take(&mut believed.writers);
                *believed = Believed { writers, judged: believed.judged.take(), ..Believed::default() };
                let text = format!(
                    "another program writes the condition {kind} of this Node, as node-problem-detector does: it is left to that one while it goes on"
                );
                shared.say(Level::Info, "condition-left", text);
            }
        }
    }

    fn compare(&mut self, node: &Node, shared: &mut Shared, now: Now) {
        for (kind, believed) in rules::own().zip(&mut self.all) {
            let basis = std::mem::replace(&mut believed.basis, Basis::Known);
            if believed.writers.is_others(now.up) {
                continue;
            }
            // What others made Unknown of a silent Node is repaired by the next report, and told.
            let Some(stored) = find(node, kind) else { continue };
            let Some(before) = condition::status_from_board(stored) else {
                // No more of it than the status is a board's: enough where nobody can say yet.
                let asserted = Status::parse(&stored.status).filter(|status| *status != Status::Unknown);
                believed.status = believed.status.or(asserted);
                continue;
            };
            // What nobody could judge yet is what it was.
            let status = *believed.status.get_or_insert(before);
            let ours = [self.made, believed.acknowledged];
            let is_older = |made: Moment| is_older(made, stored, ours, shared, now);
            let is_still = |record: Sequence| believed.change.is_some_and(|change| change.record == Some(record));
            let outdated = match basis {
                Basis::Record { made, sequence, .. } if is_older(made) => Some(sequence),
                // Without one before it, that one was told: the server had its status then, and has not got this one's. What
                // may begin again without an end that anybody saw, as reboots do, is another one each time.
                Basis::Record { sequence, one_before, .. }
                    if status == before
                        && is_still(sequence)
                        && one_before.map_or(!rules::may_be_absent(kind, Status::False), is_older) =>
                {
                    Some(sequence)
                }
                _ => None,
            };
            // Whenever it is said to have been: nobody may know, and then that is when it was told first.
            let is_outdated = |change: &Change| outdated.is_some() && change.record == outdated;
            if status == before {
                // What this process has seen since its first look did happen.
                let is_first = |at: Moment| believed.first_look.is_some_and(|look| look.up == at.up);
                let is_over = |change: &mut Change| is_outdated(change) || is_first(change.at);
                believed.change.take_if(|change| outdated.is_some() && is_over(change));
                // A report of before that one came late, and wrote an earlier time over it.
                let fell_back = |(_, told): &(Moment, Wall)| {
                    stored_since(stored).is_some_and(|since| since.unix_seconds() < told.unix_seconds())
                };
                if let Some((at, _)) = believed.acknowledged.filter(fell_back) {
                    believed.change.get_or_insert(Change::new(at, None));
                }
                continue;
            }
            let rests_on_it = believed.change.as_ref().is_some_and(is_outdated);
            match believed.first_look {
                Some(look) if basis == Basis::FirstLook || rests_on_it => {
                    // What a Node said that was made after that look has changed since.
                    let since = shared.stamp(now).map(|stamp| stamp.minus(now.up - look.up));
                    let is_past = since.zip(stored_since(stored)).is_some_and(|(since, stored)| since < stored);
                    let reason = believed.judged.as_ref().and_then(|judged| judged.reason);
                    believed.change(kind, before, status, reason, shared, if is_past { now } else { look });
                }
                // Nobody can say yet, and the server knows of a later change than the record.
                None if rests_on_it => {
                    believed.status = Some(before);
                    believed.change = None;
                }
                // A Node was made while this looked other than it turned out to be, or somebody wrote it: it is put right now.
                _ if believed.change.is_some_and(|change| is_older(change.at)) => believed.change = None,
                _ => {}
            }
        }
    }

    /// The machine goes on after all. What these were before it was to go down, the server has heard the end of: if they are
    /// to be put right, they are what they are from now on.
    pub(super) fn stay(&mut self) {
        for (kind, believed) in rules::own().zip(&mut self.all) {
            believed.change.take_if(|_| leaving::CONDITIONS.contains(&kind));
        }
    }

    /// What is to stand on the Node now; `None` before the first look.
    pub(super) fn wanted(&self, shared: &Shared, stamp: Wall, now: Now) -> Option<[Wanted; COUNT]> {
        let mut wanted = Vec::with_capacity(COUNT);
        for (kind, believed) in rules::own().zip(&self.all) {
            let judged = believed.judged.clone()?;
            let judgement = match believed.status {
                // What nobody could judge is what it was.
                Some(status)
                    if !judged.is_sure && (judged.status == Status::Unknown || rules::stays_until_sure(kind)) =>
                {
                    Judgement { status, message: None, reason: None, is_sure: true }
                }
                _ => judged,
            };
            // What only looks so, as no server was asked yet, did not come with the last change.
            let change = believed.change.filter(|_| believed.status.is_none_or(|status| status == judgement.status));
            let since = change.and_then(|change| shared.records.wall_of(change.at, stamp, now.up));
            wanted.push(Wanted { judgement, since, is_others: believed.is_others(kind, now.up) });
        }
        wanted.try_into().ok()
    }

    /// A Node was made of that, from the server's if `has_base`: it has changes of its own then, of what others wrote, and
    /// a report that fails is made again with the time of the first. Answers the events that no record tells of, each once
    /// until a server has acknowledged a report.
    pub(super) fn node_made(
        &mut self,
        wanted: &[Wanted; COUNT],
        written: [Written; COUNT],
        has_base: bool,
        shared: &Shared,
        at: Now,
    ) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        if !has_base {
            self.made = at.wall.map(|stamp| (shared.records.moment(at), stamp));
        }
        for (((kind, believed), wanted), written) in rules::own().zip(&mut self.all).zip(wanted).zip(written) {
            if wanted.is_others {
                continue;
            }
            if written != Written::Same
                && let Some(stamp) = at.wall
            {
                believed.writers.sent(stamp);
            }
            let status = wanted.judgement.status;
            let event = written.event(&shared.node_name, kind, wanted).filter(|_| believed.change.is_none());
            match event.filter(|_| believed.told != Some(status)) {
                Some(event) if has_base => {
                    believed.told = Some(status);
                    events.push(event);
                }
                Some(event) if believed.told_if_made.as_ref().is_none_or(|(_, before, _)| *before != status) => {
                    believed.told_if_made = Some((at.up, status, event));
                }
                _ => {}
            }
            match &mut believed.change {
                _ if written == Written::Same => {}
                // When it was, nobody can know: from now on it is when it was told first.
                Some(_) if believed.status.is_some_and(|believed| believed != status) => {}
                Some(change) if wanted.since.is_none() => change.at = shared.records.moment(at),
                change if has_base => {
                    change.get_or_insert(Change::new(shared.records.moment(at), None));
                }
                _ => {}
            }
            if has_base && !rules::may_be_absent(kind, status) {
                // Where nobody has judged it, and no board said what it was, this one does now.
                believed.status.get_or_insert(status);
            }
            if let Some(change) = &mut believed.change {
                change.is_reported = true;
                change.told = wanted.since.or(at.wall.filter(|_| written != Written::Same));
            }
        }
        events
    }

    /// The records of the changes that wait for their acknowledgement.
    pub(super) fn unreported(&self) -> Unreported {
        std::array::from_fn(|place| self.all.get(place)?.change?.record)
    }

    /// Whether a change waits for its acknowledgement.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.all.iter().any(|believed| believed.change.is_some())
    }

    /// Whether the last change of this one does.
    pub(super) fn has_to_say(&self, kind: &str) -> bool {
        rules::own().zip(&self.all).any(|(own, believed)| own == kind && believed.change.is_some())
    }

    /// Whether it is one of ours, and another program's neither by its dates nor as this board cannot tell.
    pub(super) fn is_ours(&self, kind: &str, now: Now) -> bool {
        rules::own().zip(&self.all).any(|(own, believed)| own == kind && !believed.is_others(own, now.up))
    }

    /// Whether this Node has it as the last look judged it.
    pub(super) fn is_said(&self, kind: &str, node: &Node) -> bool {
        let believed = rules::own().zip(&self.all).find(|(own, _)| *own == kind).map(|(_, believed)| believed);
        let Some(judged) = believed.and_then(|believed| believed.judged.as_ref()) else { return false };
        match find(node, kind) {
            Some(stored) => {
                let has_message = judged.message.as_ref().is_none_or(|message| *message == stored.message);
                stored.status == judged.status.word() && has_message
            }
            None => rules::may_be_absent(kind, judged.status),
        }
    }

    /// The server took the report that was made last, and `node` is what came of it: where somebody made the Node anew in the
    /// meantime, a report of what differs from the former one said too little.
    pub(super) fn acknowledged(&mut self, node: &Node) {
        for (kind, believed) in rules::own().zip(&mut self.all) {
            let stored = find(node, kind);
            let is_so = |status: Status| {
                stored.map_or(rules::may_be_absent(kind, status), |stored| stored.status == status.word())
            };
            let has_arrived = believed.status.is_none_or(is_so);
            if let Some(change) = believed.change.take_if(|change| change.is_reported && has_arrived) {
                // Where the Node was made with it, a report for the one before may have come late since.
                believed.acknowledged = stored.and_then(stored_since).max(change.told).map(|told| (change.at, told));
            }
            believed.told = None;
        }
    }
}

/// The most by which two processes reckon the time of one moment apart, if they heard it from servers: what an answer travels.
const RECKONED: Duration = Duration::from_secs(1);

/// Whether a record was made before what the server has. `ours`: what this process has written, when, and the time that it
/// gave that: whatever was believed of the server's clock then.
fn is_older(
    recorded: Moment,
    stored: &Condition,
    ours: [Option<(Moment, Wall)>; 2],
    shared: &Shared,
    now: Now,
) -> bool {
    let Some(since) = stored_since(stored) else { return false };
    let is_before = |(at, told): (Moment, Wall)| {
        told.unix_seconds() == since.unix_seconds() && at.boot == recorded.boot && at.up <= recorded.up
    };
    if ours.into_iter().flatten().any(is_before) {
        return false;
    }
    let reckoned = shared.stamp(now).and_then(|stamp| shared.records.latest_wall_of(recorded, stamp, now.up));
    reckoned.is_some_and(|reckoned| {
        // The record has the time that the process had which made it, and told the server.
        let differs = recorded.wall.map_or(RECKONED, |wall| apart(wall, reckoned).min(RECKONED));
        since > reckoned.plus(differs)
    })
}

fn stored_since(stored: &Condition) -> Option<Wall> {
    Wall::parse_stamp(&stored.last_transition_time)
}

/// Of that kind, on this Node.
pub(super) fn find<'a>(node: &'a Node, kind: &str) -> Option<&'a Condition> {
    node.status.conditions.iter().find(|condition| condition.kind == kind)
}

impl Believed {
    /// It is another program's, by its dates or as this board cannot tell.
    fn is_others(&self, kind: &str, now: Up) -> bool {
        let can_tell = |judged: &Judgement| judged.is_sure || judged.status != Status::Unknown;
        let is_shared = || rules::is_shared(kind) && !self.judged.as_ref().is_some_and(can_tell);
        self.writers.is_others(now) || is_shared()
    }

    /// `reason`: in place of the table's.
    fn change(
        &mut self,
        kind: &'static str,
        from: Status,
        to: Status,
        reason: Option<&'static str>,
        shared: &mut Shared,
        at: Now,
    ) {
        let reason = reason.unwrap_or(rules::reason(kind, to));
        let what = Happened::ConditionChanged { condition: cut(kind), from, to, reason: cut(reason) };
        let record = shared.record_change(what, rules::transition(&shared.node_name, kind, to), at);
        self.status = Some(to);
        if self.basis == Basis::FirstLook {
            self.basis = Basis::Known;
        }
        self.change = Some(Change::new(record.at, Some(record.sequence)));
    }
}
