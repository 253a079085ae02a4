//! Turns "there should be a Node" into requests until there is one (REG-*, D1). Whose it is, is looked at where each answer
//! comes in (D10); what is wrong with it, the first report puts right (REC-*).
//!
//! ```text
//! Pause --back-off--> Version --> Create --201--> Strip --anything--> Done
//!   ^                    |          ^ | 409 AlreadyExists, 403
//!   |   refused, or five |      404 | v
//!   |   times no answer  '---> Existing --200--> Strip --anything--> Done
//!   +------------ any failure
//! ```

use std::time::Duration;

use super::failure_log::RetryReason;
use super::notice::Level;
use super::shared::{Ownership, Shared, Step};
use super::tries::Tries;
use super::wanted::WantedNode;
use crate::api::{Class, Document, Operation, Refusal, StatusError};
use crate::node::object::Node;
use crate::node::patch::create_body;
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct Registration {
    stage: Stage,
    tries: Tries,
    /// What is in the way though no request failed, as it was said; until there is a Node of ours.
    obstacle: Option<String>,
    /// The Node that is there is too long to be read whole.
    is_large: bool,
    /// The status of a Node that was ours is not found: how long to wait unless that is the first time in a long while.
    again_after: Option<Duration>,
}

#[derive(Debug)]
enum Stage {
    Pause {
        until: Up,
    },
    Probe,
    Version,
    Create,
    /// `before`: nobody has tried to create it, as something has to be known first.
    Existing {
        before: bool,
    },
    /// The server tracks who wrote which of its fields, of use to nobody, and in each answer to us: it is asked to stop.
    Strip {
        node: Box<Node>,
    },
}

/// Longest Retry-After that registration obeys.
const CEILING: Duration = Duration::from_secs(30);
const VERSION_UNKNOWN: &str = "nobody says which version the API server has: registering without; kubeletVersion follows it as soon as GET /version is answered";

impl Registration {
    /// The first attempt comes 100 ms from now (REG-2).
    pub(super) fn new(now: Up) -> Registration {
        let mut tries = Tries::of("registration", Duration::from_millis(100));
        let until = now + tries.pause();
        Registration { stage: Stage::Pause { until }, tries, obstacle: None, is_large: false, again_after: None }
    }

    /// The server says that there is no status of the Node that it had: is the Node gone (D1)?
    pub(super) fn again(pause: Duration, now: Up) -> Registration {
        Registration { stage: Stage::Existing { before: true }, again_after: Some(pause), ..Registration::new(now) }
    }

    pub(super) fn poll(&mut self, wanted: &mut WantedNode, shared: &mut Shared, now: Now) -> Step {
        loop {
            match &self.stage {
                Stage::Pause { until } if now.up < *until => {
                    return Step::Wait { until: *until, because: self.tries.because("registration") };
                }
                Stage::Pause { .. } => {
                    self.stage = Stage::Probe;
                    return Step::Probe;
                }
                Stage::Probe => return Step::Idle,
                Stage::Version if wanted.server_version.is_some() => self.stage = Stage::Create,
                // Something may answer for this path alone: the Node itself is asked for, and the time with it.
                Stage::Version if !wanted.waits_for_version() => self.stage = Stage::Existing { before: true },
                Stage::Version => return Step::Send(Operation::ReadVersion),
                // The Node tells of changes, so they have to be on disk first; not for one that finds no server again.
                Stage::Create if shared.is_lost() && shared.records.has_unwritten() => {
                    self.stage = Stage::Existing { before: true };
                }
                Stage::Create if shared.records.must_wait(now.up) => return Step::Idle,
                Stage::Create => {
                    let node = wanted.initial(shared, now);
                    let Some(node) = node else {
                        // Nothing to date it by: the next attempt asks again for the time as well.
                        wanted.server_version = None;
                        self.pause(now, Duration::ZERO);
                        continue;
                    };
                    return Step::Send(Operation::CreateNode { body: create_body(&node) });
                }
                Stage::Existing { .. } if self.is_large => return Step::Send(Operation::ReadMetadata),
                Stage::Existing { .. } => return Step::Send(Operation::ReadNode { heartbeat: false }),
                Stage::Strip { .. } => return Step::Send(Operation::StripNode),
            }
        }
    }

    /// What keeps the Node from being registered, if something does.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.tries.last_failure().or(self.obstacle.as_deref())
    }

    /// Whether it is the version that is asked for, which more than an API server may know.
    pub(super) fn asks_for_version(&self) -> bool {
        matches!(self.stage, Stage::Version)
    }

    /// Fresh facts are in.
    pub(super) fn observed(&mut self) {
        if matches!(self.stage, Stage::Probe) {
            self.stage = Stage::Version;
        }
    }

    /// What is worth another try for this reason is tried now.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        if let Stage::Pause { until } = &mut self.stage
            && self.tries.may_retry_for(reason)
        {
            *until = (*until).min(now.up);
        }
    }

    /// Takes an answer; the Node, once registered.
    pub(super) fn answered(
        &mut self,
        result: Result<Document, Refusal>,
        wanted: &mut WantedNode,
        shared: &mut Shared,
        now: Now,
    ) -> Option<Box<Node>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Probe);
        match (stage, result) {
            (Stage::Version, Ok(_)) if shared.clock.wants_a_witness() => self.stage = Stage::Version,
            (Stage::Version, Ok(Document::Version(version))) => {
                wanted.server_version = Some(version);
                self.stage = Stage::Create;
            }
            (Stage::Version, Err(refusal)) => {
                wanted.version_refused(&refusal);
                if wanted.waits_for_version() || !refusal.retry_after().is_zero() {
                    self.failed(&Stage::Version, &refusal, shared, now);
                } else {
                    self.stage = Stage::Version;
                }
            }
            (Stage::Existing { before: true }, result)
                if result.as_ref().err().is_none_or(|refusal| refusal.class() == Class::Missing)
                    && shared.clock.wants_a_witness() =>
            {
                self.stage = Stage::Existing { before: true };
            }
            (Stage::Existing { .. }, Ok(Document::Node(node)))
                if self.again_after.is_some()
                    && self.stands_off("is there, but its status is not found", shared, now) =>
            {
                match wanted.stranger(&node) {
                    None => shared.node = Ownership::Ours { uid: node.metadata.uid.clone() },
                    Some(_) => shared.node = Ownership::Unknown,
                }
            }
            (stage @ Stage::Existing { .. }, Err(refusal)) if refusal.is_too_long() && !self.is_large => {
                shared.say_that_it_is_large();
                (self.is_large, self.stage) = (true, stage);
            }
            (Stage::Existing { before: true }, Err(refusal)) if refusal.class() == Class::Missing => {
                self.missing(wanted, shared, now);
            }
            (Stage::Create, Ok(Document::Node(node))) => {
                shared.say(Level::Info, "registered", format!("registered Node {}", shared.node_name));
                return self.done(node, shared, now);
            }
            (Stage::Create, Err(refusal)) if refusal.class() == Class::Exists || is_forbidden(&refusal) => {
                if is_forbidden(&refusal) {
                    self.tries.failed(&refusal, "create nodes", shared, now);
                }
                self.stage = Stage::Existing { before: false };
            }
            (Stage::Existing { .. }, Ok(Document::Node(node))) => {
                // Where nobody said the server's version, the Node has what it was when somebody did.
                wanted.server_version.get_or_insert_with(|| node.status.node_info.kubelet_version.clone());
                let text = format!("registered: Node {} exists and is ours", shared.node_name);
                shared.say(Level::Info, "registered", text);
                return self.done(node, shared, now);
            }
            (Stage::Strip { .. }, Ok(Document::Node(node))) | (Stage::Strip { node }, _) => return Some(node),
            (stage, Err(refusal)) => self.failed(&stage, &refusal, shared, now),
            (_, Ok(_)) => self.pause(now, Duration::ZERO),
        }
        None
    }

    /// There is no Node, and nobody has tried to create it.
    fn missing(&mut self, wanted: &mut WantedNode, shared: &mut Shared, now: Now) {
        // A Lease of a Node that is gone would be collected as often as it is made (LSE-14).
        shared.node = Ownership::Unknown;
        if self.again_after.is_some() {
            if self.stands_off("was deleted again", shared, now) {
                return;
            }
            let text = format!("Node {} was deleted: registering it again", shared.node_name);
            shared.say(Level::Warning, "node-deleted", text);
        }
        if wanted.server_version.is_none() {
            shared.say(Level::Warning, "version-unknown", VERSION_UNKNOWN);
            // The version we were tested with is good enough.
            wanted.server_version = Some(String::new());
        }
        self.stage = Stage::Create;
    }

    /// Whether it is not the first time in a long while, so that nothing is written for now.
    fn stands_off(&mut self, what: &str, shared: &mut Shared, now: Now) -> bool {
        let Some(pause) = self.again_after.take().filter(|pause| !pause.is_zero()) else { return false };
        let text = format!("Node {} {what}: tried again in {} s", shared.node_name, pause.as_secs());
        shared.say(Level::Warning, "node-deleted", text.as_str());
        self.obstacle = Some(text);
        self.stage = Stage::Pause { until: now.up + pause };
        true
    }

    fn done(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) -> Option<Box<Node>> {
        self.tries.succeeded(shared, now);
        if node.metadata.has_needless_managers {
            self.stage = Stage::Strip { node };
            return None;
        }
        Some(node)
    }

    fn failed(&mut self, stage: &Stage, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let verb = match stage {
            Stage::Version => "get /version",
            Stage::Create => "create nodes",
            _ => "get nodes",
        };
        self.tries.failed(refusal, verb, shared, now);
        self.pause(now, refusal.retry_after().min(CEILING));
    }

    fn pause(&mut self, now: Now, at_least: Duration) {
        self.stage = Stage::Pause { until: now.up + self.tries.pause().max(at_least) };
    }
}

fn is_forbidden(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Status(StatusError { code: 403, .. }))
}
