//! Turns interfaces, default routes and `--node-ip` into the addresses of the Node (ADR-1..8).

use std::net::IpAddr;

use super::board::Board;
use super::error::NodeError;
use super::object::{Address, Node};
use crate::config::settings::{CloudProvider, Family, NodeIp};
use crate::probe::Network;
use crate::probe::facts::{DefaultRoute, Interface};

/// ADR-3: what tells an external cloud provider the configured address.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Sets `status.addresses` and the annotation of ADR-3. On an error the addresses stay as they were.
///
/// As the kubelet does, except for the choice between default routes, where the kubelet takes the first in file order:
/// see [`of_default_route`].
pub(super) fn set(node: &mut Node, board: &Board) -> Result<(), NodeError> {
    let network = &board.facts.network;
    let (first, second) = match board.settings.node_ip {
        NodeIp::One(ip) => (Some(ip), None),
        NodeIp::Two(first, second) => (Some(first), Some(second)),
        NodeIp::Detect | NodeIp::Family(_) => (None, None),
    };
    for (ip, field) in [(first, "nodeIP"), (second, "secondaryNodeIP")] {
        let Some(ip) = ip else { continue };
        validate(ip, network)
            .map_err(|wrong| NodeError::new("node-ip-unusable", format!("failed to validate {field}: {wrong}")))?;
    }
    let external = board.settings.cloud_provider == CloudProvider::External;
    let configured: Vec<String> = first.into_iter().chain(second).map(text).collect();
    if external && !configured.is_empty() {
        node.metadata.annotations.insert(PROVIDED_NODE_IP.to_owned(), configured.join(","));
    } else {
        node.metadata.annotations.remove(PROVIDED_NODE_IP);
    }
    let internal = match (external, &board.settings.node_ip) {
        (true, _) if !node.status.addresses.is_empty() => return Ok(()),
        (true, NodeIp::Detect) => Vec::new(),
        _ if !configured.is_empty() => configured,
        _ => vec![text(detected(board)?)],
    };
    let own = internal.into_iter().map(|ip| ("InternalIP".to_owned(), ip));
    let hostname = ("Hostname".to_owned(), board.name.to_owned());
    let mut addresses: Vec<Address> = Vec::new();
    for (kind, address) in own.chain([hostname]).chain(board.settings.extra_addresses.iter().cloned()) {
        let address = Address { kind, address };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    node.status.addresses = addresses;
    Ok(())
}

/// ADR-6, steps 2 to 4.
fn detected(board: &Board) -> Result<IpAddr, NodeError> {
    let network = &board.facts.network;
    if let Ok(ip) = board.name.parse::<IpAddr>() {
        return Ok(ip);
    }
    let preferred = match board.settings.node_ip {
        NodeIp::Family(family) => family,
        _ => Family::V4,
    };
    let here = || network.node_name_addresses.iter().filter(|ip| validate(**ip, network).is_ok());
    let from_dns = here().find(|ip| family(**ip) == preferred).or_else(|| here().next());
    from_dns.map_or_else(|| of_default_route(network, preferred), |ip| Ok(*ip)).map_err(|why| {
        // ADR-7.
        let text = format!(
            "can't get ip address of node {}. error: {why}; the addresses stay as they are, name one with --node-ip",
            board.name
        );
        NodeError::new("node-address-missing", text)
    })
}

/// The address of the interface that the default route leaves by.
///
/// Unlike the kubelet we take the lowest metric first, pass over interfaces without a carrier while another default
/// route has one, and never an IPv6 address that is tentative or duplicate; a temporary or deprecated one, or one that no
/// connected route covers (flannel's, of the far end of a tunnel), only when there is no other.
fn of_default_route(network: &Network, preferred: Family) -> Result<IpAddr, &'static str> {
    if network.default_routes.is_empty() {
        return Err("no default routes found in /proc/net/route or /proc/net/ipv6_route");
    }
    let mut routes: Vec<(&DefaultRoute, &Interface)> = network
        .default_routes
        .iter()
        .filter_map(|route| Some((route, network.interfaces.iter().find(|one| one.name == route.interface)?)))
        .filter(|(_, interface)| interface.up)
        .collect();
    if routes.iter().any(|(_, interface)| interface.running) {
        routes.retain(|(_, interface)| interface.running);
    }
    routes.sort_by_key(|(route, _)| route.metric);
    let other = if preferred == Family::V4 { Family::V6 } else { Family::V4 };
    for wanted in [preferred, other] {
        for (_, interface) in routes.iter().filter(|(route, _)| route.is_v6 == (wanted == Family::V6)) {
            let loopbacks = network.interfaces.iter().filter(|one| one.loopback && one.up);
            let unnumbered = || loopbacks.filter_map(|loopback| global_address(loopback, wanted)).next();
            if let Some(ip) = global_address(interface, wanted).or_else(unnumbered) {
                return Ok(ip);
            }
        }
    }
    Err("unable to select an IP from default routes")
}

fn global_address(interface: &Interface, wanted: Family) -> Option<IpAddr> {
    let usable = || {
        let of_family = interface.addresses.iter().filter(move |one| family(one.ip) == wanted);
        of_family.filter(|one| !one.unusable && is_global_unicast(one.ip))
    };
    usable().find(|one| !one.second_choice).or_else(|| usable().next()).map(|one| one.ip)
}

/// ADR-1, in the kubelet's words.
fn validate(ip: IpAddr, network: &Network) -> Result<(), String> {
    let ip = ip.to_canonical();
    let refused = [
        (ip.is_loopback(), "nodeIP can't be loopback address"),
        (ip.is_multicast(), "nodeIP can't be a multicast address"),
        (is_link_local(ip), "nodeIP can't be a link-local unicast address"),
        (ip.is_unspecified(), "nodeIP can't be an all zeros address"),
    ];
    if let Some((_, words)) = refused.into_iter().find(|(is_refused, _)| *is_refused) {
        return Err(words.to_owned());
    }
    let on_host = network.interfaces.iter().flat_map(|one| &one.addresses).any(|one| one.ip.to_canonical() == ip);
    let missing = || format!("node IP: \"{ip}\" not found in the host's network interfaces; correct --node-ip");
    on_host.then_some(()).ok_or_else(missing)
}

/// Go's `IsGlobalUnicast`: private and unique local addresses count.
fn is_global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local(ip) || broadcast)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn family(ip: IpAddr) -> Family {
    if ip.to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
}

fn text(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::node::tests::samples::{self, interface, ip, route};
    use crate::probe::Facts;
    use crate::probe::facts::InterfaceAddress;

    fn with(node_ip: NodeIp, cloud_provider: CloudProvider) -> Settings {
        Settings { node_ip, cloud_provider, ..samples::settings() }
    }

    /// `eth0` with both families and a default route of each.
    fn dual_stack() -> Facts {
        let mut facts = samples::facts();
        facts.network.interfaces.push(interface("eth1", &["192.168.7.9", "fe80::9", "2001:db8::9"]));
        facts.network.default_routes = vec![route("eth1", false, 0), route("eth1", true, 1024)];
        facts
    }

    fn set_on(node: &mut Node, settings: &Settings, facts: &Facts) -> Result<String, String> {
        set(node, &samples::board(settings, facts, samples::LATER)).map_err(|error| error.to_string())?;
        let list: Vec<String> =
            node.status.addresses.iter().map(|one| format!("{}={}", one.kind, one.address)).collect();
        Ok(list.join(" "))
    }

    fn addresses(settings: &Settings, facts: &Facts) -> Result<String, String> {
        set_on(&mut Node::default(), settings, facts)
    }

    fn annotation(node: &Node) -> Option<&str> {
        node.metadata.annotations.get(PROVIDED_NODE_IP).map(String::as_str)
    }

    #[test]
    fn without_node_ip_the_default_route_says_the_address_ipv4_first() {
        let facts = dual_stack();
        let detected = |node_ip| addresses(&with(node_ip, CloudProvider::None), &facts).unwrap();
        assert_eq!(detected(NodeIp::Detect), "InternalIP=192.168.7.9 Hostname=edge-1");
        assert_eq!(detected(NodeIp::Family(Family::V4)), "InternalIP=192.168.7.9 Hostname=edge-1");
        assert_eq!(detected(NodeIp::Family(Family::V6)), "InternalIP=2001:db8::9 Hostname=edge-1");
        let mut only_v6 = facts.clone();
        only_v6.network.default_routes.remove(0);
        let settings = with(NodeIp::Detect, CloudProvider::None);
        assert_eq!(addresses(&settings, &only_v6).unwrap(), "InternalIP=2001:db8::9 Hostname=edge-1");
    }

    #[test]
    fn configured_addresses_are_taken_in_the_order_given() {
        let facts = dual_stack();
        let one = with(NodeIp::One(ip("10.0.0.1")), CloudProvider::None);
        assert_eq!(addresses(&one, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        let two = with(NodeIp::Two(ip("2001:db8::9"), ip("10.0.0.1")), CloudProvider::None);
        assert_eq!(addresses(&two, &facts).unwrap(), "InternalIP=2001:db8::9 InternalIP=10.0.0.1 Hostname=edge-1");
    }

    #[test]
    fn a_configured_address_that_cannot_be_used_leaves_the_addresses_as_they_are() {
        let facts = dual_stack();
        for (bad, words) in [
            ("127.0.0.1", "nodeIP can't be loopback address"),
            ("::1", "nodeIP can't be loopback address"),
            ("224.0.0.1", "nodeIP can't be a multicast address"),
            ("ff02::1", "nodeIP can't be a multicast address"),
            ("169.254.1.1", "nodeIP can't be a link-local unicast address"),
            ("fe80::1", "nodeIP can't be a link-local unicast address"),
            ("0.0.0.0", "nodeIP can't be an all zeros address"),
            ("::", "nodeIP can't be an all zeros address"),
            ("1.2.3.4", "node IP: \"1.2.3.4\" not found in the host's network interfaces"),
        ] {
            let mut node = samples::node();
            let before = node.status.addresses.clone();
            let error = set_on(&mut node, &with(NodeIp::One(ip(bad)), CloudProvider::None), &facts).unwrap_err();
            assert!(error.starts_with(&format!("failed to validate nodeIP: {words}")), "{error}");
            assert_eq!(node.status.addresses, before);
        }
        let second = with(NodeIp::Two(ip("10.0.0.1"), ip("ff02::1")), CloudProvider::None);
        assert!(addresses(&second, &facts).unwrap_err().starts_with("failed to validate secondaryNodeIP: "));
    }

    #[test]
    fn an_external_cloud_provider_is_told_the_configured_address_and_keeps_its_own() {
        let facts = dual_stack();
        let external = |node_ip| with(node_ip, CloudProvider::External);
        let mut node = Node::default();
        assert_eq!(set_on(&mut node, &external(NodeIp::Detect), &facts).unwrap(), "Hostname=edge-1");
        assert_eq!(annotation(&node), None);

        let mut node = Node::default();
        let one = external(NodeIp::One(ip("10.0.0.1")));
        assert_eq!(set_on(&mut node, &one, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        assert_eq!(annotation(&node), Some("10.0.0.1"));

        let two = external(NodeIp::Two(ip("10.0.0.1"), ip("2001:db8::9")));
        assert_eq!(set_on(&mut node, &two, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        assert_eq!(annotation(&node), Some("10.0.0.1,2001:db8::9"));
        let family = external(NodeIp::Family(Family::V6));
        assert_eq!(addresses(&family, &facts).unwrap(), "InternalIP=2001:db8::9 Hostname=edge-1");
    }

    #[test]
    fn a_stale_annotation_is_removed_without_a_cloud_provider() {
        let mut node = samples::node();
        node.metadata.annotations.insert(PROVIDED_NODE_IP.to_owned(), "10.0.0.1".to_owned());
        set_on(&mut node, &with(NodeIp::One(ip("10.0.0.1")), CloudProvider::None), &dual_stack()).unwrap();
        assert_eq!(annotation(&node), None);
    }

    #[test]
    fn a_node_that_is_named_by_an_address_has_that_address() {
        let (settings, facts) = (samples::settings(), dual_stack());
        let mut node = Node::default();
        let board = Board { name: "192.0.2.7", ..samples::board(&settings, &facts, samples::LATER) };
        set(&mut node, &board).unwrap();
        assert_eq!(node.status.addresses[0].address, "192.0.2.7");
    }

    #[test]
    fn dns_counts_before_the_default_route_and_only_for_addresses_of_this_host() {
        let mut facts = dual_stack();
        facts.network.node_name_addresses = vec![ip("127.0.1.1"), ip("9.9.9.9"), ip("2001:db8::9")];
        let settings = with(NodeIp::Detect, CloudProvider::None);
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=2001:db8::9 Hostname=edge-1");
        facts.network.node_name_addresses.push(ip("10.0.0.1"));
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        facts.network.node_name_addresses = vec![ip("127.0.1.1"), ip("9.9.9.9")];
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=192.168.7.9 Hostname=edge-1");
    }

    #[test]
    fn the_lowest_metric_wins_and_a_link_without_carrier_loses() {
        let mut facts = dual_stack();
        facts.network.default_routes =
            vec![route("eth1", false, 600), route("gone", false, 0), route("eth0", false, 100)];
        let settings = with(NodeIp::Detect, CloudProvider::None);
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        facts.network.interfaces[1].running = false;
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=192.168.7.9 Hostname=edge-1");
        facts.network.interfaces[2].running = false;
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=10.0.0.1 Hostname=edge-1");
        facts.network.interfaces[1].up = false;
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=192.168.7.9 Hostname=edge-1");
    }

    #[test]
    fn a_tentative_ipv6_address_is_never_chosen_and_a_temporary_one_last() {
        let mut facts = dual_stack();
        let address = |text, unusable, second_choice| InterfaceAddress { ip: ip(text), unusable, second_choice };
        let settings = with(NodeIp::Family(Family::V6), CloudProvider::None);
        facts.network.interfaces[2].addresses = vec![
            address("2001:db8::1", true, false),
            address("2001:db8::2", false, true),
            address("2001:db8::3", false, false),
        ];
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=2001:db8::3 Hostname=edge-1");
        facts.network.interfaces[2].addresses.pop();
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=2001:db8::2 Hostname=edge-1");
        facts.network.interfaces[2].addresses.pop();
        assert!(addresses(&settings, &facts).unwrap_err().contains("unable to select an IP"), "no IPv4 default route");
    }

    #[test]
    fn an_unnumbered_uplink_borrows_the_address_of_loopback() {
        let mut facts = dual_stack();
        facts.network.interfaces[2].addresses.clear();
        facts.network.interfaces[0] = interface("lo", &["127.0.0.1", "10.99.0.7"]);
        let settings = with(NodeIp::Detect, CloudProvider::None);
        assert_eq!(addresses(&settings, &facts).unwrap(), "InternalIP=10.99.0.7 Hostname=edge-1");
    }

    #[test]
    fn with_no_address_at_all_the_old_ones_stay_and_the_error_says_what_to_do() {
        let mut facts = samples::facts();
        facts.network.default_routes.clear();
        let mut node = samples::node();
        let before = node.status.addresses.clone();
        let error = set_on(&mut node, &with(NodeIp::Detect, CloudProvider::None), &facts).unwrap_err();
        assert!(error.starts_with("can't get ip address of node edge-1. error: no default routes found"), "{error}");
        assert!(error.contains("--node-ip"), "{error}");
        assert_eq!(node.status.addresses, before);
    }

    #[test]
    fn extra_addresses_follow_in_order_and_none_is_there_twice() {
        let extra = |kind: &str, address: &str| (kind.to_owned(), address.to_owned());
        let settings = Settings {
            extra_addresses: vec![
                extra("ExternalIP", "203.0.113.5"),
                extra("InternalIP", "10.0.0.1"),
                extra("ExternalDNS", "edge-1.example.com"),
                extra("ExternalIP", "203.0.113.5"),
            ],
            ..samples::settings()
        };
        assert_eq!(
            addresses(&settings, &samples::facts()).unwrap(),
            "InternalIP=10.0.0.1 Hostname=edge-1 ExternalIP=203.0.113.5 ExternalDNS=edge-1.example.com"
        );
    }
}
