//! Turns any text into a kubeconfig or one sentence.

use super::text;
use nodepulse::config::kubeconfig::Kubeconfig;

/// `bytes` stand for a kubeconfig file.
pub fn check(bytes: &[u8]) {
    match Kubeconfig::parse(text::of(bytes), "/etc/nodepulse/kubeconfig") {
        Ok(kubeconfig) => assert!(!kubeconfig.server.authority().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
