//! Turns trees of a few files into the identity of a machine: which file counts, and which lie is passed over.

use nodepulse::config::Settings;
use nodepulse::probe::facts::Why;
use nodepulse::probe::{Machine, Root, facts, last_reset, machine, report};
use nodepulse::time::Wall;

use super::Scratch;

const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef";

fn board(name: &str) -> Scratch {
    Scratch::new(&format!("identity-{name}"))
}

fn machine_of(board: &Scratch) -> Machine {
    machine(&Root::new(&board.0))
}

#[test]
fn the_system_uuid_is_that_of_smbios_else_of_the_device_tree_else_the_machine_id() {
    let board = board("uuid");
    let uuid = || machine_of(&board).system_uuid;
    assert_eq!(uuid().unwrap_err().path, "/sys/class/dmi/id/product_uuid", "the preferred place");
    board.write("etc/machine-id", format!("{MACHINE_ID}\n"));
    assert_eq!(uuid().as_deref(), Ok(MACHINE_ID));
    board.write("sys/firmware/devicetree/base/vm,uuid", "a0b1c2d3-e4f5-4607-8899-aabbccddeeff\0");
    assert_eq!(uuid().as_deref(), Ok("a0b1c2d3-e4f5-4607-8899-aabbccddeeff"), "without the link in /proc");
    board.write("proc/device-tree/vm,uuid", "1B4E28BA-2fa1-11d2-883f-0016d3cca427\0");
    assert_eq!(uuid().as_deref(), Ok("1B4E28BA-2fa1-11d2-883f-0016d3cca427"), "case kept");
    board.write("proc/device-tree/system-id", "IBM,03106FC2A\0\0");
    assert_eq!(uuid().as_deref(), Ok("IBM,03106FC2A"));
    board.write("sys/class/dmi/id/product_uuid", "03000200-0400-0500-0006-000700080009\n");
    assert_eq!(uuid().as_deref(), Ok("03000200-0400-0500-0006-000700080009"), "kept though boards share it");
}

#[test]
fn a_system_uuid_that_says_nothing_or_cannot_be_read_is_passed_over() {
    let board = board("no-uuid");
    board.write("etc/machine-id", MACHINE_ID);
    board.write("sys/class/dmi/id/product_uuid", "\n");
    board.write("proc/device-tree/system-id", "\0");
    board.write("proc/device-tree/vm,uuid/a-directory", "");
    assert_eq!(machine_of(&board).system_uuid.as_deref(), Ok(MACHINE_ID));
}

#[test]
fn strings_of_the_device_tree_end_at_their_nul_and_lists_are_split_there() {
    let board = board("nul");
    board.write("proc/device-tree/model", b"TI AM335x BeagleBone Black\0\xff\xfe old bytes");
    board.write("proc/device-tree/serial-number", b"4414BBBK0180\0\0\0\x01");
    board.write("proc/device-tree/compatible", b"ti,am335x-bone-black\0ti,am335x-bone\0ti,am33xx\0");
    let found = machine_of(&board);
    assert_eq!(found.board_model.as_deref(), Ok("TI AM335x BeagleBone Black"));
    assert_eq!(found.board_serial.as_deref(), Ok("4414BBBK0180"));
    let compatible = ["ti,am335x-bone-black", "ti,am335x-bone", "ti,am33xx"].map(str::to_owned);
    assert_eq!(found.board_compatible, Ok(compatible.to_vec()));
}

#[test]
fn each_place_of_a_serial_number_is_asked_until_one_is_of_this_board_alone() {
    let board = board("serial");
    board.write("proc/device-tree/serial-number", "0000000000000000\0");
    board.write("proc/cpuinfo", "processor : 0\n\nHardware : BCM2835\nSerial : 0000000000000000\n");
    board.write("sys/devices/soc0/serial_number", "FFFFFFFFFFFFFFFF\n");
    board.write("sys/class/dmi/id/product_serial", "To Be Filled By O.E.M.\n");
    let refused = machine_of(&board).board_serial.unwrap_err();
    assert!(matches!(refused.why, Why::Implausible(_)) && refused.path.ends_with("serial-number"), "{refused}");
    for (path, text) in [
        ("sys/class/dmi/id/board_serial", ".7XJ2Q12.CN7016319K00A5.\n"),
        ("sys/class/dmi/id/product_serial", "7XJ2Q12\n"),
        ("sys/devices/soc0/serial_number", "1A2B3C4D\n"),
        ("proc/cpuinfo", "Serial : 000000002da6cad6\n"),
        ("proc/device-tree/serial-number", "c3dd4b6bbe445e1c\0"),
    ] {
        board.write(path, text);
        let expected = text.trim_start_matches("Serial : ").trim_end_matches(['\n', '\0']);
        assert_eq!(machine_of(&board).board_serial.as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn a_device_tree_is_hidden_only_where_devices_come_from_one() {
    let board = board("masked");
    board.write("proc/device-tree/.keep", "");
    let why = || machine_of(&board).board_model.unwrap_err().why;
    assert_eq!(why(), Why::NoSuchFile, "an empty directory alone is a machine without a device tree");
    board.link("sys/bus/platform/devices/fe201000.serial", "../../../devices/platform/soc/fe201000.serial");
    board.link(
        "sys/devices/platform/soc/fe201000.serial/of_node",
        "../../../../firmware/devicetree/base/soc/serial@7e201000",
    );
    assert_eq!(why(), Why::Masked);
    board.write("proc/cpuinfo", "Hardware : BCM2835\nSerial : 100000005a3c91e7\nModel : Raspberry Pi 4 Model B\n");
    let found = machine_of(&board);
    assert_eq!(found.board_model.as_deref(), Ok("Raspberry Pi 4 Model B"), "cpuinfo is not hidden");
    assert_eq!(found.board_serial.as_deref(), Ok("100000005a3c91e7"));
    assert_eq!(found.board_compatible.unwrap_err().why, Why::Masked);
}

#[test]
fn the_mac_address_is_the_first_by_index_that_stays_with_the_board() {
    let board = board("mac");
    let interface = |name: &str, index: &str, assigned: &str, address: &str| {
        for (attribute, text) in [("ifindex", index), ("type", "1"), ("addr_assign_type", assigned)] {
            board.write(&format!("sys/class/net/{name}/{attribute}"), format!("{text}\n"));
        }
        board.write(&format!("sys/class/net/{name}/address"), format!("{address}\n"));
    };
    interface("docker0", "2", "3", "02:42:ac:1f:00:01");
    interface("eth0", "3", "1", "9a:7c:11:00:00:01");
    board.write("sys/class/net/bonding_masters", "bond0\n");
    let mac = || machine_of(&board).mac_address;
    assert_eq!(mac().unwrap_err().path, "/sys/class/net");
    interface("wlan0", "10", "0", "DC:A6:32:5C:0F:FE");
    interface("eth1", "11", "0", "dc:a6:32:5c:0f:fd");
    assert_eq!(mac().as_deref(), Ok("dc:a6:32:5c:0f:fe"));
    interface("wlan0", "10", "0", "00:00:00:00:00:00");
    assert_eq!(mac().as_deref(), Ok("dc:a6:32:5c:0f:fd"), "one without an address is passed over");
}

/// One Ethernet interface whose address stays, with the rest of its attributes.
fn interface(board: &Scratch, name: &str, index: &str, address: &str, more: &[(&str, &str)]) {
    let attributes = [("ifindex", index), ("iflink", index), ("type", "1"), ("addr_assign_type", "0")];
    for (attribute, text) in attributes.into_iter().chain([("address", address)]).chain(more.iter().copied()) {
        board.write(&format!("sys/class/net/{name}/{attribute}"), format!("{text}\n"));
    }
}

#[test]
fn a_makers_sample_on_several_interfaces_is_not_the_boards_mac_address() {
    let gateway = board("sample");
    for (index, name) in ["omci", "sw", "pon"].into_iter().enumerate() {
        interface(&gateway, name, &(index + 2).to_string(), "00:d0:d0:00:00:01", &[]);
    }
    let alone = machine_of(&gateway);
    assert_eq!(alone.mac_address.unwrap_err().why.word(), "implausible", "rather none than one of every board");
    interface(&gateway, "eth0", "9", "d0:5b:a8:12:34:56", &[]);
    let found = machine_of(&gateway);
    assert_eq!(found.mac_address.as_deref(), Ok("d0:5b:a8:12:34:56"));
    let passed_over: Vec<&str> = found.passed_over.iter().map(|one| one.value.as_str()).collect();
    assert_eq!(passed_over, ["00:d0:d0:00:00:01"], "what f9751c9 called this board");

    let unlisted = board("unlisted-sample");
    interface(&unlisted, "omci", "2", "00:aa:bb:00:00:01", &[]);
    interface(&unlisted, "pon", "3", "00:aa:bb:00:00:01", &[]);
    assert_eq!(machine_of(&unlisted).mac_address.as_deref(), Ok("00:aa:bb:00:00:01"), "for want of a better one");
    interface(&unlisted, "eth0", "9", "d0:5b:a8:12:34:56", &[]);
    assert_eq!(machine_of(&unlisted).mac_address.as_deref(), Ok("d0:5b:a8:12:34:56"));
}

#[test]
fn a_mac_address_of_hardware_that_the_ieee_sold_is_preferred() {
    let board = board("ranks");
    let mac = || machine_of(&board).mac_address;
    interface(&board, "dummy0", "2", "02:00:00:00:00:01", &[]);
    assert_eq!(mac().as_deref(), Ok("02:00:00:00:00:01"));
    interface(&board, "tap0", "3", "dc:a6:32:00:00:03", &[]);
    assert_eq!(mac().as_deref(), Ok("dc:a6:32:00:00:03"));
    interface(&board, "eth0", "4", "dc:a6:32:00:00:04", &[("device/uevent", "")]);
    assert_eq!(mac().as_deref(), Ok("dc:a6:32:00:00:04"));
    // A VLAN and the ports of a switch have their parent's address, and its way of having it.
    interface(&board, "eth0.7", "5", "dc:a6:32:00:00:04", &[("iflink", "4")]);
    interface(&board, "lan1", "6", "dc:a6:32:00:00:04", &[("iflink", "4")]);
    assert_eq!(mac().as_deref(), Ok("dc:a6:32:00:00:04"), "no interface on top of it takes it away");
    let others = machine_of(&board).passed_over;
    let refused = others.iter().filter(|one| one.refused.is_some()).count();
    assert_eq!((others.len(), refused), (2, 0), "the board has them all the same");
}

#[test]
fn an_address_of_a_switch_port_names_a_board_that_has_no_better_one() {
    let board = board("port");
    interface(&board, "eth0", "2", "9a:7c:11:00:00:01", &[("addr_assign_type", "1")]);
    interface(&board, "lan1", "3", "60:38:e0:0c:0a:13", &[("iflink", "2")]);
    assert_eq!(machine_of(&board).mac_address.as_deref(), Ok("60:38:e0:0c:0a:13"), "as 0.1.0 had it");
    interface(&board, "wlan0", "9", "60:38:e0:0c:0a:15", &[]);
    let found = machine_of(&board);
    assert_eq!(found.mac_address.as_deref(), Ok("60:38:e0:0c:0a:15"));
    assert_eq!(found.passed_over[0].value, "60:38:e0:0c:0a:13", "what f9751c9 called this board");
}

#[test]
fn what_an_earlier_version_took_is_remembered_however_many_interfaces_there_are() {
    let board = board("many-ports");
    for name in ["omci", "sw"] {
        interface(&board, name, "2", "00:aa:bb:00:00:01", &[]);
    }
    for port in 10..40 {
        interface(&board, &format!("lan{port}"), &port.to_string(), &format!("d0:5b:a8:00:00:{port}"), &[]);
    }
    let found = machine_of(&board);
    assert_eq!(found.mac_address.as_deref(), Ok("d0:5b:a8:00:00:10"));
    assert_eq!(found.passed_over[0].value, "00:aa:bb:00:00:01");
}

#[test]
fn of_too_many_interfaces_those_of_hardware_are_looked_at() {
    let board = board("many");
    for number in 0..4200 {
        board.write(&format!("sys/class/net/veth{number}/ifindex"), format!("{}\n", number + 2));
    }
    // Whatever the order is that they are listed in, this is the last.
    let listed = std::fs::read_dir(board.0.join("sys/class/net")).unwrap();
    let last = listed.last().unwrap().unwrap().file_name().into_string().unwrap();
    interface(&board, &last, "7000", "dc:a6:32:00:00:07", &[("device/uevent", "")]);
    assert_eq!(machine_of(&board).mac_address.as_deref(), Ok("dc:a6:32:00:00:07"));
}

#[test]
fn what_was_refused_and_why_is_in_the_report() {
    let board = board("refused");
    board.write("proc/cpuinfo", "processor : 0\nSerial : 1b00000000000000\n");
    board.write("sys/class/dmi/id/product_serial", "Chassis Serial Number\n");
    board.write("sys/class/dmi/id/board_serial", "BS-4711\n");
    let facts = facts(&Root::new(&board.0), &Settings::default(), None);
    assert_eq!(facts.machine.board_serial.as_deref(), Ok("BS-4711"));
    let text = report::to_text(&facts, None);
    for line in [
        "refused        /proc/cpuinfo: implausible: \"1b00000000000000\" is on every board\n",
        "refused        /sys/class/dmi/id/product_serial: implausible: \"Chassis Serial Number\" is on every board\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let json = report::to_json(&facts);
    assert_eq!(json["machine"]["passedOver"][0]["value"], "1b00000000000000", "{json}");
}

#[test]
fn a_system_uuid_of_zeros_is_passed_over() {
    let board = board("zero-uuid");
    board.write("etc/machine-id", MACHINE_ID);
    board.write("sys/class/dmi/id/product_uuid", "00000000-0000-0000-0000-000000000000\n");
    board.write("proc/device-tree/vm,uuid", "00000000-0000-0000-0000-000000000000\0");
    assert_eq!(machine_of(&board).system_uuid.as_deref(), Ok(MACHINE_ID));
}

#[test]
fn a_machine_id_that_boards_share_is_passed_over() {
    let board = board("machine-id");
    board.write("etc/machine-id", "uninitialized\n");
    let id = || machine_of(&board).machine_id;
    assert_eq!(id().unwrap_err().why.word(), "implausible");
    board.write("var/lib/dbus/machine-id", format!("{MACHINE_ID}\n"));
    for shared in ["uninitialized\n", "00000000000000000000000000000000\n", "", "\n"] {
        board.write("etc/machine-id", shared);
        assert_eq!(id().as_deref(), Ok(MACHINE_ID), "{shared:?}");
    }
}

#[test]
fn the_reason_of_the_last_reset_is_what_the_surest_of_all_watchdogs_says() {
    let board = board("reset");
    let reason = || machine_of(&board).reset_reason;
    assert_eq!(reason().unwrap_err().path, "/sys/class/watchdog");
    let watchdog =
        |number: u8, bits: &str| board.write(&format!("sys/class/watchdog/watchdog{number}/bootstatus"), bits);
    for (text, word) in [("", "no-such-file"), ("many\n", "no-such-file"), ("0\n", "empty"), ("8\n", "empty")] {
        watchdog(0, text);
        assert_eq!(reason().unwrap_err().why.word(), word, "{text:?}");
    }
    watchdog(1, "1\n");
    assert_eq!(reason().as_deref(), Ok("Overheated"));
    watchdog(2, "16\n");
    assert_eq!(reason().as_deref(), Ok("PowerLoss"));
    watchdog(10, "32\n");
    assert_eq!(reason().as_deref(), Ok("WatchdogReset"));
}

#[test]
fn a_panic_is_dated_by_the_newest_dump_of_the_kernel_wherever_it_is_kept() {
    let board = board("panic");
    let dumped_at = || last_reset(&Root::new(&board.0), &machine_of(&board)).panic_dumped_at;
    assert_eq!(dumped_at(), None);
    let dump = |path: &str, seconds: u64| {
        board.write(path, "Panic#1 Part1\n");
        let file = std::fs::File::options().write(true).open(board.0.join(path)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        dumped_at().map(Wall::unix_seconds)
    };
    assert_eq!(dump("sys/fs/pstore/console-ramoops-0", 5000), None, "the console of each boot is kept");
    assert_eq!(dump("sys/fs/pstore/dmesg-ramoops-0", 2000), Some(2000));
    assert_eq!(dump("sys/fs/pstore/dmesg-ramoops-1", 1000), Some(2000));
    assert_eq!(dump("var/lib/systemd/pstore/dmesg-efi-1.txt", 3000), Some(3000), "moved there at the boot after it");
}
