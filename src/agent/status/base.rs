//! What is known of the Node on the server.

use crate::node::object::Node;

/// What is known of the server's Node, the base of the next report.
#[derive(Debug)]
pub(super) enum Base {
    /// Nothing: it is read first.
    Unread,
    /// The server's last answer.
    Current(Box<Node>),
    /// Somebody else wrote the Node since, or a report was refused: it is read first.
    Outdated(Box<Node>),
    /// A report may have been taken though nobody said so: the next one says all of the status.
    Unsure(Box<Node>),
}

impl Base {
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Base::Unread => None,
            Base::Current(node) | Base::Outdated(node) | Base::Unsure(node) => Some(node),
        }
    }

    /// The Node itself; from now on nothing is known of it.
    pub(super) fn take(&mut self) -> Option<Box<Node>> {
        match std::mem::replace(self, Base::Unread) {
            Base::Unread => None,
            Base::Current(node) | Base::Outdated(node) | Base::Unsure(node) => Some(node),
        }
    }

    /// The same Node, of which something else is known now.
    pub(super) fn becomes(&mut self, known: fn(Box<Node>) -> Base) {
        if let Some(node) = self.take() {
            *self = known(node);
        }
    }
}
