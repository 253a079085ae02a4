//! Turns a machine that goes down into what the server must have of it: told at once where there is a link, and later where there
//! is none; a power cut in between, or a shutdown that was called off, changes nothing of that.

use nodepulse::agent::Input;
use nodepulse::node::Leaving;

use super::absence::AWAY;
use super::judge::events::FOREVER;
use super::judge::wire::SHARE_US;
use super::plan::Happening;
use super::planted::Planted;
use super::world::{Event, World};
use crate::model::controller::condition;

/// How a shutdown goes on.
#[derive(Debug, Clone, Copy)]
pub enum OfShutdown {
    /// SIGTERM.
    Terminated,
    /// It is called off: the machine goes on.
    CalledOff,
    /// A process that was asked to end has taken too long.
    Killed,
}

/// What is waited for at most, and a disk that writes meanwhile.
const LONGEST_US: u64 = 4_100_000;
const MINUTE_US: u64 = 60_000_000;

/// Of the present process.
#[derive(Debug, Default)]
pub struct Departure {
    /// When it was told that the machine goes down.
    since_us: Option<u64>,
    /// Since when logind waits for it.
    locked_us: Option<u64>,
    /// No fault can be in the way of what is told.
    must_be_told: bool,
    pub count: u64,
    /// Logind has said so, and not yet whether it does.
    pub is_going: bool,
    /// Requests that went out meanwhile.
    pub requests: u64,
    called_off_us: Option<u64>,
}

impl Departure {
    pub fn process_ended(&mut self) {
        *self = Departure { must_be_told: self.must_be_told, count: self.count, ..Departure::default() };
    }
}

impl World {
    /// An init system says that the machine goes down. Whether it does, is not yet said.
    pub fn shut_down(&mut self) {
        if self.agent.is_none() || self.is_asleep || self.is_stopping || self.departure.is_going {
            return;
        }
        self.departure.must_be_told = self.was_faultless && self.is_settled();
        let by = self.teller();
        self.events.happened("Shutdown", None, self.server_wall_us(), by, true);
        // Whoever comes back says so, and is Ready.
        self.touched();
        self.departure.count += 1;
        let kind = self.random.pick(&[Leaving::Reboot, Leaving::PowerOff, Leaving::Kexec, Leaving::Shutdown]);
        if self.shim.is(Planted::CallOffUnheard) || self.random.per_mille(500) {
            return self.lock(kind);
        }
        self.departure.since_us = Some(self.now_us);
        if self.shim.is(Planted::ShutdownUnheard) {
            return self.end_with(Input::Stopping);
        }
        self.end_with(Input::Leaving(kind));
        if self.random.per_mille(100) && self.is_stopping {
            // Sooner than anybody thought.
            self.departure.must_be_told = false;
            self.cut_power();
        }
    }

    /// Logind says so, and waits until its lock goes. It does what it has to do some time later, or somebody calls it off.
    fn lock(&mut self, kind: Leaving) {
        (self.departure.locked_us, self.departure.is_going) = (Some(self.now_us), true);
        let is_called_off = self.random.per_mille(400);
        let step = if is_called_off { OfShutdown::CalledOff } else { OfShutdown::Terminated };
        let delay_us = self.random.between(100, 12_000) * 1_000;
        self.schedule(delay_us, Event::OfShutdown(self.life, step));
        self.told_to_stop();
        if !self.shim.is(Planted::ShutdownUnheard) {
            self.feed(Input::GoesDown(kind));
        }
    }

    /// The agent lets the machine go on.
    pub fn lock_released(&mut self) {
        self.trace.say(|| "   lets the machine go on".to_owned());
        let Some(since_us) = self.departure.locked_us.take() else { return };
        let spent_us = self.now_us - since_us;
        if spent_us > LONGEST_US && !self.plan.happenings.contains_key(&Happening::Suspend) {
            self.violated(format!("a lock was held for {} ms", spent_us / 1000));
        }
        self.must_be_told();
    }

    /// Who has told that the machine goes down waits for that.
    pub fn check_wait(&mut self, checked: Result<(), String>) {
        let is_idle = checked.as_ref().is_err_and(|why| why.ends_with("nothing in flight"));
        if !(is_idle && self.departure.is_going) {
            self.check(checked);
        }
    }

    /// Nor does it ask for anything but its Lease (seed 24878).
    pub fn is_node_asked_for(&self) -> Result<(), String> {
        if self.departure.is_going { Ok(()) } else { self.watch.is_node_asked_for(self.now_us) }
    }

    /// What went out while the machine was to go down did not wait for its share of the minute: what comes after it does (seed
    /// 80379694).
    pub fn is_lease_in_time(&self) -> Result<(), String> {
        let is_due_back = self.departure.called_off_us.is_some_and(|at_us| self.now_us - at_us < MINUTE_US);
        let waits_us = if is_due_back { self.departure.requests * SHARE_US } else { 0 };
        self.watch.is_lease_in_time(self.now_us.saturating_sub(waits_us))
    }

    fn must_be_told(&mut self) {
        let node = self.server.node(&self.plan.name);
        let says = |kind: &str, status: &str| {
            node.and_then(|node| condition(node, kind)).is_some_and(|one| one["status"] == status)
        };
        let is_told = says("Ready", "False") && says("PlannedAbsence", "True");
        if std::mem::take(&mut self.departure.must_be_told) && !is_told {
            self.violated("the machine went down, and nobody was told".to_owned());
        }
    }

    pub fn shutdown_goes_on(&mut self, step: OfShutdown) {
        match step {
            OfShutdown::Killed => self.end_process(false),
            _ if self.is_stopping || !self.departure.is_going => {}
            OfShutdown::Terminated => {
                self.departure.since_us = Some(self.now_us);
                self.end_with(Input::Stopping);
            }
            OfShutdown::CalledOff => {
                self.trace.say(|| "    the shutdown is called off".to_owned());
                self.departure.is_going = false;
                self.departure.must_be_told = false;
                self.departure.called_off_us = Some(self.now_us);
                self.watch.resumed(self.now_us);
                self.goes_on();
                let (by, at_us) = (self.teller(), self.server_wall_us());
                self.events.may_be_told("Shutdown", None, at_us, FOREVER, by);
                self.events.may_be_told("Ready", Some("True"), at_us, FOREVER, by);
                // Without a record, so that it waits for no turn (seed 76363726).
                self.events.may_be_told(AWAY, Some("False"), at_us, FOREVER, by);
                if !self.shim.is(Planted::CallOffUnheard) {
                    self.feed(Input::GoesOn);
                }
            }
        }
    }

    /// All is well, and the agent knows it.
    fn is_settled(&self) -> bool {
        let is_ready = self.stored_sizes().get("Ready").is_some_and(|ready| ready == "True");
        let silent_us = self.server_wall_us() - self.lease_renewed_at_us;
        let is_reached = !self.is_link_down() && !self.is_server_down() && self.server_frozen_until_us <= self.now_us;
        let is_alone = self.stranger_until_us.is_none() && !self.was_touched && !self.plan.is_disk_slow();
        is_ready
            && is_reached
            && is_alone
            && self.reported.is_some()
            && silent_us < i64::from(self.plan.wanted.lease_s) * 250_000
    }

    /// The process has ended by itself.
    pub fn stopped(&mut self) {
        self.trace.say(|| "   has stopped".to_owned());
        if let Some(since_us) = self.departure.since_us.take() {
            let spent_us = self.now_us - since_us;
            // A machine that slept meanwhile has lost no time.
            if spent_us > LONGEST_US && !self.plan.happenings.contains_key(&Happening::Suspend) {
                self.violated(format!("a shutdown took {} ms", spent_us / 1000));
            }
            self.must_be_told();
            if self.random.per_mille(600) {
                return self.cut_power();
            }
        }
        self.end_process(false);
    }
}
