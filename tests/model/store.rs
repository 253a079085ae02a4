//! Turns writes into stored objects with uid and resourceVersion, as etcd and the registry do together.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::stamp;

/// The kinds that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Nodes,
    Leases,
    Events,
    CsiNodes,
}

impl Resource {
    /// As errors name it.
    pub fn qualified(self) -> &'static str {
        match self {
            Resource::Nodes => "nodes",
            Resource::Leases => "leases.coordination.k8s.io",
            Resource::Events => "events",
            Resource::CsiNodes => "csinodes.storage.k8s.io",
        }
    }

    /// As validation errors name it.
    pub fn qualified_kind(self) -> &'static str {
        match self {
            Resource::Nodes => "Node",
            Resource::Leases => "Lease.coordination.k8s.io",
            Resource::Events => "Event",
            Resource::CsiNodes => "CSINode.storage.k8s.io",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            Resource::Nodes => "Node",
            Resource::Leases => "Lease",
            Resource::Events => "Event",
            Resource::CsiNodes => "CSINode",
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Resource::Leases => "coordination.k8s.io/v1",
            Resource::CsiNodes => "storage.k8s.io/v1",
            Resource::Nodes | Resource::Events => "v1",
        }
    }

    /// The one namespace in which the model keeps objects of this kind.
    pub fn namespace(self) -> Option<&'static str> {
        match self {
            Resource::Nodes | Resource::CsiNodes => None,
            Resource::Leases => Some("kube-node-lease"),
            Resource::Events => Some("default"),
        }
    }
}

/// Who wrote, for `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The user agent up to its first slash.
    pub manager: String,
    pub subresource: &'static str,
}

/// Every object, by kind and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Store {
    objects: BTreeMap<Resource, BTreeMap<String, Value>>,
    version: u64,
    uids: u64,
}

impl Store {
    /// Of the last write, whatever it was of.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, resource: Resource, name: &str) -> Option<&Value> {
        self.objects.get(&resource)?.get(name)
    }

    /// Changes `metadata`, `spec` or `status`, for admins and controllers; the API goes through [`Store::create`] and
    /// [`Store::update`].
    pub fn edit(&mut self, resource: Resource, name: &str, part: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(object) = self.objects.get_mut(&resource).and_then(|named| named.get_mut(name)) else { return false };
        let Some(part) = object.get_mut(part) else { return false };
        let before = part.clone();
        change(part);
        prune_nulls(part);
        if *part == before {
            return false;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        true
    }

    pub fn list(&self, resource: Resource) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.get(&resource).into_iter().flatten().map(|(name, object)| (name.as_str(), object))
    }

    pub fn names(&self, resource: Resource) -> Vec<String> {
        self.list(resource).map(|(name, _)| name.to_owned()).collect()
    }

    pub fn delete(&mut self, resource: Resource, name: &str) -> Option<Value> {
        let removed = self.objects.get_mut(&resource)?.remove(name);
        self.version += u64::from(removed.is_some());
        removed
    }

    /// A new object; whatever the writer said about uid, version and fields managed is replaced (wire notes, 4).
    pub fn create(
        &mut self,
        resource: Resource,
        name: &str,
        mut object: Value,
        writer: &Writer,
        now_us: i64,
    ) -> Result<(), Problem> {
        if self.get(resource, name).is_some() {
            return Err(Problem::already_exists(resource, name));
        }
        self.version += 1;
        self.uids += 1;
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind());
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        if let Some(namespace) = resource.namespace() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(uid(self.uids));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["creationTimestamp"] = json!(stamp::seconds(now_us));
        metadata["managedFields"] = json!([managed_entry(resource, writer, now_us)]);
        self.objects.entry(resource).or_default().insert(name.to_owned(), object);
        Ok(())
    }

    /// Replaces an object; the version moves only when something but the bookkeeping differs (etcd's byte comparison).
    pub fn update(
        &mut self,
        resource: Resource,
        name: &str,
        mut object: Value,
        writer: &Writer,
        now_us: i64,
    ) -> Result<(), Problem> {
        let Some(stored) = self.get(resource, name) else { return Err(Problem::not_found(resource, name)) };
        check_preconditions(resource, name, stored, &object)?;
        for key in ["apiVersion", "kind"] {
            copy_key(stored, &mut object, key);
        }
        for key in ["uid", "creationTimestamp", "name", "namespace", "resourceVersion"] {
            copy_key(&stored["metadata"], &mut object["metadata"], key);
        }
        let resets_managed = object["metadata"].get("managedFields").is_some_and(is_managed_fields_reset);
        let strips = resets_managed && writer.subresource.is_empty();
        let had_managed = stored["metadata"].get("managedFields").is_some();
        copy_key(&stored["metadata"], &mut object["metadata"], "managedFields");
        if strips {
            remove_key(&mut object["metadata"], "managedFields");
        }
        if object == *stored {
            return Ok(());
        }
        if had_managed && !strips {
            track(&mut object, managed_entry(resource, writer, now_us));
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.entry(resource).or_default().insert(name.to_owned(), object);
        Ok(())
    }
}

/// A version or uid inside the written object must be the stored one.
fn check_preconditions(resource: Resource, name: &str, stored: &Value, written: &Value) -> Result<(), Problem> {
    fn text<'a>(object: &'a Value, key: &str) -> &'a str {
        object["metadata"][key].as_str().unwrap_or_default()
    }
    let (uid, version) = (text(written, "uid"), text(written, "resourceVersion"));
    if !uid.is_empty() && uid != text(stored, "uid") {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", text(stored, "uid"));
        return Err(Problem::conflict(resource, name, &why));
    }
    if !version.is_empty() && version != text(stored, "resourceVersion") {
        return Err(Problem::modified(resource, name));
    }
    Ok(())
}

/// `[{}]` and `[]` reset the list (wire notes, 4).
fn is_managed_fields_reset(value: &Value) -> bool {
    value.as_array().is_some_and(|entries| entries.iter().all(|entry| entry.as_object().is_some_and(Map::is_empty)))
}

fn managed_entry(resource: Resource, writer: &Writer, now_us: i64) -> Value {
    let mut entry = json!({
        "manager": writer.manager, "operation": "Update", "apiVersion": resource.api_version(),
        "time": stamp::seconds(now_us), "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:name": {}}},
    });
    if !writer.subresource.is_empty() {
        entry["subresource"] = json!(writer.subresource);
    }
    entry
}

/// One entry per manager and subresource; its time moves with each tracked write.
fn track(object: &mut Value, entry: Value) {
    let Some(entries) = object["metadata"]["managedFields"].as_array_mut() else { return };
    let same = |known: &Value| known["manager"] == entry["manager"] && known["subresource"] == entry["subresource"];
    match entries.iter_mut().find(|known| same(known)) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
}

/// Looking at a field that is not there leaves a null behind; a server stores none.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

fn copy_key(from: &Value, into: &mut Value, key: &str) {
    match from.get(key) {
        same if same == into.get(key) => {}
        Some(value) => into[key] = value.clone(),
        None => remove_key(into, key),
    }
}

fn remove_key(object: &mut Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(key);
    }
}

/// Looks like one, and is the same for the same seed.
fn uid(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:08x}-{:04x}-4{:03x}-8000-{number:012x}", mixed >> 32, mixed >> 16 & 0xffff, mixed & 0xfff)
}
