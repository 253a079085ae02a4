//! Turns interfaces, default routes and `--node-ip` into the addresses of the Node (ADR-1..8).

use std::net::IpAddr;

use super::NodeError;
use super::desired::Board;
use super::error::NodeIpProblem;
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
        validate(ip, network).map_err(|wrong| NodeError::NodeIp { field, ip, wrong })?;
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
    match from_dns {
        Some(ip) => Ok(*ip),
        None => of_default_route(network, preferred)
            .map_err(|why| NodeError::NoAddress { node: board.name.to_owned(), why }),
    }
}

/// The address of the interface that the default route leaves by.
///
/// Unlike the kubelet we take the lowest metric first, pass over interfaces without a carrier while another default
/// route has one, and never an IPv6 address that is tentative or duplicate; a temporary or deprecated one only when
/// there is no other (hardware notes, 3.1).
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

/// ADR-1.
fn validate(ip: IpAddr, network: &Network) -> Result<(), NodeIpProblem> {
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return Err(NodeIpProblem::Loopback);
    }
    if ip.is_multicast() {
        return Err(NodeIpProblem::Multicast);
    }
    if is_link_local(ip) {
        return Err(NodeIpProblem::LinkLocal);
    }
    if ip.is_unspecified() {
        return Err(NodeIpProblem::Unspecified);
    }
    let on_host = network.interfaces.iter().flat_map(|one| &one.addresses).any(|one| one.ip.to_canonical() == ip);
    if on_host { Ok(()) } else { Err(NodeIpProblem::NotOnThisHost) }
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
