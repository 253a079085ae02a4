//! Turns a test that this machine cannot run into a line that somebody reads. `tests/run` counts these lines at its end,
//! and fails for one where `CI` is set.

use std::fs::File;
use std::io::Write;

/// Where `tests/run` collects them.
const FILE: &str = "TESTS_LEFT_OUT";

/// Said once for each test, or for a few at once that have the same reason.
pub fn leave_out(tests: &str, why: &str) {
    // Past the capture of the test harness.
    let _ = writeln!(std::io::stderr(), "left out: {tests}: {why}");
    if let Some(path) = std::env::var_os(FILE) {
        let file = File::options().append(true).open(&path);
        file.and_then(|mut file| writeln!(file, "{tests}: {why}")).unwrap_or_else(|e| panic!("{FILE}={path:?}: {e}"));
    }
}
