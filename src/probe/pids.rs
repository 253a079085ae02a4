//! Turns `/proc/loadavg` into the number of threads in use (SRC-10).
//!
//! ```text
//! 0.31 0.18 0.12 1/143 2817
//! ```

use super::attribute::{count, shortened};
use super::facts::Why;

/// Threads, not processes: the number after `/` in the fourth field. The fifth field is the last process id.
pub(super) fn threads_in_use(loadavg: &str) -> Result<u64, Why> {
    let threads = loadavg.split_ascii_whitespace().nth(3).and_then(|field| field.split_once('/'));
    match threads {
        Some((_, threads)) => count(threads),
        None => Err(Why::Malformed(format!("no running/threads field in {:?}", shortened(loadavg)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_after_the_slash() {
        assert_eq!(threads_in_use("0.31 0.18 0.12 1/143 2817\n"), Ok(143));
    }

    #[test]
    fn a_cut_line_has_no_threads() {
        for cut in ["", "0.31 0.18 0.12", "0.31 0.18 0.12 1", "0.31 0.18 0.12 1/", "0.31 0.18 0.12 1/x 3"] {
            assert_eq!(threads_in_use(cut).unwrap_err().word(), "malformed", "{cut:?}");
        }
    }
}
