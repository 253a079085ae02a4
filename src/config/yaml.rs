//! Turns the text of a YAML or JSON file into a small tree that remembers its lines, within fixed limits.
//!
//! Settings need no anchors, merge keys or tags, so what expands (a "billion laughs") is refused instead of counted.

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
    pub fn of_flag(text: &str) -> Value {
        Value::Scalar { text: text.to_owned(), line: 0 }
    }

    /// The text of a single value, without blanks around it.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Scalar { text, .. } => Some(text.trim()),
            _ => None,
        }
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

/// What could be read, and everything that was wrong with it. Without a problem the tree is whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// `Null` for an empty file, and where nothing could be read.
    pub tree: Value,
    /// Each with its line, counted from 1.
    pub problems: Vec<(u32, String)>,
}

/// Reads one document.
pub fn parse(text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    if text.len() > limits::SETTINGS_FILE_BYTES {
        let limit = limits::SETTINGS_FILE_BYTES / 1024;
        builder.refuse(1, format!("the file is longer than {limit} KiB: is it the right one?"));
    } else if let Some((before, _)) = text.split_once('\0') {
        let line = line_number(before.matches('\n').count() + 1);
        builder.refuse(line, "a NUL byte: the file is damaged or not text");
    } else {
        builder.read(text);
    }
    Parsed { tree: builder.root.unwrap_or(Value::Null { line: 1 }), problems: builder.problems }
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// The parser's complaint in our words where people often earn it.
fn explain(text: &str, line: u32, complaint: &str) -> (u32, String) {
    let indents_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    if complaint.contains("tab") {
        let from = line.saturating_sub(1) as usize;
        let tab = text.lines().enumerate().skip(from).find(|(_, line)| indents_by_tab(line));
        let line = tab.map_or(line, |(index, _)| line_number(index + 1));
        return (line, "a tab: YAML is indented with blanks".to_owned());
    }
    if complaint.contains("recursion limit") {
        return (line, too_deep());
    }
    (line, format!("not YAML: {complaint}"))
}

fn too_deep() -> String {
    format!("nested deeper than {} levels", limits::YAML_DEPTH)
}

const KEY_NOT_TEXT: &str = "a key must be a single word, not a list, a map or nothing";

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
    problems: Vec<(u32, String)>,
}

impl Builder {
    fn refuse(&mut self, line: u32, text: impl Into<String>) {
        self.problems.push((line, text.into()));
    }

    fn read(&mut self, text: &str) {
        let mut parser = Parser::new_from_str(text);
        while let Some(next) = parser.next_event() {
            let fatal = match next {
                Ok((event, span)) => {
                    let line = line_number(span.start.line());
                    self.take(event, line).map_err(|text| (line, text))
                }
                Err(error) => Err(explain(text, line_number(error.marker().line()), error.info())),
            };
            if let Err((line, text)) = fatal {
                return self.refuse(line, text);
            }
            if self.problems.len() >= limits::PROBLEMS {
                return;
            }
        }
    }

    /// Takes one event; an error ends the reading, a mere problem does not.
    fn take(&mut self, event: Event<'_>, line: u32) -> Result<(), String> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("a second document begins here: keep one document per file".to_owned());
                }
            }
            Event::Scalar(text, style, _, tag) => {
                self.check_tag(tag.as_deref(), line);
                let plain = style == ScalarStyle::Plain;
                self.put_scalar(text.into_owned(), plain, line)?;
            }
            Event::Alias(_) => {
                self.refuse(line, "aliases (`*name`) are not read: write the value out");
                self.put_scalar(String::new(), false, line)?;
            }
            Event::SequenceStart(_, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.descend(Open::List { items: Vec::new(), line })?;
            }
            Event::MappingStart(_, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.descend(Open::Map { entries: Vec::new(), line, key: None })?;
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
            self.refuse(line, format!("the tag `{tag}` is not read: remove it"));
        }
    }

    fn count(&mut self) -> Result<(), String> {
        self.nodes += 1;
        let most = limits::YAML_NODES;
        if self.nodes > most { Err(format!("more than {most} values in one file")) } else { Ok(()) }
    }

    fn descend(&mut self, open: Open) -> Result<(), String> {
        self.count()?;
        if self.open.len() >= limits::YAML_DEPTH {
            return Err(too_deep());
        }
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return Err(KEY_NOT_TEXT.to_owned());
        }
        self.open.push(open);
        Ok(())
    }

    fn put_scalar(&mut self, text: String, plain: bool, line: u32) -> Result<(), String> {
        self.count()?;
        let null = plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
        if let Some(Open::Map { key: key @ None, .. }) = self.open.last_mut() {
            *key = Some((text.clone(), line));
            if null {
                self.refuse(line, KEY_NOT_TEXT);
            } else if plain && text == "<<" {
                self.refuse(line, "merge keys (`<<`) are not read: write the keys out");
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
                    Some(first_line) => {
                        self.refuse(line, format!("`{key}` stands already in line {first_line}: keep one"))
                    }
                    None => entries.push(Entry { key, line, value }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Value {
        let parsed = parse(text);
        assert_eq!(parsed.problems, Vec::new(), "{text}");
        parsed.tree
    }

    fn scalar_at<'v>(tree: &'v Value, key: &str) -> (&'v str, u32) {
        match tree.get(key) {
            Some(Value::Scalar { text, line }) => (text, *line),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// That a text has exactly these problems, each with its line and how its sentence begins.
    fn has_problems(text: &str, expected: &[(u32, &str)]) {
        let found = parse(text).problems;
        let fits =
            |((line, found), (at, start)): (&(u32, String), &(u32, &str))| line == at && found.starts_with(start);
        let shown: String = text.chars().take(100).collect();
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(fits), "{shown:?}: {found:?}");
    }

    #[test]
    fn texts_numbers_and_truths_stay_as_they_were_written() {
        let tree = tree("# comment\na: 0040\nb: 'yes'\nc: 1e3\n\nd:\n- x\n-   y: 10s\ne: ~\nf: \"\"\n");
        assert_eq!(scalar_at(&tree, "a"), ("0040", 2));
        assert_eq!(scalar_at(&tree, "b"), ("yes", 3));
        assert_eq!(scalar_at(&tree, "c"), ("1e3", 4));
        assert_eq!(scalar_at(&tree, "f"), ("", 10));
        let Some(Value::List { items, .. }) = tree.get("d") else { panic!("{tree:?}") };
        assert_eq!(items[0], Value::Scalar { text: "x".to_owned(), line: 7 });
        assert_eq!(scalar_at(&items[1], "y"), ("10s", 8));
        assert_eq!(tree.get("e"), None);
        assert_eq!(tree.get("g"), None);
    }

    #[test]
    fn files_of_other_editors_are_read() {
        assert_eq!(scalar_at(&tree("\u{feff}a: 1\r\nb: 2\r\n"), "b"), ("2", 2));
        assert_eq!(scalar_at(&tree("---\na: 1\n...\n"), "a"), ("1", 2));
        assert_eq!(scalar_at(&tree("{\n\t\"a\": \"x\\u0041\\/\",\n\t\"b\":[]\n}\n"), "a"), ("xA/", 2));
        assert_eq!(scalar_at(&tree("a: &anchor 1\nb: !!str 2"), "b"), ("2", 2));
        assert_eq!(tree(""), Value::Null { line: 1 });
        assert!(tree("# nothing\n---\n").is_null());
    }

    #[test]
    fn what_expands_is_refused_and_the_rest_is_still_checked() {
        let text = "a: &x 1\nb: *x\n<<: {c: 1}\nd: !secret 1\nd: 2\n";
        let tag = "the tag `!secret` is not read";
        let expected = [(2, "aliases"), (3, "merge keys"), (4, tag), (5, "`d` stands already in line 4: keep one")];
        has_problems(text, &expected);
    }

    #[test]
    fn a_bomb_of_aliases_costs_its_own_length_and_no_more() {
        let mut bomb = "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n".to_owned();
        for (previous, next) in ('a'..='y').zip('b'..='z') {
            let aliases = vec![format!("*{previous}"); 9].join(",");
            bomb.push_str(&format!("{next}: &{next} [{aliases}]\n"));
        }
        let found = parse(&bomb).problems;
        assert_eq!(found.len(), limits::PROBLEMS);
        assert!(found.iter().all(|(_, text)| text.starts_with("aliases (`*name`) are not read")));
    }

    #[test]
    fn limits_end_the_reading() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        has_problems(&deep(limits::YAML_DEPTH), &[]);
        has_problems(&deep(limits::YAML_DEPTH + 1), &[(1, "nested deeper than 32 levels")]);
        has_problems(&"[".repeat(limits::SETTINGS_FILE_BYTES), &[(1, "nested deeper than 32 levels")]);
        let block: String = (0..40).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        has_problems(&block, &[(33, "nested deeper than 32 levels")]);
        has_problems(&"- 1\n".repeat(limits::YAML_NODES), &[(10_000, "more than 10000 values")]);
        has_problems(&"a".repeat(300 * 1024), &[(1, "the file is longer than 256 KiB")]);
    }

    #[test]
    fn damage_is_told_with_its_line() {
        has_problems("a: 1\nb: \0\n", &[(2, "a NUL byte")]);
        has_problems("a: 1\n---\nb: 2\n", &[(2, "a second document")]);
        has_problems("[a]: 1\n", &[(1, "a key must be a single word")]);
        has_problems("a: 1\n~: 1\n", &[(2, "a key must be a single word")]);
        has_problems("a:\n  b: 1\n\tc: 2\n", &[(3, "a tab")]);
        for (text, line) in [("a: 'x\n", 1), ("a: [1\n", 2), ("a: 1\n b: 2\n", 2), ("a: *x\n", 1)] {
            has_problems(text, &[(line, "not YAML: ")]);
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_slow() {
        for piece in [
            "{",
            "- ",
            "? ",
            "a: ",
            "'",
            "\"\\",
            "|\n",
            ">\n ",
            "&a ",
            "!",
            "%",
            "a:\n ",
            "{a: ",
            ": ",
            "#\n",
            "\u{1f980}",
            "\u{85}",
        ] {
            let _ = parse(&piece.repeat(limits::SETTINGS_FILE_BYTES / piece.len()));
        }
    }
}
