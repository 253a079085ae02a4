//! Turns a Node that was there before us into words about what of it only an administrator can mend.

use super::super::notice::Level;
use super::super::shared::Shared;
use crate::node::desired::{delete_pods_command, taint_command};
use crate::node::object::Node;
use crate::node::version::is_kubelets;

/// Each once in the life of a process.
pub(super) fn tell_what_an_administrator_must_mend(node: &Node, shared: &mut Shared) {
    let name = shared.node_name.clone();
    if let Some(command) = taint_command(node, &name, &shared.settings) {
        let text = format!("Node {name} was there before and lacks taints that a node may not set later: {command}");
        shared.say_once(Level::Warn, "taints-missing", text);
    }
    if is_kubelets(node) {
        let command = delete_pods_command(&name);
        let text =
            format!("Node {name} was a kubelet's, and pods that are still bound to it never run here: {command}");
        shared.say_once(Level::Warn, "kubelet-left", text);
    }
}
