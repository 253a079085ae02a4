//! Turns a machine that goes down into what the server must have of it: told at once where there is a link, and later where there
//! is none; a power cut in between, or a shutdown that was called off, changes nothing of that.

use nodepulse::agent::Input;
use nodepulse::node::Leaving;

use super::plan::Happening;
use super::planted::Planted;
use super::world::World;
use crate::model::controller::condition;

/// What is waited for at most, and a disk that writes meanwhile.
const LONGEST_US: u64 = 4_100_000;

/// Of the present process.
#[derive(Debug, Default)]
pub struct Departure {
    /// When it was told that the machine goes down.
    since_us: Option<u64>,
    /// No fault can be in the way of what is told.
    must_be_told: bool,
    pub count: u64,
}

impl Departure {
    pub fn process_ended(&mut self) {
        self.since_us = None;
    }
}

impl World {
    /// An init system says that the machine goes down. Whether it does, is not yet said.
    pub fn shut_down(&mut self) {
        if self.agent.is_none() || self.is_asleep || self.is_stopping {
            return;
        }
        self.departure.must_be_told = self.was_faultless && self.is_settled();
        let by = self.teller();
        self.events.happened("Shutdown", None, self.server_wall_us(), by, true);
        // Whoever comes back says so, and is Ready.
        self.touched();
        self.departure.count += 1;
        self.departure.since_us = Some(self.now_us);
        let kind = self.random.pick(&[Leaving::Reboot, Leaving::PowerOff, Leaving::Kexec, Leaving::Shutdown]);
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
            let node = self.server.node(&self.plan.name);
            let says = |kind: &str, status: &str| {
                node.and_then(|node| condition(node, kind)).is_some_and(|one| one["status"] == status)
            };
            if self.departure.must_be_told && !(says("Ready", "False") && says("PlannedAbsence", "True")) {
                self.violated("the machine went down, and nobody was told".to_owned());
            }
            if self.random.per_mille(600) {
                return self.cut_power();
            }
        }
        self.end_process(false);
    }
}
