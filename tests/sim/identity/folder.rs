//! Turns the steps of a change to the identity's files into what a folder holds after them, or after a power cut between two.
//!
//! What was synced stays. Of a file that was not, any beginning is there, or zeros; of the changes of names since the folder was
//! synced, each is there or is not, in their order.

use std::collections::BTreeMap;

use nodepulse::identity::files::FileStep;

use super::super::random::Random;

/// A file, whatever it is called.
#[derive(Debug, Clone)]
struct Content {
    bytes: Vec<u8>,
    is_synced: bool,
}

/// A change of names that is not synced.
#[derive(Debug, Clone)]
enum Change {
    Named(String, usize),
    Gone(String),
    Moved(String, String, usize),
}

/// What befalls a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    /// The disk is full, or takes no writes.
    Refused,
    /// Before the step of this number.
    PowerCut(usize),
}

#[derive(Debug, Clone, Default)]
pub struct Folder {
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    changes: Vec<Change>,
    /// Full, or read-only.
    pub refuses: bool,
}

impl Folder {
    /// `cut`: the power goes before this step.
    pub fn change(&mut self, steps: &[FileStep], name: &str, bytes: &[u8], cut: Option<usize>) -> End {
        for (number, step) in steps.iter().enumerate() {
            if cut == Some(number) {
                return End::PowerCut(number);
            }
            if !self.step(step, name, bytes) {
                return End::Refused;
            }
        }
        End::Done
    }

    fn step(&mut self, step: &FileStep, name: &str, bytes: &[u8]) -> bool {
        let path = |suffix: &str| format!("{name}{suffix}");
        if self.refuses && !matches!(step, FileStep::Sync(_) | FileStep::SyncFolder) {
            return false;
        }
        match *step {
            FileStep::Remove(suffix) => self.apply(Change::Gone(path(suffix))),
            FileStep::Write(suffix) => {
                self.contents.push(Content { bytes: bytes.to_vec(), is_synced: false });
                self.apply(Change::Named(path(suffix), self.contents.len() - 1));
            }
            FileStep::Sync(suffix) => {
                let Some(file) = self.names.get(&path(suffix)) else { return false };
                self.contents[*file].is_synced = true;
            }
            FileStep::Rename(suffix) => {
                let Some(file) = self.names.get(&path(suffix)) else { return false };
                self.apply(Change::Moved(path(suffix), path(""), *file));
            }
            FileStep::Link(suffix) => {
                let Some(file) = self.names.get(name) else { return false };
                self.apply(Change::Named(path(suffix), *file));
            }
            FileStep::SyncFolder => {
                self.synced_names.clone_from(&self.names);
                self.changes.clear();
            }
        }
        true
    }

    fn apply(&mut self, change: Change) {
        take(&mut self.names, &change);
        self.changes.push(change);
    }

    pub fn read(&self, name: &str) -> Option<&[u8]> {
        self.names.get(name).map(|file| self.contents[*file].bytes.as_slice())
    }

    /// The same if it is there whatever happens to the power.
    pub fn read_synced(&self, name: &str) -> Option<&[u8]> {
        let concerns = |change: &Change| match change {
            Change::Named(other, _) | Change::Gone(other) => other == name,
            Change::Moved(from, to, _) => from == name || to == name,
        };
        let file = self.synced_names.get(name).filter(|_| !self.changes.iter().any(concerns))?;
        let content = &self.contents[*file];
        content.is_synced.then_some(content.bytes.as_slice())
    }

    /// What was not synced is there, or is not.
    pub fn lose_power(&mut self, random: &mut Random) {
        for change in std::mem::take(&mut self.changes) {
            if random.per_mille(500) {
                take(&mut self.synced_names, &change);
            }
        }
        self.names.clone_from(&self.synced_names);
        for content in self.contents.iter_mut().filter(|content| !content.is_synced) {
            let length = content.bytes.len();
            match random.below(4) {
                0 => content.bytes.clear(),
                1 => content.bytes.truncate(random.below(length as u64 + 1) as usize),
                2 => content.bytes = vec![0; length],
                _ => {}
            }
            content.is_synced = true;
        }
    }
}

fn take(names: &mut BTreeMap<String, usize>, change: &Change) {
    match change {
        Change::Named(name, file) => drop(names.insert(name.clone(), *file)),
        Change::Gone(name) => drop(names.remove(name)),
        Change::Moved(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
    }
}
