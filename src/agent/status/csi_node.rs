//! Turns "the Node is Ready and takes pods" into the one request for its CSINode (AUT-10), and the answer into whether that is
//! done. Nothing waits for it.

use std::time::Duration;

use super::super::notice::Level;
use super::super::shared::{Shared, Step};
use super::{CEILING, Request, StatusLane};
use crate::api::{Class, Operation, Refusal};
use crate::node::csi_node;
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct CsiNode {
    /// The uid of the Node that has one.
    made_for: String,
    /// The uid of the Node of whose name there was one already: its own, or one that goes with the Node before it.
    found_for: String,
    not_before: Up,
}

impl CsiNode {
    pub(super) fn new(now: Up) -> CsiNode {
        CsiNode { made_for: String::new(), found_for: String::new(), not_before: now }
    }
}

impl StatusLane {
    /// The request, where one is due.
    pub(super) fn ask_for_csi_node(&mut self, shared: &Shared, now: Now) -> Option<Step> {
        let uid = shared.node_uid().filter(|_| !shared.settings.podless && self.is_ready())?;
        if uid == self.csi_node.made_for || now.up < self.csi_node.not_before {
            return None;
        }
        let body = csi_node::create_body(&shared.node_name, uid);
        Some(self.ask(Request::CsiNode, Operation::CreateCsiNode { body }))
    }

    /// Takes the answer. What was found is asked for once more, when a Node before it is certain to have taken its own along;
    /// any other failure is tried again with a later report.
    pub(super) fn csi_node_answered(&mut self, refusal: Option<&Refusal>, shared: &mut Shared, now: Now) {
        let uid = shared.node_uid().unwrap_or_default().to_owned();
        let is_found = refusal.is_some_and(|refusal| refusal.class() == Class::Exists);
        let later = now.up + shared.settings.node_status_report_frequency;
        match refusal {
            Some(refusal) if !is_found => {
                let text = format!(
                    "the CSINode of this Node cannot be made: {refusal}; the Node is Ready without it, and it is tried again"
                );
                shared.say_once(Level::Warn, "csi-node-failed", text);
                self.csi_node.not_before = later;
            }
            Some(_) if self.csi_node.found_for != uid => {
                self.csi_node.not_before = later;
                self.csi_node.found_for = uid;
            }
            _ => self.csi_node.made_for = uid,
        }
        // Whoever asks for patience means the lane.
        let patience = refusal.map_or(Duration::ZERO, Refusal::retry_after).min(CEILING);
        self.rest_from(now.up + patience, shared, now);
    }
}
