//! What is remembered of a board and its Node from one status run to the next.

use super::object::ResourceList;

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
    /// change would be a PATCH (CHG-4). The kubelet reads it once as well. Whoever looks at the board fills it in.
    pub disk_bytes: Option<u64>,
    /// The last that was known of each resource without which a Node is not Ready, and of each extended one of the settings, from the
    /// board or from the server: a Node that somebody makes anew has none.
    pub sizes: ResourceList,
}
