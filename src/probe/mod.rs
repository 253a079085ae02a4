//! Turns the files below a root into facts, each present or absent with a reason.
//!
//! ```text
//! Root -> text -> machine  (once)         identity, cpu, memory, hugepages, os_release
//!              -> readings (each run)     memory, pids, health
//!              -> network  (on change)    routes, addresses
//! ```

mod addresses;
mod architecture;
mod attribute;
mod cloud;
mod container_runtime;
mod cpu;
pub mod facts;
mod features;
mod file_systems;
mod health;
mod identity;
mod kernel_log;
mod mac;
mod machine;
mod memory;
mod mounts;
mod network;
mod os_release;
mod pids;
mod power;
mod readings;
pub mod report;
mod reset;
mod resources;
mod root;
mod routes;
mod sources;
mod thermal;
mod uplink;
mod wear;

pub use cloud::complete as complete_by_cloud;
pub use facts::{
    Absent, ContainerImage, ContainerRuntime, Fact, Facts, Features, FileSystem, HandlerFeatures, Health, KernelPlaces,
    KernelTrouble, Machine, Network, Readings, RuntimeFeatures, RuntimeHandler, Why,
};
pub use features::{FeatureFiles, NFD as NFD_PREFIX, as_label, whole_key};
pub use health::HealthFiles;
pub use kernel_log::{KernelLogFiles, TASK_HUNG, kernel_reason};
pub use machine::machine;
pub use network::{network, within_limit};
pub use readings::{Asked, ReadingFiles, StateDisk, image_file_system, readings, state_disk};
pub use reset::{LastReset, last_reset};
pub use root::Root;

use crate::config::Settings;
use crate::time::Wall;

/// Everything the Node is made from, read now. Paths of the settings are below `root`, as the agent itself would name them.
/// `wall`: what an owner says of a board may expire.
pub fn facts(root: &Root, settings: &Settings, wall: Option<Wall>) -> Facts {
    let mut machine = machine(root);
    machine.features = settings.feature_labels.then(|| FeatureFiles::new(root, &machine).read(true, wall));
    Facts { machine, readings: readings(root, settings), network: network(root) }
}

/// What a person should know of the facts although they are what the files say, one sentence each.
pub fn remarks(root: &Root) -> Vec<String> {
    let mountinfo = root.read_namespace_table("mountinfo").unwrap_or_default();
    let replaced = mounts::of_lxcfs(&mountinfo);
    if replaced.is_empty() {
        return Vec::new();
    }
    vec![format!("lxcfs answers for {}: that is the container's share, not the machine's", replaced.join(", "))]
}
