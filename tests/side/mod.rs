//! Turns what the API server saw of a real kubelet and of nodepulse beside it into one table of differences, each with
//! its reason: a difference that nobody explains fails, and so does a reason that explains nothing any more.

// The linter keeps sleeps out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

/// A list of cases, each named as its function is. All need root and a kubelet.
macro_rules! cases {
    ($($run:ident),+ $(,)?) => {
        vec![$(super::Case { name: stringify!($run), needs: super::NEEDS, run: $run }),+]
    };
}

mod container_runtime;
mod differences;
mod objects;
mod outcomes;
mod plain;
mod reaction;
mod record;
mod registry;
mod requests;
mod table;

pub use table::print_reports;

use super::trials::{Case, Need};

const NEEDS: &[Need] = &[Need::Root, Need::Kubelet];

/// All but those about a container runtime look at one recording, which the first of them makes.
pub fn cases() -> Vec<Case> {
    [objects::cases(), requests::cases(), outcomes::cases(), container_runtime::cases()].into_iter().flatten().collect()
}
