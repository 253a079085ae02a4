//! Turns answers that say which version of the Node there is, and no more, into what is believed of it: those to assertions,
//! and to all that is asked of a Node which is too large to be read (D4). That one is reported over what was sent last, and
//! once a day it is tried again whether it can be read.

use super::super::notice::Level;
use super::super::shared::Shared;
use super::base::Base;
use super::{Request, StatusLane};
use crate::api::{Document, Operation, Refusal};
use crate::node::object::{Metadata, Node};
use crate::time::Now;

impl StatusLane {
    /// `is_known`: nobody has written it since the server's last answer.
    pub(super) fn asserted(&mut self, is_known: bool, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        self.assert_due = now.up + shared.settings.status_assert_frequency;
        if is_known {
            self.doubts_node = false;
            self.rest(shared, now);
        } else {
            shared.say(Level::Debug, "node-changed", "somebody else wrote the Node: reading it");
            self.base.becomes(Base::Outdated);
        }
    }

    /// How to ask for the Node.
    pub(super) fn read_operation(&self, heartbeat: bool) -> Operation {
        if self.is_large { Operation::ReadMetadata } else { Operation::ReadNode { heartbeat } }
    }

    /// Whether it is found out by this refusal: from now on less is asked for.
    pub(super) fn is_found_large(&mut self, request: &Request, refusal: &Refusal, shared: &mut Shared) -> bool {
        if self.is_large || !refusal.is_too_long() || !matches!(request, Request::Read | Request::Report { .. }) {
            return false;
        }
        shared.say_that_it_is_large();
        // A PATCH was done, and what came of it nobody knows.
        self.is_large = true;
        self.base.becomes(Base::Outdated);
        true
    }

    /// Where a Node was wanted and its metadata came, as much of it as is known.
    pub(super) fn with_what_is_known(&mut self, request: &Request, document: Document, shared: &Shared) -> Document {
        match (request, document) {
            (Request::Read, Document::Metadata { uid, resource_version, .. }) => {
                let known = self.base.take().filter(|base| base.metadata.uid == uid);
                let mut node = known.unwrap_or_else(|| Box::new(nothing_but(&shared.node_name, uid)));
                node.metadata.resource_version = resource_version;
                self.is_large = true;
                Document::Node(node)
            }
            (_, document) => document,
        }
    }

    /// A report was taken, and what came of it is what was sent.
    pub(super) fn reported_too_large(
        &mut self,
        mut sent: Box<Node>,
        (uid, resource_version): (String, String),
        shared: &mut Shared,
        now: Now,
    ) {
        if sent.metadata.uid != uid {
            // Somebody made it anew meanwhile: of that one nothing is known, and what a watch says of it is no reason to report
            // over what was.
            self.base = Base::Unread;
            return;
        }
        sent.metadata.resource_version = resource_version;
        self.reported(sent, shared, now);
    }
}

fn nothing_but(name: &str, uid: String) -> Node {
    Node { metadata: Metadata { name: name.to_owned(), uid, ..Metadata::default() }, ..Node::default() }
}
