//! Turns sources into complaints about files of one module that import each other in a circle: none of them can be read first.

use std::collections::{BTreeMap, BTreeSet};

use super::hold;
use super::source::Source;
use super::tree::sources;

/// The modules that are free of them.
const MODULES: [&str; 14] = [
    "config", "probe", "node", "protobuf", "http2", "grpc", "cri", "dbus", "api", "identity", "journal", "agent", "io",
    "cli",
];

/// Which file imports which, as paths of modules; a file and one below it are one subject.
fn arrows(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let files = sources.iter().filter(|source| source.module().is_some_and(|module| MODULES.contains(&module)));
    let files: BTreeMap<String, &Source> = files.map(|source| (source.module_path().join("::"), source)).collect();
    let imported = |source: &Source, segments: &[&str]| {
        let ups = segments.iter().take_while(|segment| **segment == "super").count();
        let own = source.module_path();
        let path = match segments {
            ["crate", rest @ ..] => rest.to_vec(),
            _ if ups > 0 => [own.get(..own.len().checked_sub(ups)?)?, &segments[ups..]].concat(),
            _ => return None,
        };
        // The longest beginning that is a file.
        let found =
            (1..=path.len()).rev().map(|length| path[..length].join("::")).find(|path| files.contains_key(path))?;
        let is_above = |one: &str, other: &str| format!("{other}::").starts_with(&format!("{one}::"));
        let own = own.join("::");
        (!is_above(&found, &own) && !is_above(&own, &found)).then_some(found)
    };
    let of = |source: &Source| {
        let is_test = |line: usize| source.tokens.iter().any(|token| token.line == line && token.in_test);
        let paths = source.paths();
        let product = paths.iter().filter(|(_, line)| !is_test(*line));
        product.filter_map(|(segments, _)| imported(source, segments)).collect()
    };
    files.iter().map(|(path, source)| (path.clone(), of(source))).collect()
}

fn circles(sources: &[Source]) -> Vec<String> {
    let mut arrows = arrows(sources);
    // What imports nothing that is left is in no circle.
    loop {
        let free: Vec<String> = arrows.iter().filter(|(_, to)| to.is_empty()).map(|(path, _)| path.clone()).collect();
        if free.is_empty() {
            break;
        }
        arrows.retain(|path, _| !free.contains(path));
        arrows.values_mut().for_each(|to| to.retain(|path| !free.contains(path)));
    }
    let complaint = |(path, to): (&String, &BTreeSet<String>)| {
        format!("{path} imports {} in a circle", to.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    arrows.iter().map(complaint).collect()
}

#[test]
fn files_of_the_core_import_each_other_in_no_circle() {
    hold(circles(sources()));
}

#[test]
fn a_circle_is_caught_and_a_file_with_one_below_it_is_none() {
    let file = |path: &str, text: &str| Source::new(path, text);
    let two = [file("src/node/a.rs", "use super::b::B;"), file("src/node/b.rs", "use crate::node::{a::A, c};")];
    assert_eq!(circles(&two).len(), 2);
    let one = [
        file("src/node/a.rs", "mod b; use super::c::C;"),
        file("src/node/a/b.rs", "use super::A;"),
        file("src/node/c.rs", ""),
    ];
    assert_eq!(circles(&one), [""; 0]);
}
