//! Turns facts as they come in into the Node as it should be now, keeping what must survive between two looks:
//! hysteresis, transitions that no server has acknowledged yet, and which events were already told.

use std::collections::BTreeSet;

use super::notice::Level;
use super::transitions::Transitions;
use super::world::World;
use crate::api::{Refusal, StatusError};
use crate::config::limits::TRIES_PER_RUN;
use crate::journal::{Happened, Record};
use crate::node::desired::{self, Board, NodeEvent, Remembered};
use crate::node::identity::{self, Stranger};
use crate::node::object::Node;
use crate::node::pressure::{PressureState, Pressures};
use crate::node::version::kubelet_version;
use crate::node::{NodeError, condition};
use crate::probe::facts::MemorySource;
use crate::probe::{Facts, Readings};
use crate::time::{Now, Wall};

#[derive(Debug, Default)]
pub(super) struct Truth {
    facts: Option<Box<Facts>>,
    pressure: PressureState,
    pressures: Pressures,
    remembered: Remembered,
    /// What `kubeletVersion` follows.
    pub(super) server_version: Option<String>,
    /// How often it was asked for in vain.
    unversioned: u32,
    transitions: Transitions,
    /// Events of conditions that no server has acknowledged: told once, not once a try.
    told: BTreeSet<&'static str>,
    /// Nothing that `updated` depends on has changed since it last found nothing to send.
    settled: bool,
    said_memory_source: bool,
    said_nameless: bool,
    /// The Node may have been there before us: the next report puts right what is as no registration would leave it.
    reconciles: bool,
    /// What there were complaints about in the log.
    complaints: BTreeSet<String>,
}

/// One look at the board.
#[derive(Debug)]
pub(super) enum Seen {
    Board(Box<Facts>),
    /// Machine and network are as they were.
    Readings(Box<Readings>),
}

/// The Node as it should be, and whether that is worth a PATCH of its own.
pub(super) struct Wanted {
    pub(super) node: Node,
    pub(super) changed: bool,
}

impl Truth {
    /// After a start: what earlier processes left to be told.
    pub(super) fn new(world: &World) -> Truth {
        let mut truth = Truth::default();
        truth.transitions.remember(world.memory.waiting());
        // A reboot that the journal tells of is not told by the setters as well (MI-5).
        let boot = world.memory.journal().boot();
        let tells = |record: &Record| matches!(record.what, Happened::BoardRebooted { .. }) && record.at.boot == boot;
        truth.remembered.reboot_reported = world.memory.waiting().any(tells);
        truth
    }

    pub(super) fn observe(&mut self, seen: Seen, base: Option<&Node>, world: &mut World, now: Now) {
        let (facts, same_board) = match (seen, self.facts.take()) {
            (Seen::Board(facts), known) => {
                let same_board = known.is_some_and(|known| looks_the_same(&known, &facts));
                (facts, same_board)
            }
            (Seen::Readings(readings), Some(mut known)) => {
                let same_board = size(&known.readings) == size(&readings);
                known.readings = *readings;
                (known, same_board)
            }
            // Readings of a board that was never seen whole say nothing.
            (Seen::Readings(_), None) => return,
        };
        let source = facts.readings.memory.as_ref().ok().map(|memory| memory.source);
        if source == Some(MemorySource::MemAvailable) && !self.said_memory_source {
            self.said_memory_source = true;
            let text = "no memory cgroup at the root: memory pressure is judged by MemAvailable";
            world.say(Level::Info, "memory-source", text);
        }
        if identity::is_nameless(&facts.machine) && !self.said_nameless {
            self.said_nameless = true;
            let text = "this board has no serial number, no MAC address that stays and no machine-id: another one with its \
                        credentials is noticed only once it renews the same Lease";
            world.say(Level::Warning, "nameless-board", text);
        }
        // The size that was read first counts, from the first look on: also where the disk cannot be read any more once there
        // is a Node to report to.
        let size_bytes = size(&facts.readings);
        self.remembered.ephemeral_storage_bytes = self.remembered.ephemeral_storage_bytes.or(size_bytes);
        let pressures = self.pressure.observe(&world.settings.eviction, &facts.machine, &facts.readings, now.up);
        self.settled &= same_board && pressures == self.pressures;
        self.pressures = pressures;
        let judged = condition::judge(pressures, &world.settings, &facts, &self.remembered, base);
        self.transitions.look(judged, base.is_some(), world, now);
        self.facts = Some(facts);
    }

    /// The server's Node is known, and with it what our conditions were before.
    pub(super) fn node_known(&mut self, node: &Node, world: &mut World, now: Now) {
        self.settled = false;
        self.transitions.node_known(node, world, now);
    }

    /// Whether another look would find nothing to send: the Node need not be made again to know that.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Somebody else may have made the Node.
    pub(super) fn reconcile(&mut self) {
        self.reconciles = true;
        self.settled = false;
    }

    /// The base, the settings or the version changed.
    pub(super) fn unsettle(&mut self) {
        self.settled = false;
    }

    pub(super) fn is_known(&self) -> bool {
        self.facts.is_some()
    }

    /// As judged; what nobody could judge yet is what it was.
    fn pressures(&self) -> Pressures {
        let Pressures { memory, disk, pid } = self.pressures;
        let [was_memory, was_disk, was_pid, _] = self.transitions.believed();
        Pressures { memory: memory.or(was_memory), disk: disk.or(was_disk), pid: pid.or(was_pid) }
    }

    /// Nobody said the version. That may pass, but for where discovery is closed to us (4xx except 429).
    pub(super) fn version_refused(&mut self, refusal: &Refusal) {
        let is_closed = matches!(refusal, Refusal::Status(StatusError { code: 400..=428 | 430..=499, .. }));
        self.unversioned = if is_closed { TRIES_PER_RUN } else { self.unversioned.saturating_add(1) };
    }

    /// The version we claim may not be above the server's; but to know it is no reason not to be there.
    pub(super) fn waits_for_version(&self) -> bool {
        self.server_version.is_none() && self.unversioned < TRIES_PER_RUN
    }

    /// The Node to register (INI-*); `None` before the first facts.
    pub(super) fn initial(&mut self, world: &mut World, now: Now) -> Option<Node> {
        let stamp = world.stamp(now)?;
        let version = kubelet_version(self.server_version.as_deref());
        let board = board(self.facts.as_deref()?, self.pressures(), &version, world, stamp);
        let (mut node, events, problems) = desired::initial(&board);
        self.transitions.date(&mut node, None, world, stamp, now);
        self.complain(problems, world);
        self.tell(events, Level::Debug, world);
        Some(node)
    }

    /// Another board that wrote this Node, as far as what is known of both says so.
    pub(super) fn stranger(&self, node: &Node) -> Option<Stranger> {
        identity::stranger(node, &self.facts.as_deref()?.machine)
    }

    /// `base` brought up to date (UPD-*); `None` before the first facts, or the time of day.
    pub(super) fn updated(&mut self, base: &Node, world: &mut World, now: Now) -> Option<Wanted> {
        let stamp = world.stamp(now)?;
        let version = kubelet_version(self.server_version.as_deref());
        let board = board(self.facts.as_deref()?, self.pressures(), &version, world, stamp);
        let mut update = desired::updated(base, &board, &mut self.remembered, self.reconciles);
        self.transitions.date(&mut update.node, Some(base), world, stamp, now);
        self.complain(update.problems, world);
        let changed = update.changed || self.transitions.is_owed();
        self.tell(update.events, Level::Info, world);
        self.settled = !changed;
        Some(Wanted { node: update.node, changed })
    }

    /// The server took what we computed last, and has this Node now.
    pub(super) fn acknowledged(&mut self, node: &Node) {
        self.transitions.acknowledged(node);
        self.told.clear();
        self.reconciles = false;
    }

    fn tell(&mut self, events: Vec<NodeEvent>, normal: Level, world: &mut World) {
        for event in events {
            // The setters remember cordons and reboots themselves; of a condition they know only what the server has of it.
            let is_known = condition::of_event(event.reason).is_some()
                && (self.transitions.tells(event.reason) || !self.told.insert(event.reason));
            if !is_known {
                let level = if event.warning { Level::Warning } else { normal };
                world.say(level, "node-event", format!("{}: {}", event.reason, event.message));
                world.fresh_events.push(event);
            }
        }
    }

    fn complain(&mut self, problems: Vec<NodeError>, world: &mut World) {
        for problem in &problems {
            if !self.complaints.contains(&subject(problem)) {
                world.say(Level::Warning, problem.word(), problem.to_string());
            }
        }
        self.complaints = problems.iter().map(subject).collect();
    }
}

/// What a complaint is about: a file of noise reads otherwise at each look, and is one complaint.
fn subject(problem: &NodeError) -> String {
    match problem {
        NodeError::NoFact { field, .. } => (*field).to_owned(),
        other => other.to_string(),
    }
}

/// Whether two looks at the board make the same Node, pressure aside: readings move all the time, and only the size of
/// the file system among them is on the Node.
fn looks_the_same(one: &Facts, other: &Facts) -> bool {
    one.machine == other.machine && one.network == other.network && size(&one.readings) == size(&other.readings)
}

fn size(readings: &Readings) -> Option<u64> {
    readings.node_file_system.as_ref().ok().map(|system| system.capacity_bytes)
}

fn board<'a>(
    facts: &'a Facts,
    pressures: Pressures,
    kubelet_version: &'a str,
    world: &'a World,
    stamp: Wall,
) -> Board<'a> {
    Board { settings: &world.settings, facts, name: &world.node_name, kubelet_version, pressures, stamp }
}
