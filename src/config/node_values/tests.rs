//! What the Node's own settings become, and what is refused.

use std::net::IpAddr;

use crate::config::limits;
use crate::config::settings::{CloudProvider, Family, NodeIp, Settings};

/// The settings that one flag makes, with what is told of it; or what is wrong with it.
fn flag(name: &str, text: &str) -> Result<(Settings, Vec<String>), Vec<String>> {
    read(None, &[(name.to_owned(), text.to_owned())])
}

/// The same of one line of a file.
fn line(text: &str) -> Result<(Settings, Vec<String>), Vec<String>> {
    read(Some(&format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{text}")), &[])
}

fn read(file: Option<&str>, flags: &[(String, String)]) -> Result<(Settings, Vec<String>), Vec<String>> {
    match crate::config::settings(file.map(|text| ("f", text)), flags) {
        Ok(loaded) => Ok((loaded.settings, loaded.notices)),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
    }
}

/// That a line of a file is refused with these words after the name of its setting.
fn is_refused(name: &str, text: &str, wrong: &[&str]) {
    let wrong: Vec<String> = wrong.iter().map(|wrong| format!("f:3: {name}{wrong}")).collect();
    assert_eq!(line(&format!("{name}: {text}")), Err(wrong), "{text}");
}

/// ADR-2.
#[test]
fn the_node_ip_is_one_address_a_pair_or_a_family() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    for (text, expected) in [
        ("", NodeIp::Detect),
        ("0.0.0.0", NodeIp::Family(Family::V4)),
        ("::", NodeIp::Family(Family::V6)),
        ("192.0.2.1", NodeIp::One(ip("192.0.2.1"))),
        ("010.001.000.009", NodeIp::One(ip("10.1.0.9"))),
        ("192.0.2.1,2001:db8::1", NodeIp::Two(ip("192.0.2.1"), ip("2001:db8::1"))),
        (" 2001:db8::1 , 192.0.2.1 ", NodeIp::Two(ip("2001:db8::1"), ip("192.0.2.1"))),
    ] {
        let (settings, notices) = flag("node-ip", text).unwrap();
        assert_eq!((settings.node_ip, notices), (expected, Vec::new()), "{text}");
    }
}

#[test]
fn entries_that_are_no_address_are_left_out_with_a_notice() {
    let (found, told) = flag("node-ip", "bogus, 192.0.2.1,1.2.3.4.5").unwrap();
    assert_eq!(found.node_ip, NodeIp::One("192.0.2.1".parse().unwrap()));
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], "--node-ip: \"bogus\" is not an IP address and is left out, as the kubelet does");
    assert_eq!(flag("node-ip", "bogus").unwrap().0.node_ip, NodeIp::Detect);
}

#[test]
fn impossible_pairs_of_addresses_are_refused() {
    for text in ["192.0.2.1,192.0.2.2", "::1,::2", "192.0.2.1,::", "0.0.0.0,::1", "192.0.2.1,::1,::2"] {
        let wrong = flag("node-ip", text).unwrap_err();
        assert!(wrong[0].starts_with("--node-ip: must be one IP address, or one IPv4 and one IPv6"), "{text}");
    }
}

/// ST-6.
#[test]
fn a_hostname_is_trimmed_lowered_and_a_name_that_a_label_may_have() {
    let name = |text: &str| flag("hostname-override", text).map(|(settings, _)| settings.hostname_override);
    assert_eq!(name(" Board-7.Local "), Ok(Some("board-7.local".to_owned())));
    assert_eq!(name("  "), Ok(None));
    for template in ["edge-{serial}", "{mac}", "{hostname}.{machine-id}", "{serial}{serial}"] {
        assert_eq!(name(template), Ok(Some(template.to_owned())));
    }
    assert_eq!(name("Edge-{Serial}"), Ok(Some("edge-{serial}".to_owned())));
    for text in ["edge-{seriel}", "{", "edge-}", "{serial", "{}"] {
        let wrong = name(text).unwrap_err();
        let start = "--hostname-override: may hold {serial}, {mac}, {machine-id}, {hostname} and no other braces, not ";
        assert_eq!(wrong, [format!("{start}{text:?}")]);
    }
    for text in ["-{serial}", "edge_{mac}", "{mac}-"] {
        assert!(name(text).unwrap_err()[0].contains("must be a DNS name"), "{text}");
    }
    is_refused(
        "hostnameOverride",
        "{serial}",
        &[": must be a single value, not a map (a text that begins with { stands in quotes)"],
    );
    for text in ["board_7", "-board", "a b", "b\u{e4}r", "a..b", &"a".repeat(64)] {
        assert!(name(text).unwrap_err()[0].contains("must be a DNS name of at most 63 characters"), "{text}");
    }
}

#[test]
fn labels_are_checked_one_by_one() {
    let (found, _) = line("nodeLabels: {a: 1, b: , c: ''}").unwrap();
    assert_eq!(
        found.node_labels.into_iter().collect::<Vec<_>>(),
        [("a", "1"), ("b", ""), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    let wrong = line("nodeLabels:\n  a: 1\n  kubernetes.io/x: y\n  -c: 1\n  d: [1]\n  e: 'a b'").unwrap_err();
    assert_eq!(wrong.len(), 4, "{wrong:?}");
    assert!(wrong[0].starts_with("f:5: nodeLabels.kubernetes.io/x: a node may not set this label on itself"));
    assert_eq!(wrong[2], "f:7: nodeLabels.d: must be a single value, not a list");
    let many: Vec<String> = (0..=limits::NODE_LABELS).map(|index| format!("l{index}")).collect();
    let wrong = flag("node-labels", &many.join(",")).unwrap_err();
    assert_eq!(wrong, ["--node-labels: has 257 entries; 256 are allowed"]);
}

#[test]
fn taints_come_as_maps_or_as_text() {
    let text = "[{key: a, value: b, effect: NoSchedule, timeAdded: null}, 'c:NoExecute', {key: a, effect: NoExecute}]";
    let (found, told) = line(&format!("registerWithTaints: {text}")).unwrap();
    let found: Vec<String> = found.register_with_taints.iter().map(ToString::to_string).collect();
    assert_eq!((found, told), (vec!["a=b:NoSchedule".into(), "c:NoExecute".into(), "a:NoExecute".into()], Vec::new()));
}

#[test]
fn taints_that_the_server_refuses_are_refused() {
    for (text, wrong) in [
        (
            "[{key: a, effect: NoSchedule}, 'a=b:NoSchedule']",
            "[1]: has the key and the effect of an earlier taint: keep one of them",
        ),
        ("[[a]]", "[0]: must be a map with key, effect, value, timeAdded, not a list"),
        ("[a]", "[0]: \"a\" is not of the form key=value:effect or key:effect"),
        (
            "[{key: a, efect: NoSchedule, effect: NoExecute}]",
            "[0]: unknown key \"efect\": the keys are key, effect, value, timeAdded",
        ),
        ("a", "[0]: \"a\" is not of the form key=value:effect or key:effect"),
    ] {
        is_refused("registerWithTaints", text, &[wrong]);
    }
    let many: Vec<String> = (0..=limits::TAINTS).map(|index| format!("t{index}:NoExecute")).collect();
    let wrong = flag("register-with-taints", &many.join(",")).unwrap_err();
    assert_eq!(wrong, ["--register-with-taints: has 65 entries; 64 are allowed"]);
}

#[test]
fn extra_addresses_are_typed_and_distinct() {
    let text = "[{type: ExternalIP, address: '2001:db8::1'}, ExternalDNS=Gate.example.com, InternalIP=10.0.0.1]";
    let (found, told) = line(&format!("extraAddresses: {text}")).unwrap();
    let pair = |kind: &str, address: &str| (kind.to_owned(), address.to_owned());
    let expected =
        [pair("ExternalIP", "2001:db8::1"), pair("ExternalDNS", "Gate.example.com"), pair("InternalIP", "10.0.0.1")];
    assert_eq!((found.extra_addresses.as_slice(), told), (&expected[..], Vec::new()));
    for (text, wrong) in [
        ("[ExternalIP]", "[0]: \"ExternalIP\" is not TYPE=ADDRESS"),
        ("[ExternalIP=gate]", "[0]: the address of type ExternalIP must be an IP address, not \"gate\""),
        ("[ExternalDNS=a_b]", "[0]: the address of type ExternalDNS must be a DNS name, not \"a_b\""),
        (
            "[IP=1.2.3.4]",
            "[0]: the type must be one of InternalIP, ExternalIP, Hostname, InternalDNS, ExternalDNS, not \"IP\"",
        ),
        ("[Hostname=a, Hostname=a]", "[1]: is in the list twice: keep one of them"),
        ("[{type: ExternalIP}]", "[0]: the address of type ExternalIP must be an IP address, not \"\""),
        ("{}", ": must be a list of maps with type and address, not a map"),
    ] {
        is_refused("extraAddresses", text, &[wrong]);
    }
    let many: Vec<String> = (0..=limits::NODE_ADDRESSES).map(|index| format!("Hostname=h{index}")).collect();
    let wrong = flag("extra-addresses", &many.join(",")).unwrap_err();
    assert_eq!(wrong, ["--extra-addresses: has 33 entries; 32 are allowed"]);
}

/// ALC-3.
#[test]
fn only_four_resources_can_be_reserved_and_never_less_than_nothing() {
    let (found, told) = line("kubeReserved: {cpu: 250m, memory: 1Gi, ephemeral-storage: 0, pid: 100}").unwrap();
    assert_eq!((found.kube_reserved["cpu"].to_string(), told), ("250m".to_owned(), Vec::new()));
    for (text, wrong) in [
        ("{gpu: 1}", ".gpu: cannot be reserved: use cpu, memory, ephemeral-storage, pid"),
        ("{cpu: -1}", ".cpu: must not be negative, as \"-1\" is"),
        ("{cpu: }", ".cpu: must be a quantity, not nothing"),
        ("[]", ": must be a map of RESOURCE: QUANTITY, not a list"),
        ("{cpu: many}", ".cpu: \"many\" is not a quantity; write a number such as 100Mi, 250m or 4"),
    ] {
        is_refused("kubeReserved", text, &[wrong]);
    }
}

#[test]
fn reserved_cpus_are_counted_once_each() {
    let count = |text: &str| flag("reserved-cpus", text).map(|(settings, _)| settings.reserved_system_cpus);
    for (text, expected) in [("0", Some(1)), ("0-3", Some(4)), ("1,0-2, 2", Some(3)), ("8191", Some(1)), ("", None)] {
        assert_eq!(count(text), Ok(expected), "{text}");
    }
    for text in ["a", "3-1", "0-4294967295", "8192", "1,,2", "-1", "+1", "1-2-3", "0-"] {
        let wrong = count(text).unwrap_err();
        assert!(wrong[0].starts_with("--reserved-cpus: must be a list of CPUs from 0 to 8191 such as 0-3,5"), "{text}");
    }
}

#[test]
fn the_cloud_provider_is_external_or_none() {
    let provider = |text: &str| flag("cloud-provider", text).map(|(settings, _)| settings.cloud_provider);
    assert_eq!(provider("external"), Ok(CloudProvider::External));
    assert_eq!(provider(""), Ok(CloudProvider::None));
    assert_eq!(provider("gce"), Err(vec!["--cloud-provider: must be external or empty, not \"gce\"".to_owned()]));
}
