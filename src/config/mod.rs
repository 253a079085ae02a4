//! Turns a settings file, a kubeconfig and command-line flags into checked settings, or every problem at once.

pub mod kubeconfig;
pub mod labels;
pub mod limits;
pub mod quantity;
pub mod settings;
pub mod taint;

pub use settings::Settings;
