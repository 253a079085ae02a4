//! Turns the settings and the machine's identity into the name of the Node.

use super::error::NodeError;
use crate::config::Settings;
use crate::config::labels::is_dns_subdomain;
use crate::config::settings::NAME_FACTS;
use crate::probe::Machine;

/// The name is also the value of the label `kubernetes.io/hostname`, which may be no longer.
const NAME_MAX: usize = 63;
/// With `system:node:` before it, a CN of the 64 characters that X.520 allows.
const JOIN_MAX: usize = 52;
/// Characters of the serial number, or of the MAC address, that make a derived name: few collide, and a person can read
/// them out.
const TAIL: usize = 6;

/// What the Node is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName {
    pub name: String,
    /// What that comes from, for a sentence: `hostnameOverride edge-{serial}`, `the client certificate`.
    pub from: String,
    /// What a person should know of it, one sentence each.
    pub remarks: Vec<String>,
}

/// `--hostname-override`, else the Node that the client certificate is for (`certified`), else the machine's hostname,
/// trimmed and lower-cased (ST-6). With it a sentence where two of these differ.
///
/// An API server lets the owner of such a certificate be no other Node: by any other name every request is refused. So a
/// hostname that somebody changes locks no board out, and one that has none stays what it was enrolled as.
///
/// A hostname that says nothing (`(none)`, `localhost`: absent in the facts) would make boards of one image fight for
/// one Node. With nothing else such a board is `node-` and the last six letters or digits of its serial number, or of a MAC
/// address that stays; with neither it is refused. A hostname that says something but cannot be a Node's name is refused
/// too, never bent into shape; so is a template with a fact that is absent.
pub fn node_name(settings: &Settings, machine: &Machine, certified: Option<&str>) -> Result<NodeName, NodeError> {
    // What a Node cannot be called, nobody is let be.
    let certified = certified.filter(|name| checked(name).as_deref() == Ok(*name));
    let wanted = settings.hostname_override.as_ref();
    let (name, from) = match (wanted, certified, &machine.hostname) {
        (Some(template), ..) => {
            let name = checked(&expanded(template, machine)?)?;
            let template = if template.contains('{') { format!(" {template}") } else { String::new() };
            (name, format!("hostnameOverride{template}"))
        }
        (None, Some(certified), _) => (certified.to_owned(), "the client certificate".to_owned()),
        (None, None, Ok(hostname)) => (checked(hostname)?, "the host's name".to_owned()),
        (None, None, Err(absent)) => derived(machine).ok_or_else(|| {
            let text = format!(
                "this machine's hostname says nothing ({absent}) and it has neither a serial number nor a MAC address \
                 that stays; give it a name with hostnamectl set-hostname NAME, or start with --hostname-override NAME"
            );
            NodeError::new("node-name-missing", text)
        })?,
    };
    let mut remarks = Vec::new();
    match certified {
        Some(certified) => remarks.extend(differs(&name, wanted.is_some(), certified, machine)),
        // The CN of its certificate will have more than the 64 characters that X.520 allows.
        None if settings.can_join() && name.len() > JOIN_MAX => remarks.push(format!(
            "the name {name} has {} characters, and some programs refuse certificates of Nodes with more than {JOIN_MAX}",
            name.len()
        )),
        None => {}
    }
    Ok(NodeName { name, from, remarks })
}

/// A sentence where the Node that the certificate is for is not what the settings or the host say.
fn differs(name: &str, is_wanted: bool, certified: &str, machine: &Machine) -> Option<String> {
    let only =
        format!("the client certificate is for system:node:{certified}, whom an API server lets be no other Node");
    if is_wanted {
        return (name != certified)
            .then(|| format!("{only}, and hostnameOverride says {name}: remove that, or enroll {name}"));
    }
    let hostname = machine.hostname.as_ref().ok().filter(|hostname| *hostname != certified)?;
    Some(format!(
        "{only}, so this Node is {certified}, though the host is called {hostname}: \
         hostnamectl set-hostname {certified}, or enroll {hostname}"
    ))
}

/// `hostnameOverride` with the board's own facts in it: in lower case, and a dash for everything but letters and digits.
fn expanded(template: &str, machine: &Machine) -> Result<String, NodeError> {
    let facts = [&machine.board_serial, &machine.mac_address, &machine.machine_id, &machine.hostname];
    let mut name = template.to_owned();
    for (key, fact) in NAME_FACTS.iter().zip(facts).filter(|(key, _)| template.contains(**key)) {
        let fact = fact.as_ref().map_err(|absent| {
            let text = format!(
                "hostnameOverride {template} needs what this board does not say ({absent}): nodepulse probe shows what it \
                 does; use another of {}, or give it a name of its own with --hostname-override NAME",
                NAME_FACTS.join(", ")
            );
            NodeError::new("node-name-missing", text)
        })?;
        let plain = fact.trim().to_ascii_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        name = name.replace(key, plain.trim_matches('-'));
    }
    Ok(name)
}

fn checked(name: &str) -> Result<String, NodeError> {
    let name = name.trim().to_ascii_lowercase();
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

/// A name, and what it comes from.
fn derived(machine: &Machine) -> Option<(String, String)> {
    let known =
        [(&machine.board_serial, "the board's serial number"), (&machine.mac_address, "the board's MAC address")];
    known.into_iter().find_map(|(unique, from)| {
        let letters: Vec<char> = unique.as_ref().ok()?.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail = letters.get(letters.len().checked_sub(TAIL)?..)?;
        Some((format!("node-{}", tail.iter().collect::<String>().to_ascii_lowercase()), from.to_owned()))
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
        node_name(&settings, &machine, None).map(|found| found.name)
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
        assert_eq!(node_name(&settings, &machine(absent(), absent()), None).unwrap().name, "gateway-7");
    }

    #[test]
    fn a_hostname_that_says_nothing_is_replaced_by_the_serial_number() {
        let name = |serial| node_name(&Settings::default(), &machine(absent(), serial), None).map(|found| found.name);
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
            let NodeName { name, from, remarks } = node_name(&Settings::default(), &machine, None).unwrap();
            assert_eq!((&*name, &*from, remarks.len()), ("node-5c0ffe", "the board's MAC address", 0));
        }
    }

    #[test]
    fn a_board_is_the_node_that_its_certificate_is_for_whatever_its_host_is_called() {
        let settings = Settings::default();
        let name = |hostname, certified| {
            let found = node_name(&settings, &machine(hostname, absent()), certified)?;
            Ok::<_, NodeError>((found.name, found.from, found.remarks))
        };
        let hostname = |name: &str| Ok(name.to_owned());
        let of_certificate = || ("gate-7".to_owned(), "the client certificate".to_owned(), Vec::new());
        for unnamed in [absent(), hostname("gate-7")] {
            assert_eq!(name(unnamed, Some("gate-7")), Ok(of_certificate()));
        }
        for other in ["openwrt", "my_board"] {
            let (name, _, remarks) = name(hostname(other), Some("gate-7")).unwrap();
            assert_eq!(name, "gate-7");
            let [remark] = remarks.as_slice() else { panic!("{remarks:?}") };
            assert!(remark.contains(other) && remark.contains("system:node:gate-7"), "{remark}");
        }
        let (found, from, remarks) = name(hostname("gate-7"), Some("Gate-8")).unwrap();
        assert_eq!((&*found, &*from, remarks.len()), ("gate-7", "the host's name", 0), "no Node is called that");
        assert_eq!(name(absent(), None).unwrap_err().word(), "node-name-missing");
    }

    #[test]
    fn an_override_that_the_certificate_forbids_is_kept_and_told() {
        let settings = Settings { hostname_override: Some("gateway-7".to_owned()), ..Settings::default() };
        let name =
            |certified| node_name(&settings, &machine(Ok("openwrt".to_owned()), absent()), Some(certified)).unwrap();
        let (given, of_another) = (name("gateway-7"), name("gateway-8"));
        assert_eq!((&*given.name, &*given.from, given.remarks.len()), ("gateway-7", "hostnameOverride", 0));
        assert_eq!(of_another.name, "gateway-7");
        let [remark] = of_another.remarks.as_slice() else { panic!("{of_another:?}") };
        assert!(remark.contains("hostnameOverride says gateway-7") && remark.contains("gateway-8"), "{remark}");
    }

    /// FLEET-1.
    #[test]
    fn a_template_makes_a_name_of_what_the_board_says_of_itself() {
        let machine = Machine {
            mac_address: Ok("dc:a6:32:5c:0f:fe".to_owned()),
            machine_id: Ok("4D1F0E7C-2b9a-4c6f-8e35-d7a1b0c2f694".to_owned()),
            ..machine(Ok("my_host.lan".to_owned()), Ok(".7XJ2Q12.CN7016319K00A5.".to_owned()))
        };
        let named = |template: &str| {
            let settings = Settings { hostname_override: Some(template.to_owned()), ..Settings::default() };
            node_name(&settings, &machine, Some("edge-7")).unwrap()
        };
        for (template, name) in [
            ("edge-{serial}", "edge-7xj2q12-cn7016319k00a5"),
            ("{mac}", "dc-a6-32-5c-0f-fe"),
            ("{machine-id}.site-3", "4d1f0e7c-2b9a-4c6f-8e35-d7a1b0c2f694.site-3"),
            ("{hostname}-{mac}-{hostname}", "my-host-lan-dc-a6-32-5c-0f-fe-my-host-lan"),
        ] {
            let found = named(template);
            assert_eq!((found.name.as_str(), found.from), (name, format!("hostnameOverride {template}")));
            assert!(
                found.remarks[0].contains(&format!("hostnameOverride says {name}")),
                "the certificate is for edge-7"
            );
        }
    }

    #[test]
    fn a_template_whose_fact_is_absent_is_refused_and_nothing_is_guessed() {
        let settings = Settings { hostname_override: Some("edge-{serial}".to_owned()), ..Settings::default() };
        for certified in [None, Some("edge-7")] {
            let machine =
                Machine { mac_address: Ok("dc:a6:32:5c:0f:fe".to_owned()), ..machine(Ok("h".to_owned()), absent()) };
            let refused = node_name(&settings, &machine, certified).unwrap_err();
            assert_eq!(refused.word(), "node-name-missing");
            let said = refused.to_string();
            assert!(said.contains("hostnameOverride edge-{serial} needs") && said.contains("{machine-id}"), "{said}");
        }
        let long = machine(Ok("h".to_owned()), Ok("x".repeat(60)));
        assert_eq!(node_name(&settings, &long, None).unwrap_err().word(), "node-name-invalid");
        let nothing = machine(Ok("h".to_owned()), Ok("...".to_owned()));
        assert_eq!(node_name(&settings, &nothing, None).unwrap_err().word(), "node-name-invalid");
    }

    /// CSR-1.
    #[test]
    fn a_name_too_long_for_the_subject_of_a_certificate_is_told_before_one_is_asked_for() {
        let remarks = |length: usize, bootstrap_kubeconfig: Option<&str>, certified: Option<&str>| {
            let settings =
                Settings { bootstrap_kubeconfig: bootstrap_kubeconfig.map(str::to_owned), ..Settings::default() };
            node_name(&settings, &machine(Ok("a".repeat(length)), absent()), certified).unwrap().remarks
        };
        assert_eq!(remarks(52, Some("/b"), None), [""; 0]);
        let [remark] = &remarks(53, Some("/b"), None)[..] else { panic!("one") };
        assert!(remark.contains("has 53 characters"), "{remark}");
        assert_eq!(remarks(53, None, None), [""; 0]);
        assert_eq!(remarks(53, Some("/b"), Some(&"a".repeat(53))), [""; 0]);
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
