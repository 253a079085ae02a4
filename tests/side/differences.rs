//! Turns two JSON values into the list of paths at which they differ.

use serde_json::Value;
use std::collections::BTreeMap;

/// A value's leaves by path; an empty list or map is a leaf too.
pub type Leaves = BTreeMap<String, String>;

/// What stands for a leaf that is not there.
pub const ABSENT: &str = "-";

/// One path and what both have there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub at: String,
    pub kubelet: String,
    pub nodepulse: String,
}

/// The leaves of `value` below `path`.
pub fn leaves(path: &str, value: &Value) -> Leaves {
    let mut all = Leaves::new();
    collect(path, value, &mut all);
    all
}

fn collect(path: &str, value: &Value, all: &mut Leaves) {
    let dotted = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| collect(&dotted(key), value, all));
        }
        Value::Array(list) if !list.is_empty() => {
            for (n, value) in list.iter().enumerate() {
                // The order of conditions is compared on its own.
                let kind = value["type"].as_str().filter(|_| path.ends_with("conditions"));
                let key = kind.map_or_else(|| n.to_string(), str::to_owned);
                collect(&format!("{path}[{key}]"), value, all);
            }
        }
        Value::String(text) if !text.is_empty() => drop(all.insert(path.to_owned(), text.clone())),
        other => drop(all.insert(path.to_owned(), other.to_string())),
    }
}

/// Every path at which the two are not the same.
pub fn differences(kubelet: &Leaves, nodepulse: &Leaves) -> Vec<Difference> {
    let mut paths: Vec<&String> = kubelet.keys().chain(nodepulse.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let at = |leaves: &Leaves, path: &str| leaves.get(path).map_or(ABSENT, String::as_str).to_owned();
    let all = paths.into_iter().map(|path| Difference {
        at: path.clone(),
        kubelet: at(kubelet, path),
        nodepulse: at(nodepulse, path),
    });
    all.filter(|found| found.kubelet != found.nodepulse).collect()
}

/// What became of each leaf: `before -> after` where that is not the same.
pub fn changes(before: &Leaves, after: &Leaves) -> Leaves {
    let all = differences(before, after).into_iter();
    all.map(|change| (change.at, format!("{} -> {}", change.kubelet, change.nodepulse))).collect()
}
