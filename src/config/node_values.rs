//! Reads the settings that describe the Node: its name, labels, taints, addresses and reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use super::labels;
use super::limits;
use super::problem::{Report, quoted};
use super::quantity::Quantity;
use super::settings::{CloudProvider, Family, NodeIp, Settings};
use super::taint::Taint;
use super::yaml::{Entry, Value};

/// `hostnameOverride`: lower-cased (ST-6), and a name that an object and a label may have.
pub(super) fn hostname(to: &mut Settings, text: &str, _: &mut Report<'_>) -> Result<(), String> {
    let name = text.to_lowercase();
    let is_name = labels::is_dns_subdomain(&name) && labels::check_value(&name).is_ok();
    to.hostname_override = match name.as_str() {
        "" => None,
        _ if is_name => Some(name),
        _ => {
            let text = "must be a DNS name of at most 63 characters: a-z, 0-9, '-' and '.', alphanumeric at both ends";
            return Err(format!("{text}, not {}", quoted(&name)));
        }
    };
    Ok(())
}

pub(super) fn provider_id(to: &mut Settings, text: &str, _: &mut Report<'_>) -> Result<(), String> {
    text.clone_into(&mut to.provider_id);
    Ok(())
}

/// A setting that becomes the value of a label.
pub(super) fn label_value(to: &mut String, text: &str) -> Result<(), String> {
    labels::check_value(text).map_err(|wrong| format!("becomes a label, and {wrong}"))?;
    text.clone_into(to);
    Ok(())
}

pub(super) fn cloud_provider(to: &mut Settings, text: &str, _: &mut Report<'_>) -> Result<(), String> {
    to.cloud_provider = match text {
        "" => CloudProvider::None,
        "external" => CloudProvider::External,
        other => return Err(format!("must be external or empty, not {}", quoted(other))),
    };
    Ok(())
}

/// `nodeLabels`: every entry checked against NodeRestriction's list (D9).
pub(super) fn node_labels(to: &mut Settings, entries: &[Entry], report: &mut Report<'_>) {
    to.node_labels.clear();
    for Entry { key, line, value } in entries {
        let text = match value {
            Value::Null { .. } => "",
            Value::Scalar { text, .. } => text,
            other => {
                report.refuse_part(*line, &format!(".{key}"), format!("must be text, not {}", other.kind()));
                continue;
            }
        };
        match labels::check_node_label(key, text) {
            Ok(()) => {
                to.node_labels.insert(key.clone(), text.to_owned());
            }
            Err(wrong) => report.refuse_part(*line, "", wrong),
        }
    }
}

/// `registerWithTaints`: maps of key, value and effect in a file, `key=value:effect` in a flag (and in a file).
pub(super) fn taints(to: &mut Settings, items: &[Value], report: &mut Report<'_>) {
    let read = |item: &Value| match item {
        Value::Scalar { text, .. } => Taint::parse(text.trim()),
        item => texts_of(item, ["key", "effect", "value", "timeAdded"])
            .and_then(|[key, effect, value, _]| Taint::new(key, value, effect)),
    };
    let again = "has the key and the effect of a taint before it: keep one";
    to.register_with_taints = distinct(items, report, read, Taint::collides_with, again);
}

/// `extraAddresses`: maps of type and address in a file, `TYPE=ADDRESS` in a flag (and in a file).
pub(super) fn extra_addresses(to: &mut Settings, items: &[Value], report: &mut Report<'_>) {
    let read = |item: &Value| match item {
        Value::Scalar { text, .. } => {
            let (kind, address) =
                text.split_once('=').ok_or_else(|| format!("{} is not TYPE=ADDRESS", quoted(text)))?;
            address_of(kind.trim(), address.trim())
        }
        item => texts_of(item, ["type", "address"]).and_then(|[kind, address]| address_of(kind.trim(), address.trim())),
    };
    to.extra_addresses = distinct(items, report, read, |one, other| one == other, "stands in the list twice: keep one");
}

/// What `read` makes of the items; an item that is the same as one before it is refused with the words of `again`.
fn distinct<T>(
    items: &[Value],
    report: &mut Report<'_>,
    read: impl Fn(&Value) -> Result<T, String>,
    is_same: impl Fn(&T, &T) -> bool,
    again: &str,
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let wrong = match read(item) {
            Ok(one) if kept.iter().any(|other| is_same(&one, other)) => again.to_owned(),
            Ok(one) => {
                kept.push(one);
                continue;
            }
            Err(wrong) => wrong,
        };
        report.refuse_part(item.line(), &format!("[{index}]"), wrong);
    }
    kept
}

/// The texts of a map's keys, empty where absent; other keys are refused.
fn texts_of<'v, const N: usize>(item: &'v Value, keys: [&str; N]) -> Result<[&'v str; N], String> {
    let names = || keys.join(", ");
    let Value::Map { entries, .. } = item else {
        return Err(format!("must be a map with {}, not {}", names(), item.kind()));
    };
    if let Some(unknown) = entries.iter().find(|entry| !keys.contains(&entry.key.as_str())) {
        return Err(format!("unknown key {}: the keys are {}", quoted(&unknown.key), names()));
    }
    Ok(keys.map(|key| item.get(key).and_then(Value::as_text).unwrap_or("")))
}

const ADDRESS_TYPES: [&str; 5] = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];

fn address_of(kind: &str, address: &str) -> Result<(String, String), String> {
    if !ADDRESS_TYPES.contains(&kind) {
        return Err(format!("the type must be one of {}, not {}", ADDRESS_TYPES.join(", "), quoted(kind)));
    }
    let (is_good, expected) = if kind.ends_with("IP") {
        (address.parse::<IpAddr>().is_ok(), "an IP address")
    } else {
        (labels::is_dns_subdomain(&address.to_lowercase()), "a DNS name")
    };
    if !is_good {
        return Err(format!("the address of type {kind} must be {expected}, not {}", quoted(address)));
    }
    Ok((kind.to_owned(), address.to_owned()))
}

/// `nodeIP` (ADR-2): entries that are no IP address are left out, with a notice, as the kubelet leaves them out.
pub(super) fn node_ip(to: &mut Settings, text: &str, report: &mut Report<'_>) -> Result<(), String> {
    let mut ips = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match parse_ip_sloppily(entry) {
            Some(ip) => ips.push(ip),
            None => report.notice(
                report.line,
                "",
                format!("{} is not an IP address and is left out, as the kubelet does", quoted(entry)),
            ),
        }
    }
    to.node_ip = match *ips.as_slice() {
        [] => NodeIp::Detect,
        [ip] if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => NodeIp::Family(Family::V6),
        [ip] if ip.is_unspecified() => NodeIp::Family(Family::V4),
        [ip] => NodeIp::One(ip),
        [first, second]
            if first.is_ipv4() != second.is_ipv4() && !first.is_unspecified() && !second.is_unspecified() =>
        {
            NodeIp::Two(first, second)
        }
        _ => {
            let text = "must be one IP address, or one IPv4 and one IPv6 address, neither of them 0.0.0.0 or ::";
            return Err(text.to_owned());
        }
    };
    Ok(())
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

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// `kubeReserved`, `systemReserved` (ALC-3).
pub(super) fn reserved(entries: &[Entry], report: &mut Report<'_>) -> BTreeMap<String, Quantity> {
    let mut read = BTreeMap::new();
    for Entry { key, line, value } in entries {
        if !RESERVABLE.contains(&key.as_str()) {
            let wrong = format!("{} cannot be reserved: use {}", quoted(key), RESERVABLE.join(", "));
            report.refuse_part(*line, "", wrong);
            continue;
        }
        match quantity_of(value) {
            Ok(quantity) => {
                read.insert(key.clone(), quantity);
            }
            Err(wrong) => report.refuse_part(*line, &format!(".{key}"), wrong),
        }
    }
    read
}

fn quantity_of(value: &Value) -> Result<Quantity, String> {
    let text = value.as_text().ok_or_else(|| format!("must be a quantity, not {}", value.kind()))?;
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() { Err(format!("must not be negative, as {} is", quoted(text))) } else { Ok(quantity) }
}

/// `reservedSystemCPUs`: how many CPUs a list such as `0-3,5` names.
pub(super) fn reserved_cpus(to: &mut Settings, text: &str, _: &mut Report<'_>) -> Result<(), String> {
    let mut cpus = BTreeSet::new();
    for range in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (cpu(first), cpu(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => {
                let most = limits::CPUS - 1;
                return Err(format!("must be a list of CPUs from 0 to {most} such as 0-3,5, not {}", quoted(text)));
            }
        }
    }
    to.reserved_system_cpus = u32::try_from(cpus.len()).ok().filter(|count| *count > 0);
    Ok(())
}

fn cpu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|cpu| *cpu < limits::CPUS && !text.starts_with('+'))
}

/// `journalQuota`: a quantity of bytes within what the journal can do with.
pub(super) fn journal_quota(to: &mut Settings, text: &str, _: &mut Report<'_>) -> Result<(), String> {
    let allowed = limits::JOURNAL_LEAST_BYTES..=limits::JOURNAL_MOST_BYTES;
    let bytes = Quantity::parse(text).ok().and_then(|quantity| usize::try_from(quantity.value()).ok());
    let Some(bytes) = bytes.filter(|bytes| allowed.contains(bytes)) else {
        let [low, high] = [allowed.start(), allowed.end()].map(|bound| Quantity::from_bytes(*bound as u64));
        return Err(format!("must be a quantity from {low} to {high}, not {}", quoted(text)));
    };
    to.journal_quota_bytes = bytes;
    Ok(())
}

#[cfg(test)]
mod tests;
