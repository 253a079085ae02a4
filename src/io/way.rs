//! Turns two looks at the network into whether a connection's way to its server is still the one it was opened over.

use std::net::IpAddr;

use crate::probe::Network;
use crate::probe::facts::Interface;

/// Whether a connection from `local` may be expected to live on: its address is where it was, on an interface that did
/// not lose or find its carrier, and what leads beyond its network is unchanged. When in doubt it is not: a new
/// connection costs 3.4 KB, a dead one ten seconds.
pub fn stands(before: &Network, after: &Network, local: IpAddr) -> bool {
    let Some(interface) = holder(after, local) else { return false };
    if interface.loopback {
        return true;
    }
    let is_same =
        |old: &Interface| (&old.name, old.up, old.running) == (&interface.name, interface.up, interface.running);
    let beyond = |network: &Network| {
        let routes = network.default_routes.iter().filter(|route| route.is_v6 == local.is_ipv6());
        routes.cloned().collect::<Vec<_>>()
    };
    interface.up && interface.running && holder(before, local).is_some_and(is_same) && beyond(before) == beyond(after)
}

fn holder(network: &Network, local: IpAddr) -> Option<&Interface> {
    network.interfaces.iter().find(|interface| interface.addresses.iter().any(|address| address.ip == local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::samples::{interface, ip, route};

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
        ["127.0.0.1", "10.0.0.2", "fd00::2", "100.64.0.7"].map(|local| stands(&board(), &network, ip(local)))
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
    fn a_carrier_that_goes_or_comes_takes_the_connections_of_its_interface_with_it() {
        assert_eq!(after(|network| network.interfaces[1].running = false), [true, false, false, true]);
        let mut unplugged = board();
        unplugged.interfaces[1].running = false;
        assert!(!stands(&unplugged, &board(), ip("10.0.0.2")));
        assert!(stands(&unplugged, &board(), ip("100.64.0.7")));
    }
}
