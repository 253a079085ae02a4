//! Turns what is known of a Node of ours into a report, an assertion, a question or nothing, and the answer to it into what is
//! known then.

use std::time::Duration;

use super::super::budget::PutOff;
use super::super::notice::Level;
use super::super::shared::{Departure, FullReport, Ownership, Shared, Step};
use super::deletions::may_have_been_done;
use super::{Base, CEILING, Request, Stage, StatusLane, VERSION_FREQUENCY};
use crate::api::{Class, Document, Operation, PatchAnswer, Refusal};
use crate::config::limits::TRIES_PER_RUN;
use crate::node::object::Node;
use crate::node::{claims, leaving, patch, report};
use crate::time::{Now, Up};

/// Since Leases find no server, status waits for so long before it tries for itself: a server that was only restarted is
/// told by the Lease that we are there, and asked for no more.
const LEASE_FIRST: Duration = Duration::from_secs(60);
/// While Leases find no server, a report is tried this often: it makes the disk write what came since the last one.
const REPORT_IN_OUTAGE: Duration = Duration::from_secs(40 * 60);

impl StatusLane {
    /// What to ask next, with fresh facts.
    pub(super) fn decide(&mut self, shared: &mut Shared, now: Now) -> Step {
        let in_full = shared.full_report != FullReport::NotNeeded;
        let is_held_back = self.held_back(shared, now);
        self.base.begins_run(is_held_back, in_full);
        if is_held_back {
            return self.rest_now(shared, now);
        }
        // What makes a Node Ready again goes first.
        let is_unknown = self.wanted.server_version.is_none() || !shared.clock.was_compared();
        let is_urgent = in_full || self.report_due.is_none() || self.doubts_node || self.wanted.has_to_say_so();
        // What others wrote is looked at as long as it is asked about.
        let is_look = self.base.is_to_be_read() && self.wanted.is_settled();
        let put_off = if is_look { PutOff::Assertions } else { PutOff::Changes };
        if shared.budget.puts_off(put_off) && !is_urgent {
            return self.rest_now(shared, now);
        }
        if now.up >= self.version_due && (is_unknown || !in_full) {
            self.version_due = now.up + self.version_pause.step();
            return self.ask(Request::Version, Operation::ReadVersion);
        }
        let (base, is_unsure) = match &self.base {
            Base::Current(node) => (node, false),
            Base::Overwritten(node) if in_full => (node, false),
            Base::Unsure(node) => (node, true),
            _ => return self.ask(Request::Read, self.read_operation(true)),
        };
        let is_due = |due| now.up >= due && !shared.budget.puts_off(PutOff::Reports);
        let must_send = self.report_due.is_none_or(is_due) || in_full || is_unsure;
        let summary = shared.summary(now);
        let sums_up = summary.is_some();
        let may_send = must_send || sums_up || !self.wanted.is_settled();
        if may_send && shared.records.must_wait(now.up) {
            return Step::Idle;
        }
        // But for the first report, over what was just read, what others wrote meanwhile is not asked about.
        let takes_any = self.report_due.is_some() && in_full || is_unsure || self.conflicts > 1;
        let wanted = if may_send { self.wanted.updated(base, summary, takes_any, shared, now) } else { None };
        if let Some(wanted) = wanted.filter(|wanted| wanted.changed || must_send) {
            // Where nobody else writes, what came of it need not be read.
            let is_known = self.report_due.is_some() && !(wanted.changed || takes_any || self.conflicts > 0);
            let names_version = !self.is_large && (is_known || claims::differ(base, &wanted.node));
            let patch = if names_version { patch::status_patch_of_version } else { patch::status_patch };
            let body = match (is_unsure, in_full) {
                (true, _) => report::whole_status(base, &wanted.node, |kind| self.wanted.is_ours(kind, now)),
                (_, true) => report::report_in_full(base, &wanted.node, patch),
                _ => patch(base, &wanted.node),
            };
            let next_due = self.next_report(wanted.changed, shared, now);
            // What makes a Node Ready again costs no more than that; what others wrote meanwhile is looked at after it.
            let is_read_later = self.report_due.is_some() && (in_full || is_unsure) && !self.is_large;
            let is_read = !(is_known || is_read_later || self.is_large);
            let answer = match is_read {
                true => PatchAnswer::Node,
                false if is_known && names_version && shared.is_watched => PatchAnswer::OnWatch,
                false => PatchAnswer::Metadata,
            };
            let sent = (!is_read).then(|| Box::new(wanted.node));
            let request = Request::Report { next_due, sums_up, sent, is_read_later, names_version };
            return self.ask(request, Operation::PatchStatus { body, answer });
        }
        // An assertion belongs to the run nearest to its due time: runs have no fixed phase.
        let is_due = now.up + shared.settings.node_status_update_frequency / 2 >= self.assert_due;
        if self.doubts_node || is_due && !shared.is_watched && !shared.budget.puts_off(PutOff::Assertions) {
            let body = patch::assertion(base);
            let operation = Operation::PatchStatus { body, answer: PatchAnswer::Nothing };
            return self.ask(Request::Assert, operation);
        }
        self.ask_for_csi_node(shared, now).unwrap_or_else(|| self.rest_now(shared, now))
    }

    /// The machine goes down: one report, over whatever is known, which costs no look.
    pub(in crate::agent) fn depart(&mut self, departure: &Departure, shared: &mut Shared, now: Now) -> Step {
        // Whoever asked for patience gets it.
        if let Stage::Rest { not_before, .. } | Stage::Decide { not_before } = self.stage
            && now.up < not_before
        {
            return Step::Wait { until: not_before, because: self.tries.because() };
        }
        let (Some(base), Some(stamp)) = (self.base.node(), shared.stamp(now)) else { return Step::Idle };
        let is_sure = matches!(self.base, Base::Current(_));
        let body = report::departure(base, is_sure, departure.kind, stamp.minus(now.up - departure.at));
        let operation = Operation::PatchStatus { body, answer: PatchAnswer::Metadata };
        let request = Request::Report {
            next_due: now.up,
            sums_up: false,
            sent: None,
            is_read_later: false,
            names_version: false,
        };
        self.ask(request, operation)
    }

    /// The machine goes on after all: what the server has of it is read, and put right at once. Where it cannot be read, it may
    /// have taken what it was told.
    pub(in crate::agent) fn stay(&mut self, departure: &Departure, shared: &mut Shared, now: Now) {
        let since = shared.stamp(now).map(|stamp| stamp.minus(now.up - departure.at));
        if let Some((mut node, since)) = self.base.node().cloned().zip(since.filter(|_| departure.is_reported)) {
            leaving::leave(&mut node, departure.kind, since);
            self.base = Base::Current(Box::new(node));
        }
        // Who is still about to register reads or makes it anyway.
        if !self.base.is_registering() {
            self.base.becomes(Base::Outdated);
        }
        // Who heard nothing of a departure still has what was to be told before it.
        if departure.is_reported {
            self.wanted.stay();
        }
        shared.full_report = FullReport::AtOnce;
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

    /// While Lease renewals find no server, status waits for them: after an outage two requests make the node Ready,
    /// Lease then status. Now and then one report goes anyway, in case only Leases are lost. While the Node is missing
    /// no Lease is renewed, so nothing is waited for.
    pub(super) fn held_back(&self, shared: &Shared, now: Now) -> bool {
        let Some(since) = shared.outage.lost_since().filter(|_| shared.node_uid().is_some()) else { return false };
        now.up < self.held_until.max(since + LEASE_FIRST)
    }

    pub(super) fn accepted(&mut self, request: Request, document: Document, shared: &mut Shared, now: Now) {
        match (request, document) {
            // What tells that there is a Node waits as well: its Lease would be dated by nobody but the board.
            (Request::Read, Document::Node(_)) if shared.clock.ask_once_more() => self.version_due = now.up,
            (Request::Read, Document::Node(node)) => self.read(node, shared, now),
            (Request::Report { next_due, sums_up, sent, is_read_later, names_version }, document) => {
                self.report_due = Some(next_due);
                let was_settled = self.wanted.is_settled();
                if sums_up {
                    shared.replay.summary_is_done(&mut shared.records);
                }
                match (document, sent) {
                    (Document::Node(node), _) => self.reported(node, shared, now),
                    (Document::Metadata { uid, resource_version, .. }, Some(sent)) => {
                        self.reported_too_large(sent, (uid, resource_version), shared, now);
                        if was_settled && names_version && !self.is_large {
                            // Heartbeats alone went over the version that was known: what there is to send is as it was.
                            self.wanted.settle();
                        }
                    }
                    (Document::Nothing, Some(sent)) => {
                        self.reported(sent, shared, now);
                        self.base.becomes(Base::Reported);
                        if was_settled {
                            self.wanted.settle();
                        }
                    }
                    _ => self.rest(shared, now),
                }
                if is_read_later {
                    self.base.becomes(Base::Overwritten);
                }
            }
            (Request::Assert, Document::Metadata { uid, resource_version, .. }) => {
                let known = self.base.node().map(|base| &base.metadata);
                let is_known =
                    known.is_some_and(|known| (&known.uid, &known.resource_version) == (&uid, &resource_version));
                self.asserted(is_known, shared, now);
            }
            (Request::Assert, Document::Nothing) => self.asserted(true, shared, now),
            _ => self.rest(shared, now),
        }
    }

    pub(super) fn reported(&mut self, node: Box<Node>, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        if self.was_reported {
            shared.say(Level::Debug, "status-sent", "NodeStatus sent");
        } else {
            let name = &shared.node_name;
            let summary =
                node.status.conditions.iter().map(|condition| format!("{}={}", condition.kind, condition.status));
            let text = format!("NodeStatus of {name} sent: {}", summary.collect::<Vec<_>>().join(" "));
            shared.say(Level::Info, "status-sent", text);
            self.was_reported = true;
        }
        self.deletions.report_accepted(now.up);
        self.conflicts = 0;
        self.wanted.acknowledged(&node);
        // Also what was to be reported at once: a renewal may have asked for it while this report was being made.
        shared.full_report = FullReport::NotNeeded;
        self.assert_due = now.up + shared.settings.status_assert_frequency;
        self.read(node, shared, now);
        self.base.becomes(Base::Current);
        self.rest(shared, now);
    }

    pub(super) fn version_told(&mut self, version: String, shared: &mut Shared, now: Now) {
        self.version_due = now.up;
        if shared.clock.ask_once_more() {
            return;
        }
        self.wanted.server_version = Some(version);
        self.wanted.unsettle();
        if std::mem::take(&mut self.is_large) {
            self.base.becomes(Base::Outdated);
        }
        self.version_pause.reset();
        self.version_due = now.up + VERSION_FREQUENCY;
    }

    pub(super) fn version_refused(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        self.wanted.version_refused(refusal);
        let is_asked_again = self.wanted.waits_for_version();
        if self.base.is_registering() {
            if is_asked_again || !refusal.retry_after().is_zero() {
                self.register_failed(refusal, shared, now);
            }
            return;
        }
        if is_asked_again {
            self.version_due = now.up;
            return self.refused(&Request::Version, refusal, shared, now);
        }
        // What is known of it is good enough for now; the report does not wait.
        self.wanted.server_version.get_or_insert_default();
        self.stage = Stage::Decide { not_before: now.up + refusal.retry_after().min(CEILING) };
    }

    pub(super) fn refused(&mut self, request: &Request, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let class = refusal.class();
        if refusal.is_conflict() {
            match request {
                Request::Assert => return self.asserted(false, shared, now),
                // Once, counts twice, and if others wrote meanwhile as well, without asking whether they have.
                Request::Report { names_version: true, .. } => {
                    self.conflicts += 1;
                    return self.base.becomes(Base::Outdated);
                }
                _ => {}
            }
        }
        if class == Class::Missing && shared.settings.register_node && shared.settings.reregister {
            return self.register_again(now.up);
        }
        if class == Class::Missing {
            let name = &shared.node_name;
            let advice =
                format!("; Node {name} does not exist and this agent may not register it (registerNode, reregister)");
            self.tries.failed_with(refusal, &advice, shared, now);
        } else {
            self.tries.failed(refusal, shared, now);
        }
        if let Request::Report { sums_up: true, .. } = request
            && refusal.is_of_content()
        {
            shared.say(Level::Warn, "summary-refused", "the summary of the last outage is left out of the next report");
            shared.replay.summary_is_done(&mut shared.records);
        }
        let was_outdated = matches!(self.base, Base::Outdated(_));
        if matches!(request, Request::Report { .. }) && may_have_been_done(refusal) {
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
                // An assertion is due until one is answered, and says whether anything else is.
                if shared.full_report == FullReport::NotNeeded && !matches!(request, Request::Assert) {
                    shared.full_report = FullReport::WithNextRun;
                }
                // Ready again in two requests: what is known is reported over, and looked at after that.
                if was_outdated {
                    self.base.becomes(Base::Overwritten);
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
}
