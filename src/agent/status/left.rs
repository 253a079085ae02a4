//! Turns a Node that was there before us into words about what of it only an administrator can mend.

use super::super::notice::Level;
use super::super::shared::Shared;
use super::StatusLane;
use crate::node::desired::{delete_pods_command, taint_command};
use crate::node::object::Node;
use crate::node::version::is_kubelets;

impl StatusLane {
    /// Once in the life of a process.
    pub(super) fn tell_what_is_left(&mut self, node: &Node, shared: &mut Shared) {
        if std::mem::replace(&mut self.told_what_is_left, true) {
            return;
        }
        let name = &shared.node_name;
        let taints = taint_command(node, name, &shared.settings).map(|command| {
            format!("Node {name} was there before and lacks taints that a node may not set later: {command}")
        });
        let pods = is_kubelets(node).then(|| {
            let command = delete_pods_command(name);
            format!("Node {name} was a kubelet's, and pods that are still bound to it never run here: {command}")
        });
        for (word, text) in [("taints-missing", taints), ("kubelet-left", pods)] {
            if let Some(text) = text {
                shared.say(Level::Warning, word, text);
            }
        }
    }
}
