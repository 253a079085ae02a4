//! Turns the settings and the machine's identity into the name of the Node.

use super::error::NodeError;
use crate::config::Settings;
use crate::config::labels::is_dns_subdomain;
use crate::probe::Machine;

/// The name is also the value of the label `kubernetes.io/hostname`, which may be no longer.
const NAME_MAX: usize = 63;
/// Characters of the serial number, or of the MAC address, that make a derived name: few collide, and a person can read
/// them out.
const TAIL: usize = 6;

/// `--hostname-override`, else the Node that the client certificate is for (`certified`), else the machine's hostname,
/// trimmed and lower-cased (ST-6). With it a sentence where two of these differ.
///
/// An API server lets the owner of such a certificate be no other Node: by any other name every request is refused. So a
/// hostname that somebody changes locks no board out, and one that has none stays what it was enrolled as.
///
/// A hostname that says nothing (`(none)`, `localhost`: absent in the facts) would make boards of one image fight for
/// one Node. With nothing else such a board is `node-` and the last six letters or digits of its serial number, or of a MAC
/// address that stays; with neither it is refused. A hostname that says something but cannot be a Node's name is refused
/// too, never bent into shape.
pub fn node_name(
    settings: &Settings,
    machine: &Machine,
    certified: Option<&str>,
) -> Result<(String, Option<String>), NodeError> {
    // What a Node cannot be called, nobody is let be.
    let certified = certified.filter(|name| checked(name).as_deref() == Ok(*name));
    let wanted = settings.hostname_override.as_ref().map(|name| checked(name)).transpose()?;
    let Some(certified) = certified else {
        let name = match (wanted, &machine.hostname) {
            (Some(name), _) => name,
            (None, Ok(hostname)) => checked(hostname)?,
            (None, Err(absent)) => derived(machine).ok_or_else(|| {
                let text = format!(
                    "this machine's hostname says nothing ({absent}) and it has neither a serial number nor a MAC address \
                     that stays; give it a name with hostnamectl set-hostname NAME, or start with --hostname-override NAME"
                );
                NodeError::new("node-name-missing", text)
            })?,
        };
        return Ok((name, None));
    };
    let only =
        format!("the client certificate is for system:node:{certified}, whom an API server lets be no other Node");
    Ok(match (wanted, machine.hostname.as_deref()) {
        (Some(name), _) if name != certified => {
            let text = format!("{only}, and hostnameOverride says {name}: remove that, or enroll {name}");
            (name, Some(text))
        }
        (None, Ok(hostname)) if hostname != certified => {
            let text = format!(
                "{only}, so this Node is {certified}, though the host is called {hostname}: \
                 hostnamectl set-hostname {certified}, or enroll {hostname}"
            );
            (certified.to_owned(), Some(text))
        }
        _ => (certified.to_owned(), None),
    })
}

fn checked(name: &str) -> Result<String, NodeError> {
    let name = name.trim().to_lowercase();
    let wrong = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_MAX {
        "it has more than 63 characters"
    } else if !is_dns_subdomain(&name) {
        "it may hold only a-z 0-9 - and . and each part between dots must begin and end with a letter or digit"
    } else {
        return Ok(name);
    };
    let advice = "give another one with --hostname-override NAME";
    Err(NodeError::new("node-name-invalid", format!("{name:?} cannot be the name of a Node: {wrong}; {advice}")))
}

fn derived(machine: &Machine) -> Option<String> {
    [&machine.board_serial, &machine.mac_address].into_iter().flatten().find_map(|unique| {
        let letters: Vec<char> = unique.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail = letters.get(letters.len().checked_sub(TAIL)?..)?;
        Some(format!("node-{}", tail.iter().collect::<String>().to_ascii_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::samples::{self, absent};
    use crate::probe::Fact;

    fn machine(hostname: Fact<String>, serial: Fact<String>) -> Machine {
        Machine { hostname, board_serial: serial, mac_address: absent(), ..samples::facts().machine }
    }

    fn name(hostname: &str, over: Option<&str>) -> Result<String, NodeError> {
        let settings = Settings { hostname_override: over.map(str::to_owned), ..Settings::default() };
        let machine = machine(Ok(hostname.to_owned()), Ok("123456".to_owned()));
        node_name(&settings, &machine, None).map(|(name, _)| name)
    }

    #[test]
    fn the_hostname_is_the_name_trimmed_and_lower_cased() {
        assert_eq!(name(" Edge-1.Example\n", None).unwrap(), "edge-1.example");
        assert_eq!(name("localhostess", None).unwrap(), "localhostess");
    }

    #[test]
    fn the_override_wins_over_any_hostname() {
        assert_eq!(name("edge-1", Some(" Gateway-7 ")).unwrap(), "gateway-7");
        let settings = Settings { hostname_override: Some("gateway-7".to_owned()), ..Settings::default() };
        assert_eq!(node_name(&settings, &machine(absent(), absent()), None).unwrap().0, "gateway-7");
    }

    #[test]
    fn a_hostname_that_says_nothing_is_replaced_by_the_serial_number() {
        let name = |serial| node_name(&Settings::default(), &machine(absent(), serial), None).map(|(name, _)| name);
        assert_eq!(name(Ok("VF7110A1-2250-D008E000-00A00824".to_owned())).unwrap(), "node-a00824");
        for no_serial in [absent(), Ok("12-34".to_owned())] {
            let error = name(no_serial).unwrap_err();
            assert_eq!(error.word(), "node-name-missing");
            assert!(error.to_string().contains("--hostname-override"), "{error}");
        }
    }

    #[test]
    fn a_board_without_a_serial_number_is_named_by_the_mac_address_that_stays() {
        for no_serial in [absent(), Ok("12-34".to_owned())] {
            let mac_address = Ok("dc:a6:32:5c:0f:fe".to_owned());
            let machine = Machine { mac_address, ..machine(absent(), no_serial) };
            assert_eq!(node_name(&Settings::default(), &machine, None).unwrap().0, "node-5c0ffe");
        }
    }

    #[test]
    fn a_board_is_the_node_that_its_certificate_is_for_whatever_its_host_is_called() {
        let settings = Settings::default();
        let name = |hostname, certified| node_name(&settings, &machine(hostname, absent()), certified);
        let hostname = |name: &str| Ok(name.to_owned());
        for unnamed in [absent(), hostname("gate-7")] {
            assert_eq!(name(unnamed, Some("gate-7")), Ok(("gate-7".to_owned(), None)));
        }
        for other in ["openwrt", "my_board"] {
            let (name, remark) = name(hostname(other), Some("gate-7")).unwrap();
            assert_eq!(name, "gate-7");
            assert!(remark.is_some_and(|text| text.contains(other) && text.contains("system:node:gate-7")), "{other}");
        }
        assert_eq!(name(hostname("gate-7"), Some("Gate-8")), Ok(("gate-7".to_owned(), None)), "no Node is called that");
        assert_eq!(name(absent(), None).unwrap_err().word(), "node-name-missing");
    }

    #[test]
    fn an_override_that_the_certificate_forbids_is_kept_and_told() {
        let settings = Settings { hostname_override: Some("gateway-7".to_owned()), ..Settings::default() };
        let name =
            |certified| node_name(&settings, &machine(Ok("openwrt".to_owned()), absent()), Some(certified)).unwrap();
        assert_eq!(name("gateway-7"), ("gateway-7".to_owned(), None));
        let (name, remark) = name("gateway-8");
        assert_eq!(name, "gateway-7");
        assert!(
            remark.is_some_and(|text| text.contains("hostnameOverride says gateway-7") && text.contains("gateway-8"))
        );
    }

    #[test]
    fn a_name_the_api_server_would_refuse_is_refused_here() {
        let long = "a".repeat(64);
        for bad in ["my_board", "-a", "a-", "a..b", ".a", "a b", "\u{e9}", &long] {
            assert_eq!(name(bad, None).unwrap_err().word(), "node-name-invalid", "{bad:?}");
        }
        assert_eq!(name("edge-1", Some(" ")).unwrap_err().word(), "node-name-invalid");
        assert!(name(&"a".repeat(63), None).is_ok());
    }
}
