//! Turns looks at the board, the server's answers and the passing of time into the Node's registration and its NodeStatus.
//!
//! ```text
//! Register --Node is ours--> Probe --facts--> Decide --changed, due, gap--> Patch --200--> Rest
//!    ^                         ^                | nothing to say              | 404, D1
//!    |                         +------ Rest <---+                             |
//!    +------------------------------------------------------------------------+
//! ```
//!
//! The base of every diff is the server's last answer (D4). Without a watch, three things keep it true: every PATCH
//! answers with the Node; an assertion of the statuses, every `statusAssertFrequency`, answers with the resourceVersion,
//! and a surprising one leads to one GET; after a gap every condition is sent whole.

mod base;
mod contest;
mod deletions;
mod left;
mod look;
mod unseen;

use std::time::Duration;

use super::backoff::Backoff;
use super::failure_log::RetryReason;
use super::lease::Renewal;
use super::notice::Level;
use super::registration::Registration;
use super::shared::{FullReport, Ownership, Shared, Step};
use super::tries::Tries;
use super::wanted::{Observed, WantedNode};
use crate::api::{Answer, Class, Document, Operation, PatchAnswer, Refusal};
use crate::config::limits::TRIES_PER_RUN;
use crate::node::object::Node;
use crate::node::{patch, report};
use crate::time::{Now, Up};
use base::Base;
use contest::Contest;
use deletions::{Deletions, may_have_been_done};
use left::tell_what_is_left;
use look::with_renewal;

#[derive(Debug)]
pub(super) struct StatusLane {
    stage: Stage,
    wanted: WantedNode,
    base: Base,
    /// The Node is too large to be read.
    is_large: bool,
    /// Of one run.
    tries: Tries,
    /// Since a request found no server, nothing is sent before: see `held_back`.
    held_until: Up,
    /// When the next report is due though nothing changed (SYN-6); `None` before the first.
    report_due: Option<Up>,
    assert_due: Up,
    version_due: Up,
    version_pause: Backoff,
    deletions: Deletions,
    reported: bool,
    /// When the board was looked at last.
    looked_at: Up,
}

#[derive(Debug)]
enum Stage {
    Register(Box<Registration>),
    /// Another board may be writing the Node (D10).
    Contest(Box<Contest>),
    /// Between two runs: one may ride with any other wake-up from `earliest` on, and happens by `latest`; never before the
    /// moment until which the server asked for patience.
    Rest {
        not_before: Up,
        earliest: Up,
        latest: Up,
    },
    /// A run begins with fresh facts.
    Probe,
    Decide {
        not_before: Up,
    },
    Version,
    Read,
    Patch {
        report_due: Up,
        /// It sums up an outage.
        sums_up: bool,
        /// What is sent, where the answer will not bring it.
        sent: Option<Box<Node>>,
    },
    Assert,
}

/// Why there is no Node of ours.
#[derive(Debug)]
pub(super) enum Obstacle<'a> {
    /// It is on its way.
    NotYet,
    Because(&'a str),
}

/// Longest Retry-After that NodeStatus obeys.
const CEILING: Duration = Duration::from_secs(30);
/// `kubeletVersion` follows a server that was upgraded within this time.
const VERSION_FREQUENCY: Duration = Duration::from_secs(24 * 3600);
/// Since Leases find no server, status waits for so long before it tries for itself: a server that was only restarted is
/// told by the Lease that we are there, and asked for no more.
const LEASE_FIRST: Duration = Duration::from_secs(60);
/// While Leases find no server, a report is tried this often: it makes the disk write what came since the last one.
const REPORT_IN_OUTAGE: Duration = Duration::from_secs(40 * 60);
const NODE_STATUS: &str = "NodeStatus";

impl StatusLane {
    pub(super) fn new(shared: &Shared, now: Up) -> StatusLane {
        let registers = shared.settings.register_node;
        let rest = Stage::Rest { not_before: now, earliest: now, latest: now };
        StatusLane {
            stage: if registers { Stage::Register(Box::new(Registration::new(now))) } else { rest },
            wanted: WantedNode::new(shared),
            base: Base::Unread,
            is_large: false,
            tries: Tries::of(NODE_STATUS, Duration::ZERO),
            held_until: now,
            report_due: None,
            assert_due: now,
            version_due: now,
            version_pause: Backoff::between(Duration::from_secs(60), VERSION_FREQUENCY),
            deletions: Deletions::default(),
            reported: false,
            looked_at: now,
        }
    }

    pub(super) fn poll(&mut self, shared: &mut Shared, renewal: Renewal, now: Now) -> Step {
        shared.notice_gap(now.up);
        if shared.node == Ownership::Contested && !matches!(self.stage, Stage::Contest(_)) {
            self.contest(None, shared, now);
        }
        let may_hurry =
            shared.full_report == FullReport::AtOnce && self.base.node().is_some() && !self.held_back(shared, now);
        match &mut self.stage {
            Stage::Register(registration) => registration.poll(&mut self.wanted, shared, now),
            Stage::Contest(contest) => contest.poll(now.up),
            Stage::Rest { not_before, earliest, latest } => {
                // The last renewal before a look's time takes the look along: a wake-up costs more than a look. So the two
                // are in step from the first renewal on, whenever the first report was.
                let rides = renewal == Renewal::Now && now.up + shared.settings.lease_renew_period() > *latest;
                if now.up < *not_before || !(may_hurry || now.up >= *earliest || rides) {
                    let until = with_renewal(*latest, renewal, shared).max(*not_before);
                    return Step::Wait { until, because: self.tries.because(NODE_STATUS) };
                }
                if shared.full_report == FullReport::AtOnce {
                    shared.full_report = FullReport::WithNextRun;
                }
                self.stage = Stage::Probe;
                Step::Probe
            }
            Stage::Decide { not_before } if now.up < *not_before => {
                Step::Wait { until: *not_before, because: self.tries.because(NODE_STATUS) }
            }
            Stage::Decide { .. } => self.decide(shared, now),
            Stage::Probe | Stage::Version | Stage::Read | Stage::Patch { .. } | Stage::Assert => Step::Idle,
        }
    }

    /// Why there is no Node of ours; `None` where there is one, or somebody else is to make it.
    pub(super) fn obstacle(&self) -> Option<Obstacle<'_>> {
        let failure = match &self.stage {
            Stage::Register(registration) => registration.last_failure(),
            Stage::Contest(contest) => contest.last_failure(),
            _ => return None,
        };
        Some(failure.map_or(Obstacle::NotYet, Obstacle::Because))
    }

    /// What the last report said, if it failed.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.tries.last_failure()
    }

    /// Whether a run has begun: a request may follow in this moment.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Probe | Stage::Decide { .. })
    }

    pub(super) fn observed(&mut self, seen: Observed, shared: &mut Shared, now: Now) {
        self.wanted.observe(seen, self.base.node(), shared, now);
        self.looked_at = now.up;
        match &mut self.stage {
            Stage::Register(registration) => registration.observed(),
            Stage::Probe => {
                self.tries.start_over();
                if self.tries.last_failure().is_some() {
                    // After a run that failed there is one try in each.
                    self.tries.failed = TRIES_PER_RUN - 1;
                }
                self.stage = Stage::Decide { not_before: now.up };
            }
            _ => {}
        }
    }

    /// Addresses or settings changed: look again now.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        self.wanted.unsettle();
        match &mut self.stage {
            Stage::Register(registration) => registration.hurry(reason, now),
            Stage::Rest { earliest, .. } => *earliest = now.up,
            // A run in progress looks at fresh facts soon enough; its pauses are the server's wish.
            _ => {}
        }
    }

    /// Ask before the next assertion is due.
    pub(super) fn node_may_be_gone(&mut self, now: Up) {
        self.assert_due = now;
        if let Stage::Rest { earliest, .. } = &mut self.stage {
            *earliest = now;
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, shared: &mut Shared, now: Now) {
        let stage = std::mem::replace(&mut self.stage, Stage::Decide { not_before: now.up });
        let refusal = answer.result.as_ref().err();
        let (registers, asks_version) = match &stage {
            Stage::Register(registration) => (true, registration.asks_for_version()),
            stage => (false, matches!(stage, Stage::Version)),
        };
        // Who knows the version need not know Nodes; but where nobody is, nobody is.
        let says_something = !asks_version || refusal.is_some_and(|refusal| refusal.class() == Class::Unreachable);
        let says_something = says_something && !refusal.is_some_and(Refusal::is_too_long);
        if says_something && (registers || shared.node_uid().is_none()) {
            // No Lease is renewed, or not in time, so nobody else says whether there is a server.
            shared.asked_for_node(refusal, now);
        }
        let patience = refusal.map_or(Duration::ZERO, Refusal::retry_after).min(CEILING);
        let result = answer.result.map(|document| self.completed(&stage, document, shared));
        // Whenever the Node is read: whose is it?
        let is_strange = matches!(&result, Ok(Document::Node(node)) if self.wanted.stranger(node).is_some());
        match (stage, result) {
            (Stage::Contest(contest), result) => self.contest_answered(contest, result, shared, now),
            (_, Ok(Document::Node(node))) if is_strange => self.contest(Some(node), shared, now),
            (Stage::Register(mut registration), result) => {
                match registration.answered(result, &mut self.wanted, shared, now) {
                    Some(node) => {
                        self.registered(node, shared, now);
                        self.stage = Stage::Decide { not_before: now.up + patience };
                    }
                    None => self.stage = Stage::Register(registration),
                }
            }
            (Stage::Version, Ok(_)) if shared.clock.wants_a_witness() => self.version_due = now.up,
            (Stage::Version, Ok(Document::Version(version))) => {
                self.wanted.server_version = Some(version);
                self.wanted.unsettle();
                if std::mem::take(&mut self.is_large) {
                    self.base.becomes(Base::Outdated);
                }
                self.version_pause.reset();
                self.version_due = now.up + VERSION_FREQUENCY;
            }
            (Stage::Version, Err(refusal)) => self.version_refused(&refusal, shared, now),
            (Stage::Read, Ok(Document::Node(node))) => {
                if shared.clock.wants_a_witness() {
                    self.version_due = now.up;
                }
                self.read(node, shared, now);
            }
            (Stage::Patch { report_due, sums_up, sent }, Ok(document)) => {
                self.report_due = Some(report_due);
                if sums_up {
                    shared.replay.summed_up(&mut shared.records);
                }
                match (document, sent) {
                    (Document::Node(node), _) => self.patched(node, shared, now),
                    (Document::Metadata { uid, resource_version, .. }, Some(sent)) => {
                        self.patched_unseen(sent, (uid, resource_version), shared, now);
                    }
                    _ => self.rest(shared, now),
                }
            }
            (Stage::Assert, Ok(Document::Metadata { uid, resource_version, .. })) => {
                self.asserted(&uid, &resource_version, shared, now);
            }
            (stage, Err(refusal)) => self.refused(&stage, &refusal, shared, now),
            (_, Ok(_)) => self.rest(shared, now),
        }
    }

    /// While Lease renewals find no server, status waits for them: after an outage two requests make the node Ready,
    /// Lease then status. Now and then one report goes anyway, in case only Leases are lost. While the Node is missing
    /// no Lease is renewed, so nothing is waited for.
    fn held_back(&self, shared: &Shared, now: Now) -> bool {
        let Some(since) = shared.outage.lost_since().filter(|_| shared.node_uid().is_some()) else { return false };
        now.up < self.held_until.max(since + LEASE_FIRST)
    }

    fn registered(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        if !self.is_large {
            tell_what_is_left(&node, shared);
        }
        shared.full_report = FullReport::NotNeeded;
        let is_known = self.wanted.server_version.as_ref().is_some_and(|version| version.starts_with('v'));
        self.version_due = now.up + if is_known { VERSION_FREQUENCY } else { self.version_pause.step() };
        self.report_due = None;
        self.wanted.reconcile();
        self.read(node, shared, now);
        self.tries.start_over();
    }

    fn decide(&mut self, shared: &mut Shared, now: Now) -> Step {
        if self.held_back(shared, now) {
            return self.rest_now(shared, now);
        }
        // What makes a Node Ready again goes first.
        let is_unknown = self.wanted.server_version.is_none() || !shared.clock.was_compared();
        let in_full = shared.full_report != FullReport::NotNeeded;
        let must_know = is_unknown || !in_full;
        if now.up >= self.version_due && must_know {
            self.version_due = now.up + self.version_pause.step();
            self.stage = Stage::Version;
            return Step::Send(Operation::ReadVersion);
        }
        let (base, is_unsure) = match &self.base {
            Base::Current(node) if self.wanted.is_known() => (node, false),
            Base::Unsure(node) if self.wanted.is_known() => (node, true),
            _ => {
                self.stage = Stage::Read;
                return Step::Send(self.reading());
            }
        };
        let must_send = self.report_due.is_none_or(|due| now.up >= due) || in_full || is_unsure;
        let summary = shared.summary(now);
        let sums_up = summary.is_some();
        let may_send = must_send || sums_up || !self.wanted.is_settled();
        if may_send && shared.records.must_wait(now.up) {
            return Step::Idle;
        }
        let wanted = if may_send { self.wanted.updated(base, summary, shared, now) } else { None };
        if let Some(wanted) = wanted.filter(|wanted| wanted.changed || must_send) {
            let body = if is_unsure {
                report::whole_status(base, &wanted.node)
            } else if in_full {
                report::report_in_full(base, &wanted.node)
            } else {
                patch::status_patch(base, &wanted.node)
            };
            let report_due = self.next_report(wanted.changed, shared, now);
            let sent = self.is_large.then(|| Box::new(wanted.node));
            self.stage = Stage::Patch { report_due, sums_up, sent };
            return Step::Send(Operation::PatchStatus { body, answer: self.answer(), heartbeat: true });
        }
        // An assertion belongs to the run nearest to its due time: runs have no fixed phase.
        if now.up + shared.settings.node_status_update_frequency / 2 >= self.assert_due {
            let body = patch::assertion(base);
            self.stage = Stage::Assert;
            return Step::Send(Operation::PatchStatus { body, answer: PatchAnswer::Metadata, heartbeat: true });
        }
        self.rest_now(shared, now)
    }

    /// SYN-7: after a change, and at start, the next idle report is moved by up to half its period either way.
    fn next_report(&self, changed: bool, shared: &mut Shared, now: Now) -> Up {
        let frequency = shared.settings.node_status_report_frequency;
        if changed || self.report_due.is_none() {
            now.up + frequency / 2 + shared.random.up_to(frequency)
        } else {
            now.up + frequency
        }
    }

    fn read(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        self.wanted.node_known(&node, shared, now);
        if shared.node != Ownership::Contested {
            shared.node = Ownership::Ours { uid: node.metadata.uid.clone() };
        }
        // Of one that is too large, only what was sent is known.
        self.base = if self.is_large { Base::Unsure(node) } else { Base::Current(node) };
    }

    fn patched(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        if self.reported {
            shared.say(Level::Debug, "status-sent", "NodeStatus sent");
        } else {
            let name = &shared.node_name;
            let summary =
                node.status.conditions.iter().map(|condition| format!("{}={}", condition.kind, condition.status));
            let text = format!("NodeStatus of {name} sent: {}", summary.collect::<Vec<_>>().join(" "));
            shared.say(Level::Info, "status-sent", text);
            self.reported = true;
        }
        self.deletions.report_accepted(now.up);
        self.wanted.acknowledged(&node);
        // Also what was to be reported at once: a renewal may have asked for it while this report was being made.
        shared.full_report = FullReport::NotNeeded;
        self.assert_due = now.up + shared.settings.status_assert_frequency;
        self.read(node, shared, now);
        self.base.becomes(Base::Current);
        self.rest(shared, now);
    }

    fn version_refused(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        self.wanted.version_refused(refusal);
        if self.wanted.waits_for_version() {
            self.version_due = now.up;
            return self.refused(&Stage::Version, refusal, shared, now);
        }
        // What is known of it is good enough for now; the report does not wait.
        self.wanted.server_version.get_or_insert_default();
        self.stage = Stage::Decide { not_before: now.up + refusal.retry_after().min(CEILING) };
    }

    fn refused(&mut self, stage: &Stage, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let verb = match stage {
            Stage::Read => "get nodes",
            Stage::Version => "get /version",
            _ => "patch nodes/status",
        };
        if self.is_found_large(stage, refusal, shared) {
            return;
        }
        let class = refusal.class();
        if class == Class::Missing && shared.settings.register_node && shared.settings.reregister {
            return self.register_again(now.up);
        }
        if class == Class::Missing {
            let name = &shared.node_name;
            let advice =
                format!("; Node {name} does not exist and this agent may not register it (registerNode, reregister)");
            self.tries.failed_with(refusal, &advice, shared, now);
        } else {
            self.tries.failed(refusal, verb, shared, now);
        }
        if let Stage::Patch { sums_up: true, .. } = stage
            && refusal.is_of_content()
        {
            shared.say(
                Level::Warning,
                "summary-refused",
                "the summary of the last outage is left out of the next report",
            );
            shared.replay.summed_up(&mut shared.records);
        }
        let was_outdated = matches!(self.base, Base::Outdated(_));
        if matches!(stage, Stage::Patch { .. }) && may_have_been_done(refusal) {
            self.base.becomes(Base::Unsure);
        }
        if let Some(wait) = self.tries.postponed(refusal, CEILING) {
            self.stage = Stage::Decide { not_before: now.up + wait };
            return;
        }
        match class {
            Class::Conflict | Class::Error | Class::Exists => {
                self.base.becomes(Base::Outdated);
                let most = if class == Class::Conflict { 2 } else { TRIES_PER_RUN };
                if self.tries.failed >= most {
                    self.rest(shared, now);
                }
            }
            Class::Unreachable => {
                if shared.full_report == FullReport::NotNeeded {
                    shared.full_report = FullReport::WithNextRun;
                }
                // Ready again in two requests: the whole status over what is known, rather than a look first.
                if was_outdated {
                    self.base.becomes(Base::Unsure);
                }
                self.held_until = now.up + shared.settings.node_status_report_frequency.max(REPORT_IN_OUTAGE);
                self.rest_from(now.up + refusal.retry_after().min(CEILING), shared, now);
            }
            _ => {
                if class == Class::Missing {
                    self.base = Base::Unread;
                    // A Lease of a Node that is gone would be collected as often as it is made (LSE-14).
                    shared.node = Ownership::Unknown;
                }
                self.rest(shared, now);
            }
        }
    }

    fn rest(&mut self, shared: &mut Shared, now: Now) {
        self.rest_from(now.up, shared, now);
    }

    /// Answers by when the next run happens.
    fn rest_from(&mut self, not_before: Up, shared: &mut Shared, now: Now) -> Up {
        let period = shared.settings.node_status_update_frequency;
        let latest = now.up + shared.random.jittered(period);
        self.stage = Stage::Rest { not_before, earliest: now.up + period, latest };
        latest
    }

    fn rest_now(&mut self, shared: &mut Shared, now: Now) -> Step {
        Step::Wait { until: self.rest_from(now.up, shared, now), because: self.tries.because(NODE_STATUS) }
    }
}
