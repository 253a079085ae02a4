//! Turns facts, the server's answers and the passing of time into the Node's registration and its NodeStatus.
//!
//! ```text
//! Register --Node is ours--> Probe --facts--> Decide --changed, due, gap--> Patch --200--> Rest
//!    ^                         ^                | nothing to say              | 404, D1
//!    |                         +------ Rest <---+                             |
//!    |                                  | ^ an outage was told                |
//!    |                                 SumUp                                  |
//!    +------------------------------------------------------------------------+
//! ```
//!
//! The base of every diff is the server's last answer (D4). Without a watch, three things keep it true: every PATCH
//! answers with the Node; an assertion of the four statuses, every `statusAssertFrequency`, answers with the
//! resourceVersion, and a surprising one leads to one GET; after a gap every condition is sent whole.

mod contest;
mod deletions;
mod left;
mod summary;
mod unseen;

use std::time::Duration;

use super::Because;
use super::backoff::Backoff;
use super::notice::Level;
use super::registration::Registration;
use super::trouble::{Remedy, Trouble};
use super::truth::{Seen, Truth};
use super::world::{Step, World};
use crate::api::{Answer, Class, Document, PatchAnswer, Refusal, Wish};
use crate::config::limits::{INNER_RETRIES, TRIES_PER_RUN};
use crate::node::object::Node;
use crate::node::{patch, report};
use crate::time::{Now, Up};
use contest::Contest;
use deletions::{Deletions, may_have_been_done};
use summary::with_renewal;
pub(super) use unseen::tell_too_large;

#[derive(Debug)]
pub(super) struct StatusLane {
    stage: Stage,
    truth: Truth,
    trouble: Trouble,
    /// The server's last answer; `None`: ask before the next PATCH.
    base: Option<Box<Node>>,
    /// Somebody else wrote the Node since: it is read before the next report, unless no server is found for that.
    is_outdated: bool,
    /// A PATCH may have reached the server without its answer reaching us: send all of the status next time.
    unsure: bool,
    is_large: bool,
    /// A run may ride with any other wake-up from `earliest` on, and happens by `latest`.
    earliest: Up,
    latest: Up,
    try_again_at: Up,
    /// Set by a request that found no server: see `held_back`.
    held_until: Up,
    tries: u32,
    postponed: u32,
    /// When the next report is due though nothing changed (SYN-6); `None` before the first.
    report_due: Option<Up>,
    assert_due: Up,
    version_due: Up,
    version_pause: Backoff,
    deletions: Deletions,
    reported: bool,
    /// When the board was looked at last.
    looked_at: Up,
    /// A summary that failed is tried again from then on.
    summary_due: Up,
    summary_pause: Backoff,
    /// The server that was given a summary asked for patience until then: between two runs nothing is sent before.
    patient_until: Up,
    told_what_is_left: bool,
}

#[derive(Debug)]
enum Stage {
    Register(Box<Registration>),
    /// Another board may be writing the Node (D10).
    Contest(Box<Contest>),
    Rest,
    Probe,
    Decide,
    Version,
    Read,
    Patch {
        report_due: Up,
        /// What is sent, where the answer will not bring it.
        sent: Option<Box<Node>>,
    },
    Assert,
    /// The summary of an outage, between two runs.
    SumUp,
}

/// Why there is no Node of ours.
#[derive(Debug)]
pub(super) enum Obstacle<'a> {
    /// It is on its way.
    NotYet,
    Because(&'a str),
}

/// The eviction manager's `monitoringInterval` (EVI-6).
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// A run that follows so soon after a look's time takes it along.
const LOOK_PATIENCE: Duration = Duration::from_millis(1500);
/// Longest Retry-After that NodeStatus obeys.
const CEILING: Duration = Duration::from_secs(30);
/// `kubeletVersion` follows a server that was upgraded within this time.
const VERSION_FREQUENCY: Duration = Duration::from_secs(24 * 3600);
/// Since Leases find no server, status waits for so long before it tries for itself: a server that was only restarted is
/// told by the Lease that we are there, and asked for no more.
const LEASE_FIRST: Duration = Duration::from_secs(60);
/// While Leases find no server, a report is tried this often: it makes the disk write what came since the last one.
const REPORT_IN_OUTAGE: Duration = Duration::from_secs(40 * 60);

impl StatusLane {
    pub(super) fn new(world: &World, now: Up) -> StatusLane {
        let registers = world.settings.register_node;
        StatusLane {
            stage: if registers { Stage::Register(Box::new(Registration::new(now))) } else { Stage::Rest },
            truth: Truth::new(world),
            trouble: Trouble::of("NodeStatus"),
            base: None,
            is_outdated: false,
            unsure: false,
            is_large: false,
            earliest: now,
            latest: now,
            try_again_at: now,
            held_until: now,
            tries: 0,
            postponed: 0,
            report_due: None,
            assert_due: now,
            version_due: now,
            version_pause: Backoff::between(Duration::from_secs(60), VERSION_FREQUENCY),
            deletions: Deletions::default(),
            reported: false,
            looked_at: now,
            summary_due: now,
            summary_pause: Backoff::between(Duration::from_secs(10), Duration::from_secs(3600)),
            patient_until: now,
            told_what_is_left: false,
        }
    }

    pub(super) fn poll(&mut self, world: &mut World, now: Now) -> Step {
        world.notice_gap(now.up);
        if std::mem::take(&mut world.node_in_doubt) {
            self.assert_due = now.up;
            world.report_at_once = true;
        }
        if world.contested && !matches!(self.stage, Stage::Contest(_)) {
            self.contest(None, world, now);
        }
        let may_hurry = world.report_at_once && self.base.is_some() && !self.held_back(world, now);
        let is_due = now.up >= self.earliest || self.rides(world, now);
        match &mut self.stage {
            Stage::Register(registration) => registration.poll(&mut self.truth, world, now),
            Stage::Rest if now.up >= self.patient_until && (may_hurry || is_due) => {
                world.report_at_once = false;
                self.stage = Stage::Probe;
                Step::Probe
            }
            Stage::Rest => self.rest_or_sum_up(world, now),
            Stage::Decide if now.up < self.try_again_at => {
                Step::Wait { until: self.try_again_at, because: self.because() }
            }
            Stage::Decide => self.decide(world, now),
            Stage::Contest(contest) => contest.poll(now.up),
            Stage::Probe | Stage::Version | Stage::Read | Stage::Patch { .. } | Stage::Assert | Stage::SumUp => {
                Step::Idle
            }
        }
    }

    /// The last renewal before a look's time takes the look along: a wake-up costs more than a look. So the two are in
    /// step from the first renewal on, whenever the first report was.
    fn rides(&self, world: &World, now: Now) -> bool {
        world.renews && now.up + world.settings.lease_renew_period() > self.latest
    }

    /// When the board is to be looked at although no run does: pressure is judged every ten seconds (EVI-6), however rarely
    /// status is sent, however long a request takes, and also where no Node can be registered.
    pub(super) fn look_due(&self, world: &World) -> Up {
        let due = with_renewal(self.looked_at + LOOK_PERIOD, world);
        let run = matches!(self.stage, Stage::Rest).then(|| with_renewal(self.latest, world));
        // One that is overdue waits for something else.
        run.filter(|run| self.looked_at < *run && *run <= due + LOOK_PATIENCE).unwrap_or(due)
    }

    /// Why there is no Node of ours; `None` where there is one, or somebody else is to make it.
    pub(super) fn obstacle(&self) -> Option<Obstacle<'_>> {
        let trouble = match &self.stage {
            Stage::Register(registration) => registration.trouble(),
            Stage::Contest(contest) => contest.trouble(),
            _ => return None,
        };
        Some(trouble.map_or(Obstacle::NotYet, Obstacle::Because))
    }

    /// What the last report said, if it failed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.last()
    }

    /// Whether a run has begun: a request may follow in this moment.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Probe | Stage::Decide)
    }

    pub(super) fn observed(&mut self, seen: Seen, world: &mut World, now: Now) {
        self.truth.observe(seen, self.base.as_deref(), world, now);
        self.looked_at = now.up;
        match &mut self.stage {
            Stage::Register(registration) => registration.observed(),
            Stage::Probe => {
                // After a run that failed there is one try in each.
                self.tries = if self.trouble.last().is_some() { TRIES_PER_RUN - 1 } else { 0 };
                self.postponed = 0;
                self.try_again_at = now.up;
                self.stage = Stage::Decide;
            }
            _ => {}
        }
    }

    /// Addresses or settings changed: look again now.
    pub(super) fn hurry(&mut self, remedy: Remedy, now: Now) {
        self.truth.unsettle();
        match &mut self.stage {
            Stage::Register(registration) => registration.hurry(remedy, now),
            Stage::Rest => self.earliest = now.up,
            // A run in progress looks at fresh facts soon enough; its pauses are the server's wish.
            _ => {}
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, world: &mut World, now: Now) {
        let stage = std::mem::replace(&mut self.stage, Stage::Decide);
        let refusal = answer.result.as_ref().err();
        let (registers, asks_version) = match &stage {
            Stage::Register(registration) => (true, registration.asks_for_version()),
            stage => (false, matches!(stage, Stage::Version)),
        };
        // Who knows the version need not know Nodes; but where nobody is, nobody is.
        let says_something = !asks_version || refusal.is_some_and(|refusal| refusal.class() == Class::Unreachable);
        let says_something = says_something && !refusal.is_some_and(Refusal::is_too_long);
        if says_something && (registers || world.node_uid.is_none()) {
            // No Lease is renewed, or not in time, so nobody else says whether there is a server.
            world.asked_for_node(refusal, now);
        }
        let result = answer.result.map(|document| self.completed(&stage, document, world));
        let answer = Answer { result, ..answer };
        // Whenever the Node is read: whose is it?
        let node = answer.result.as_ref().ok().and_then(|document| match document {
            Document::Node(node) => Some(node),
            _ => None,
        });
        let is_strange = node.is_some_and(|node| self.truth.stranger(node).is_some());
        match (stage, answer.result) {
            (Stage::Contest(contest), result) => self.contest_answered(contest, result, world, now),
            (_, Ok(Document::Node(node))) if is_strange => self.contest(Some(node), world, now),
            (Stage::Register(mut registration), result) => {
                let answer = Answer { date: answer.date, result };
                match registration.answered(answer, &mut self.truth, world, now) {
                    Some(node) => self.registered(node, world, now),
                    None => self.stage = Stage::Register(registration),
                }
            }
            (Stage::Version, Ok(_)) if world.clock.wants_a_witness() => self.version_due = now.up,
            (Stage::Version, Ok(Document::Version(version))) => {
                self.truth.server_version = Some(version);
                self.truth.unsettle();
                self.is_outdated |= std::mem::take(&mut self.is_large);
                self.version_pause.reset();
                self.version_due = now.up + VERSION_FREQUENCY;
            }
            (Stage::Version, Err(refusal)) => {
                self.truth.version_refused(&refusal);
                if self.truth.waits_for_version() {
                    self.version_due = now.up;
                    return self.refused(&Stage::Version, &refusal, world, now);
                }
                // What is known of it is good enough for now; the report does not wait.
                self.truth.server_version.get_or_insert_default();
                self.try_again_at = now.up + refusal.retry_after().min(CEILING);
            }
            (Stage::Read, Ok(Document::Node(node))) => self.read(node, world, now),
            (Stage::Patch { report_due, .. }, Ok(Document::Node(node))) => self.patched(node, report_due, world, now),
            (Stage::Patch { report_due, sent: Some(sent) }, Ok(Document::Metadata { uid, resource_version, .. })) => {
                self.patched_unseen(sent, (uid, resource_version), report_due, world, now);
            }
            (Stage::Assert, Ok(Document::Metadata { uid, resource_version, .. })) => {
                self.asserted(&uid, &resource_version, world, now);
            }
            (Stage::SumUp, result) => self.summed_up(result, world, now),
            (stage, Err(refusal)) => self.refused(&stage, &refusal, world, now),
            (_, Ok(_)) => self.rest(world, now),
        }
    }

    /// While Lease renewals find no server, status waits for them: after an outage two requests make the node Ready,
    /// Lease then status. Now and then one report goes anyway, in case only Leases are lost. While the Node is missing
    /// no Lease is renewed, so nothing is waited for.
    fn held_back(&self, world: &World, now: Now) -> bool {
        let Some(since) = world.outage.lost_since().filter(|_| world.node_uid.is_some()) else { return false };
        now.up < self.held_until.max(since + LEASE_FIRST)
    }

    fn because(&self) -> Because {
        Because { what: "NodeStatus", after: self.trouble.last().map(str::to_owned) }
    }

    fn registered(&mut self, node: Box<Node>, world: &mut World, now: Now) {
        if !self.is_large {
            self.tell_what_is_left(&node, world);
        }
        world.node_found(&node.metadata.uid);
        world.report_in_full = false;
        let is_known = self.truth.server_version.as_ref().is_some_and(|version| version.starts_with('v'));
        self.version_due = now.up + if is_known { VERSION_FREQUENCY } else { self.version_pause.step() };
        self.report_due = None;
        self.truth.node_known(&node, world, now);
        self.truth.reconcile();
        self.base = Some(node);
        self.is_outdated = false;
        self.tries = 0;
        self.try_again_at = now.up;
        self.stage = Stage::Decide;
    }

    fn decide(&mut self, world: &mut World, now: Now) -> Step {
        if self.held_back(world, now) {
            self.rest(world, now);
            return Step::Wait { until: self.latest, because: self.because() };
        }
        // What makes a Node Ready again goes first.
        let is_unknown = self.truth.server_version.is_none() || !world.clock.was_compared();
        let must_know = is_unknown || !world.report_in_full;
        if now.up >= self.version_due && must_know {
            self.version_due = now.up + self.version_pause.step();
            self.stage = Stage::Version;
            return Step::Send(Wish::ReadVersion);
        }
        let Some(base) = self.base.as_deref().filter(|_| self.truth.is_known() && !self.is_outdated) else {
            self.stage = Stage::Read;
            return Step::Send(self.reading());
        };
        let must_send = self.report_due.is_none_or(|due| now.up >= due) || world.report_in_full || self.unsure;
        let may_send = must_send || !self.truth.is_settled();
        if may_send && world.memory.must_wait(now.up) {
            return Step::Idle;
        }
        let wanted = if may_send { self.truth.updated(base, world, now) } else { None };
        if let Some(wanted) = wanted.filter(|wanted| wanted.changed || must_send) {
            let body = if self.unsure {
                report::whole_status(base, &wanted.node)
            } else if world.report_in_full {
                report::report_in_full(base, &wanted.node)
            } else {
                patch::status_patch(base, &wanted.node)
            };
            let report_due = self.next_report(wanted.changed, world, now);
            self.stage = Stage::Patch { report_due, sent: self.is_large.then(|| Box::new(wanted.node)) };
            return Step::Send(Wish::PatchStatus { body, answer: self.answer(), heartbeat: true });
        }
        // An assertion belongs to the run nearest to its due time: runs have no fixed phase.
        if now.up + world.settings.node_status_update_frequency / 2 >= self.assert_due {
            let body = patch::assertion(base);
            self.stage = Stage::Assert;
            return Step::Send(Wish::PatchStatus { body, answer: PatchAnswer::Metadata, heartbeat: true });
        }
        self.rest(world, now);
        Step::Wait { until: self.latest, because: self.because() }
    }

    /// SYN-7: after a change, and at start, the next idle report is moved by up to half its period either way.
    fn next_report(&self, changed: bool, world: &mut World, now: Now) -> Up {
        let frequency = world.settings.node_status_report_frequency;
        if changed || self.report_due.is_none() {
            now.up + frequency / 2 + world.random.up_to(frequency)
        } else {
            now.up + frequency
        }
    }

    fn read(&mut self, node: Box<Node>, world: &mut World, now: Now) {
        self.truth.node_known(&node, world, now);
        if !world.contested {
            world.node_found(&node.metadata.uid);
        }
        self.base = Some(node);
        self.is_outdated = false;
    }

    fn patched(&mut self, node: Box<Node>, report_due: Up, world: &mut World, now: Now) {
        world.say_if(self.trouble.ended(now.up));
        if self.reported {
            world.say(Level::Debug, "status-sent", "NodeStatus sent");
        } else {
            let name = &world.node_name;
            let summary =
                node.status.conditions.iter().map(|condition| format!("{}={}", condition.kind, condition.status));
            let text = format!("NodeStatus of {name} sent: {}", summary.collect::<Vec<_>>().join(" "));
            world.say(Level::Info, "status-sent", text);
            self.reported = true;
        }
        self.deletions.report_accepted(now.up);
        self.truth.acknowledged(&node);
        self.unsure = false;
        world.report_in_full = false;
        // What was to be reported at once is: a renewal may have asked for it while this report was being made.
        world.report_at_once = false;
        self.report_due = Some(report_due);
        self.assert_due = now.up + world.settings.status_assert_frequency;
        self.read(node, world, now);
        self.rest(world, now);
    }

    fn refused(&mut self, stage: &Stage, refusal: &Refusal, world: &mut World, now: Now) {
        let verb = match stage {
            Stage::Read => "get nodes",
            Stage::Version => "get /version",
            _ => "patch nodes/status",
        };
        if self.is_found_large(stage, refusal, world) {
            return;
        }
        let class = refusal.class();
        if class == Class::Missing && world.settings.register_node && world.settings.reregister {
            return self.register_again(now.up);
        }
        self.unsure |= matches!(stage, Stage::Patch { .. }) && may_have_been_done(refusal);
        let advice = if class == Class::Missing {
            let name = &world.node_name;
            format!("; Node {name} does not exist and this agent may not register it (registerNode, reregister)")
        } else {
            world.advise(refusal, verb, now)
        };
        world.say_if(self.trouble.failed(refusal, &advice, now.up));
        self.tries += 1;
        match class {
            Class::After(wait) if self.postponed < INNER_RETRIES => {
                self.postponed += 1;
                self.tries -= 1;
                self.try_again_at = now.up + wait.min(CEILING);
            }
            Class::Conflict if self.tries < 2 => self.is_outdated = true,
            Class::Error | Class::Exists if self.tries < TRIES_PER_RUN => self.is_outdated = true,
            Class::Conflict | Class::Error | Class::Exists => {
                self.is_outdated = true;
                self.rest(world, now);
            }
            Class::Unreachable => {
                world.report_in_full = true;
                // Ready again in two requests: the whole status over what is known, rather than a look first.
                self.unsure |= std::mem::take(&mut self.is_outdated);
                self.held_until = now.up + world.settings.node_status_report_frequency.max(REPORT_IN_OUTAGE);
                self.patient_until = now.up + refusal.retry_after().min(CEILING);
                self.rest(world, now);
            }
            _ => {
                if class == Class::Missing {
                    self.base = None;
                    // A Lease of a Node that is gone would be collected as often as it is made (LSE-14).
                    world.node_uid = None;
                }
                self.rest(world, now);
            }
        }
    }

    fn rest(&mut self, world: &mut World, now: Now) {
        let period = world.settings.node_status_update_frequency;
        self.earliest = now.up + period;
        self.latest = now.up + world.random.jittered(period);
        self.stage = Stage::Rest;
    }
}
