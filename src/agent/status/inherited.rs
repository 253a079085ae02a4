//! Turns what an earlier process left in the middle of an outage into a Node that can be reported on before it was asked for.

use super::super::handover;
use super::super::world::World;
use super::{LEASE_FIRST, StatusLane};
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
}
