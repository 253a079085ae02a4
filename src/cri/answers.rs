//! Turns answers of a container runtime, which are messages of protobuf, into what is read of them.
//!
//! Fields that are not known are passed over, of one that comes twice the last counts, and a message that makes no sense is no
//! answer.

use crate::config::limits;
use crate::probe::{HandlerFeatures, RuntimeFeatures, RuntimeHandler};
use crate::protobuf::{Fields, Value, put_bytes};

/// `runtime.v1.StatusResponse`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub conditions: Vec<Condition>,
    /// Sorted by name.
    pub handlers: Vec<RuntimeHandler>,
    pub features: Option<RuntimeFeatures>,
}

/// `runtime.v1.RuntimeCondition`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    pub kind: String,
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

/// Name and version of a `runtime.v1.VersionResponse`. One in which a field is empty is none.
pub(super) fn version(message: &[u8]) -> Option<(String, String)> {
    let mut texts = [const { String::new() }; 4];
    for field in Fields::of(message) {
        if let (number, Value::Bytes(found)) = field?
            && let Some(place) = usize::try_from(number).ok().and_then(|number| texts.get_mut(number.checked_sub(1)?))
        {
            *place = text(found);
        }
    }
    let is_whole = texts.iter().all(|text| !text.is_empty());
    let [_, name, version, _] = texts;
    is_whole.then(|| (name, plain_version(&version).unwrap_or_else(|| "Unknown".to_owned())))
}

/// `containerd.services.version.v1.VersionResponse`.
pub(super) fn own_version(message: &[u8]) -> Option<String> {
    let mut version = String::new();
    for field in Fields::of(message) {
        if let (1, Value::Bytes(found)) = field? {
            version = text(found);
        }
    }
    plain_version(&version)
}

/// `grpc.health.v1.HealthCheckResponse`.
pub(super) fn is_serving(message: &[u8]) -> Option<bool> {
    let mut status = 0;
    for field in Fields::of(message) {
        if let (1, Value::Number(found)) = field? {
            status = found;
        }
    }
    Some(status == 1)
}

/// A folder of the first image file system of a `runtime.v1.ImageFsInfoResponse`; empty where it names none.
pub(super) fn image_path(message: &[u8]) -> Option<String> {
    let mut path = None;
    for field in Fields::of(message) {
        if let (1, Value::Bytes(usage)) = field? {
            let found = path_of_usage(usage)?;
            path.get_or_insert(found);
        }
    }
    Some(path.unwrap_or_default())
}

/// `runtime.v1.FilesystemUsage`, of which the field 2 is an identifier with the path.
fn path_of_usage(usage: &[u8]) -> Option<String> {
    let mut path = String::new();
    for field in Fields::of(usage) {
        let (2, Value::Bytes(identifier)) = field? else { continue };
        for field in Fields::of(identifier) {
            if let (1, Value::Bytes(found)) = field? {
                path = text(found);
            }
        }
    }
    Some(path)
}

/// `runtime.v1.UpdateRuntimeConfigRequest` with these addresses of pods.
pub(super) fn runtime_config(pod_cidr: &str) -> Vec<u8> {
    let [mut network, mut runtime, mut request] = [const { Vec::new() }; 3];
    put_bytes(&mut network, 1, pod_cidr.as_bytes());
    put_bytes(&mut runtime, 1, &network);
    put_bytes(&mut request, 1, &runtime);
    request
}

/// `None`: not understood, or without a status.
pub(super) fn status(message: &[u8]) -> Option<Status> {
    let (mut status, mut has_status) = (Status::default(), false);
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(inner)) => {
                has_status = true;
                for field in Fields::of(inner) {
                    let (1, Value::Bytes(inner)) = field? else { continue };
                    push(&mut status.conditions, condition(inner)?);
                }
            }
            (3, Value::Bytes(inner)) => push(&mut status.handlers, handler(inner)?),
            (4, Value::Bytes(inner)) => {
                let [supplemental_groups_policy, _] = two_booleans(inner)?;
                status.features = Some(RuntimeFeatures { supplemental_groups_policy });
            }
            _ => {}
        }
    }
    status.handlers.sort_by(|one, other| one.name.cmp(&other.name));
    has_status.then_some(status)
}

fn push<T>(list: &mut Vec<T>, one: T) {
    if list.len() < limits::CRI_ENTRIES {
        list.push(one);
    }
}

fn condition(message: &[u8]) -> Option<Condition> {
    let mut condition = Condition::default();
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(found)) => condition.kind = text(found),
            (2, Value::Number(found)) => condition.is_true = found != 0,
            (3, Value::Bytes(found)) => condition.reason = text(found),
            (4, Value::Bytes(found)) => condition.message = text(found),
            _ => {}
        }
    }
    Some(condition)
}

fn handler(message: &[u8]) -> Option<RuntimeHandler> {
    let mut handler = RuntimeHandler::default();
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(found)) => handler.name = text(found),
            (2, Value::Bytes(inner)) => {
                let [recursive_read_only_mounts, user_namespaces] = two_booleans(inner)?;
                handler.features = HandlerFeatures { recursive_read_only_mounts, user_namespaces };
            }
            _ => {}
        }
    }
    Some(handler)
}

/// The fields 1 and 2.
fn two_booleans(message: &[u8]) -> Option<[bool; 2]> {
    let [mut first, mut second] = [false; 2];
    for field in Fields::of(message) {
        match field? {
            (1, Value::Number(found)) => first = found != 0,
            (2, Value::Number(found)) => second = found != 0,
            _ => {}
        }
    }
    Some([first, second])
}

/// A text of the runtime's, cut.
fn text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes.get(..limits::CRI_TEXT_BYTES).unwrap_or(bytes)).into_owned();
    if bytes.len() > limits::CRI_TEXT_BYTES {
        // What was cut in its middle.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    }
    text
}

/// As a kubelet takes it: three numbers and what is behind them (`2.2.9`, `1.7.0-rc.1`), or as many of the first ones as there
/// are, two at least.
fn plain_version(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, rest) = text.split_at_checked(end)?;
    let count = numbers.split('.').take_while(|number| !number.is_empty()).count();
    let is_behind = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    let is_whole = rest.is_empty() || (rest.starts_with(['-', '+']) && rest.len() > 1 && rest.chars().all(is_behind));
    if count == 3 && numbers.split('.').count() == 3 && is_whole {
        return Some(text.to_owned());
    }
    let first: Vec<&str> = numbers.split('.').take(count).collect();
    (count >= 2).then(|| first.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        fields.iter().for_each(|(number, field)| put_bytes(&mut bytes, *number, field));
        bytes
    }

    /// As containerd 2.2.9 answered (`probe` on a real one), and CRI-O's second runtime before the first.
    fn sample() -> Vec<u8> {
        let runtime = message(&[(1, b"RuntimeReady"), (3, b""), (4, b"")]);
        let runtime = [runtime, b"\x10\x01".to_vec()].concat();
        let network =
            message(&[(1, b"NetworkReady"), (3, b"NetworkPluginNotReady"), (4, b"cni plugin not initialized")]);
        let handler = |name: &[u8], features: &[u8]| message(&[(1, name), (2, features)]);
        let conditions = message(&[(1, &runtime), (1, &network)]);
        message(&[
            (1, &conditions),
            (2, b"\x0a\x06config\x12\x02{}"),
            (3, &handler(b"runc", b"\x08\x01\x10\x01")),
            (3, &handler(b"", b"")),
            (4, b"\x08\x01\x10\x01"),
        ])
    }

    #[test]
    fn a_status_is_read_with_its_handlers_in_order() {
        let read = status(&sample()).unwrap();
        let words: Vec<_> =
            read.conditions.iter().map(|one| (one.kind.as_str(), one.is_true, one.reason.as_str())).collect();
        assert_eq!(words, [("RuntimeReady", true, ""), ("NetworkReady", false, "NetworkPluginNotReady")]);
        let features = |both| HandlerFeatures { recursive_read_only_mounts: both, user_namespaces: both };
        let handlers: Vec<_> = read.handlers.iter().map(|one| (one.name.as_str(), one.features)).collect();
        assert_eq!(handlers, [("", features(false)), ("runc", features(true))]);
        assert_eq!(read.features, Some(RuntimeFeatures { supplemental_groups_policy: true }));
        assert_eq!(status(&message(&[(3, b"")])), None, "without a status");
    }

    #[test]
    fn where_images_are_is_the_first_path_and_pods_addresses_are_sent_as_a_kubelet_sends_them() {
        // Two file systems, of which the first has a time, an identifier and bytes.
        let usage =
            |path: &[u8]| [b"\x08\x07".to_vec(), message(&[(2, &message(&[(1, path)])), (3, b"\x08\x09")])].concat();
        let both = message(&[(1, &usage(b"/var/lib/containerd/x")), (1, &usage(b"/other")), (2, &usage(b"/third"))]);
        assert_eq!(image_path(&both).as_deref(), Some("/var/lib/containerd/x"));
        assert_eq!(image_path(b"").as_deref(), Some(""));
        assert_eq!(image_path(b"\x0a\x05x"), None);
        let sent = [&b"\x0a\x1d\x0a\x1b\x0a\x19"[..], b"10.99.0.0/24,fd00:99::/64"].concat();
        assert_eq!(runtime_config("10.99.0.0/24,fd00:99::/64"), sent);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_survived() {
        let whole = sample();
        for end in 0..whole.len() {
            let _ =
                (status(&whole[..end]), version(&whole[..end]), own_version(&whole[..end]), is_serving(&whole[..end]));
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[end] ^= 1 << bit;
                let _ = (status(&bytes), version(&bytes), image_path(&bytes));
            }
        }
    }

    #[test]
    fn nothing_in_it_is_longer_or_more_than_is_kept() {
        let long = message(&[(1, &vec![b'x'; 70_000])]);
        let many: Vec<u8> = (0..1000).flat_map(|_| message(&[(3, &long)])).collect();
        let read = status(&[message(&[(1, b"")]), many].concat()).unwrap();
        assert_eq!(read.handlers.len(), limits::CRI_ENTRIES);
        assert_eq!(read.handlers[0].name.len(), limits::CRI_TEXT_BYTES);
        let umlauts = "\u{e4}".repeat(limits::CRI_TEXT_BYTES);
        assert_eq!(text(format!("a{umlauts}").as_bytes()).len(), limits::CRI_TEXT_BYTES - 1);
    }

    #[test]
    fn a_version_is_taken_as_a_kubelet_takes_it() {
        for (text, expected) in [
            ("v2.2.9", Some("2.2.9")),
            (" 1.36.3\n", Some("1.36.3")),
            ("1.7.0-rc.1+b2", Some("1.7.0-rc.1+b2")),
            ("1.6.20~ds1", Some("1.6.20")),
            ("1.7.0-", Some("1.7.0")),
            ("19.03.8-ce_1", Some("19.03.8")),
            ("1.2", Some("1.2")),
            ("1.2.3.4", Some("1.2.3.4")),
            ("1..2", None),
            ("1", None),
            ("", None),
            ("main", None),
        ] {
            assert_eq!(plain_version(text).as_deref(), expected, "{text:?}");
        }
        let said = message(&[(1, b"0.1.0"), (2, b"containerd"), (3, b"main"), (4, b"v1")]);
        assert_eq!(version(&said), Some(("containerd".to_owned(), "Unknown".to_owned())));
        assert_eq!(version(&message(&[(1, b"0.1.0"), (2, b"containerd"), (3, b"v2.2.9")])), None, "not all of it");
        assert_eq!(own_version(b"\x0a\x06v1.7.3").as_deref(), Some("1.7.3"));
        assert_eq!(
            [is_serving(b"\x08\x01"), is_serving(b"\x08\x02"), is_serving(b"\x08")],
            [Some(true), Some(false), None]
        );
    }
}
