//! Turns `extendedResources` into names of resources, each with a number or with patterns of paths.

use super::field::Field;
use super::labels;
use super::limits;
use super::problem::{Findings, Problem, quoted};
use super::text_map::TextMap;
use super::yaml::{Content, Value};

/// Where the count of an extended resource comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceSource {
    Count(u32),
    /// How many paths are like one of these, each below `/dev` or `/sys` and without `.` and `..`; `*` and `?` stand for
    /// characters of one name.
    Paths(Vec<String>),
}

/// Name (DEV-3) to source.
pub type ExtendedResources = TextMap<ResourceSource>;

/// Whether this part of a path stands for names, and is none.
pub fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?'])
}

/// Whether to count these the names in folders below `/dev` are to be listed.
pub fn lists_devices(resources: &ExtendedResources) -> bool {
    let is_listed = |path: &String| path.starts_with("/dev/") && is_pattern(path);
    resources.values().any(|source| matches!(source, ResourceSource::Paths(paths) if paths.iter().any(is_listed)))
}

pub(super) fn extended_resources(field: &Field<'_>, findings: &mut Findings) -> Result<ExtendedResources, Problem> {
    let most = limits::EXTENDED_RESOURCES;
    let names: Vec<&str> = field.entries().map(|(name, _)| name).collect();
    if names.len() > most {
        return Err(field.problem(format!("has {} entries; {most} are allowed", names.len())));
    }
    // They stand in one annotation of the Node.
    let bytes = names.join(",").len();
    if bytes > limits::RESOURCES_BYTES {
        let text = format!("has names of {bytes} bytes together; {} are allowed", limits::RESOURCES_BYTES);
        return Err(field.problem(text));
    }
    let read = |(name, entry): (&str, Field<'_>)| {
        let source = labels::check_extended_resource(name).map_err(str::to_owned).and_then(|()| source_of(entry.value));
        source.map(|source| (name.to_owned(), source)).map_err(|wrong| entry.problem(wrong))
    };
    let mut resources = ExtendedResources::new();
    for (name, source) in field.entries().filter_map(|entry| findings.accept(read(entry))) {
        // One by one: what sorts a map beforehand takes kilobytes of the program for each kind of map.
        resources.insert(name, source);
    }
    Ok(resources)
}

fn source_of(value: &Value) -> Result<ResourceSource, String> {
    let expected =
        || "must be a number, a pattern such as /dev/serial/by-id/*, or a map with paths: a list of patterns";
    match (&value.content, value.as_text()) {
        (_, Some(text)) if text.starts_with('/') => Ok(ResourceSource::Paths(vec![pattern(text)?])),
        (_, Some(text)) => {
            let count = text.parse().ok().filter(|count| *count <= i32::MAX as u32);
            count.map(ResourceSource::Count).ok_or_else(|| format!("{}, not {}", expected(), quoted(text)))
        }
        (Content::Map(entries), None) => match entries.as_slice() {
            [entry] if entry.key == "paths" => paths(&entry.value),
            _ => Err(expected().to_owned()),
        },
        _ => Err(format!("{}, not {}", expected(), value.kind())),
    }
}

fn paths(list: &Value) -> Result<ResourceSource, String> {
    let items = if list.as_text().is_some() { std::slice::from_ref(list) } else { list.items() };
    if items.is_empty() || items.len() > limits::RESOURCE_PATTERNS {
        return Err(format!("paths has {} patterns; 1 to {} are allowed", items.len(), limits::RESOURCE_PATTERNS));
    }
    let text =
        |item: &Value| item.as_text().map(str::to_owned).ok_or_else(|| "paths must be a list of texts".to_owned());
    let read = items.iter().map(|item| text(item).and_then(|text| pattern(&text)));
    read.collect::<Result<_, _>>().map(ResourceSource::Paths)
}

fn pattern(text: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("{} {what}", quoted(text)));
    if text.len() > limits::RESOURCE_PATTERN_BYTES {
        return Err(format!("a pattern has {} bytes; {} are allowed", text.len(), limits::RESOURCE_PATTERN_BYTES));
    }
    let Some(below) = ["/dev/", "/sys/"].into_iter().find_map(|folder| text.strip_prefix(folder)) else {
        return wrong("must be below /dev or /sys, where the kernel shows devices");
    };
    if below.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        return wrong("must have a name between any two '/', other than . and ..");
    }
    if text.contains(['[', ']', '{', '}', '\\']) || text.contains(char::is_control) {
        return wrong("may have * and ? in names, and neither brackets nor '\\'");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
