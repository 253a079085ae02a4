//! Turns facts, settings and the time into the Node we want, and into the patches that lead the Node they have there.

mod address;
pub mod board;
pub mod bounded;
mod capacity;
pub mod claims;
pub mod condition;
pub mod csi_node;
pub mod desired;
mod error;
pub mod event;
pub mod extended;
pub mod feature_labels;
mod health;
pub mod identity;
mod judgement;
pub mod lease;
pub mod leaving;
pub mod name;
pub mod object;
pub mod patch;
pub mod pressure;
mod reconcile;
mod remembered;
pub mod report;
pub mod rules;
#[cfg(test)]
pub(crate) mod tests;
pub mod version;

pub use board::{Board, Update};
pub use desired::{initial, updated};
pub use error::NodeError;
pub use event::{Event, NodeEvent};
pub use judgement::Judgement;
pub use leaving::Leaving;
pub use name::{NodeName, node_name};
pub use object::{Lease, Node};
pub use pressure::Pressures;
pub use remembered::Remembered;
pub use rules::Held;
pub use version::kubelet_version;
