//! Turns a seed into a world: one agent, one board, one server, a network with faults, two clocks, then peace.
//!
//! Time is a number that jumps from event to event, so ten minutes take milliseconds.

use std::collections::BTreeMap;

use nodepulse::agent::{Agent, CredentialDates, Input, Output, Ticket};
use nodepulse::api::{Failure, Operation, Target};
use nodepulse::time::Up;

use super::absence::Absences;
use super::board::Board;
use super::judge::budget::Spending;
use super::judge::conditions::{Conditions, KINDS};
use super::judge::events::Events;
use super::judge::excuse::{Excuse, Excuses};
use super::judge::reach::Reach;
use super::judge::requests::Reported;
use super::judge::wire::{Said, Watch};
use super::meter::Meter;
use super::network::{Flights, Orders};
use super::plan::{Happening, Plan};
use super::planted::{Planted, Shim};
use super::random::Random;
use super::shutdown::{Departure, OfShutdown};
use super::storage::Storage;
use super::stranger::Stranger;
use super::trace::Trace;
use super::watched::{OfWatch, Watched};
use crate::model::ModelServer;

/// 2026-01-01T00:00:00Z, by the server's clock, when a world begins.
pub const EPOCH_US: i64 = 1_767_225_600_000_000;
/// More outputs than this for one input are a loop.
const OUTPUTS_PER_INPUT: usize = 64;
pub const JUDGEMENTS: u64 = 2;

#[derive(Debug)]
pub enum Event {
    Start,
    Wake {
        number: u64,
    },
    Facts {
        life: u64,
    },
    Credentials {
        life: u64,
    },
    /// A planted fault keeps a request back.
    Held {
        ticket: Ticket,
        operation: Operation,
    },
    Arrive {
        flight: u64,
        bytes: Vec<u8>,
        orders: Orders,
    },
    Deliver {
        flight: u64,
        bytes: Vec<u8>,
        closes: bool,
        by_stranger: bool,
        said: Said,
    },
    Fail {
        flight: u64,
        failure: Failure,
    },
    /// What may have lain there unread is not to lie there any longer.
    Read {
        flight: u64,
    },
    LinkChanged,
    /// The disk ends a write.
    Written {
        number: u64,
    },
    /// A planted fault says so before it is.
    SaidTold {
        ticket: Ticket,
    },
    /// A planted fault says so before it does.
    SaidWritten {
        life: u64,
    },
    /// To the process of that number.
    OfShutdown(u64, OfShutdown),
    ForgetFlight {
        flight: u64,
    },
    Resume,
    /// The link is gone for good, until peace.
    Offline,
    Weigh,
    Controllers,
    OfWatch(OfWatch),
    Happen(Happening),
    Peace,
    Judge,
}

/// How a world ended.
#[derive(Debug)]
pub struct Outcome {
    pub hash: u64,
    pub violation: Option<String>,
    pub lines: Vec<String>,
    pub requests: u64,
    pub busiest: usize,
    pub simulated_us: u64,
    pub excuses: Excuses,
}

pub struct World {
    pub plan: Plan,
    pub random: Random,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub agent: Option<Box<Agent>>,
    /// Counts processes; what an earlier one asked for is not for the present one.
    pub life: u64,
    wait_number: u64,
    pub boot_offset_us: i64,
    pub board: Board,
    /// What the last whole answer to a probe of this process was.
    pub given: Option<Board>,
    pub storage: Storage,
    pub conditions: Conditions,
    pub events: Events,
    pub absences: Absences,
    pub departure: Departure,
    pub excuses: Excuses,
    /// Statuses of conditions that this process has told.
    pub told: BTreeMap<&'static str, String>,
    pub reach: Reach,
    pub reported: Option<Reported>,
    /// Statuses of our conditions on the Node that the server showed last.
    pub shown: [Option<String>; KINDS.len()],
    /// Counts restarts of the board.
    pub boots: u64,
    /// The process was asked to end.
    pub is_stopping: bool,
    /// How many answers in a row have told this process the right time, and how many said any to all of them.
    pub dates_heard: (u64, u64),
    pub server: ModelServer,
    pub target: Target,
    pub flights: Flights,
    pub watch: Watch,
    pub watched: Watched,
    pub meter: Meter,
    pub spending: Spending,
    pub shim: Shim,
    pub trace: Trace,
    pub violation: Option<String>,
    pub link_down_until_us: u64,
    pub server_down_until_us: u64,
    pub server_frozen_until_us: u64,
    /// Who answers in the server's place, and until when.
    pub stranger_until_us: Option<(u64, Stranger)>,
    /// The board's clock and a wrong answer agreed in this process.
    pub was_deceived: bool,
    /// The server itself told this process that the Node is not there.
    pub has_missed_node: bool,
    pub asleep_until_us: u64,
    pub is_asleep: bool,
    /// What comes for the agent while the machine sleeps.
    pub asleep: Vec<Event>,
    pub peace: bool,
    pub judged: u64,
    pub requests_at_judgement: u64,
    /// When the server last accepted a renewal, by its clock.
    pub lease_renewed_at_us: i64,
    /// A creation that came late made the Lease: nobody knows that it is to be stripped.
    pub lease_made_by_stray: bool,
    /// When the server last did to the Node what came late or twice, and whether no report was accepted since.
    pub stray_write_us: Option<u64>,
    pub is_report_awaited: bool,
    /// Length of the longest text that the agent's whole state made, where it is looked at.
    pub largest_agent_bytes: usize,
    /// No request was harmed on its way, from the beginning.
    pub was_faultless: bool,
    pub had_budget: bool,
    /// How many minutes more what waits may take to be told.
    pub patience: u64,
    /// When the board's sizes were last read again, or no more.
    pub resized_us: Option<i64>,
    /// Somebody else wrote conditions, or made or removed the Node.
    pub was_touched: bool,
}

impl World {
    /// A world that must do without this excuse.
    pub fn without(seed: u64, denied: Excuse) -> World {
        let mut world = World::new(seed, None, false);
        world.excuses = Excuses::without(Some(denied));
        world
    }

    pub fn new(seed: u64, fault: Option<Planted>, keep_lines: bool) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random).with_budget(seed).with_watch(seed).with_absences(seed).with_shutdowns(seed);
        World::of_plan(plan, random, fault, Trace::new(keep_lines)).begun(seed)
    }

    /// A world before its first moment.
    pub fn of_plan(plan: Plan, mut random: Random, fault: Option<Planted>, trace: Trace) -> World {
        World {
            board: Board::new(&mut random),
            given: None,
            storage: Storage::default(),
            conditions: Conditions::default(),
            events: Events::new(fault == Some(Planted::DropsNotRecorded)),
            absences: Absences::default(),
            departure: Departure::default(),
            excuses: Excuses::default(),
            told: BTreeMap::new(),
            reach: Reach::default(),
            reported: None,
            shown: [const { None }; KINDS.len()],
            boots: 0,
            is_stopping: false,
            dates_heard: (0, 0),
            boot_offset_us: plan.boot_us as i64,
            random,
            now_us: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            agent: None,
            life: 0,
            wait_number: 0,
            server: ModelServer::default(),
            target: Target {
                authority: "api.example:6443".to_owned(),
                path_prefix: String::new(),
                node_name: plan.name.clone(),
                bearer_token: None,
            },
            flights: Flights::default(),
            watch: Watch::new(plan.faults.is_empty(), plan.is_disk_slow(), &plan.wanted),
            watched: Watched::default(),
            meter: Meter::default(),
            spending: Spending::default(),
            shim: Shim::new(fault),
            trace,
            violation: None,
            link_down_until_us: 0,
            server_down_until_us: 0,
            server_frozen_until_us: 0,
            stranger_until_us: None,
            was_deceived: false,
            has_missed_node: false,
            asleep_until_us: 0,
            is_asleep: false,
            asleep: Vec::new(),
            peace: false,
            judged: 0,
            requests_at_judgement: 0,
            lease_renewed_at_us: 0,
            lease_made_by_stray: false,
            stray_write_us: None,
            is_report_awaited: false,
            largest_agent_bytes: 0,
            was_faultless: plan.faults.is_empty(),
            had_budget: plan.wanted.others_bytes.is_some(),
            patience: 0,
            resized_us: None,
            was_touched: false,
            plan,
        }
    }

    /// With what happens first.
    pub fn begun(mut self, seed: u64) -> World {
        self.trace.say(|| format!("seed {seed}: {}", self.plan.describe()));
        self.schedule(0, Event::Start);
        self.schedule(1_000_000, Event::Controllers);
        self.schedule(self.plan.trouble_us, Event::Peace);
        if let Some(offline_from_us) = self.plan.offline_from_us {
            self.schedule(offline_from_us, Event::Offline);
        }
        for kind in self.plan.happenings.clone().into_keys() {
            self.schedule_happening(kind);
        }
        self
    }

    /// To the end, or to the first violation.
    pub fn run(mut self) -> Outcome {
        self.play();
        Outcome {
            hash: self.trace.hash(),
            violation: self.violation,
            lines: self.trace.into_lines(),
            requests: self.watch.requests,
            busiest: self.watch.busiest,
            simulated_us: self.now_us,
            excuses: self.excuses,
        }
    }

    pub fn play(&mut self) {
        while self.step() {}
        if let Some(violation) = &self.violation {
            self.trace.say(|| format!("VIOLATION: {violation}"));
        }
    }

    /// The next thing that happens; false at the end.
    pub fn step(&mut self) -> bool {
        if self.violation.is_some() || self.judged >= JUDGEMENTS {
            return false;
        }
        let Some(((moment_us, _), event)) = self.queue.pop_first() else { return false };
        self.now_us = moment_us;
        self.trace.at(moment_us);
        if self.agent.is_some() && !self.is_asleep && !self.is_stopping {
            let in_time = self.is_lease_in_time();
            self.check(in_time.and_then(|()| self.is_node_asked_for()));
        }
        self.happens(event);
        self.look_for_watch();
        true
    }

    fn happens(&mut self, event: Event) {
        let for_agent = matches!(
            event,
            Event::Wake { .. }
                | Event::Facts { .. }
                | Event::Credentials { .. }
                | Event::Deliver { .. }
                | Event::Fail { .. }
                | Event::Read { .. }
                | Event::OfWatch(OfWatch::Tells(..) | OfWatch::Ends(..))
                | Event::LinkChanged
                | Event::Written { .. }
                | Event::SaidWritten { .. }
                | Event::OfShutdown(..)
                | Event::ForgetFlight { .. }
        );
        if for_agent && self.is_asleep {
            return self.asleep.push(event);
        }
        match event {
            Event::Start => self.start(),
            Event::Wake { number } if number == self.wait_number => self.feed(Input::Woke),
            Event::Facts { life } if life == self.life => {
                self.count();
                self.watch.probing = false;
                self.look();
                let input = self.probe_result();
                self.feed(input);
            }
            Event::Credentials { life } if life == self.life => {
                self.feed(Input::Credentials(CredentialDates::default()))
            }
            Event::SaidWritten { life } if life == self.life => self.feed(Input::Written { done: true }),
            Event::OfShutdown(life, step) if life == self.life => self.shutdown_goes_on(step),
            Event::Wake { .. }
            | Event::Facts { .. }
            | Event::Credentials { .. }
            | Event::SaidWritten { .. }
            | Event::OfShutdown(..) => {}
            Event::SaidTold { ticket } => self.said_told(ticket),
            Event::Written { number } => self.written(number),
            Event::Held { ticket, operation } => self.send(ticket, operation),
            Event::Arrive { flight, bytes, orders } => self.arrive(flight, bytes, orders),
            Event::Deliver { flight, bytes, closes, by_stranger, said } => {
                self.deliver(flight, bytes, closes, by_stranger, said);
            }
            Event::Fail { flight, failure } => self.fail(flight, failure),
            Event::Read { flight } => self.read(flight),
            Event::ForgetFlight { flight } => self.forget_flight(flight),
            Event::LinkChanged => self.link_changed(),
            Event::Resume => self.resume(),
            Event::Offline => {
                self.link_down_until_us = self.plan.trouble_us + 1;
                self.schedule(1, Event::Weigh);
            }
            Event::Weigh => {
                self.weigh();
                self.schedule(86_400_000_000, Event::Weigh);
            }
            Event::Controllers => self.controllers(),
            Event::OfWatch(what) => self.of_watch(what),
            Event::Happen(kind) => self.happen(kind),
            Event::Peace => self.make_peace(),
            Event::Judge => self.judge(),
        }
    }

    fn controllers(&mut self) {
        self.server.tick(self.server_wall_us());
        for line in std::mem::take(&mut self.server.controllers.happened) {
            if line.contains("Unknown") {
                self.touched();
            }
            self.trace.say(|| format!("   {line}"));
        }
        self.schedule(self.monitor_period_us(), Event::Controllers);
    }

    /// One input, then every output up to the next wait.
    pub fn feed(&mut self, input: Input) {
        let Some(mut agent) = self.agent.take() else { return };
        let now = self.now();
        agent.handle(input, now);
        let mut outputs = 0;
        while self.violation.is_none() {
            outputs += 1;
            if outputs > OUTPUTS_PER_INPUT {
                self.violated(format!("more than {OUTPUTS_PER_INPUT} outputs for one input"));
            }
            match agent.poll(now) {
                Output::Wait { until, because } => {
                    self.trace.say(|| format!("   waits {:.3} s for {because:?}", (until - now.up).as_secs_f64()));
                    self.wait(until);
                    break;
                }
                Output::Stopped => return self.stopped(),
                output => self.perform(output),
            }
        }
        self.agent = Some(agent);
    }

    fn perform(&mut self, output: Output) {
        let life = self.life;
        match output {
            Output::Probe { .. } => {
                let checked = self.watch.probes();
                self.check(checked);
                let slow_us = if self.random.per_mille(20) { 2_000_000 } else { 10_000 };
                let delay_us = self.random.between(500, slow_us);
                self.trace.say(|| "   probes the board".to_owned());
                self.schedule(delay_us, Event::Facts { life });
            }
            Output::Identity(_) => unreachable!("nobody has a certificate here"),
            Output::Told(told) => self.answered_announcer(&told),
            Output::Send(ticket, Operation::WatchNode) => self.watch_node(ticket),
            Output::EndWatch => {
                self.schedule(1, Event::OfWatch(OfWatch::Ends(self.watched.number(), Ok(()))));
            }
            Output::Send(ticket, operation) => self.send(ticket, operation),
            Output::ReloadCredentials => self.schedule(500, Event::Credentials { life }),
            Output::DropConnections { .. } => {
                self.trace.say(|| "   drops its connections".to_owned());
                self.break_watch();
            }
            Output::Say(notice) => {
                if notice.word == "node-deleted" && !self.has_missed_node {
                    self.violated(format!("what the API server never said: {}", notice.text));
                }
                self.trace.mix(notice.word.as_bytes());
                self.trace.say(|| format!("   says {:?} {}: {}", notice.level, notice.word, notice.text));
            }
            Output::Write(write) => self.write(write),
            Output::ReleaseLock => self.lock_released(),
            Output::Wait { .. } | Output::Stopped => {}
        }
    }

    /// When that is, of the world's time.
    pub fn us_of(&self, up: Up) -> u64 {
        u64::try_from(up.as_duration().as_micros() as i64 - self.boot_offset_us).unwrap_or(0)
    }

    fn wait(&mut self, until: Up) {
        self.wait_number += 1;
        let mut until_us = self.us_of(until);
        if self.shim.is(Planted::BusyLoop) && self.wait_number.is_multiple_of(50) {
            until_us = self.now_us;
            self.wait_number -= 1;
        }
        let checked = self.watch.waits(until_us, self.now_us);
        self.check_wait(checked);
        // A timer is never early and always a little late.
        let late_us = self.random.between(1, 2_000);
        let delay_us = if until_us <= self.now_us { 0 } else { until_us - self.now_us + late_us };
        self.schedule(delay_us, Event::Wake { number: self.wait_number });
    }

    pub fn schedule(&mut self, delay_us: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((self.now_us + delay_us, self.scheduled), event);
    }

    pub fn check(&mut self, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.violated(why);
        }
    }

    pub fn violated(&mut self, why: String) {
        self.violation.get_or_insert(why);
    }
}
