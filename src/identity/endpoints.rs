//! Turns the Endpoints `default/kubernetes`, the control plane's own addresses, into servers of last resort (JOIN-7).
//!
//! A control plane that has moved is found there by a board whose servers are all gone. Each is proven by the CA in use, and its
//! certificate has to be for the address that is listed: an API server's is.

use std::net::IpAddr;

use crate::api::protobuf;
use crate::config::kubeconfig::Server;
use crate::config::limits;
use crate::protobuf::{Fields, Value};

/// Those that the answer lists, in its order, the first [`limits::LAST_RESORTS`]; none where it is no such list.
pub fn read(body: &[u8]) -> Vec<Server> {
    parse(body).unwrap_or_default()
}

/// `{ 2: EndpointSubset { 1: EndpointAddress { 1: ip }, ..., 3: EndpointPort { 1: name, 2: port }, ... }, ... }`
fn parse(body: &[u8]) -> Option<Vec<Server>> {
    let (kind, raw) = protobuf::read_unknown(body, false)?;
    let mut servers = Vec::new();
    for field in Fields::of(raw) {
        if let (2, Value::Bytes(subset)) = field? {
            add(subset, &mut servers)?;
        }
    }
    (kind == b"Endpoints").then_some(servers)
}

fn add(subset: &[u8], servers: &mut Vec<Server>) -> Option<()> {
    // The port of that name, or else the first: where there is one, it may have no name.
    let mut port = None;
    for field in Fields::of(subset) {
        if let (3, Value::Bytes(listed)) = field? {
            let (mut is_https, mut number) = (false, 0);
            for field in Fields::of(listed) {
                match field? {
                    (1, Value::Bytes(name)) => is_https = name == b"https",
                    (2, Value::Number(found)) => number = u16::try_from(found).ok()?,
                    _ => {}
                }
            }
            port = if is_https { Some(number) } else { port.or(Some(number)) };
        }
    }
    let Some(port) = port.filter(|port| *port > 0) else { return Some(()) };
    for field in Fields::of(subset) {
        let (1, Value::Bytes(address)) = field? else { continue };
        for field in Fields::of(address) {
            if let (1, Value::Bytes(ip)) = field? {
                let ip: IpAddr = str::from_utf8(ip).ok()?.parse().ok()?;
                if leads_away(ip) && servers.len() < limits::LAST_RESORTS {
                    servers.push(Server { host: ip.to_string(), port, path_prefix: String::new() });
                }
            }
        }
    }
    Some(())
}

/// Whether it means another machine, and the same one from wherever it is asked.
fn leads_away(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}

/// What is kept from now on, if that is worth a write: only one that was never seen is. Those that are not listed just now stay
/// while there is room, as a server that is being restarted is not listed. `turn`: any number; of a fleet not every board
/// is to ask the same one first. `given`: servers that are asked anyway.
pub fn learned(known: &[Server], listed: &[Server], given: &[Server], turn: u64) -> Option<Vec<Server>> {
    let mut new: Vec<Server> = listed.iter().filter(|server| !given.contains(server)).cloned().collect();
    if new.iter().all(|server| known.contains(server)) {
        return None;
    }
    let first = usize::try_from(turn % new.len() as u64).unwrap_or_default();
    new.rotate_left(first);
    let before = known.iter().filter(|server| !listed.contains(server));
    Some(new.iter().chain(before).take(limits::LAST_RESORTS).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::config::kubeconfig::parse_server;

    fn servers(list: &[&str]) -> Vec<Server> {
        list.iter().map(|one| parse_server(one).unwrap()).collect()
    }

    fn listed(ips: &[&str], ports: &[(&str, u32)]) -> Vec<Server> {
        read(&samples::endpoints(ips, ports))
    }

    #[test]
    fn the_control_planes_addresses_are_read_and_no_more_than_are_kept() {
        let https = [("http", 80), ("https", 6443)];
        assert_eq!(listed(&["10.0.0.7", "2001:db8::7"], &https), servers(&["10.0.0.7:6443", "[2001:db8::7]:6443"]));
        assert_eq!(listed(&["10.0.0.7"], &[("", 443), ("metrics", 80)]), servers(&["10.0.0.7"]));
        let many: Vec<String> = (1..=200).map(|last| format!("10.0.0.{last}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(listed(&many, &https).len(), limits::LAST_RESORTS);
        let nowhere =
            ["127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "224.0.0.1", "255.255.255.255"];
        assert_eq!(listed(&nowhere, &https), []);
        assert_eq!((listed(&["10.0.0.7"], &[]), listed(&["10.0.0.7"], &[("", 0)])), (vec![], vec![]));
    }

    #[test]
    fn an_answer_of_nonsense_lists_nothing() {
        let whole = samples::endpoints(&["10.0.0.7"], &[("https", 6443)]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).len() <= 1, "cut at {end}");
        }
        let other = String::from_utf8_lossy(&whole).replace("Endpoints", "Endpointz").into_bytes();
        let no_ip = samples::endpoints(&["evil.example.com"], &[("https", 6443)]);
        let no_port = samples::endpoints(&["10.0.0.7"], &[("https", 65_536)]);
        for none in [&other[..], &no_ip, &no_port, b"", b"{}", br#"{"subsets":null}"#] {
            assert_eq!(read(none), [], "{none:?}");
        }
    }

    #[test]
    fn only_an_address_that_was_never_seen_is_worth_a_write_and_those_before_stay_while_there_is_room() {
        let (given, one) = (servers(&["api:6443", "10.0.0.1:6443"]), servers(&["10.0.0.2:6443"]));
        let learn = |known: &[Server], listed: &[Server]| learned(known, listed, &given, 0);
        assert_eq!(learn(&[], &[]), None);
        assert_eq!(learn(&[], &given), None, "it is asked anyway");
        assert_eq!(learn(&[], &[one.clone(), given.clone()].concat()), Some(one.clone()));
        assert_eq!(learn(&one, &one), None);
        assert_eq!(learn(&one, &[]), None, "it may be listed again tomorrow");
        let two = servers(&["10.0.0.3:6443"]);
        let both = learn(&one, &two).unwrap();
        assert_eq!(both, [two.clone(), one.clone()].concat());
        assert_eq!(learn(&both, &[one.clone(), two].concat()), None, "in another order");
        let others = servers(&["10.0.1.1:6443", "10.0.1.2:6443", "10.0.1.3:6443"]);
        assert_eq!(learn(&both, &others).unwrap(), [others.clone(), both[..1].to_vec()].concat());
        let firsts: Vec<_> = (0..3).map(|turn| learned(&[], &others, &given, turn).unwrap()[0].clone()).collect();
        assert_eq!(firsts, others, "each board begins with another");
    }
}
