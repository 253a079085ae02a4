//! Turns what the disk holds and what the server answers into "as it should be", or which record was forgotten, told too
//! early, out of order or not at all.
//!
//! It reads the disk as the next process would, and the wire; of the agent it knows only how it names an event.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use nodepulse::api::{Answer, Operation, Refusal};
use nodepulse::journal::{BootId, Happened, Journal, Record, Status};
use nodepulse::node::event::{digest, event_name};
use nodepulse::node::report::LAST_OUTAGE;
use nodepulse::node::rules;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::long::is_change_of;
use super::truth::KINDS;
use super::world::NODE;

/// What waited in an outage is told at most this often.
const REPLAY_SPACING_US: u64 = 1_000_000;

type Checked = Result<(), String>;

/// Everything that was ever on disk.
#[derive(Debug, Default)]
pub struct Ledger {
    known: BTreeMap<u64, Known>,
    numbers: BTreeMap<String, u64>,
    /// What a process that starts would find waiting.
    on_disk: BTreeSet<u64>,
    /// Those of which the agent heard that the server has what tells of them, or will never take it.
    settled: BTreeSet<u64>,
    /// The same by name, while there was no record.
    settled_early: BTreeSet<String>,
    /// What settled repeats said while the disk had failed.
    repeats_early: Vec<String>,
    /// When an event of this name was first sent.
    sent: BTreeMap<String, Sent>,
    in_flight: Option<Telling>,
    last_replay_us: Option<u64>,
    /// Statuses of conditions that this process has told.
    told: BTreeMap<String, String>,
    /// The name of the event, where the end of an outage was told last without a record, as the disk had failed.
    end_from_memory: Option<String>,
    /// When an outage was last summed up.
    pub summary: Option<Sent>,
    /// A planted fault: what was dropped is not recorded.
    hides_drops: bool,
}

/// A record that is or was on disk.
#[derive(Debug, Clone)]
pub struct Known {
    pub record: Record,
    pub synced_us: u64,
    /// Gone from the disk though nobody accepted it.
    is_unaccounted: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub sent_us: u64,
    /// Before anything was on disk, but that was the disk's fault.
    pub is_excused: bool,
}

/// What an event on its way tells.
#[derive(Debug)]
enum Telling {
    Record(u64),
    /// Of something that has no record, yet: its name, and what it says if it repeats an earlier event and the disk failed.
    Event(String, Option<String>),
}

/// What an event says, as far as it is looked at: every request is, and a tree of all of it would cost more than the rest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventBody<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    count: u64,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

/// The same of a report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusBody<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    status: Conditions<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    annotations: BTreeMap<String, Option<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions<'a> {
    #[serde(borrow)]
    conditions: Vec<Told<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
}

impl Ledger {
    pub fn new(hides_drops: bool) -> Ledger {
        Ledger { hides_drops, ..Ledger::default() }
    }

    /// The disk as it is now; `has_failed`: what is on it may be older than what was told.
    pub fn observe(&mut self, bytes: &[u8], quota_bytes: usize, now_us: u64) -> Checked {
        if bytes.len() > quota_bytes {
            return Err(format!("the journal has {} bytes, its quota are {quota_bytes}", bytes.len()));
        }
        let (journal, _) = Journal::recover(bytes, quota_bytes, BootId(0));
        let newest = self.known.last_key_value().map(|(number, _)| *number);
        let mut on_disk = BTreeSet::new();
        for record in journal.waiting() {
            on_disk.insert(record.sequence.0);
            self.record(record, newest, now_us)?;
        }
        for number in self.on_disk.difference(&on_disk) {
            let Some(known) = self.known.get_mut(number) else { continue };
            known.is_unaccounted = is_told(&known.record) && !self.settled.contains(number);
        }
        self.on_disk = on_disk;
        let lost: Vec<&Record> =
            self.known.values().filter(|known| known.is_unaccounted).map(|known| &known.record).collect();
        let (lost_count, dropped) = (self.losses(), self.dropped());
        match lost.last() {
            Some(last) if lost_count > dropped => Err(format!(
                "{lost_count} records are forgotten that the server never accepted, {dropped} are counted as dropped; the last is {last:?}"
            )),
            _ => Ok(()),
        }
    }

    fn record(&mut self, record: &Record, newest: Option<u64>, now_us: u64) -> Checked {
        let number = record.sequence.0;
        if let Some(known) = self.known.get_mut(&number) {
            let may_grow = matches!(known.record.what, Happened::Dropped { .. });
            if known.record != *record && !may_grow {
                return Err(format!("number {number} is used twice: {:?}, then {record:?}", known.record));
            }
            if known.is_unaccounted || !self.on_disk.contains(&number) {
                return Err(format!("record {number} was forgotten and is back: {record:?}"));
            }
            known.record = record.clone();
            return Ok(());
        }
        if let Some(newest) = newest.filter(|newest| number <= *newest) {
            return Err(format!("the numbering falls back: {number} after {newest}: {record:?}"));
        }
        let boot = record.at.boot.0.to_be_bytes();
        let name = event_name(NODE, digest(&[boot.as_slice(), number.to_be_bytes().as_slice()].concat()));
        self.known.insert(number, Known { record: record.clone(), synced_us: now_us, is_unaccounted: false });
        let message = message_of(record).unwrap_or_default();
        let repeat = self.repeats_early.iter().position(|repeat| !message.is_empty() && repeat.ends_with(&message));
        if let Some(repeat) = repeat {
            self.repeats_early.remove(repeat);
        }
        if repeat.is_some() || self.settled_early.contains(&name) {
            self.settled.insert(number);
        }
        let early = self.sent.get(&name).copied();
        self.numbers.insert(name, number);
        match early {
            Some(Sent { sent_us, is_excused: false }) => Err(format!(
                "record {number} was told at {:.3} s, before it was synced: {:?}",
                sent_us as f64 / 1e6,
                record.what
            )),
            _ => Ok(()),
        }
    }

    /// An event is sent. `is_excused`: the disk has failed, so that nothing waits for it.
    pub fn tells(&mut self, operation: &Operation, is_excused: bool, now_us: u64) -> Checked {
        let (Operation::CreateEvent { body } | Operation::PatchEvent { body, .. }) = operation else { return Ok(()) };
        let body: EventBody = read(body)?;
        let name = match operation {
            Operation::PatchEvent { name, .. } => name.clone(),
            _ => body.metadata.name.into_owned(),
        };
        // One that counts more than one sighting has the name of the first.
        let repeats = body.count != 1;
        let message = Some(&*body.message).filter(|_| repeats);
        let number = match message {
            Some(message) => self.repeated(message),
            None => self.numbers.get(&name).copied(),
        };
        self.sent.entry(name.clone()).or_insert(Sent { sent_us: now_us, is_excused });
        if body.reason == "UplinkRestored" {
            self.end_from_memory = (number.is_none() && is_excused).then(|| name.clone());
        }
        self.in_flight = Some(
            number.map_or(Telling::Event(name, message.filter(|_| is_excused).map(str::to_owned)), Telling::Record),
        );
        let Some(number) = number else { return Ok(()) };
        if let Some(first) = self.on_disk.range(..number).find(|number| self.waits(**number))
            && !is_excused
        {
            let first = &self.known[first].record;
            return Err(format!("record {number} is told out of order, before this one: {first:?}"));
        }
        if repeats {
            // It may as well tell of something that has no record and says the same.
            return Ok(());
        }
        let is_end = |number: &u64| matches!(self.known[number].record.what, Happened::OutageEnded { .. });
        if !self.on_disk.range(number..).any(is_end) {
            return Ok(());
        }
        match self.last_replay_us.replace(now_us) {
            Some(last_us) if now_us < last_us + REPLAY_SPACING_US => {
                Err(format!("record {number} is told {} ms after another one of the outage", (now_us - last_us) / 1000))
            }
            _ => Ok(()),
        }
    }

    /// The first record that waits, if an event with this message may tell of it.
    fn repeated(&self, message: &str) -> Option<u64> {
        let first = self.on_disk.iter().copied().find(|number| self.waits(*number))?;
        let expected = message_of(&self.known[&first].record)?;
        message.ends_with(&expected).then_some(first)
    }

    /// A planted fault: instead of the first record that waits, the one that is first by the clock on the wall is told.
    pub fn by_wall_clock(&self, operation: Operation) -> Operation {
        let Operation::CreateEvent { body } = &operation else { return operation };
        let waiting = self.on_disk.iter().filter(|number| self.waits(**number));
        let first = waiting.min_by_key(|number| (self.known[number].record.at.wall, **number));
        let mut body: Value = serde_json::from_str(body).unwrap_or_default();
        let is_record = body["metadata"]["name"].as_str().is_some_and(|name| self.numbers.contains_key(name));
        let name = first.and_then(|first| self.numbers.iter().find(|(_, number)| *number == first));
        let Some((name, _)) = name.filter(|_| is_record) else { return operation };
        body["metadata"]["name"] = Value::from(name.as_str());
        Operation::CreateEvent { body: body.to_string() }
    }

    /// The agent hears what became of the event that is on its way.
    pub fn answered(&mut self, answer: &Answer) {
        let is_settled = match &answer.result {
            Ok(_) => true,
            Err(Refusal::Status(status)) => {
                (status.code == 409 && status.reason == "AlreadyExists") || [400, 413, 422].contains(&status.code)
            }
            Err(Refusal::Failed(_)) => false,
        };
        match self.in_flight.take().filter(|_| is_settled) {
            Some(Telling::Record(number)) => drop(self.settled.insert(number)),
            Some(Telling::Event(_, Some(message))) => match self.repeated(&message) {
                Some(number) => drop(self.settled.insert(number)),
                None => self.repeats_early.push(message),
            },
            Some(Telling::Event(name, None)) => {
                self.settled.extend(self.numbers.get(&name));
                self.settled_early.insert(name);
            }
            None => {}
        }
    }

    /// A Node is born. What nobody could tell of it may be known of one that is there already.
    pub fn bears(&mut self, body: &str, now_us: u64) -> Checked {
        self.reports(body, true, now_us)?;
        self.told.retain(|kind, status| status != "Unknown" && (kind != "Ready" || status == "True"));
        Ok(())
    }

    /// A status is sent. A change must be on disk before it is told; what a process says first need not be a change.
    pub fn reports(&mut self, body: &str, is_excused: bool, now_us: u64) -> Checked {
        let body: StatusBody = read(body)?;
        if body.metadata.annotations.get(LAST_OUTAGE).is_some_and(Option::is_some) {
            self.summary = Some(Sent { sent_us: now_us, is_excused });
        }
        for condition in &body.status.conditions {
            let (Some(kind), Some(status)) = (condition.kind.as_deref(), condition.status.as_deref()) else {
                continue;
            };
            let before = self.told.insert(kind.to_owned(), status.to_owned());
            let is_change = before.is_some_and(|before| before != status);
            if is_change && !is_excused && self.last_status(kind) != Some(status) {
                return Err(format!("{kind} is told to be {status}, before a record of that is synced"));
            }
        }
        Ok(())
    }

    /// The process is gone.
    pub fn process_ended(&mut self) {
        self.told.clear();
        self.repeats_early.clear();
        self.in_flight = None;
        self.last_replay_us = None;
    }

    /// Whether a process that starts now would find the change to this status that was made at or after `since_us`. (A slow
    /// disk may have synced the one before it later than that.)
    pub fn has_change(&self, kind: &str, status: &str, since_us: u64) -> bool {
        let leads_there = |known: &Known| matches!(&known.record.what, Happened::ConditionChanged { condition, to, .. } if condition == kind && word(*to) == status);
        let mut changes = self.known.iter().filter(|(_, known)| leads_there(known));
        changes.any(|(number, known)| known.synced_us >= since_us && self.on_disk.contains(number))
    }

    /// What the last change of a condition that is or was on disk led to.
    pub fn last_status(&self, kind: &str) -> Option<&'static str> {
        self.known.values().rev().find_map(|known| match &known.record.what {
            Happened::ConditionChanged { condition, to, .. } if condition == kind => Some(word(*to)),
            _ => None,
        })
    }

    /// The last outage that ended, and when that was synced.
    pub fn last_end(&self) -> Option<&Known> {
        self.known.values().rev().find(|known| matches!(known.record.what, Happened::OutageEnded { .. }))
    }

    /// Whether the end of an outage that was told last never was on disk, because the disk had failed.
    pub fn is_end_from_memory(&self) -> bool {
        self.end_from_memory.as_ref().is_some_and(|name| !self.numbers.contains_key(name))
    }

    /// Whether so many changes were in it, where none made room for others.
    pub fn had_changes(&self, ended: &Record, changes: u64) -> bool {
        let is_beginning = |known: &&Known| matches!(known.record.what, Happened::OutageBegan { .. });
        let before_end = || self.known.range(..ended.sequence.0).map(|(_, known)| known);
        let Some(began) = before_end().rfind(is_beginning).map(|known| &known.record) else { return true };
        let is_change = |known: &&Known| matches!(known.record.what, Happened::ConditionChanged { .. });
        let after = before_end().filter(is_change).filter(|known| known.record.sequence > began.sequence).count();
        // A change may be seen, and even told, before anybody knows that the link is gone.
        let is_near = |record: &Record| record.at.boot == began.at.boot && record.at.up >= began.at.up;
        let near = before_end()
            .filter(is_change)
            .filter(|known| known.record.sequence < began.sequence && is_near(&known.record));
        // What was told while the disk had failed was never on it.
        let known_before =
            before_end().rfind(|known| known.record.sequence < began.sequence && !is_near(&known.record));
        let numbers = known_before.map_or(began.sequence.0, |known| known.record.sequence.0)..ended.sequence.0;
        let never_on_disk = numbers.filter(|number| !self.known.contains_key(number));
        self.dropped() > 0 || (after..=after + near.count() + never_on_disk.count()).contains(&(changes as usize))
    }

    /// How many records still wait to be told.
    pub fn waiting(&self) -> u64 {
        self.on_disk.iter().filter(|number| self.waits(**number)).count() as u64
    }

    fn waits(&self, number: u64) -> bool {
        self.on_disk.contains(&number)
            && !self.settled.contains(&number)
            && self.known.get(&number).is_some_and(|known| is_told(&known.record))
    }

    pub fn changes(&self) -> usize {
        let is_change = |known: &&Known| matches!(known.record.what, Happened::ConditionChanged { .. });
        self.known.values().filter(is_change).count()
    }

    /// Everything was told, or is counted as dropped.
    pub fn judge(&self) -> Checked {
        let mut untold =
            self.known.iter().filter(|(number, known)| is_told(&known.record) && !self.settled.contains(number));
        match (untold.clone().count() as u64, self.dropped(), untold.next_back()) {
            (count, dropped, Some((_, last))) if count > dropped => Err(format!(
                "{count} records were never told, {dropped} are counted as dropped; the last is {:?}",
                last.record
            )),
            _ => Ok(()),
        }
    }

    /// Whatever made room for others: of each condition the first and the last change are told.
    pub fn judge_first_and_last(&self) -> Checked {
        for kind in KINDS {
            let changes = || self.known.iter().filter(|(_, known)| is_change_of(&known.record.what, kind));
            for (number, known) in changes().next().into_iter().chain(changes().next_back()) {
                if !self.settled.contains(number) {
                    return Err(format!("an outermost change was not told: {:?}", known.record));
                }
            }
        }
        Ok(())
    }

    /// Records that were given up, as the agent counts them. A count that was itself given up is in a later one.
    pub fn dropped(&self) -> u64 {
        let count = |known: &Known| match known.record.what {
            Happened::Dropped { count } if !known.is_unaccounted && !self.hides_drops => u64::from(count),
            _ => 0,
        };
        self.known.values().map(count).sum()
    }

    fn losses(&self) -> u64 {
        let weight = |known: &Known| match known.record.what {
            Happened::Dropped { count } => u64::from(count),
            _ => 1,
        };
        self.known.values().filter(|known| known.is_unaccounted).map(weight).sum()
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, String> {
    serde_json::from_str(body).map_err(|error| format!("a body that cannot be read: {error}: {body}"))
}

/// Whether an event tells of it.
fn is_told(record: &Record) -> bool {
    !matches!(record.what, Happened::OutageBegan { .. } | Happened::ClockSet { .. })
}

fn word(status: Status) -> &'static str {
    match status {
        Status::True => "True",
        Status::False => "False",
        Status::Unknown => "Unknown",
    }
}

/// What an event about it says, where it may be one that repeats an earlier one.
fn message_of(record: &Record) -> Option<String> {
    match &record.what {
        Happened::ConditionChanged { condition, to, .. } => Some(rules::transition(NODE, condition, *to).message),
        Happened::ProcessStarted => Some("Starting nodepulse.".to_owned()),
        _ => None,
    }
}
