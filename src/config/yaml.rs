//! Turns the text of a YAML or JSON file into a small tree that remembers its lines, within fixed limits.
//!
//! Settings need no anchors, merge keys or tags, so what expands (a "billion laughs") is refused instead of counted.

use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::limits;

/// One node of the tree; `line` counts from 1, 0 where there is no file (flags).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`: as if the key were not there.
    Null {
        line: u32,
    },
    /// Any text, number or truth value, as it was written. What it means is up to the setting that reads it.
    Scalar {
        text: String,
        line: u32,
    },
    List {
        items: Vec<Value>,
        line: u32,
    },
    /// In the order written; no key twice.
    Map {
        entries: Vec<Entry>,
        line: u32,
    },
}

/// One `key: value` of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    /// Line of the key.
    pub line: u32,
    pub value: Value,
}

impl Value {
    pub fn line(&self) -> u32 {
        match self {
            Value::Null { line } | Value::Scalar { line, .. } | Value::List { line, .. } | Value::Map { line, .. } => {
                *line
            }
        }
    }

    /// The value of a key of a map; `None` also where the value is null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map { entries, .. } = self else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// A single value that stands in no file.
    pub fn text(text: &str) -> Value {
        Value::Scalar { text: text.to_owned(), line: 0 }
    }

    /// A list that stands in no file.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Value {
        Value::List { items: items.into_iter().collect(), line: 0 }
    }

    /// A map of single values that stands in no file.
    pub fn map(entries: impl IntoIterator<Item = (String, String)>) -> Value {
        let entry = |(key, text): (String, String)| Entry { key, line: 0, value: Value::Scalar { text, line: 0 } };
        Value::Map { entries: entries.into_iter().map(entry).collect(), line: 0 }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null { .. })
    }

    /// What this is, for a sentence.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null { .. } => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List { .. } => "a list",
            Value::Map { .. } => "a map",
        }
    }
}

/// Why a text is not (all of) a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Counts from 1.
    pub line: u32,
    pub why: Why,
}

/// The reason, as a machine word ([`Why::word`]) and a sentence (`Display`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    TooLong,
    NulByte,
    TooDeep,
    TooManyNodes,
    Alias,
    MergeKey,
    Tag(String),
    KeyNotText,
    DuplicateKey {
        key: String,
        first_line: u32,
    },
    SecondDocument,
    /// In the parser's words.
    Syntax(String),
}

impl Why {
    pub fn word(&self) -> &'static str {
        match self {
            Why::TooLong => "too-long",
            Why::NulByte => "nul-byte",
            Why::TooDeep => "too-deep",
            Why::TooManyNodes => "too-many-nodes",
            Why::Alias => "alias",
            Why::MergeKey => "merge-key",
            Why::Tag(_) => "tag",
            Why::KeyNotText => "key-not-text",
            Why::DuplicateKey { .. } => "duplicate-key",
            Why::SecondDocument => "second-document",
            Why::Syntax(_) => "syntax",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::TooLong => {
                write!(f, "the file is longer than {} KiB: is it the right one?", limits::SETTINGS_FILE_BYTES / 1024)
            }
            Why::NulByte => f.write_str("a NUL byte: the file is damaged or not text"),
            Why::TooDeep => write!(f, "nested deeper than {} levels", limits::YAML_DEPTH),
            Why::TooManyNodes => write!(f, "more than {} values in one file", limits::YAML_NODES),
            Why::Alias => f.write_str("aliases (`*name`) are not read: write the value out"),
            Why::MergeKey => f.write_str("merge keys (`<<`) are not read: write the keys out"),
            Why::Tag(tag) => write!(f, "the tag `{tag}` is not read: remove it"),
            Why::KeyNotText => f.write_str("a key must be a single word, not a list, a map or nothing"),
            Why::DuplicateKey { key, first_line } => write!(f, "`{key}` stands already in line {first_line}: keep one"),
            Why::SecondDocument => f.write_str("a second document begins here: keep one document per file"),
            Why::Syntax(what) => write!(f, "not YAML: {what}"),
        }
    }
}

/// What could be read, and everything that was wrong with it. Without a problem the tree is whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// `Null` for an empty file, and where nothing could be read.
    pub tree: Value,
    pub problems: Vec<YamlError>,
}

/// Reads one document.
pub fn parse(text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    if text.len() > limits::SETTINGS_FILE_BYTES {
        builder.refuse(1, Why::TooLong);
    } else if let Some((before, _)) = text.split_once('\0') {
        builder.refuse(line_number(before.matches('\n').count() + 1), Why::NulByte);
    } else {
        builder.read(text);
    }
    Parsed { tree: builder.root.unwrap_or(Value::Null { line: 1 }), problems: builder.problems }
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// A list or a map that is not closed yet.
enum Open {
    List { items: Vec<Value>, line: u32 },
    Map { entries: Vec<Entry>, line: u32, key: Option<(String, u32)> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    nodes: usize,
    documents: usize,
    problems: Vec<YamlError>,
}

impl Builder {
    fn refuse(&mut self, line: u32, why: Why) {
        self.problems.push(YamlError { line, why });
    }

    fn read(&mut self, text: &str) {
        let mut parser = Parser::new_from_str(text);
        while let Some(next) = parser.next_event() {
            let fatal = match next {
                Ok((event, span)) => self.take(event, line_number(span.start.line())),
                Err(error) => Err((line_number(error.marker().line()), Why::Syntax(error.info().to_owned()))),
            };
            if let Err((line, why)) = fatal {
                self.refuse(line, why);
                return;
            }
            if self.problems.len() >= limits::PROBLEMS {
                return;
            }
        }
    }

    /// Takes one event; an error ends the reading, a mere problem does not.
    fn take(&mut self, event: Event<'_>, line: u32) -> Result<(), (u32, Why)> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((line, Why::SecondDocument));
                }
            }
            Event::Scalar(text, style, _, tag) => {
                self.check_tag(tag.as_deref(), line);
                let plain = style == ScalarStyle::Plain;
                self.put_scalar(text.into_owned(), plain, line)?;
            }
            Event::Alias(_) => {
                self.refuse(line, Why::Alias);
                self.put_scalar(String::new(), false, line)?;
            }
            Event::SequenceStart(_, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.descend(line, Open::List { items: Vec::new(), line })?;
            }
            Event::MappingStart(_, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.descend(line, Open::Map { entries: Vec::new(), line, key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { items, line }) => self.put(Value::List { items, line }),
                Some(Open::Map { entries, line, .. }) => self.put(Value::Map { entries, line }),
                None => {}
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn check_tag(&mut self, tag: Option<&saphyr_parser::Tag>, line: u32) {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            self.refuse(line, Why::Tag(tag.to_string()));
        }
    }

    fn count(&mut self, line: u32) -> Result<(), (u32, Why)> {
        self.nodes += 1;
        if self.nodes > limits::YAML_NODES { Err((line, Why::TooManyNodes)) } else { Ok(()) }
    }

    fn descend(&mut self, line: u32, open: Open) -> Result<(), (u32, Why)> {
        self.count(line)?;
        if self.open.len() >= limits::YAML_DEPTH {
            return Err((line, Why::TooDeep));
        }
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return Err((line, Why::KeyNotText));
        }
        self.open.push(open);
        Ok(())
    }

    fn put_scalar(&mut self, text: String, plain: bool, line: u32) -> Result<(), (u32, Why)> {
        self.count(line)?;
        let null = plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
        if let Some(Open::Map { key: key @ None, .. }) = self.open.last_mut() {
            *key = Some((text.clone(), line));
            if null {
                self.refuse(line, Why::KeyNotText);
            } else if plain && text == "<<" {
                self.refuse(line, Why::MergeKey);
            }
            return Ok(());
        }
        self.put(if null { Value::Null { line } } else { Value::Scalar { text, line } });
        Ok(())
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { entries, key, .. }) => {
                let Some((key, line)) = key.take() else { return };
                match entries.iter().find(|entry| entry.key == key).map(|entry| entry.line) {
                    Some(first_line) => self.refuse(line, Why::DuplicateKey { key, first_line }),
                    None => entries.push(Entry { key, line, value }),
                }
            }
        }
    }
}
