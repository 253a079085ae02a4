//! Turns facts into which board this is, and a stored Node into "another board wrote that" (D10).

use super::object::Node;
use crate::config::text_map::TextMap;
use crate::probe::{Fact, Machine};

/// Annotation with the serial number of the board that wrote the Node last: cloned SD cards do not share it.
pub const BOARD_SERIAL: &str = "nodepulse.dev/board-serial";

/// The same with its MAC address, which boards differ in that have no serial number, or all the same.
pub const BOARD_MAC: &str = "nodepulse.dev/board-mac";

/// Annotation that says what `nodeInfo.machineID` was made from, where the machine has none.
pub const MACHINE_ID_DERIVED_FROM: &str = "nodepulse.dev/machine-id-derived-from";

/// The annotations that say which board it is.
pub(super) const ANNOTATIONS: [&str; 3] = [BOARD_SERIAL, BOARD_MAC, MACHINE_ID_DERIVED_FROM];

/// Those of [`ANNOTATIONS`] that this board has.
pub(super) fn annotations(machine: &Machine) -> TextMap<String> {
    let derived = machine_id(machine).ok().and_then(|(_, source)| source).map(str::to_owned);
    let values = [machine.board_serial.clone().ok(), machine.mac_address.clone().ok(), derived];
    ANNOTATIONS.into_iter().zip(values).filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

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
    Ok((derived_id(source), Some(name)))
}

/// FNV-1a of 128 bits: enough to tell boards apart, and the same in every version of this program.
fn derived_id(source: &str) -> String {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = source.bytes().fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

/// The board that wrote `stored`, for people, if it is not this one. Values that either side does not know prove nothing, and
/// whatever an earlier version may have called this board is its name as well.
pub fn another_board(stored: &Node, machine: &Machine) -> Option<String> {
    let own = || [&machine.board_serial, &machine.mac_address].into_iter().flatten();
    let names = || own().chain(machine.passed_over.iter().map(|one| &one.value));
    let differs = |what: &str, theirs: &str, ours: Option<&String>, is_ours: bool| {
        let ours = ours.filter(|_| !theirs.is_empty() && !is_ours)?;
        Some(format!("another board ({what} {theirs}, ours is {ours})"))
    };
    let annotated = |what, key, ours: &Fact<String>| {
        let theirs = stored.metadata.annotations.get(key).map_or("", String::as_str);
        differs(what, theirs, ours.as_ref().ok(), names().any(|name| name == theirs))
    };
    let machine_id = || {
        let theirs = stored.status.node_info.machine_id.as_str();
        let ours = machine_id(machine).ok().map(|(id, _)| id);
        let is_ours = ours.as_deref() == Some(theirs) || names().any(|name| derived_id(name) == theirs);
        differs("machine-id", theirs, ours.as_ref(), is_ours)
    };
    annotated("serial number", BOARD_SERIAL, &machine.board_serial)
        .or_else(|| annotated("MAC address", BOARD_MAC, &machine.mac_address))
        .or_else(machine_id)
}

/// Whether nothing is known of the board by which it could be told from another one.
pub fn has_no_id(machine: &Machine) -> bool {
    machine_id(machine).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::samples::{self, absent};
    use crate::probe::facts::PassedOver;

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

    fn node(machine_id: &str, annotations: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.status.node_info.machine_id = machine_id.to_owned();
        let owned = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        node.metadata.annotations = owned.collect();
        node
    }

    /// With the machine-id `same`.
    fn board(serial: Option<&str>, mac: Option<&str>) -> Machine {
        let fact = |value: Option<&str>| value.map(str::to_owned).ok_or_else(|| absent::<String>().unwrap_err());
        let machine_id = fact(Some("same"));
        Machine { machine_id, board_serial: fact(serial), mac_address: fact(mac), ..samples::facts().machine }
    }

    #[test]
    fn a_cloned_card_is_told_by_the_serial_number_or_else_the_mac_address() {
        let serial = another_board(&node("same", &[(BOARD_SERIAL, "1000")]), &board(Some("2000"), None)).unwrap();
        assert_eq!(serial, "another board (serial number 1000, ours is 2000)");
        let stored = node("same", &[(BOARD_SERIAL, "1000"), (BOARD_MAC, "aa")]);
        let mac = another_board(&stored, &board(Some("1000"), Some("bb"))).unwrap();
        assert_eq!(mac, "another board (MAC address aa, ours is bb)");
        assert_eq!(another_board(&stored, &board(Some("1000"), Some("aa"))), None);
    }

    #[test]
    fn another_machine_id_is_another_machine() {
        assert!(another_board(&node("theirs", &[]), &board(Some("2000"), None)).is_some());
        assert!(another_board(&node("theirs", &[(BOARD_SERIAL, "2000")]), &board(Some("2000"), None)).is_some());
    }

    #[test]
    fn what_nobody_knows_proves_nothing() {
        assert_eq!(another_board(&node("", &[]), &board(Some("2000"), Some("aa"))), None);
        assert_eq!(another_board(&node("same", &[(BOARD_SERIAL, "1"), (BOARD_MAC, "aa")]), &board(None, None)), None);
        let mut nameless = board(None, None);
        assert!(!has_no_id(&nameless));
        nameless.machine_id = absent();
        assert!(has_no_id(&nameless));
        assert_eq!(another_board(&node("theirs", &[(BOARD_SERIAL, "1")]), &nameless), None);
    }

    #[test]
    fn whatever_an_earlier_version_called_the_board_is_its_name() {
        let mut now = board(Some("BS-4711"), Some("d0:5b:a8:12:34:56"));
        let before = ["1b00000000000000", "00:d0:d0:00:00:01"]
            .map(|value| PassedOver { value: value.to_owned(), refused: None });
        now.passed_over = before.to_vec();
        let by_serial = node(&derived_id("1b00000000000000"), &[(BOARD_SERIAL, "1b00000000000000")]);
        let by_mac = node(&derived_id("00:d0:d0:00:00:01"), &[]);
        now.machine_id = absent();
        for stored in [by_serial, by_mac] {
            assert_eq!(another_board(&stored, &now), None, "{stored:?}");
            let another = board(Some("BS-4712"), Some("d0:5b:a8:12:34:57"));
            assert!(another_board(&stored, &another).is_some());
        }
    }
}
