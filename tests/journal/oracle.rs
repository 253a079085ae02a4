//! Turns what the disk acknowledged into what a restart must find.

use std::collections::{BTreeMap, BTreeSet};

use nodepulse::journal::{Happened, Journal, Record, Sequence};

/// What waits, by number.
pub type Story = BTreeMap<Sequence, Record>;

pub fn story(journal: &Journal) -> Story {
    journal.waiting().map(|record| (record.sequence, record.clone())).collect()
}

/// Fewer records than this have room in the smallest file, whatever they say.
const CROWD: usize = 90;

/// What the disk may say.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Acknowledged as synced.
    pub synced: Story,
    /// Written since, end unknown: any of them may be there, whole or in part.
    pub maybe: Vec<Story>,
}

impl Oracle {
    /// The write that is in flight will make the disk say this.
    pub fn begins(&mut self, story: Story) {
        self.maybe.push(story);
    }

    pub fn ends(&mut self, done: bool) {
        if done {
            self.synced = self.maybe.pop().unwrap_or_default();
            self.maybe.clear();
        }
    }

    /// What a restart finds is right, or what is wrong with it.
    pub fn judge(&self, found: &Story) -> Result<(), String> {
        let is_said = |record: &Record| matches!(record.what, Happened::Dropped { .. });
        if let Some(record) = found.values().find(|record| !is_said(record) && !self.is_known(record)) {
            return Err(format!("forgotten or never written, and it is back: {record:?}"));
        }
        if self.is_crowded() {
            return Ok(());
        }
        if let Some(record) = found.values().find(|record| !self.is_known(record)) {
            return Err(format!("never said so: {record:?}"));
        }
        for (sequence, record) in &self.synced {
            let is_forgotten = self.maybe.iter().any(|story| !story.contains_key(sequence));
            if !found.contains_key(sequence) && !is_forgotten {
                return Err(format!("{sequence:?} was synced and is lost: {record:?}"));
            }
        }
        self.counts(found)
    }

    /// Half a write may leave more records than there is room for: new ones without what made room for them.
    fn is_crowded(&self) -> bool {
        let stories = self.maybe.iter().chain([&self.synced]);
        let all: BTreeSet<&Sequence> = stories.flat_map(|story| story.keys()).collect();
        all.len() > CROWD
    }

    fn is_known(&self, record: &Record) -> bool {
        let says_so = |story: &Story| story.get(&record.sequence) == Some(record);
        says_so(&self.synced) || self.maybe.iter().any(says_so)
    }

    /// What one write forgets and what it says was dropped instead stand or fall together.
    fn counts(&self, found: &Story) -> Result<(), String> {
        let gone: Vec<&Sequence> = self.synced.keys().filter(|sequence| !found.contains_key(sequence)).collect();
        let is_said = |record: &&Record| matches!(record.what, Happened::Dropped { .. });
        let explains = |story: &Story| {
            let is_all_said = story.values().filter(is_said).all(|said| found.get(&said.sequence) == Some(said));
            is_all_said && gone.iter().all(|sequence| !story.contains_key(sequence))
        };
        if gone.is_empty() || self.maybe.iter().any(explains) {
            return Ok(());
        }
        Err(format!("gone, and not said to be dropped: {gone:?}"))
    }
}
