//! Turns what people announce into what the Node must say of it in the end: away until then, or not, or who knows.

use nodepulse::agent::Input;
use nodepulse::config::absence::Until;
use nodepulse::journal::Journal;
use nodepulse::time::Wall;
use serde_json::Value;

use super::judge::conditions::TOLERANCE_US;
use super::planted::Planted;
use super::world::World;
use crate::model::controller::condition;
use crate::model::stamp;

pub const AWAY: &str = "PlannedAbsence";
/// A look at the board, the report that follows, and a server that is asked again.
const LATE_US: i64 = 60_000_000;

/// What holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Truth {
    Present,
    /// By the server's clock, and why.
    Away(i64, String),
    /// A process died before it was on disk, or its disk failed.
    Unknown,
}

/// What was announced so far.
#[derive(Debug)]
pub struct Absences {
    truth: Truth,
    /// What held before the command that nobody has answered yet.
    before: Option<Truth>,
    /// It is on the disk.
    is_safe: bool,
    count: u64,
}

impl Default for Absences {
    fn default() -> Absences {
        Absences { truth: Truth::Present, before: None, is_safe: true, count: 0 }
    }
}

impl Absences {
    /// What a process that died has not brought to its disk, nobody knows.
    pub fn process_ended(&mut self) {
        if !self.is_safe {
            self.truth = Truth::Unknown;
        }
        self.before = None;
    }

    /// Nobody announced anything, and no disk says otherwise.
    pub fn is_known_present(&self) -> bool {
        self.truth == Truth::Present && self.before.is_none() && self.is_safe
    }

    fn asked(&mut self, truth: Truth) {
        self.before = Some(std::mem::replace(&mut self.truth, truth));
        self.is_safe = false;
    }
}

impl World {
    /// Somebody announces an absence: of some seconds, or beyond the end of the world.
    pub fn announce(&mut self) {
        if self.agent.is_none() || self.is_asleep || self.is_stopping || self.absences.before.is_some() {
            return;
        }
        let span_s = self.random.pick(&[20, 60, 86_400, 86_400, 172_800]);
        let until_us = (self.server_wall_us() / 1_000_000 + span_s) * 1_000_000;
        let reason = format!("absence {}", self.absences.count);
        self.absences.count += 1;
        self.absences.asked(Truth::Away(until_us, reason.clone()));
        if self.shim.is(Planted::AbsenceUnheard) {
            return self.answered_announcer(&Ok("told".to_owned()));
        }
        self.feed(Input::Away { until: Until::At(Wall::from_unix_us(until_us)), reason });
    }

    /// Somebody says that the board is back.
    pub fn call_off(&mut self) {
        if self.agent.is_none() || self.is_asleep || self.is_stopping || self.absences.before.is_some() {
            return;
        }
        self.absences.asked(Truth::Present);
        if self.shim.is(Planted::BackUnheard) {
            return self.answered_announcer(&Ok("told".to_owned()));
        }
        self.feed(Input::Back);
    }

    /// What the agent answers to that. Without a clock it may refuse, and "kept" may be in memory alone.
    pub fn answered_announcer(&mut self, told: &Result<String, String>) {
        self.trace.say(|| format!("   answers a command: {told:?}"));
        let Some(before) = self.absences.before.take() else {
            return self.violated(format!("an answer that nobody waits for: {told:?}"));
        };
        match told {
            Ok(told) => self.absences.is_safe = !told.starts_with("kept") && !self.plan.is_disk_slow(),
            Err(_) if self.absences.truth == Truth::Present => self.violated("who is back is refused".to_owned()),
            Err(why) => {
                if self.is_dated() && !why.contains("is not within the year") {
                    self.violated(format!("an absence is refused: {why}"));
                }
                self.absences.truth = before;
            }
        }
    }

    /// A planted fault: it is not there any more after a start.
    pub fn lose_announcement(&self, journal: &mut Journal) {
        let announced = journal.waiting().filter(|one| format!("{:?}", one.what).starts_with("AbsenceAnnounced"));
        let of: Vec<_> = announced.map(|one| one.sequence).collect();
        if self.shim.is(Planted::AbsenceForgotten) {
            of.into_iter().for_each(|sequence| journal.forget(sequence));
        }
    }

    /// What anybody sees of it with kubectl. Answers how many conditions it is.
    pub fn judge_absence(&self, node: &Value) -> Result<usize, String> {
        let stored = condition(node, AWAY);
        let says = |status: &str, reason: &str| {
            stored.is_some_and(|stored| stored["status"] == status && stored["reason"] == reason)
        };
        let count = usize::from(stored.is_some());
        let wrong = |what: &str| Err(format!("{what}, and the Node says {}", stored.unwrap_or(&Value::Null)));
        match &self.absences.truth {
            _ if self.absences.count + self.departure.count == 0 && stored.is_some() => {
                wrong("nobody announced anything")
            }
            Truth::Unknown => Ok(count),
            Truth::Away(until_us, _) if (self.server_wall_us() - until_us).abs() < TOLERANCE_US + LATE_US => Ok(count),
            Truth::Away(until_us, reason) if self.server_wall_us() < *until_us => {
                let message = format!("Absence announced until {}: {reason}", stamp::seconds(*until_us));
                let is_whole = stored.is_some_and(|stored| stored["message"] == message.as_str());
                if says("True", "Announced") && is_whole { Ok(count) } else { wrong(&message) }
            }
            _ if stored.is_none() || says("False", "Present") => Ok(count),
            _ => wrong("the board is there"),
        }
    }
}
