//! Turns an object into one in which everything that differs by nature is a word: name, uids, times, pod CIDR.

use super::record::Seen;
use serde_json::{Map, Value, json};

/// The one time that the tests themselves write; it stays as it is, so that it is seen to be replaced.
pub const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Which Node the words stand for.
pub struct Whose<'a> {
    name: &'a str,
    uid: &'a str,
}

impl<'a> Whose<'a> {
    pub fn of(seen: &'a Seen) -> Self {
        Self { name: &seen.name, uid: seen.node["metadata"]["uid"].as_str().unwrap_or("no uid") }
    }

    pub fn plain(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| (self.text(key), self.entry(key, value)));
                Value::Object(entries.collect())
            }
            Value::Array(list) => list.iter().map(|value| self.plain(value)).collect(),
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn entry(&self, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("resourceVersion", Value::String(_)) => json!("<version>"),
            ("managedFields", Value::Array(list)) => managers(list),
            ("uid", Value::String(uid)) if uid != self.uid && uid != self.name => json!("<own uid>"),
            _ => self.plain(value),
        }
    }

    pub fn text(&self, text: &str) -> String {
        if text == self.uid {
            return "<uid>".to_owned();
        }
        if text != LONG_AGO && is_shaped(text, "0000-00-00T00:00:00Z") {
            return "<time>".to_owned();
        }
        if is_shaped(text, "0000-00-00T00:00:00.000000Z") {
            return "<time in microseconds>".to_owned();
        }
        if text.starts_with("10.244.") && text.ends_with(".0/24") {
            return "<pod CIDR>".to_owned();
        }
        text.replace(self.name, "NODE")
    }
}

/// Who wrote anything, without the fields: which heartbeats fell into one second decides about those.
fn managers(list: &[Value]) -> Value {
    let entries = list.iter().map(|entry| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        let who = if matches!(manager, "kubelet" | "nodepulse") { "the agent" } else { manager };
        (who.to_owned(), entry["manager"].clone())
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

fn is_shaped(text: &str, shape: &str) -> bool {
    let same = |(a, b): (char, char)| if b == '0' { a.is_ascii_digit() } else { a == b };
    text.len() == shape.len() && text.chars().zip(shape.chars()).all(same)
}
