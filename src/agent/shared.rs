//! What the lanes share: settings, the time of day, who the Node is, how the uplink fares, and the outputs that wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::budget::{Budget, PutOff};
use super::clock::ServerClock;
use super::contract::{Access, Because, IdentityStep, Output};
use super::credentials::Credentials;
use super::notice::{Level, Notice};
use super::outage::Outage;
use super::random::Random;
use super::records::Records;
use super::renewals::Renewals;
use super::replay::{self, Replay, fleet_offset};
use crate::api::traffic::Day;
use crate::api::{Class, Operation, Refusal};
use crate::config::{Settings, limits};
use crate::journal::{Happened, Journal, Record, Sequence};
use crate::node::Event;
use crate::node::Leaving;
use crate::node::NodeEvent;
use crate::node::report::network_bytes;
use crate::node::rules::LastBoot;
use crate::time::{InWords, Now, Up, Wall};

/// What a lane wants next.
#[derive(Debug)]
pub(super) enum Step {
    Send(Operation),
    /// The answer may lie unread until then.
    SendUnhurried(Operation, Up),
    /// Over another connection than that of all lanes.
    SendOver(Access, Operation),
    /// Fresh facts first.
    Probe,
    /// Nothing before this moment.
    Wait {
        until: Up,
        because: Because,
    },
    /// Nothing until another lane or an input moves.
    Idle,
}

/// Whose the Node on the server is (D10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ownership {
    /// There is none, or it was not read yet.
    Unknown,
    Ours {
        uid: String,
    },
    /// Another board may be writing it: nothing is written before that is settled (`status/contest`).
    Contested,
}

/// Whether the server may believe something else of the Node than we last heard, so that the next report states each
/// condition whole (D4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FullReport {
    NotNeeded,
    WithNextRun,
    /// The next run does not wait for its time.
    AtOnce,
}

/// The machine goes down, and what the server was told of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) kind: Leaving,
    /// Of its record.
    pub(super) sequence: Sequence,
    /// When that was.
    pub(super) at: Up,
    pub(super) is_reported: bool,
    pub(super) has_event: bool,
    /// The machine need not wait for us any more.
    pub(super) is_released: bool,
    /// SIGTERM has come: the process ends with what is told.
    pub(super) is_last: bool,
}

/// Everything the lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) node_name: String,
    pub(super) random: Random,
    pub(super) clock: ServerClock,
    pub(super) node: Ownership,
    pub(super) records: Records,
    pub(super) outage: Outage,
    pub(super) replay: Replay,
    pub(super) renewals: Renewals,
    pub(super) full_report: FullReport,
    pub(super) budget: Budget,
    /// What the network took on the last day that is over, as the Node is to say it ([`NETWORK_BYTES`]).
    ///
    /// [`NETWORK_BYTES`]: crate::node::report::NETWORK_BYTES
    pub(super) last_day: Option<String>,
    /// The server says at once when somebody writes the Node (`watch.rs`).
    pub(super) is_watched: bool,
    /// Events that are not yet with the event lane, and when they came.
    pub(super) fresh_events: Vec<(Up, NodeEvent)>,
    pub(super) credentials: Credentials,
    /// Since the certificate in use came into use.
    pub(super) longest_outage: Duration,
    pub(super) last_boot: LastBoot,
    /// What was told of trouble, one of a kind.
    pub(super) troubles: Vec<TroubleTold>,
    /// Machine words of what is said once in the life of a process.
    said: Vec<&'static str>,
    outputs: VecDeque<Output>,
}

/// What was told of one kind of trouble, by the last record of it.
#[derive(Debug)]
pub(super) struct TroubleTold {
    pub(super) reason: &'static str,
    pub(super) place: u64,
    pub(super) count: u64,
    pub(super) at: Up,
}

/// How often the other lanes try a certificate that has ended (EXP-1): the clock that says so may have been wrong.
const ENDED_PAUSE: Duration = Duration::from_secs(15 * 60);

impl Shared {
    pub(super) fn new(settings: Settings, node_name: String, seed: u64, journal: Journal, now: Now) -> Shared {
        let records = Records::new(journal);
        Shared {
            outage: Outage::new(&records, now.up),
            replay: Replay::new(&records, &node_name),
            records,
            settings,
            node_name,
            random: Random::new(seed),
            clock: ServerClock::default(),
            node: Ownership::Unknown,
            renewals: Renewals::default(),
            full_report: FullReport::WithNextRun,
            budget: Budget::default(),
            last_day: None,
            is_watched: false,
            fresh_events: Vec::new(),
            credentials: Credentials::default(),
            longest_outage: Duration::ZERO,
            last_boot: LastBoot::Unknown,
            troubles: Vec::new(),
            said: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// uid of the Node, once it exists and is known to be ours.
    pub(super) fn node_uid(&self) -> Option<&str> {
        match &self.node {
            Ownership::Ours { uid } => Some(uid),
            Ownership::Unknown | Ownership::Contested => None,
        }
    }

    pub(super) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// What the identity lane is to be done.
    pub(super) fn wants(&mut self, step: IdentityStep) {
        self.output(Output::Identity(step));
    }

    pub(super) fn say(&mut self, level: Level, word: &'static str, text: impl Into<String>) {
        self.output(Output::Say(Notice::new(level, word, text)));
    }

    pub(super) fn say_if(&mut self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.output(Output::Say(notice));
        }
    }

    /// The Node is too large to be read, from now on.
    pub(super) fn say_that_it_is_large(&mut self) {
        let (name, most_bytes) = (&self.node_name, limits::NODE_BODY_BYTES);
        let text = format!(
            "Node {name} is longer than {most_bytes} bytes, so it is reported without being read, and what others change on it \
             goes unseen: take away what is not needed, kubectl get node {name} -o json shows it"
        );
        self.say(Level::Warn, "node-too-large", text);
    }

    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        self.clock.stamp(now)
    }

    /// An event of what happened then. `level`: of its line in the log, unless it is a warning.
    pub(super) fn tell(&mut self, level: Level, since: Up, event: NodeEvent) {
        let level = if event.warning { Level::Warn } else { level };
        self.say(level, "node-event", format!("{}: {}", event.reason, event.message));
        // Of what nobody can date yet, once is enough.
        if !self.fresh_events.iter().any(|(_, known)| *known == event) {
            self.fresh_events.push((since, event));
        }
    }

    /// What a person need hear only once, whatever its text is.
    pub(super) fn say_once(&mut self, level: Level, word: &'static str, text: impl Into<String>) {
        if !self.said.contains(&word) {
            self.said.push(word);
            self.say(level, word, text);
        }
    }

    /// A Lease renewal was acknowledged: the uplink works.
    pub(super) fn renewed(&mut self, now: Now) {
        let may_be_judged = self.renewals.may_be_judged(&self.settings, now.up);
        let is_gap = self.renewals.acknowledged(&self.settings, now.up);
        self.credentials.accepted();
        self.gap(is_gap, now.up);
        self.end_outage(now);
        self.found(may_be_judged, now);
    }

    /// There is no Node, so no Lease to renew, and the server was asked for the Node.
    pub(super) fn asked_for_node(&mut self, refusal: Option<&Refusal>, now: Now) {
        if refusal.is_none_or(knows_of_nodes) {
            self.end_outage(now);
        }
        self.heard(refusal, now);
    }

    /// An answer to a request for the Node or the Lease. What says neither that the uplink works nor that it does not
    /// (too little right, too much to do, an error) leaves that as it was.
    pub(super) fn heard(&mut self, refusal: Option<&Refusal>, now: Now) {
        match refusal {
            Some(refusal) if refusal.class() == Class::Unreachable => self.lost(refusal, now),
            Some(refusal) if !knows_of_nodes(refusal) => {}
            _ => self.reached(now),
        }
    }

    fn end_outage(&mut self, now: Now) {
        let dated = self.dated(now);
        let Some(began) = self.outage.ended(&mut self.records, dated) else { return };
        self.replay.wait_for_server();
        // Over restarts and reboots, which this process has not lived through.
        let span = dated.wall.and_then(|wall| Some(wall.since(self.records.wall_of(began, wall, now.up)?)));
        self.longest_outage = self.longest_outage.max(span.unwrap_or_default());
    }

    /// An API server that knows of Leases answered: the uplink works.
    pub(super) fn reached(&mut self, now: Now) {
        let may_be_judged = self.renewals.may_be_judged(&self.settings, now.up);
        self.found(may_be_judged, now);
    }

    /// `may_be_judged`: what the server has of the Node may not be what we said last. A renewal that was lost and came through
    /// at the second try leaves all as it was: a report of it would cost more than the connection.
    fn found(&mut self, may_be_judged: bool, now: Now) {
        let lost_since = self.outage.reached(now.up);
        self.replay.resume(&self.records, lost_since.is_some(), now.up);
        if let Some(since) = lost_since {
            if may_be_judged {
                self.full_report = FullReport::AtOnce;
            }
            self.longest_outage = self.longest_outage.max(now.up - since);
            self.say(
                Level::Info,
                "uplink-restored",
                format!("the API server is back after {}", InWords(now.up - since)),
            );
        }
    }

    /// What the network has taken so far.
    pub(super) fn counted(&mut self, [today, last]: &[Day; 2], by_process_bytes: u64, now: Now) {
        if last.number != 0 && last.seconds > 0 {
            self.last_day = Some(network_bytes(&last.date(), last.bytes()));
        }
        let (before, stamp) = (self.budget.put_off(), self.stamp(now));
        self.budget.counted(today, by_process_bytes, &self.settings, stamp, now.up);
        self.put_off_since(before);
    }

    pub(super) fn end_budget_day(&mut self, now: Up) {
        if self.budget.puts_off(PutOff::Reports) && self.budget.is_over(now) {
            let before = self.budget.put_off();
            self.budget.forget_day();
            self.put_off_since(before);
        }
    }

    /// There may be none any more; another one holds from the next count on.
    pub(super) fn new_budget(&mut self) {
        if self.settings.daily_bytes.is_some() {
            return;
        }
        let before = std::mem::take(&mut self.budget).put_off();
        self.put_off_since(before);
    }

    fn put_off_since(&mut self, before: PutOff) {
        let after = self.budget.put_off();
        if after == before {
            return;
        }
        if before >= PutOff::Events && after < PutOff::Events {
            // As after an outage: one after the other, and never beside a heartbeat.
            self.replay.wait_for_server();
        }
        let what = match after {
            PutOff::Nothing => "nothing any more",
            PutOff::Reports => "reports without a change",
            PutOff::Assertions => "reports without a change, assertions",
            PutOff::Events => "reports without a change, assertions, events",
            PutOff::Changes => "all but renewals",
        };
        self.say(Level::Info, "put-off", format!("put off so that the bytes of the day (dailyBytes) suffice: {what}"));
    }

    /// Whether the controller may have judged us since the last acknowledged renewal, once per gap. After a suspend all
    /// lanes are due at once: the report must not go out as if nothing had happened while the renewal is still on its way.
    pub(super) fn notice_gap(&mut self, now: Up) {
        let is_gap = self.renewals.notice_gap(&self.settings, now);
        self.gap(is_gap, now);
    }

    fn gap(&mut self, is_gap: bool, now: Up) {
        if is_gap {
            self.full_report = FullReport::AtOnce;
            self.replay.keep_quiet(now);
        }
    }

    /// The request that keeps the Node alive found no server.
    fn lost(&mut self, refusal: &Refusal, now: Now) {
        let dated = self.dated(now);
        if self.outage.lost(&refusal.word(), &mut self.records, dated) {
            self.replay.wait_for_server();
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.outage.lost_since().is_some()
    }

    /// Keeps what happened `at` that moment; where no server is found, as part of an outage.
    pub(super) fn record(&mut self, what: Happened, at: Now) -> Record {
        let at = self.dated(at);
        self.records.record(at, what)
    }

    /// The same for a change of a condition, which the log tells at once, as an event.
    pub(super) fn record_change(&mut self, what: Happened, event: NodeEvent, at: Now) -> Record {
        let dated = self.dated(at);
        if self.outage.changes(&mut self.records, dated) {
            self.replay.wait_for_server();
        }
        self.say(Level::Info, "node-event", format!("{}: {}", event.reason, event.message));
        self.record(what, at)
    }

    /// The event of the next record that may be told; `None` while none may.
    pub(super) fn next_telling(&self, now: Now) -> Option<(Sequence, Event)> {
        let record = self.replay.next(&self.records)?;
        Some((record.sequence, self.event_of(record, now)?))
    }

    /// The event of one that waits.
    pub(super) fn event_of(&self, record: &Record, now: Now) -> Option<Event> {
        let stamp = self.stamp(now)?;
        let uid = self.node_uid().unwrap_or_default();
        Some(replay::event_of(record, &self.node_name, uid, &self.records, stamp, now.up))
    }

    /// The annotation that sums up the last outage, once all of it was told.
    pub(super) fn summary(&self, now: Now) -> Option<String> {
        let may_tell = !self.is_lost() && self.replay.may_tell_at().is_some_and(|at| at <= now.up);
        let end = self.replay.owed_summary(&self.records).filter(|_| may_tell)?;
        replay::summary_of(end, &self.records, self.stamp(now)?, now.up)
    }

    /// With the best wall time there is.
    fn dated(&self, now: Now) -> Now {
        Now { wall: self.stamp(now), ..now }
    }

    /// Until then hardly anything is asked with a certificate that has ended.
    pub(super) fn ended_until(&self, now: Now) -> Up {
        let ended = self.credentials.ended_at(self.stamp(now));
        ended.map_or(now.up, |at| at + ENDED_PAUSE + fleet_offset(&self.node_name, ENDED_PAUSE))
    }

    /// Answers what to add to a refusal for people, and asks for fresh credentials where they may help.
    pub(super) fn advise(&mut self, refusal: &Refusal, right: &'static str, now: Now) -> String {
        if self.credentials.refused(refusal, now.up) {
            self.output(Output::ReloadCredentials);
        }
        self.credentials.advice(refusal, right, &self.node_name, self.stamp(now))
    }
}

/// Whether who refuses has looked: an API server that knows of Nodes and Leases.
fn knows_of_nodes(refusal: &Refusal) -> bool {
    matches!(refusal.class(), Class::Missing | Class::Exists | Class::Conflict)
}
