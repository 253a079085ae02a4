//! Turns "there should be a Node" into what the status lane asks until there is one (REG-*, D1). Whose it is, is looked at
//! where each answer comes in (D10); what is wrong with it, the first report puts right (REC-*).
//!
//! ```text
//! Missing --POST: 201------------------------> Tracked --PATCH: anything--> ours
//!   ^  |  '-POST: 409, 403--> Exists --GET: 200-->^
//!   |  '-five times no version--> Doubtful --GET: 200-->^
//!   '----- 404 of Doubtful at once, any failure after a pause
//! ```

use std::time::Duration;

use super::super::notice::Level;
use super::super::shared::{FullReport, Ownership, Shared, Step};
use super::super::tries::Tries;
use super::inherited::tell_what_an_administrator_must_mend;
use super::{Base, CEILING, NODE_STATUS, Request, Stage, StatusLane, VERSION_FREQUENCY};
use crate::api::{Class, Document, Operation, Refusal, StatusError};
use crate::node::object::Node;
use crate::node::patch::create_body;
use crate::time::{Now, Up};

const VERSION_UNKNOWN: &str = "the API server's version is not known yet: registering without it; kubeletVersion follows as soon as GET /version is answered";

/// Each pause is twice the one before, from 100 ms on (REG-2).
pub(super) fn tries_to_register() -> Tries {
    Tries::of("registration", Duration::from_millis(100))
}

impl StatusLane {
    /// What to ask next.
    pub(super) fn register(&mut self, shared: &mut Shared, now: Now) -> Step {
        if matches!(self.base, Base::Missing) {
            if self.wanted.waits_for_version() {
                return self.ask(Request::Version, Operation::ReadVersion);
            }
            // Something may answer for `/version` alone: the Node itself is asked for, and the time with it.
            let is_unknown = self.wanted.server_version.is_none();
            // The Node tells of changes, so they have to be on disk first; not for one that finds no server again.
            if is_unknown || shared.is_lost() && shared.records.has_unwritten() {
                self.base = Base::Doubtful;
            }
        }
        match &self.base {
            Base::Missing if shared.records.must_wait(now.up) => Step::Idle,
            Base::Missing => match self.wanted.initial(shared, now) {
                Some(node) => self.ask(Request::Create, Operation::CreateNode { body: create_body(&node) }),
                None => {
                    // Nothing to date it by: the next attempt asks again for the time as well.
                    self.wanted.server_version = None;
                    let until = self.try_again(Duration::ZERO, now);
                    Step::Wait { until, because: self.tries.because() }
                }
            },
            Base::Tracked(_) => self.ask(Request::Strip, Operation::StripNode),
            _ => self.ask(Request::Read, self.read_operation(false)),
        }
    }

    /// Takes an answer.
    pub(super) fn register_answered(
        &mut self,
        request: &Request,
        result: Result<Document, Refusal>,
        shared: &mut Shared,
        now: Now,
    ) {
        let is_missing = result.as_ref().is_err_and(|refusal| refusal.class() == Class::Missing);
        let is_doubtful = matches!(self.base, Base::Doubtful);
        let is_told = result.is_ok() || is_missing;
        match (request, result) {
            (Request::Read, _) if is_doubtful && is_told && shared.clock.ask_once_more() => {}
            (Request::Read, Ok(Document::Node(node)))
                if self.stands_off("is there, but its status is not found", shared, now) =>
            {
                shared.node = Ownership::Ours { uid: node.metadata.uid };
            }
            (Request::Read, Err(_)) if is_doubtful && is_missing => self.missing(shared, now),
            (Request::Create, Err(refusal)) if refusal.class() == Class::Exists || is_forbidden(&refusal) => {
                if is_forbidden(&refusal) {
                    self.tries.failed(&refusal, shared, now);
                }
                self.base = Base::Exists;
            }
            (Request::Create, Ok(Document::Node(node))) => {
                shared.say(Level::Info, "registered", format!("registered Node {}", shared.node_name));
                self.is_there(node, shared, now);
            }
            (Request::Read, Ok(Document::Node(node))) => {
                // Where nobody said the server's version, the Node has what it was when somebody did.
                self.wanted.server_version.get_or_insert_with(|| node.status.node_info.kubelet_version.clone());
                let text = format!("registered: Node {} exists and is ours", shared.node_name);
                shared.say(Level::Info, "registered", text);
                self.is_there(node, shared, now);
            }
            (Request::Strip, result) => {
                let patience = result.as_ref().err().map_or(Duration::ZERO, Refusal::retry_after).min(CEILING);
                let stripped = if let Ok(Document::Node(node)) = result { Some(node) } else { self.base.take() };
                stripped.into_iter().for_each(|node| self.registered(node, shared, now));
                self.stage = Stage::Decide { not_before: now.up + patience };
            }
            (_, Err(refusal)) => self.register_failed(&refusal, shared, now),
            (_, Ok(_)) => {
                self.try_again(Duration::ZERO, now);
            }
        }
    }

    /// There is no Node, and nobody has tried to create it.
    fn missing(&mut self, shared: &mut Shared, now: Now) {
        // A Lease of a Node that is gone would be collected as often as it is made (LSE-14).
        shared.node = Ownership::Unknown;
        let was_ours = self.deletions.was_deleted();
        if self.stands_off("was deleted again", shared, now) {
            return;
        }
        if was_ours {
            let text = format!("Node {} was deleted: registering it again", shared.node_name);
            shared.say(Level::Warn, "node-deleted", text);
        }
        if self.wanted.server_version.is_none() {
            shared.say(Level::Warn, "version-unknown", VERSION_UNKNOWN);
            // The version we were tested with is good enough.
            self.wanted.server_version = Some(String::new());
        }
        self.base = Base::Missing;
    }

    /// Whether a Node of ours is not gone for the first time in a long while, so that nothing is written for now.
    fn stands_off(&mut self, what: &str, shared: &mut Shared, now: Now) -> bool {
        let Some(pause) = self.deletions.take_pause() else { return false };
        let text = format!("Node {} {what}: tried again in {} s", shared.node_name, pause.as_secs());
        shared.say(Level::Warn, "node-deleted", text.as_str());
        self.tries.hindered(&text);
        self.base = Base::Missing;
        self.stage = Stage::resting_until(now.up + pause);
        true
    }

    /// There is one, and it is ours.
    fn is_there(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        if node.metadata.has_needless_managers {
            self.base = Base::Tracked(node);
        } else {
            self.registered(node, shared, now);
        }
    }

    /// From now on it is reported to.
    pub(super) fn registered(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        if !self.is_large {
            tell_what_an_administrator_must_mend(&node, shared);
        }
        self.deletions.node_made();
        shared.full_report = FullReport::NotNeeded;
        let is_known = self.wanted.server_version.as_ref().is_some_and(|version| version.starts_with('v'));
        self.version_due = now.up + if is_known { VERSION_FREQUENCY } else { self.version_pause.step() };
        self.report_due = None;
        self.wanted.reconcile();
        self.read(node, shared, now);
        self.tries = Tries::of(NODE_STATUS, Duration::ZERO);
    }

    pub(super) fn register_failed(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        self.tries.failed(refusal, shared, now);
        self.try_again(refusal.retry_after().min(CEILING), now);
    }

    /// Answers when.
    fn try_again(&mut self, at_least: Duration, now: Now) -> Up {
        let until = now.up + self.tries.pause().max(at_least);
        self.base = Base::Missing;
        self.stage = Stage::resting_until(until);
        until
    }
}

fn is_forbidden(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Status(StatusError { code: 403, .. }))
}
