//! Turns `/proc/net/route` and `/proc/net/ipv6_route` into default routes, and the first also into whose network is where.
//!
//! ```text
//! Iface   Destination     Gateway         Flags   RefCnt  Use     Metric  Mask            MTU     Window  IRTT
//! eth0    00000000        0101A8C0        0003    0       0       100     00000000        0       0       0
//! eth0    0001A8C0        00000000        0001    0       0       100     00FFFFFF        0       0       0
//! ```
//!
//! Words of IPv4 are in the byte order of the machine. Those of IPv6 are in network order:
//!
//! ```text
//! destination                      pl source                           sl gateway                          metric
//! 00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe80000000000000022590fffe1a2b3c 00000064 \
//!     00000001 00000000 00000003     eth0
//! 00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff \
//!     00000001 00000000 00200200       lo
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::attribute::hexadecimal;
use super::facts::DefaultRoute;

const UP: u32 = 0x1;
const REJECT: u32 = 0x200;
const NOWHERE: &str = "00000000000000000000000000000000";

/// One line of `/proc/net/route` that leads somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route<'a> {
    pub interface: &'a str,
    destination: u32,
    gateway: u32,
    mask: u32,
    metric: u32,
}

impl Route<'_> {
    fn is_default(&self) -> bool {
        self.destination == 0 && self.mask == 0
    }

    fn gateway(&self) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(self.gateway.to_ne_bytes())).filter(|gateway| !gateway.is_unspecified())
    }

    /// Whether whoever is in its network is on the link itself.
    fn is_connected(&self) -> bool {
        self.gateway == 0 && self.mask != 0
    }

    fn leads_to(&self, ip: Ipv4Addr) -> bool {
        u32::from_ne_bytes(ip.octets()) & self.mask == self.destination
    }
}

/// The usable routes, in file order. A blackhole's interface is `*`; the headline has no numbers.
pub(super) fn routes_v4(table: &str) -> Vec<Route<'_>> {
    table.lines().filter_map(route_v4).collect()
}

fn route_v4(line: &str) -> Option<Route<'_>> {
    let mut fields = line.split_ascii_whitespace();
    let interface = fields.next()?;
    let destination = hexadecimal(fields.next()?)?;
    let gateway = hexadecimal(fields.next()?)?;
    let flags = hexadecimal(fields.next()?)?;
    let metric = fields.nth(2)?.parse().ok()?;
    let mask = hexadecimal(fields.next()?)?;
    let usable = flags & UP != 0 && flags & REJECT == 0 && interface != "*";
    usable.then_some(Route { interface, destination, gateway, mask, metric })
}

/// Default routes in file order. The kubelet takes any route to `00000000` for one, also the half of `0.0.0.0/1` that
/// a VPN sets.
pub(super) fn defaults_v4(routes: &[Route]) -> Vec<DefaultRoute> {
    let defaults = routes.iter().filter(|route| route.is_default());
    defaults.map(|route| found(route.interface, route.gateway().map(IpAddr::V4), false, route.metric)).collect()
}

/// The interface of the longest connected network that an address is in, and that there is one. An address of no such
/// network is most likely that of the far end of a modem or tunnel, whose route has no gateway either.
pub(super) fn interface_of<'a>(routes: &[Route<'a>], ip: Ipv4Addr) -> Option<(&'a str, bool)> {
    let leading = routes.iter().filter(|route| route.leads_to(ip));
    let best = leading.max_by_key(|route| {
        let is_covered = route.is_connected();
        (is_covered, route.mask.count_ones(), route.gateway == 0, std::cmp::Reverse(route.metric))
    });
    best.map(|route| (route.interface, route.is_connected()))
}

/// Default routes with a gateway, in file order, each once.
pub(super) fn defaults_v6(table: &str) -> Vec<DefaultRoute> {
    let mut routes: Vec<DefaultRoute> = Vec::new();
    for route in table.lines().filter_map(default_v6) {
        if !routes.contains(&route) {
            routes.push(route);
        }
    }
    routes
}

fn default_v6(line: &str) -> Option<DefaultRoute> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[destination, prefix, _, _, gateway, metric, _, _, flags, interface] = fields.as_slice() else { return None };
    let flags = hexadecimal(flags)?;
    let leads_on = destination == NOWHERE && prefix == "00" && gateway.len() == NOWHERE.len() && gateway != NOWHERE;
    let usable = leads_on && flags & UP != 0 && flags & REJECT == 0;
    let gateway = u128::from_str_radix(gateway, 16).ok().map(Ipv6Addr::from).map(IpAddr::V6);
    if usable { Some(found(interface, gateway, true, hexadecimal(metric)?)) } else { None }
}

fn found(interface: &str, gateway: Option<IpAddr>, is_v6: bool, metric: u32) -> DefaultRoute {
    DefaultRoute { interface: interface.to_owned(), gateway, is_v6, metric }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    fn word(ip: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(ip))
    }

    fn line(interface: &str, destination: [u8; 4], flags: &str, metric: u32, mask: [u8; 4]) -> String {
        let (destination, mask) = (word(destination), word(mask));
        format!("{interface}\t{destination}\t00000000\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0   \n")
    }

    #[test]
    fn only_a_default_route_that_is_up_and_leads_somewhere_counts() {
        let table = [
            HEAD.to_owned(),
            line("*", [0; 4], "0201", 0, [0; 4]),
            line("tun0", [0; 4], "0003", 0, [128, 0, 0, 0]),
            line("eth1", [0; 4], "0002", 5, [0; 4]),
            line("wwan0", [0; 4], "0003", 700, [0; 4]),
            line("eth0", [0; 4], "0003", 100, [0; 4]),
        ];
        let table = table.concat();
        let defaults = defaults_v4(&routes_v4(&table));
        assert_eq!(defaults, [found("wwan0", None, false, 700), found("eth0", None, false, 100)]);
    }

    #[test]
    fn a_route_through_a_router_names_it() {
        let table = line("eth0", [0; 4], "0003", 100, [0; 4]);
        let table = table.replacen("\t00000000\t0003", &format!("\t{}\t0003", word([192, 168, 1, 1])), 1);
        let router = Some(IpAddr::from([192, 168, 1, 1]));
        assert_eq!(defaults_v4(&routes_v4(&table)), [found("eth0", router, false, 100)]);
    }

    fn through(route: &str, gateway: [u8; 4]) -> String {
        route.replacen("\t00000000\t0003", &format!("\t{}\t0003", word(gateway)), 1)
    }

    #[test]
    fn an_address_belongs_to_the_longest_connected_network() {
        let table = line("eth0", [0; 4], "0003", 0, [0; 4])
            + &line("eth1", [10, 0, 0, 0], "0001", 0, [255, 0, 0, 0])
            + &line("eth2", [10, 1, 2, 0], "0001", 0, [255, 255, 255, 0])
            + &through(&line("eth3", [10, 1, 2, 128], "0003", 0, [255, 255, 255, 128]), [10, 1, 2, 1])
            + &line("wlan0", [10, 1, 2, 0], "0001", 600, [255, 255, 255, 0]);
        let routes = routes_v4(&table);
        assert_eq!(interface_of(&routes, Ipv4Addr::new(10, 1, 2, 9)), Some(("eth2", true)));
        assert_eq!(interface_of(&routes, Ipv4Addr::new(10, 1, 2, 200)), Some(("eth2", true)), "not behind a router");
        assert_eq!(interface_of(&routes, Ipv4Addr::new(10, 9, 2, 9)), Some(("eth1", true)));
        assert_eq!(interface_of(&routes, Ipv4Addr::new(192, 0, 2, 1)), Some(("eth0", false)));
        assert_eq!(interface_of(&routes[1..], Ipv4Addr::new(192, 0, 2, 1)), None);
    }

    #[test]
    fn an_address_of_no_network_is_that_of_the_link_without_a_router() {
        let table = through(&line("eth0", [0; 4], "0003", 100, [0; 4]), [10, 6, 3, 1])
            + &line("ppp0", [0; 4], "0003", 700, [0; 4])
            + &line("eth0", [10, 6, 3, 0], "0001", 100, [255, 255, 255, 0])
            + &line("ppp0", [10, 64, 64, 64], "0005", 0, [255; 4]);
        let routes = routes_v4(&table);
        assert_eq!(interface_of(&routes, Ipv4Addr::new(100, 72, 3, 9)), Some(("ppp0", false)));
        assert_eq!(interface_of(&routes, Ipv4Addr::new(10, 6, 3, 201)), Some(("eth0", true)));
        assert_eq!(interface_of(&routes[..1], Ipv4Addr::new(10, 1, 84, 0)), Some(("eth0", false)));
    }

    #[test]
    fn a_v6_default_without_a_gateway_leads_nowhere() {
        let line = |gateway: &str, metric: &str, flags: &str, interface: &str| {
            format!("{NOWHERE} 00 {NOWHERE} 00 {gateway} {metric} 00000001 00000000 {flags}     {interface}\n")
        };
        let gateway = "fe80000000000000022590fffe1a2b3c";
        let table = line(gateway, "00000400", "00450003", "eth0")
            + &line(gateway, "00000400", "00450003", "eth0")
            + &line(NOWHERE, "00000400", "00000001", "br0")
            + &line(NOWHERE, "ffffffff", "00200200", "lo");
        let router = "fe80::225:90ff:fe1a:2b3c".parse().ok();
        assert_eq!(defaults_v6(&table), [found("eth0", router, true, 1024)]);
        assert!(defaults_v6("00 00\n\n").is_empty());
    }

    #[test]
    fn a_line_that_ends_before_its_mask_is_passed_over() {
        let table = line("eth0", [0; 4], "0003", 100, [0; 4]);
        let mask = table.rfind("00000000").unwrap();
        for end in 0..mask {
            assert!(routes_v4(&table[..end]).is_empty(), "{:?}", &table[..end]);
        }
    }
}
