//! Turns looks at the board into changes of conditions, and keeps for each when it was until the server has it.
//!
//! What a condition was before is what the last record says, or else the server's Node once that is known, or else the
//! first look, which is then no change.

use std::time::Duration;

use super::world::World;
use crate::journal::record::cut;
use crate::journal::{Happened, Moment, Record, Status};
use crate::node::condition::{self, OWN};
use crate::node::object::{Condition, Node};
use crate::time::{Now, Wall};

/// What is believed of our four conditions, in the order of [`OWN`].
#[derive(Debug, Default)]
pub(super) struct Transitions {
    conditions: [Believed; OWN.len()],
}

#[derive(Debug, Default)]
struct Believed {
    /// `None` before anybody could say.
    status: Option<Status>,
    /// The last transition that earlier processes recorded, until the server's Node is known.
    remembered: Option<Moment>,
    /// When this process first looked.
    looked: Option<Now>,
    /// Nothing but the look of this moment speaks for it.
    first_look: Option<Now>,
    /// The last transition, while no server has acknowledged it.
    owed: Option<Owed>,
}

#[derive(Debug, Clone, Copy)]
struct Owed {
    at: Moment,
    /// There is a record, and the record is what is told.
    is_recorded: bool,
    /// It is in the report that was made last.
    is_reported: bool,
}

/// Stamps have whole seconds, rounded down.
const STAMP_SECOND: Duration = Duration::from_secs(1);

impl Transitions {
    /// What the records of earlier processes say.
    pub(super) fn remember<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        for record in records {
            let Happened::ConditionChanged { condition, to, .. } = &record.what else { continue };
            let Some(believed) = self.of(condition) else { continue };
            believed.status = Some(*to);
            believed.remembered = Some(record.at);
            believed.owed = Some(Owed { at: record.at, is_recorded: true, is_reported: false });
        }
    }

    /// One look at the board: what changed is recorded in this moment. `has_base`: the server's Node is known already.
    pub(super) fn look(&mut self, judged: [Option<Status>; OWN.len()], has_base: bool, world: &mut World, now: Now) {
        for ((kind, believed), judged) in OWN.into_iter().zip(&mut self.conditions).zip(judged) {
            let Some(status) = judged else { continue };
            believed.looked.get_or_insert(now);
            match believed.status {
                None => {
                    believed.status = Some(status);
                    believed.first_look = (!has_base).then_some(now);
                }
                Some(before) if before != status => {
                    believed.change(kind, before, status, world, now);
                }
                Some(_) => {}
            }
        }
    }

    /// The server's Node is known: where only a first look spoke, this is what was before.
    ///
    /// A record is less than that where the server knows of a later transition: the record of that one was lost with a disk
    /// that failed.
    pub(super) fn node_known(&mut self, node: &Node, world: &mut World, now: Now) {
        for (kind, believed) in OWN.into_iter().zip(&mut self.conditions) {
            let (first_look, remembered) = (believed.first_look.take(), believed.remembered.take());
            // What others made Unknown of a silent Node the setters repair, and tell it.
            let Some(stored) = node.status.conditions.iter().find(|stored| stored.kind == kind) else { continue };
            let Some(before) = condition::given(stored) else { continue };
            // What nobody could judge yet is what it was.
            believed.status.get_or_insert(before);
            let outdated = remembered.filter(|at| is_older(*at, stored, world, now));
            if believed.status == Some(before) {
                // What this process has seen since its first look did happen.
                let is_first = |at: Moment| believed.looked.is_some_and(|looked| looked.up == at.up);
                believed.owed.take_if(|owed| outdated.is_some() && (outdated == Some(owed.at) || is_first(owed.at)));
                continue;
            }
            let rests_on_it = outdated.is_some() && believed.owed.map(|owed| owed.at) == outdated;
            let looked = first_look.or(believed.looked.filter(|_| rests_on_it));
            if let (Some(looked), Some(status)) = (looked, believed.status) {
                believed.change(kind, before, status, world, looked);
            }
        }
    }

    /// What is believed of each condition, in the order of [`OWN`].
    pub(super) fn believed(&self) -> [Option<Status>; OWN.len()] {
        self.conditions.each_ref().map(|believed| believed.status)
    }

    /// Whether a transition waits for its acknowledgement.
    pub(super) fn is_owed(&self) -> bool {
        self.conditions.iter().any(|believed| believed.owed.is_some())
    }

    /// Whether the event of this reason is about a transition that has a record: that is told, once.
    pub(super) fn tells(&self, reason: &str) -> bool {
        let kind = condition::of_event(reason);
        let mut conditions = OWN.into_iter().zip(&self.conditions);
        let believed = conditions.find(|(own, _)| Some(*own) == kind);
        believed.is_some_and(|(_, believed)| believed.owed.is_some_and(|owed| owed.is_recorded))
    }

    /// Writes the true times of transitions onto `node`. Made from a `base`, it has transitions of its own as well, of what
    /// others wrote: a report that fails is made again, and the transition was when it was.
    pub(super) fn date(&mut self, node: &mut Node, base: Option<&Node>, world: &World, stamp: Wall, now: Now) {
        for (kind, believed) in OWN.into_iter().zip(&mut self.conditions) {
            let Some(ours) = find(&mut node.status.conditions, kind) else { continue };
            let theirs = base.map(|base| base.status.conditions.iter().find(|theirs| theirs.kind == kind));
            let time = |theirs: Option<&Condition>| theirs.and_then(|theirs| theirs.last_transition_time.clone());
            if believed.owed.is_none() && theirs.is_some_and(|theirs| time(theirs) != ours.last_transition_time) {
                let at = world.memory.moment(Now { wall: Some(stamp), ..now });
                believed.owed = Some(Owed { at, is_recorded: false, is_reported: false });
            }
            if base.is_some() {
                // Where nobody has judged it, and no board said what it was, this one does now.
                believed.status = believed.status.or_else(|| Status::parse(&ours.status));
            }
            let Some(owed) = &mut believed.owed else { continue };
            owed.is_reported = true;
            let wall = world.memory.wall_of(owed.at, stamp, now.up).unwrap_or(stamp);
            ours.last_transition_time = Some(wall.to_seconds_stamp());
        }
    }

    /// The server took the report that was made last, and `node` is what came of it: where somebody made the Node anew in the
    /// meantime, a report of what differs from the former one said too little.
    pub(super) fn acknowledged(&mut self, node: &Node) {
        for (kind, believed) in OWN.into_iter().zip(&mut self.conditions) {
            let stored = node.status.conditions.iter().find(|stored| stored.kind == kind);
            let has_arrived =
                believed.status.is_none_or(|status| stored.is_some_and(|stored| stored.status == status.word()));
            believed.owed.take_if(|owed| owed.is_reported && has_arrived);
        }
    }

    fn of(&mut self, kind: &str) -> Option<&mut Believed> {
        OWN.into_iter().zip(&mut self.conditions).find(|(own, _)| *own == kind).map(|(_, believed)| believed)
    }
}

/// Whether a record was made before what the server has.
fn is_older(recorded: Moment, stored: &Condition, world: &World, now: Now) -> bool {
    let recorded = world.stamp(now).and_then(|stamp| world.memory.wall_of(recorded, stamp, now.up));
    let stored = stored.last_transition_time.as_deref().and_then(Wall::parse_stamp);
    recorded.zip(stored).is_some_and(|(recorded, stored)| stored.since(recorded) >= STAMP_SECOND)
}

fn find<'a>(conditions: &'a mut [Condition], kind: &str) -> Option<&'a mut Condition> {
    conditions.iter_mut().find(|condition| condition.kind == kind)
}

impl Believed {
    fn change(&mut self, kind: &'static str, from: Status, to: Status, world: &mut World, at: Now) {
        let reason = condition::reason(kind, to);
        let what = Happened::ConditionChanged { condition: cut(kind), from, to, reason: cut(reason) };
        let at = world.record_change(what, condition::transition(&world.node_name, kind, to), at);
        self.status = Some(to);
        self.first_look = None;
        self.owed = Some(Owed { at, is_recorded: true, is_reported: false });
    }
}
