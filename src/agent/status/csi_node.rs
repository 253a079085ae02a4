//! Turns "the Node is Ready and takes pods" into the one request for its CSINode (AUT-10), and the answer into whether that is
//! done. Nothing waits for it.

use std::time::Duration;

use super::super::backoff::Backoff;
use super::super::notice::Level;
use super::super::shared::{Shared, Step};
use super::{CEILING, Request, StatusLane};
use crate::api::{Class, Operation, Refusal};
use crate::node::csi_node;
use crate::time::{DAY, Now, Up};

#[derive(Debug)]
pub(super) struct CsiNode {
    /// The uid of the Node that has one.
    made_for: String,
    /// The uid of the Node of whose name there was one already: its own, or one that goes with the Node before it.
    found_for: String,
    not_before: Up,
    pause: Backoff,
}

/// Who may not make it is asked ever more rarely: each try is a kilobyte.
const FIRST_PAUSE: Duration = Duration::from_secs(300);

impl CsiNode {
    pub(super) fn new(now: Up) -> CsiNode {
        let pause = Backoff::between(FIRST_PAUSE, DAY);
        CsiNode { made_for: String::new(), found_for: String::new(), not_before: now, pause }
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
    /// any other failure is tried again in the end.
    pub(super) fn csi_node_answered(&mut self, refusal: Option<&Refusal>, shared: &mut Shared, now: Now) {
        let uid = shared.node_uid().unwrap_or_default().to_owned();
        let is_found = refusal.is_some_and(|refusal| refusal.class() == Class::Exists);
        match refusal {
            Some(refusal) if !is_found => {
                let text = format!(
                    "the CSINode of this Node cannot be made: {refusal}; the Node is Ready without it, and it is tried again"
                );
                shared.say_once(Level::Warn, "csi-node-failed", text);
                self.csi_node.not_before = now.up + self.csi_node.pause.step();
            }
            Some(_) if self.csi_node.found_for != uid => {
                self.csi_node.not_before = now.up + shared.settings.node_status_report_frequency;
                self.csi_node.found_for = uid;
            }
            _ => {
                self.csi_node.made_for = uid;
                self.csi_node.pause.reset();
            }
        }
        // Whoever asks for patience means the lane.
        let patience = refusal.map_or(Duration::ZERO, Refusal::retry_after).min(CEILING);
        self.rest_from(now.up + patience, shared, now);
    }
}
