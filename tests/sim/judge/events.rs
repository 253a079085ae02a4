//! Turns what happened and what was told of it into "each once, under a name of its own, with its own time", or what was
//! forgotten, invented, told twice, too early or out of order.
//!
//! How an event is named is the agent's affair: here names only have to differ, and a repeat has to have the same.

use std::collections::BTreeMap;

use super::conditions::{Change, TOLERANCE_US};
use super::excuse::{Excuse, Excuses};
use super::matching::matched;
use super::node::WORDS;

type Checked = Result<(), String>;

/// What waited in an outage is told at most this often.
const REPLAY_SPACING_US: i64 = 1_000_000;
/// What an event says whose time is that of its telling.
const NO_TIME: &str = " (the board had no clock then, so its time is not known)";
const OVERDUE_US: i64 = 10_000_000;
pub const FOREVER: i64 = i64::MAX / 2;

/// What an event tells of: a condition and its status, or the thing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub of: &'static str,
    /// `None`: any.
    pub word: Option<&'static str>,
}

/// Whose clock dates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Teller {
    pub life: u64,
    pub boot: u64,
    /// The board's clock is right, or this process has heard what is.
    pub is_dated: bool,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Happening {
    pub subject: Subject,
    /// By the server's clock, from the first moment that may be called the time of it to the last.
    pub from_us: i64,
    pub to_us: i64,
    pub by: Teller,
    /// It has to be told; otherwise it may be.
    pub is_certain: bool,
    /// It has to be on disk before it is told.
    pub is_recorded: bool,
    is_synced: bool,
}

/// One sighting: an event under its name, and which repeat of it.
#[derive(Debug, Clone)]
struct Told {
    subject: Subject,
    stamp_us: i64,
    sent_us: i64,
    by: Teller,
    /// It says that nobody knows when it was.
    has_no_time: bool,
    /// That its message begins with.
    number: u64,
    /// The server has it, or said that it never will.
    is_settled: bool,
}

/// An event on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter<'a> {
    pub name: &'a str,
    /// `None`: a repeat of one that the server has.
    pub reason: Option<&'a str>,
    pub message: &'a str,
    pub count: u64,
    pub stamp_us: i64,
}

#[derive(Debug, Default)]
pub struct Events {
    happened: Vec<Happening>,
    told: BTreeMap<(String, u64), Told>,
    /// Reason and message of each name.
    names: BTreeMap<String, (String, String)>,
    /// The present process told of something that had waited.
    last_replay_us: Option<i64>,
    /// The time that it told last of something that has a record.
    last_told_us: Option<i64>,
    /// The last outage of this process: what happened in it is told slowly.
    pub missed_us: Option<(i64, i64)>,
    /// A planted fault: what was dropped is not told.
    hides_drops: bool,
}

impl Events {
    pub fn new(hides_drops: bool) -> Events {
        Events { hides_drops, ..Events::default() }
    }

    /// Of the present moment, and certain; the disk has to know first.
    pub fn happened(&mut self, of: &'static str, word: Option<&'static str>, at_us: i64, by: Teller, is_certain: bool) {
        let subject = Subject { of, word };
        self.happened.push(Happening {
            subject,
            from_us: at_us,
            to_us: at_us,
            by,
            is_certain,
            is_recorded: true,
            is_synced: false,
        });
    }

    /// The server is back, which is known for certain in this span.
    pub fn restored(&mut self, from_us: i64, to_us: i64, by: Teller) {
        self.happened("UplinkRestored", None, from_us, by, true);
        if let Some(last) = self.happened.last_mut() {
            last.to_us = to_us;
        }
    }

    pub fn changed(&mut self, change: Change, at_us: i64, by: Teller) {
        self.happened(change.kind, Some(change.status), at_us, by, change.is_certain);
    }

    /// It may be told, once, at any time from then on.
    pub fn may_be_told(&mut self, of: &'static str, word: Option<&'static str>, from_us: i64, to_us: i64, by: Teller) {
        let subject = Subject { of, word };
        let is_same = |known: &&mut Happening| {
            !known.is_certain
                && !known.is_recorded
                && known.subject == subject
                && known.by.life == by.life
                && known.to_us >= from_us
                && known.to_us < FOREVER
                && to_us < FOREVER
        };
        if let Some(known) = self.happened.iter_mut().rev().take(8).find(is_same) {
            known.to_us = to_us;
            return;
        }
        self.happened.push(Happening {
            subject,
            from_us,
            to_us,
            by,
            is_certain: false,
            is_recorded: false,
            is_synced: true,
        });
    }

    /// A write that began then is on disk, and with it whatever happened before it began.
    pub fn synced(&mut self, life: u64, began_us: i64) {
        let is_in = |one: &&mut Happening| one.by.life == life && one.is_recorded && one.from_us <= began_us;
        for one in self.happened.iter_mut().rev().filter(is_in) {
            if one.is_synced {
                break;
            }
            one.is_synced = true;
        }
    }

    /// Whether a process of this boot has it on disk that it is another one; `None` where there was no process yet.
    pub fn knows_boot(&self, boot: u64) -> Option<bool> {
        let mut of_boot = self.happened.iter().filter(|one| one.subject.of == "Rebooted" && one.by.boot == boot);
        of_boot.next().map(|first| first.is_synced || of_boot.any(|one| one.is_synced))
    }

    pub fn has_synced(&self) -> bool {
        self.happened.iter().any(|one| one.is_recorded && one.is_synced)
    }

    /// What was not on disk is lost with its process, unless it was told.
    pub fn process_ended(&mut self, life: u64) {
        self.last_replay_us = None;
        self.last_told_us = None;
        self.missed_us = None;
        for one in self.happened.iter_mut().rev().filter(|one| one.by.life == life && !one.is_synced) {
            one.is_certain = false;
        }
    }

    /// Whether a change to this status that is on disk, or needs not be, is the last.
    pub fn is_last_synced(&self, of: &str, word: &str) -> bool {
        let last = self.happened.iter().rev().find(|one| one.is_recorded && one.subject.of == of);
        last.is_none_or(|last| last.is_synced || last.subject.word != Some(word))
    }

    /// The same of the present process: what one before it left is on disk, or nobody can wait for it.
    pub fn is_last_ready(&self, of: &str, word: &str, life: u64, now_us: i64) -> bool {
        let last = self.happened.iter().rev().find(|one| one.is_recorded && one.subject.of == of);
        last.is_none_or(|last| last.by.life != life || is_overdue(last, now_us)) || self.is_last_synced(of, word)
    }

    /// What the last change says that is on disk.
    pub fn last_synced(&self, of: &str) -> Option<&'static str> {
        let mut synced = self.happened.iter().rev().filter(|one| one.is_recorded && one.is_synced);
        synced.find(|one| one.subject.of == of).and_then(|one| one.subject.word)
    }

    /// Whether it ever changed to this: what a write that failed left behind may be on disk all the same.
    pub fn was(&self, of: &str, word: &str) -> bool {
        self.happened.iter().any(|one| one.is_recorded && one.subject.of == of && one.subject.word == Some(word))
    }

    /// Whether the last of these is on disk.
    pub fn has_last(&self, of: &str) -> bool {
        let last = self.happened.iter().rev().find(|one| one.is_recorded && one.subject.of == of);
        last.is_some_and(|last| last.is_synced)
    }

    /// The agent sends it. `is_excused`: the disk has failed, so that nothing waits for it.
    pub fn sends(&mut self, letter: &Letter, by: Teller, is_excused: bool, now_us: i64) -> Checked {
        let (name, count) = (letter.name.to_owned(), letter.count);
        let message = letter.message.trim_end_matches(NO_TIME);
        let has_no_time = message.len() < letter.message.len();
        let reason = match (letter.reason, self.names.get(&name)) {
            // How long something took may be rounded otherwise the second time.
            (Some(reason), Some((known, before))) if known != reason || words(before) != words(message) => {
                return Err(format!("two events have the name {name}: {known}, {before}; {reason}, {message}"));
            }
            (Some(reason), _) => reason.to_owned(),
            (None, Some((known, _))) => known.clone(),
            (None, None) => return Err(format!("a repeat of an event that never was: {name}")),
        };
        let subject = subject_of(&reason).ok_or_else(|| format!("an event for which there is no reason: {reason}"))?;
        self.names.insert(name.clone(), (reason, message.to_owned()));
        let is_new = !self.told.contains_key(&(name.clone(), count));
        let told = self.told.entry((name, count)).or_insert(Told {
            subject,
            stamp_us: letter.stamp_us,
            sent_us: now_us,
            by,
            has_no_time,
            number: message.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0),
            is_settled: false,
        });
        if !told.is_settled {
            (told.stamp_us, told.sent_us, told.by, told.has_no_time) = (letter.stamp_us, now_us, by, has_no_time);
        }
        if is_new && !is_excused {
            self.check_synced(subject, by.life, now_us)?;
            self.check_order(subject, letter.stamp_us, by)?;
        }
        self.check_spacing(subject, letter.stamp_us, by, now_us)
    }

    fn sent_of(&self, subject: Subject) -> usize {
        self.told.values().filter(|told| told.subject == subject).count()
    }

    fn check_synced(&self, subject: Subject, life: u64, now_us: i64) -> Checked {
        let fits = |one: &&Happening| fits(one.subject, subject);
        // What an earlier process wrote may have reached the disk, though nobody told it so.
        let is_ready =
            |one: &&Happening| one.is_synced || !one.is_recorded || one.by.life != life || is_overdue(one, now_us);
        let ready = self.happened.iter().filter(fits).filter(is_ready).count();
        let all = self.happened.iter().filter(fits).count();
        let sent = self.sent_of(subject);
        if sent > ready && sent <= all {
            return Err(format!("{subject:?} is told before it was synced"));
        }
        Ok(())
    }

    /// What happened clearly before this, and is on disk, has been told before it; and this did not happen clearly before
    /// what was told last.
    fn check_order(&mut self, subject: Subject, stamp_us: i64, by: Teller) -> Checked {
        if !by.is_dated || subject.of == "RecordsDropped" || self.dropped() > 0 {
            return Ok(());
        }
        if self.may_be_unrecorded(subject, stamp_us) || self.may_have_any_time(subject, by) {
            return Ok(());
        }
        if let Some(last_us) = self.last_told_us.replace(stamp_us).filter(|last_us| stamp_us < last_us - TOLERANCE_US) {
            let late_s = (last_us - stamp_us) / 1_000_000;
            return Err(format!("{subject:?} is told out of order, {late_s} s late"));
        }
        let mut before: BTreeMap<Subject, usize> = BTreeMap::new();
        let is_before = |one: &&Happening| {
            one.is_certain && one.is_synced && one.by.boot == by.boot && one.to_us < stamp_us - 2 * TOLERANCE_US
        };
        for one in self.happened.iter().filter(is_before).filter(|one| one.subject != subject) {
            *before.entry(one.subject).or_default() += 1;
        }
        let missed = before.into_iter().find(|(other, count)| self.sent_of(*other) < *count);
        match missed {
            Some((other, _)) => Err(format!("{subject:?} is told out of order, before {other:?}")),
            None => Ok(()),
        }
    }

    /// What has no record waits for nothing.
    fn may_be_unrecorded(&self, subject: Subject, stamp_us: i64) -> bool {
        let is_then =
            |one: &Happening| (one.from_us - TOLERANCE_US..=one.to_us.saturating_add(TOLERANCE_US)).contains(&stamp_us);
        let mut unrecorded = self.happened.iter().filter(|one| !one.is_recorded && fits(one.subject, subject));
        unrecorded.any(is_then)
    }

    /// One of its kind happened at a time that nobody can know any more.
    fn may_have_any_time(&self, subject: Subject, by: Teller) -> bool {
        let mut others = self.happened.iter().filter(|one| fits(one.subject, subject));
        others.any(|one| one.by.boot != by.boot && !one.by.is_dated)
    }

    fn check_spacing(&mut self, subject: Subject, stamp_us: i64, by: Teller, now_us: i64) -> Checked {
        let is_missed =
            self.missed_us.is_some_and(|(lost_us, reached_us)| (lost_us..reached_us - 1_000_000).contains(&stamp_us));
        if !by.is_dated || !is_missed || self.may_be_unrecorded(subject, stamp_us) {
            return Ok(());
        }
        match self.last_replay_us.replace(now_us) {
            Some(last_us) if now_us < last_us + REPLAY_SPACING_US => {
                Err(format!("an event of before is told {} ms after another one", (now_us - last_us) / 1000))
            }
            _ => Ok(()),
        }
    }

    /// The server took it, or said that it has it, or that it never will.
    pub fn settled(&mut self, name: &str, count: u64) {
        if let Some(told) = self.told.get_mut(&(name.to_owned(), count)) {
            told.is_settled = true;
        }
    }

    /// How many the agent says it gave up to make room for others.
    pub fn dropped(&self) -> u64 {
        let says = |told: &&Told| told.is_settled && told.subject.of == "RecordsDropped" && !self.hides_drops;
        self.told.values().filter(says).map(|told| told.number).sum()
    }

    pub fn told(&self) -> usize {
        self.told.values().filter(|told| told.is_settled).count()
    }

    /// How many are certain and not told.
    pub fn waiting(&self) -> u64 {
        let mut sums: BTreeMap<Subject, (u64, u64)> = BTreeMap::new();
        for one in self.happened.iter().filter(|one| one.is_certain) {
            sums.entry(one.subject).or_default().0 += 1;
        }
        for told in self.told.values().filter(|told| told.is_settled) {
            sums.entry(told.subject).or_default().1 += 1;
        }
        let waiting: u64 = sums.values().map(|(happened, told)| happened.saturating_sub(*told)).sum();
        waiting.saturating_sub(self.dropped())
    }

    pub fn changes_within(&self, from_us: i64, to_us: i64) -> u64 {
        let is_change = |one: &&Happening| one.is_recorded && one.is_certain && one.subject.word.is_some();
        self.happened.iter().filter(is_change).filter(|one| (from_us..=to_us).contains(&one.from_us)).count() as u64
    }

    /// In the end: what was told happened, and what happened was told.
    pub fn judge(&self, excuses: &mut Excuses) -> Checked {
        let is_of_happening = |told: &Told| told.is_settled && told.subject.of != "RecordsDropped";
        let told: Vec<(&(String, u64), &Told)> = self.told.iter().filter(|(_, told)| is_of_happening(told)).collect();
        let mut fit: Vec<Vec<usize>> = Vec::new();
        for (key, one) in &told {
            let of_subject = (0..self.happened.len()).filter(|place| fits(self.happened[*place].subject, one.subject));
            let of_subject: Vec<usize> = of_subject.collect();
            let dated = of_subject.iter().copied().filter(|place| is_at(&self.happened[*place], one));
            let mut candidates: Vec<usize> = dated.collect();
            if candidates.len() < of_subject.len() {
                let loose = of_subject.iter().copied().filter(|place| !candidates.contains(place));
                let loose: Vec<usize> = loose.filter(|place| excused(&self.happened[*place], one).is_some()).collect();
                candidates.extend(loose);
            }
            if candidates.is_empty() {
                let times: Vec<i64> =
                    of_subject.iter().map(|place| (one.stamp_us - self.happened[*place].from_us) / 1_000_000).collect();
                return Err(format!(
                    "{key:?} tells of {:?} at a time when there was none: off by {times:?} s",
                    one.subject
                ));
            }
            fit.push(candidates);
        }
        let happened_of = matched(&fit, self.happened.len());
        if let Some(place) = happened_of.iter().position(Option::is_none) {
            return Err(format!("{:?} tells of {:?} once more than it happened", told[place].0, told[place].1.subject));
        }
        for (place, one) in told.iter().enumerate() {
            let Some(happening) = happened_of[place].map(|happening| &self.happened[happening]) else { continue };
            if !is_at(happening, one.1)
                && let Some(excuse) = excused(happening, one.1)
                && !excuses.allow(excuse, true)
            {
                return Err(format!("{:?} tells of {:?} with another time", one.0, one.1.subject));
            }
        }
        self.judge_forgotten(&fit)
    }

    /// Each that is certain has one that tells of it, but for those that the agent says it gave up.
    fn judge_forgotten(&self, fit: &[Vec<usize>]) -> Checked {
        let certain: Vec<usize> = (0..self.happened.len()).filter(|place| self.happened[*place].is_certain).collect();
        let tellers = |happening: &usize| {
            fit.iter().enumerate().filter(|(_, fit)| fit.contains(happening)).map(|(place, _)| place).collect()
        };
        let fit: Vec<Vec<usize>> = certain.iter().map(tellers).collect();
        let told_by = matched(&fit, self.told.len());
        let untold = told_by.iter().filter(|by| by.is_none()).count() as u64;
        let dropped = self.dropped();
        if untold > dropped {
            let last = told_by.iter().rposition(Option::is_none).map(|place| &self.happened[certain[place]]);
            return Err(format!(
                "{untold} happenings were never told, {} are counted as dropped; the last is {last:?}",
                dropped
            ));
        }
        Ok(())
    }

    /// Whatever made room for others: of each condition the first and the last change of those that were certain are told.
    pub fn judge_first_and_last(&self) -> Checked {
        for (kind, ..) in WORDS {
            let is_change = |one: &&Happening| one.is_certain && one.subject.of == kind;
            let mut changes = self.happened.iter().filter(is_change);
            for one in [changes.next(), changes.next_back()].into_iter().flatten() {
                let tells = |told: &Told| fits(one.subject, told.subject) && told.is_settled;
                let mut told = self.told.values().filter(|told| tells(told));
                if !told.any(|told| is_at(one, told) || excused(one, told).is_some()) {
                    return Err(format!("an outermost change was not told: {one:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A disk that is silent for so long has failed: from memory the agent goes on (design 4).
fn is_overdue(happening: &Happening, now_us: i64) -> bool {
    now_us - happening.from_us >= OVERDUE_US
}

fn fits(happened: Subject, told: Subject) -> bool {
    happened.of == told.of && (happened.word.is_none() || happened.word == told.word)
}

/// The time that is told is that of the happening.
fn is_at(happening: &Happening, told: &Told) -> bool {
    let from_us = happening.from_us - TOLERANCE_US;
    !told.has_no_time
        && (from_us..=happening.to_us.saturating_add(TOLERANCE_US)).contains(&told.stamp_us)
        && (happening.by.life <= told.by.life || !happening.is_recorded)
}

/// Nobody can know it: the board had no clock in the boot that is over, or a wrong one.
fn excused(happening: &Happening, told: &Told) -> Option<Excuse> {
    let is_lost = happening.by.boot != told.by.boot && !happening.by.is_dated && happening.is_recorded;
    is_lost.then_some(Excuse::TimeIsLost)
}

fn words(message: &str) -> String {
    message.split(" again after ").next().unwrap_or_default().to_owned()
}

pub fn subject_of(reason: &str) -> Option<Subject> {
    if let Some((of, word, ..)) = WORDS.iter().find(|(.., event)| *event == reason) {
        return Some(Subject { of, word: Some(word) });
    }
    let plain = ["Starting", "Rebooted", "UplinkRestored", "RecordsDropped"];
    if let Some(of) = plain.into_iter().find(|plain| *plain == reason) {
        return Some(Subject { of, word: None });
    }
    match reason {
        "NodeMemoryUnreadable" => Some(Subject { of: "MemoryPressure", word: Some("Unknown") }),
        "NodeDiskUnreadable" => Some(Subject { of: "DiskPressure", word: Some("Unknown") }),
        "NodePIDsUnreadable" => Some(Subject { of: "PIDPressure", word: Some("Unknown") }),
        "NodeNotReady" => Some(Subject { of: "Ready", word: Some("False") }),
        "NodeSchedulable" => Some(Subject { of: "Schedulable", word: Some("True") }),
        "NodeNotSchedulable" => Some(Subject { of: "Schedulable", word: Some("False") }),
        _ => None,
    }
}
