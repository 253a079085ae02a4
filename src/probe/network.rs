//! Turns `/sys/class/net` and the tables of `/proc/net` into interfaces, addresses and default routes.
//!
//! ```text
//! /sys/class/net/eth0/flags       0x1003
//! /sys/class/net/eth0/operstate   up
//! /proc/net/dev                     eth0: 81935104  211312    0    0    0     0          0         0 ...
//! ```

use std::net::IpAddr;

use super::facts::{Interface, InterfaceAddress, Network};
use super::root::Root;
use super::{addresses, attribute, routes};
use crate::config::limits;
use crate::config::text_map::TextMap;

pub(super) const INTERFACES: &str = "/sys/class/net";
const UP: u32 = 0x1;
const LOOPBACK: u32 = 0x8;
const POINT_TO_POINT: u32 = 0x10;

/// The network as its files tell it. The shell puts the addresses that the kernel reports now in place of those found
/// here: no file names the interface of an IPv4 address, so these are where routes point.
pub fn network(root: &Root) -> Network {
    let table = |name: &str| root.read_namespace_table(&format!("net/{name}")).unwrap_or_default();
    let route_table = table("route");
    let routes = routes::routes_v4(&route_table);
    let mut found: TextMap<Vec<InterfaceAddress>> = TextMap::new();
    for ip in addresses::of_fib_trie(&table("fib_trie")) {
        let Some((interface, is_covered)) = routes::interface_of(&routes, ip) else { continue };
        let address = InterfaceAddress { ip: IpAddr::V4(ip), unusable: false, second_choice: !is_covered };
        found.change(interface, |list| list.push(address));
    }
    for (interface, address) in addresses::of_if_inet6(&table("if_inet6")) {
        found.change(interface, |list| list.push(address));
    }
    let mut default_routes = routes::defaults_v4(&routes);
    default_routes.extend(routes::defaults_v6(&table("ipv6_route")));
    let used =
        |name: &str| name == "lo" || found.contains_key(name) || routes.iter().any(|route| route.interface == name);
    let matters = |name: &str| {
        name == "lo" || found.contains_key(name) || default_routes.iter().any(|route| route.interface == name)
    };
    let names = within_limit(names(root, &table("dev"), &matters), |name| matters(name));
    let mut interfaces: Vec<Interface> = names.iter().map(|name| interface(root, name, used(name))).collect();
    for interface in &mut interfaces {
        interface.addresses = found.remove(&interface.name).unwrap_or_default();
    }
    Network { interfaces, default_routes, node_name_addresses: Vec::new() }
}

/// As many interfaces as there may be, in their order: of too many those that matter, before any others.
pub fn within_limit<T>(mut interfaces: Vec<T>, matters: impl Fn(&T) -> bool) -> Vec<T> {
    let mattering = interfaces.iter().filter(|one| matters(one)).count();
    let mut room = limits::DIRECTORY_NAMES.saturating_sub(mattering);
    interfaces.retain(|one| {
        let has_room = room > 0;
        let is_kept = matters(one) || has_room;
        room -= usize::from(has_room && !matters(one));
        is_kept
    });
    interfaces.truncate(limits::DIRECTORY_NAMES);
    interfaces
}

/// In the order of their index, as the kernel numbers them; without sysfs in the order of `/proc/net/dev`.
fn names(root: &Root, dev: &str, matters: &dyn Fn(&str) -> bool) -> Vec<String> {
    let indexed = indexed_names(root, matters);
    if !indexed.is_empty() {
        return indexed;
    }
    let counted = dev.lines().skip(2).filter_map(|line| line.split_once(':'));
    counted.map(|(name, _)| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The interfaces of sysfs in the order of their index; of too many those that matter, before any others.
pub(super) fn indexed_names(root: &Root, matters: &dyn Fn(&str) -> bool) -> Vec<String> {
    let names = root.list_preferring(INTERFACES, matters).unwrap_or_default();
    let mut indexed: Vec<(u64, String)> = names
        .into_iter()
        .filter(|name| root.is_directory(&format!("{INTERFACES}/{name}")))
        .map(|name| (read(root, &name, "ifindex", |text| attribute::count(&text).ok()).unwrap_or(u64::MAX), name))
        .collect();
    indexed.sort_by_key(|(index, _)| *index);
    indexed.into_iter().map(|(_, name)| name).collect()
}

/// `used` (it has a route or an address) stands for what a capture without the attributes cannot say.
fn interface(root: &Root, name: &str, used: bool) -> Interface {
    let flags = read(root, name, "flags", |text| attribute::hexadecimal(&text));
    let operstate = read(root, name, "operstate", Some);
    let carrier = || read(root, name, "carrier", Some).is_none_or(|carrier| carrier == "1");
    Interface {
        name: name.to_owned(),
        up: flags.map_or(used, |flags| flags & UP != 0),
        running: match operstate.as_deref() {
            Some("up") => true,
            // Normal for loopback, ppp, tunnels and some modems.
            Some("unknown") => carrier(),
            Some(_) => false,
            None => used,
        },
        loopback: flags.map_or(name == "lo", |flags| flags & LOOPBACK != 0),
        point_to_point: flags.is_some_and(|flags| flags & POINT_TO_POINT != 0),
        addresses: Vec::new(),
    }
}

fn read<T>(root: &Root, interface: &str, attribute: &str, parse: impl FnOnce(String) -> Option<T>) -> Option<T> {
    root.read_text(&format!("{INTERFACES}/{interface}/{attribute}")).ok().and_then(parse)
}
