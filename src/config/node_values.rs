//! Turns the settings that describe the Node into checked labels, taints, addresses, names and reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use super::labels;
use super::limits;
use super::quantity::Quantity;
use super::scalars::{Report, quoted, scalar, text};
use super::settings::{CloudProvider, Family, NodeIp};
use super::taint::Taint;
use super::yaml::{Entry, Value};

/// `hostnameOverride`: trimmed and lower-cased (ST-6), and a name that an object and a label may have.
pub(super) fn hostname(value: &Value, report: &mut Report<'_>) -> Option<Option<String>> {
    let name = text(value, report)?.to_lowercase();
    if name.is_empty() {
        return Some(None);
    }
    if !labels::is_dns_subdomain(&name) || labels::check_value(&name).is_err() {
        let text = "must be a DNS name of at most 63 characters: a-z, 0-9, '-' and '.', alphanumeric at both ends";
        report.refuse(value, format!("{text}, not {}", quoted(&name)));
        return None;
    }
    Some(Some(name))
}

/// The value of a label that the setting stands for.
pub(super) fn label_value(value: &Value, report: &mut Report<'_>) -> Option<String> {
    let text = text(value, report)?;
    match labels::check_value(&text) {
        Ok(()) => Some(text),
        Err(wrong) => {
            report.refuse(value, format!("becomes a label, and {wrong}"));
            None
        }
    }
}

pub(super) fn cloud_provider(value: &Value, report: &mut Report<'_>) -> Option<CloudProvider> {
    match scalar(value, report)? {
        "" => Some(CloudProvider::None),
        "external" => Some(CloudProvider::External),
        other => {
            report.refuse(value, format!("must be external or empty, not {}", quoted(other)));
            None
        }
    }
}

/// `nodeLabels`: every entry checked against NodeRestriction's list (D9).
pub(super) fn node_labels(value: &Value, report: &mut Report<'_>) -> Option<BTreeMap<String, String>> {
    let entries = entries(value, "KEY: VALUE", report)?;
    if too_many(value, entries.len(), limits::NODE_LABELS, report) {
        return None;
    }
    let mut read = BTreeMap::new();
    for Entry { key, line, value } in entries {
        let text = match value {
            Value::Null { .. } => "",
            Value::Scalar { text, .. } => text,
            other => {
                report.refuse_below(*line, &format!(".{key}"), format!("must be text, not {}", other.kind()));
                continue;
            }
        };
        match labels::check_node_label(key, text) {
            Ok(()) => {
                read.insert(key.clone(), text.to_owned());
            }
            Err(problem) => report.refuse_below(*line, "", problem.to_string()),
        }
    }
    Some(read)
}

/// `registerWithTaints`: maps of key, value and effect in a file, `key=value:effect` in a flag (and in a file).
pub(super) fn taints(value: &Value, report: &mut Report<'_>) -> Option<Vec<Taint>> {
    let items = items(value, "key, value and effect", report)?;
    if too_many(value, items.len(), limits::TAINTS, report) {
        return None;
    }
    let mut taints: Vec<Taint> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let below = format!("[{index}]");
        let taint = match item {
            Value::Scalar { text, .. } => Taint::parse(text.trim()).map_err(|error| error.to_string()),
            item => parts(item, &below, ["key", "effect", "value", "timeAdded"], report)
                .and_then(|[key, effect, value, _]| Taint::new(key, value, effect).map_err(|error| error.to_string())),
        };
        match taint {
            Ok(taint) if taints.iter().any(|known| known.collides_with(&taint)) => {
                report.refuse_below(item.line(), &below, "has the key and the effect of a taint before it: keep one");
            }
            Ok(taint) => taints.push(taint),
            Err(text) => report.refuse_below(item.line(), &below, text),
        }
    }
    Some(taints)
}

const ADDRESS_TYPES: [&str; 5] = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];

/// `extraAddresses`: maps of type and address in a file, `TYPE=ADDRESS` in a flag (and in a file).
pub(super) fn extra_addresses(value: &Value, report: &mut Report<'_>) -> Option<Vec<(String, String)>> {
    let items = items(value, "type and address", report)?;
    if too_many(value, items.len(), limits::NODE_ADDRESSES, report) {
        return None;
    }
    let mut addresses: Vec<(String, String)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let below = format!("[{index}]");
        let pair = match item {
            Value::Scalar { text, .. } => {
                text.split_once('=').ok_or_else(|| format!("{} is not TYPE=ADDRESS", quoted(text)))
            }
            item => parts(item, &below, ["type", "address"], report).map(|[kind, address]| (kind, address)),
        };
        match pair.and_then(|(kind, address)| check_address(kind.trim(), address.trim())) {
            Ok(address) if addresses.contains(&address) => {
                report.refuse_below(item.line(), &below, "stands in the list twice: keep one");
            }
            Ok(address) => addresses.push(address),
            Err(text) => report.refuse_below(item.line(), &below, text),
        }
    }
    Some(addresses)
}

fn check_address(kind: &str, address: &str) -> Result<(String, String), String> {
    if !ADDRESS_TYPES.contains(&kind) {
        return Err(format!("the type must be one of {}, not {}", ADDRESS_TYPES.join(", "), quoted(kind)));
    }
    let (good, expected) = if kind.ends_with("IP") {
        (address.parse::<IpAddr>().is_ok(), "an IP address")
    } else {
        (labels::is_dns_subdomain(&address.to_lowercase()), "a DNS name")
    };
    if good {
        Ok((kind.to_owned(), address.to_owned()))
    } else {
        Err(format!("the address of type {kind} must be {expected}, not {}", quoted(address)))
    }
}

/// `nodeIP` (ADR-2): entries that are no IP address are left out, with a notice, as the kubelet leaves them out.
pub(super) fn node_ip(value: &Value, report: &mut Report<'_>) -> Option<NodeIp> {
    let text = scalar(value, report)?;
    let mut ips = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match parse_ip_sloppily(entry) {
            Some(ip) => ips.push(ip),
            None => {
                let text = format!("{} is not an IP address and is left out, as the kubelet does", quoted(entry));
                report.tell(value.line(), "", &text);
            }
        }
    }
    match *ips.as_slice() {
        [] => Some(NodeIp::Detect),
        [ip] if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(NodeIp::Family(Family::V6)),
        [ip] if ip.is_unspecified() => Some(NodeIp::Family(Family::V4)),
        [ip] => Some(NodeIp::One(ip)),
        [first, second]
            if first.is_ipv4() != second.is_ipv4() && !first.is_unspecified() && !second.is_unspecified() =>
        {
            Some(NodeIp::Two(first, second))
        }
        _ => {
            let text = "must be one IP address, or one IPv4 and one IPv6 address, neither of them 0.0.0.0 or ::";
            report.refuse(value, text);
            None
        }
    }
}

/// As Go did before 1.17 and the kubelet still does: leading zeros of IPv4 are decimal.
fn parse_ip_sloppily(text: &str) -> Option<IpAddr> {
    let part = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let plain = text.split('.').map(part).collect::<Vec<_>>().join(".");
    text.parse().or_else(|_| plain.parse()).ok()
}

pub(super) fn print_node_ip(node_ip: &NodeIp) -> String {
    match node_ip {
        NodeIp::Detect => String::new(),
        NodeIp::Family(Family::V4) => "0.0.0.0".to_owned(),
        NodeIp::Family(Family::V6) => "::".to_owned(),
        NodeIp::One(ip) => ip.to_string(),
        NodeIp::Two(first, second) => format!("{first},{second}"),
    }
}

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// `kubeReserved`, `systemReserved` (ALC-3).
pub(super) fn reserved(value: &Value, report: &mut Report<'_>) -> Option<BTreeMap<String, Quantity>> {
    let mut read = BTreeMap::new();
    for Entry { key, line, value } in entries(value, "RESOURCE: QUANTITY", report)? {
        let below = format!(".{key}");
        if !RESERVABLE.contains(&key.as_str()) {
            let text = format!("{} cannot be reserved: use {}", quoted(key), RESERVABLE.join(", "));
            report.refuse_below(*line, "", text);
            continue;
        }
        let Value::Scalar { text, .. } = value else {
            report.refuse_below(*line, &below, format!("must be a quantity, not {}", value.kind()));
            continue;
        };
        match Quantity::parse(text.trim()) {
            Ok(quantity) if quantity.is_negative() => {
                report.refuse_below(*line, &below, format!("must not be negative, as {} is", quoted(text)));
            }
            Ok(quantity) => {
                read.insert(key.clone(), quantity);
            }
            Err(error) => report.refuse_below(*line, &below, error.to_string()),
        }
    }
    Some(read)
}

/// `reservedSystemCPUs`: how many CPUs a list such as `0-3,5` names.
pub(super) fn cpu_count(value: &Value, report: &mut Report<'_>) -> Option<Option<u32>> {
    let text = scalar(value, report)?;
    let mut cpus = BTreeSet::new();
    for range in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (cpu(first), cpu(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => {
                let most = limits::CPUS - 1;
                report.refuse(
                    value,
                    format!("must be a list of CPUs from 0 to {most} such as 0-3,5, not {}", quoted(text)),
                );
                return None;
            }
        }
    }
    Some(u32::try_from(cpus.len()).ok().filter(|count| *count > 0))
}

fn cpu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|cpu| *cpu < limits::CPUS && !text.starts_with('+'))
}

fn entries<'v>(value: &'v Value, example: &str, report: &mut Report<'_>) -> Option<&'v [Entry]> {
    match value {
        Value::Map { entries, .. } => Some(entries),
        other => {
            report.refuse(other, format!("must be a map of {example}, not {}", other.kind()));
            None
        }
    }
}

fn items<'v>(value: &'v Value, parts: &str, report: &mut Report<'_>) -> Option<&'v [Value]> {
    match value {
        Value::List { items, .. } => Some(items),
        other => {
            report.refuse(other, format!("must be a list of maps with {parts}, not {}", other.kind()));
            None
        }
    }
}

fn too_many(value: &Value, count: usize, limit: usize, report: &mut Report<'_>) -> bool {
    if count > limit {
        report.refuse(value, format!("has {count} entries; {limit} are allowed"));
    }
    count > limit
}

/// The texts of a map's keys, empty where absent; other keys are refused. Errors are for the item as a whole.
fn parts<'v, const N: usize>(
    item: &'v Value,
    below: &str,
    keys: [&str; N],
    report: &mut Report<'_>,
) -> Result<[&'v str; N], String> {
    let Value::Map { entries, .. } = item else {
        return Err(format!("must be a map with {}, not {}", keys.join(", "), item.kind()));
    };
    for entry in entries.iter().filter(|entry| !keys.contains(&entry.key.as_str())) {
        let text = format!("unknown key {}: the keys are {}", quoted(&entry.key), keys.join(", "));
        report.refuse_below(entry.line, below, text);
    }
    Ok(keys.map(|key| match item.get(key) {
        Some(Value::Scalar { text, .. }) => text.as_str(),
        _ => "",
    }))
}

#[cfg(test)]
mod tests;
