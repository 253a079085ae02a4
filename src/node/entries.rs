//! What the lists of a Node and a Lease hold, and how much room each takes in what we keep of them.

use serde::Deserialize;

use super::bounded::{Entry, Text, is_own};
use super::object::{Address, Condition, OwnerReference};
use super::rules;
use crate::config::taint::Taint;

impl Entry for Condition {
    type Read = Condition;

    fn of(read: Condition) -> Option<Condition> {
        Some(read)
    }

    fn bytes(&self) -> usize {
        let times = [&self.last_heartbeat_time, &self.last_transition_time].into_iter().flatten();
        let texts = [&self.kind, &self.status, &self.reason, &self.message].into_iter().chain(times);
        texts.map(String::len).sum()
    }

    fn is_own(&self) -> bool {
        rules::is_own(&self.kind)
    }
}

impl Entry for Address {
    type Read = Address;

    fn of(read: Address) -> Option<Address> {
        Some(read)
    }

    fn bytes(&self) -> usize {
        self.kind.len() + self.address.len()
    }
}

impl Entry for OwnerReference {
    type Read = OwnerReference;

    fn of(read: OwnerReference) -> Option<OwnerReference> {
        Some(read)
    }

    fn bytes(&self) -> usize {
        self.kind.len() + self.uid.len()
    }

    fn is_own(&self) -> bool {
        self.kind == "Node"
    }
}

/// A taint as anybody may have written it: one whose effect we do not know must not make a Node unreadable.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct AnyTaint {
    key: Text,
    value: Text,
    effect: Text,
}

impl Entry for Taint {
    type Read = AnyTaint;

    fn of(read: AnyTaint) -> Option<Taint> {
        Taint::new(&read.key.0, &read.value.0, &read.effect.0).ok()
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    fn is_own(&self) -> bool {
        is_own(&self.key)
    }
}
