//! Turns changes to the identity's files that a disk does not take (full, read-only, broken) into those that it still has to take,
//! and when it is asked again.

use std::time::Duration;

use zeroize::Zeroizing;

use super::files::{FORGET, FileStep, NODE, REPLACE, SET_ASIDE};
use crate::time::Up;

/// A file's name, and what it is to hold; `None`: it is to be gone.
pub type Change = (&'static str, Option<Zeroizing<String>>);

/// Changes that the disk has not taken, in their order.
#[derive(Default)]
pub struct Unwritten {
    changes: Vec<Change>,
    /// In a row.
    failures: u32,
    due_at: Up,
}

/// After a write that failed: ten seconds, then twice as long each time, up to ten minutes, as the journal's.
const RETRY_FIRST: Duration = Duration::from_secs(10);
const RETRY_LAST: Duration = Duration::from_secs(600);

impl Unwritten {
    /// What else was to become of the same file, and has not, is no matter any more.
    pub fn add(&mut self, change: Change) {
        self.changes.retain(|(name, _)| *name != change.0);
        self.changes.push(change);
    }

    /// Those to be tried.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether that file is still to hold something else than it does.
    pub fn has(&self, name: &str) -> bool {
        self.changes.iter().any(|(waiting, _)| *waiting == name)
    }

    /// When the disk is asked again.
    pub fn due_at(&self) -> Option<Up> {
        (!self.changes.is_empty()).then_some(self.due_at)
    }

    /// All of them were tried; `refused` are names of those that the disk did not take. Answers what is news: `false`, that it does
    /// not take all, or `true`, that it has by now.
    pub fn tried(&mut self, refused: &[&str], now: Up) -> Option<bool> {
        self.changes.retain(|(name, _)| refused.contains(name));
        let (had_failed, is_done) = (self.failures > 0, self.changes.is_empty());
        if is_done {
            self.failures = 0;
        } else if !had_failed || now >= self.due_at {
            self.due_at = now + RETRY_FIRST.saturating_mul(1 << self.failures.min(6)).min(RETRY_LAST);
            self.failures = self.failures.saturating_add(1);
        }
        (had_failed == is_done).then_some(is_done)
    }
}

/// Whether some steps were taken of a file, of which it is to hold these bytes.
pub type Perform<'p> = dyn FnMut(&str, &[FileStep], &[u8]) -> bool + 'p;

/// Makes each of these changes, whatever becomes of the others; answers the names of those that were refused. But what is to be gone
/// goes only when all before it is there: it may be the last copy of a key.
pub fn perform_all(changes: &[Change], perform: &mut Perform<'_>) -> Vec<&'static str> {
    let mut refused = Vec::new();
    for (name, text) in changes {
        let is_done = match text {
            Some(text) => {
                if *name == NODE {
                    // Not every file system has second names.
                    perform(name, &SET_ASIDE, &[]);
                }
                perform(name, &REPLACE, text.as_bytes())
            }
            None => refused.is_empty() && perform(name, &FORGET, &[]),
        };
        if !is_done {
            refused.push(*name);
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::super::files::PENDING;
    use super::*;

    fn at(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    fn change(name: &'static str, text: &str) -> Change {
        (name, Some(Zeroizing::new(text.to_owned())))
    }

    #[test]
    fn a_disk_that_refuses_is_asked_again_ever_more_rarely_and_said_once_and_so_is_that_it_has_taken_all() {
        let mut unwritten = Unwritten::default();
        assert_eq!((unwritten.due_at(), unwritten.tried(&[], at(0))), (None, None), "nothing was wrong");
        unwritten.add(change("a", "1"));
        unwritten.add(change("b", "1"));
        assert_eq!(unwritten.tried(&["a", "b"], at(0)), Some(false));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let due = unwritten.due_at().unwrap();
            assert_eq!(unwritten.tried(&["a", "b"], due), None);
            pauses.push((unwritten.due_at().unwrap() - due).as_secs());
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 600, 600, 600, 600]);
        unwritten.add(change("a", "2"));
        let due = unwritten.due_at();
        assert_eq!(
            (unwritten.tried(&["a", "b"], at(0)), unwritten.due_at()),
            (None, due),
            "one more to write is no reason"
        );
        assert_eq!(
            unwritten.changes(),
            [change("b", "1"), change("a", "2")],
            "what it was to hold before is no matter"
        );
        assert_eq!(unwritten.tried(&["a"], at(9999)), None, "not all");
        assert!(unwritten.has("a") && !unwritten.has("b"));
        assert_eq!((unwritten.tried(&[], at(9999)), unwritten.due_at()), (Some(true), None));
        unwritten.add(change("a", "3"));
        assert_eq!(unwritten.tried(&["a"], at(0)), Some(false), "it is news again");
    }

    #[test]
    fn a_key_is_gone_only_when_its_certificate_is_there() {
        let changes = [change("kubeconfig", "k"), change(NODE, "n"), (PENDING, None)];
        for (full, refused, steps) in [
            ("", &[][..], &["kubeconfig 5", "node.pem 3", "node.pem 5", "pending.pem 2"][..]),
            (NODE, &[NODE, PENDING], &["kubeconfig 5", "node.pem 3", "node.pem 5"]),
            ("kubeconfig", &["kubeconfig", PENDING], &["kubeconfig 5", "node.pem 3", "node.pem 5"]),
        ] {
            let mut seen = Vec::new();
            let found = perform_all(&changes, &mut |name, steps, _| {
                seen.push(format!("{name} {}", steps.len()));
                name != full
            });
            assert_eq!(
                (&found[..], &seen[..]),
                (refused, &steps.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..])
            );
        }
    }

    /// The power may go after the rename, and take with it what no step has synced.
    #[test]
    fn the_identity_before_has_its_other_name_on_the_disk_before_node_pem_is_replaced() {
        let mut all = Vec::new();
        perform_all(&[change(NODE, "n")], &mut |_, steps, _| {
            all.extend_from_slice(steps);
            true
        });
        let place = |wanted| all.iter().position(|step| *step == wanted).unwrap();
        let between = &all[place(FileStep::Link(".old"))..place(FileStep::Rename(".new"))];
        assert!(between.contains(&FileStep::SyncFolder), "{all:?}");
    }
}
