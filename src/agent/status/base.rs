//! What is known of the Node on the server.

use crate::node::object::Node;

/// What is known of the server's Node, the base of the next report. In the first four there is none that is known to be
/// ours, and `registration.rs` says what is asked.
#[derive(Debug)]
pub(super) enum Base {
    /// As far as we know there is none: it is created.
    Missing,
    /// There may be none: it is asked for before it is created.
    Doubtful,
    /// The server says that there is one: it is read.
    Exists,
    /// It is ours, and the server tracks who wrote which of its fields, of use to nobody, and in each answer to us: it is
    /// asked to stop.
    Tracked(Box<Node>),
    /// Nothing, and it is not ours to create: it is read first.
    Unread,
    /// The server's last answer.
    Current(Box<Node>),
    /// It took a report over the version that this says, and nobody has read which one that made: the next event of the watch
    /// says so, or else the Node is read.
    Reported(Box<Node>),
    /// The same after a report in full, before which others may have written as well: it is read with the next run, unless
    /// another such report is due by then.
    Overwritten(Box<Node>),
    /// Somebody else wrote the Node since, or a report was refused: it is read first.
    Outdated(Box<Node>),
    /// A report may have been taken though nobody said so: the next one says all of the status.
    Unsure(Box<Node>),
}

impl Base {
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Base::Missing | Base::Doubtful | Base::Exists | Base::Tracked(_) | Base::Unread => None,
            Base::Current(node)
            | Base::Reported(node)
            | Base::Overwritten(node)
            | Base::Outdated(node)
            | Base::Unsure(node) => Some(node),
        }
    }

    /// Whether it is to be read before it is reported to.
    pub(super) fn is_to_be_read(&self) -> bool {
        matches!(self, Base::Overwritten(_) | Base::Outdated(_))
    }

    /// Whether there is to be a Node of ours, and there is none yet.
    pub(super) fn is_registering(&self) -> bool {
        matches!(self, Base::Missing | Base::Doubtful | Base::Exists | Base::Tracked(_))
    }

    /// The Node itself, where one is known; from then on nothing is known of it.
    pub(super) fn take(&mut self) -> Option<Box<Node>> {
        match std::mem::replace(self, Base::Unread) {
            Base::Tracked(node)
            | Base::Current(node)
            | Base::Reported(node)
            | Base::Overwritten(node)
            | Base::Outdated(node)
            | Base::Unsure(node) => Some(node),
            other => {
                *self = other;
                None
            }
        }
    }

    /// By now the watch should have said which version a report made: otherwise that is read. While no server is found, and
    /// before a report in full, it is reported over: Ready again in two requests, and read after them.
    pub(super) fn begins_run(&mut self, is_held_back: bool, in_full: bool) {
        match self {
            Base::Reported(_) if !is_held_back && !in_full => self.becomes(Base::Outdated),
            Base::Reported(_) => self.becomes(Base::Overwritten),
            Base::Outdated(_) if is_held_back => self.becomes(Base::Overwritten),
            _ => {}
        }
    }

    /// The same Node, of which something else is known now.
    pub(super) fn becomes(&mut self, known: fn(Box<Node>) -> Base) {
        if let Some(node) = self.take() {
            *self = known(node);
        }
    }
}
