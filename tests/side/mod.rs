//! Turns what the API server saw of a real kubelet and of nodepulse beside it into one table of differences, each with
//! its reason: a difference that nobody explains fails, and so does a reason that explains nothing any more.

// The linter keeps sleeps out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

mod differences;
mod objects;
mod outcomes;
mod plain;
mod reaction;
mod record;
mod requests;
mod table;

pub use table::print_reports;

use super::trials::{Case, Need};

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($($module:ident::$run:ident),+ $(,)?) => {
        vec![$(Case { name: stringify!($run), needs: &[Need::Root, Need::Kubelet], run: $module::$run }),+]
    };
}

/// They all look at one recording, which the first of them makes.
pub fn cases() -> Vec<Case> {
    cases![
        objects::every_field_of_the_node_is_the_kubelets,
        objects::what_nobody_explains_fails_and_so_does_a_stale_reason,
        objects::what_keeps_pods_away_is_all_that_podless_changes,
        objects::conditions_are_in_the_kubelets_order,
        objects::the_lease_is_the_kubelets,
        objects::the_first_events_are_the_kubelets,
        requests::the_first_requests_are_the_kubelets,
        outcomes::a_restart_reconciles_the_same_and_leaves_the_rest_alone,
        outcomes::a_deleted_lease_is_created_again_with_its_owner,
        outcomes::a_wiped_os_label_is_restored_and_the_hostname_is_not,
        outcomes::conditions_forced_to_unknown_are_repaired,
        outcomes::only_ready_gets_its_words_back,
        outcomes::an_overwritten_status_is_the_machines_again,
        outcomes::foreign_resources_and_conditions_are_kept,
        outcomes::a_cordon_is_told_and_so_is_its_end,
        outcomes::a_deleted_node_is_where_we_part,
    ]
}
