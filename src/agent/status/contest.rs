//! Turns a Node that another board may be writing into a verdict: left to that one, or ours after all (D10).
//!
//! ```text
//! Node --200--> Lease --longer than its renewals--> Lease again --it moved--> Node (5 min later)
//!   | 404                                               | it did not
//!   v                                                   v
//!  register                                             ours
//! ```
//!
//! Of two boards that one gets here that finds another's name on the Node, whenever it reads it, or that another has taken
//! the Lease from, which the answer to each renewal tells. From then on it writes nothing: neither Lease nor status nor
//! events. So the one that took over last, because it found nobody there, goes on.

use std::time::Duration;

use super::super::notice::Level;
use super::super::shared::{Ownership, Shared};
use super::super::tries::Tries;
use super::{Base, CEILING, NODE_STATUS, Stage, StatusLane};
use crate::api::{Class, Document, Operation, Refusal};
use crate::node::NodeEvent;
use crate::node::lease::renew_time;
use crate::node::object::{Lease, Node};
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct Contest {
    question: Question,
    pub(super) ask_at: Up,
    /// The other board, for people.
    who: String,
}

#[derive(Debug)]
enum Question {
    Node,
    /// `seen`: when it was renewed last, at the first look; `None` before that.
    Lease {
        node: Box<Node>,
        seen: Option<String>,
    },
}

/// A board that holds our name is asked about again this often.
const YIELD: Duration = Duration::from_secs(300);
/// Two boards that give way to each other do not look again at the same time.
const SPREAD: Duration = Duration::from_secs(3);
/// Nothing is known by which the two differ.
const TWIN: &str = "another board or process with this one's credentials (serial number, MAC address and machine-id tell \
                    them not apart)";

impl Contest {
    /// What to ask now.
    pub(super) fn operation(&self, now: Up) -> Option<Operation> {
        (now >= self.ask_at).then_some(match self.question {
            Question::Node => Operation::ReadNode { heartbeat: true },
            Question::Lease { .. } => Operation::ReadLease,
        })
    }

    /// A look at the Lease, `seen` what the look before saw. Answers the Node if its holder is gone.
    fn looked(
        &mut self,
        node: Box<Node>,
        seen: Option<String>,
        lease: Option<Box<Lease>>,
        tries: &mut Tries,
        shared: &mut Shared,
        now: Now,
    ) -> Option<Box<Node>> {
        let lease = lease.unwrap_or_default();
        // A request of ours that came late says nothing of others.
        let is_ours = shared.renewals.has_written(renew_time(&lease));
        let spec = lease.spec;
        let name = &shared.node_name;
        // Who renews moves on: an earlier time is such a request, perhaps of a process before this one.
        let is_late = |seen: &String| {
            !spec.renew_time.is_empty() && (spec.renew_time < *seen || is_ours && spec.renew_time != *seen)
        };
        let Some(seen) = seen.filter(|seen| !is_late(seen)) else {
            let duration = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0));
            // A quarter of the duration, the jitter, and a slow link. Whoever renews more rarely than the controller waits keeps no
            // Node: who wrote that duration is another.
            let wait = (duration / 3 + Duration::from_secs(3)).min(shared.settings.node_monitor_grace_period);
            self.ask_at = now.up + wait + shared.random.up_to(SPREAD);
            self.question = Question::Lease { node, seen: Some(spec.renew_time) };
            return None;
        };
        if spec.renew_time.is_empty() || spec.renew_time == seen {
            let text = format!("{} does not renew the Lease: this board takes over Node {name}", self.who);
            shared.say(Level::Info, "stranger-gone", text);
            self.tell_of_the_replacement(shared, now);
            return Some(node);
        }
        let text = format!(
            "{} holds the name {name} and renews its Lease: this board writes nothing; give it another name (--hostname-override), or stop the other",
            self.who
        );
        if !tries.is_hindered() {
            shared.say(Level::Error, "name-taken", text.as_str());
        }
        tries.hindered(&text);
        self.question = Question::Node;
        self.ask_at = now.up + YIELD;
        None
    }

    /// People who look at the Node see that its board is another one (CSR-8); of a twin nobody knows that it is one.
    fn tell_of_the_replacement(&self, shared: &mut Shared, now: Now) {
        if self.who != TWIN {
            let message = format!("Node {} is this board from now on; before, it was {}", shared.node_name, self.who);
            shared.fresh_events.push((now.up, NodeEvent { warning: false, reason: "NodeReplaced", message }));
        }
    }
}

impl StatusLane {
    /// Nothing more is written before it is known whose Node this is. `node`: as it was read just now.
    pub(super) fn contest(&mut self, node: Option<Box<Node>>, shared: &mut Shared, now: Now) {
        shared.node = Ownership::Contested;
        self.base = Base::Unread;
        self.tries = Tries::of("asking whose Node this is", Duration::from_secs(1));
        // Whoever asked for patience gets it.
        let ask_at = match self.stage {
            Stage::Rest { not_before, .. } | Stage::Decide { not_before } => now.up.max(not_before),
            _ => now.up,
        };
        let mut contest = Contest { question: Question::Node, ask_at, who: TWIN.to_owned() };
        if let Some(node) = node {
            self.suspect(&mut contest, node, shared, now);
        }
        self.stage = Stage::Contest(Box::new(contest));
    }

    fn suspect(&self, contest: &mut Contest, node: Box<Node>, shared: &mut Shared, now: Now) {
        let who = self.wanted.stranger(&node).map_or_else(|| TWIN.to_owned(), |who| who.to_string());
        if !self.tries.is_hindered() {
            let text = format!(
                "Node {} was written by {who}: looking whether that one still renews its Lease",
                shared.node_name
            );
            shared.say(Level::Warn, "stranger", text);
        }
        contest.who = who;
        contest.question = Question::Lease { node, seen: None };
        contest.ask_at = now.up;
    }

    pub(super) fn contest_answered(
        &mut self,
        mut contest: Box<Contest>,
        result: Result<Document, Refusal>,
        shared: &mut Shared,
        now: Now,
    ) {
        let is_missing = result.as_ref().is_err_and(|refusal| refusal.class() == Class::Missing);
        let question = std::mem::replace(&mut contest.question, Question::Node);
        let gone = match (question, result) {
            (Question::Node, Ok(Document::Node(node))) => {
                self.suspect(&mut contest, node, shared, now);
                None
            }
            (Question::Node, Err(_)) if is_missing => return self.end_contest(None, shared, now),
            (Question::Lease { node, seen }, Ok(Document::Lease(lease))) => {
                contest.looked(node, seen, Some(lease), &mut self.tries, shared, now)
            }
            (Question::Lease { node, seen }, Err(_)) if is_missing => {
                contest.looked(node, seen, None, &mut self.tries, shared, now)
            }
            (question, Err(refusal)) => {
                contest.question = question;
                self.tries.failed(&refusal, shared, now);
                contest.ask_at = now.up + self.tries.pause().max(refusal.retry_after().min(CEILING));
                self.stage = Stage::Contest(contest);
                return;
            }
            (_, Ok(_)) => None,
        };
        self.tries.succeeded(shared, now);
        match gone {
            Some(node) => self.end_contest(Some(node), shared, now),
            None => self.stage = Stage::Contest(contest),
        }
    }

    /// The Node is ours, or there is none.
    fn end_contest(&mut self, node: Option<Box<Node>>, shared: &mut Shared, now: Now) {
        shared.node = Ownership::Unknown;
        self.tries = Tries::of(NODE_STATUS, Duration::ZERO);
        let registers = shared.settings.register_node;
        let Some(node) = node else {
            if registers && (shared.settings.reregister || !self.was_reported) {
                return self.register_again(now.up);
            }
            return self.rest(shared, now);
        };
        if registers {
            self.registered(node, shared, now);
        } else {
            self.read(node, shared, now);
        }
        self.stage = Stage::Decide { not_before: now.up };
        // What it had when it was read, the other may have changed since.
        self.base.becomes(Base::Unsure);
    }
}
