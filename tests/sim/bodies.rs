//! Turns bodies of requests into what they tell, or into the same without a part.

use serde_json::Value;

use crate::model::stamp;

/// Reason and time of an event.
pub fn told_by(body: &str) -> (String, i64) {
    let event: Value = serde_json::from_str(body).unwrap_or_default();
    let stamp_us = event["lastTimestamp"].as_str().and_then(stamp::parse).unwrap_or(0);
    (event["reason"].as_str().unwrap_or_default().to_owned(), stamp_us)
}

/// The same event by another name.
pub fn renamed(body: &str) -> String {
    let mut event: Value = serde_json::from_str(body).unwrap_or_default();
    let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    event["metadata"]["name"] = format!("{name}-again").into();
    event.to_string()
}

pub fn remove(object: &mut Value, part: &str, keys: &[&str]) {
    if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// What a patch would take away.
pub fn remove_nulls(object: &mut Value, part: &str) {
    if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
        map.retain(|_, value| !value.is_null());
    }
}
