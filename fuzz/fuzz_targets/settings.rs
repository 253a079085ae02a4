//! Turns any text into settings or problems: what is accepted is printed, read again, and the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nodepulse::config::{self, limits};

const HEAD: &str = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n";

fuzz_target!(|text: &str| {
    for text in [text.to_owned(), format!("{HEAD}{text}")] {
        match config::settings(Some(("/etc/nodepulse/config.yaml", &text)), &[]) {
            Ok(loaded) => {
                let printed = config::to_yaml(&loaded.settings);
                let again = config::settings(Some(("/etc/nodepulse/config.yaml", &printed)), &[]);
                assert_eq!(again.map(|again| again.settings), Ok(loaded.settings), "{printed}");
            }
            Err(problems) => assert!(!problems.is_empty() && problems.len() <= limits::PROBLEMS + 1),
        }
    }
});
