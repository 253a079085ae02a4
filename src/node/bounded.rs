//! Turns what others wrote into an object into no more of it than is worth keeping: a text is cut, a list and a map end.
//!
//! What is not kept is as if it had not been read: every write is a patch of what differs between two Nodes, of which the
//! second began as a copy of the first, so it survives on the server. Names that the agent may write itself have room of
//! their own, which thousands of others do not take.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::limits;
use crate::config::taint::Taint;
use crate::config::text_map::TextMap;

/// What a kept entry costs beside its text, bytes; about.
const ENTRY_BYTES: usize = 64;

/// Where what stands in a field of an object goes.
pub enum Field<'a> {
    /// Cut at [`limits::OBJECT_TEXT_BYTES`].
    Text(&'a mut String),
    Texts(&'a mut Vec<String>),
    Number(&'a mut Option<i64>),
    Count(&'a mut Option<u64>),
    /// What is none is 0.
    Port(&'a mut u16),
    Boolean(&'a mut bool),
    Map(&'a mut TextMap<String>),
    /// The taints of which we know the effect: one of tomorrow's must not make a Node unreadable.
    Taints(&'a mut Vec<Taint>),
    /// `managedFields`: whether there are managers, and none that applies.
    HasNeedlessManagers(&'a mut bool),
    List(&'a mut dyn FlatList),
    Flat(&'a mut dyn Flat),
}

/// An object. All are read by one visitor, and all lists of them by another, as one for each is 25 KB of program.
pub trait Flat {
    /// `None`: what stands there is left out.
    fn field(&mut self, name: &str) -> Option<Field<'_>>;
}

/// Each of these is read so.
macro_rules! read_flat {
    ($($kind:ty),+) => {
        $(impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$kind, D::Error> {
                $crate::node::bounded::flat(deserializer)
            }
        })+
    };
}
pub(super) use read_flat;

pub fn flat<'de, D: Deserializer<'de>, T: Flat + Default>(deserializer: D) -> Result<T, D::Error> {
    let mut object = T::default();
    FlatVisitor(&mut object).deserialize(deserializer)?;
    Ok(object)
}

struct FlatVisitor<'a>(&'a mut dyn Flat);

impl<'de> DeserializeSeed<'de> for FlatVisitor<'_> {
    type Value = ();

    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for FlatVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = access.next_key()? {
            match self.0.field(&name) {
                Some(Field::Text(text)) => *text = access.next_value::<Option<Text>>()?.unwrap_or_default().0,
                Some(Field::Texts(texts)) => *texts = access.next_value::<Option<Texts>>()?.unwrap_or_default().0,
                Some(Field::Number(number)) => *number = access.next_value()?,
                Some(Field::Count(count)) => *count = access.next_value()?,
                Some(Field::Boolean(boolean)) => *boolean = access.next_value::<Option<bool>>()?.unwrap_or_default(),
                Some(Field::Map(map)) => *map = access.next_value::<Option<Pairs>>()?.unwrap_or_default().0,
                Some(Field::Port(port)) => {
                    let number = access.next_value::<Option<i64>>()?.and_then(|number| u16::try_from(number).ok());
                    *port = number.unwrap_or_default();
                }
                Some(Field::Taints(taints)) => {
                    let mut all: Vec<AnyTaint> = Vec::new();
                    access.next_value_seed(ListVisitor(&mut all))?;
                    let known = |one: AnyTaint| Taint::new(&one.key, &one.value, &one.effect).ok();
                    *taints = all.into_iter().filter_map(known).collect();
                }
                Some(Field::HasNeedlessManagers(has)) => {
                    let mut managers: Vec<Manager> = Vec::new();
                    access.next_value_seed(ListVisitor(&mut managers))?;
                    *has = !managers.is_empty() && !managers.iter().any(Entry::is_own);
                }
                Some(Field::List(list)) => access.next_value_seed(ListVisitor(list))?,
                Some(Field::Flat(object)) => access.next_value_seed(FlatVisitor(object))?,
                None => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// One of a list.
pub trait Entry: Flat + Default {
    /// Bytes of its texts.
    fn bytes(&self) -> usize;

    /// Whether the agent writes it.
    fn is_own(&self) -> bool {
        false
    }
}

/// A list of objects.
pub trait FlatList {
    /// It is read anew: of two that have one name the last counts.
    fn clear(&mut self);

    /// One more, at its end, to be read.
    fn begin(&mut self) -> Option<&mut dyn Flat>;

    /// It was read, or there was none. It goes again where there is no room for it.
    fn end(&mut self, has_read: bool, room: &mut Room);
}

impl<T: Entry> FlatList for Vec<T> {
    fn clear(&mut self) {
        self.clear();
    }

    fn begin(&mut self) -> Option<&mut dyn Flat> {
        self.push(T::default());
        self.last_mut().map(|entry| entry as &mut dyn Flat)
    }

    fn end(&mut self, has_read: bool, room: &mut Room) {
        let last = self.last().filter(|_| has_read);
        if !last.is_some_and(|entry| room.take(entry.is_own(), entry.bytes())) {
            self.pop();
        }
    }
}

/// `metav1.ManagedFieldsEntry`, as far as it is read.
#[derive(Default)]
struct Manager {
    operation: String,
}

impl Flat for Manager {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        (name == "operation").then_some(Field::Text(&mut self.operation))
    }
}

impl Entry for Manager {
    fn bytes(&self) -> usize {
        self.operation.len()
    }

    /// One of them decides, however many others there are.
    fn is_own(&self) -> bool {
        self.operation == "Apply"
    }
}

/// A taint as anybody may have written it.
#[derive(Default)]
struct AnyTaint {
    key: String,
    value: String,
    effect: String,
}

impl Flat for AnyTaint {
    fn field(&mut self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "key" => Field::Text(&mut self.key),
            "value" => Field::Text(&mut self.value),
            "effect" => Field::Text(&mut self.effect),
            _ => return None,
        })
    }
}

impl Entry for AnyTaint {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    fn is_own(&self) -> bool {
        is_own(&self.key)
    }
}

/// Names below which the agent writes: its own, Kubernetes' and the resources that every kubelet reports.
pub(super) fn is_own(name: &str) -> bool {
    name.contains("kubernetes.io/")
        || name.starts_with("nodepulse.dev/")
        || name.starts_with("hugepages-")
        || matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pods")
}

/// Room for what the agent may write itself, and for the rest.
pub struct Room {
    own_bytes: usize,
    other_bytes: usize,
}

impl Room {
    fn new() -> Room {
        Room { own_bytes: limits::OBJECT_LIST_BYTES, other_bytes: limits::OBJECT_LIST_BYTES }
    }

    /// Whether there is still room, which is then taken.
    fn take(&mut self, is_own: bool, text_bytes: usize) -> bool {
        let room_bytes = if is_own { &mut self.own_bytes } else { &mut self.other_bytes };
        let left_bytes = room_bytes.checked_sub(text_bytes + ENTRY_BYTES);
        *room_bytes = left_bytes.unwrap_or(*room_bytes);
        left_bytes.is_some()
    }
}

/// A text, cut.
#[derive(Default)]
pub struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    // Once in the program, not once a field.
    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        if text.len() > limits::OBJECT_TEXT_BYTES {
            text.truncate(text.floor_char_boundary(limits::OBJECT_TEXT_BYTES));
            text.shrink_to_fit();
        }
        Ok(Text(text))
    }
}

#[derive(Default)]
struct Pairs(TextMap<String>);

impl<'de> Deserialize<'de> for Pairs {
    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Pairs, A::Error> {
        let mut pairs = TextMap::new();
        let mut room = Room::new();
        while let Some((Text(name), Text(value))) = access.next_entry()? {
            if room.take(is_own(&name), name.len() + value.len()) {
                pairs.insert(name, value);
            }
        }
        Ok(Pairs(pairs))
    }
}

struct ListVisitor<'a>(&'a mut dyn FlatList);

impl<'de> DeserializeSeed<'de> for ListVisitor<'_> {
    type Value = ();

    #[inline(never)]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut room = Room::new();
        self.0.clear();
        while let Some(entry) = self.0.begin() {
            let has_read = access.next_element_seed(FlatVisitor(entry))?.is_some();
            self.0.end(has_read, &mut room);
            if !has_read {
                break;
            }
        }
        Ok(())
    }
}

/// A list of texts.
#[derive(Default)]
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        deserializer.deserialize_seq(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Texts, A::Error> {
        let (mut texts, mut room) = (Vec::new(), Room::new());
        while let Some(Text(text)) = access.next_element()? {
            if room.take(false, text.len()) {
                texts.push(text);
            }
        }
        Ok(Texts(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::node::object::{Condition, DaemonEndpoints, NodeStatus};
    use crate::node::patch::status_patch;
    use crate::node::tests::samples;
    use serde_json::{Value, json};

    const OTHERS: usize = 5_000;

    /// A Node as the samples have it, drowned by others.
    fn crowded() -> Value {
        let mut node = json!(samples::node());
        for path in ["/metadata/labels", "/status/capacity", "/status/allocatable"] {
            let map = node.pointer_mut(path).unwrap().as_object_mut().unwrap();
            map.extend((0..OTHERS).map(|number| (format!("a{number}"), json!("x".repeat(5_000)))));
        }
        for (path, entry) in [
            ("/status/conditions", json!({ "type": "Theirs", "status": "x".repeat(5_000) })),
            ("/status/addresses", json!({ "type": "Theirs", "address": "x".repeat(5_000) })),
        ] {
            let list = node.pointer_mut(path).unwrap().as_array_mut().unwrap();
            list.splice(0..0, std::iter::repeat_n(entry, OTHERS));
        }
        node["spec"]["taints"] = json!(vec![json!({ "key": "k", "effect": "NoSchedule", "deep": [{}] }); OTHERS]);
        node["spec"]["podCIDRs"] = json!(vec!["x".repeat(5_000); OTHERS]);
        node["metadata"]["annotations"] = json!({ "nodepulse.dev/own": "x".repeat(5_000) });
        node
    }

    #[test]
    fn of_thousands_of_others_a_few_are_kept_and_of_our_own_all() {
        let (node, own) = (Node::deserialize(crowded()).unwrap(), samples::node());
        let kept = json!(node).to_string().len();
        assert!(kept < 8 * limits::OBJECT_LIST_BYTES, "{kept} bytes are kept");
        assert!(own.metadata.labels.iter().all(|label| node.metadata.labels.get(label.0) == Some(label.1)));
        let (capacity, own_capacity) = (node.status.capacity, own.status.capacity);
        assert!(own_capacity.iter().all(|resource| capacity.get(resource.0) == Some(resource.1)));
        assert!(own.status.conditions.iter().all(|condition| node.status.conditions.contains(condition)));
        assert_eq!(node.metadata.annotations["nodepulse.dev/own"].len(), limits::OBJECT_TEXT_BYTES);
        let taints = limits::OBJECT_LIST_BYTES / (ENTRY_BYTES + 1);
        assert_eq!((node.spec.taints.len(), node.metadata.name), (taints, own.metadata.name));
    }

    #[test]
    fn what_is_not_kept_is_not_touched() {
        let old = Node::deserialize(crowded()).unwrap();
        let mut new = old.clone();
        let ready = new.status.conditions.iter_mut().find(|condition| condition.kind == "Ready").unwrap();
        ready.status = "False".to_owned();
        new.status.capacity.insert("cpu".to_owned(), "3".to_owned());
        let patch: Value = serde_json::from_str(&status_patch(&old, &new)).unwrap();
        assert_eq!(patch["status"]["conditions"], json!([{ "status": "False", "type": "Ready" }]));
        assert_eq!(patch["status"]["capacity"], json!({ "cpu": "3" }));
        assert!(patch.to_string().len() < 8_000, "{}", patch.to_string().len());
        assert_eq!(patch.as_object().unwrap().keys().collect::<Vec<_>>(), ["status"]);
    }

    #[test]
    fn what_is_null_is_not_there() {
        let condition = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": null, "message": null });
        let status = json!({ "capacity": null, "conditions": [condition], "addresses": null, "images": null });
        let spec = json!({ "taints": null, "podCIDRs": null, "unschedulable": null });
        let node = json!({ "metadata": { "labels": null, "managedFields": null }, "spec": spec, "status": status });
        let node = Node::deserialize(node).unwrap();
        let ready = Condition { status: "True".to_owned(), ..Condition::unknown("Ready") };
        let status = NodeStatus { conditions: vec![ready], ..NodeStatus::default() };
        assert_eq!(node, Node { status, ..Node::default() });
        assert_eq!(
            Node::deserialize(json!({ "metadata": null, "spec": null, "status": null })).unwrap(),
            Node::default()
        );
    }

    #[test]
    fn of_lists_with_one_name_the_last_counts_and_a_port_that_is_none_is_0() {
        let text = r#"{"status":{"addresses":[{"type":"a"}],"addresses":[{"type":"b"},{"type":"c"}],
            "daemonEndpoints":{"kubeletEndpoint":{"Port":70000}}}}"#;
        let node: Node = serde_json::from_str(text).unwrap();
        let kinds: Vec<_> = node.status.addresses.iter().map(|address| address.kind.as_str()).collect();
        assert_eq!((kinds, node.status.daemon_endpoints), (vec!["b", "c"], DaemonEndpoints::default()));
    }

    #[test]
    fn managers_are_needless_where_somebody_updates_and_nobody_applies() {
        let is_needless = |metadata: Value| {
            Node::deserialize(json!({ "metadata": metadata })).unwrap().metadata.has_needless_managers
        };
        let manager =
            |operation: &str| json!({ "manager": "m", "operation": operation, "fieldsV1": { "f:status": {} } });
        let mut managers = vec![manager("Update"); OTHERS];
        assert!(is_needless(json!({ "managedFields": managers })));
        managers.push(manager("Apply"));
        assert!(!is_needless(json!({ "managedFields": managers })));
        assert!(!is_needless(json!({ "managedFields": [] })) && !is_needless(json!({})), "nothing is tracked");
    }

    #[test]
    fn every_node_of_a_common_size_is_kept_whole() {
        let mut node = samples::node();
        let name = |number: usize| format!("label-{number}.example.com/{number}");
        node.metadata.labels.extend((0..100).map(|number| (name(number), "value".to_owned())));
        let foreign = Condition { kind: "KernelDeadlock".to_owned(), ..node.status.conditions[0].clone() };
        node.status.conditions.extend(std::iter::repeat_n(foreign, 20));
        assert_eq!(Node::deserialize(json!(node)).unwrap(), node);
    }
}
