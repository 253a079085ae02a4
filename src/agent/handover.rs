//! Turns what the server has of this board into a record when an outage begins, and that record into where a process goes
//! on that starts in the middle of it.
//!
//! Such a process needs no answer before it renews and reports, so the Node is Ready in two requests as if none had been
//! killed. It goes on only in the same boot: after another, this may be another board with a copy of the card (D10). And only
//! if nobody has renewed the Lease since, which its first renewal asks the server to check: a card that has gone read-only
//! keeps the record of an outage that was over long ago.

use super::memory::Memory;
use crate::journal::record::KnownNode;
use crate::journal::{Happened, Record, Status};
use crate::node::condition::{self, OWN};
use crate::node::object::Node;
use crate::time::Wall;

/// What the Lease lane knows of the Lease on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownLease {
    /// resourceVersion that the last acknowledged renewal gave it.
    pub(super) version: u64,
    /// Newest renewTime that the server may hold.
    pub(super) renewed: Wall,
    pub(super) duration_seconds: u32,
}

/// What there is to leave to the next process; `None` where it is less than that one would need.
pub(super) fn known(base: &Node, server_version: &str, lease: KnownLease) -> Option<KnownNode> {
    let mut conditions = [(Status::Unknown, lease.renewed); OWN.len()];
    for (kind, known) in OWN.into_iter().zip(&mut conditions) {
        let stored = base.status.conditions.iter().find(|stored| stored.kind == kind)?;
        let status = Status::parse(&stored.status).filter(|status| *status != Status::Unknown);
        let status = status.or_else(|| condition::given(stored))?;
        *known = (status, stored.last_transition_time.as_deref().and_then(Wall::parse_stamp)?);
    }
    Some(KnownNode {
        uid: base.metadata.uid.as_str().try_into().ok()?,
        server_version: server_version.try_into().ok()?,
        lease_version: lease.version,
        renewed: lease.renewed,
        lease_duration_seconds: lease.duration_seconds,
        conditions,
    })
}

/// The record that says it, if there is one.
pub(super) fn left(memory: &Memory) -> Option<&Record> {
    memory.waiting().filter(|record| matches!(record.what, Happened::NodeKnown(_))).last()
}

/// Whether two say the same of the Node. Renewals that found no server do not count.
pub(super) fn is_same_node(one: &KnownNode, other: &KnownNode) -> bool {
    *one == KnownNode { renewed: one.renewed, ..other.clone() }
}

/// The Node as the server had it: `node`, which is as it should be now, with the conditions of then.
pub(super) fn as_it_was(mut node: Node, known: &KnownNode) -> Node {
    node.metadata.uid = known.uid.to_string();
    for (kind, (status, since)) in OWN.into_iter().zip(known.conditions) {
        let Some(condition) = node.status.conditions.iter_mut().find(|own| own.kind == kind) else { continue };
        if condition.status != status.word() {
            condition.status = status.word().to_owned();
            condition.reason = condition::reason(kind, status).to_owned();
            condition.message.clear();
        }
        condition.last_transition_time = Some(since.to_seconds_stamp());
    }
    node
}
