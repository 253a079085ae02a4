//! Turns looks at the board, the server's answers and the passing of time into the Node's registration and its NodeStatus.
//!
//! ```text
//! Rest --due--> Probe --facts--> Decide --something to ask--> Asked --answer--> Decide, or Rest
//!  ^                               |
//!  '------- nothing to say --------'
//! ```
//!
//! What is asked follows from what is known of the Node (`status/base.rs`): while there is none of ours, that which makes one
//! (`status/registration.rs`); then whole or partial reports, and assertions. A 404 to one of these begins anew (D1).
//!
//! The base of every diff is the server's last answer (D4). Three things keep it true: every PATCH that changes something answers
//! with the Node; an assertion, every `statusAssertFrequency`, and each report without a change name the resourceVersion they are
//! made over, and are refused where somebody wrote another, which leads to one GET, as does an event of the watch that takes the
//! assertion's place where it can, and says which version such a report made (`status/seen.rs`); after a gap every condition is
//! sent whole.

mod base;
mod contest;
mod csi_node;
mod deletions;
mod inherited;
mod look;
mod registration;
mod reports;
mod seen;
mod too_large;

use std::time::Duration;

use super::backoff::Backoff;
use super::bucket::Bucket;
use super::conditions;
use super::failure_log::RetryReason;
use super::lease::Renewal;
use super::replay::Unreported;
use super::shared::{FullReport, Ownership, Shared, Step};
use super::tries::Tries;
use super::wanted::WantedNode;
use crate::api::{Answer, Class, Document, Operation, Refusal, Seen};
use crate::config::limits::TRIES_PER_RUN;
use crate::node::object::{Condition, Node};
use crate::node::rules;
use crate::probe::{Machine, Network, Readings};
use crate::time::{Now, Up, Wall};
use base::Base;
use contest::Contest;
use csi_node::CsiNode;
use deletions::Deletions;
use look::with_renewal;
use registration::tries_to_register;

#[derive(Debug)]
pub(super) struct StatusLane {
    stage: Stage,
    wanted: WantedNode,
    base: Base,
    /// The Node is too large to be read.
    is_large: bool,
    /// How many reports that named a version were refused since the last accepted one, as others had written the Node.
    conflicts: u32,
    /// Since there is no Node of ours, or of one run.
    tries: Tries,
    /// Since a request found no server, nothing is sent before: see `held_back`.
    held_until: Up,
    /// When the next report is due though nothing changed (SYN-6); `None` before the first.
    report_due: Option<Up>,
    assert_due: Up,
    /// Its Lease is gone: the next poll makes an assertion due.
    node_may_be_gone: bool,
    /// Since then nothing has shown that it is not.
    doubts_node: bool,
    /// What a watch said last, and nobody has judged yet; the end of a Node beside the version of another one.
    seen: Option<Seen>,
    seen_end: Option<Seen>,
    /// At what others wrote.
    looks: Bucket,
    version_due: Up,
    version_pause: Backoff,
    deletions: Deletions,
    csi_node: CsiNode,
    /// The Node that there is.
    was_reported: bool,
    /// When the board was looked at last.
    looked_at: Up,
}

#[derive(Debug)]
enum Stage {
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
    Asked(Request),
}

#[derive(Debug)]
enum Request {
    Version,
    Create,
    Strip,
    Read,
    Report {
        next_due: Up,
        /// It sums up an outage.
        sums_up: bool,
        /// What is sent, where the answer will not bring it.
        sent: Option<Box<Node>>,
        /// The Node is read with the next run.
        is_read_later: bool,
        /// It is refused where somebody else has written since.
        names_version: bool,
    },
    Assert,
    CsiNode,
}

impl Stage {
    /// In no case sooner than that.
    fn resting_until(moment: Up) -> Stage {
        Stage::Rest { not_before: moment, earliest: moment, latest: moment }
    }
}

/// Longest Retry-After that NodeStatus obeys.
const CEILING: Duration = Duration::from_secs(30);
/// `kubeletVersion` follows a server that was upgraded within this time.
const VERSION_FREQUENCY: Duration = Duration::from_secs(24 * 3600);
const NODE_STATUS: &str = "NodeStatus";

impl StatusLane {
    pub(super) fn new(shared: &Shared, now: Up) -> StatusLane {
        let registers = shared.settings.register_node;
        let mut tries = if registers { tries_to_register() } else { Tries::of(NODE_STATUS, Duration::ZERO) };
        StatusLane {
            // The first attempt comes after a pause as well (REG-2).
            stage: Stage::resting_until(now + tries.pause()),
            wanted: WantedNode::new(shared),
            base: if registers { Base::Missing } else { Base::Unread },
            is_large: false,
            conflicts: 0,
            tries,
            held_until: now,
            report_due: None,
            assert_due: now,
            node_may_be_gone: false,
            doubts_node: false,
            seen: None,
            seen_end: None,
            looks: seen::looks(),
            version_due: now,
            version_pause: Backoff::between(Duration::from_secs(60), VERSION_FREQUENCY),
            deletions: Deletions::default(),
            csi_node: CsiNode::new(now),
            was_reported: false,
            looked_at: now,
        }
    }

    pub(super) fn poll(&mut self, shared: &mut Shared, renewal: Renewal, now: Now) -> Step {
        shared.notice_gap(now.up);
        self.judge_seen(shared, now);
        // Whatever was answered since: it may have been said before the Node went.
        if std::mem::take(&mut self.node_may_be_gone) {
            self.assert_due = now.up;
            self.doubts_node = true;
            if let Stage::Rest { earliest, .. } = &mut self.stage {
                *earliest = now.up;
            }
        }
        if shared.node == Ownership::Contested && !matches!(self.stage, Stage::Contest(_)) {
            self.contest(None, shared, now);
        }
        let may_hurry =
            shared.full_report == FullReport::AtOnce && self.base.node().is_some() && !self.held_back(shared, now);
        match &mut self.stage {
            Stage::Contest(contest) => match contest.operation(now.up) {
                Some(operation) => Step::Send(self.tries.asking(operation)),
                None => Step::Wait { until: contest.ask_at, because: self.tries.because() },
            },
            Stage::Rest { not_before, earliest, latest } => {
                // The last renewal before a look's time takes the look along: a wake-up costs more than a look. So the two
                // are in step from the first renewal on, whenever the first report was.
                let rides =
                    matches!(renewal, Renewal::Sending(_)) && now.up + shared.settings.lease_renew_period() > *latest;
                let is_due = may_hurry || now.up >= *earliest || rides;
                if now.up < *not_before || !is_due {
                    let run =
                        if is_due { *not_before } else { with_renewal(*latest, renewal, shared).max(*not_before) };
                    return Step::Wait { until: run, because: self.tries.because() };
                }
                if shared.full_report == FullReport::AtOnce {
                    shared.full_report = FullReport::WithNextRun;
                }
                self.stage = Stage::Probe;
                Step::Probe
            }
            Stage::Decide { not_before } if now.up < *not_before => {
                Step::Wait { until: *not_before, because: self.tries.because() }
            }
            Stage::Decide { .. } if self.base.is_registering() => self.register(shared, now),
            Stage::Decide { .. } => match self.decide(shared, now) {
                // By now, when the next renewal goes out is known.
                Step::Wait { until, because } => Step::Wait { until: with_renewal(until, renewal, shared), because },
                step => step,
            },
            Stage::Probe | Stage::Asked(_) => Step::Idle,
        }
    }

    /// There is no Node that is known to be ours, and there is to be one.
    pub(super) fn lacks_node(&self) -> bool {
        self.base.is_registering() || matches!(self.stage, Stage::Contest(_))
    }

    /// Whether the server has the Node as Ready, as far as it said last.
    pub(super) fn is_ready(&self) -> bool {
        self.base.node().is_some_and(Node::is_ready)
    }

    /// What the last answer to it said, or to a report, if that failed; or what else is in the way.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.tries.last_failure()
    }

    /// Whether a run has begun: a request may follow in this moment.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Probe | Stage::Decide { .. }) && !self.base.is_registering()
    }

    pub(super) fn observed(
        &mut self,
        readings: Readings,
        board: Option<Box<(Machine, Network)>>,
        shared: &mut Shared,
        now: Now,
    ) {
        shared.kernel_told(readings.health.kernel.as_ref(), now);
        let was_awaited = self.wanted.runtime_awaited_until().is_some();
        self.wanted.observe(readings, board, self.base.node(), shared, now);
        self.looked_at = now.up;
        if was_awaited && self.wanted.runtime_awaited_until().is_none() {
            self.run_now(now.up);
        }
        if matches!(self.stage, Stage::Probe) {
            self.begin_run(now);
        }
    }

    fn begin_run(&mut self, now: Now) {
        if !self.base.is_registering() {
            self.tries.start_over();
            if self.tries.last_failure().is_some() {
                // After a run that failed there is one try in each.
                self.tries.failed = TRIES_PER_RUN - 1;
            }
        }
        self.stage = Stage::Decide { not_before: now.up };
    }

    /// Addresses or settings changed: look again now.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        self.wanted.unsettle();
        // A run in progress looks at fresh facts soon enough; its pauses are the server's wish.
        match &mut self.stage {
            Stage::Rest { earliest, .. } if !self.base.is_registering() => *earliest = now.up,
            Stage::Rest { .. } if self.tries.hurry(reason) => self.stage = Stage::resting_until(now.up),
            _ => {}
        }
    }

    /// Something was announced, or called off: the Node says so now.
    pub(super) fn announced(&mut self, shared: &mut Shared, now: Now) {
        self.wanted.announced(self.base.node(), shared, now);
        self.run_now(now.up);
    }

    /// What the board's container runtime is to be told of the addresses of pods.
    pub(super) fn untold_pod_cidr(&self) -> Option<String> {
        self.wanted.untold_pod_cidr(self.base.node()?)
    }

    /// Nothing but a pause between two runs ends by it.
    fn run_now(&mut self, now: Up) {
        if let Stage::Rest { earliest, .. } = &mut self.stage
            && !self.base.is_registering()
        {
            *earliest = now;
        }
    }

    /// Whether the server has that condition of ours as it was judged last.
    pub(super) fn says(&self, kind: &str) -> bool {
        self.base.node().is_some_and(|node| self.wanted.is_said(kind, node))
    }

    /// That condition of the Node, as the server said last.
    pub(super) fn stored(&self, kind: &str) -> Option<&Condition> {
        conditions::find(self.base.node()?, kind)
    }

    /// As the server said last.
    pub(super) fn node(&self) -> Option<&Node> {
        self.base.node()
    }

    /// What is to stand on the Node for each of our conditions; `None` before the first look.
    pub(super) fn judged(&self, shared: &Shared, stamp: Wall, now: Now) -> Option<[rules::Wanted; rules::COUNT]> {
        self.wanted.judged(shared, stamp, now)
    }

    /// Another board that wrote this Node, as far as what is known of both says so.
    pub(super) fn stranger(&self, node: &Node) -> Option<String> {
        self.wanted.stranger(node)
    }

    /// The records of changes that no report that was accepted has said yet.
    pub(super) fn unreported(&self) -> Unreported {
        self.wanted.unreported()
    }

    /// Ask before the next assertion is due.
    pub(super) fn node_may_be_gone(&mut self) {
        self.node_may_be_gone = true;
    }

    pub(super) fn answered(&mut self, answer: Answer, shared: &mut Shared, now: Now) {
        let stage = std::mem::replace(&mut self.stage, Stage::Decide { not_before: now.up });
        let refusal = answer.result.as_ref().err();
        self.tries.answered(refusal);
        let registers = self.base.is_registering();
        // Who knows the version need not know Nodes; but where nobody is, nobody is.
        let says_something = !matches!(stage, Stage::Asked(Request::Version))
            || refusal.is_some_and(|refusal| refusal.class() == Class::Unreachable);
        let says_something = says_something && !refusal.is_some_and(Refusal::is_too_long);
        if says_something && (registers || shared.node_uid().is_none()) {
            // No Lease is renewed, or not in time, so nobody else says whether there is a server.
            shared.asked_for_node(refusal, now);
        }
        let request = match stage {
            Stage::Contest(contest) => return self.contest_answered(contest, answer.result, shared, now),
            Stage::Asked(request) => request,
            _ => return,
        };
        let result = answer.result.map(|document| self.with_what_is_known(&request, document, shared));
        match result {
            // Whenever the Node is read: whose is it?
            Ok(Document::Node(node)) if self.wanted.stranger(&node).is_some() => {
                self.contest(Some(node), shared, now);
            }
            Ok(Document::Version(version)) => self.version_told(version, shared, now),
            Err(refusal) if matches!(request, Request::Version) => self.version_refused(&refusal, shared, now),
            Err(refusal) if self.is_found_large(&request, &refusal, shared) => {}
            result if matches!(request, Request::CsiNode) => {
                self.csi_node_answered(result.err().as_ref(), shared, now);
            }
            result if registers => self.register_answered(&request, result, shared, now),
            Ok(document) => self.accepted(request, document, shared, now),
            Err(refusal) => self.refused(&request, &refusal, shared, now),
        }
    }

    fn ask(&mut self, request: Request, operation: Operation) -> Step {
        self.stage = Stage::Asked(request);
        Step::Send(self.tries.asking(operation))
    }

    fn read(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        self.doubts_node = false;
        self.wanted.node_known(&node, shared, now);
        if shared.node != Ownership::Contested {
            shared.node = Ownership::Ours { uid: node.metadata.uid.clone() };
        }
        // Of one that is too large, only what was sent is known.
        self.base = if self.is_large { Base::Unsure(node) } else { Base::Current(node) };
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

    /// There is nothing to ask.
    fn rest_now(&mut self, shared: &mut Shared, now: Now) -> Step {
        Step::Wait { until: self.rest_from(now.up, shared, now), because: self.tries.because() }
    }
}
