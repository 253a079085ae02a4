//! What the lanes share: settings, the time of day, who the Node is, how the uplink fares, and the outputs that wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::clock::ServerClock;
use super::contract::{Because, CredentialDates, Output};
use super::failure_log::Spent;
use super::notice::{Level, Notice};
use super::outage::Outage;
use super::random::Random;
use super::records::Records;
use super::replay::{self, Replay};
use crate::api::{Class, Operation, Refusal, StatusError};
use crate::config::{Settings, limits};
use crate::journal::{Happened, Journal, Moment, Sequence};
use crate::node::Event;
use crate::node::NodeEvent;
use crate::time::{Now, Up, Wall};

/// What a lane wants next.
#[derive(Debug)]
pub(super) enum Step {
    Send(Operation),
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
    /// When the Lease request in flight was sent.
    pub(super) renewal_sent: Option<Up>,
    /// When a Lease renewal was last acknowledged.
    renewed_at: Option<Up>,
    /// When a gap was noticed before the renewal that ends it.
    gap_noticed_at: Option<Up>,
    /// The server may believe something else than we last heard: assert every condition whole (D4).
    pub(super) report_in_full: bool,
    /// The uplink works again: one status run need not wait for its time.
    pub(super) report_at_once: bool,
    /// Something suggests that the Node was deleted: ask before the next assertion is due.
    pub(super) node_in_doubt: bool,
    /// Events that are not yet with the event lane.
    pub(super) fresh_events: Vec<NodeEvent>,
    pub(super) credential_dates: CredentialDates,
    credentials_read_at: Option<Up>,
    outputs: VecDeque<Output>,
}

/// An answer that took longer lay there while the board slept: its `Date` is not of now.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(10);

/// A pause between two renewals that is shorter says of no period that one was missed: a board may be that busy.
const LEAST_GAP: Duration = Duration::from_secs(5);
/// Credentials are read again at most this often.
const RELOAD_SPACING: Duration = Duration::from_secs(30);

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
            renewal_sent: None,
            renewed_at: None,
            gap_noticed_at: None,
            report_in_full: true,
            report_at_once: false,
            node_in_doubt: false,
            fresh_events: Vec::new(),
            credential_dates: CredentialDates::default(),
            credentials_read_at: None,
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
        self.say(Level::Warning, "node-too-large", text);
    }

    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        self.clock.stamp(now)
    }

    /// A Lease renewal was acknowledged: the uplink works.
    pub(super) fn renewed(&mut self, now: Now) {
        let sent = self.renewal_sent.unwrap_or(now.up);
        // A report of long before this renewal did not end the gap.
        let longest = self.longest_pause();
        self.gap_noticed_at.take_if(|noticed| sent - *noticed > longest);
        self.notice_gap(now.up);
        self.end_outage(now);
        self.reached(now);
        // An answer that lay there while the board stood still is of the moment of its request.
        self.renewed_at = Some(if now.up - sent > LONGEST_ANSWER { sent } else { now.up });
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
        if self.outage.ended(&mut self.records, dated) {
            self.replay.hold();
        }
    }

    /// An API server that knows of Leases answered: the uplink works.
    pub(super) fn reached(&mut self, now: Now) {
        let lost_since = self.outage.reached(now.up);
        self.replay.resume(&self.records, lost_since.is_some(), now.up);
        if let Some(since) = lost_since {
            self.report_in_full = true;
            self.report_at_once = true;
            self.say(Level::Info, "uplink-restored", format!("the API server is back after {}", Spent(now.up - since)));
        }
    }

    /// How long after a renewal that was acknowledged the next one may be sent without a gap (D4).
    fn longest_pause(&self) -> Duration {
        (self.settings.lease_renew_period() * 3 / 2).max(LEAST_GAP)
    }

    /// Whether the controller may have judged us since the last acknowledged renewal, once per gap. After a suspend all
    /// lanes are due at once: the report must not go out as if nothing had happened while the renewal is still on its way.
    /// An answer that takes its time is no gap.
    pub(super) fn notice_gap(&mut self, now: Up) {
        let until = self.renewal_sent.unwrap_or(now);
        let longest = self.longest_pause();
        let Some(last) = self.renewed_at.filter(|last| until - *last > longest) else { return };
        if self.gap_noticed_at.is_none_or(|noticed| noticed <= last) {
            self.gap_noticed_at = Some(now);
            self.report_in_full = true;
            self.report_at_once = true;
            self.replay.keep_quiet(now);
        }
    }

    /// The request that keeps the Node alive found no server.
    fn lost(&mut self, refusal: &Refusal, now: Now) {
        let dated = self.dated(now);
        if self.outage.lost(&refusal.word(), &mut self.records, dated) {
            self.replay.hold();
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.outage.lost_since().is_some()
    }

    /// Keeps what happened `at` that moment; where no server is found, as part of an outage.
    pub(super) fn record(&mut self, what: Happened, at: Now) -> Moment {
        let at = self.dated(at);
        self.records.record(at, what).at
    }

    /// The same for a change of a condition, which the log tells at once, as an event.
    pub(super) fn record_change(&mut self, what: Happened, event: NodeEvent, at: Now) -> Moment {
        let dated = self.dated(at);
        if self.outage.changes(&mut self.records, dated) {
            self.replay.hold();
        }
        self.say(Level::Info, "node-event", format!("{}: {}", event.reason, event.message));
        self.record(what, at)
    }

    /// The event of the next record that may be told; `None` while none may.
    pub(super) fn next_telling(&self, now: Now) -> Option<(Sequence, Event)> {
        let stamp = self.stamp(now)?;
        let record = self.replay.next(&self.records)?;
        let uid = self.node_uid().unwrap_or_default();
        Some((record.sequence, replay::event_of(record, &self.node_name, uid, &self.records, stamp, now.up)))
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

    /// Answers what to add to a refusal for people, and asks for fresh credentials where they may help.
    pub(super) fn advise(&mut self, refusal: &Refusal, right: &'static str, now: Now) -> String {
        let may_be_cured = refusal.class() == Class::Rights
            || matches!(&*refusal.word(), "tls-refused-by-peer" | "tls-unknown-issuer" | "credentials-unreadable");
        if may_be_cured && self.credentials_read_at.is_none_or(|last| now.up - last >= RELOAD_SPACING) {
            self.credentials_read_at = Some(now.up);
            self.output(Output::ReloadCredentials);
        }
        match refusal {
            Refusal::Status(StatusError { code: 401, .. }) => self.advise_unauthorized(now),
            Refusal::Status(StatusError { code: 403, .. }) => format!(
                "; {} may not `{right}`: the client certificate must be for system:node:{} in group system:nodes, or RBAC must allow that verb",
                self.node_name, self.node_name
            ),
            _ => String::new(),
        }
    }

    fn advise_unauthorized(&self, now: Now) -> String {
        let CredentialDates { not_before, not_after } = self.credential_dates;
        let stamp = self.stamp(now);
        match (not_before, not_after, stamp) {
            (_, Some(end), Some(stamp)) if end < stamp => {
                format!(
                    "; the client certificate expired at {end}: put a new one in its place, it is read again by itself"
                )
            }
            (Some(start), _, Some(stamp)) if stamp < start => {
                format!(
                    "; the client certificate is not valid before {start}: this board's clock or the issuer's is wrong"
                )
            }
            _ => "; the server does not know this certificate's issuer or this token: check the kubeconfig".to_owned(),
        }
    }
}

/// Whether who refuses has looked: an API server that knows of Nodes and Leases.
fn knows_of_nodes(refusal: &Refusal) -> bool {
    matches!(refusal.class(), Class::Missing | Class::Exists | Class::Conflict)
}
