//! Turns the addresses that the kernel reports now into those the Node is made from, and two looks at the network into which
//! connections still work.
//!
//! procfs names interfaces, routes and the state of IPv6 addresses, but no IPv4 address; `getifaddrs` names every
//! address, but not which IPv6 address is tentative or temporary. Both together are whole.

use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress as Reported, getifaddrs};
use nix::net::if_::InterfaceFlags;

use crate::config::text_map::TextMap;
use crate::probe::facts::{Interface, InterfaceAddress};
use crate::probe::{Network, within_limit};

/// `files` (as `probe` reads procfs) with live interfaces and addresses; as it is where the kernel reports none.
pub fn with_live_addresses(files: Network) -> Network {
    match getifaddrs() {
        Ok(reported) => merge(files, reported),
        Err(_) => files,
    }
}

fn merge(files: Network, reported: impl Iterator<Item = Reported>) -> Network {
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut places = TextMap::new();
    for entry in reported {
        let place = places.get(&entry.interface_name).copied().unwrap_or(interfaces.len());
        if place == interfaces.len() {
            places.insert(entry.interface_name.clone(), place);
            interfaces.push(described(&entry));
        }
        if let (Some(ip), Some(interface)) = (address_of(&entry), interfaces.get_mut(place)) {
            interface.addresses.push(with_state(ip, &files));
        }
    }
    let matters = |one: &Interface| {
        !one.addresses.is_empty() || files.default_routes.iter().any(|route| route.interface == one.name)
    };
    Network { interfaces: within_limit(interfaces, matters), ..files }
}

fn described(entry: &Reported) -> Interface {
    let has = |flag| entry.flags.contains(flag);
    Interface {
        name: entry.interface_name.clone(),
        up: has(InterfaceFlags::IFF_UP),
        running: has(InterfaceFlags::IFF_RUNNING),
        loopback: has(InterfaceFlags::IFF_LOOPBACK),
        point_to_point: has(InterfaceFlags::IFF_POINTOPOINT),
        addresses: Vec::new(),
    }
}

fn address_of(entry: &Reported) -> Option<IpAddr> {
    let address = entry.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
}

fn with_state(ip: IpAddr, files: &Network) -> InterfaceAddress {
    let known = files.interfaces.iter().flat_map(|interface| &interface.addresses).find(|known| known.ip == ip);
    known.copied().unwrap_or(InterfaceAddress { ip, unusable: false, second_choice: false })
}

/// Whether a connection from the address `local` may be expected to work on after the network has changed: its address is
/// where it was, on an interface that has a carrier, and the default routes of its family are unchanged. When in doubt it is
/// not: a new connection costs 3.4 KB, a dead one ten seconds.
///
/// One on an interface that had no carrier at the look before was made since the carrier is back: that look ended all others.
pub fn still_works(before: &Network, after: &Network, local: IpAddr) -> bool {
    let Some(interface) = interface_of(after, local) else { return false };
    if interface.loopback {
        return true;
    }
    let default_routes = |network: &Network| {
        let routes = network.default_routes.iter().filter(|route| route.is_v6 == local.is_ipv6());
        routes.cloned().collect::<Vec<_>>()
    };
    let is_where_it_was = interface_of(before, local).is_some_and(|old| old.name == interface.name);
    interface.up && interface.running && is_where_it_was && default_routes(before) == default_routes(after)
}

fn interface_of(network: &Network, local: IpAddr) -> Option<&Interface> {
    network.interfaces.iter().find(|interface| interface.addresses.iter().any(|address| address.ip == local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::samples::{interface, ip, route};
    use nix::sys::socket::SockaddrStorage;
    use std::net::SocketAddr;

    fn reported(name: &str, flags: InterfaceFlags, ip: Option<&str>) -> Reported {
        let address = ip.map(|ip| SockaddrStorage::from(SocketAddr::new(ip.parse().unwrap(), 0)));
        Reported { interface_name: name.to_owned(), flags, address, netmask: None, broadcast: None, destination: None }
    }

    #[test]
    fn live_addresses_keep_what_procfs_knows_of_them() {
        let temporary = InterfaceAddress { ip: "fd00::2".parse().unwrap(), unusable: false, second_choice: true };
        let gone = InterfaceAddress { ip: "fd00::9".parse().unwrap(), unusable: true, second_choice: false };
        let files = Network {
            interfaces: vec![Interface {
                name: "eth0".to_owned(),
                up: false,
                running: false,
                loopback: false,
                point_to_point: false,
                addresses: vec![temporary, gone],
            }],
            ..Network::default()
        };
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let live = [
            reported("lo", up | InterfaceFlags::IFF_LOOPBACK, None),
            reported("eth0", up, None),
            reported("lo", up | InterfaceFlags::IFF_LOOPBACK, Some("127.0.0.1")),
            reported("eth0", up, Some("192.168.1.7")),
            reported("eth0", up, Some("fd00::2")),
        ];
        let network = merge(files, live.into_iter());
        let [loopback, ethernet] = &network.interfaces[..] else { panic!("{network:?}") };
        assert!(loopback.loopback && !ethernet.loopback && ethernet.up && ethernet.running);
        let plain = InterfaceAddress { ip: "192.168.1.7".parse().unwrap(), unusable: false, second_choice: false };
        assert_eq!(ethernet.addresses, [plain, temporary]);
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        let network = with_live_addresses(Network::default());
        let loopback = network.interfaces.iter().find(|interface| interface.loopback).unwrap();
        assert!(loopback.addresses.iter().any(|address| address.ip.is_loopback()));
    }

    /// A board with a cable and a modem, online through the cable.
    fn board() -> Network {
        Network {
            interfaces: vec![
                interface("lo", &["127.0.0.1"]),
                interface("eth0", &["10.0.0.2", "fd00::2"]),
                interface("wwan0", &["100.64.0.7"]),
            ],
            default_routes: vec![route("eth0", false, 100), route("eth0", true, 100)],
            node_name_addresses: Vec::new(),
        }
    }

    fn after(change: impl FnOnce(&mut Network)) -> [bool; 4] {
        let mut network = board();
        change(&mut network);
        ["127.0.0.1", "10.0.0.2", "fd00::2", "100.64.0.7"].map(|local| still_works(&board(), &network, ip(local)))
    }

    #[test]
    fn a_change_elsewhere_disturbs_no_connection() {
        assert_eq!(after(|_| {}), [true; 4]);
        assert_eq!(after(|network| network.interfaces.push(interface("docker0", &["172.17.0.1"]))), [true; 4]);
        assert_eq!(
            after(|network| network.interfaces[1].addresses.push(interface("", &["10.0.0.3"]).addresses[0])),
            [true; 4]
        );
    }

    #[test]
    fn a_default_route_that_moves_takes_the_connections_of_its_family_with_it() {
        assert_eq!(after(|network| network.default_routes[0] = route("wwan0", false, 100)), [true, false, true, false]);
        assert_eq!(after(|network| drop(network.default_routes.pop())), [true, true, false, true]);
        let router = |network: &mut Network| network.default_routes[0].gateway = Some(ip("10.0.0.254"));
        assert_eq!(after(router), [true, false, true, false], "another router on the same cable");
    }

    #[test]
    fn an_address_that_goes_takes_its_connections_with_it() {
        assert_eq!(
            after(|network| network.interfaces[1].addresses.retain(|address| address.ip.is_ipv6())),
            [true, false, true, true]
        );
        assert_eq!(after(|network| drop(network.interfaces.remove(2))), [true, true, true, false]);
    }

    #[test]
    fn a_carrier_that_goes_takes_the_connections_of_its_interface_with_it_and_one_that_comes_those_of_none() {
        assert_eq!(after(|network| network.interfaces[1].running = false), [true, false, false, true]);
        let mut unplugged = board();
        unplugged.interfaces[1].running = false;
        assert!(still_works(&unplugged, &board(), ip("10.0.0.2")), "it was made since then");
        assert!(still_works(&unplugged, &board(), ip("100.64.0.7")));
    }
}
