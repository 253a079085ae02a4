//! Turns what an earlier process left in the middle of an outage into a Node that can be reported on before it was asked for.

use super::super::handover;
use super::super::registration::Registration;
use super::super::world::World;
use super::{LEASE_FIRST, Stage, StatusLane};
use crate::journal::record::KnownNode;
use crate::node::object::Node;
use crate::time::Now;

impl StatusLane {
    /// On from where an earlier process ended, in the middle of an outage.
    pub(super) fn go_on(&mut self, known: &KnownNode, world: &mut World, now: Now) {
        self.truth.server_version = Some(known.server_version.to_string());
        let Some(node) = self.truth.initial(world, now) else { return };
        let node = Box::new(handover::as_it_was(node, known));
        world.node_uid = Some(node.metadata.uid.clone());
        self.base = Some(node);
        self.is_inherited = true;
        self.unsure = true;
        self.held_until = now.up + LEASE_FIRST;
        self.rest(world, now);
    }

    /// What the server has of this board, and its version.
    pub(in crate::agent) fn known(&self) -> Option<(&Node, &str)> {
        self.base.as_deref().zip(self.truth.server_version.as_deref())
    }

    /// What a registration would have asked of this Node, once it is Ready or the base is not to be believed. The Node,
    /// where there is nothing to ask or nothing left to do.
    pub(super) fn reviewed(&mut self, node: Box<Node>, world: &mut World, now: Now) -> Option<Box<Node>> {
        if !std::mem::take(&mut self.is_inherited) || !world.settings.register_node {
            return Some(node);
        }
        let uid = node.metadata.uid.clone();
        let mut registration = Box::new(Registration::new(now.up));
        let node = registration.existing(node, &mut self.truth, world, now);
        if node.is_none() {
            self.base = None;
            // The Lease of our own Node need not wait for what is repaired of it.
            world.node_uid = registration.repairs().then_some(uid);
            self.stage = Stage::Register(registration);
        }
        node
    }
}
