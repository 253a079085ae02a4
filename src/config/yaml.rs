//! Turns the text of a YAML or JSON file into a small tree that remembers its lines, within fixed limits.
//!
//! Settings need no anchors, merge keys or tags, so what expands (a "billion laughs") is refused instead of counted.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::limits;

/// One node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Counted from 1; 0 where there is no file (flags).
    pub line: u32,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing, `~` or `null`: as if the key were not there.
    Nothing,
    /// Any text, number or truth value, as it was written. What it means is up to the setting that reads it.
    Text(String),
    List(Vec<Value>),
    /// In the order written; no key twice.
    Map(Vec<Entry>),
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
    /// The value of a key of a map; `None` also where the value is null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// Of a map; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        if let Content::Map(entries) = &self.content { entries } else { &[] }
    }

    /// Of a list; none of anything else.
    pub fn items(&self) -> &[Value] {
        if let Content::List(items) = &self.content { items } else { &[] }
    }

    /// The text of a single value, without blanks around it.
    pub fn as_text(&self) -> Option<&str> {
        if let Content::Text(text) = &self.content { Some(text.trim()) } else { None }
    }

    pub fn is_null(&self) -> bool {
        self.content == Content::Nothing
    }

    /// What this is, for a sentence.
    pub fn kind(&self) -> &'static str {
        match self.content {
            Content::Nothing => "nothing",
            Content::Text(_) => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        }
    }
}

/// Reads one document: the tree, which is nothing for an empty file or where nothing could be read, and what is wrong, each
/// with its line, counted from 1. Without a problem the tree is whole.
pub fn parse(text: &str) -> (Value, Vec<(u32, String)>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, parser: Parser::new_from_str(text), values: 0, problems: Vec::new() };
    let tree = if text.len() > limits::SETTINGS_FILE_BYTES {
        let limit = limits::SETTINGS_FILE_BYTES / 1024;
        reader.stop(1, format!("the file is longer than {limit} KiB: is it the right one?"))
    } else if let Some((before, _)) = text.split_once('\0') {
        reader.stop(line_number(before.matches('\n').count() + 1), "a NUL byte: the file is damaged or not text")
    } else {
        reader.document()
    };
    (tree.unwrap_or(Value { line: 1, content: Content::Nothing }), reader.problems)
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

const KEY_NOT_TEXT: &str = "a key must be a single word, not a list, a map or nothing";

/// Nothing more can be read, or need be; why is among the problems.
struct Stopped;

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    values: usize,
    problems: Vec<(u32, String)>,
}

impl<'t> Reader<'t> {
    fn refuse(&mut self, line: u32, text: impl Into<String>) {
        if self.problems.len() < limits::PROBLEMS {
            self.problems.push((line, text.into()));
        }
    }

    fn stop<T>(&mut self, line: u32, text: impl Into<String>) -> Result<T, Stopped> {
        self.refuse(line, text);
        Err(Stopped)
    }

    fn next(&mut self) -> Result<(Event<'t>, u32), Stopped> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, line_number(span.start.line()))),
            Some(Err(error)) => self.explain(line_number(error.marker().line()), error.info()),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    /// The parser's complaint in our words where people often earn it.
    fn explain<T>(&mut self, line: u32, complaint: &str) -> Result<T, Stopped> {
        if complaint.contains("tab") {
            let indents_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
            let from = line.saturating_sub(1) as usize;
            let tab = self.text.lines().enumerate().skip(from).find(|(_, line)| indents_by_tab(line));
            let line = tab.map_or(line, |(index, _)| line_number(index + 1));
            return self.stop(line, "a tab: YAML is indented with spaces");
        }
        if complaint.contains("recursion limit") {
            return self.too_deep(line);
        }
        self.stop(line, format!("not YAML: {complaint}"))
    }

    fn too_deep<T>(&mut self, line: u32) -> Result<T, Stopped> {
        self.stop(line, format!("nested deeper than {} levels", limits::YAML_DEPTH))
    }

    fn document(&mut self) -> Result<Value, Stopped> {
        let mut tree = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return tree.ok_or(Stopped),
                (Event::DocumentStart(_), line) if tree.is_some() => {
                    return self.stop(line, "a second document begins here: keep one document per file");
                }
                (Event::DocumentStart(_) | Event::DocumentEnd | Event::StreamStart | Event::Nothing, _) => {}
                (event, line) => tree = Some(self.value(event, line, 0)?),
            }
        }
    }

    /// The value that begins with `event`, below so many lists and maps.
    fn value(&mut self, event: Event<'t>, line: u32, depth: usize) -> Result<Value, Stopped> {
        self.values += 1;
        if self.problems.len() >= limits::PROBLEMS {
            return Err(Stopped);
        }
        if self.values > limits::YAML_NODES {
            return self.stop(line, format!("more than {} values in one file", limits::YAML_NODES));
        }
        if let Event::Scalar(_, _, _, Some(tag))
        | Event::SequenceStart(_, Some(tag))
        | Event::MappingStart(_, Some(tag)) = &event
            && !tag.is_yaml_core_schema()
        {
            self.refuse(line, format!("the tag `{tag}` is not read: remove it"));
        }
        let content = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) if ["", "~", "null", "Null", "NULL"].contains(&&*text) => {
                Content::Nothing
            }
            Event::Scalar(text, ..) => Content::Text(text.into_owned()),
            Event::SequenceStart(..) | Event::MappingStart(..) if depth >= limits::YAML_DEPTH => {
                return self.too_deep(line);
            }
            Event::SequenceStart(..) => Content::List(self.items(depth + 1)?),
            Event::MappingStart(..) => Content::Map(self.entries(depth + 1)?),
            _ => {
                self.refuse(line, "aliases (`*name`) are not read: write the value out");
                Content::Text(String::new())
            }
        };
        Ok(Value { line, content })
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Value>, Stopped> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, line) => items.push(self.value(event, line, depth)?),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, Stopped> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let Content::Text(key) = self.value(event, line, depth)?.content else {
                return self.stop(line, KEY_NOT_TEXT);
            };
            let (event, value_line) = self.next()?;
            let value = self.value(event, value_line, depth)?;
            if key == "<<" {
                self.refuse(line, "merge keys (`<<`) are not read: write the keys out");
            } else if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                self.refuse(line, format!("`{key}` is already in line {}: keep one of them", first.line));
            } else {
                entries.push(Entry { key, line, value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Value {
        let (tree, problems) = parse(text);
        assert_eq!(problems, Vec::new(), "{text}");
        tree
    }

    fn scalar_at<'v>(tree: &'v Value, key: &str) -> (&'v str, u32) {
        match tree.get(key) {
            Some(Value { content: Content::Text(text), line }) => (text, *line),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// That a text has exactly these problems, each with its line and how its sentence begins.
    fn has_problems(text: &str, expected: &[(u32, &str)]) {
        let found = parse(text).1;
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
        let items = tree.get("d").unwrap().items();
        assert_eq!(items[0], Value { content: Content::Text("x".to_owned()), line: 7 });
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
        assert_eq!(tree(""), Value { line: 1, content: Content::Nothing });
        assert!(tree("# nothing\n---\n").is_null());
    }

    #[test]
    fn what_expands_is_refused_and_the_rest_is_still_checked() {
        let text = "a: &x 1\nb: *x\n<<: {c: 1}\nd: !secret 1\nd: 2\n";
        let tag = "the tag `!secret` is not read";
        let expected = [(2, "aliases"), (3, "merge keys"), (4, tag), (5, "`d` is already in line 4: keep one of them")];
        has_problems(text, &expected);
    }

    #[test]
    fn a_bomb_of_aliases_costs_its_own_length_and_no_more() {
        let mut bomb = "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n".to_owned();
        for (previous, next) in ('a'..='y').zip('b'..='z') {
            let aliases = vec![format!("*{previous}"); 9].join(",");
            bomb.push_str(&format!("{next}: &{next} [{aliases}]\n"));
        }
        let found = parse(&bomb).1;
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
