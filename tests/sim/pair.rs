//! Turns a seed into two boards with one name and one set of credentials, and their writes into whether one gives way
//! (D10): never do two write for longer than three renewals, and in peace exactly one does.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nodepulse::agent::{Agent, CredentialDates, Input, Output, Ticket};
use nodepulse::api::{Answer, AuditId, Document, Exchange, Failure, Operation, PatchAnswer, Progress, Refusal, Target};
use nodepulse::config::Settings;
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::{Facts, LastReset};
use nodepulse::time::{Now, Up, Wall};

use super::board::Board;
use super::facts::facts;
use super::pair_watch::{OfWatch, Watch};
use super::random::Random;
use super::world::EPOCH_US;
use crate::disk::Disk;
use crate::model::ModelServer;
use crate::model::controller::MONITOR_PERIOD_US;
use crate::model::http::Request;
use crate::model::rights::Caller;

pub const NODE: &str = "edge-1";
pub const SECOND_US: u64 = 1_000_000;
pub const TROUBLE_US: u64 = 900 * SECOND_US;
/// The board that gave way asks every five minutes.
pub const CALM_US: u64 = 700 * SECOND_US;
const PATIENCE_US: u64 = 10 * SECOND_US;
const OUTPUTS_PER_INPUT: usize = 64;
const JOURNAL_BYTES: usize = 65_536;

/// By what the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differ {
    Serial,
    MachineId,
    Mac,
    All,
    Nothing,
    /// There is nothing to tell any board by.
    Nameless,
}

pub const DIFFER: [Differ; 6] =
    [Differ::Serial, Differ::MachineId, Differ::Mac, Differ::All, Differ::Nothing, Differ::Nameless];

/// What an agent is kept from seeing, to show that a quarrel is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Blind {
    pub to_names: bool,
    pub to_transitions: bool,
    /// All but the first of a watch.
    pub to_events: bool,
}

pub enum Event {
    Wake { board: usize, number: u64 },
    Facts { board: usize, life: u64 },
    Credentials { board: usize, life: u64 },
    Written { board: usize, life: u64 },
    Arrive { board: usize, life: u64, flight: u64, bytes: Vec<u8> },
    Deliver { board: usize, life: u64, flight: u64, bytes: Vec<u8> },
    TimedOut { board: usize, life: u64, flight: u64 },
    Happen(usize),
    PowerOn(usize),
    Start(usize),
    OfWatch { board: usize, number: u64, what: OfWatch },
    Controllers,
    Peace,
}

pub struct Written {
    pub at_us: u64,
    pub board: usize,
    pub life: u64,
    pub what: String,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of board {} at {:.3} s", self.what, self.board, self.at_us as f64 / 1e6)
    }
}

/// One of the two.
pub struct Machine {
    pub board: Board,
    settings: Settings,
    agent: Option<Box<Agent>>,
    disk: Disk,
    boot: u64,
    booted_us: u64,
    is_on: bool,
    life: u64,
    waits: u64,
    /// The last one: whether the answer comes without content.
    flights: BTreeMap<u64, (Ticket, Exchange, bool)>,
    link_down_until_us: u64,
    pub watch: Option<Watch>,
    /// Last words that matter.
    pub said: Vec<(u64, &'static str)>,
}

pub struct Pair {
    pub seed: u64,
    pub differ: Differ,
    pub blind: Blind,
    random: Random,
    pub server: ModelServer,
    pub machines: [Machine; 2],
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub watches: u64,
    /// As with `http2ZeroWindow`.
    has_bare_answers: bool,
    peace: bool,
    /// Every write to Node and Lease that the server took.
    pub writes: Vec<Written>,
    /// When a board started, or got its link back: from then on it has three renewals' time to give way.
    pub returns_us: Vec<u64>,
    /// When a process of which board was killed, or its board lost its power or its link.
    pub ends: Vec<(u64, usize)>,
    /// What happened, where somebody wants to read it.
    lines: Option<Vec<String>>,
}

impl Pair {
    pub fn new(seed: u64, blind: Blind, keep_lines: bool) -> Pair {
        let mut random = Random::new(seed);
        let differ = DIFFER[(seed % DIFFER.len() as u64) as usize];
        let mut first = Board::new(&mut random);
        // Each has all that boards are told apart by, unless it is to have nothing.
        first.serial.get_or_insert_with(|| "10000000abcdef01".to_owned());
        first.mac.get_or_insert_with(|| "dc:a6:32:ab:cd:01".to_owned());
        first.machine_id.get_or_insert_with(|| "8c5b0f1e0d7c4a559e0b6f2f3f1f6a02".to_owned());
        let second = of_another(&first, differ);
        let (first, second) =
            if differ == Differ::Nameless { (nameless(first), nameless(second)) } else { (first, second) };
        // Each kind of difference with a watch and without, with answers that have content and without.
        let node_watch = seed / DIFFER.len() as u64 % 2 == 1;
        let machine = |board, register_node| Machine {
            board,
            settings: Settings { register_node, node_watch, ..Settings::default() },
            agent: None,
            disk: Disk::default(),
            boot: 0,
            booted_us: 0,
            is_on: false,
            life: 0,
            waits: 0,
            flights: BTreeMap::new(),
            link_down_until_us: 0,
            watch: None,
            said: Vec::new(),
        };
        let registers = !random.per_mille(200);
        let machines = [machine(first, true), machine(second, registers)];
        let mut pair = Pair {
            seed,
            differ,
            blind,
            random,
            server: ModelServer::default(),
            machines,
            now_us: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            watches: 0,
            has_bare_answers: !(seed / DIFFER.len() as u64 / 2).is_multiple_of(3),
            peace: false,
            writes: Vec::new(),
            returns_us: Vec::new(),
            ends: Vec::new(),
            lines: keep_lines.then(Vec::new),
        };
        let apart_us = pair.random.pick(&[0, 50_000, 2 * SECOND_US, 60 * SECOND_US, 300 * SECOND_US]);
        pair.schedule(0, Event::PowerOn(0));
        pair.schedule(apart_us, Event::PowerOn(1));
        pair.schedule(SECOND_US, Event::Controllers);
        pair.schedule(TROUBLE_US, Event::Peace);
        for board in 0..2 {
            let first_us = pair.random.between(20, 300) * SECOND_US;
            pair.schedule(first_us, Event::Happen(board));
        }
        pair
    }

    /// To the end. Answers what does not hold, with the last lines of what happened.
    pub fn run(mut self) -> Result<(), String> {
        while let Some(((moment_us, _), event)) = self.queue.pop_first() {
            if moment_us > TROUBLE_US + CALM_US {
                break;
            }
            self.now_us = moment_us;
            self.happens(event);
        }
        self.judge().map_err(|why| {
            format!("{}\nseed {}, {:?}: {why}", self.lines.unwrap_or_default().join("\n"), self.seed, self.differ)
        })
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake { board, number } if self.machines[board].waits == number => self.feed(board, Input::Woke),
            Event::Wake { .. } => {}
            Event::Facts { board, life } if self.lives(board, life) => {
                let Facts { machine, readings, network } = facts(&self.machines[board].board, NODE);
                let whole = Some(Box::new((machine, network)));
                self.feed(board, Input::Looked { readings: Box::new(readings), board: whole });
            }
            Event::Credentials { board, life } if self.lives(board, life) => {
                self.feed(board, Input::Credentials(CredentialDates::default()));
            }
            Event::Written { board, life } if self.lives(board, life) => {
                self.feed(board, Input::Written { done: true })
            }
            Event::TimedOut { board, life, flight } if self.lives(board, life) => {
                if self.machines[board].flights.contains_key(&flight) {
                    self.end_watch(board, OfWatch::Breaks);
                }
                if let Some((ticket, ..)) = self.machines[board].flights.remove(&flight) {
                    let failure = Failure::timed_out(Duration::from_micros(PATIENCE_US));
                    let answer = Answer { date: None, result: Err(Refusal::Failed(failure)) };
                    self.feed(board, Input::Answered(ticket, answer));
                }
            }
            Event::Facts { .. } | Event::Credentials { .. } | Event::Written { .. } | Event::TimedOut { .. } => {}
            Event::Arrive { board, life, flight, bytes } => self.arrive(board, life, flight, &bytes),
            Event::Deliver { board, life, flight, bytes } => self.deliver(board, life, flight, bytes),
            Event::Happen(board) => self.happen(board),
            Event::PowerOn(board) => self.power_on(board),
            Event::Start(board) => self.start(board),
            Event::OfWatch { board, number, what } => self.of_watch(board, number, what),
            Event::Controllers => {
                self.server.tick(self.wall_us());
                self.tell_of_node();
                self.schedule(MONITOR_PERIOD_US as u64, Event::Controllers);
            }
            Event::Peace => {
                self.peace = true;
                for board in 0..2 {
                    self.machines[board].link_down_until_us = 0;
                    self.returns_us.push(self.now_us);
                    self.power_on(board);
                }
            }
        }
    }

    /// Something befalls a board, and again later.
    fn happen(&mut self, board: usize) {
        if self.peace {
            return;
        }
        let again_us = self.random.between(20, 240) * SECOND_US;
        self.schedule(again_us, Event::Happen(board));
        match self.random.below(4) {
            0 | 1 => {
                let span_us = self.random.between(2, 200) * SECOND_US;
                self.say(|| format!("board {board} loses its link for {} s", span_us / SECOND_US));
                self.machines[board].link_down_until_us = self.now_us + span_us;
                self.returns_us.push(self.now_us + span_us);
                self.ends.push((self.now_us, board));
            }
            2 => {
                self.say(|| format!("the process of board {board} is killed"));
                self.stop(board);
                let delay_us = self.random.between(1, 20) * SECOND_US / 4;
                self.schedule(delay_us, Event::Start(board));
            }
            _ => {
                self.say(|| format!("board {board} loses its power"));
                self.stop(board);
                self.machines[board].is_on = false;
                let delay_us = self.random.between(1, 200) * SECOND_US;
                self.schedule(delay_us, Event::PowerOn(board));
            }
        }
    }

    fn stop(&mut self, board: usize) {
        self.ends.push((self.now_us, board));
        let machine = &mut self.machines[board];
        machine.agent = None;
        machine.life += 1;
        machine.waits += 1;
        machine.flights.clear();
        machine.watch = None;
    }

    fn power_on(&mut self, board: usize) {
        if self.machines[board].is_on {
            return;
        }
        // A cloned card: the second board's has what the first one's had.
        if board == 1 && self.machines[1].boot == 0 && self.random.per_mille(500) {
            self.machines[1].disk = self.machines[0].disk.clone();
        }
        let (now_us, number) = (self.now_us, self.machines[board].boot + 1);
        let machine = &mut self.machines[board];
        (machine.is_on, machine.boot, machine.booted_us) = (true, number, now_us);
        machine.board.boot_id = format!("5e3f1c3a-0000-4000-8000-{board:02x}{number:010x}");
        self.start(board);
    }

    fn start(&mut self, board: usize) {
        let (now, seed) = (self.now(board), self.random.next());
        let machine = &mut self.machines[board];
        if !machine.is_on || machine.agent.is_some() {
            return;
        }
        let boot = BootId::parse(&machine.board.boot_id);
        let journal = Journal::recover(&machine.disk.read(), JOURNAL_BYTES, boot).0;
        machine.agent = Some(Box::new(Agent::new(
            machine.settings.clone(),
            NODE.to_owned(),
            seed,
            journal,
            &LastReset::default(),
            now,
        )));
        self.returns_us.push(self.now_us);
        self.say(|| format!("board {board} starts"));
        self.feed(board, Input::Credentials(CredentialDates::default()));
        self.feed(board, Input::Woke);
    }

    pub fn feed(&mut self, board: usize, input: Input) {
        let now = self.now(board);
        let Some(mut agent) = self.machines[board].agent.take() else { return };
        agent.handle(input, now);
        let life = self.machines[board].life;
        for _ in 0..OUTPUTS_PER_INPUT {
            match agent.poll(now) {
                Output::Wait { until, .. } => {
                    self.machines[board].agent = Some(agent);
                    self.machines[board].waits += 1;
                    let number = self.machines[board].waits;
                    let delay_us =
                        u64::try_from((until - now.up).as_micros()).unwrap_or(0) + self.random.between(1, 2_000);
                    return self.schedule(delay_us, Event::Wake { board, number });
                }
                Output::Probe { .. } => {
                    let delay_us = self.random.between(500, 10_000);
                    self.schedule(delay_us, Event::Facts { board, life });
                }
                Output::Identity(_) | Output::Told(_) => unreachable!("nobody has a certificate here"),
                Output::EndWatch => self.end_watch(board, OfWatch::Ends),
                Output::Send(ticket, operation) => self.send(board, ticket, operation),
                Output::ReloadCredentials => self.schedule(500, Event::Credentials { board, life }),
                Output::Write(write) => {
                    self.machines[board].disk.write(&write);
                    self.schedule(1_000, Event::Written { board, life });
                }
                Output::Say(notice) => {
                    self.say(|| format!("board {board} says {}: {}", notice.word, notice.text));
                    if ["name-taken", "lease-held", "stranger-gone", "registered"].contains(&notice.word) {
                        let now_us = self.now_us;
                        self.machines[board].said.push((now_us, notice.word));
                    }
                }
                Output::DropConnections { .. } => self.end_watch(board, OfWatch::Breaks),
                Output::ReleaseLock | Output::Stopped => {}
            }
        }
        panic!("seed {}: more than {OUTPUTS_PER_INPUT} outputs for one input", self.seed);
    }

    fn send(&mut self, board: usize, ticket: Ticket, operation: Operation) {
        if operation == Operation::WatchNode {
            return self.watch(board, ticket);
        }
        let target = Target {
            authority: "api.example:6443".to_owned(),
            path_prefix: String::new(),
            node_name: NODE.to_owned(),
            bearer_token: None,
        };
        self.say(|| format!("board {board} -> {}", operation.label()));
        let is_bare =
            self.has_bare_answers && matches!(&operation, Operation::RenewLease { answer: PatchAnswer::Nothing, .. });
        let (bytes, exchange) = Exchange::start(operation, &target, AuditId::new(1));
        self.scheduled += 1;
        let (flight, life, answer_by) = (self.scheduled, self.machines[board].life, ticket.answer_by());
        self.machines[board].flights.insert(flight, (ticket, exchange, is_bare));
        let answer_by = answer_by.map_or(0, |by| (by - self.now(board).up).as_micros() as u64 + 1_000);
        self.schedule(PATIENCE_US.max(answer_by), Event::TimedOut { board, life, flight });
        if self.is_linked(board) {
            let delay_us = self.latency_us();
            self.schedule(delay_us, Event::Arrive { board, life, flight, bytes });
        }
    }

    fn arrive(&mut self, board: usize, life: u64, flight: u64, bytes: &[u8]) {
        if !self.is_linked(board) {
            return;
        }
        let Ok(Some((request, _))) = Request::parse(bytes) else { panic!("not a request: {bytes:?}") };
        let response = self.server.answer(&request, &Caller::Node(NODE.to_owned()), self.wall_us());
        let is_write = request.method != "GET" && response.is_success();
        if is_write {
            let what = format!("{} {}", request.method, request.path);
            self.say(|| format!("    the server takes {what} of board {board}"));
            if !request.path.contains("/events") {
                self.writes.push(Written { at_us: self.now_us, board, life, what });
            }
            self.tell_of_node();
        }
        // It lies there unread for as long as it may.
        let (up, flights) = (self.now(board).up, &self.machines[board].flights);
        let unread = flights.get(&flight).and_then(|(ticket, ..)| Some(ticket.answer_by()? - up)).unwrap_or_default();
        let delay_us = self.latency_us().max(unread.as_micros() as u64);
        let bytes = response.to_bytes();
        self.schedule(delay_us, Event::Deliver { board, life, flight, bytes });
    }

    fn deliver(&mut self, board: usize, life: u64, flight: u64, mut bytes: Vec<u8>) {
        if !self.lives(board, life) || !self.is_linked(board) {
            return;
        }
        let Some((ticket, mut exchange, is_bare)) = self.machines[board].flights.remove(&flight) else { return };
        let answer = match exchange.feed(&mut bytes) {
            Ok(Progress::Done { answer, .. }) => answer,
            other => panic!("a whole reply was not understood: {other:?}"),
        };
        let mut answer = self.blinded(answer);
        if is_bare && answer.result.is_ok() {
            answer.result = Ok(Document::Nothing);
        }
        self.feed(board, Input::Answered(ticket, answer));
    }

    fn blinded(&self, mut answer: Answer) -> Answer {
        match &mut answer.result {
            Ok(Document::Node(node)) if self.blind.to_names => {
                node.metadata.annotations.clear();
                node.status.node_info.machine_id.clear();
            }
            Ok(Document::Metadata { transitions, .. }) if self.blind.to_transitions => *transitions = 0,
            _ => {}
        }
        answer
    }

    fn lives(&self, board: usize, life: u64) -> bool {
        self.machines[board].agent.is_some() && self.machines[board].life == life
    }

    pub fn is_linked(&self, board: usize) -> bool {
        self.machines[board].is_on && self.machines[board].link_down_until_us <= self.now_us
    }

    pub fn latency_us(&mut self) -> u64 {
        self.random.between(5_000, 250_000)
    }

    fn wall_us(&self) -> i64 {
        EPOCH_US + self.now_us as i64
    }

    fn now(&self, board: usize) -> Now {
        let up = Up::since_boot(Duration::from_micros(10 * SECOND_US + self.now_us - self.machines[board].booted_us));
        Now { up, wall: Some(Wall::from_unix_us(self.wall_us())) }
    }

    pub fn schedule(&mut self, delay_us: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((self.now_us + delay_us, self.scheduled), event);
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:10.3} s  {}", self.now_us as f64 / 1e6, line()));
        }
    }
}

/// Another board that has a copy of the card, but for what `differ` says.
fn of_another(board: &Board, differ: Differ) -> Board {
    let mut other = board.clone();
    let text = |text: &str| Some(text.to_owned());
    if matches!(differ, Differ::Serial | Differ::All) {
        other.serial = text("10000000abcdef02");
    }
    if matches!(differ, Differ::Mac | Differ::All) {
        other.mac = text("dc:a6:32:ab:cd:02");
    }
    if matches!(differ, Differ::MachineId | Differ::All) {
        other.machine_id = text("00000000000000000000000000000b0b");
    }
    other
}

fn nameless(board: Board) -> Board {
    Board { serial: None, mac: None, machine_id: None, ..board }
}
