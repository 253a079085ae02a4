//! Turns the Endpoints `default/kubernetes`, the control plane's own addresses, into servers of last resort (JOIN-7).
//!
//! A control plane that has moved is found there by a board whose servers are all gone. Each is proven by the CA in use, and its
//! certificate has to be for the address that is listed: an API server's is.

use std::net::IpAddr;

use serde::Deserialize;

use crate::config::kubeconfig::Server;
use crate::config::limits;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Endpoints {
    subsets: Vec<Subset>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Subset {
    addresses: Vec<Address>,
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Address {
    ip: IpAddr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Port {
    name: String,
    port: u16,
}

/// Those that the answer lists, in its order, the first [`limits::LAST_RESORTS`]; none where it is no such list.
pub fn read(body: &[u8]) -> Vec<Server> {
    let Endpoints { subsets } = serde_json::from_slice(body).unwrap_or_default();
    let of_subset = |subset: Subset| {
        // Where there is one, it may have no name.
        let port = subset.ports.iter().find(|port| port.name == "https").or(subset.ports.first());
        let port = port.map(|port| port.port).filter(|port| *port > 0);
        let server = move |Address { ip }| {
            Some(Server { host: ip.to_string(), port: port.filter(|_| leads_away(ip))?, path_prefix: String::new() })
        };
        subset.addresses.into_iter().filter_map(server)
    };
    subsets.into_iter().flat_map(of_subset).take(limits::LAST_RESORTS).collect()
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
    use super::*;
    use crate::config::kubeconfig::parse_server;
    use serde_json::json;

    fn servers(list: &[&str]) -> Vec<Server> {
        list.iter().map(|one| parse_server(one).unwrap()).collect()
    }

    fn listed(ips: &[&str], ports: serde_json::Value) -> Vec<Server> {
        let addresses: Vec<_> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        let subset = json!({ "addresses": addresses, "ports": ports, "notReadyAddresses": [{ "ip": "10.0.0.99" }] });
        read(json!({ "kind": "Endpoints", "subsets": [subset] }).to_string().as_bytes())
    }

    #[test]
    fn the_control_planes_addresses_are_read_and_no_more_than_are_kept() {
        let https = || json!([{ "name": "http", "port": 80 }, { "name": "https", "port": 6443, "protocol": "TCP" }]);
        assert_eq!(listed(&["10.0.0.7", "2001:db8::7"], https()), servers(&["10.0.0.7:6443", "[2001:db8::7]:6443"]));
        let of_a_port = listed(&["10.0.0.7"], json!([{ "port": 443 }]));
        assert_eq!(of_a_port, servers(&["10.0.0.7"]));
        let many: Vec<String> = (1..=200).map(|last| format!("10.0.0.{last}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(listed(&many, https()).len(), limits::LAST_RESORTS);
        let nowhere =
            ["127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "224.0.0.1", "255.255.255.255"];
        assert_eq!(listed(&nowhere, https()), []);
        assert_eq!((listed(&["10.0.0.7"], json!([])), listed(&["10.0.0.7"], json!([{ "port": 0 }]))), (vec![], vec![]));
    }

    #[test]
    fn an_answer_of_nonsense_lists_nothing() {
        let nonsense = [
            "",
            "{}",
            "[]",
            "null",
            r#"{"subsets":null}"#,
            r#"{"subsets":[{"addresses":[{"ip":"evil.example.com"}],"ports":[{"port":6443}]}]}"#,
            r#"{"subsets":[{"addresses":[{"ip":"10.0.0.7"}],"ports":[{"port":65536}]}]}"#,
            r#"{"subsets":[{"addresses":[{"ip":"10.0.0.7"}]}]}"#,
        ];
        nonsense.iter().for_each(|body| assert_eq!(read(body.as_bytes()), [], "{body}"));
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
