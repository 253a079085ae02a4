//! Turns any text into settings within their limits, or problems.

use super::text;
use nodepulse::config::{self, limits};

const HEAD: &str = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n";
const PATH: &str = "/etc/nodepulse/config.yaml";

/// `bytes` stand for a settings file, with and without its first two lines.
pub fn check(bytes: &[u8]) {
    let text = text::of(bytes);
    for text in [text.to_owned(), format!("{HEAD}{text}")] {
        match config::settings(Some((PATH, &text)), &[]) {
            Ok(config::Loaded { settings, notices }) => {
                assert!(settings.node_labels.len() <= limits::NODE_LABELS);
                assert!(settings.register_with_taints.len() <= limits::TAINTS);
                assert!(settings.extra_addresses.len() <= limits::NODE_ADDRESSES);
                assert!(settings.lease_renew_period().as_millis() >= 250);
                assert!(settings.node_status_update_frequency.as_secs() >= 1);
                assert!(
                    (limits::JOURNAL_LEAST_BYTES..=limits::JOURNAL_MOST_BYTES).contains(&settings.journal_quota_bytes)
                );
                assert!(settings.state_directory.starts_with('/') && settings.verbosity <= 10);
                assert!(notices.len() <= limits::PROBLEMS + 2);
            }
            Err(problems) => {
                assert!(!problems.is_empty() && problems.len() <= limits::PROBLEMS);
                assert!(problems.iter().all(|problem| !problem.text.is_empty()));
            }
        }
    }
}
