//! Turns "there should be a Node" into requests until there is one (REG-*, D1). Whose it is, is looked at where each answer
//! comes in (D10); what is wrong with it, the first report puts right (REC-*).
//!
//! ```text
//! Pause --back-off--> Version --> Create --201--> Done
//!   ^                               | 409 AlreadyExists, 403
//!   |                             Existing --200--> Done
//!   +------------ any failure
//! ```

use std::time::Duration;

use super::Because;
use super::backoff::Backoff;
use super::notice::Level;
use super::trouble::{Remedy, Trouble};
use super::truth::Truth;
use super::world::{Step, World};
use crate::api::{Answer, Class, Document, Refusal, StatusError, Wish};
use crate::node::object::Node;
use crate::node::patch::create_body;
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct Registration {
    stage: Stage,
    backoff: Backoff,
    trouble: Trouble,
}

#[derive(Debug)]
enum Stage {
    Pause { until: Up },
    Probe,
    Version,
    Create,
    Existing,
}

/// Longest Retry-After that registration obeys.
const CEILING: Duration = Duration::from_secs(30);

impl Registration {
    /// The first attempt comes 100 ms from now (REG-2).
    pub(super) fn new(now: Up) -> Registration {
        let mut backoff = Backoff::starting_at(Duration::from_millis(100));
        let until = now + backoff.step();
        Registration { stage: Stage::Pause { until }, backoff, trouble: Trouble::of("registration") }
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
                Stage::Create if world.memory.must_wait(now.up) => return Step::Idle,
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
            }
        }
    }

    /// What keeps the Node from being registered, if something does.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.last()
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
            (Stage::Existing, Ok(Document::Node(node))) => {
                let text = format!("registered: Node {} exists and is ours", world.node_name);
                world.say(Level::Info, "registered", text);
                return self.done(node, world, now);
            }
            (stage, Err(refusal)) => self.failed(&stage, &refusal, world, now),
            (_, Ok(_)) => self.pause(now, Duration::ZERO),
        }
        None
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
