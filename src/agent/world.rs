//! What the lanes share: settings, the time of day, who the Node is, how the uplink fares, and the outputs that wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::clock::ServerClock;
use super::notice::{Level, Notice};
use super::random::Random;
use super::trouble::Spent;
use super::{Because, CredentialDates, Output};
use crate::api::{Class, Refusal, StatusError, Wish};
use crate::config::Settings;
use crate::node::desired::NodeEvent;
use crate::time::{Now, Up, Wall};

/// What a lane wants next.
#[derive(Debug)]
pub(super) enum Step {
    Send(Wish),
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

/// Everything the lanes share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) node_name: String,
    pub(super) random: Random,
    pub(super) clock: ServerClock,
    /// uid of the Node, once it exists and is known to be ours.
    pub(super) node_uid: Option<String>,
    /// Since when Lease renewals find no server; `None` while they do, or before the first.
    pub(super) lost_since: Option<Up>,
    /// When a Lease renewal was last acknowledged.
    renewed_at: Option<Up>,
    /// The renewal after which a gap was noticed before the next one ended it.
    gap_noticed_after: Option<Up>,
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

/// A gap in acknowledged renewals after which the controller may have judged us (D4): half the Lease, but at least this.
const LEAST_GAP: Duration = Duration::from_secs(20);
/// Credentials are read again at most this often.
const RELOAD_SPACING: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn new(settings: Settings, node_name: String, seed: u64) -> World {
        World {
            settings,
            node_name,
            random: Random::new(seed),
            clock: ServerClock::default(),
            node_uid: None,
            lost_since: None,
            renewed_at: None,
            gap_noticed_after: None,
            report_in_full: true,
            report_at_once: false,
            node_in_doubt: false,
            fresh_events: Vec::new(),
            credential_dates: CredentialDates::default(),
            credentials_read_at: None,
            outputs: VecDeque::new(),
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

    pub(super) fn stamp(&self, now: Now) -> Option<Wall> {
        self.clock.stamp(now)
    }

    /// A Lease renewal was acknowledged: the uplink works.
    pub(super) fn renewed(&mut self, now: Up) {
        self.notice_gap(now);
        self.reached(now);
        self.renewed_at = Some(now);
    }

    /// An API server that knows of Leases answered: the uplink works.
    pub(super) fn reached(&mut self, now: Up) {
        if let Some(since) = self.lost_since.take() {
            self.report_in_full = true;
            self.report_at_once = true;
            self.say(Level::Info, "uplink-restored", format!("the API server is back after {}", Spent(now - since)));
        }
    }

    /// Whether the controller may have judged us since the last acknowledged renewal. After a suspend all lanes are due
    /// at once: the report must not go out as if nothing had happened while the renewal is still on its way.
    pub(super) fn notice_gap(&mut self, now: Up) {
        let lease = Duration::from_secs(u64::from(self.settings.node_lease_duration_seconds));
        let Some(last) = self.renewed_at.filter(|last| now - *last > LEAST_GAP.max(lease / 2)) else { return };
        if self.gap_noticed_after != Some(last) {
            self.gap_noticed_after = Some(last);
            self.report_in_full = true;
            self.report_at_once = true;
        }
    }

    /// A request found no server.
    pub(super) fn lost(&mut self, now: Up) {
        self.lost_since.get_or_insert(now);
    }

    /// The Node is there (again), under this uid.
    pub(super) fn node_found(&mut self, uid: &str) {
        self.node_uid = Some(uid.to_owned());
    }

    /// Answers what to add to a refusal for people, and asks for fresh credentials where they may help.
    pub(super) fn advise(&mut self, refusal: &Refusal, wish: &'static str, now: Now) -> String {
        let may_be_cured = refusal.class() == Class::Rights
            || matches!(&*refusal.word(), "tls-refused-by-peer" | "tls-unknown-issuer" | "credentials-unreadable");
        if may_be_cured && self.credentials_read_at.is_none_or(|last| now.up - last >= RELOAD_SPACING) {
            self.credentials_read_at = Some(now.up);
            self.output(Output::ReloadCredentials);
        }
        match refusal {
            Refusal::Status(StatusError { code: 401, .. }) => self.advise_unauthorized(now),
            Refusal::Status(StatusError { code: 403, .. }) => format!(
                "; {} may not `{wish}`: the client certificate must be for system:node:{} in group system:nodes, or RBAC must allow that verb",
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
