//! Turns a kind of happening into what it does to the cluster, the link or the board, and peace into its end.

use nodepulse::agent::Input;
use nodepulse::api::Failure;

use super::cut_short::CUT_SHORT;
use super::judge::conditions::MONITORED;
use super::judge::events::FOREVER;
use super::plan::Happening;
use super::planted::Planted;
use super::settings::settings;
use super::shutdown::OfShutdown;
use super::stranger::Stranger;
use super::wanted::NodeIp;
use super::world::{Event, World};

/// When a service manager loses patience with a process that is to end.
const TIMEOUT_STOP_US: u64 = 90_000_000;

/// After these, a Lease and a status make everything as it should be.
const TAKES_NO_REQUESTS: [Happening; 10] = [
    Happening::LinkDown,
    Happening::LinkFlap,
    Happening::StrangerInFront,
    Happening::ServerRestart,
    Happening::BoardChange,
    Happening::Suspend,
    Happening::ClockStep,
    Happening::DiskFull,
    Happening::DiskSlow,
    Happening::ForcedUnknown,
];

impl World {
    pub fn schedule_happening(&mut self, kind: Happening) {
        let mean_seconds = self.plan.happenings.get(&kind).copied().unwrap_or(u64::MAX / 4_000_000);
        let delay_us = self.random.below(mean_seconds * 2_000_000) + 1;
        if self.now_us + delay_us < self.plan.trouble_us {
            self.schedule(delay_us, Event::Happen(kind));
        }
    }

    pub fn happen(&mut self, kind: Happening) {
        if self.peace {
            return;
        }
        self.trace.say(|| format!("*** {kind:?}"));
        let wall_us = self.server_wall_us();
        if !TAKES_NO_REQUESTS.contains(&kind) {
            self.watch.disturbed(self.now_us);
        }
        match kind {
            Happening::NodeDeleted => {
                self.cordon_ends();
                // A creation may have been sent at any time from now on.
                if self.server.delete_node(&self.plan.name) {
                    self.touched();
                }
            }
            Happening::NodeReplaced => {
                self.cordon_ends();
                self.server.replace_node(&self.plan.name, wall_us);
                self.touched();
            }
            Happening::LeaseDeleted => {
                self.server.delete_lease(&self.plan.name);
            }
            Happening::ForcedUnknown => {
                self.server.force_unknown(&self.plan.name, wall_us);
                self.touched();
            }
            Happening::LeaseDuration
            | Happening::Cordon
            | Happening::LabelWiped
            | Happening::LabelOfOthers
            | Happening::ConditionOfOthers => self.somebody_writes(kind, wall_us),
            Happening::ServerRestart => self.restart_server(),
            Happening::ServerFrozen => {
                self.server_frozen_until_us = self.now_us + self.random.between(1, 40) * 1_000_000
            }
            Happening::ServerUpgrade => "v1.37.1".clone_into(&mut self.server.git_version),
            Happening::LinkDown => self.take_link_down(90_000_000),
            Happening::LinkFlap => self.take_link_down(3_000_000),
            Happening::StrangerInFront => self.put_stranger_in_front(),
            Happening::BoardChange => {
                if self.is_asleep {
                    // Found when it wakes, with no outage in between: told at once.
                    self.watch.disturbed(self.now_us);
                }
                let had = self.board.means();
                let what = self.board.change_and_plug(&mut self.random);
                self.trace.say(|| format!("    {what}"));
                self.means_changed(had);
            }
            Happening::Away => self.announce(),
            Happening::Back => self.call_off(),
            Happening::Shutdown => self.shut_down(),
            Happening::Reload => self.reload(),
            Happening::Suspend => self.suspend(),
            Happening::Crash if self.agent.is_some() => self.end_process(false),
            Happening::PowerCut if self.agent.is_some() => self.cut_power(),
            Happening::Restart => self.stop(),
            Happening::Crash | Happening::PowerCut => {}
            Happening::DiskFull => self.storage.fails_until_us = self.now_us + self.random.between(1, 120) * 1_000_000,
            Happening::DiskSlow => self.storage.slow_until_us = self.now_us + self.random.between(1, 120) * 1_000_000,
            Happening::ClockStep => self.set_clock(),
        }
        self.schedule_happening(kind);
    }

    /// Somebody sets the board's clock, right or wrong.
    fn set_clock(&mut self) {
        let steps_s = [-21_600, -3_600, -30, 2, 900, 25_200];
        self.plan.clock_offset_us += self.random.pick(&steps_s) * 1_000_000;
        let by = self.teller();
        self.events.clock_set(by);
    }

    /// Somebody writes into an object, and makes nothing untrue that is ours to tell.
    fn somebody_writes(&mut self, kind: Happening, wall_us: i64) {
        match kind {
            Happening::LeaseDuration => {
                let seconds = self.random.pick(&[1, 15, 3600]);
                self.server.set_lease_duration(&self.plan.name, seconds);
            }
            Happening::Cordon => {
                let cordon = self.random.per_mille(500);
                let by = self.teller();
                if self.server.set_unschedulable(&self.plan.name, cordon) {
                    self.events.may_be_told("Schedulable", None, wall_us, FOREVER, by);
                }
            }
            Happening::LabelWiped => {
                let key = self.random.pick(&["kubernetes.io/os", "kubernetes.io/arch"]);
                self.server.set_label(&self.plan.name, key, None);
            }
            Happening::LabelOfOthers => {
                self.server.set_label(&self.plan.name, "node-role.kubernetes.io/edge", Some(""));
            }
            Happening::ConditionOfOthers => {
                self.server.add_foreign_condition(&self.plan.name, "KernelDeadlock", wall_us);
            }
            _ => {}
        }
    }

    /// RDY-3, RDY-4: a Node whose sizes nobody has read, or whose container runtime is down, is not Ready, and Ready once that is over.
    fn means_changed(&mut self, had: [bool; 2]) {
        let (wall_us, by) = (self.server_wall_us(), self.teller());
        let [is_sized, has_runtime] = self.board.means();
        if had != [is_sized, has_runtime] {
            self.resized_us = Some(wall_us);
        }
        if had[0] != is_sized {
            self.events.may_be_told("Ready", None, wall_us, FOREVER, by);
        }
        if had[1] != has_runtime {
            self.events.ready_may_change(wall_us, by);
        }
    }

    /// So may Ready, where what cannot be read any more had been read for a while (seed 89455).
    pub fn may_have_been_unready(&self, before_us: i64) -> bool {
        self.board.means().contains(&false) || self.resized_us.is_some_and(|at_us| at_us > before_us)
    }

    /// With the Node: the next one is schedulable, which is told (SCH-1).
    fn cordon_ends(&mut self) {
        let (wall_us, by) = (self.server_wall_us(), self.teller());
        if self.server.node(&self.plan.name).is_some_and(|node| node["spec"]["unschedulable"] == true) {
            self.events.may_be_told("Schedulable", Some("True"), wall_us, FOREVER, by);
        }
    }

    /// Somebody wrote the conditions, or the Node is gone, or new: whoever repairs that tells of it.
    pub fn touched(&mut self) {
        self.conditions.touched(self.server_wall_us());
        self.was_touched = true;
        self.storage.cut_short.touched();
        self.repair_may_be_told();
    }

    /// By each process once, until a report is accepted.
    pub fn repair_may_be_told(&mut self) {
        let by = self.teller();
        // So is what was reported to a Node that is no more, and stands on the next one without a time (seed 22548).
        let cut_short = Some(CUT_SHORT).filter(|kind| self.events.was(kind, "True"));
        for kind in MONITORED.into_iter().chain(cut_short) {
            self.events.repair_may_be_told(kind, by);
        }
    }

    fn put_stranger_in_front(&mut self) {
        let until_us = self.now_us + self.random.between(1, 90) * 1_000_000;
        self.stranger_until_us = Some((until_us, Stranger::new(&mut self.random)));
    }

    fn restart_server(&mut self) {
        self.server_down_until_us = self.now_us + self.random.between(500, 20_000) * 1_000;
        self.break_connections();
    }

    fn break_connections(&mut self) {
        self.break_watch();
        for flight in self.flights.numbers() {
            let failure = Failure::broken("Connection reset by peer");
            self.schedule(1, Event::Fail { flight, failure });
        }
    }

    fn take_link_down(&mut self, longest_us: u64) {
        let down_us = self.random.between(200_000, longest_us);
        self.link_down_until_us = self.link_down_until_us.max(self.now_us + down_us);
        if self.random.per_mille(500) {
            self.schedule(1_000, Event::LinkChanged);
        }
        let up_us = self.link_down_until_us - self.now_us;
        self.schedule(up_us, Event::LinkChanged);
    }

    pub fn link_changed(&mut self) {
        if self.agent.is_none() {
            return;
        }
        self.trace.say(|| "the link changed".to_owned());
        self.watch.hurried(false, self.now_us);
        if !self.shim.is(Planted::LinkChangeSwallowed) {
            self.feed(Input::LinkChanged);
        }
    }

    fn reload(&mut self) {
        if self.agent.is_some() && !self.is_asleep {
            self.watch.hurried(true, self.now_us);
            // Somebody may have asked for other addresses meanwhile.
            if self.random.per_mille(400) {
                let is_both = self.plan.wanted.node_ip == NodeIp::Both;
                self.plan.wanted.node_ip = if is_both { NodeIp::Detect } else { NodeIp::Both };
            }
            self.feed(Input::Reloaded(Box::new(settings(&self.plan.wanted))));
        }
    }

    fn suspend(&mut self) {
        let (shortest_s, longest_s) = self.plan.asleep_s;
        let asleep_us = self.random.between(shortest_s, longest_s) * 1_000_000;
        self.asleep_until_us = self.asleep_until_us.max(self.now_us + asleep_us);
        self.is_asleep = true;
        let left_us = self.asleep_until_us - self.now_us;
        self.schedule(left_us, Event::Resume);
    }

    pub fn resume(&mut self) {
        if self.is_asleep && self.asleep_until_us <= self.now_us {
            self.trace.say(|| "    the machine wakes".to_owned());
            self.is_asleep = false;
            self.watch.resumed(self.now_us);
            for event in std::mem::take(&mut self.asleep) {
                self.schedule(1_000, event);
            }
            if self.random.per_mille(500) {
                self.break_connections();
            }
        }
    }

    /// The whole board restarts.
    pub fn cut_power(&mut self) {
        self.trace.say(|| "    the board restarts".to_owned());
        self.end_process(true);
        self.boots += 1;
        self.boot_offset_us = -(self.now_us as i64);
        self.board.restart(self.life);
        // The power is back while the machine slept: it sleeps no more.
        self.asleep_until_us = self.now_us;
        self.resume();
        if self.plan.clock_known_from_us.is_some_and(|from_us| from_us > 0) {
            self.plan.clock_known_from_us = Some(self.now_us + self.random.below(120_000_000));
        }
    }

    /// SIGTERM.
    fn stop(&mut self) {
        self.end_with(Input::Stopping);
    }

    pub fn end_with(&mut self, input: Input) {
        if self.agent.is_none() || self.is_asleep || self.is_stopping {
            return;
        }
        self.is_stopping = true;
        let life = self.life;
        self.schedule(TIMEOUT_STOP_US, Event::OfShutdown(life, OfShutdown::Killed));
        self.told_to_stop();
        self.feed(input);
    }

    /// Every fault ends; nothing new happens.
    pub fn make_peace(&mut self) {
        self.trace.say(|| "*** peace".to_owned());
        self.peace = true;
        if !self.plan.faults.is_empty() || self.plan.happenings.contains_key(&Happening::StrangerInFront) {
            // An event that met many of them is tried every five minutes, as a stranger may ask for.
            self.patience = 6;
        }
        self.plan.faults.clear();
        let was_down = self.is_link_down();
        self.link_down_until_us = self.now_us;
        self.server_down_until_us = self.now_us;
        self.server_frozen_until_us = self.now_us;
        self.stranger_until_us = None;
        self.asleep_until_us = self.now_us;
        self.storage.fails_until_us = self.now_us;
        self.storage.slow_until_us = self.now_us;
        self.resume();
        let had = self.board.means();
        self.board.make_readable();
        self.means_changed(had);
        if self.plan.wanted.others_bytes.take().is_some() {
            // Whoever pays for it has enough.
            self.spending.begins_anew();
            self.reload();
        }
        if self.agent.is_none() {
            self.schedule(0, Event::Start);
        }
        if was_down {
            self.schedule(0, Event::LinkChanged);
        }
        if !self.plan.wanted.reregister && self.server.node(&self.plan.name).is_none() {
            self.server.replace_node(&self.plan.name, self.server_wall_us());
            self.touched();
        }
        let replay_us = self.events.waiting() * 1_700_000;
        // A Node that was deleted again and again is made again within five minutes.
        let is_missing = self.server.node(&self.plan.name).is_none() || self.watch.is_node_missing(self.now_us);
        let registration_us = if is_missing { 310_000_000 } else { 0 };
        self.schedule(self.calm_us() + replay_us + registration_us, Event::Judge);
    }
}
