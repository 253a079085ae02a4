//! Turns a settings file, a kubeconfig and command-line flags into checked settings, or every problem at once.

pub mod absence;
mod alpn;
pub mod budget;
mod conditions;
mod duration;
mod eviction;
mod field;
pub mod join;
mod join_values;
pub mod kubeconfig;
mod kubelet_fields;
pub mod labels;
pub mod limits;
mod load;
mod nearest;
mod node_values;
pub mod plain_text;
mod problem;
mod profile;
pub mod quantity;
mod resources;
pub mod settings;
pub mod taint;
pub mod text_map;
mod values;
mod yaml;

pub use load::{Loaded, settings};
pub use nearest::unknown;
pub use problem::Problem;
pub use settings::Settings;
