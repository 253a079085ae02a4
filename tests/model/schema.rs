//! Turns JSON into the form the typed decoder of the API server leaves behind: unknown fields dropped with a warning,
//! empty ones omitted, stamps in their one form, wrong types refused.

use std::fmt;

use serde_json::{Map, Value, json};

use super::stamp;

/// The type of a field, and how a strategic-merge patch treats it when it is a list.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    Text,
    /// Printed though it is empty (no `omitempty`).
    TextAlways,
    Bool,
    Integer,
    /// `metav1.Time`.
    Time,
    /// `metav1.MicroTime`.
    MicroTime,
    Quantity,
    Any,
    Map(&'static Shape),
    /// `patchStrategy: merge` by this key.
    ListByKey(&'static str, &'static Shape),
    /// `patchStrategy: merge` of scalars.
    ScalarSet(&'static Shape),
    /// Replaced as a whole.
    List(&'static Shape),
    Object(&'static [(&'static str, Shape)]),
}

/// Where in an object a value is; put into words only when something is wrong with it.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, key) => f.write_str(key),
            Path::Field(outer, key) => write!(f, "{outer}.{key}"),
            Path::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

const TEXT: Shape = Shape::Text;
const ALWAYS: Shape = Shape::TextAlways;
const TEXTS: Shape = Shape::List(&TEXT);

const METADATA: Shape = Shape::Object(&[
    ("name", TEXT),
    ("namespace", TEXT),
    ("generateName", TEXT),
    ("uid", TEXT),
    ("resourceVersion", TEXT),
    ("generation", Shape::Integer),
    ("creationTimestamp", Shape::Time),
    ("labels", Shape::Map(&TEXT)),
    ("annotations", Shape::Map(&TEXT)),
    ("finalizers", Shape::ScalarSet(&TEXT)),
    ("managedFields", Shape::List(&Shape::Any)),
    (
        "ownerReferences",
        Shape::ListByKey(
            "uid",
            &Shape::Object(&[
                ("apiVersion", ALWAYS),
                ("kind", ALWAYS),
                ("name", ALWAYS),
                ("uid", ALWAYS),
                ("controller", Shape::Bool),
                ("blockOwnerDeletion", Shape::Bool),
            ]),
        ),
    ),
]);

const CONDITION: Shape = Shape::Object(&[
    ("type", ALWAYS),
    ("status", ALWAYS),
    ("lastHeartbeatTime", Shape::Time),
    ("lastTransitionTime", Shape::Time),
    ("reason", TEXT),
    ("message", TEXT),
]);

const NODE_INFO: Shape = Shape::Object(&[
    ("machineID", TEXT),
    ("systemUUID", TEXT),
    ("bootID", TEXT),
    ("kernelVersion", TEXT),
    ("osImage", TEXT),
    ("containerRuntimeVersion", TEXT),
    ("kubeletVersion", TEXT),
    ("kubeProxyVersion", TEXT),
    ("operatingSystem", TEXT),
    ("architecture", TEXT),
    ("swap", Shape::Object(&[("capacity", Shape::Integer)])),
]);

const NODE_STATUS: Shape = Shape::Object(&[
    ("capacity", Shape::Map(&Shape::Quantity)),
    ("allocatable", Shape::Map(&Shape::Quantity)),
    ("phase", TEXT),
    ("conditions", Shape::ListByKey("type", &CONDITION)),
    ("addresses", Shape::ListByKey("type", &Shape::Object(&[("type", ALWAYS), ("address", ALWAYS)]))),
    ("daemonEndpoints", Shape::Object(&[("kubeletEndpoint", Shape::Object(&[("Port", Shape::Integer)]))])),
    ("nodeInfo", NODE_INFO),
    ("images", Shape::List(&Shape::Object(&[("names", TEXTS), ("sizeBytes", Shape::Integer)]))),
    ("volumesInUse", TEXTS),
    ("volumesAttached", Shape::List(&Shape::Any)),
    ("config", Shape::Any),
    ("runtimeHandlers", Shape::List(&Shape::Any)),
    ("features", Shape::Any),
    ("declaredFeatures", TEXTS),
]);

const TAINT: Shape = Shape::Object(&[("key", ALWAYS), ("value", TEXT), ("effect", ALWAYS), ("timeAdded", Shape::Time)]);

pub const NODE: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    ("metadata", METADATA),
    (
        "spec",
        Shape::Object(&[
            ("podCIDR", TEXT),
            ("podCIDRs", Shape::ScalarSet(&TEXT)),
            ("providerID", TEXT),
            ("unschedulable", Shape::Bool),
            ("taints", Shape::List(&TAINT)),
        ]),
    ),
    ("status", NODE_STATUS),
]);

pub const LEASE: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    ("metadata", METADATA),
    (
        "spec",
        Shape::Object(&[
            ("holderIdentity", TEXT),
            ("leaseDurationSeconds", Shape::Integer),
            ("acquireTime", Shape::MicroTime),
            ("renewTime", Shape::MicroTime),
            ("leaseTransitions", Shape::Integer),
            ("strategy", TEXT),
            ("preferredHolder", TEXT),
        ]),
    ),
]);

const CSI_DRIVER: Shape =
    Shape::Object(&[("name", ALWAYS), ("nodeID", ALWAYS), ("topologyKeys", Shape::ScalarSet(&TEXT))]);

pub const CSI_NODE: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    ("metadata", METADATA),
    ("spec", Shape::Object(&[("drivers", Shape::List(&CSI_DRIVER))])),
]);

const OBJECT_REFERENCE: Shape = Shape::Object(&[
    ("kind", TEXT),
    ("namespace", TEXT),
    ("name", TEXT),
    ("uid", TEXT),
    ("apiVersion", TEXT),
    ("resourceVersion", TEXT),
    ("fieldPath", TEXT),
]);

pub const EVENT: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    ("metadata", METADATA),
    ("involvedObject", OBJECT_REFERENCE),
    ("reason", TEXT),
    ("message", TEXT),
    ("source", Shape::Object(&[("component", TEXT), ("host", TEXT)])),
    ("firstTimestamp", Shape::Time),
    ("lastTimestamp", Shape::Time),
    ("count", Shape::Integer),
    ("type", TEXT),
    ("eventTime", Shape::MicroTime),
    ("series", Shape::Any),
    ("action", TEXT),
    ("related", OBJECT_REFERENCE),
    ("reportingComponent", TEXT),
    ("reportingInstance", TEXT),
]);

impl Shape {
    /// The shape of a field; `Any` for one the schema does not know.
    pub fn field(self, key: &str) -> Shape {
        match self {
            Shape::Object(fields) => fields.iter().find(|(name, _)| *name == key).map_or(Shape::Any, |found| found.1),
            Shape::Map(values) => *values,
            _ => Shape::Any,
        }
    }

    /// Leaves in `value` what a typed decoder keeps. Unknown fields go into `unknown`; `Err` is what a decoder says.
    pub fn decode(self, value: &mut Value, path: Path, unknown: &mut Vec<String>) -> Result<(), String> {
        match (self, value) {
            (Shape::Any, _) | (Shape::Text | Shape::TextAlways, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {
                Ok(())
            }
            (Shape::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (Shape::Time, value) => decode_time(value, path),
            (Shape::MicroTime, value) => decode_micro_time(value, path),
            (Shape::Quantity, Value::String(text)) if is_quantity(text) => Ok(()),
            (Shape::Map(values), Value::Object(map)) => {
                map.iter_mut().try_for_each(|(key, value)| values.decode(value, Path::Field(&path, key), unknown))
            }
            (Shape::List(items) | Shape::ScalarSet(items) | Shape::ListByKey(_, items), Value::Array(list)) => {
                let mut numbered = list.iter_mut().enumerate();
                numbered.try_for_each(|(index, item)| items.decode(item, Path::Item(&path, index), unknown))
            }
            (Shape::Object(fields), Value::Object(map)) => decode_object(fields, map, path, unknown),
            (shape, value) => Err(format!("json: cannot unmarshal {value} into field {path} of {}", shape.word())),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Shape::Text | Shape::TextAlways => "type string",
            Shape::Bool => "type bool",
            Shape::Integer => "type int",
            Shape::Quantity => "type resource.Quantity",
            Shape::Time | Shape::MicroTime => "a time",
            Shape::Map(_) => "type map",
            Shape::List(_) | Shape::ScalarSet(_) | Shape::ListByKey(..) => "type list",
            Shape::Object(_) => "type struct",
            Shape::Any => "any type",
        }
    }
}

fn decode_object(
    fields: &'static [(&'static str, Shape)],
    map: &mut Map<String, Value>,
    path: Path,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    for (key, value) in map.iter_mut() {
        let inner = Path::Field(&path, key);
        match fields.iter().find(|(name, _)| name == key) {
            _ if value.is_null() => {}
            Some((_, shape)) => shape.decode(value, inner, unknown)?,
            None => {
                unknown.push(inner.to_string());
                *value = Value::Null;
            }
        }
    }
    map.retain(|_, value| !is_empty(value));
    for (key, shape) in fields {
        if matches!(shape, Shape::TextAlways) && !map.contains_key(*key) {
            map.insert((*key).to_owned(), json!(""));
        }
    }
    Ok(())
}

/// What `omitempty` leaves out. Structs that Go prints though they are empty are put back where defaults are set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// `2006-01-02T15:04:05Z`.
const STAMP_BYTES: usize = 20;

fn decode_time(value: &mut Value, path: Path) -> Result<(), String> {
    let stamp = value.as_str().and_then(stamp::parse);
    let stamp = stamp.ok_or_else(|| format!("{path}: parsing time {value} as \"2006-01-02T15:04:05Z07:00\""))?;
    // A stamp of this length that ends so has no other form, and most have it.
    let has_its_form = |text: &str| text.len() == STAMP_BYTES && text.ends_with('Z') && text[..11].ends_with('T');
    if !value.as_str().is_some_and(has_its_form) {
        *value = json!(stamp::seconds(stamp));
    }
    Ok(())
}

/// Go's layout `2006-01-02T15:04:05.000000Z07:00` demands exactly six fractional digits (LSE-3).
fn decode_micro_time(value: &mut Value, path: Path) -> Result<(), String> {
    let six_digits = |text: &&str| {
        let fraction = text.get(19..26).unwrap_or_default();
        let zone = text.get(26..27).unwrap_or_default();
        fraction.starts_with('.') && fraction[1..].bytes().all(|byte| byte.is_ascii_digit()) && "Z+-".contains(zone)
    };
    let stamp = value.as_str().filter(six_digits).and_then(stamp::parse);
    let stamp = stamp.ok_or_else(|| format!("{path}: parsing time {value} as \"2006-01-02T15:04:05.000000Z07:00\""))?;
    *value = json!(stamp::micros(stamp));
    Ok(())
}

fn is_quantity(text: &str) -> bool {
    let number_bytes = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = text.split_at(number_bytes);
    let suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    number.starts_with(|first: char| first.is_ascii_digit())
        && number.matches('.').count() <= 1
        && suffixes.contains(&suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(shape: Shape, mut value: Value) -> Result<(Value, Vec<String>), String> {
        let mut unknown = Vec::new();
        shape.decode(&mut value, Path::Root, &mut unknown)?;
        Ok((value, unknown))
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let (value, unknown) = decode(NODE, json!({"spec": {"providerId": "x", "providerID": "y"}})).unwrap();
        assert_eq!(value, json!({"spec": {"providerID": "y"}}));
        assert_eq!(unknown, ["spec.providerId"]);
    }

    #[test]
    fn renew_time_wants_exactly_six_digits() {
        for digits in ["", ".0", ".123", ".1234567", ".12345x"] {
            let lease = json!({"spec": {"renewTime": format!("2026-01-01T00:00:00{digits}Z")}});
            assert!(decode(LEASE, lease).unwrap_err().contains("spec.renewTime"), "{digits}");
        }
        let lease = json!({"spec": {"renewTime": "2026-01-01T01:00:00.123456+01:00"}});
        assert_eq!(decode(LEASE, lease).unwrap().0["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    }

    #[test]
    fn condition_times_lose_their_fraction() {
        let node =
            json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00.9Z"}]}});
        let (value, _) = decode(NODE, node).unwrap();
        assert_eq!(value["status"]["conditions"][0]["lastHeartbeatTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_condition_has_a_status_though_nobody_wrote_one() {
        let (value, _) = decode(NODE, json!({"status": {"conditions": [{"type": "Ready"}]}})).unwrap();
        assert_eq!(value["status"]["conditions"][0], json!({"type": "Ready", "status": ""}));
    }

    #[test]
    fn a_wrong_type_or_quantity_is_refused() {
        assert!(decode(NODE, json!({"status": {"capacity": {"cpu": 4}}})).is_err());
        assert!(decode(NODE, json!({"status": {"capacity": {"cpu": "four"}}})).is_err());
        assert!(decode(NODE, json!({"metadata": {"labels": {"a": true}}})).is_err());
        assert!(decode(NODE, json!({"status": {"capacity": {"memory": "16265484Ki"}}})).is_ok());
    }
}
