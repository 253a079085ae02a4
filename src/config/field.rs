//! One value of a file or a flag together with its place, so that whatever reads it can say where it is wrong.

use std::path::Path;

use super::problem::{Origin, Problem};
use super::yaml::{Content, Value};

static NOTHING: Value = Value { line: 0, content: Content::Nothing };

#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    pub origin: &'a Origin,
    /// `evictionHard.memory.available`, `clusters[home].cluster.server`, `--node-labels`; empty for a whole file.
    pub name: String,
    /// Of the file, counted from 1; 0 for a flag.
    pub line: u32,
    pub value: &'a Value,
}

impl<'a> Field<'a> {
    pub fn of_file(origin: &'a Origin, tree: &'a Value) -> Field<'a> {
        Field { origin, name: String::new(), line: tree.line, value: tree }
    }

    pub fn problem(&self, text: impl Into<String>) -> Problem {
        Problem { origin: self.origin.clone(), line: self.line, field: self.name.clone(), text: text.into() }
    }

    /// The field of a key of this map; one with nothing in it where there is none.
    pub fn at(&self, key: &str) -> Field<'a> {
        let value = self.value.get(key);
        let line = value.map_or(self.line, |value| value.line);
        Field { origin: self.origin, name: self.name_of(key), line, value: value.unwrap_or(&NOTHING) }
    }

    /// The keys of this map, each with its field.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.value.entries().iter().map(|entry| {
            let (name, line) = (self.name_of(&entry.key), entry.line);
            (entry.key.as_str(), Field { origin: self.origin, name, line, value: &entry.value })
        })
    }

    /// The items of this list.
    pub fn items(&self) -> impl Iterator<Item = Field<'a>> {
        self.value.items().iter().enumerate().map(|(index, value)| {
            let name = format!("{}[{index}]", self.name);
            Field { origin: self.origin, name, line: value.line, value }
        })
    }

    fn name_of(&self, key: &str) -> String {
        // A key can be as long as the file.
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key:.100}", self.name) }
    }

    /// The text of a single value, without blanks around it; `None` where there is nothing, or an empty text.
    pub fn text(&self) -> Result<Option<&'a str>, Problem> {
        match self.value.as_text() {
            None if self.value.is_null() => Ok(None),
            None => Err(self.problem(format!("must be a single value, not {}", self.value.kind()))),
            text => Ok(text.filter(|text| !text.is_empty())),
        }
    }

    /// A path; one from a file is relative to that file's folder, as in the kubelet's settings.
    pub fn path(&self) -> Result<Option<String>, Problem> {
        Ok(self.text()?.map(|path| match self.origin {
            Origin::File(file) => Path::new(file).with_file_name(path).display().to_string(),
            Origin::Flag => path.to_owned(),
        }))
    }
}
