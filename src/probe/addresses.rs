//! Turns `/proc/net/if_inet6` and `/proc/net/fib_trie` into the addresses of interfaces.
//!
//! ```text
//! fe800000000000000a1b2cfffe3d4e5f 02 40 20 80     eth0     address, index, prefix length, scope, flags, interface
//! ```
//!
//! The trie names no interface, and on some kernels it shows every address twice, in `Main` and in `Local`:
//!
//! ```text
//! Local:
//!   +-- 0.0.0.0/0 3 0 5
//!      |-- 192.168.1.43
//!         /32 host LOCAL
//!      |-- 192.168.1.255
//!         /32 link BROADCAST
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::attribute::hexadecimal;
use super::facts::InterfaceAddress;

/// Temporary (privacy extensions), duplicate, deprecated, tentative.
const TEMPORARY: u32 = 0x01;
const DUPLICATE: u32 = 0x08;
const DEPRECATED: u32 = 0x20;
const TENTATIVE: u32 = 0x40;

/// IPv6 addresses with their interfaces, in file order.
pub(super) fn of_if_inet6(table: &str) -> Vec<(&str, InterfaceAddress)> {
    table.lines().filter_map(of_line).collect()
}

fn of_line(line: &str) -> Option<(&str, InterfaceAddress)> {
    let mut fields = line.split_ascii_whitespace();
    let address = fields.next().filter(|address| address.len() == 32)?;
    let address = Ipv6Addr::from(u128::from_str_radix(address, 16).ok()?);
    let flags = hexadecimal(fields.nth(3)?)?;
    let address = InterfaceAddress {
        ip: IpAddr::V6(address),
        unusable: flags & (TENTATIVE | DUPLICATE) != 0,
        second_choice: flags & (DEPRECATED | TEMPORARY) != 0,
    };
    Some((fields.next()?, address))
}

/// The machine's own IPv4 addresses without those of loopback, each once, in file order.
pub(super) fn of_fib_trie(table: &str) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    let mut leaf = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            addresses.extend(leaf.filter(|address| !address.is_loopback() && !addresses.contains(address)));
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_which_v6_address_to_use() {
        let table = "20010db8000000000000000000000043 02 40 00 80     eth0\n\
                     20010db800000000aaaaaaaaaaaaaaaa 02 40 00 01     eth0\n\
                     20010db800000000bbbbbbbbbbbbbbbb 02 40 00 20     eth0\n\
                     20010db8000000000000000000000044 02 40 00 c0     eth0\n\
                     20010db8000000000000000000000045 02 40 00 88     eth0\n\
                     00000000000000000000000000000001 01 80 10 80       lo\n";
        let found = of_if_inet6(table);
        let states: Vec<_> = found.iter().map(|(_, one)| (one.unusable, one.second_choice)).collect();
        assert_eq!(states[..3], [(false, false), (false, true), (false, true)]);
        assert_eq!(states[3..], [(true, false), (true, false), (false, false)]);
        assert_eq!(found[0].0, "eth0");
        assert_eq!(found[5], ("lo", InterfaceAddress { ip: Ipv6Addr::LOCALHOST.into(), ..found[0].1 }));
    }

    #[test]
    fn a_malformed_v6_line_is_passed_over() {
        for line in ["", "fe80 02 40 20 80 eth0", "zz800000000000000a1b2cfffe3d4e5f 02 40 20 80 eth0"] {
            assert!(of_if_inet6(line).is_empty(), "{line:?}");
        }
        assert!(of_if_inet6("fe800000000000000a1b2cfffe3d4e5f 02 40 20 80").is_empty());
    }

    #[test]
    fn a_local_leaf_is_an_address_and_a_broadcast_is_not() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.168.1.43\n        /32 host LOCAL\n\
                    Local:\n  +-- 127.0.0.0/8 2 0 2\n     |-- 127.0.0.1\n        /32 host LOCAL\n\
                         |-- 192.168.1.43\n        /32 host LOCAL\n     |-- 192.168.1.255\n        /32 link BROADCAST\n\
                         |-- 10.7.0.2\n        /31 link UNICAST\n        /32 host LOCAL\n";
        assert_eq!(of_fib_trie(trie), [Ipv4Addr::new(192, 168, 1, 43), Ipv4Addr::new(10, 7, 0, 2)]);
        assert!(of_fib_trie("/32 host LOCAL\n|-- x\n/32 host LOCAL\n").is_empty());
    }
}
