//! Turns a stored Node and our own into "that is another machine" (D10).

use std::fmt;

use super::object::Node;

/// Annotation with the serial number of the board that wrote the Node: the one value that cloned SD cards do not share.
pub const BOARD_SERIAL: &str = "nodepulse.dev/board-serial";

/// Another machine that wrote the Node of our name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    what: &'static str,
    theirs: String,
    ours: String,
}

/// The machine that wrote `stored`, if it is not the one that would write `mine`. Values that either side does not
/// know prove nothing.
pub fn stranger(stored: &Node, mine: &Node) -> Option<Stranger> {
    let serial = |node: &Node| node.metadata.annotations.get(BOARD_SERIAL).cloned().unwrap_or_default();
    let machine_id = |node: &Node| node.status.node_info.machine_id.clone();
    let differs = |what, theirs: String, ours: String| {
        (!theirs.is_empty() && !ours.is_empty() && theirs != ours).then_some(Stranger { what, theirs, ours })
    };
    differs("serial number", serial(stored), serial(mine))
        .or_else(|| differs("machine-id", machine_id(stored), machine_id(mine)))
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another machine ({} {}, ours is {})", self.what, self.theirs, self.ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(machine_id: &str, serial: Option<&str>) -> Node {
        let mut node = Node::default();
        node.status.node_info.machine_id = machine_id.to_owned();
        if let Some(serial) = serial {
            node.metadata.annotations.insert(BOARD_SERIAL.to_owned(), serial.to_owned());
        }
        node
    }

    #[test]
    fn a_cloned_card_is_told_by_the_serial_number() {
        let found = stranger(&node("same", Some("1000")), &node("same", Some("2000"))).unwrap();
        assert_eq!(found.to_string(), "another machine (serial number 1000, ours is 2000)");
    }

    #[test]
    fn another_machine_id_is_another_machine() {
        assert!(stranger(&node("theirs", None), &node("ours", Some("2000"))).is_some());
    }

    #[test]
    fn what_nobody_knows_proves_nothing() {
        assert_eq!(stranger(&node("", None), &node("ours", Some("2000"))), None);
        assert_eq!(stranger(&node("same", Some("1")), &node("same", None)), None);
    }
}
