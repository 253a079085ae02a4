//! What a Node is made from: the board as it is now, and what is remembered of it between two runs.

use super::condition::Wanted;
use super::object::ResourceList;
use super::rules::COUNT;
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

/// What the kubelet keeps in memory between runs; lost with the process on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Comma-joined (UPD-1).
    pub pod_cidrs: String,
    /// SCH-1.
    pub unschedulable: bool,
    /// MI-5: at most one `Rebooted` per process.
    pub reboot_reported: bool,
    /// The first size seen of the state directory's file system: ZFS and btrfs change theirs all the time, and each
    /// change would be a PATCH (CHG-4). The kubelet reads it once as well.
    pub ephemeral_storage_bytes: Option<u64>,
    /// The last that was known of each resource without which a Node is not Ready, from the board or from the server: a Node
    /// that somebody makes anew has none.
    pub sizes: ResourceList,
}
