//! What a Node is made from: the board as it is now.

use super::rules::{COUNT, Wanted};
use crate::config::Settings;
use crate::probe::Facts;
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
