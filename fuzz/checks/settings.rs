//! Turns any text into settings or problems: what is accepted is printed, read again, and the same.

use super::text;
use nodepulse::config::{self, limits};

const HEAD: &str = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n";
const PATH: &str = "/etc/nodepulse/config.yaml";

/// `bytes` stand for a settings file, with and without its first two lines.
pub fn check(bytes: &[u8]) {
    let text = text::of(bytes);
    for text in [text.to_owned(), format!("{HEAD}{text}")] {
        match config::settings(Some((PATH, &text)), &[]) {
            Ok(loaded) => {
                let printed = config::to_yaml(&loaded.settings);
                let again = config::settings(Some((PATH, &printed)), &[]);
                assert_eq!(again.map(|again| again.settings), Ok(loaded.settings), "{printed}");
            }
            Err(problems) => assert!(!problems.is_empty() && problems.len() <= limits::PROBLEMS + 1),
        }
    }
}
