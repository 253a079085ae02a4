//! Turns the text of one Rust file into a flat list of tokens, each with its line and whether only tests compile it.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;

/// One Rust file.
pub struct Source {
    /// Below the root of the package: `src/agent/lease.rs`.
    pub path: String,
    pub text: String,
    /// Comments are not among them; a doc comment is the attribute it stands for.
    pub tokens: Vec<Token>,
}

/// An identifier, a literal, a delimiter or one character of punctuation.
pub struct Token {
    pub text: String,
    /// The first line is 1.
    pub line: usize,
    /// Below `#[cfg(test)]`, or in a file that only tests compile.
    pub in_test: bool,
}

/// A function with a body.
pub struct Function {
    /// `agent::tests::lease::name_of_the_function`; for a file of `tests/`, its name stands for the crate.
    pub path: String,
    pub first_line: usize,
    pub last_line: usize,
    /// Carries `#[test]`, or is listed in the `cases!` of its file: a case of `tests/cluster.rs` or `tests/kubelet.rs`.
    pub is_test: bool,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
        let mut tokens = Vec::new();
        flatten(stream, !path.starts_with("src/"), &mut tokens);
        Source { path: path.to_owned(), text: text.to_owned(), tokens }
    }

    /// The top-level module of a file of the library: `agent` for `src/agent/lease.rs` and `src/agent.rs`.
    pub fn module(&self) -> Option<&str> {
        let below = self.path.strip_prefix("src/")?;
        let name = below.split('/').next()?.trim_end_matches(".rs");
        (name != "lib" && name != "main").then_some(name)
    }

    /// The modules from the root of the crate down to this file.
    pub fn module_path(&self) -> Vec<&str> {
        let below = self.path.split_once('/').map_or("", |(_, below)| below);
        let names = below.trim_end_matches(".rs").split('/');
        names.filter(|name| !["mod", "lib", "main"].contains(name)).collect()
    }

    /// The modules that this file has in files of their own for tests only: `agent::tests`.
    pub fn test_modules(&self) -> Vec<String> {
        let places = (0..self.tokens.len()).filter(|place| self.word(*place) == "mod" && self.word(place + 2) == ";");
        let places = places.filter(|place| self.tokens[*place].in_test);
        let path = |place: usize| [self.module_path(), vec![self.word(place + 1)]].concat().join("::");
        places.map(path).collect()
    }

    /// Everything in the file is for tests only.
    pub fn mark_as_test(&mut self) {
        self.tokens.iter_mut().for_each(|token| token.in_test = true);
    }

    /// Every path of the file, the groups of `use` taken apart: its segments, and the line it starts on.
    pub fn paths(&self) -> Vec<(Vec<&str>, usize)> {
        let mut paths = Vec::new();
        let mut place = 0;
        while place < self.tokens.len() {
            if self.is_word(place) {
                place = self.read_path(place, &[], &mut paths);
            } else {
                place += 1;
            }
        }
        paths
    }

    pub fn functions(&self) -> Vec<Function> {
        let cases = self.cases();
        let mut functions = Vec::new();
        let mut modules: Vec<(&str, usize)> = self.module_path().into_iter().map(|name| (name, 0)).collect();
        let mut depth = 0;
        let mut is_test = false;
        for place in 0..self.tokens.len() {
            match self.word(place) {
                "{" => depth += 1,
                "}" => {
                    modules.retain(|(_, below)| *below < depth);
                    depth -= 1;
                }
                "mod" if self.word(place + 2) == "{" => modules.push((self.word(place + 1), depth + 1)),
                "#" if self.has(place, &["#", "[", "test", "]"]) => is_test = true,
                "fn" if self.is_word(place + 1) => {
                    if let Some(end) = self.end_of_body(place) {
                        let mut names: Vec<&str> = modules.iter().map(|(name, _)| *name).collect();
                        names.push(self.word(place + 1));
                        functions.push(Function {
                            path: names.join("::"),
                            first_line: self.tokens[place].line,
                            last_line: self.tokens[end].line,
                            is_test: std::mem::take(&mut is_test) || cases.contains(self.word(place + 1)),
                        });
                    }
                }
                _ => {}
            }
        }
        functions
    }

    /// The token at `place`, or nothing past the end.
    pub fn word(&self, place: usize) -> &str {
        self.tokens.get(place).map_or("", |token| token.text.as_str())
    }

    pub fn has(&self, place: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(offset, word)| self.word(place + offset) == *word)
    }

    fn is_word(&self, place: usize) -> bool {
        self.word(place).starts_with(|first: char| first.is_alphabetic() || first == '_')
    }

    /// Every word inside a `cases![...]`.
    fn cases(&self) -> BTreeSet<&str> {
        let mut words = BTreeSet::new();
        for start in (0..self.tokens.len()).filter(|place| self.has(*place, &["cases", "!", "["])) {
            let mut depth = 0;
            for token in &self.tokens[start + 2..] {
                match token.text.as_str() {
                    "[" => depth += 1,
                    "]" => depth -= 1,
                    word => drop(words.insert(word)),
                }
                if depth == 0 {
                    break;
                }
            }
        }
        words
    }

    /// Reads the path, or the group of paths, that starts at `place`, and answers where the next begins.
    fn read_path<'a>(&'a self, start: usize, before: &[&'a str], paths: &mut Vec<(Vec<&'a str>, usize)>) -> usize {
        let mut place = start;
        let mut segments = before.to_vec();
        loop {
            if self.word(place) == "{" && place > start || self.word(place) == "{" && !before.is_empty() {
                place += 1;
                while !["}", ""].contains(&self.word(place)) {
                    place = match self.is_word(place) || self.word(place) == "*" {
                        true => self.read_path(place, &segments, paths),
                        false => place + 1,
                    };
                }
                return place + 1;
            }
            segments.push(self.word(place));
            place += 1;
            let goes_on =
                self.has(place, &[":", ":"]) && (self.is_word(place + 2) || "{*".contains(self.word(place + 2)));
            if !goes_on {
                paths.push((segments, self.tokens[start].line));
                return place;
            }
            place += 2;
        }
    }

    /// Where the body ends of the function whose `fn` is at `place`; `None` for a declaration.
    fn end_of_body(&self, place: usize) -> Option<usize> {
        let mut depth = 0;
        let mut place = place;
        loop {
            match self.word(place) {
                "" => return None,
                ";" if depth == 0 => return None,
                "(" | "[" | "{" => depth += 1,
                ")" | "]" => depth -= 1,
                "}" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(place);
                    }
                }
                _ => {}
            }
            place += 1;
        }
    }
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    let mut waiting_for_item = false;
    for tree in stream {
        let below_test = in_test || waiting_for_item;
        let start = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                let is_body = group.delimiter() == Delimiter::Brace;
                let starts_test = open == "[" && group.stream().to_string().replace(' ', "") == "cfg(test)";
                tokens.push(Token { text: open.to_owned(), line: start, in_test: below_test });
                flatten(group.stream(), below_test, tokens);
                let line = group.span_close().start().line;
                tokens.push(Token { text: close.to_owned(), line, in_test: below_test });
                waiting_for_item = starts_test || waiting_for_item && !is_body;
            }
            other => {
                let text = other.to_string();
                waiting_for_item &= text != ";";
                tokens.push(Token { text, line: start, in_test: below_test });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_use_are_taken_apart() {
        let source = Source::new("src/a.rs", "use crate::{b::{self, C}, d::*};\nfn f() { std::mem::take(x.y) }");
        let paths: Vec<String> = source.paths().into_iter().map(|(segments, _)| segments.join("::")).collect();
        for path in ["crate::b::self", "crate::b::C", "crate::d::*", "std::mem::take", "x"] {
            assert!(paths.iter().any(|one| one == path), "{path} is not in {paths:?}");
        }
    }

    #[test]
    fn functions_have_their_module_their_lines_and_their_mark() {
        let text =
            "fn a() {\n}\nmod m {\n #[test]\n fn b() -> [u8; 2] {\n  [1, 2]\n }\n}\ntrait T { fn c(); }\nfn d() {}";
        let source = Source::new("src/x/y.rs", text);
        let functions = source.functions();
        let seen: Vec<_> =
            functions.iter().map(|one| (one.path.as_str(), one.first_line, one.last_line, one.is_test)).collect();
        assert_eq!(seen, [("x::y::a", 1, 2, false), ("x::y::m::b", 5, 7, true), ("x::y::d", 10, 10, false)]);
    }

    #[test]
    fn what_only_tests_compile_is_marked() {
        let text =
            "fn a() { one }\n#[cfg(test)]\nmod tests { fn b() { two } }\n#[cfg(test)]\nuse three;\nfn c() { four }";
        let source = Source::new("src/x.rs", text);
        let marked = |word| source.tokens.iter().any(|token| token.text == word && token.in_test);
        assert_eq!(["one", "two", "three", "four"].map(marked), [false, true, true, false]);
        let parent = Source::new("src/io/mod.rs", "mod clock;\n#[cfg(test)]\nmod loopback;\nmod pool;");
        assert_eq!(parent.test_modules(), ["io::loopback"]);
    }
}
