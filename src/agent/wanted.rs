//! Turns looks at the board, as they come in, into the Node that should be there now.

use std::time::Duration;

use super::conditions::Conditions;
use super::notice::Level;
use super::replay::Unreported;
use super::shared::Shared;
use crate::api::{Refusal, StatusError};
use crate::config::limits::TRIES_PER_RUN;
use crate::journal::{Happened, Record};
use crate::node::claims;
use crate::node::desired;
use crate::node::identity;
use crate::node::object::Node;
use crate::node::report::{CERTIFICATE_EXPIRY, LAST_OUTAGE, NETWORK_BYTES};
use crate::node::rules::{self, Evidence};
use crate::node::version::kubelet_version;
use crate::node::{Board, Held, NodeError, Pressures, Remembered, Update};
use crate::probe::facts::MemorySource;
use crate::probe::{
    ContainerImage, ContainerRuntime, Facts, Machine, Network, Readings, RuntimeFeatures, RuntimeHandler,
};
use crate::time::{Now, Up, Wall};

/// How long a container runtime may take after the start of the agent (FST-1).
const RUNTIME_PATIENCE: Duration = Duration::from_secs(120);

fn of_runtime(readings: &Readings) -> Option<&ContainerRuntime> {
    readings.container_runtime.as_ref()
}

/// What a Node has of it, but for Ready.
fn of_node(runtime: &ContainerRuntime) -> (&str, &[RuntimeHandler], Option<RuntimeFeatures>, &[ContainerImage]) {
    (&runtime.version, &runtime.handlers, runtime.features, &runtime.images)
}

/// What an owner would have to ask each board for: it goes along with a report, and is worth none of its own.
fn annotate(node: &mut Node, shared: &Shared) {
    let annotations = &mut node.metadata.annotations;
    match shared.credentials.dates().renewal {
        Some(life) => annotations.insert(CERTIFICATE_EXPIRY.to_owned(), life.end.to_seconds_stamp()),
        None => drop(annotations.remove(CERTIFICATE_EXPIRY)),
    }
    // One that an earlier process wrote stands until there is another.
    if let Some(last_day) = &shared.last_day {
        annotations.insert(NETWORK_BYTES.to_owned(), last_day.clone());
    }
}

#[derive(Debug, Default)]
pub(super) struct WantedNode {
    facts: Option<Box<Facts>>,
    pressures: Pressures,
    held: Held,
    remembered: Remembered,
    /// What `kubeletVersion` follows.
    pub(super) server_version: Option<String>,
    /// How often it was asked for in vain.
    unversioned: u32,
    conditions: Conditions,
    /// Nothing that `updated` depends on has changed since it last found nothing to send.
    settled: bool,
    /// The Node may have been there before us: the next report puts right what is as no registration would leave it.
    reconciles: bool,
    /// The last report left extended resources and labels to the next one.
    owes_claims: bool,
    /// What there were complaints about in the log.
    complaints: Vec<String>,
    /// The board was looked at more often until then, as its container runtime has not been ready since the start.
    runtime_awaited_until: Option<Up>,
}

/// The Node as it should be, and whether that is worth a PATCH of its own.
pub(super) struct Wanted {
    pub(super) node: Node,
    pub(super) changed: bool,
}

impl WantedNode {
    /// After a start: what earlier processes left to be told.
    pub(super) fn new(shared: &Shared) -> WantedNode {
        let mut wanted = WantedNode { conditions: Conditions::new(shared.records.waiting()), ..WantedNode::default() };
        // A reboot that the journal tells of is not told by the setters as well (MI-5).
        let boot = shared.records.journal().boot();
        let tells = |record: &Record| matches!(record.what, Happened::BoardRebooted { .. }) && record.at.boot == boot;
        wanted.remembered.reboot_reported = shared.records.waiting().any(tells);
        wanted
    }

    /// A look at the board; without `board`, machine and network are as they were.
    pub(super) fn observe(
        &mut self,
        readings: Readings,
        board: Option<Box<(Machine, Network)>>,
        base: Option<&Node>,
        shared: &mut Shared,
        now: Now,
    ) {
        let known = self.facts.as_ref().map(|known| &known.readings);
        self.settled &= known.is_some_and(|known| {
            known.extended_resources == readings.extended_resources
                && known.unhealthy_devices == readings.unhealthy_devices
                && of_runtime(known).map(of_node) == of_runtime(&readings).map(of_node)
        });
        self.runtime_said(&readings, shared, now.up);
        let facts = match (self.facts.take(), board) {
            (Some(mut known), None) => {
                known.readings = readings;
                known
            }
            (known, Some(board)) => {
                let (machine, network) = *board;
                self.settled &= known.is_some_and(|known| known.machine == machine && known.network == network);
                Box::new(Facts { machine, readings, network })
            }
            // Readings of a board that was never seen whole say nothing.
            (None, None) => return,
        };
        let source = facts.readings.memory.as_ref().ok().map(|memory| memory.source);
        if source == Some(MemorySource::MemAvailable) {
            let text = "no memory cgroup at the root: memory pressure is judged by MemAvailable";
            shared.say_once(Level::Info, "memory-source", text);
        }
        if identity::has_no_id(&facts.machine) {
            let text = "this board has no serial number, no MAC address that stays and no machine-id: another one with its \
                        credentials is noticed only once it renews the same Lease";
            shared.say_once(Level::Warn, "nameless-board", text);
        }
        // The size that was read first counts, from the first look on: also where the disk cannot be read any more once there
        // is a Node to report to.
        if let (None, Ok(system)) = (self.remembered.disk_bytes, &facts.readings.node_file_system) {
            self.remembered.disk_bytes = Some(system.capacity_bytes);
            self.settled = false;
        }
        self.pressures.observe(&shared.settings, &facts.machine, &facts.readings, now.up);
        self.held.observe(&shared.settings, &facts, now.up);
        self.facts = Some(facts);
        self.settled &= self.judge(base, shared, now);
        shared.told_of_trouble(self.held.warnings(), now);
    }

    /// Says what is new of the container runtime, for people; one that is not ready yet is looked at more often for a while (FST-1).
    fn runtime_said(&mut self, readings: &Readings, shared: &mut Shared, up: Up) {
        let known = self.facts.as_ref().and_then(|known| of_runtime(&known.readings));
        let Some(runtime) = of_runtime(readings) else {
            self.runtime_awaited_until = None;
            return;
        };
        let is_first = known.is_none();
        match (&runtime.trouble, known.and_then(|known| known.trouble.as_ref())) {
            (Some(trouble), before) if before != Some(trouble) => {
                shared.say(Level::Warn, "runtime-trouble", format!("container runtime: {trouble}"));
            }
            (None, before) if before.is_some() || is_first => {
                shared.say(Level::Info, "runtime-heard", format!("container runtime: {}", runtime.version));
            }
            _ => {}
        }
        match runtime.problems.is_empty() {
            true => self.runtime_awaited_until = None,
            false if is_first => self.runtime_awaited_until = Some(up + RUNTIME_PATIENCE),
            false => {}
        }
    }

    /// What its container runtime is to be told of the addresses of pods: those of `base`, where it has not taken them (UPD-1).
    pub(super) fn untold_pod_cidr(&self, base: &Node) -> Option<String> {
        let told = of_runtime(&self.facts.as_ref()?.readings)?.pod_cidr.as_deref();
        let pod_cidr = base.spec.pod_cidrs.join(",");
        (!pod_cidr.is_empty() && told != Some(&pod_cidr)).then_some(pod_cidr)
    }

    /// Until when the board is to be looked at more often; `None`: its container runtime has been ready, or there is none.
    pub(super) fn runtime_awaited_until(&self) -> Option<Up> {
        self.runtime_awaited_until
    }

    /// Answers whether that is what the last judgement said.
    fn judge(&mut self, base: Option<&Node>, shared: &mut Shared, now: Now) -> bool {
        shared.end_absence_in_time(now);
        let Some(facts) = self.facts.as_deref() else { return true };
        let life = shared.credentials.dates().renewal.zip(shared.stamp(now));
        let look = Evidence {
            settings: &shared.settings,
            facts,
            pressures: &self.pressures,
            held: &self.held,
            remembered: &self.remembered,
            is_budget_low: shared.budget.is_low(&shared.settings),
            expires: life.map(|(life, stamp)| (stamp >= life.warned_from(), life.end)),
            absence: shared.absence(now),
            last_boot: shared.last_boot(now.up),
            base,
        };
        let judged = rules::judge(&look);
        shared.records.run_at_risk(rules::risk(&judged), now);
        self.conditions.judged(judged, base.is_some(), shared, now)
    }

    pub(super) fn stay(&mut self) {
        self.conditions.stay();
    }

    /// Something else was announced.
    pub(super) fn announced(&mut self, base: Option<&Node>, shared: &mut Shared, now: Now) {
        self.settled &= self.judge(base, shared, now);
    }

    /// What is to stand on the Node for each of our conditions; `None` before the first look.
    pub(super) fn judged(&self, shared: &Shared, stamp: Wall, now: Now) -> Option<[rules::Wanted; rules::COUNT]> {
        self.conditions.wanted(shared, stamp, now)
    }

    /// Whether this Node has that condition of ours as the last look judged it.
    pub(super) fn is_said(&self, kind: &str, node: &Node) -> bool {
        self.conditions.is_said(kind, node)
    }

    /// Whether nobody but us writes that condition.
    pub(super) fn is_ours(&self, kind: &str, now: Now) -> bool {
        self.conditions.is_ours(kind, now)
    }

    /// The server's Node is known, and with it what our conditions were before.
    pub(super) fn node_known(&mut self, node: &Node, shared: &mut Shared, now: Now) {
        self.settled = false;
        self.conditions.node_known(node, shared, now);
        // What was not sure without it may be now.
        self.judge(Some(node), shared, now);
    }

    pub(super) fn unreported(&self) -> Unreported {
        self.conditions.unreported()
    }

    /// That something is put off is said whatever is put off.
    pub(super) fn has_to_say_so(&self) -> bool {
        self.conditions.has_to_say("MeteredBudgetLow")
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

    /// The base is as it was, but for heartbeats.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// The base, the settings or the version changed.
    pub(super) fn unsettle(&mut self) {
        self.settled = false;
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
    pub(super) fn initial(&mut self, shared: &mut Shared, now: Now) -> Option<Node> {
        Some(self.made(None, shared, now)?.node)
    }

    /// Another board that wrote this Node, as far as what is known of both says so.
    pub(super) fn stranger(&self, node: &Node) -> Option<String> {
        identity::another_board(node, &self.facts.as_deref()?.machine)
    }

    /// The board has been looked at.
    pub(super) fn has_facts(&self) -> bool {
        self.facts.is_some()
    }

    /// `base` brought up to date (UPD-*); `None` before the first facts, or the time of day.
    /// `summary`: of the last outage, if that is to stand there. `keeps_claims`: it may be taken by a Node that is another by
    /// then, so that extended resources and labels have to wait.
    pub(super) fn updated(
        &mut self,
        base: &Node,
        summary: Option<String>,
        keeps_claims: bool,
        shared: &mut Shared,
        now: Now,
    ) -> Option<Wanted> {
        let mut wanted = self.made(Some(base), shared, now)?;
        self.settled = !wanted.changed;
        self.owes_claims = keeps_claims && claims::differ(base, &wanted.node);
        if self.owes_claims {
            claims::keep(base, &mut wanted.node);
        }
        if let Some(summary) = summary {
            wanted.changed = true;
            wanted.node.metadata.annotations.insert(LAST_OUTAGE.to_owned(), summary);
        }
        Some(wanted)
    }

    fn made(&mut self, base: Option<&Node>, shared: &mut Shared, now: Now) -> Option<Wanted> {
        let stamp = shared.stamp(now)?;
        let wanted = self.conditions.wanted(shared, stamp, now)?;
        let version = kubelet_version(self.server_version.as_deref());
        let board = Board {
            settings: &shared.settings,
            facts: self.facts.as_deref()?,
            name: &shared.node_name,
            kubelet_version: &version,
            conditions: &wanted,
            stamp,
        };
        let has_only_heartbeats = self.settled && !self.reconciles;
        let Update { mut node, changed, conditions, mut events, problems } = match base {
            Some(base) if has_only_heartbeats => desired::with_heartbeats(base, &board),
            Some(base) => desired::updated(base, &board, &mut self.remembered, self.reconciles),
            None => desired::initial(&board, &self.remembered),
        };
        let at = Now { wall: Some(stamp), ..now };
        annotate(&mut node, shared);
        events.extend(self.conditions.node_made(&wanted, conditions, base.is_some(), shared, at));
        if !has_only_heartbeats {
            self.complain(problems, shared);
        }
        let level = if base.is_some() { Level::Info } else { Level::Debug };
        events.into_iter().for_each(|event| shared.tell(level, now.up, event));
        Some(Wanted { node, changed: changed || self.conditions.has_unacknowledged() })
    }

    /// The server took what we computed last, and has this Node now.
    pub(super) fn acknowledged(&mut self, node: &Node) {
        self.conditions.acknowledged(node);
        self.reconciles &= self.owes_claims;
    }

    fn complain(&mut self, problems: Vec<NodeError>, shared: &mut Shared) {
        for problem in &problems {
            if !self.complaints.iter().any(|subject| subject == problem.subject()) {
                shared.say(Level::Warn, problem.word(), problem.to_string());
            }
        }
        self.complaints = problems.iter().map(|problem| problem.subject().to_owned()).collect();
    }
}
