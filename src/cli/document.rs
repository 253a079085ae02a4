//! Turns a JSON value into YAML as `kubectl -o yaml` would write it.

use serde_json::Value;

/// Block style, keys in the order of the value; strings quoted only where YAML would read something else.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text.trim_start().to_owned() + "\n"
}

/// Lists and maps on lines of their own, everything else behind a blank.
fn write(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                *text += &format!("\n{:indent$}{}:", "", scalar(&Value::from(key.as_str())));
                // The dashes of a list stand below its key.
                write(value, if value.is_array() { indent } else { indent + 2 }, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for item in list {
                let mut below = String::new();
                write(item, indent + 2, &mut below);
                *text += &format!("\n{:indent$}- {}", "", below.trim_start());
            }
        }
        other => *text += &format!(" {}", scalar(other)),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) if is_plain(string) => string.clone(),
        // A JSON string is a YAML double-quoted string.
        other => other.to_string(),
    }
}

/// Whether YAML reads these characters as this very string: no number, boolean, null, or punctuation with a meaning.
fn is_plain(string: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_./ ()+,".contains(c);
    let first = string.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '/');
    let word = string.to_ascii_lowercase();
    let has_meaning = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&word.as_str());
    first && string.chars().all(inside) && !string.ends_with(' ') && !has_meaning
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_lists_and_scalars_are_written_in_block_style() {
        let value = json!({
            "kind": "Node",
            "spec": {},
            "status": {
                "addresses": [{ "address": "10.0.0.1", "type": "InternalIP" }],
                "capacity": { "cpu": "4", "memory": "16265484Ki" },
                "flags": ["fp", 7, [], {}, [1, [2]], [{"a": 1, "b": [2]}]],
                "note": "no: it is not"
            },
            "yes": "yes"
        });
        assert_eq!(
            to_yaml(&value),
            "kind: Node\nspec: {}\nstatus:\n  addresses:\n  - address: \"10.0.0.1\"\n    type: InternalIP\n  capacity:\n    cpu: \"4\"\n    memory: \"16265484Ki\"\n  flags:\n  - fp\n  - 7\n  - []\n  - {}\n  - - 1\n    - - 2\n  - - a: 1\n      b:\n      - 2\n  note: \"no: it is not\"\n\"yes\": \"yes\"\n"
        );
    }
}
