//! Turns trees of a few files into interfaces and addresses: whose address it is, and which is the Node's.

use nodepulse::config::Settings;
use nodepulse::probe::{Root, network};

use super::Scratch;

/// Words of the routing table are in the byte order of this machine.
fn word(ip: [u8; 4]) -> String {
    format!("{:08X}", u32::from_ne_bytes(ip))
}

/// A route that is up; its gateway and network, which is the default one without a mask.
fn route(interface: &str, network: [u8; 4], mask: [u8; 4], gateway: [u8; 4], metric: u32) -> String {
    let flags = if gateway == [0; 4] { "0001" } else { "0003" };
    let (network, gateway, mask) = (word(network), word(gateway), word(mask));
    format!("{interface}\t{network}\t{gateway}\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")
}

fn local(addresses: &[&str]) -> String {
    let leaves = addresses.iter().map(|ip| format!("     |-- {ip}\n        /32 host LOCAL\n"));
    format!("Local:\n  +-- 0.0.0.0/0 3 0 5\n{}", leaves.collect::<String>())
}

/// InternalIP of a board with these routes and addresses.
fn internal_ip(name: &str, routes: &str, addresses: &[&str]) -> serde_json::Value {
    let board = Scratch::new(&format!("network-{name}"));
    board.write("proc/sys/kernel/hostname", "edge-1\n");
    board.write("proc/net/route", routes);
    board.write("proc/net/fib_trie", local(addresses));
    for (index, interface) in ["lo", "eth0", "flannel.1", "ppp0"].into_iter().enumerate() {
        board.write(&format!("sys/class/net/{interface}/ifindex"), format!("{}\n", index + 1));
        board.write(&format!("sys/class/net/{interface}/flags"), "0x1003\n");
        board.write(&format!("sys/class/net/{interface}/operstate"), "up\n");
    }
    let node = super::node(nodepulse::probe::facts(&Root::new(&board.0), &Settings::default(), None));
    node["node"]["status"]["addresses"][0]["address"].clone()
}

const DEFAULT: [u8; 4] = [0; 4];
const CLASS_C: [u8; 4] = [255, 255, 255, 0];
const CLASS_B: [u8; 4] = [255, 255, 0, 0];

#[test]
fn an_address_that_no_connected_route_covers_loses_against_one_that_is_covered() {
    // A node of flannel: its own address is on flannel.1, which only routes to other nodes' networks lead to.
    let flannel = route("eth0", DEFAULT, DEFAULT, [10, 6, 3, 1], 100)
        + &route("eth0", [10, 6, 3, 0], CLASS_C, DEFAULT, 100)
        + &route("flannel.1", [10, 1, 7, 0], CLASS_C, [10, 1, 7, 0], 0);
    assert_eq!(internal_ip("flannel", &flannel, &["10.1.84.0", "10.6.3.201"]), "10.6.3.201");
    assert_eq!(internal_ip("flannel-last", &flannel, &["10.6.3.201", "172.31.0.1"]), "10.6.3.201");
    let whole = route("eth0", DEFAULT, DEFAULT, [10, 1, 3, 1], 100)
        + &route("eth0", [10, 1, 0, 0], CLASS_B, DEFAULT, 100)
        + &route("flannel.1", [10, 1, 84, 0], CLASS_C, DEFAULT, 0);
    assert_eq!(internal_ip("nested", &whole, &["10.1.84.0", "10.1.3.201"]), "10.1.3.201");
}

#[test]
fn an_address_without_a_network_is_that_of_a_modem_and_the_nodes_only_where_there_is_no_other() {
    let modem = route("ppp0", DEFAULT, DEFAULT, DEFAULT, 0) + &route("ppp0", [10, 64, 64, 64], [255; 4], DEFAULT, 0);
    assert_eq!(internal_ip("ppp", &modem, &["100.72.3.9"]), "100.72.3.9");
    let both = route("eth0", DEFAULT, DEFAULT, [10, 6, 3, 1], 100)
        + &route("ppp0", DEFAULT, DEFAULT, DEFAULT, 700)
        + &route("eth0", [10, 6, 3, 0], CLASS_C, DEFAULT, 100);
    assert_eq!(internal_ip("both", &both, &["10.6.3.201", "100.72.3.9"]), "10.6.3.201");
    assert_eq!(internal_ip("cable-without", &both, &["100.72.3.9"]), "100.72.3.9");
}

#[test]
fn of_too_many_interfaces_those_with_addresses_and_default_routes_stay() {
    let board = Scratch::new("network-many");
    for number in 0..4500 {
        board.write(&format!("sys/class/net/veth{number}/ifindex"), format!("{}\n", number + 10));
    }
    let named = ["lo", "eth0", "wwan0", "br0"];
    for (index, interface) in named.into_iter().enumerate() {
        board.write(&format!("sys/class/net/{interface}/ifindex"), format!("{}\n", 5000 + index));
    }
    let routes = route("wwan0", DEFAULT, DEFAULT, DEFAULT, 700) + &route("eth0", [10, 6, 3, 0], CLASS_C, DEFAULT, 0);
    board.write("proc/net/route", routes);
    board.write("proc/net/fib_trie", local(&["10.6.3.201"]));
    board.write("proc/net/if_inet6", "20010db8000000000000000000000043 02 40 00 80      br0\n");
    let found = network(&Root::new(&board.0));
    assert_eq!(found.interfaces.len(), 4096);
    let last: Vec<&str> = found.interfaces.iter().rev().take(4).map(|one| one.name.as_str()).collect();
    assert_eq!(last, ["br0", "wwan0", "eth0", "lo"]);
    let ethernet = found.interfaces.iter().find(|one| one.name == "eth0").unwrap();
    assert_eq!(ethernet.addresses.len(), 1);
}
