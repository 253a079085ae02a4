//! Turns starts and ends of the agent's process into what it finds, and what is lost with it.

use nodepulse::agent::{Agent, CredentialDates, Input, Ticket};
use nodepulse::api::{Answer, Document};
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::{Facts, LastReset};

use super::board::Board;
use super::facts::{facts, readings};
use super::judge::conditions::{CLOCK, How, KINDS, Moment, Remains, TOLERANCE_US};
use super::judge::events::{FOREVER, Teller};
use super::planted::Planted;
use super::settings::settings;
use super::world::{Event, World};
use crate::model::controller::condition;
use crate::model::stamp;

impl World {
    pub fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.life += 1;
        self.given = None;
        let seed = self.random.next();
        self.trace.say(|| "the process starts".to_owned());
        let boot = BootId::parse(&self.board.boot_id);
        let mut bytes = self.storage.disk.read();
        if self.shim.is(Planted::NumberingRestarts) && self.events.waiting() == 0 {
            bytes.clear();
        }
        let (mut journal, recovery) = Journal::recover(&bytes, self.plan.wanted.journal_quota_bytes, boot);
        self.trace.say(|| format!("   {recovery}"));
        self.lose_announcement(&mut journal);
        self.lose_run(&mut journal);
        let agent = Agent::new(
            settings(&self.plan.wanted),
            self.plan.name.clone(),
            seed,
            journal,
            &LastReset::default(),
            self.now(),
        );
        self.agent = Some(Box::new(agent));
        self.note_start();
        self.feed(Input::Credentials(CredentialDates::default()));
        self.feed(Input::Woke);
    }

    pub fn said_told(&mut self, ticket: Ticket) {
        self.feed(Input::Answered(ticket, Answer { date: None, result: Ok(Document::Nothing) }));
    }

    /// What there is to tell of that.
    fn note_start(&mut self) {
        let (by, at_us) = (self.teller(), self.server_wall_us());
        if by.boot > 0 {
            // By the journal, where it knows of the boot before, or by the Node, which is read later.
            if !self.events.has_synced() {
                self.events.may_be_told("Rebooted", None, at_us, FOREVER, by);
            } else if self.events.knows_boot(by.boot) != Some(true) {
                let is_certain = self.events.knows_boot(by.boot).is_none();
                self.events.happened("Rebooted", None, at_us, by, is_certain);
            }
        }
        self.note_named_boot();
        if !self.is_repaired() {
            self.repair_may_be_told();
        }
        self.events.happened("Starting", None, at_us, by, true);
        self.find_how_it_went_down();
        if self.departure.count > 0 {
            // Who was said to go down is Ready again.
            self.events.may_be_told("Ready", Some("True"), at_us, FOREVER, by);
        }
        if self.board.runtime.is_some() {
            // What it became while nobody looked is found now (seed 88103849).
            self.events.ready_may_change(at_us, by);
        }
        self.events.may_be_told("Schedulable", None, at_us, FOREVER, by);
    }

    /// MI-5: by a Node that names another boot a process tells that there was one, until a report is accepted.
    pub fn note_named_boot(&mut self) {
        let named = self.server.node(&self.plan.name).and_then(|node| node["status"]["nodeInfo"]["bootID"].as_str());
        // One that is yet to begin looks at the Node itself.
        if self.agent.is_some() && named.is_some_and(|named| named != self.board.boot_id) {
            let (by, at_us) = (self.teller(), self.server_wall_us());
            self.events.may_be_told("Rebooted", None, at_us, FOREVER, by);
        }
    }

    /// Since when the Node says that each condition is what it is.
    pub fn stored_times(&self) -> [Option<i64>; KINDS.len()] {
        let node = self.server.node(&self.plan.name);
        let stored = |kind| node.and_then(|node| condition(node, kind));
        KINDS.map(|kind| stored(kind).and_then(|stored| stamp::parse(stored["lastTransitionTime"].as_str()?)))
    }

    /// Who tells, just now.
    pub fn teller(&self) -> Teller {
        let (is_dated, was_deceived) = (self.is_dated(), self.was_deceived);
        Teller { life: self.life, boot: self.boots, is_dated, was_deceived }
    }

    /// The board's clock is near the server's, or the agent heard the time twice: one witness is none.
    pub fn is_dated(&self) -> bool {
        let off_us = self.now().wall.map(|wall| (wall.unix_us() - self.server_wall_us()).abs());
        self.dates_heard.0 >= 2 || off_us.is_some_and(|off_us| off_us <= TOLERANCE_US)
    }

    /// The process is gone, and with the power what was not on disk.
    pub fn end_process(&mut self, power: bool) {
        self.agent = None;
        self.life += 1;
        self.is_stopping = false;
        (self.dates_heard.0, self.was_deceived) = (0, false);
        self.has_missed_node = false;
        self.flights.forget_all();
        self.watched.forget();
        self.watch.process_ended();
        self.meter.process_ended();
        self.spending.begins_anew();
        self.disk_of_dead(power);
        self.told.clear();
        self.storage.cut_short.process_ended();
        self.absences.process_ended();
        self.departure.process_ended();
        self.reach.process_ended(self.events.has_last("UplinkRestored"));
        self.events.process_ended(self.life - 1);
        let (events, node) = (&self.events, self.server.node(&self.plan.name));
        self.conditions.process_ended(power, |kind, since_us, status| {
            let stored = node.and_then(|node| condition(node, kind)).filter(|stored| stored["status"] == status);
            let stored_since = stored.and_then(|stored| stamp::parse(stored["lastTransitionTime"].as_str()?));
            let is_stored = stored_since.map(|stored_us| stored_us >= since_us - TOLERANCE_US);
            // What is told is no record any more: that it was otherwise meanwhile, and the Node never said so, the next process
            // does not know (seed 120475121).
            let is_over = is_stored == Some(false) && events.has_event_of(kind, status, since_us - TOLERANCE_US);
            match events.is_last_synced(kind, status) {
                true if !is_over => Remains::OnDisk,
                _ if is_stored == Some(true) => Remains::OnNode,
                _ => Remains::Nowhere,
            }
        });
        let delay_us = self.random.between(100, 30_000) * 1_000;
        self.schedule(delay_us, Event::Start);
        let last = stamp::micros(stamp::LAST_US);
        if self.random.per_mille(100) && self.server.set_renew_time(&self.plan.name, &last) {
            self.trace.say(|| "    somebody dates the Lease to the last of all stamps".to_owned());
            self.watch.disturbed(self.now_us);
        }
    }

    /// What the agent is about to see is what is true from now on.
    pub fn look(&mut self) {
        self.date_how_it_went_down();
        self.board.looked_at();
        let (by, server_us) = (self.teller(), self.server_wall_us());
        let moment = Moment { now_us: self.now_us, server_us, is_dated: by.is_dated, was_deceived: by.was_deceived };
        for seen in self.conditions.look(&self.board, &self.plan.wanted.eviction, moment) {
            if ![How::Again, How::First].contains(&seen.how) {
                self.trace.say(|| format!("    {} is {} from now on", seen.kind, seen.status));
            }
            if seen.kind == CLOCK && seen.how == How::Otherwise && self.events.knows_node(self.life) {
                // It was not sure before, and knows what the Node says: a change of this moment, if it is one.
                self.events.happened(seen.kind, Some(seen.status), server_us, by, false);
            } else {
                self.events.seen(seen, server_us, by);
            }
            if seen.how == How::Gone {
                self.events.may_be_told(seen.kind, Some(seen.status), server_us, FOREVER, by);
            }
            let stored = self.stored_statuses();
            let says = KINDS.iter().position(|kind| *kind == seen.kind).and_then(|place| stored[place].as_deref());
            // A status that came late beside the words of Unknown: this process may have read the Unknown (seed 71324605).
            let node = self.server.node(&self.plan.name);
            let reason = node.and_then(|node| condition(node, seen.kind)?["reason"].as_str());
            let says = if reason.is_some_and(|reason| reason.ends_with("Unreadable")) { Some("Unknown") } else { says };
            if seen.kind == CLOCK && seen.how == How::Otherwise && says == Some(seen.status) {
                // What an earlier process found first, nobody heard of: by the Node it was always so (seed 400920442).
                self.conditions.was_said(seen.kind);
            }
            let is_said = match seen.how {
                How::Changed | How::Gone => true,
                // By the Node that this process made, whatever became of that (seeds 123575, 337866).
                How::First => !self.was_touched,
                // Who was not sure before has said what the Node says.
                How::Otherwise | How::Again if seen.kind == CLOCK => says == Some(seen.status),
                // A report that came late brought a status of before, and this process knows of nothing else (seed 500930313).
                How::Again if self.stray_write_us.is_some() => says == Some(seen.status),
                // Nor does a report say it that came late upon a new Node (seed 76150641).
                How::Otherwise | How::Again => says.is_some_and(|says| ["True", "False"].contains(&says)),
            };
            if !is_said {
                // What could not be read, a Node calls Unknown: that it is no more is a change (seed 75).
                self.events.may_be_told(seen.kind, Some(seen.status), server_us, server_us, by);
            }
            if says == Some("Unknown") && !self.is_repaired() {
                // The controller's Unknown still stands there, and whoever repairs it may date that (seed 20105612).
                self.conditions.touched(server_us);
            }
        }
    }

    /// As the shell hands it over: machine and network only when they are not those of the last time.
    pub fn probe_result(&mut self) -> Input {
        let board = self.shim.board(&self.board);
        let is_known = |given: &Board| {
            Board {
                memory_available_bytes: given.memory_available_bytes,
                disk: given.disk,
                pids: given.pids,
                clock: given.clock,
                ..board.clone()
            } == *given
        };
        if self.given.as_ref().is_some_and(is_known) {
            return Input::Looked { readings: Box::new(readings(board)), board: None };
        }
        self.given = Some(board.clone());
        let Facts { machine, readings, network } = facts(board, &self.plan.name);
        Input::Looked { readings: Box::new(readings), board: Some(Box::new((machine, network))) }
    }
}
