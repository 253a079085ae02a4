//! Turns what the lanes know into what a person asks of a board (`nodepulse status`): how it fares, since when and why.

use std::time::Duration;

use serde_json::{Value, json};

use super::Agent;
use crate::journal::Status;
use crate::node::{extended, rules};
use crate::time::{Now, Up, Wall};

/// How a board fares, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no certificate yet.
    Joining,
    /// There is no Node of ours.
    Registering,
    /// No server is found.
    Offline,
    /// The server refuses the Lease, or has not been asked for it yet.
    NotRenewed,
    NotReady,
    Ready,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Joining => "joining",
            State::Registering => "registering",
            State::Offline => "offline",
            State::NotRenewed => "not-renewed",
            State::NotReady => "not-ready",
            State::Ready => "ready",
        }
    }
}

impl Agent {
    /// One JSON object. Stamps are RFC 3339, spans are seconds; what nobody knows yet is null.
    ///
    /// ```text
    /// {"node", "state", "line",                             the line is that of `status_line`
    ///  "ready": {"status", "since", "message"},             as the server said last
    ///  "lease": {"renewedAgo", "sentAgo", "period"},        acknowledged, and one whose answer is not read yet
    ///  "offline": {"for", "grace", "word"},                 null while a server is found; the word is its first failure's
    ///  "conditions": [{"type", "status", "since", "message", "told"}],    ours that are as they should not be
    ///  "resources": [{"name", "capacity", "allocatable"}],    extended ones of this board, as the server said last
    ///  "certificate": {"ends", "renewed"},
    ///  "clock": {"ahead": SECONDS},                         of the servers', negative where it is behind
    ///  "journal": {"records", "since"},                     what waits to be told
    ///  "watched"}
    /// ```
    pub fn overview(&self, now: Now) -> Value {
        let shared = &self.shared;
        let stamp = shared.stamp(now);
        let text = |wall: Option<Wall>| wall.map(Wall::to_seconds_stamp);
        let ready = self.status.stored("Ready").map(|stored| {
            json!({ "status": stored.status, "since": stored.last_transition_time, "message": stored.message })
        });
        let ago = |moment: Up| seconds(now.up - moment);
        let lease = shared.renewals.last().map(|last| {
            let sent = shared.renewals.sent_at().map(ago);
            json!({ "renewedAgo": ago(last), "sentAgo": sent, "period": seconds(shared.settings.lease_renew_period()) })
        });
        let offline = shared.outage.lost_since().map(|since| {
            let grace = seconds(shared.settings.node_monitor_grace_period);
            json!({ "for": ago(since), "grace": grace, "word": shared.outage.lost_by() })
        });
        let life = shared.credentials.dates().renewal;
        let certificate = life.map(|life| {
            let renewed = shared.settings.rotate_certificates.then(|| life.due.to_seconds_stamp());
            json!({ "ends": life.end.to_seconds_stamp(), "renewed": renewed })
        });
        let resources = self.status.node().map(|node| {
            let all = extended::resources(node);
            all.map(|[name, all, usable]| json!({ "name": name, "capacity": all, "allocatable": usable }))
        });
        let (mut records, mut first) = (0, None);
        for record in shared.records.pending() {
            first = first.or_else(|| stamp.and_then(|stamp| shared.records.wall_of(record.at, stamp, now.up)));
            records += 1;
        }
        json!({
            "node": shared.node_name,
            "state": self.state().word(),
            "line": self.status_line().text,
            "ready": ready,
            "lease": lease,
            "offline": offline,
            "conditions": self.remarkable(now),
            "resources": resources.map(|resources| resources.collect::<Vec<_>>()).unwrap_or_default(),
            "certificate": certificate,
            "clock": shared.clock.ahead_seconds(now).map(|ahead| json!({ "ahead": ahead })),
            "journal": { "records": records, "since": text(first) },
            "watched": shared.is_watched,
        })
    }

    fn state(&self) -> State {
        match () {
            () if !self.identity.is_joined() => State::Joining,
            () if self.status.lacks_node() => State::Registering,
            () if self.shared.is_lost() => State::Offline,
            () if !self.is_renewing() => State::NotRenewed,
            () if self.status.is_ready() => State::Ready,
            () => State::NotReady,
        }
    }

    /// Conditions that are as they should not be, or that nobody can judge: all but Ready, which is told by itself.
    fn remarkable(&self, now: Now) -> Vec<Value> {
        let Some(wanted) = self.shared.stamp(now).and_then(|stamp| self.status.judged(&self.shared, stamp, now)) else {
            return Vec::new();
        };
        let all = rules::own().zip(wanted);
        let remarkable = all.filter(|(kind, wanted)| {
            let status = wanted.judgement.status;
            *kind != "Ready" && status != Status::False && !rules::is_left_out(kind, &wanted.judgement)
        });
        let shown = remarkable.map(|(kind, wanted)| {
            let status = wanted.judgement.status;
            let stored = self.status.stored(kind).filter(|stored| stored.status == status.word());
            let told = stored.map(|stored| stored.last_transition_time.clone());
            json!({
                "type": kind,
                "status": status.word(),
                "told": told.is_some(),
                "since": wanted.since.map(Wall::to_seconds_stamp).or(told),
                "message": wanted.judgement.message.as_deref().unwrap_or(rules::message(kind, status)),
            })
        });
        shown.collect()
    }
}

fn seconds(span: Duration) -> u64 {
    span.as_secs()
}
