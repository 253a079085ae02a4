//! Turns sources into complaints about words that promise less than they should: panics, stubs, tests left out.

use super::hold;
use super::source::Source;
use super::tree::sources;

/// Calls that end the process; outside tests, an error says what to do next.
const PANICS: [&str; 2] = ["unwrap", "expect"];
/// Macros that end the process.
const PANIC_MACROS: [&str; 4] = ["panic", "unreachable", "todo", "unimplemented"];

/// Calls of the kernel that no kept library makes, each argued.
const CALLS_THE_KERNEL: &str = "src/io/kernel.rs";

fn promises(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        for (place, token) in source.tokens.iter().enumerate() {
            let next = source.word(place + 1);
            let what = match token.text.as_str() {
                "unsafe" if source.path != CALLS_THE_KERNEL => "`unsafe` is not for us: nix has the call",
                "todo" | "unimplemented" if next == "!" => "a stub: build it, or leave it out",
                "#" if source.has(place, &["#", "[", "ignore"]) => "a test that nobody runs: make it run, or remove it",
                _ if token.in_test => continue,
                word if PANICS.contains(&word) && next == "(" && is_method(source, place) => {
                    "a panic: say what failed, where, and what to do"
                }
                word if PANIC_MACROS.contains(&word) && next == "!" => {
                    "a panic: make the state impossible, or an error"
                }
                "[" if is_index(source, place) => "indexing panics past the end: `get`, or a pattern",
                _ => continue,
            };
            complaints.push(format!("{}:{}: {what}", source.path, token.line));
        }
    }
    complaints
}

fn is_method(source: &Source, place: usize) -> bool {
    place.checked_sub(1).is_some_and(|before| [".", ":"].contains(&source.word(before)))
}

/// A bracket after a value is an index; after a keyword or punctuation it starts an array, a slice or a type.
fn is_index(source: &Source, place: usize) -> bool {
    const BEFORE_ARRAYS: [&str; 13] =
        ["mut", "in", "return", "if", "else", "match", "dyn", "ref", "as", "let", "const", "where", "for"];
    let before = place.checked_sub(1).map_or("", |before| source.word(before));
    let ends_value = before.ends_with(|last: char| last.is_alphanumeric() || "_)]\"".contains(last));
    let is_lifetime = place >= 2 && source.word(place - 2) == "'";
    ends_value && !BEFORE_ARRAYS.contains(&before) && !is_lifetime
}

#[test]
fn nothing_panics_and_nothing_is_left_for_later() {
    hold(promises(sources()));
}

#[test]
fn a_panic_a_stub_and_a_test_left_out_are_caught() {
    for text in [
        "fn f() { x.unwrap(); }",
        "fn f() { x.expect(\"y\"); }",
        "fn f() { iter.map(Option::unwrap(x)) }",
        "fn f() { panic!() }",
        "fn f() { todo!() }",
        "fn f() { unsafe { x() } }",
        "fn f() -> u8 { x[0] }",
        "fn f() -> &[u8] { &x.y()[1..] }",
        "#[cfg(test)]\nmod tests {\n#[test]\n#[ignore]\nfn f() {}\n}",
        "#[cfg(test)]\nmod tests { fn f() { unimplemented!() } }",
    ] {
        assert_eq!(promises(&[Source::new("src/a.rs", text)]).len(), 1, "{text}");
    }
    for text in [
        "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); y[0]; panic!() } }",
        "fn f() { x.unwrap_or(0); lexer.expected(); expect(x); }",
        "#[derive(Debug)]\nfn f(x: &mut [u8], y: &'static [u8; 4]) { for z in [1, 2] { vec![z]; } }",
        "// todo!() and x.unwrap()",
    ] {
        assert_eq!(promises(&[Source::new("src/a.rs", text)]), [""; 0], "{text}");
    }
}
