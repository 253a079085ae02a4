//! Turns this source tree into proof that the rules of `CONTRIBUTING.md` and the rows of `docs/conformance.md` hold.
//!
//! Each rule is a function from sources to complaints. Each is held against the tree, and against a small planted
//! violation: a rule that cannot fail is no rule.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "tidy/border.rs"]
mod border;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/conformance.rs"]
mod conformance;
#[path = "tidy/dashboard.rs"]
mod dashboard;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/judge.rs"]
mod judge;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/recipes.rs"]
mod recipes;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

/// Fails with every complaint at once.
fn hold(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
