//! Turns "there should be a Node" into requests until there is one that is ours (REG-*, REC-*, D1, D10).
//!
//! ```text
//! Pause --back-off--> Version --> Create --201--> Done
//!   ^                               | 409 AlreadyExists, 403
//!   |                             Existing --200, another machine's--> Suspect --its Lease moves--> Pause (5 min)
//!   |                               | 200, ours                           | it does not
//!   +------------ any failure     Reconcile <-----------------------------+ --200, or nothing differs--> Done
//! ```

use std::time::Duration;

use super::Because;
use super::backoff::Backoff;
use super::notice::Level;
use super::trouble::{Remedy, Trouble};
use super::truth::Truth;
use super::world::{Step, World};
use crate::api::{Answer, Class, Document, PatchAnswer, Refusal, StatusError, Wish};
use crate::node::identity::{Stranger, stranger};
use crate::node::object::{Lease, Node};
use crate::node::patch::{create_body, status_patch};
use crate::node::reconcile::reconcile;
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct Registration {
    stage: Stage,
    backoff: Backoff,
    trouble: Trouble,
    /// The living machine that has our name, as it was said; until there is a Node of ours.
    taken: Option<String>,
}

#[derive(Debug)]
enum Stage {
    Pause { until: Up },
    Probe,
    Version,
    Create,
    Existing,
    Suspect(Suspect),
    Reconcile { node: Box<Node> },
}

/// A Node that another machine wrote, while its Lease is watched (D10).
#[derive(Debug)]
struct Suspect {
    node: Box<Node>,
    who: Stranger,
    /// The first look at the Lease: `Some(None)` when there was none.
    first_look: Option<Option<Lease>>,
    ask_at: Up,
}

/// A machine that takes our name away is asked about again this often (D10).
const STRANGER_PAUSE: Duration = Duration::from_secs(300);
/// Longest Retry-After that registration obeys.
const CEILING: Duration = Duration::from_secs(30);

impl Registration {
    /// The first attempt comes 100 ms from now (REG-2).
    pub(super) fn new(now: Up) -> Registration {
        let mut backoff = Backoff::starting_at(Duration::from_millis(100));
        let until = now + backoff.step();
        Registration { stage: Stage::Pause { until }, backoff, trouble: Trouble::of("registration"), taken: None }
    }

    pub(super) fn poll(&mut self, truth: &mut Truth, world: &mut World, now: Now) -> Step {
        loop {
            match &self.stage {
                Stage::Pause { until } if now.up < *until => {
                    let after = self.trouble.last().map(str::to_owned);
                    return Step::Wait { until: *until, because: Because { what: "registration", after } };
                }
                Stage::Pause { .. } => {
                    self.stage = Stage::Probe;
                    return Step::Probe;
                }
                Stage::Probe => return Step::Idle,
                Stage::Version if truth.server_version.is_some() => self.stage = Stage::Create,
                Stage::Version => return Step::Send(Wish::ReadVersion),
                // The Node tells of changes, so they have to be on disk first; not for one that finds no server again.
                Stage::Create if world.is_lost() && world.memory.has_unwritten() => {
                    truth.server_version = None;
                    self.stage = Stage::Version;
                }
                Stage::Create | Stage::Reconcile { .. } if world.memory.must_wait(now.up) => return Step::Idle,
                Stage::Create => {
                    let node = truth.initial(world, now);
                    let Some(node) = node else {
                        // Nothing to date it by: the next attempt asks again for the time as well.
                        truth.server_version = None;
                        self.pause(now, Duration::ZERO);
                        continue;
                    };
                    return Step::Send(Wish::CreateNode { body: create_body(&node) });
                }
                Stage::Existing => return Step::Send(Wish::ReadNode { heartbeat: false }),
                Stage::Suspect(Suspect { ask_at, .. }) if now.up < *ask_at => {
                    let because =
                        Because { what: "watching whether another machine holds this Node's name", after: None };
                    return Step::Wait { until: *ask_at, because };
                }
                Stage::Suspect(_) => return Step::Send(Wish::ReadLease),
                Stage::Reconcile { node } => {
                    let initial = truth.initial(world, now);
                    let wanted = initial.and_then(|initial| reconcile(node, &initial));
                    // Nothing to do is handled where the Node was read; here there is always a difference.
                    let body = wanted.map_or_else(|| "{}".to_owned(), |wanted| status_patch(node, &wanted));
                    return Step::Send(Wish::PatchStatus { body, answer: PatchAnswer::Node, heartbeat: false });
                }
            }
        }
    }

    /// What keeps the Node from being registered, if something does.
    pub(super) fn trouble(&self) -> Option<&str> {
        const WATCHING: &str = "another machine wrote it; watching whether that one still lives";
        let suspects = matches!(self.stage, Stage::Suspect(_)).then_some(WATCHING);
        self.trouble.last().or(self.taken.as_deref()).or(suspects)
    }

    /// Whether there is a Node of ours that lacks something.
    pub(super) fn repairs(&self) -> bool {
        matches!(self.stage, Stage::Reconcile { .. })
    }

    /// Fresh facts are in.
    pub(super) fn observed(&mut self) {
        if matches!(self.stage, Stage::Probe) {
            self.stage = Stage::Version;
        }
    }

    /// What waited for this remedy is tried now.
    pub(super) fn hurry(&mut self, remedy: Remedy, now: Now) {
        if let Stage::Pause { until } = &mut self.stage
            && self.trouble.may_end_with(remedy)
        {
            *until = (*until).min(now.up);
        }
    }

    /// Takes an answer; the Node, once registered.
    pub(super) fn answered(
        &mut self,
        answer: Answer,
        truth: &mut Truth,
        world: &mut World,
        now: Now,
    ) -> Option<Box<Node>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Probe);
        match (stage, answer.result) {
            (Stage::Version, Err(refusal)) if !closes_discovery(&refusal) => {
                self.failed(&Stage::Version, &refusal, world, now);
            }
            (Stage::Version, _) if world.clock.wants_a_witness() => self.stage = Stage::Version,
            (Stage::Version, Ok(Document::Version(version))) => {
                truth.server_version = Some(version);
                self.stage = Stage::Create;
            }
            (Stage::Version, _) => {
                // The version we were tested with is good enough.
                truth.server_version = Some(String::new());
                self.stage = Stage::Create;
            }
            (Stage::Create, Ok(Document::Node(node))) => {
                world.say(Level::Info, "registered", format!("registered Node {}", world.node_name));
                return self.done(node, world, now);
            }
            (Stage::Create, Err(refusal)) if refusal.class() == Class::Exists || is_forbidden(&refusal) => {
                if is_forbidden(&refusal) {
                    let advice = world.advise(&refusal, "create nodes", now);
                    world.say_if(self.trouble.failed(&refusal, &advice, now.up));
                }
                self.stage = Stage::Existing;
            }
            (Stage::Existing, Ok(Document::Node(node))) => return self.existing(node, truth, world, now),
            (Stage::Suspect(suspect), Ok(Document::Lease(lease))) => {
                return self.watched(suspect, Some(*lease), truth, world, now);
            }
            (Stage::Suspect(suspect), Err(refusal)) if refusal.class() == Class::Missing => {
                return self.watched(suspect, None, truth, world, now);
            }
            (Stage::Reconcile { .. }, Ok(Document::Node(node))) => {
                world.say(Level::Info, "registered", format!("registered: reconciled Node {}", world.node_name));
                return self.done(node, world, now);
            }
            (stage, Err(refusal)) => self.failed(&stage, &refusal, world, now),
            (_, Ok(_)) => self.pause(now, Duration::ZERO),
        }
        None
    }

    /// A Node is there: whose is it, and is it as it should be? The Node, where nothing is left to do.
    pub(super) fn existing(
        &mut self,
        node: Box<Node>,
        truth: &mut Truth,
        world: &mut World,
        now: Now,
    ) -> Option<Box<Node>> {
        let Some(mine) = truth.as_new(world, now) else {
            self.pause(now, Duration::ZERO);
            return None;
        };
        if let Some(who) = stranger(&node, &mine) {
            world.say(
                Level::Warning,
                "stranger",
                format!("Node {} was written by {who}: checking whether it still lives", world.node_name),
            );
            self.stage = Stage::Suspect(Suspect { node, who, first_look: None, ask_at: now.up });
            return None;
        }
        self.adopt(node, &mine, world, now)
    }

    fn adopt(&mut self, node: Box<Node>, mine: &Node, world: &mut World, now: Now) -> Option<Box<Node>> {
        if reconcile(&node, mine).is_some() {
            self.stage = Stage::Reconcile { node };
            return None;
        }
        world.say(Level::Info, "registered", format!("registered: Node {} exists and is ours", world.node_name));
        self.done(node, world, now)
    }

    /// The Lease of a Node that another machine wrote: read twice, further apart than its renewals (D10).
    fn watched(
        &mut self,
        suspect: Suspect,
        lease: Option<Lease>,
        truth: &mut Truth,
        world: &mut World,
        now: Now,
    ) -> Option<Box<Node>> {
        let renewed = |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.spec.renew_time.clone());
        let Suspect { node, who, first_look, .. } = suspect;
        let Some(seen) = first_look else {
            let duration_seconds = lease.as_ref().and_then(|lease| lease.spec.lease_duration_seconds).unwrap_or(0);
            // A quarter of the duration, the jitter, and a slow link.
            let wait = Duration::from_secs(u64::try_from(duration_seconds).unwrap_or(0).min(3600)) / 3
                + Duration::from_secs(3);
            self.stage = Stage::Suspect(Suspect { node, who, first_look: Some(lease), ask_at: now.up + wait });
            return None;
        };
        if renewed(&lease).is_some() && renewed(&lease) != renewed(&seen) {
            let name = &world.node_name;
            let text = format!(
                "{who} holds the name {name} and renews its Lease: not registering; give this board another name (--hostname-override), or stop the other"
            );
            world.say(Level::Error, "name-taken", text.as_str());
            self.taken = Some(text);
            self.stage = Stage::Pause { until: now.up + STRANGER_PAUSE };
            return None;
        }
        world.say(
            Level::Info,
            "stranger-gone",
            format!("{who} no longer renews the Lease: this board takes over Node {}", world.node_name),
        );
        let Some(mine) = truth.as_new(world, now) else {
            self.pause(now, Duration::ZERO);
            return None;
        };
        self.adopt(node, &mine, world, now)
    }

    fn done(&mut self, node: Box<Node>, world: &mut World, now: Now) -> Option<Box<Node>> {
        world.say_if(self.trouble.ended(now.up));
        self.backoff.reset();
        Some(node)
    }

    fn failed(&mut self, stage: &Stage, refusal: &Refusal, world: &mut World, now: Now) {
        let verb = match stage {
            Stage::Version => "get /version",
            Stage::Create => "create nodes",
            Stage::Suspect(_) => "get leases",
            Stage::Reconcile { .. } => "patch nodes/status",
            _ => "get nodes",
        };
        let advice = world.advise(refusal, verb, now);
        world.say_if(self.trouble.failed(refusal, &advice, now.up));
        let at_least = match refusal.class() {
            Class::After(wait) => wait.min(CEILING),
            _ => Duration::ZERO,
        };
        self.pause(now, at_least);
    }

    fn pause(&mut self, now: Now, at_least: Duration) {
        self.stage = Stage::Pause { until: now.up + self.backoff.step().max(at_least) };
    }
}

/// Discovery may be closed to us for good: 4xx except 429. What passes is waited for, as the version we claim may not be
/// above the server's.
pub(super) fn closes_discovery(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Status(StatusError { code: 400..=428 | 430..=499, .. }))
}

fn is_forbidden(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Status(StatusError { code: 403, .. }))
}
