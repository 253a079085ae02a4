//! Turns a seed into boards that join a cluster, renew their certificates and come back when these have ended, through links,
//! disks, clocks and people that fail, then peace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nodepulse::agent::{Agent, IdentityStep, Input, Output};
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::{Facts, LastReset};
use nodepulse::time::{Now, Up, Wall};

use super::super::facts::facts;
use super::super::random::Random;
use super::cluster::{Authority, Cluster};
use super::judge::{Judge, patience_us};
use super::machine::{Machine, machine};
use super::network::Letter;
use super::plan::{Plan, Rotation, Step};
use super::planted::Fault;
use super::servers::Servers;
use super::shell::Shell;
use super::supervisor::Supervisor;

pub const EPOCH_US: i64 = 1_767_225_600_000_000;
pub const SECOND_US: u64 = 1_000_000;
pub const HOUR_US: u64 = 3_600 * SECOND_US;
const OUTPUTS_PER_INPUT: usize = 64;
const JOURNAL_BYTES: usize = 65_536;
const CONTROLLERS_US: u64 = 300 * SECOND_US;
const SLOWEST_LOOK_US: u64 = 600 * SECOND_US;
/// How long all has to be well in the end.
const CALM_US: u64 = 1800 * SECOND_US;

pub enum Event {
    Wake {
        board: usize,
        number: u64,
    },
    /// What the shell answers.
    Said {
        board: usize,
        life: u64,
        input: Box<Input>,
    },
    Facts {
        board: usize,
        life: u64,
    },
    Arrive {
        board: usize,
        life: u64,
        flight: u64,
        letter: Box<Letter>,
    },
    Deliver {
        board: usize,
        life: u64,
        flight: u64,
        bytes: Vec<u8>,
    },
    Fail {
        board: usize,
        life: u64,
        flight: u64,
        word: &'static str,
    },
    LinkUp {
        board: usize,
    },
    DiskAgain {
        board: usize,
        life: u64,
    },
    Befall(usize),
    People,
    PowerCut {
        board: usize,
        life: u64,
    },
    PowerOn(usize),
    Rotate(Step),
    /// A server gets the next CA.
    Switch(usize),
    Servers,
    ServerFails {
        place: usize,
        span_us: u64,
    },
    Start(usize),
    Controllers,
    Peace,
    Judge,
}

pub struct World {
    pub plan: Plan,
    pub fault: Option<Fault>,
    pub random: Random,
    pub cluster: Cluster,
    pub servers: Servers,
    /// Of whoever stands between.
    pub foreign: Authority,
    pub machines: Vec<Machine>,
    pub judge: Judge,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub api_down_until_us: u64,
    /// Since when.
    pub peace_us: Option<u64>,
    calm_since_us: Option<u64>,
    pub violation: Option<String>,
    pub requests: u64,
    /// The board whose renewal was taken last.
    pub renewed: Option<usize>,
    pub hash: u64,
    lines: Option<Vec<String>>,
    is_over: bool,
}

pub struct Outcome {
    pub violation: Option<String>,
    pub hash: u64,
    pub requests: u64,
    pub simulated_us: u64,
    pub lines: Vec<String>,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>, keep_lines: bool) -> World {
        let mut random = Random::new(seed ^ 0x1d);
        let mut plan = Plan::new(&mut random);
        if fault == Some(Fault::NameOfAnother) {
            plan = plan.of_two_names();
        }
        let mut world = World::of_plan(plan, random, fault, keep_lines);
        world.say(|| format!("seed {seed}"));
        let plan = format!("{:?}", world.plan);
        world.say(|| plan);
        world.begin();
        world
    }

    /// Before anything happens.
    pub fn of_plan(plan: Plan, mut random: Random, fault: Option<Fault>, keep_lines: bool) -> World {
        let mut cluster = Cluster::new(plan.life_us as i64, Random::new(random.next()));
        if !plan.program.is_empty() {
            cluster = cluster.of_supervisor(Supervisor::new(plan.program, plan.is_password), &mut random);
        }
        if plan.rotation != Rotation::None {
            cluster.will_rotate(plan.rotation == Rotation::AtOnce);
        }
        if plan.is_token_late {
            cluster.token_until_us = None;
        }
        let mut machines: Vec<Machine> =
            (0..plan.nodes.len()).map(|number| machine(&plan, number, &mut random)).collect();
        let takes = fault == Some(Fault::SharedKeyTaken);
        machines.iter_mut().for_each(|machine| machine.settings.k3s_shared_key = takes);
        let foreign = Authority::new("somebody", &mut random);
        World {
            judge: Judge::new(machines.len()),
            servers: Servers::new(&plan, &cluster.serves, &foreign),
            foreign,
            fault,
            random,
            cluster,
            machines,
            now_us: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            api_down_until_us: 0,
            peace_us: None,
            calm_since_us: None,
            violation: None,
            requests: 0,
            renewed: None,
            hash: 0,
            lines: keep_lines.then(Vec::new),
            is_over: false,
            plan,
        }
    }

    fn begin(&mut self) {
        for board in 0..self.machines.len() {
            let clones = self.plan.clones && board == 1;
            let on_us =
                if clones { self.random.below(self.plan.trouble_us) } else { self.random.below(60 * SECOND_US) };
            self.schedule(on_us, Event::PowerOn(board));
            let first_us = self.random.below(self.plan.life_us / 2);
            self.schedule(on_us + first_us, Event::Befall(board));
        }
        if self.plan.rotation != Rotation::Overlapping {
            let first_us = self.random.below(self.plan.life_us / 3);
            self.schedule(first_us, Event::People);
        }
        if self.plan.rotation != Rotation::Overlapping {
            let first_us = self.random.below(self.plan.life_us / 2);
            self.schedule(first_us, Event::Servers);
        }
        for (at_us, step) in self.plan.rotation.steps(self.plan.trouble_us) {
            self.schedule(at_us, Event::Rotate(step));
        }
        self.schedule(CONTROLLERS_US, Event::Controllers);
        self.schedule(self.plan.trouble_us, Event::Peace);
    }

    pub fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.is_over && self.step() {}
        let violation = self.violation;
        Outcome {
            violation,
            hash: self.hash,
            requests: self.requests,
            simulated_us: self.now_us,
            lines: self.lines.unwrap_or_default(),
        }
    }

    /// The next thing that happens; false where nothing does any more.
    pub fn step(&mut self) -> bool {
        let Some(((moment_us, _), event)) = self.queue.pop_first() else { return false };
        self.now_us = moment_us;
        self.happens(event);
        true
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake { board, number } if self.machines[board].waits == number => self.feed(board, Input::Woke),
            Event::Wake { .. } => {}
            Event::Said { board, life, input } if self.lives(board, life) => self.feed(board, *input),
            Event::Facts { board, life } if self.lives(board, life) => {
                let Facts { machine, readings, network } =
                    facts(&self.machines[board].board, &self.machines[board].node);
                let is_first = !std::mem::replace(&mut self.machines[board].has_looked, true);
                let whole = is_first.then(|| Box::new((machine, network)));
                self.feed(board, Input::Looked { readings: Box::new(readings), board: whole });
            }
            Event::Said { .. } | Event::Facts { .. } => {}
            Event::Arrive { board, life, flight, letter } => self.arrive(board, life, flight, &letter),
            Event::Deliver { board, life, flight, bytes } => self.deliver(board, life, flight, bytes),
            Event::Fail { board, life, flight, word } => self.fail(board, life, flight, word),
            Event::LinkUp { board } => self.feed(board, Input::LinkChanged),
            Event::DiskAgain { board, life } if self.lives(board, life) => self.ask_disk_again(board),
            Event::DiskAgain { .. } => {}
            Event::Befall(board) => self.befall(board),
            Event::People => self.people(),
            Event::PowerCut { board, life } if self.peace_us.is_none() && self.lives(board, life) => {
                self.cut_power(board)
            }
            Event::PowerCut { .. } => {}
            Event::PowerOn(board) => self.power_on(board),
            Event::Rotate(step) => {
                self.say(|| format!("the CA: {step:?}"));
                self.cluster.rotate(step);
                if step == Step::Switch {
                    self.switch_servers();
                }
            }
            Event::Switch(place) => self.switch_server(place),
            Event::Servers => self.trouble_servers(),
            Event::ServerFails { place, span_us } => self.server_fails(place, span_us),
            Event::Start(board) => self.start(board),
            Event::Controllers => {
                let wall_us = self.wall_us();
                self.cluster.tick(wall_us);
                self.cluster.api.tick(wall_us);
                self.schedule(CONTROLLERS_US, Event::Controllers);
            }
            Event::Peace => self.make_peace(),
            Event::Judge => self.judge_calm(),
        }
    }

    pub fn power_on(&mut self, board: usize) {
        if self.machines[board].is_on {
            return;
        }
        if self.plan.clones && board == 1 && self.machines[1].boot == 0 {
            self.say(|| "the second board has a copy of the first's card".to_owned());
            self.machines[1].folder = self.machines[0].folder.clone();
            self.machines[1].folder.lose_power(&mut self.random);
            self.machines[1].folder.refuses = false;
            let is_renamed = self.machines[0].node != self.machines[1].node;
            let pending = self.machines[1].folder.read("pending.pem").unwrap_or_default();
            self.judge.cloned(0, 1, (pending, is_renamed));
        }
        let now_us = self.now_us;
        let machine = &mut self.machines[board];
        machine.boot += 1;
        (machine.is_on, machine.booted_us) = (true, now_us);
        machine.board.boot_id = format!("5e3f1c3a-0000-4000-8000-{board:02x}{:010x}", machine.boot);
        self.start(board);
    }

    fn start(&mut self, board: usize) {
        let (now, seed) = (self.now(board), self.random.next());
        let machine = &mut self.machines[board];
        if !machine.is_on || machine.agent.is_some() {
            return;
        }
        let boot = BootId::parse(&machine.board.boot_id);
        let journal = Journal::recover(&machine.journal.read(), JOURNAL_BYTES, boot).0;
        let agent =
            Agent::new(machine.settings.clone(), machine.node.clone(), seed, journal, &LastReset::default(), now);
        machine.agent = Some(Box::new(agent));
        let first = self.find_identity(board);
        self.say(|| format!("board {board} starts: {first:?}"));
        self.feed(board, first);
        self.feed(board, Input::Woke);
    }

    /// The process is gone; whoever looks after it starts it again.
    pub fn stop(&mut self, board: usize) {
        let pending = self.machines[board].folder.read("pending.pem").unwrap_or_default();
        self.judge.ends(board, pending);
        let machine = &mut self.machines[board];
        machine.agent = None;
        (machine.shell, machine.has_looked) = (Shell::default(), false);
        machine.life += 1;
        machine.waits += 1;
        machine.flights.clear();
    }

    pub fn cut_power(&mut self, board: usize) {
        self.say(|| format!("board {board} loses its power"));
        self.machines[board].folder.lose_power(&mut self.random);
        self.stop(board);
        self.machines[board].is_on = false;
        let long_us = self.plan.longest_us();
        let span_us = if self.random.per_mille(150) { long_us } else { 120 * SECOND_US };
        let delay_us = self.random.between(SECOND_US, span_us);
        self.schedule(delay_us, Event::PowerOn(board));
    }

    pub fn feed(&mut self, board: usize, input: Input) {
        let now = self.now(board);
        let Some(mut agent) = self.machines[board].agent.take() else { return };
        agent.handle(input, now);
        let life = self.machines[board].life;
        for _ in 0..OUTPUTS_PER_INPUT {
            match agent.poll(now) {
                Output::Wait { until, because } => {
                    self.say(|| format!("board {board} waits {:.1} s for {because:?}", (until - now.up).as_secs_f64()));
                    self.machines[board].agent = Some(agent);
                    self.machines[board].waits += 1;
                    let number = self.machines[board].waits;
                    let delay_us =
                        u64::try_from((until - now.up).as_micros()).unwrap_or(0) + self.random.between(1, 2_000);
                    return self.schedule(delay_us, Event::Wake { board, number });
                }
                output => self.perform(board, output),
            }
            if self.machines[board].life != life || self.violation.is_some() {
                // The power went in the middle of it.
                return;
            }
        }
        self.violated(format!("more than {OUTPUTS_PER_INPUT} outputs for one input"));
    }

    fn perform(&mut self, board: usize, output: Output) {
        let life = self.machines[board].life;
        match output {
            Output::Probe { .. } => {
                // Looks were half of a world's time, and this judge learns nothing of them: some sensor is slow.
                let is_slow = self.machines[board].has_looked && self.plan.looks_slowly;
                let longest_us = if is_slow { SLOWEST_LOOK_US } else { 10_000 };
                let delay_us = self.random.between(500, longest_us);
                self.schedule(delay_us, Event::Facts { board, life });
            }
            Output::Write(write) => {
                self.machines[board].journal.write(&write);
                self.answer(board, 1_000, Input::Written { done: true });
            }
            Output::ReloadCredentials => self.reload(board),
            Output::Send(ticket, operation) => self.send(board, ticket, None, operation),
            Output::Identity(step) => self.perform_step(board, step),
            Output::Say(notice) => {
                self.hash = (self.hash ^ notice.word.len() as u64).wrapping_mul(0x0100_0000_01b3) ^ self.now_us;
                self.say(|| format!("board {board} says {}: {}", notice.word, notice.text));
            }
            Output::DropConnections { .. } | Output::EndWatch | Output::Told(_) => {}
            Output::ReleaseLock | Output::Stopped | Output::Wait { .. } => {}
        }
    }

    fn perform_step(&mut self, board: usize, step: IdentityStep) {
        match step {
            IdentityStep::Send(ticket, access, operation) => self.send(board, ticket, Some(access), operation),
            IdentityStep::ReadMeans { .. } => self.read_means(board),
            IdentityStep::ReadCluster => self.read_cluster(board),
            IdentityStep::UseCluster { servers, authorities, supervisor } => {
                self.use_cluster(board, servers, authorities, supervisor);
            }
            IdentityStep::UseLastResorts(_) => self.violated("a last resort that nobody listed".to_owned()),
            IdentityStep::MakeRequest { is_new } => self.make_request(board, is_new),
            IdentityStep::TakeKey(key) => self.take_key(board, key),
            IdentityStep::KeepCertificate { chain, received } => self.keep(board, chain, received),
        }
    }

    /// The shell answers after a while.
    pub fn answer(&mut self, board: usize, delay_us: u64, input: Input) {
        let life = self.machines[board].life;
        self.schedule(delay_us, Event::Said { board, life, input: Box::new(input) });
    }

    /// Whether all is well, and since when.
    fn judge_calm(&mut self) {
        let nodes: BTreeSet<String> = self.machines.iter().map(|machine| machine.node.clone()).collect();
        let revoked = &self.cluster.revoked;
        let bad = nodes.iter().filter(|node| !revoked.contains(*node)).find_map(|node| self.is_well(node).err());
        let peace_us = self.peace_us.unwrap_or_default();
        let patience_us = patience_us(self.machines.iter().any(|machine| machine.was_denied)) as u64;
        match bad {
            None => {
                let since_us = *self.calm_since_us.get_or_insert(self.now_us);
                // So long that each board was heard again since.
                let lease_us = u64::from(self.plan.lease_s) * SECOND_US;
                self.is_over = self.now_us >= since_us + CALM_US.max(lease_us + 60 * SECOND_US);
            }
            Some(why) => {
                self.calm_since_us = None;
                if self.now_us > peace_us + patience_us {
                    self.violated(format!("{} min after peace {why}", patience_us / SECOND_US / 60));
                }
            }
        }
        self.schedule(60 * SECOND_US, Event::Judge);
    }

    /// One of the boards of this name is in the cluster, with one certificate.
    fn is_well(&self, node: &str) -> Result<(), String> {
        let (wall_us, late_us) = (self.wall_us(), self.plan.lease_s as i64 * 1_000_000);
        let of_node = self.machines.iter().enumerate().filter(|(_, machine)| machine.node == node);
        let in_time = |(_, machine): &(usize, &Machine)| {
            machine.renewed_us.is_some_and(|renewed_us| wall_us < renewed_us + late_us)
        };
        let mut present = of_node.filter(in_time).peekable();
        present.peek().ok_or_else(|| format!("{node} is not in the cluster"))?;
        for (_, machine) in present {
            let file = |name| machine.folder.read_synced(name);
            let pending = file("pending.pem").filter(|_| self.calm_since_us.is_none());
            let leaf = Judge::ends_well(file("node.pem"), pending).map_err(|why| format!("of {node} {why}"))?;
            match self.cluster.accepts(&leaf, wall_us) {
                Some(issued) if issued.node == node => {}
                _ => return Err(format!("the certificate of {node} is none that the server takes")),
            }
        }
        Ok(())
    }

    pub fn lives(&self, board: usize, life: u64) -> bool {
        self.machines[board].agent.is_some() && self.machines[board].life == life
    }

    pub fn is_linked(&self, board: usize) -> bool {
        self.machines[board].is_on && self.machines[board].link_down_until_us <= self.now_us
    }

    pub fn wall_us(&self) -> i64 {
        EPOCH_US + self.now_us as i64
    }

    pub fn now(&self, board: usize) -> Now {
        let machine = &self.machines[board];
        let up = Up::since_boot(Duration::from_micros(10 * SECOND_US + self.now_us - machine.booted_us));
        Now { up, wall: machine.clock.wall_us(self.wall_us()).map(Wall::from_unix_us) }
    }

    pub fn schedule(&mut self, delay_us: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((self.now_us + delay_us, self.scheduled), event);
    }

    pub fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub fn check(&mut self, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.violated(why);
        }
    }

    pub fn violated(&mut self, why: String) {
        self.say(|| format!("VIOLATION: {why}"));
        self.violation.get_or_insert(why);
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:12.3} s  {}", self.now_us as f64 / 1e6, line()));
        }
    }
}
