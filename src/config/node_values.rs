//! Reads the settings that describe the Node: its name, labels, taints, addresses and reservations.

use std::net::{IpAddr, Ipv6Addr};

use heapless::LinearMap;

use super::field::Field;
use super::labels;
use super::limits;
use super::problem::{Findings, Problem, quoted};
use super::quantity::Quantity;
use super::taint::Taint;
use super::text_map::TextMap;
use super::yaml::{Content, Value};

/// `--node-ip` (ADR-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIp {
    /// Not given: detect, IPv4 first.
    Detect,
    /// `0.0.0.0` or `::`: detect, this family first.
    Family(Family),
    One(IpAddr),
    /// One IPv4 and one IPv6, in the order given.
    Two(IpAddr, IpAddr),
}

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// `--cloud-provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    None,
    /// `external`: taint, annotation and addresses as INI-3, ADR-3 and ADR-4.
    External,
}

/// `cloudMetadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudMetadata {
    None,
    /// `cloud-init`: what its instance data says stands where settings and an external provider say nothing.
    CloudInit,
}

/// What `hostnameOverride` may hold in the place of what a board is told by: its serial number, MAC address, machine-id and
/// hostname.
pub const NAME_FACTS: [&str; 4] = ["{serial}", "{mac}", "{machine-id}", "{hostname}"];

/// `hostnameOverride`: lower-cased (ST-6), and a name that an object and a label may have, whatever stands for [`NAME_FACTS`].
pub(super) fn hostname(field: &Field<'_>, _: &mut Findings) -> Result<Option<String>, Problem> {
    let Some(name) = field.text()?.map(str::to_ascii_lowercase) else { return Ok(None) };
    let shortest = NAME_FACTS.iter().fold(name.clone(), |name, fact| name.replace(fact, "x"));
    if shortest.contains(['{', '}']) {
        let text = format!("may hold {} and no other braces, not {}", NAME_FACTS.join(", "), quoted(&name));
        return Err(field.problem(text));
    }
    if !labels::is_dns_subdomain(&shortest) || labels::check_value(&shortest).is_err() {
        let text = "must be a DNS name of at most 63 characters: a-z, 0-9, '-' and '.', alphanumeric at both ends";
        return Err(field.problem(format!("{text}, not {}", quoted(&name))));
    }
    Ok(Some(name))
}

/// A setting that becomes the value of a label.
pub(super) fn label_value(field: &Field<'_>, _: &mut Findings) -> Result<String, Problem> {
    let text = field.text()?.unwrap_or_default();
    labels::check_value(text).map_err(|wrong| field.problem(format!("becomes the value of a label, and {wrong}")))?;
    Ok(text.to_owned())
}

pub(super) fn cloud_provider(field: &Field<'_>, _: &mut Findings) -> Result<CloudProvider, Problem> {
    match field.text()? {
        None => Ok(CloudProvider::None),
        Some("external") => Ok(CloudProvider::External),
        Some(other) => Err(field.problem(format!("must be external or empty, not {}", quoted(other)))),
    }
}

pub(super) fn cloud_metadata(field: &Field<'_>, _: &mut Findings) -> Result<CloudMetadata, Problem> {
    match field.text()? {
        None | Some("none") => Ok(CloudMetadata::None),
        Some("cloud-init") => Ok(CloudMetadata::CloudInit),
        Some(other) => Err(field.problem(format!("must be none or cloud-init, not {}", quoted(other)))),
    }
}

/// `nodeLabels`: every entry checked against NodeRestriction's list (D9).
pub(super) fn node_labels(field: &Field<'_>, findings: &mut Findings) -> Result<TextMap<String>, Problem> {
    let read = |(key, entry): (&str, Field<'_>)| {
        let value = entry.text()?.unwrap_or_default();
        labels::check_node_label(key, value).map_err(|wrong| entry.problem(wrong))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    let mut labels = TextMap::new();
    field.entries().for_each(|entry| labels.extend(findings.accept(read(entry))));
    Ok(labels)
}

/// `registerWithTaints`: maps of key, value and effect in a file, `key=value:effect` in a flag (and in a file).
pub(super) fn taint_list(field: &Field<'_>, findings: &mut Findings) -> Result<Vec<Taint>, Problem> {
    let read = |item: &Value| match item.as_text() {
        Some(text) => Taint::parse(text),
        None => texts_of(item, ["key", "effect", "value", "timeAdded"])
            .and_then(|[key, effect, value, _]| Taint::new(key, value, effect)),
    };
    let again = "has the key and the effect of an earlier taint: keep one of them";
    Ok(distinct(field, findings, read, Taint::collides_with, again))
}

/// `extraAddresses`: maps of type and address in a file, `TYPE=ADDRESS` in a flag (and in a file).
pub(super) fn address_list(field: &Field<'_>, findings: &mut Findings) -> Result<Vec<(String, String)>, Problem> {
    let read = |item: &Value| {
        let [kind, address] = match item.as_text() {
            Some(text) => text.split_once('=').ok_or_else(|| format!("{} is not TYPE=ADDRESS", quoted(text)))?.into(),
            None => texts_of(item, ["type", "address"])?,
        };
        address_of(kind.trim(), address.trim())
    };
    Ok(distinct(field, findings, read, |one, other| one == other, "is in the list twice: keep one of them"))
}

/// What `read` makes of the items; an item that is the same as one before it is refused with the words of `again`.
pub(super) fn distinct<T>(
    list: &Field<'_>,
    findings: &mut Findings,
    read: impl Fn(&Value) -> Result<T, String>,
    is_same: impl Fn(&T, &T) -> bool,
    again: &str,
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in list.items() {
        let one = read(item.value).and_then(|one| match kept.iter().any(|other| is_same(&one, other)) {
            true => Err(again.to_owned()),
            false => Ok(one),
        });
        kept.extend(findings.accept(one.map_err(|wrong| item.problem(wrong))));
    }
    kept
}

/// The texts of a map's keys, empty where absent; other keys are refused.
fn texts_of<'v, const N: usize>(item: &'v Value, keys: [&str; N]) -> Result<[&'v str; N], String> {
    let names = || keys.join(", ");
    if !matches!(item.content, Content::Map(_)) {
        return Err(format!("must be a map with {}, not {}", names(), item.kind()));
    }
    if let Some(unknown) = item.entries().iter().find(|entry| !keys.contains(&entry.key.as_str())) {
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
        (labels::is_dns_subdomain(&address.to_ascii_lowercase()), "a DNS name")
    };
    if !is_good {
        return Err(format!("the address of type {kind} must be {expected}, not {}", quoted(address)));
    }
    Ok((kind.to_owned(), address.to_owned()))
}

/// `nodeIP` (ADR-2): entries that are no IP address are left out, with a notice, as the kubelet leaves them out.
pub(super) fn node_ip(field: &Field<'_>, findings: &mut Findings) -> Result<NodeIp, Problem> {
    let mut ips = Vec::new();
    for entry in field.text()?.unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match parse_ip_sloppily(entry) {
            Some(ip) => ips.push(ip),
            None => {
                let text = format!("{} is not an IP address and is left out, as the kubelet does", quoted(entry));
                findings.notice(field.problem(text));
            }
        }
    }
    match *ips.as_slice() {
        [] => Ok(NodeIp::Detect),
        [ip] if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ok(NodeIp::Family(Family::V6)),
        [ip] if ip.is_unspecified() => Ok(NodeIp::Family(Family::V4)),
        [ip] => Ok(NodeIp::One(ip)),
        [one, two] if one.is_ipv4() != two.is_ipv4() && !one.is_unspecified() && !two.is_unspecified() => {
            Ok(NodeIp::Two(one, two))
        }
        _ => {
            let text = "must be one IP address, or one IPv4 and one IPv6 address, neither of them 0.0.0.0 or ::";
            Err(field.problem(text))
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

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// How much of what can be reserved.
pub type Reserved = LinearMap<&'static str, Quantity, 4>;

/// `kubeReserved`, `systemReserved` (ALC-3).
pub(super) fn reserved(field: &Field<'_>, findings: &mut Findings) -> Result<Reserved, Problem> {
    let read = |key: &str, value: &Value| {
        let Some(name) = RESERVABLE.into_iter().find(|name| *name == key) else {
            return Err(format!("cannot be reserved: use {}", RESERVABLE.join(", ")));
        };
        let text = value.as_text().ok_or_else(|| format!("must be a quantity, not {}", value.kind()))?;
        match Quantity::parse(text)? {
            quantity if quantity.is_negative() => Err(format!("must not be negative, as {} is", quoted(text))),
            quantity => Ok((name, quantity)),
        }
    };
    let read = |(key, entry): (&str, Field<'_>)| read(key, entry.value).map_err(|wrong| entry.problem(wrong));
    Ok(field.entries().filter_map(|entry| findings.accept(read(entry))).collect())
}

/// `reservedSystemCPUs`: how many CPUs a list such as `0-3,5` names.
pub(super) fn reserved_cpus(field: &Field<'_>, _: &mut Findings) -> Result<Option<u32>, Problem> {
    let Some(text) = field.text()? else { return Ok(None) };
    let cpu = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < limits::CPUS && !text.starts_with('+'));
    let mut ranges = Vec::new();
    for range in text.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (cpu(first), cpu(last)) {
            (Some(first), Some(last)) if first <= last => ranges.push(first..=last),
            _ => {
                let (most, shown) = (limits::CPUS - 1, quoted(text));
                return Err(
                    field.problem(format!("must be a list of CPUs from 0 to {most} such as 0-3,5, not {shown}"))
                );
            }
        }
    }
    let named = (0..limits::CPUS).filter(|cpu| ranges.iter().any(|range| range.contains(cpu))).count();
    Ok(u32::try_from(named).ok())
}

/// `journalQuota`: a quantity of bytes within what the journal can do with.
pub(super) fn journal_quota(field: &Field<'_>, _: &mut Findings) -> Result<usize, Problem> {
    let allowed = limits::JOURNAL_LEAST_BYTES..=limits::JOURNAL_MOST_BYTES;
    let text = field.text()?.unwrap_or_default();
    let bytes = Quantity::parse(text).ok().and_then(|quantity| usize::try_from(quantity.value()).ok());
    bytes.filter(|bytes| allowed.contains(bytes)).ok_or_else(|| {
        let [low, high] = [allowed.start(), allowed.end()].map(|bound| Quantity::from_bytes(*bound as u64));
        field.problem(format!("must be a quantity from {low} to {high}, not {}", quoted(text)))
    })
}

#[cfg(test)]
mod tests;
