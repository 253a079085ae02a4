//! Turns settings into the YAML file that says them, all of them, the defaults included.

use super::setting::Shape;
use super::settings::Settings;
use super::table::SETTINGS;
use super::yaml::{Entry, Value};

/// The effective settings as a `NodePulseConfiguration`: reading it gives the same settings again.
pub fn to_yaml(settings: &Settings) -> String {
    let mut text = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n".to_owned();
    let mut open_map = None;
    for setting in SETTINGS {
        let value = (setting.print)(settings);
        let typed = matches!(setting.shape, Shape::Boolean | Shape::Number | Shape::Duration);
        match setting.name.split_once('.') {
            Some((map, key)) => {
                if open_map != Some(map) {
                    text.push_str(&format!("{map}:\n"));
                    open_map = Some(map);
                }
                print_entry(&mut text, 1, key, &value, typed);
            }
            None => print_entry(&mut text, 0, setting.name, &value, typed),
        }
    }
    text
}

fn print_entry(text: &mut String, depth: usize, key: &str, value: &Value, typed: bool) {
    text.push_str(&format!("{:indent$}{}:", "", scalar(key, false), indent = 2 * depth));
    match value {
        Value::Null { .. } => text.push('\n'),
        Value::Scalar { text: value, .. } => text.push_str(&format!(" {}\n", scalar(value, typed))),
        Value::List { items, .. } if items.is_empty() => text.push_str(" []\n"),
        Value::Map { entries, .. } if entries.is_empty() => text.push_str(" {}\n"),
        Value::List { items, .. } => {
            text.push('\n');
            for item in items {
                print_item(text, depth, item);
            }
        }
        Value::Map { entries, .. } => {
            text.push('\n');
            for Entry { key, value, .. } in entries {
                print_entry(text, depth + 1, key, value, false);
            }
        }
    }
}

/// `- key: value`, the following keys below the first.
fn print_item(text: &mut String, depth: usize, item: &Value) {
    let mut block = String::new();
    match item {
        Value::Map { entries, .. } => {
            for Entry { key, value, .. } in entries {
                print_entry(&mut block, depth + 1, key, value, false);
            }
        }
        Value::Scalar { text, .. } => {
            block.push_str(&format!("{:indent$}{}\n", "", scalar(text, false), indent = 2 * depth + 2))
        }
        Value::Null { .. } | Value::List { .. } => {}
    }
    let indent = 2 * depth;
    text.push_str(&format!("{:indent$}- {}", "", block.trim_start()));
}

/// Plain where every YAML reader takes it for what it is: a text for a text, unless `typed` says that it is a number, a
/// truth value or a duration.
fn scalar(text: &str, typed: bool) -> String {
    const NOT_TEXT: [&str; 13] =
        ["null", "~", "yes", "no", "on", "off", "y", "n", "true", "false", "inf", "infinity", "nan"];
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-' | '%');
    let is_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(is_word)
        && !NOT_TEXT.contains(&text.to_lowercase().as_str());
    if is_text || typed { text.to_owned() } else { json_quoted(text) }
}

/// A JSON string, which is a double-quoted scalar of YAML.
fn json_quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
