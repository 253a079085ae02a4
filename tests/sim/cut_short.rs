//! Turns how a board went down into whether its Node must say that nobody had shut it down.

use nodepulse::journal::Journal;
use serde_json::Value;

use super::judge::events::FOREVER;
use super::judge::node::judge_condition;
use super::planted::Planted;
use super::world::World;
use crate::model::controller::condition;

pub const CUT_SHORT: &str = "UnexpectedReboot";
const DAY_US: u64 = 86_400_000_000;
/// A look at the board, the report that follows, and a server that is asked again.
const LATE_US: u64 = 120_000_000;

/// Of which boot a process is marked as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Of(Option<u64>),
    /// A write ended with its process, or its absence was announced.
    Unknown,
}

/// What a Node must say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    InOrder,
    CutShort,
    /// Of an earlier process of this boot, which another one cannot know.
    Anything,
}

/// What the disk and the process know of how the board went down.
#[derive(Debug)]
pub struct CutShort {
    on_disk: Mark,
    /// What the process wants there, the latest last, and how many of these are in the write under way.
    wanted: Vec<Mark>,
    written_now: usize,
    truth: Truth,
    /// The boot of the last process that began.
    began_in: Option<u64>,
    /// The present process found it, and does not depend on the Node.
    is_first: bool,
    /// It has looked at the board.
    is_dated: bool,
}

impl Default for CutShort {
    fn default() -> CutShort {
        let (truth, wanted) = (Truth::InOrder, Vec::new());
        let (on_disk, began_in) = (Mark::Of(None), None);
        CutShort { on_disk, wanted, written_now: 0, truth, began_in, is_first: true, is_dated: false }
    }
}

impl CutShort {
    /// With what is wanted by now: what is wanted in the same moment and after it has to wait (seed 79086230).
    pub fn write_begins(&mut self) {
        self.written_now = self.wanted.len();
    }

    /// The write is on the disk, or not.
    pub fn written(&mut self, is_there: bool) {
        let count = if is_there { self.written_now } else { 0 };
        if let Some(mark) = self.wanted.drain(..count).next_back() {
            self.on_disk = mark;
        }
        self.written_now = 0;
    }

    pub fn process_ended(&mut self) {
        self.wanted.clear();
        self.written_now = 0;
    }

    /// Somebody wrote the Node's conditions, or made or removed the Node.
    pub fn touched(&mut self) {
        if !self.is_first && self.truth == Truth::CutShort {
            self.truth = Truth::Anything;
        }
    }
}

impl World {
    /// A process was told to stop, or that the machine goes down.
    pub fn told_to_stop(&mut self) {
        self.storage.cut_short.wanted.push(Mark::Of(None));
    }

    /// The machine goes on after all.
    pub fn goes_on(&mut self) {
        self.storage.cut_short.wanted.push(Mark::Of(Some(self.boots)));
    }

    /// What a process that begins finds, and has to tell.
    pub fn find_how_it_went_down(&mut self) {
        let says = |status: &str| {
            let node = self.server.node(&self.plan.name);
            node.and_then(|node| condition(node, CUT_SHORT)).is_some_and(|one| one["status"] == status)
        };
        let (is_said, boot, by, at_us) = (says("True"), self.boots, self.teller(), self.server_wall_us());
        let is_known_present = self.absences.is_known_present();
        let cut_short = &mut self.storage.cut_short;
        let is_first = cut_short.began_in.replace(boot) != Some(boot);
        let before = cut_short.truth;
        cut_short.truth = match cut_short.on_disk {
            Mark::Of(Some(of)) if of != boot && is_known_present => Truth::CutShort,
            Mark::Of(None) if is_first => Truth::InOrder,
            Mark::Of(_) if !is_first && before == Truth::CutShort && is_said => before,
            Mark::Of(_) if !is_first && before == Truth::InOrder && !is_said => before,
            _ => Truth::Anything,
        };
        let is_new =
            matches!(cut_short.on_disk, Mark::Of(Some(of)) if of != boot) || cut_short.on_disk == Mark::Unknown;
        cut_short.is_first = is_first || is_new;
        cut_short.wanted.push(Mark::Of(Some(boot)));
        cut_short.is_dated = false;
        let is_certain = cut_short.truth == Truth::CutShort;
        if is_new {
            self.events.happened(CUT_SHORT, Some("True"), at_us, by, is_certain);
        }
        if self.events.was(CUT_SHORT, "True") {
            // It is over after a shutdown in good order, or a day later.
            self.events.happened(CUT_SHORT, Some("False"), at_us, by, false);
            self.events.may_be_told(CUT_SHORT, Some("False"), at_us, FOREVER, by);
        }
    }

    /// That it is over is dated by the first look of the process, not by its start (seed 76089750).
    pub fn date_how_it_went_down(&mut self) {
        if !std::mem::replace(&mut self.storage.cut_short.is_dated, true) {
            let by = self.teller();
            self.events.over_by(CUT_SHORT, by);
        }
    }

    /// A planted fault: nobody finds that a process ran.
    pub fn lose_run(&self, journal: &mut Journal) {
        let runs = journal.waiting().filter(|one| format!("{:?}", one.what).starts_with("ProcessRuns"));
        let runs: Vec<_> = runs.map(|one| one.sequence).collect();
        if self.shim.is(Planted::RunForgotten) {
            runs.into_iter().for_each(|sequence| journal.forget(sequence));
        }
    }

    /// What anybody sees of it with kubectl. Answers how many conditions it is.
    pub fn judge_last_boot(&self, node: &Value) -> Result<usize, String> {
        let stored = condition(node, CUT_SHORT);
        let status = stored.and_then(|stored| stored["status"].as_str());
        let up_us = self.now().up.as_duration().as_micros() as u64;
        let truth = match self.storage.cut_short.truth {
            _ if up_us > DAY_US + LATE_US => Truth::InOrder,
            _ if up_us > DAY_US - LATE_US => Truth::Anything,
            truth => truth,
        };
        match (truth, status) {
            (Truth::InOrder, Some("True")) => Err(format!("{CUT_SHORT} of a board that nobody cut short: {stored:?}")),
            (Truth::CutShort, _) => judge_condition(node, CUT_SHORT, "True").map(|()| 1),
            (_, None) => Ok(0),
            (_, Some(status)) => judge_condition(node, CUT_SHORT, status).map(|()| 1),
        }
    }
}
