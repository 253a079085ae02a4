//! Turns what happened, and when, into what to do next: the whole behaviour, without a clock, a socket or a file.
//!
//! The contract (after str0m): [`Agent::handle`] one input, then [`Agent::poll`] until it answers [`Output::Wait`], then
//! wait for the deadline or the next input, whichever comes first.
//!
//! Five lanes, each with at most one request in flight: Lease, status (registration included), events, identity, watch. A lane is asked
//! what it wants only when nothing of its own is in flight, so no lane can wait for another's answer (LSE-16).

mod absence;
mod backoff;
mod bucket;
mod budget;
mod clock;
mod conditions;
mod contract;
mod credentials;
mod events;
mod failure_log;
mod identity;
mod last_boot;
mod lease;
mod leaving;
pub mod notice;
mod outage;
mod overview;
mod random;
mod records;
mod renewals;
mod replay;
mod shared;
mod status;
mod status_line;
#[cfg(test)]
mod tests;
mod tries;
mod trouble;
mod wanted;
mod watch;

pub use contract::{
    Access, Because, CredentialDates, IdentityStep, Input, JoinedCluster, Means, Output, Ticket, Trust,
};
pub use notice::{Level, Notice};
pub use status_line::StatusLine;

use std::time::Duration;

use crate::api::{Answer, Document, Lane, Operation, Refusal};
use crate::config::Settings;
use crate::config::limits::{
    LOOK_DEADLINE, REPEATS_PER_MINUTE, REQUEST_DEADLINE, REQUESTS_AT_ONCE, REQUESTS_OF_LEASE, REQUESTS_PER_MINUTE,
};
use crate::journal::record::cut;
use crate::journal::{Happened, Journal};
use crate::time::{Now, Up};
use bucket::Bucket;
use events::EventLane;
use failure_log::RetryReason;
use heapless::LinearMap;
use identity::IdentityLane;
use lease::LeaseLane;
use renewals::LONGEST_ANSWER;
use shared::{Departure, FullReport, Shared, Step};
use status::StatusLane;
use watch::WatchLane;

/// A look at everything this often costs nothing, and bounds what a missed input could do.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long the end of the process may wait for the disk.
const LAST_WRITES: Duration = Duration::from_secs(2);

const CEILING: Because = Because { what: "the ceiling of requests in a minute", after: None };

/// How often a board asks whose identity was revoked (REV-1).
const REVOKED_PAUSE: Duration = Duration::from_secs(3600);
const REVOKED: Because = Because { what: "the end of a revocation", after: None };

const ENDED: Because = Because { what: "another certificate", after: None };

/// Besides those at once and those that are repeated, in the long run: three and a half times what heartbeats ask for in
/// peace, which is the ceiling by default. Whoever sets heartbeats of a second gets them, and a NodeStatus beside them.
fn requests_per_second(settings: &Settings) -> f64 {
    let periods = [settings.lease_renew_period(), settings.node_status_update_frequency];
    let asked: f64 = periods.iter().map(|period| 3.5 / period.as_secs_f64().max(0.25)).sum();
    asked.max(f64::from(REQUESTS_PER_MINUTE - REQUESTS_AT_ONCE - REPEATS_PER_MINUTE) / 60.0)
}

const LANES: [Lane; 5] = [Lane::Lease, Lane::Status, Lane::Events, Lane::Identity, Lane::Watch];

/// Takes a further deadline; the first one decides, with its reason.
fn sooner(wait: &mut Option<(Up, Because)>, until: Up, because: Because) {
    if wait.as_ref().is_none_or(|(first, _)| until < *first) {
        *wait = Some((until, because));
    }
}

/// The core.
#[derive(Debug)]
pub struct Agent {
    shared: Shared,
    lease: LeaseLane,
    status: StatusLane,
    events: EventLane,
    identity: IdentityLane,
    watch: WatchLane,
    /// Number of the ticket of each lane that has one.
    in_flight: LinearMap<Lane, u64, { LANES.len() }>,
    tickets: u64,
    /// How many requests may still go: no refusal whatever makes them more.
    requests: Bucket,
    /// An administrator has revoked the identity: nothing is asked before.
    revoked_until: Up,
    /// Since when the board is being looked at.
    probing: Option<Up>,
    /// Somebody who announced something waits for an answer, until then.
    answer_by: Option<Up>,
    end: End,
}

/// How far the end of the process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The machine goes down, and the server is told.
    Leaving(Departure),
    Asked {
        until: Up,
    },
    Said,
}

impl Agent {
    /// `node_name` is settled by the caller (`node::name`); `seed` feeds all jitter; `journal` is what earlier processes
    /// left to be told; `reset` is what is known of the board's last reset.
    pub fn new(
        settings: Settings,
        node_name: String,
        seed: u64,
        journal: Journal,
        reset: &crate::probe::LastReset,
        now: Now,
    ) -> Agent {
        let last_boot = journal.last_boot().filter(|last| *last != journal.boot());
        let mut shared = Shared::new(settings, node_name, seed, journal, now);
        shared.record(Happened::ProcessStarted, now);
        if let Some(old) = last_boot {
            shared.record(Happened::BoardRebooted { old, reason: cut(&reset.reason) }, now);
        }
        shared.begin_run(last_boot.is_some(), reset, now);
        let status = StatusLane::new(&shared, now.up);
        let watch = WatchLane::new(&shared.settings);
        let requests = Bucket::new(f64::from(REQUESTS_AT_ONCE), requests_per_second(&shared.settings));
        Agent {
            shared,
            lease: LeaseLane::new(),
            status,
            events: EventLane::new(),
            identity: IdentityLane::new(),
            watch,
            in_flight: LinearMap::new(),
            tickets: 0,
            requests,
            revoked_until: Up::BOOT,
            probing: None,
            answer_by: None,
            end: End::NotYet,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Woke => {}
            Input::Looked { readings, board } => {
                self.probing = None;
                self.status.observed(*readings, board, &mut self.shared, now);
            }
            Input::Counted { days, by_process_bytes } => self.shared.counted(&days, by_process_bytes, now),
            Input::Answered(ticket, answer) => self.answered(&ticket, answer, now),
            Input::Seen(seen) => {
                if self.in_flight.contains_key(&Lane::Watch) {
                    self.watch.seen(&seen, &mut self.shared, now);
                    self.lease.node_written();
                    self.status.seen(seen);
                }
            }
            Input::LinkChanged => {
                if self.shared.is_lost() {
                    self.shared.output(Output::DropConnections { unheard_for: REQUEST_DEADLINE });
                }
                self.hurry(RetryReason::Link, now);
            }
            Input::Reloaded(settings) => self.reload(*settings, now),
            Input::NotJoined => {
                self.identity.join(&mut self.shared, now);
                // Whose the Node is that may be there already, the board says.
                self.probe(now.up);
            }
            Input::Means(means) => self.identity.means_read(means, &mut self.shared, now),
            Input::Cluster(cluster) => self.identity.cluster_read(cluster, &mut self.shared, now),
            Input::Credentials(dates) => {
                let are_others = self.shared.credentials.in_use(dates);
                self.identity.credentials_read(are_others, &mut self.shared, now);
                if are_others {
                    self.revoked_until = now.up;
                    // Who may not tell, or watch, asks rarely; with another certificate it may.
                    self.events.hurry(RetryReason::Reload, now);
                    self.watch.hurry(RetryReason::Reload, now);
                }
            }
            Input::RequestMade { request, signature, node_password } => {
                self.identity.request_made(*request, signature, node_password, &mut self.shared, now)
            }
            Input::Renew => {
                let is_held = self.is_renewing();
                self.identity.renew(is_held, &mut self.shared, now);
            }
            Input::Away { until, reason } => self.announce(until, &reason, now),
            Input::Back => self.call_off(now),
            Input::Written { done } => self.written(done, now),
            Input::GoesDown(kind) => self.leave(kind, false, now),
            Input::GoesOn => self.stay(now),
            Input::Leaving(kind) => self.leave(kind, true, now),
            Input::Stopping => self.asked_to_stop(now),
        }
    }

    fn written(&mut self, done: bool, now: Now) {
        let notice = self.shared.records.written(done, now.up);
        self.shared.say_if(notice);
        if !done && let End::Asked { until } = &mut self.end {
            // A disk that failed just now is not worth waiting for.
            *until = now.up;
        }
    }

    /// The settings were read again.
    fn reload(&mut self, settings: Settings, now: Now) {
        self.shared.settings = settings;
        self.shared.new_budget();
        self.requests.set(f64::from(REQUESTS_AT_ONCE), requests_per_second(&self.shared.settings));
        self.watch.reloaded(&mut self.shared);
        self.shared.say(Level::Info, "reloaded", "settings read again");
        self.revoked_until = now.up;
        self.hurry(RetryReason::Reload, now);
        // By other thresholds the board may be another, whatever status waits for.
        self.probe(now.up);
    }

    /// The next thing to do; ends with [`Output::Wait`].
    pub fn poll(&mut self, now: Now) -> Output {
        match self.end {
            End::NotYet => self.live(now),
            End::Leaving(departure) => self.depart(departure, now),
            _ => self.stop(now),
        }
    }

    fn live(&mut self, now: Now) -> Output {
        self.shared.end_budget_day(now.up);
        if let Some(output) = self.shared.next_output() {
            return output;
        }
        let mut wait: Option<(Up, Because)> = None;
        let ended_until = self.shared.ended_until(now);
        if now.up < ended_until.max(self.revoked_until) {
            // Hardly anything is asked, and so hardly anything refused, after which to look whether there are others.
            if self.shared.credentials.read_again(now.up) {
                return Output::ReloadCredentials;
            }
            sooner(&mut wait, self.shared.credentials.read_again_at(), ENDED);
        }
        for lane in LANES {
            let has_credentials = lane == Lane::Identity || self.identity.is_joined();
            if !has_credentials || self.in_flight.contains_key(&lane) {
                continue;
            }
            // What goes first is asked first, and has something left that the others may not take.
            let left = if lane == Lane::Lease { 0 } else { REQUESTS_OF_LEASE };
            let pause = self.requests.wait(f64::from(left), now.up);
            let step = match lane {
                _ if now.up < self.revoked_until => Step::Wait { until: self.revoked_until, because: REVOKED },
                Lane::Lease | Lane::Status | Lane::Events | Lane::Watch if now.up < ended_until => {
                    Step::Wait { until: ended_until, because: ENDED }
                }
                _ if !pause.is_zero() => Step::Wait { until: now.up + pause, because: CEILING },
                Lane::Lease => self.lease.poll(&mut self.shared, now),
                Lane::Status => {
                    let renewal = self.lease.renewal(&self.shared, now.up);
                    self.status.poll(&mut self.shared, renewal, now)
                }
                Lane::Events => {
                    let is_near = self.heartbeat_is_near();
                    self.events.poll(&mut self.shared, is_near, now)
                }
                Lane::Identity => {
                    let is_held = self.is_renewing();
                    self.identity.poll(&mut self.shared, is_held, now)
                }
                Lane::Watch => self.watch.poll(self.stands(), &self.shared, now),
            };
            match step {
                Step::Send(operation) => self.send(lane, None, operation, (now.up, None)),
                Step::SendUnhurried(operation, until) => self.send(lane, None, operation, (now.up, Some(until))),
                Step::SendOver(access, operation) => self.send(lane, Some(access), operation, (now.up, None)),
                Step::Probe => self.probe(now.up),
                Step::Idle => {}
                Step::Wait { until, because } => sooner(&mut wait, until, because),
            }
        }
        self.answer_announcer(&mut wait, now);
        if self.look(&mut wait, now) {
            return self.live(now);
        }
        if let Some(write) = self.shared.records.next_write(now.up) {
            self.shared.output(Output::Write(write));
        }
        // Polling a lane may have left something to say as well: that goes first.
        if let Some(output) = self.shared.next_output() {
            return output;
        }
        if let Some(due) = self.shared.records.deadline(now.up) {
            sooner(&mut wait, due, Because { what: "the journal", after: None });
        }
        let answers = Because { what: "the answer to a request in flight", after: None };
        let (until, because) = wait.unwrap_or((now.up + LONGEST_WAIT, answers));
        Output::Wait { until, because }
    }

    /// Looks at the board when that is due. Answers whether a run goes on without the look that it waits for.
    fn look(&mut self, wait: &mut Option<(Up, Because)>, now: Now) -> bool {
        const LOOK: Because = Because { what: "a look at the board", after: None };
        let due = self.status.look_due(&self.shared, self.lease.renewal(&self.shared, now.up));
        if now.up >= due {
            self.probe(now.up);
        }
        let Some(since) = self.probing else {
            sooner(wait, due, LOOK);
            return false;
        };
        let late = since + LOOK_DEADLINE;
        let waits = self.status.waits_for_look();
        if waits && now.up >= late {
            self.status.look_is_late(&mut self.shared, now);
            return true;
        }
        if waits {
            sooner(wait, late, LOOK);
        }
        false
    }

    /// The board is to be looked at, once.
    fn probe(&mut self, now: Up) {
        if self.probing.is_none() {
            self.probing = Some(now);
            self.shared.output(Output::Probe { pod_cidr: self.status.untold_pod_cidr() });
        }
    }

    /// What is not on the disk goes there; nothing is sent any more.
    fn stop(&mut self, now: Now) -> Output {
        while let Some(output) = self.shared.next_output() {
            if matches!(output, Output::Say(_) | Output::Write(_)) {
                return output;
            }
        }
        let idle = Because { what: "the end of the process", after: None };
        let End::Asked { until } = self.end else {
            return Output::Wait { until: now.up + LONGEST_WAIT, because: idle };
        };
        if now.up < until {
            if let Some(write) = self.shared.records.last_write(now.up) {
                return Output::Write(write);
            }
            // A disk that rests after a failure is not worth waiting for: only a write under way is.
            if self.shared.records.is_writing() {
                return Output::Wait { until, because: idle };
            }
        }
        self.end = End::Said;
        Output::Stopped
    }

    /// The Lease is being renewed: uplink and credentials are good.
    fn is_renewing(&self) -> bool {
        self.lease.is_held() && self.lease.last_failure().is_none()
    }

    /// All is as it should be, on both sides, and nothing is to be reported at once.
    fn stands(&self) -> bool {
        self.is_renewing() && self.status.stands() && self.shared.full_report == FullReport::NotNeeded
    }

    /// A Lease or status request is in flight and somebody waits for its answer, or its moment has come.
    fn heartbeat_is_near(&self) -> bool {
        let renews = self.in_flight.contains_key(&Lane::Lease) && !self.lease.is_unhurried();
        renews || self.in_flight.contains_key(&Lane::Status) || self.status.runs()
    }

    fn hurry(&mut self, reason: RetryReason, now: Now) {
        self.lease.hurry(reason, now);
        self.status.hurry(reason, now);
        self.events.hurry(reason, now);
        self.identity.hurry(reason, now);
        self.watch.hurry(reason, now);
    }

    /// `sent`, and how long the answer may lie unread.
    fn send(&mut self, lane: Lane, access: Option<Access>, operation: Operation, (sent, answer_by): (Up, Option<Up>)) {
        self.requests.take();
        self.tickets += 1;
        // There is room for every lane.
        let _ = self.in_flight.insert(lane, self.tickets);
        let ticket = Ticket { lane, number: self.tickets, sent, answer_by };
        self.shared.output(match access {
            Some(access) => Output::Identity(IdentityStep::Send(ticket, access, operation)),
            None => Output::Send(ticket, operation),
        });
    }

    /// Whatever lane was told so first: all of them wait.
    fn revoked(&mut self, refusal: &Refusal, now: Now) {
        if now.up >= self.revoked_until {
            self.revoked_until = now.up + self.shared.random.jittered(REVOKED_PAUSE);
            let name = &self.shared.node_name;
            let text = format!(
                "{refusal}; asking again in an hour, or at SIGHUP; what lets it in again: kubectl -n kube-system patch configmap \
                nodepulse-revoked -p '{{\"data\":{{\"{name}\":null}}}}'"
            );
            self.shared.say(Level::Warn, "revoked", text);
        }
    }

    fn answered(&mut self, ticket: &Ticket, answer: Answer, now: Now) {
        if self.in_flight.get(&ticket.lane) != Some(&ticket.number) {
            return;
        }
        self.in_flight.remove(&ticket.lane);
        // An old time is better than none: without any, nothing is sent that would bring a new one. And it is later now than
        // it says: better than an earlier one as well.
        let is_late = ticket.answer_by.is_some() || now.up - ticket.sent > LONGEST_ANSWER;
        let said = said_at(ticket, &answer, now);
        let stamp = self.shared.stamp(now);
        let date = answer.date.filter(|date| !is_late || stamp.is_none_or(|stamp| stamp < *date));
        let date = date.and_then(|date| self.shared.clock.confirmed(date, now.up - ticket.sent, is_late, now));
        if let Some(skew) = date.and_then(|date| self.shared.clock.believe(date, now)) {
            self.shared.say(Level::Warn, "clock-skew", skew);
        }
        match &answer.result {
            Ok(_) => self.shared.outage.heard(said.up),
            Err(refusal) if refusal.is_revocation() => self.revoked(refusal, now),
            Err(_) => {}
        }
        match ticket.lane {
            Lane::Lease => {
                if self.lease.answered(answer, &mut self.shared, said, now) {
                    self.status.node_may_be_gone();
                }
            }
            Lane::Status => {
                let version = match &answer.result {
                    Ok(Document::Node(node)) => Some(&node.metadata.resource_version),
                    Ok(Document::Metadata { resource_version, .. }) => Some(resource_version),
                    _ => None,
                };
                if let Some(version) = version {
                    self.watch.answered_with(version, &mut self.shared, now);
                }
                self.status.answered(answer, &mut self.shared, now);
            }
            Lane::Watch => self.watch.answered(answer, &mut self.shared, now),
            Lane::Events => self.events.answered(answer, &self.status.unreported(), &mut self.shared, now),
            Lane::Identity => {
                let node = if let Ok(Document::Node(node)) = &answer.result { Some(node) } else { None };
                let stranger = node.and_then(|node| self.status.stranger(node));
                self.identity.answered(answer, stranger, &mut self.shared, now);
            }
        }
        self.shared.replay.forget_reported(&self.status.unreported(), &mut self.shared.records);
        if let Some(date) = date {
            self.shared.records.learn_clock(date, now.up);
        }
    }
}

/// When that was so: what may have lain there unread was said soon after it was asked for, and what did not come within its
/// deadline has failed since then.
fn said_at(ticket: &Ticket, answer: &Answer, now: Now) -> Now {
    let said = match &answer.result {
        _ if ticket.answer_by.is_none() => now.up,
        Err(Refusal::Failed(failure)) if failure.is_of_connection() => now.up,
        Err(Refusal::Failed(failure)) if failure.is_timed_out() => ticket.sent + REQUEST_DEADLINE,
        _ => ticket.sent,
    };
    now.earlier(said.min(now.up))
}
