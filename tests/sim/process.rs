//! Turns starts and ends of the agent's process into what it finds, and what is lost with it.

use nodepulse::agent::{Agent, CredentialDates, Input};
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::Facts;
use nodepulse::time::Wall;

use super::truth::{self, Remains};
use super::world::{EPOCH_US, Event, NODE, World};
use crate::model::controller::condition;

impl World {
    pub fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.life += 1;
        self.given = None;
        let seed = self.random.next();
        self.trace.say(|| "the process starts".to_owned());
        let boot = self.boot();
        let bytes = self.shim.journal(self.storage.disk.read());
        let (journal, recovery) = Journal::recover(&bytes, self.plan.journal_quota_bytes, boot);
        self.trace.say(|| format!("   {recovery}"));
        let agent = Agent::new(self.plan.settings.clone(), NODE.to_owned(), seed, journal, "", self.now());
        self.agent = Some(Box::new(agent));
        self.feed(Input::Credentials(CredentialDates::default()));
        self.feed(Input::Woke);
    }

    pub fn boot(&self) -> BootId {
        BootId::parse(self.board.facts.machine.boot_id.as_deref().unwrap_or_default())
    }

    /// The process is gone, and with the power what was not on disk.
    pub fn end_process(&mut self, power: bool) {
        self.agent = None;
        self.life += 1;
        self.is_stopping = false;
        self.dates_heard.0 = 0;
        self.has_missed_node = false;
        self.flights.forget_all();
        self.watch.process_ended();
        self.disk_of_dead(power);
        self.ledger.process_ended();
        let (ledger, node) = (&self.ledger, self.server.node(NODE));
        self.truth.process_ended(power, |kind, since_us, status| {
            if ledger.has_change(kind, status, u64::try_from(since_us - EPOCH_US).unwrap_or(0)) {
                return Remains::OnDisk;
            }
            let stored = node.and_then(|node| condition(node, kind)).filter(|stored| stored["status"] == status);
            let stored_since = stored.and_then(|stored| Wall::parse_stamp(stored["lastTransitionTime"].as_str()?));
            let is_stored = stored_since.is_some_and(|stored| stored.unix_us() >= since_us - truth::TOLERANCE_US);
            if is_stored { Remains::OnNode } else { Remains::Nowhere }
        });
        let delay_us = self.random.between(100, 30_000) * 1_000;
        self.schedule(delay_us, Event::Start);
        if self.random.per_mille(100) && self.server.set_renew_time(NODE, &Wall::LAST.to_micro_stamp()) {
            self.trace.say(|| "    somebody dates the Lease to the last of all stamps".to_owned());
            self.watch.disturbed(self.now_us);
        }
    }

    /// What the agent is about to see is what is true from now on.
    pub fn look(&mut self) {
        let server_us = self.server_wall_us();
        let off_us = self.now().wall.map(|wall| (wall.unix_us() - server_us).abs());
        // One witness is none.
        let is_dated = self.dates_heard.0 >= 2 || off_us.is_some_and(|off_us| off_us <= truth::TOLERANCE_US);
        let moment = truth::Moment { now_us: self.now_us, server_us, is_dated };
        let period = self.plan.settings.eviction_pressure_transition_period;
        self.truth.look(&self.board.facts, period, moment);
    }

    /// As the shell hands it over: machine and network only when they are not those of the last time.
    pub fn probe_result(&mut self) -> Input {
        let facts = self.shim.facts(&self.board.facts);
        let is_known = |given: &&Facts| given.machine == facts.machine && given.network == facts.network;
        if self.given.as_ref().filter(is_known).is_some() {
            return Input::Readings(Box::new(facts.readings.clone()));
        }
        self.given = Some(facts.clone());
        Input::Facts(Box::new(facts.clone()))
    }
}
