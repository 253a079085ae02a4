//! Turns everything that happened and everything that was told of it, in the end, into "each once, with its own time".

use super::super::absence::AWAY;
use super::conditions::TOLERANCE_US;
use super::events::{BUDGET, Events, FOREVER, Happening, Teller, Told, fits};
use super::excuse::{Excuse, Excuses};
use super::matching::matched;
use super::node::WORDS;

type Checked = Result<(), String>;

/// Name and count, and what was told under them.
type Sighting<'a> = (&'a (String, u64), &'a Told);

impl Events {
    /// Whether the server has an event of this change, of that moment at the earliest.
    pub fn has_event_of(&self, of: &str, word: &str, from_us: i64) -> bool {
        let is_it = |told: &Told| {
            told.is_settled && told.subject.of == of && told.subject.word.is_none_or(|known| known == word)
        };
        self.told.values().any(|told| is_it(told) && told.stamp_us >= from_us)
    }

    /// In the end: what was told happened, and what happened was told.
    pub fn judge(&self, excuses: &mut Excuses) -> Checked {
        let is_of_happening =
            |told: &Told| told.is_settled && !["RecordsDropped", BUDGET, AWAY].contains(&told.subject.of);
        let mut told: Vec<Sighting> = self.told.iter().filter(|(_, told)| is_of_happening(told)).collect();
        // What may be a repeat comes last: where one too many is told, it is one of these that is left over.
        told.sort_by_key(|one| self.is_told_anew(one));
        let mut fit = self.fit(&told)?;
        let mut happened_of = matched(&fit, self.happened.len());
        if happened_of.contains(&None) && excuses.allow(Excuse::ToldAsRepeat, self.has_told_anew()) {
            let pairs = told.into_iter().zip(fit).zip(happened_of);
            let stays = |((one, _), happening): &((Sighting, Vec<usize>), Option<usize>)| {
                happening.is_some() || !self.is_told_anew(one)
            };
            ((told, fit), happened_of) = pairs.filter(stays).unzip();
        }
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

    /// A sighting that a process counted on an event of before, and that the one after it tells under a name of its own: it
    /// cannot know that (seed 695).
    fn is_told_anew(&self, one: &Sighting) -> bool {
        let ((_, count), one) = one;
        let counted = |((_, count), other): Sighting| {
            *count > 1
                && other.is_settled
                && other.subject == one.subject
                && other.by.life < one.by.life
                && (other.stamp_us - one.stamp_us).abs() <= TOLERANCE_US
        };
        *count == 1 && self.told.iter().any(counted)
    }

    fn has_told_anew(&self) -> bool {
        self.told.iter().any(|one| self.is_told_anew(&one))
    }

    /// For each that was told what it may be.
    fn fit(&self, told: &[Sighting]) -> Result<Vec<Vec<usize>>, String> {
        let mut fit: Vec<Vec<usize>> = Vec::new();
        for (key, one) in told {
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
        Ok(fit)
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

    /// The runtime of the board is down, or is there again: what Ready is by that is told once, from then on, and has a record.
    pub fn ready_may_change(&mut self, from_us: i64, by: Teller) {
        self.may_be_told("Ready", None, from_us, FOREVER, by);
        if let Some(last) = self.happened.last_mut() {
            (last.is_recorded, last.is_synced) = (true, false);
        }
    }

    /// The board's clock was set: what no look has found yet is dated by what it says then (seed 99225536).
    pub fn clock_set(&mut self, by: Teller) {
        let is_open = |one: &&mut Happening| one.to_us == FOREVER && one.by.boot == by.boot;
        self.happened.iter_mut().filter(is_open).for_each(|one| one.by.is_dated &= by.is_dated);
    }

    /// That it is over, which this process has found at its start, it dates only now.
    pub fn over_by(&mut self, of: &str, by: Teller) {
        let is_over = |one: &&mut Happening| one.subject.of == of && one.subject.word == Some("False");
        for one in self.happened.iter_mut().filter(|one| one.by.life == by.life).filter(is_over) {
            one.by = by;
        }
    }

    /// How many changes of conditions in that span are certain and have a record.
    pub fn changes_within(&self, from_us: i64, to_us: i64) -> u64 {
        let is_change = |one: &&Happening| one.is_recorded && one.is_certain && one.subject.word.is_some();
        self.happened.iter().filter(is_change).filter(|one| (from_us..=to_us).contains(&one.from_us)).count() as u64
    }

    /// How many were told of, as Ready, where it may but need not have a record (seed 9210507).
    pub fn changes_told_within(&self, from_us: i64, to_us: i64) -> u64 {
        let is_change = |told: &&Told| told.is_settled && WORDS.iter().any(|(kind, ..)| *kind == told.subject.of);
        let is_within = |told: &&Told| (from_us..=to_us).contains(&told.stamp_us);
        self.told.values().filter(is_change).filter(is_within).count() as u64
    }

    /// Whatever made room for others: of each condition the first change and the last are told, where they are certain (after a
    /// certain one may be another that was found, and then has a record: half a year of seed 0).
    pub fn judge_first_and_last(&self) -> Checked {
        for (kind, ..) in WORDS {
            let is_change = |one: &&Happening| one.is_recorded && one.subject.of == kind;
            let mut changes = self.happened.iter().filter(is_change);
            let outermost = [changes.next(), changes.next_back()].into_iter().flatten();
            for one in outermost.filter(|one| one.is_certain) {
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

/// The time that is told is that of the happening.
fn is_at(happening: &Happening, told: &Told) -> bool {
    let from_us = happening.from_us - TOLERANCE_US;
    !told.has_no_time
        && (from_us..=happening.to_us.saturating_add(TOLERANCE_US)).contains(&told.stamp_us)
        && (happening.by.life <= told.by.life || !happening.is_recorded)
}

/// Nobody can know it: the board had no clock in the boot that is over, or a wrong one.
fn excused(happening: &Happening, told: &Told) -> Option<Excuse> {
    // Of Ready there is a record only where sizes could not be read, and an event that says so has one (seed 220145).
    let has_record = happening.is_recorded || told.has_no_time;
    let is_lost = happening.by.boot != told.by.boot && !happening.by.is_dated && has_record;
    (is_lost || told.by.was_deceived).then_some(Excuse::TimeIsLost)
}
