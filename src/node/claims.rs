//! Turns two Nodes into whether they differ in what a board has put there under names of its owner's choice, and lets that wait.
//!
//! Extended resources and labels, and the annotations that name them, change only together, in a report that names the version
//! it was made of: taken late, by a server that hung, one without would leave there what nobody takes away any more.

use super::extended::{self, EXTENDED_RESOURCES};
use super::feature_labels::{self, BOARD_MODEL, FEATURE_LABELS};
use super::object::Node;
use crate::config::text_map::TextMap;

const ANNOTATIONS: [&str; 3] = [EXTENDED_RESOURCES, FEATURE_LABELS, BOARD_MODEL];

/// Whether they differ in what is claimed, or in its values.
pub fn differ(base: &Node, wanted: &Node) -> bool {
    let is_other = |list: fn(&Node) -> &TextMap<String>, name: &str| list(base).get(name) != list(wanted).get(name);
    ANNOTATIONS.iter().any(|name| is_other(|node| &node.metadata.annotations, name))
        || extended::claimed(wanted)
            .any(|name| is_other(|node| &node.status.capacity, name) || is_other(|node| &node.status.allocatable, name))
        || feature_labels::claimed(wanted).any(|name| is_other(|node| &node.metadata.labels, &name))
}

/// Leaves all that as it was, for the next report to change.
pub fn keep(base: &Node, wanted: &mut Node) {
    let resources: Vec<String> = extended::claimed(base).chain(extended::claimed(wanted)).map(str::to_owned).collect();
    let labels: Vec<String> = feature_labels::claimed(base).chain(feature_labels::claimed(wanted)).collect();
    let annotations = ANNOTATIONS.map(str::to_owned);
    let (Node { metadata, status, .. }, theirs, counts) = (wanted, &base.metadata, &base.status);
    let lists: [(_, _, &[String]); 4] = [
        (&counts.capacity, &mut status.capacity, &resources),
        (&counts.allocatable, &mut status.allocatable, &resources),
        (&theirs.labels, &mut metadata.labels, &labels),
        (&theirs.annotations, &mut metadata.annotations, &annotations),
    ];
    for (before, after, names) in lists {
        for name in names {
            after.remove(name);
            after.extend(before.get(name).map(|value| (name.clone(), value.clone())));
        }
    }
}
