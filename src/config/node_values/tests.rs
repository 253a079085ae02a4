//! What the Node's own settings become, and what is refused.

use super::*;
use crate::config::problem::Origin;

/// What `read` makes of a flag-like text, and what it has to say.
fn read<T>(value: &Value, read: impl Fn(&Value, &mut Report<'_>) -> Option<T>) -> (Option<T>, Vec<String>) {
    let (mut problems, mut notices) = (Vec::new(), Vec::new());
    let mut report = Report { origin: &Origin::Flag, field: "f", problems: &mut problems, notices: &mut notices };
    let value = read(value, &mut report);
    notices.extend(problems.iter().map(ToString::to_string));
    (value, notices)
}

fn tree(text: &str) -> Value {
    let parsed = crate::config::yaml::parse(text);
    assert!(parsed.problems.is_empty());
    parsed.tree
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
        assert_eq!(read(&Value::text(text), node_ip), (Some(expected), Vec::new()), "{text}");
    }
}

#[test]
fn entries_that_are_no_address_are_left_out_with_a_notice() {
    let (found, said) = read(&Value::text("bogus, 192.0.2.1,1.2.3.4.5"), node_ip);
    assert_eq!(found, Some(NodeIp::One("192.0.2.1".parse().unwrap())));
    assert_eq!(said.len(), 2);
    assert_eq!(said[0], "f: \"bogus\" is not an IP address and is left out, as the kubelet does");
    assert_eq!(read(&Value::text("bogus"), node_ip).0, Some(NodeIp::Detect));
}

#[test]
fn impossible_pairs_of_addresses_are_refused() {
    for text in ["192.0.2.1,192.0.2.2", "::1,::2", "192.0.2.1,::", "0.0.0.0,::1", "192.0.2.1,::1,::2"] {
        let (found, said) = read(&Value::text(text), node_ip);
        assert_eq!(found, None, "{text}");
        assert!(said[0].starts_with("f: must be one IP address, or one IPv4 and one IPv6"));
    }
}

/// ST-6.
#[test]
fn a_hostname_is_trimmed_lowered_and_a_name_that_a_label_may_have() {
    assert_eq!(read(&Value::text(" Board-7.Local "), hostname).0, Some(Some("board-7.local".to_owned())));
    assert_eq!(read(&Value::text("  "), hostname), (Some(None), Vec::new()));
    for text in ["board_7", "-board", "a b", "b\u{e4}r", "a..b", &"a".repeat(64)] {
        assert_eq!(read(&Value::text(text), hostname).0, None, "{text}");
    }
}

#[test]
fn labels_are_checked_one_by_one() {
    let (found, said) = read(&tree("a: 1\nb:\nkubernetes.io/x: y\n-c: 1\nd: [1]\ne: 'a b'"), node_labels);
    let found = found.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].starts_with("f: label kubernetes.io/x: a node may not set this key on itself"));
    assert_eq!(said[2], "f.d: must be text, not a list");
    let many = Value::map((0..=limits::NODE_LABELS).map(|index| (format!("l{index}"), String::new())));
    assert_eq!(read(&many, node_labels), (None, vec!["f: has 257 entries; 256 are allowed".to_owned()]));
}

#[test]
fn taints_come_as_maps_or_as_text() {
    let text =
        "- {key: a, value: b, effect: NoSchedule, timeAdded: null}\n- c:NoExecute\n- {key: a, effect: NoExecute}";
    let (found, said) = read(&tree(text), taints);
    let found: Vec<String> = found.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!((found, said), (vec!["a=b:NoSchedule".into(), "c:NoExecute".into(), "a:NoExecute".into()], Vec::new()));
}

#[test]
fn taints_that_the_server_refuses_are_refused() {
    for (text, wrong) in [
        (
            "[{key: a, effect: NoSchedule}, 'a=b:NoSchedule']",
            "f[1]: has the key and the effect of a taint before it: keep one",
        ),
        ("[[a]]", "f[0]: must be a map with key, effect, value, timeAdded, not a list"),
        ("[a]", "f[0]: taint \"a\" is not of the form key=value:effect or key:effect"),
        (
            "[{key: a, efect: NoSchedule, effect: NoExecute}]",
            "f[0]: unknown key \"efect\": the keys are key, effect, value, timeAdded",
        ),
        ("a", "f: must be a list of maps with key, value and effect, not a single value"),
    ] {
        assert_eq!(read(&tree(text), taints).1, [wrong]);
    }
    let many = Value::list((0..=limits::TAINTS).map(|index| Value::text(&format!("t{index}:NoExecute"))));
    assert_eq!(read(&many, taints), (None, vec!["f: has 65 entries; 64 are allowed".to_owned()]));
}

#[test]
fn extra_addresses_are_typed_and_distinct() {
    let text = "[{type: ExternalIP, address: '2001:db8::1'}, ExternalDNS=Gate.example.com, InternalIP=10.0.0.1]";
    let (found, said) = read(&tree(text), extra_addresses);
    let pair = |kind: &str, address: &str| (kind.to_owned(), address.to_owned());
    let expected =
        [pair("ExternalIP", "2001:db8::1"), pair("ExternalDNS", "Gate.example.com"), pair("InternalIP", "10.0.0.1")];
    assert_eq!((found.unwrap().as_slice(), said), (&expected[..], Vec::new()));
    for (text, wrong) in [
        ("[ExternalIP]", "f[0]: \"ExternalIP\" is not TYPE=ADDRESS"),
        ("[ExternalIP=gate]", "f[0]: the address of type ExternalIP must be an IP address, not \"gate\""),
        ("[ExternalDNS=a_b]", "f[0]: the address of type ExternalDNS must be a DNS name, not \"a_b\""),
        (
            "[IP=1.2.3.4]",
            "f[0]: the type must be one of InternalIP, ExternalIP, Hostname, InternalDNS, ExternalDNS, not \"IP\"",
        ),
        ("[Hostname=a, Hostname=a]", "f[1]: stands in the list twice: keep one"),
        ("[{type: ExternalIP}]", "f[0]: the address of type ExternalIP must be an IP address, not \"\""),
        ("{}", "f: must be a list of maps with type and address, not a map"),
    ] {
        assert_eq!(read(&tree(text), extra_addresses).1, [wrong]);
    }
    let many = Value::list((0..=limits::NODE_ADDRESSES).map(|index| Value::text(&format!("Hostname=h{index}"))));
    assert_eq!(read(&many, extra_addresses).1, ["f: has 33 entries; 32 are allowed"]);
}

/// ALC-3.
#[test]
fn only_four_resources_can_be_reserved_and_never_less_than_nothing() {
    let (found, said) = read(&tree("{cpu: 250m, memory: 1Gi, ephemeral-storage: 0, pid: 100}"), reserved);
    assert_eq!((found.unwrap()["cpu"].to_string(), said), ("250m".to_owned(), Vec::new()));
    for (text, wrong) in [
        ("{gpu: 1}", "f: \"gpu\" cannot be reserved: use cpu, memory, ephemeral-storage, pid"),
        ("{cpu: -1}", "f.cpu: must not be negative, as \"-1\" is"),
        ("{cpu: }", "f.cpu: must be a quantity, not nothing"),
        ("[]", "f: must be a map of RESOURCE: QUANTITY, not a list"),
    ] {
        assert_eq!(read(&tree(text), reserved).1, [wrong]);
    }
    assert!(read(&tree("{cpu: many}"), reserved).1[0].starts_with("f.cpu: \"many\""));
}

#[test]
fn reserved_cpus_are_counted_once_each() {
    for (text, count) in [("0", Some(1)), ("0-3", Some(4)), ("1,0-2, 2", Some(3)), ("8191", Some(1)), ("", None)] {
        assert_eq!(read(&Value::text(text), cpu_count), (Some(count), Vec::new()), "{text}");
    }
    for text in ["a", "3-1", "0-4294967295", "8192", "1,,2", "-1", "+1", "1-2-3", "0-"] {
        let (found, said) = read(&Value::text(text), cpu_count);
        assert_eq!(found, None);
        assert!(said[0].starts_with("f: must be a list of CPUs from 0 to 8191 such as 0-3,5"), "{text}");
    }
}

#[test]
fn the_cloud_provider_is_external_or_none() {
    assert_eq!(read(&Value::text("external"), cloud_provider).0, Some(CloudProvider::External));
    assert_eq!(read(&Value::text(""), cloud_provider).0, Some(CloudProvider::None));
    assert_eq!(read(&Value::text("gce"), cloud_provider).1, ["f: must be external or empty, not \"gce\""]);
}
