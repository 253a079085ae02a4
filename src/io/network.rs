//! Turns the addresses that the kernel reports now into those the Node is made from.
//!
//! procfs names interfaces, routes and the state of IPv6 addresses, but no IPv4 address; `getifaddrs` names every
//! address, but not which IPv6 address is tentative or temporary. Both together are whole.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress as Reported, getifaddrs};
use nix::net::if_::InterfaceFlags;

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
    let mut places = BTreeMap::new();
    for entry in reported {
        let place = *places.entry(entry.interface_name.clone()).or_insert_with(|| {
            interfaces.push(interface_of(&entry));
            interfaces.len() - 1
        });
        if let (Some(ip), Some(interface)) = (address_of(&entry), interfaces.get_mut(place)) {
            interface.addresses.push(with_state(ip, &files));
        }
    }
    let matters = |one: &Interface| {
        !one.addresses.is_empty() || files.default_routes.iter().any(|route| route.interface == one.name)
    };
    Network { interfaces: within_limit(interfaces, matters), ..files }
}

fn interface_of(entry: &Reported) -> Interface {
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
