//! Turns "nobody there" and "acknowledged" into the record that an outage began and the one that it ended.
//!
//! ```text
//! Reached --no server--> Lost --20 s, or a condition changes--> Recorded --renewal acknowledged--> Reached
//!    ^                     |                                       ^
//!    '---- any answer -----'                                       '-- the journal of an earlier process ends so
//! ```
//!
//! What is shorter leaves no trace, and costs the disk nothing.

use std::time::Duration;

use super::records::Records;
use crate::journal::record::cut;
use crate::journal::{Happened, Moment, Record};
use crate::time::{Now, Up};

#[derive(Debug)]
pub(super) struct Outage {
    /// When a server was last reached; before that, when the process started.
    reached_at: Up,
    /// Since when none is found, and the machine word of the first failure; `None` while one is.
    lost: Option<(Up, String)>,
    /// The record of its beginning.
    recorded: Option<Record>,
}

/// An outage of this length is one.
const WORTH_RECORDING: Duration = Duration::from_secs(20);

impl Outage {
    /// An outage that an earlier process recorded and saw no end of goes on.
    pub(super) fn new(records: &Records, now: Up) -> Outage {
        let is_end = |record: &&Record| matches!(record.what, Happened::OutageEnded { .. });
        let is_either = |record: &&Record| is_end(record) || matches!(record.what, Happened::OutageBegan { .. });
        let last = records.waiting().filter(is_either).last();
        Outage { reached_at: now, lost: None, recorded: last.filter(|last| !is_end(last)).cloned() }
    }

    /// Since when no server is found.
    pub(super) fn lost_since(&self) -> Option<Up> {
        self.lost.as_ref().map(|(since, _)| *since)
    }

    /// The machine word of the first failure, while no server is found.
    pub(super) fn lost_by(&self) -> Option<&str> {
        self.lost.as_ref().map(|(_, word)| word.as_str())
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Something answered as an API server does; answers since when none was found.
    pub(super) fn reached(&mut self, now: Up) -> Option<Up> {
        // One whose answer lay there was reached when it was asked.
        self.reached_at = self.reached_at.max(now);
        self.lost.take().map(|(since, _)| since)
    }

    /// The server did what it was asked, whatever that was: an outage has not begun yet.
    pub(super) fn heard(&mut self, now: Up) {
        if self.lost.is_none() {
            self.reached_at = self.reached_at.max(now);
        }
    }

    /// A renewal, or while there is no Node its registration, found no server. Answers whether an outage is recorded.
    pub(super) fn lost(&mut self, word: &str, records: &mut Records, now: Now) -> bool {
        let (since, _) = self.lost.get_or_insert_with(|| (now.up, word.to_owned()));
        if now.up - *since >= WORTH_RECORDING {
            self.record(records, now);
        }
        self.is_recorded()
    }

    /// A condition is about to be recorded: what happens in an outage is told as such. Answers whether one is recorded.
    pub(super) fn changes(&mut self, records: &mut Records, now: Now) -> bool {
        if self.lost.is_some() {
            self.record(records, now);
        }
        self.is_recorded()
    }

    fn record(&mut self, records: &mut Records, now: Now) {
        let Some((_, word)) = self.lost.as_ref().filter(|_| self.recorded.is_none()) else { return };
        let at = now.earlier(self.reached_at);
        self.recorded = Some(records.record(at, Happened::OutageBegan { cause: cut(word) }));
    }

    /// A renewal was acknowledged, or without a Node the request for one answered. Answers the beginning of the outage
    /// that this ended, if that was recorded.
    pub(super) fn ended(&mut self, records: &mut Records, now: Now) -> Option<Moment> {
        let began = self.recorded.take()?;
        let Happened::OutageBegan { cause } = &began.what else { return None };
        let is_later = |at: &Record| at.at.boot == began.at.boot && at.at.up >= began.at.up;
        let (mut changes, mut dropped) = (0, 0);
        for record in records.waiting() {
            match record.what {
                Happened::ConditionChanged { .. } if record.sequence > began.sequence || is_later(record) => {
                    changes += 1
                }
                Happened::Dropped { count } => dropped += count,
                _ => {}
            }
        }
        records.record(now, Happened::OutageEnded { cause: cause.clone(), changes, dropped });
        Some(began.at)
    }
}
