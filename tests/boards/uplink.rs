//! Turns the counters of network interfaces into how well a board is connected: flaps, speeds, errors, a modem, and the lies.

use std::time::Duration;

use nodepulse::probe::facts::Uplink;
use nodepulse::probe::{HealthFiles, Root};
use nodepulse::time::Up;

use super::Scratch;

/// A board, looked at every ten seconds, from its eleventh minute on.
struct Looked {
    board: Scratch,
    files: HealthFiles,
    seconds: u64,
}

impl Looked {
    /// With `eth0` and the default route through it.
    fn new(name: &str) -> Looked {
        let board = Scratch::new(name);
        let files = HealthFiles::new(&Root::new(&board.0));
        let looked = Looked { board, files, seconds: 660 };
        looked.interface("eth0", 2);
        looked.route(&[("eth0", 100)]);
        looked
    }

    fn interface(&self, name: &str, carrier_changes: u64) {
        self.set(name, "carrier_changes", carrier_changes);
        self.set(name, "uevent", format!("INTERFACE={name}\nIFINDEX=2"));
    }

    fn set(&self, interface: &str, attribute: &str, says: impl std::fmt::Display) {
        self.board.write(&format!("sys/class/net/{interface}/{attribute}"), format!("{says}\n"));
    }

    /// Default routes, with their metrics.
    fn route(&self, routes: &[(&str, u32)]) {
        let line = |(name, metric): &(&str, u32)| {
            let gateway = u32::from_ne_bytes([192, 0, 2, 1]);
            format!("{name}\t00000000\t{gateway:08X}\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0\n")
        };
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n".to_owned();
        self.board.write("proc/net/route", head + &routes.iter().map(line).collect::<String>());
    }

    /// What the last of the looks of so many minutes says.
    fn after(&mut self, minutes: u64) -> Option<Result<Uplink, &'static str>> {
        let mut said = None;
        for _ in 0..minutes * 6 {
            said = self.files.read(Up::since_boot(Duration::from_secs(self.seconds))).uplink;
            self.seconds += 10;
        }
        said.map(|fact| fact.map_err(|absent| absent.why.word()))
    }

    fn uplink(&mut self, minutes: u64) -> Uplink {
        self.after(minutes).unwrap().unwrap()
    }

    fn flaps(&mut self, minutes: u64) -> u64 {
        self.uplink(minutes).history.carrier_changes
    }
}

#[test]
fn changes_of_the_carrier_are_counted_for_ten_minutes() {
    let mut looked = Looked::new("uplink-flaps");
    assert_eq!(looked.uplink(1), Uplink { interface: "eth0".to_owned(), ..Uplink::default() }, "two of the boot");
    for (changes, counted) in [(4, 2), (4, 2), (10, 8), (12, 10)] {
        looked.set("eth0", "carrier_changes", changes);
        assert_eq!(looked.flaps(1), counted, "{changes}");
    }
    assert_eq!([looked.flaps(6), looked.flaps(1), looked.flaps(2)], [10, 8, 2], "the oldest are forgotten first");
    assert_eq!(looked.flaps(1), 0);
}

#[test]
fn a_link_that_comes_and_goes_is_known_by_its_flaps_also_while_there_is_no_route() {
    let mut looked = Looked::new("uplink-unrouted");
    looked.flaps(1);
    for changes in [3, 4, 5, 6] {
        looked.set("eth0", "carrier_changes", changes);
        looked.route(if changes % 2 == 1 { &[] } else { &[("eth0", 100)] });
        looked.flaps(1);
    }
    assert_eq!(looked.flaps(1), 4);
    // Another interface is in use meanwhile.
    looked.interface("wlan0", 7);
    looked.set("eth0", "carrier_changes", 7);
    looked.route(&[("wlan0", 600)]);
    let uplink = looked.uplink(1);
    assert_eq!(
        (uplink.interface.as_str(), uplink.history.carrier_changes, uplink.history.moved_from),
        ("wlan0", 5, None)
    );
}

#[test]
fn what_a_boot_and_a_device_that_was_plugged_in_again_do_is_of_no_account() {
    let mut looked = Looked::new("uplink-boot");
    looked.seconds = 5;
    looked.flaps(1);
    looked.set("eth0", "carrier_changes", 12);
    assert_eq!(looked.flaps(1), 0, "a boot");
    looked.set("eth0", "speed", 1000);
    assert_eq!(looked.uplink(10).history.fastest_mbps, Some(1000));
    // Its counter begins anew, and another adapter may have another speed.
    looked.set("eth0", "carrier_changes", 1);
    looked.set("eth0", "speed", 100);
    let uplink = looked.uplink(1);
    assert_eq!((uplink.history.carrier_changes, uplink.history.fastest_mbps), (0, Some(100)));
    looked.set("eth0", "carrier_changes", 7);
    assert_eq!(looked.flaps(1), 0, "it settles");
    looked.flaps(1);
    looked.set("eth0", "carrier_changes", 9);
    assert_eq!(looked.flaps(1), 2);
}

#[test]
fn speed_and_errors_are_those_of_ten_minutes_and_lies_are_none() {
    let mut looked = Looked::new("uplink-speed");
    looked.set("eth0", "speed", 1000);
    for name in ["rx_errors", "tx_errors", "rx_packets", "tx_packets"] {
        looked.set("eth0", &format!("statistics/{name}"), 4_000_000_000_u64);
    }
    let uplink = looked.uplink(1);
    assert_eq!(
        (uplink.speed_mbps, uplink.history.errors, uplink.history.packets),
        (Some(1000), 0, 0),
        "of before nothing is known"
    );
    looked.set("eth0", "speed", 100);
    looked.set("eth0", "statistics/rx_errors", 4_000_000_120_u64);
    looked.set("eth0", "statistics/tx_packets", 4_000_006_000_u64);
    assert_eq!(looked.uplink(8).history.errors, 0);
    let uplink = looked.uplink(2);
    assert_eq!((uplink.speed_mbps, uplink.history.fastest_mbps), (Some(100), Some(1000)));
    assert_eq!((uplink.history.errors, uplink.history.packets), (120, 6000));
    // A driver with 32 bits begins anew.
    looked.set("eth0", "statistics/rx_errors", 3);
    for unknown in ["-1", "65535", "4294967295", "0", "fast"] {
        looked.set("eth0", "speed", unknown);
        let uplink = looked.uplink(11);
        assert_eq!(
            (uplink.speed_mbps, uplink.history.fastest_mbps, uplink.history.errors),
            (None, Some(1000), 0),
            "{unknown}"
        );
    }
}

#[test]
fn numbers_that_no_driver_counts_to_do_no_harm() {
    let mut looked = Looked::new("uplink-absurd");
    looked.interface("wlan0", 0);
    looked.route(&[("wlan0", 1)]);
    looked.flaps(10);
    looked.route(&[("eth0", 1)]);
    for name in ["rx_errors", "tx_errors", "rx_packets", "tx_packets"] {
        looked.set("eth0", &format!("statistics/{name}"), 0);
    }
    looked.flaps(10);
    for name in ["rx_errors", "tx_errors", "rx_packets", "tx_packets"] {
        looked.set("eth0", &format!("statistics/{name}"), i64::MAX);
    }
    looked.set("eth0", "carrier_changes", i64::MAX);
    looked.set("wlan0", "carrier_changes", i64::MAX);
    let past = looked.uplink(10).history;
    let twice = 2 * i64::MAX as u64;
    assert_eq!((past.carrier_changes, past.errors, past.packets), (twice - 2, twice, twice));
}

#[test]
fn a_default_route_that_moved_to_a_modem_is_told_until_it_moves_back_and_one_that_was_there_never() {
    let mut looked = Looked::new("uplink-modem");
    looked.interface("wwan0", 0);
    looked.set("wwan0", "uevent", "DEVTYPE=wwan\nINTERFACE=wwan0");
    looked.route(&[("wwan0", 700), ("eth0", 100)]);
    assert_eq!(looked.uplink(1).interface, "eth0", "the lower metric");
    looked.route(&[("wwan0", 700)]);
    let uplink = looked.uplink(11);
    assert_eq!((uplink.interface.as_str(), uplink.history.moved_from.as_deref()), ("wwan0", Some("eth0")));
    looked.route(&[("wwan0", 700), ("eth0", 100)]);
    let uplink = looked.uplink(11);
    assert_eq!((uplink.interface.as_str(), uplink.history.moved_from), ("eth0", None));
    let mut looked = Looked::new("uplink-modem-alone");
    looked.interface("wwan0", 0);
    looked.set("wwan0", "uevent", "DEVTYPE=wwan\nINTERFACE=wwan0");
    looked.route(&[("wwan0", 700)]);
    assert_eq!(looked.uplink(20).history.moved_from, None);
}

#[test]
fn the_signal_of_wifi_is_in_dbm_whatever_its_driver_says() {
    let mut looked = Looked::new("uplink-signal");
    let head = "Inter-| sta-|   Quality        |\n face | tus | link level noise |\n";
    looked.set("eth0", "wireless/link", 70);
    let mut of = |line: &str| {
        looked.board.write("proc/net/wireless", format!("{head}{line}"));
        looked.uplink(1).signal_dbm
    };
    assert_eq!(of(" eth0: 0000   70.  -40.  -256        0      0      0      0      0        0\n"), Some(-40));
    assert_eq!(of("  eth0: 0000   20.  -83   -256  0 0 0 0 0 0\n"), Some(-83));
    assert_eq!(of(" eth0: 0000   95.   95.     0.  0 0 0 0 0 0\n"), Some(-53), "percent");
    for none in [
        "",
        " eth0: 0000   0.  -256.  -256  0 0 0 0 0 0\n",
        " eth1: 0000   70.  -40.  -256  0 0 0 0 0 0\n",
        " eth0: 0000\n",
        " eth0: 0000  70.  loud\n",
    ] {
        assert_eq!(of(none), None, "{none:?}");
    }
}

#[test]
fn what_is_below_a_bridge_counts_with_it_and_what_a_program_made_does_not() {
    let mut looked = Looked::new("uplink-bridge");
    looked.interface("br0", 0);
    looked.route(&[("br0", 0)]);
    for name in ["eth0", "veth7"] {
        looked.board.write(&format!("sys/class/net/br0/lower_{name}/ifindex"), "1\n");
    }
    looked.set("eth0", "device/uevent", "DRIVER=bcmgenet");
    looked.interface("veth7", 1);
    looked.flaps(1);
    looked.set("eth0", "carrier_changes", 5);
    looked.set("veth7", "carrier_changes", 99);
    let uplink = looked.uplink(1);
    assert_eq!((uplink.interface.as_str(), uplink.history.carrier_changes), ("br0", 3));
}

#[test]
fn of_too_many_ports_below_a_bridge_the_bridge_itself_is_still_watched() {
    let mut looked = Looked::new("uplink-ports");
    looked.interface("br0", 0);
    looked.route(&[("br0", 0)]);
    for port in 0..100 {
        let name = format!("lan{port}");
        looked.interface(&name, 1);
        looked.set(&name, "device/uevent", "");
        looked.board.write(&format!("sys/class/net/br0/lower_{name}/ifindex"), "1\n");
    }
    looked.flaps(20);
    looked.set("br0", "carrier_changes", 4);
    assert_eq!(looked.flaps(1), 4);
}

#[test]
fn a_board_without_a_default_route_or_a_kernel_that_does_not_count_has_no_uplink() {
    let mut looked = Looked::new("uplink-none");
    looked.route(&[]);
    assert_eq!(looked.after(2), None);
    looked.route(&[("eth9", 0)]);
    assert_eq!(looked.after(10), None, "Linux before 3.15");
    looked.route(&[("eth0", 0)]);
    assert_eq!(looked.uplink(10).interface, "eth0", "once there is one");
    // A route may lead through what says nothing any more.
    looked.route(&[("eth9", 0)]);
    assert_eq!(looked.after(11), Some(Err("no-such-file")));
}
