//! Turns files into complaints about their shape: how long, how they begin, what they are called.

use super::hold;
use super::source::Source;
use super::tree::{Script, pages, scripts, sources};

const FILE_LINES: usize = 500;
/// Clippy counts a body without its comments; here a function is as long as it looks.
const FUNCTION_LINES: usize = 70;
/// Names that say that something is useful, and not what it is.
const EMPTY_NAMES: [&str; 5] = ["util", "common", "helper", "manager", "misc"];

fn lengths(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let path = &source.path;
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            complaints.push(format!("{path} has {lines} lines, more than {FILE_LINES}: split it along its subject"));
        }
        for function in source.functions() {
            let lines = function.last_line - function.first_line + 1;
            if lines > FUNCTION_LINES {
                let (line, name) = (function.first_line, function.path);
                complaints.push(format!("{path}:{line}: {name} has {lines} lines, more than {FUNCTION_LINES}"));
            }
        }
    }
    complaints
}

fn beginnings(sources: &[Source], scripts: &[Script]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let says = source.text.lines().next().and_then(|line| line.strip_prefix("//! "));
        if says.is_none_or(|says| says.len() < 10) {
            complaints.push(format!("{}: the first line does not say (`//! `) what it turns into what", source.path));
        }
    }
    for script in scripts {
        let says = script.text.lines().nth(1).and_then(|line| line.strip_prefix("# "));
        if says.is_none_or(|says| says.len() < 10) {
            complaints.push(format!("{}: the second line does not say (`# `) what the script does", script.path));
        }
    }
    complaints
}

fn names(sources: &[Source]) -> Vec<String> {
    let is_empty_name = |name: &str| {
        let name = name.to_lowercase();
        EMPTY_NAMES.iter().any(|word| name.split('_').any(|part| part == *word || part == format!("{word}s")))
    };
    let mut complaints = Vec::new();
    for source in sources {
        let path = &source.path;
        if path.trim_end_matches(".rs").split('/').any(is_empty_name) {
            complaints.push(format!("{path}: name the file after what it holds"));
        }
        for place in 0..source.tokens.len() {
            if source.word(place) == "mod" && is_empty_name(source.word(place + 1)) {
                complaints.push(format!("{path}:{}: name the module after what it holds", source.tokens[place].line));
            }
        }
    }
    complaints
}

/// Pages that a source speaks of and that nobody who has only this tree could read.
fn references(sources: &[Source], pages: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            let words = line.split(|c: char| !(c.is_alphanumeric() || "._-/".contains(c)));
            let names = words.filter(|word| word.len() > ".md".len() && word.ends_with(".md"));
            for name in names.filter(|name| !pages.iter().any(|page| page.ends_with(*name))) {
                let place = format!("{}:{}", source.path, number + 1);
                complaints.push(format!("{place}: {name} is not in this tree: say here what it says"));
            }
        }
    }
    complaints
}

#[test]
fn files_and_functions_are_short() {
    hold(lengths(sources()));
}

#[test]
fn a_long_file_and_a_long_function_are_caught() {
    let file = |lines: usize| [Source::new("src/long.rs", &"// more\n".repeat(lines))];
    assert_eq!([500, 501].map(|lines| lengths(&file(lines)).len()), [0, 1]);
    let function = |lines: usize| [Source::new("src/long.rs", &format!("fn f() {{\n{}}}", "\n".repeat(lines - 2)))];
    assert_eq!([70, 71].map(|lines| lengths(&function(lines)).len()), [0, 1]);
}

#[test]
fn every_file_says_first_what_it_is_for() {
    hold(beginnings(sources(), &scripts()));
}

#[test]
fn a_file_or_a_script_without_its_purpose_is_caught() {
    let script = |text: &str| [Script { path: "run".to_owned(), text: text.to_owned() }];
    let of_file = |text: &str| beginnings(&[Source::new("src/a.rs", text)], &[]).len();
    assert_eq!(["//! Turns a into b.", "use std::fmt;", "//! a", ""].map(of_file), [0, 1, 1, 1]);
    let of_script = |text: &str| beginnings(&[], &script(text)).len();
    assert_eq!(["#!/bin/sh\n# Runs every test.\n", "#!/bin/sh\nset -eu\n"].map(of_script), [0, 1]);
    assert!(scripts().iter().any(|script| script.path == "tests/run"), "the scripts are not found");
}

#[test]
fn no_module_is_named_for_being_useful() {
    hold(names(sources()));
}

#[test]
fn a_module_named_for_being_useful_is_caught() {
    let of = |path: &str, text: &str| names(&[Source::new(path, text)]).len();
    assert_eq!(of("src/agent/utils.rs", ""), 1);
    assert_eq!(of("tests/common/mod.rs", ""), 1);
    assert_eq!(of("src/io/mod.rs", "mod connection_manager;"), 1);
    assert_eq!(of("src/io/mod.rs", "mod connection;\nfn f(helper: u8) -> u8 { helper }"), 0);
}

#[test]
fn a_source_refers_only_to_what_is_in_the_tree() {
    hold(references(sources(), &pages()));
}

#[test]
fn a_reference_to_a_page_that_is_elsewhere_is_caught() {
    let of = |text: &str| references(&[Source::new("src/a.rs", text)], &["docs/conformance.md".to_owned()]).len();
    assert_eq!(of(concat!("/// As `notes", ".md` 3 says.\nfn f() {}")), 1);
    assert_eq!(of("/// See `docs/conformance.md`, or conformance.md.\nfn f() {}"), 0);
}
