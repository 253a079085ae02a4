//! Turns a test that this machine cannot run into a line that somebody reads. `tests/run` counts these lines at its end,
//! and where `CI` is set it fails for one, but for what CI cannot have.

// Every user takes a part of it.
#![allow(dead_code)]

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

/// The same of what needs a machine of somebody else's, which `needs` names: counted everywhere, and no failure anywhere.
pub fn leave_to_others(tests: &str, needs: &str) {
    leave_out(tests, &format!("{needs} (optional)"));
}
