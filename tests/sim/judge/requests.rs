//! Turns each request on its way, each write that the server took and each answer into "as it should be" or a sentence
//! saying what must never happen.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::world::World;
use super::conditions::{CLOCK, KINDS, MONITORED, REPEATING, TOLERANCE_US, UNDATED};
use super::events::{FOREVER, Letter};
use super::excuse::Excuse;
use super::node::Expected;
use super::wire::Lane;
use crate::model::controller::condition;
use crate::model::http::{Request, Response};
use crate::model::json_patch::renew_time;
use crate::model::stamp;

/// What an event says, as far as it is looked at: every request is, and a tree of all of it would cost more than the rest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventBody<'a> {
    #[serde(borrow, default)]
    metadata: Named<'a>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    count: u64,
    #[serde(borrow)]
    last_timestamp: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// The same of a report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusBody<'a> {
    /// None in an assertion.
    #[serde(borrow, default)]
    status: StatusPart<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusPart<'a> {
    #[serde(borrow)]
    conditions: Vec<ToldCondition<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ToldCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    last_heartbeat_time: Option<Cow<'a, str>>,
}

/// The time that a write of the Lease, one that is merged or a JSON patch, makes its own.
fn renewed_us(body: &str) -> Option<i64> {
    let mut lease = serde_json::from_str(body).ok()?;
    stamp::parse(renew_time(&mut lease)?.as_str()?)
}

/// What the server had before a write.
#[derive(Debug, Default)]
pub struct Before {
    renewed_us: Option<i64>,
    is_surprised: bool,
    conditions: BTreeMap<String, Stored>,
    sizes: BTreeMap<String, String>,
}

/// One condition that is ours, as far as the server knows that.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    status: String,
    reason: String,
    since_us: i64,
}

impl World {
    /// Before it is sent. Answers its lane, and which event it tells, if it does.
    pub fn check_request(&mut self, bytes: &[u8]) -> (Lane, Option<(String, u64)>) {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = path.split('?').next().unwrap_or_default();
        let is_excused = self.storage.is_excused(self.now_us);
        let mut key = None;
        if path.contains("/leases") {
            self.watch.asks_for_lease(method == "PATCH" && !body.contains("ownerReferences"));
        } else if path.contains("/nodes") {
            self.watch.asks_for_node();
            self.watched.others.asked();
            self.events.asks_for_node(self.server_wall_us());
        }
        let checked = if method == "GET" {
            Ok(())
        } else if path.contains("/leases") {
            self.watch.renews(renewed_us(body), body.contains("resourceVersion") && !body.contains("ownerReferences"))
        } else if path.contains("/events") {
            match letter(path, body) {
                Ok((name, event)) => {
                    key = Some((name.clone(), event.count));
                    self.check_event(&name, &event, is_excused)
                }
                Err(why) => Err(why),
            }
        } else if path.ends_with("/status") {
            self.check_report(body, false, is_excused)
        } else if path.ends_with("/csinodes") {
            self.check_csi_node(body)
        } else if method == "POST" {
            self.check_birth(body)
        } else {
            // The bookkeeping of a Node is thrown away.
            Ok(())
        };
        let says = |word: &str| body.contains(word);
        // Labels that change name the version, too, with or without their annotation (seeds 91505269, 140012837).
        let is_of_version = says("resourceVersion") && !["status", "annotations", "labels"].into_iter().any(says);
        let is_put_off = || self.spending.sends(Lane::of(path), path.ends_with("/status") && is_of_version);
        let put_off = if self.plan.clock_is_right() { is_put_off() } else { Ok(()) };
        self.check(checked.and(put_off));
        (Lane::of(path), key)
    }

    fn check_event(&mut self, name: &str, event: &EventBody, is_excused: bool) -> Result<(), String> {
        let stamp_us = stamp::parse(&event.last_timestamp).ok_or("an event without a time")?;
        let letter =
            Letter { name, reason: event.reason.as_deref(), message: &event.message, count: event.count, stamp_us };
        let (by, now_us) = (self.teller(), self.server_wall_us());
        self.events.sends(&letter, by, is_excused, now_us)
    }

    /// Only where pods are taken, with an owner by which it goes when the Node goes.
    fn check_csi_node(&self, body: &str) -> Result<(), String> {
        let made: Value =
            serde_json::from_str(body).map_err(|error| format!("a CSINode that cannot be read: {error}"))?;
        let owner = &made["metadata"]["ownerReferences"][0];
        let is_owned = owner["kind"] == "Node" && owner["name"] == self.plan.name.as_str() && owner["uid"].is_string();
        match self.plan.wanted.podless {
            false if is_owned && made["metadata"]["name"] == self.plan.name.as_str() => Ok(()),
            podless => Err(format!("with podless {podless} a CSINode is made: {body}")),
        }
    }

    /// A Node is made: all of it is there, and true.
    fn check_birth(&mut self, body: &str) -> Result<(), String> {
        let node: Value = serde_json::from_str(body).map_err(|error| format!("a Node that cannot be read: {error}"))?;
        let expected = Expected { name: &self.plan.name, board: &self.board, wanted: &self.plan.wanted };
        if !self.shim.is_faulty() {
            expected.judge_birth(&node)?;
        }
        let (by, now_us) = (self.teller(), self.server_wall_us());
        let says = |kind: &str, word: &str| condition(&node, kind).is_some_and(|one| one["status"] == word);
        // Also what nobody could read since (seed 76738335), and in the end that it is Ready.
        for kind in KINDS {
            let word = ["True", "False", "Unknown"].into_iter().find(|word| says(kind, word));
            self.events.may_be_told(kind, word, now_us, now_us, by);
        }
        if says("Ready", "False") {
            self.events.may_be_told("Ready", Some("True"), 0, FOREVER, by);
        }
        if !by.is_dated {
            self.conditions.made_undated();
        }
        self.told.clear();
        self.check_report(body, true, true)
    }

    /// A status is sent. A change must be on disk before it is told; what a process says first need not be a change.
    fn check_report(&mut self, body: &str, is_birth: bool, is_excused: bool) -> Result<(), String> {
        let body: StatusBody = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        self.check_told(&body.status, is_birth, is_excused)
    }

    fn check_told(&mut self, status: &StatusPart, is_birth: bool, is_excused: bool) -> Result<(), String> {
        let is_dated = self.is_dated();
        for told in &status.conditions {
            let has_beat = !UNDATED.contains(&&*told.kind) && !REPEATING.contains(&&*told.kind);
            if let Some(beat) = told.last_heartbeat_time.as_ref().filter(|_| has_beat) {
                let off_us = stamp::parse(beat).unwrap_or(0) - self.server_wall_us();
                if is_dated && off_us.abs() > TOLERANCE_US {
                    return Err(format!("lastHeartbeatTime of {} is {} s off", told.kind, off_us / 1_000_000));
                }
            }
            let Some(kind) = KINDS.into_iter().find(|kind| told.kind == *kind) else { continue };
            let Some(status) = told.status.as_deref() else { continue };
            if let Some(truth) = self.conditions.status(kind)
                && truth != status
                && !self.may_be_told_unread(kind, status, truth, is_birth)
            {
                return Err(format!("{kind} is told to be {status}, in truth it is {truth}"));
            }
            if self.conditions.is_unread(kind) {
                // What it says of what it could not read is not its own word (seed 27422).
                continue;
            }
            let before = self.told.insert(kind, status.to_owned());
            let is_change = before.is_some_and(|before| before != status);
            if is_change && !is_excused && !self.events.is_last_ready(kind, status, self.life, self.server_wall_us()) {
                return Err(format!("{kind} is told to be {status}, before that is synced"));
            }
        }
        Ok(())
    }

    /// What this process could not read yet is what the server has, or had when it was asked (seed 28719), or what the disk
    /// knows; what came later was lost, or reached the server after that (seed 141904). If nobody knows anything, Unknown.
    fn may_be_told_unread(&mut self, kind: &str, status: &str, truth: &str, is_birth: bool) -> bool {
        let stored = self.server.node(&self.plan.name).filter(|_| !is_birth).and_then(|node| condition(node, kind));
        let stored =
            stored.and_then(|stored| stored["status"].as_str()).filter(|word| ["True", "False"].contains(word));
        let is_known = stored.map_or_else(|| self.events.was(kind, status), |stored| stored == status);
        let on_disk = self.events.last_synced(kind);
        let remembered = [self.conditions.read(kind), self.conditions.before(kind), on_disk];
        let is_known = is_known || remembered.contains(&Some(status));
        // The last change may be as an earlier one on the disk, and not be there itself (seed 3097879).
        let is_lost = on_disk != Some(truth) || !self.events.has_last(kind);
        let is_unread = self.conditions.is_unread(kind);
        let may_be_unknown = stored.is_none() || self.stray_write_us.is_some();
        // What nobody is sure of yet, nor finds anywhere.
        let is_guess = kind == CLOCK && status == "False" && may_be_unknown;
        is_unread && (is_lost && is_known || status == "Unknown" && may_be_unknown || is_guess)
    }

    /// The agent is told what the server has.
    pub fn note_read(&mut self) {
        self.conditions.node_read(std::mem::take(&mut self.shown));
        self.events.node_read(self.life, self.server_wall_us());
    }

    pub fn stored_statuses(&self) -> [Option<String>; KINDS.len()] {
        let node = self.server.node(&self.plan.name);
        let stored = |kind| node.and_then(|node| condition(node, kind)).and_then(|stored| stored["status"].as_str());
        KINDS.map(|kind| stored(kind).map(str::to_owned))
    }

    /// `surprised`: something that came late may have been there before it.
    pub fn stored_before(&self, request: &Request, surprised: bool) -> Before {
        let mut before = Before { is_surprised: surprised, ..Before::default() };
        if request.method != "GET" && request.path.contains("/leases") {
            before.renewed_us = self.stored_renew_us();
        }
        if request.path.ends_with("/status") {
            before.conditions = self.stored_conditions();
            before.sizes = self.stored_sizes();
        }
        before
    }

    /// What the server has after a write, beside what it had.
    pub fn check_written(&mut self, request: &Request, response: &Response, before: Before, stray: bool) {
        if !response.is_success() || request.method == "GET" {
            return;
        }
        if request.path.contains("/events") {
            let body = std::str::from_utf8(&request.body).unwrap_or_default();
            if let Ok((name, event)) = letter(&request.path, body) {
                self.events.settled(&name, event.count);
            }
        }
        if request.path.contains("/nodes") && request.body.windows(19).any(|words| words == b"\"lastHeartbeatTime\"") {
            let mut reports = self.flights.open.values().filter(|flight| flight.lane == Lane::Status);
            let (at_us, is_misdated) = (self.server_wall_us(), stray || reports.any(|flight| !flight.is_dated));
            match &mut self.reported {
                Some(reported) if stray => reported.is_misdated = true,
                reported => *reported = Some(Reported { at_us, is_misdated }),
            }
        }
        if request.path.contains("/nodes") && !stray && self.is_repaired() && !self.is_written_late() {
            self.events.repaired(self.server_wall_us());
        }
        if request.path.ends_with("/status") && stray {
            for (kind, new) in self.stored_conditions() {
                let old = before.conditions.get(&kind);
                if let Some(old) = old.filter(|old| old.status == new.status && old.since_us > new.since_us) {
                    self.conditions.overwritten(&kind, old.since_us);
                }
            }
        }
        if request.path.ends_with("/status") && !before.is_surprised {
            let checked = self.check_transitions(&before.conditions);
            self.check(checked);
            self.check_sizes(&before.sizes);
        }
        if request.path.contains("/leases") {
            self.lease_renewed_at_us = self.server_wall_us();
            if response.code == 201 {
                self.lease_made_by_stray = stray;
            }
            let stored = self.stored_renew_us();
            // There is nothing later than the last of all stamps.
            let may_fall = before.renewed_us.is_none_or(|before_us| before_us >= stamp::LAST_US);
            if !stray && !may_fall && stored < before.renewed_us {
                self.violated(format!("renewTime falls on the server: {:?} then {stored:?}", before.renewed_us));
            }
        }
    }

    /// A report that came late may have brought a status of before, which the next look at the Node finds (seed 3080663); of
    /// Ready, too (seed 100275189).
    fn is_written_late(&self) -> bool {
        let mut pairs = KINDS.into_iter().zip(self.stored_statuses());
        let ready = self.server.node(&self.plan.name).and_then(|node| condition(node, "Ready"));
        let is_written = ready.is_some_and(|ready| (ready["status"] == "True") != self.board.has_runtime());
        let is_written = is_written || pairs.any(|(kind, stored)| stored.as_deref() != self.conditions.status(kind));
        self.stray_write_us.is_some() && is_written
    }

    /// Every condition that others write says what the agent says of it, and why.
    pub fn is_repaired(&self) -> bool {
        let node = self.server.node(&self.plan.name);
        MONITORED.iter().all(|kind| {
            let stored = node.and_then(|node| condition(node, kind));
            let text = |key: &str| stored.and_then(|stored| stored[key].as_str()).unwrap_or_default();
            // Of a Node made anew between the look and the report only what had changed is told (seed 120064).
            // And what a report that came there asserts has no time (seed 30188362).
            let is_whole = ["status", "lastTransitionTime"].iter().all(|key| !text(key).is_empty());
            is_whole && !["", "NodeStatusUnknown", "NodeStatusNeverUpdated"].contains(&text("reason"))
        })
    }

    /// Status of each condition, and when it came to it, as far as the server knows that from us.
    fn stored_conditions(&self) -> BTreeMap<String, Stored> {
        let node = self.server.node(&self.plan.name);
        let conditions = node.and_then(|node| node["status"]["conditions"].as_array());
        let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        let mut all = BTreeMap::new();
        for condition in conditions.into_iter().flatten() {
            let (status, reason) = (text(condition, "status"), text(condition, "reason"));
            // Where the controller wrote and we asserted no more than the status, the time is the controller's.
            // One without a status was asserted on a Node that somebody had made anew (seed 70242834).
            if !["", "Unknown"].contains(&&*status)
                && !["NodeStatusUnknown", "NodeStatusNeverUpdated"].contains(&&*reason)
            {
                let since_us = stamp::parse(&text(condition, "lastTransitionTime")).unwrap_or(0);
                all.insert(text(condition, "type"), Stored { status, reason, since_us });
            }
        }
        all
    }

    /// A report tells of later changes than the one before it, never of earlier ones; and of none where nothing changed.
    fn check_transitions(&mut self, before: &BTreeMap<String, Stored>) -> Result<(), String> {
        let after = self.stored_conditions();
        for (kind, old) in before {
            let Some(new) = after.get(kind) else { continue };
            let off_us = (new.since_us - old.since_us).abs();
            // It may have been another in between, untold. Within the tolerance that needs the very second (seed 3046133).
            let within_us = if off_us > TOLERANCE_US { TOLERANCE_US } else { ROUNDED_US };
            let is_true = off_us > ROUNDED_US && self.conditions.is_within(kind, new.since_us, within_us);
            let is_resized = self.may_have_been_unready(old.since_us);
            // Who went and came back between two reports is away since then; and what a process lost of the day's count with
            // the power or a full disk, it has to spend again (seed 1000877).
            let is_later = new.since_us > old.since_us && REPEATING.contains(&kind.as_str());
            // A machine that went down is not Ready then, whether anybody heard of that or not (seed 2025614).
            let went_down = kind == "Ready" && self.departure.count > 0 && new.since_us > old.since_us;
            let is_given_back = self.conditions.is_given_back(kind, new.since_us);
            let is_true = is_true || kind == "Ready" && is_resized || is_later || went_down || is_given_back;
            // An assertion on a Node that somebody made anew has no time.
            let was_dated = !old.reason.is_empty() && old.since_us > 0;
            let is_anew = new.status == old.status && off_us > 0 && was_dated && !is_true;
            let is_older = new.status != old.status && new.since_us < old.since_us - TOLERANCE_US;
            // A Node that a clock dated which nobody bore out may say what is still to come (seed 70565884); and a process whose
            // wrong clock a wrong answer bears out is told by nobody that it is wrong (seed 100179149).
            let is_to_come = old.since_us > self.server_wall_us() + TOLERANCE_US;
            if is_older && !self.excuses.allow(Excuse::TimeIsLost, is_to_come || self.was_deceived) {
                return Err(format!("an older status is written over a newer one: {kind} {new:?} over {old:?}"));
            }
            let may_be_off_us = if self.plan.clock_is_right() { ROUNDED_US } else { TOLERANCE_US };
            if is_anew
                && !self.excuses.allow(Excuse::DatedAnew, off_us <= may_be_off_us)
                && !self.excuses.allow(Excuse::TimeIsLost, self.was_deceived || self.is_time_lost(kind))
            {
                return Err(format!(
                    "{kind} has another lastTransitionTime with the same status: {new:?}, before {old:?}"
                ));
            }
        }
        Ok(())
    }

    /// Nobody can know any more since when it is what it is. Of Ready as of those that the judge follows: each boot knows a
    /// later end of one whose clock nobody put right (seed 92013039).
    fn is_time_lost(&self, kind: &str) -> bool {
        let mut happened = self.events.happened.iter().filter(|one| one.subject.of == kind);
        let is_undated = kind == "Ready" && happened.any(|one| one.by.boot < self.boots && !one.by.is_dated);
        is_undated || self.conditions.is_time_lost(kind)
    }

    fn stored_renew_us(&self) -> Option<i64> {
        stamp::parse(self.server.lease(&self.plan.name)?["spec"]["renewTime"].as_str()?)
    }
}

/// A `Date` has whole seconds.
const ROUNDED_US: i64 = 1_000_000;
/// The last heartbeats that the server took, by its clock.
#[derive(Debug, Clone, Copy)]
pub struct Reported {
    pub at_us: i64,
    /// They came late, or two clocks agreed on a wrong time (seeds 70171917, 74230117).
    pub is_misdated: bool,
}

/// Name and body of an event.
fn letter<'a>(path: &str, body: &'a str) -> Result<(String, EventBody<'a>), String> {
    let event: EventBody =
        serde_json::from_str(body).map_err(|error| format!("an event that cannot be read: {error}: {body}"))?;
    let in_path = path.rsplit('/').next().filter(|last| *last != "events");
    let name = in_path.unwrap_or(&event.metadata.name).to_owned();
    Ok((name, event))
}
