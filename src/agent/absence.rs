//! Turns what people announce into until when the board is away, and why (`nodepulse away`, `nodepulse back`).
//!
//! What holds is one record of the journal, so it outlives the process and the boot. It is forgotten when its time has come, when
//! another one is announced, or when the board is back; the condition `PlannedAbsence` follows it (`node::rules`).

use std::time::Duration;

use super::contract::{Because, Output};
use super::notice::Level;
use super::shared::Shared;
use super::{Agent, sooner};
use crate::config::absence::{Until, check_reason};
use crate::config::limits::LONGEST_ABSENCE;
use crate::journal::Happened;
use crate::journal::record::cut;
use crate::node::rules::Absence;
use crate::time::{Now, Up, Wall};

/// How long whoever announces something waits until the server has it.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// The board is away from now on. The error says why not.
    fn announce(&mut self, until: Until, reason: &str, now: Now) -> Result<(), String> {
        let stamp =
            self.stamp(now).ok_or("nobody knows the time yet: neither this board nor a server that was reached")?;
        let until = match until {
            Until::At(at) => at,
            Until::After(span) => stamp.plus(span),
        };
        if until <= stamp || until.since(stamp) > LONGEST_ABSENCE {
            let text = "is not within the year (366 days) that comes: it is";
            return Err(format!("{} {text} {}", until.to_seconds_stamp(), stamp.to_seconds_stamp()));
        }
        check_reason(reason).map_err(|why| format!("{reason:?} {why}"))?;
        // What a person reads is what holds.
        let until = Wall::from_unix_seconds(until.unix_seconds());
        self.records.end_absence();
        self.record(Happened::AbsenceAnnounced { until, reason: cut(reason) }, now);
        self.say(Level::Info, "away", format!("announced as away until {}: {reason:?}", until.to_seconds_stamp()));
        Ok(())
    }

    /// Forgets what is over. Before anybody has compared the board's clock nothing is: it may be wrong by years.
    pub(super) fn end_absence_in_time(&mut self, now: Now) {
        let Some((until, _)) = self.records.announced().filter(|_| self.clock.was_compared()) else { return };
        if self.stamp(now).is_some_and(|stamp| stamp >= until) {
            self.records.end_absence();
        }
    }

    pub(super) fn absence(&self, now: Now) -> Absence<'_> {
        match self.records.announced() {
            None => Absence::None,
            Some((until, reason)) if self.stamp(now).is_some_and(|stamp| stamp < until) => {
                Absence::Until(until, reason)
            }
            Some(_) => Absence::MayBeOver,
        }
    }
}

impl Agent {
    pub(super) fn announce(&mut self, until: Until, reason: &str, now: Now) {
        match self.shared.announce(until, reason, now) {
            Ok(()) => self.announced(now),
            Err(why) => self.shared.output(Output::Told(Err(why))),
        }
    }

    /// The board is back, whatever was announced.
    pub(super) fn call_off(&mut self, now: Now) {
        if self.shared.records.end_absence() {
            self.shared.say(Level::Info, "back", "the announced absence is over, as somebody said");
            return self.announced(now);
        }
        self.shared.output(Output::Told(Ok("none".to_owned())));
    }

    fn announced(&mut self, now: Now) {
        self.answer_by = Some(now.up + PATIENCE);
        self.status.announced(&mut self.shared, now);
    }

    /// Whoever announced something hears of it when it is on the disk and the server has it, or none can be reached: with the
    /// power a board would lose that it is back, and be away again.
    pub(super) fn answer_announcer(&mut self, wait: &mut Option<(Up, Because)>, now: Now) {
        let Some(by) = self.answer_by else { return };
        let is_told = self.status.says("PlannedAbsence");
        let may_be_told = self.identity.is_joined() && !self.shared.is_lost();
        let is_unwritten = self.shared.records.must_wait(now.up);
        if (is_unwritten || !is_told && may_be_told) && now.up < by {
            return sooner(wait, by, Because { what: "the answer to a command", after: None });
        }
        self.answer_by = None;
        let until = self.shared.records.announced().map(|(until, _)| until.to_seconds_stamp());
        let word = if is_told { "told" } else { "kept" };
        self.shared.output(Output::Told(Ok(format!("{word} {}", until.unwrap_or_default()))));
    }
}
