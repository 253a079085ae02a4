//! What a Node is made from, the board as it is now, and what came of it.

use super::condition::Written;
use super::error::NodeError;
use super::event::NodeEvent;
use super::object::Node;
use super::rules::{COUNT, Wanted};
use crate::config::Settings;
use crate::probe::{Fact, Facts};
use crate::time::Wall;

/// Everything one status run is made from.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    pub settings: &'a Settings,
    pub facts: &'a Facts,
    /// The Node's name (`node::name`).
    pub name: &'a str,
    /// `nodeInfo.kubeletVersion` (`node::version`).
    pub kubelet_version: &'a str,
    /// What is to stand there of each condition of ours.
    pub conditions: &'a [Wanted; COUNT],
    /// The time of this run: heartbeats and transitions carry it.
    pub stamp: Wall,
}

/// The outcome of one status run.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub node: Node,
    /// Whether this must be sent now (SYN-5), or can wait for the next report.
    pub changed: bool,
    /// What that did to each condition of ours.
    pub conditions: [Written; COUNT],
    /// Those about conditions are the caller's to make.
    pub events: Vec<NodeEvent>,
    pub problems: Vec<NodeError>,
}

impl Update {
    /// Before anything was done to `node`.
    pub(super) fn of(node: Node) -> Update {
        Update { node, changed: true, conditions: [Written::Same; COUNT], events: Vec::new(), problems: Vec::new() }
    }

    /// The value of a fact; one that is absent is a problem of this field of the Node.
    pub(super) fn known<'a, T>(&mut self, fact: &'a Fact<T>, field: &str) -> Option<&'a T> {
        fact.as_ref().map_err(|absent| self.problems.push(NodeError::no_fact(field, absent))).ok()
    }
}
