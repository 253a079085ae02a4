//! Turns facts into who this machine is, and a stored Node and our own into "that is another machine" (D10).

use std::fmt;

use super::object::Node;
use crate::probe::{Fact, Machine};

/// Annotation with the serial number of the board that wrote the Node: the one value that cloned SD cards do not share.
pub const BOARD_SERIAL: &str = "nodepulse.dev/board-serial";

/// Annotation that says what `nodeInfo.machineID` was made from, where the machine has none.
pub const MACHINE_ID_DERIVED_FROM: &str = "nodepulse.dev/machine-id-derived-from";

/// `nodeInfo.machineID`, and what it was made from where no file has one.
///
/// Firmware without systemd has no machine-id, and tools that tell nodes apart by it would take all such boards for one.
pub(super) fn machine_id(machine: &Machine) -> Fact<(String, Option<&'static str>)> {
    let absent = match &machine.machine_id {
        Ok(id) => return Ok((id.clone(), None)),
        Err(absent) => absent,
    };
    let sources = [("board-serial", &machine.board_serial), ("mac-address", &machine.mac_address)];
    let derived = sources.into_iter().find_map(|(name, source)| Some((name, source.as_ref().ok()?)));
    let (name, source) = derived.ok_or_else(|| absent.clone())?;
    Ok((format!("{:032x}", fnv1a(source.as_bytes())), Some(name)))
}

/// FNV-1a of 128 bits: enough to tell boards apart, and the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

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
    use crate::node::samples::{self, absent};

    #[test]
    fn a_machine_without_an_id_is_told_by_its_serial_number_or_its_mac_address() {
        let mut machine = samples::facts().machine;
        assert_eq!(machine_id(&machine), Ok(("0123456789abcdef0123456789abcdef".to_owned(), None)));
        machine.machine_id = absent();
        machine.board_serial = Ok("foobar".to_owned());
        assert_eq!(machine_id(&machine), Ok(("343e1662793c64bf6f0d3597ba446f18".to_owned(), Some("board-serial"))));
        machine.board_serial = absent();
        machine.mac_address = Ok("a".to_owned());
        assert_eq!(machine_id(&machine), Ok(("d228cb696f1a8caf78912b704e4a8964".to_owned(), Some("mac-address"))));
        machine.mac_address = absent();
        assert_eq!(machine_id(&machine).unwrap_err().why.word(), "no-such-file");
    }

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
