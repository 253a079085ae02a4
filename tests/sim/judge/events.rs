//! Turns what happened and what was told of it into "each once, under a name of its own, with its own time", or what was
//! forgotten, invented, told twice, too early or out of order.
//!
//! How an event is named is the agent's affair: here names only have to differ, and a repeat has to have the same.

use std::collections::BTreeMap;

use super::super::absence::AWAY;
use super::conditions::{How, Seen, TOLERANCE_US};
use super::node::WORDS;

type Checked = Result<(), String>;

/// What waited in an outage is told at most this often.
const REPLAY_SPACING_US: i64 = 1_000_000;
/// What an event says whose time is that of its telling.
const NO_TIME: &str = " (the board had no clock then, so its time is not known)";
const OVERDUE_US: i64 = 10_000_000;
/// So many ends of one outage are looked back at.
const RESTORED_IN_A_ROW: usize = 200;
pub const FOREVER: i64 = i64::MAX / 2;
/// When it changes, only the agent's own reckoning says.
pub const BUDGET: &str = "MeteredBudgetLow";

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
    /// Its clock and a wrong answer once agreed (seed 66454): two witnesses are all that there are.
    pub was_deceived: bool,
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
    /// It is the repair of what others wrote.
    is_repair: bool,
    /// Since when who found it knows what was before, and has a record of it: one that began to be written before that has not
    /// got it (seed 2015699).
    known_us: i64,
    pub is_synced: bool,
}

/// One sighting: an event under its name, and which repeat of it.
#[derive(Debug, Clone)]
pub struct Told {
    pub subject: Subject,
    pub stamp_us: i64,
    sent_us: i64,
    pub by: Teller,
    /// It says that nobody knows when it was.
    pub has_no_time: bool,
    /// That its message begins with.
    number: u64,
    /// The server has it, or said that it never will.
    pub is_settled: bool,
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
    pub happened: Vec<Happening>,
    pub(super) told: BTreeMap<(String, u64), Told>,
    /// Reason and message of each name.
    names: BTreeMap<String, (String, String)>,
    /// Which process read the Node last, and when it did so first.
    node_known: Option<(u64, i64)>,
    /// It was read, and its bookkeeping is to be thrown away first.
    pub is_node_tracked: bool,
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
            is_repair: false,
            known_us: at_us,
            is_synced: false,
        });
    }

    /// The server is back, for certain or in the eyes of some.
    pub fn restored(&mut self, at_us: i64, by: Teller, is_certain: bool) {
        self.happened("UplinkRestored", None, at_us, by, is_certain);
    }

    /// Until then it may be said when the server was back.
    pub fn restored_by(&mut self, at_us: i64, life: u64) {
        let is_open = |one: &&mut Happening| one.by.life == life && one.subject.of == "UplinkRestored";
        for one in self.happened.iter_mut().rev().take(RESTORED_IN_A_ROW).filter(is_open) {
            if one.is_certain {
                break;
            }
            one.to_us = at_us;
        }
    }

    pub fn seen(&mut self, seen: Seen, at_us: i64, by: Teller) {
        match seen.how {
            How::First | How::Gone => {}
            How::Changed => self.happened(seen.kind, Some(seen.status), at_us, by, true),
            How::Otherwise => {
                self.happened(seen.kind, Some(seen.status), at_us, by, false);
                if let Some(last) = self.happened.last_mut() {
                    last.known_us = FOREVER;
                }
            }
            // Who learns only now what was before it dates it by its own first look, if no record says more, and tells it
            // whether or not one before it did (seeds 3944, 48834). So does who has a record of a boot with a wrong clock, by which
            // the Node has changed since (seed 5066809).
            How::Again => {
                let mut of_kind = self.happened.iter().rev().filter(|one| one.subject.of == seen.kind);
                let last = of_kind.find(|one| one.is_recorded);
                let is_lost = |last: &Happening| !last.is_certain && !last.is_synced;
                let is_misdated = |last: &Happening| !last.by.is_dated && last.by.boot != by.boot;
                if last.is_some_and(|last| is_lost(last) || is_misdated(last)) {
                    self.seen(Seen { how: How::Otherwise, ..seen }, at_us, by);
                }
            }
        }
    }

    /// The process learns what was before its first look.
    pub fn node_read(&mut self, life: u64, at_us: i64) {
        let known = self.node_known.get_or_insert((life, at_us));
        if known.0 != life {
            *known = (life, at_us);
        }
        for one in self.happened.iter_mut().rev().filter(|one| one.by.life == life) {
            one.known_us = one.known_us.min(at_us);
        }
    }

    /// In the moment in which it was told: where clocks differ, nothing is believed before the second answer (seed 1039489).
    pub fn asks_for_node(&mut self, at_us: i64) {
        for one in self.happened.iter_mut().filter(|one| one.known_us == at_us && one.from_us < at_us) {
            one.known_us = FOREVER;
        }
    }

    pub fn knows_node(&self, life: u64) -> bool {
        self.node_known.is_some_and(|(known, _)| known == life)
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
            is_repair: from_us == FOREVER,
            known_us: from_us,
            is_synced: true,
        });
    }

    /// Somebody else wrote it: whoever repairs that tells of it, in the moment of the repair, once the server has answered.
    pub fn repair_may_be_told(&mut self, of: &'static str, by: Teller) {
        self.may_be_told(of, None, FOREVER, FOREVER, by);
    }

    /// The server answers, so that the process may learn what others wrote.
    pub fn answered(&mut self, now_us: i64) {
        let is_pending = |one: &&mut Happening| one.from_us == FOREVER;
        for one in self.happened.iter_mut().filter(is_pending) {
            one.from_us = now_us;
        }
    }

    /// A report says all of these again: nobody has anything more to tell of what others wrote.
    pub fn repaired(&mut self, now_us: i64) {
        let is_open = |one: &&mut Happening| one.is_repair && one.to_us == FOREVER;
        for one in self.happened.iter_mut().filter(is_open) {
            one.to_us = now_us;
        }
    }

    /// A write that began then is on disk, and with it whatever had happened: so much, as both may be at one time (seed 150736451).
    pub fn synced(&mut self, life: u64, began_us: i64, happened: usize) {
        let is_of_life = |one: &&mut Happening| one.by.life == life && one.is_recorded;
        let is_in = |one: &&mut Happening| one.known_us.max(one.from_us) <= began_us;
        for one in self.happened.iter_mut().take(happened).filter(is_of_life).filter(is_in) {
            one.is_synced = true;
        }
    }

    /// Whether a process of this boot has it on disk that it is another one; `None` where there was no process yet.
    pub fn knows_boot(&self, boot: u64) -> Option<bool> {
        let of_boot = self.happened.iter().filter(|one| one.subject.of == "Rebooted" && one.by.boot == boot);
        // That the Node names another boot is on no disk (seed 3001445).
        let (recorded, named): (Vec<_>, Vec<_>) = of_boot.partition(|one| one.is_recorded);
        let is_synced = recorded.iter().any(|one| one.is_synced);
        if recorded.is_empty() { (!named.is_empty()).then_some(true) } else { Some(is_synced) }
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
        // What a first look found may be no change to the process, and then has no record (seed 28719).
        let mut synced = self.happened.iter().rev().filter(|one| one.is_recorded && one.is_synced && one.is_certain);
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
        if !by.is_dated || ["RecordsDropped", "Shutdown", BUDGET, AWAY].contains(&subject.of) || self.dropped() > 0 {
            return Ok(());
        }
        if self.may_be_unrecorded(subject, stamp_us) || self.may_have_any_time(subject, by) {
            return Ok(());
        }
        if self.is_learned_late(subject, stamp_us, by) {
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

    /// Order is that in which the process learned of it: what a first look found is a change only since what was before is
    /// known, that is, since the Node is (seeds 17799, 1039489).
    fn is_learned_late(&self, subject: Subject, stamp_us: i64, by: Teller) -> bool {
        let known_us = self.node_known.filter(|(life, _)| *life == by.life).map(|(_, known_us)| known_us);
        subject.word.is_some() && known_us.is_none_or(|known_us| stamp_us < known_us + TOLERANCE_US)
    }

    /// One of its kind happened at a time that nobody can know any more.
    fn may_have_any_time(&self, subject: Subject, by: Teller) -> bool {
        let mut others = self.happened.iter().filter(|one| fits(one.subject, subject));
        others.any(|one| one.by.boot != by.boot && !one.by.is_dated)
    }

    fn check_spacing(&mut self, subject: Subject, stamp_us: i64, by: Teller, now_us: i64) -> Checked {
        // What was just now is of before by a clock that is behind (seed 74073182).
        let is_missed = self
            .missed_us
            .is_some_and(|(lost_us, reached_us)| (lost_us..reached_us - TOLERANCE_US).contains(&stamp_us));
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

    /// How often it was told that the budget runs low, or does no more; and of absences.
    pub fn told_of_budget(&self) -> u64 {
        self.told.values().filter(|told| [BUDGET, AWAY].contains(&told.subject.of)).count() as u64
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
}

/// A disk that is silent for so long has failed: from memory the agent goes on (design 4).
fn is_overdue(happening: &Happening, now_us: i64) -> bool {
    // Nobody waits longer for the disk of a machine that goes down.
    let patience_us = if happening.subject.of == "Shutdown" { 500_000 } else { OVERDUE_US };
    now_us - happening.from_us >= patience_us
}

pub fn fits(happened: Subject, told: Subject) -> bool {
    happened.of == told.of && (happened.word.is_none() || happened.word == told.word)
}

fn words(message: &str) -> String {
    // Or only one of them knew when it began (seed 312350).
    message.split(" again").next().unwrap_or_default().to_owned()
}

pub fn subject_of(reason: &str) -> Option<Subject> {
    if let Some((of, word, ..)) = WORDS.iter().find(|(.., event)| *event == reason) {
        return Some(Subject { of, word: Some(word) });
    }
    let plain = ["Starting", "Rebooted", "UplinkRestored", "RecordsDropped", "Shutdown"];
    if let Some(of) = plain.into_iter().find(|plain| *plain == reason) {
        return Some(Subject { of, word: None });
    }
    match reason {
        "NodeMemoryUnreadable" => Some(Subject { of: "MemoryPressure", word: Some("Unknown") }),
        "NodeDiskUnreadable" => Some(Subject { of: "DiskPressure", word: Some("Unknown") }),
        "NodePIDsUnreadable" => Some(Subject { of: "PIDPressure", word: Some("Unknown") }),
        "DailyBytesRunLow" => Some(Subject { of: BUDGET, word: Some("True") }),
        "DailyBytesSuffice" => Some(Subject { of: BUDGET, word: Some("False") }),
        "AbsenceAnnounced" => Some(Subject { of: AWAY, word: Some("True") }),
        "AbsenceOver" => Some(Subject { of: AWAY, word: Some("False") }),
        "NodeNotReady" => Some(Subject { of: "Ready", word: Some("False") }),
        "NodeSchedulable" => Some(Subject { of: "Schedulable", word: Some("True") }),
        "NodeNotSchedulable" => Some(Subject { of: "Schedulable", word: Some("False") }),
        _ => None,
    }
}
