//! Turns the state of a world at peace into "as it should be" or a sentence saying what is not.

use std::collections::BTreeMap;

use nodepulse::journal::Happened;
use nodepulse::node::condition as conditions;
use nodepulse::node::object::Node;
use nodepulse::node::patch::status_patch;
use nodepulse::node::report::LAST_OUTAGE;
use nodepulse::node::{Board, Remembered, desired};
use nodepulse::time::Wall;
use serde_json::{Value, json};

use super::plan::Happening;
use super::truth::{self, TOLERANCE_US};
use super::world::{EPOCH_US, Event, NODE, World};
use crate::model::controller::condition;

/// A Node at rest: six renewals, at most three assertions, now and then a report. Events come on top.
const IDLE_REQUESTS_PER_MINUTE: u64 = 12;
/// Renewals come every 10.4 s at most, and travel.
const FRESH_US: i64 = 12_000_000;

/// A board's clock that is 10 s off counts as right, and the same to the other side some moments before.
const DATED_US: i64 = 22_000_000;
/// So long after the end of an outage its record may reach the disk.
const LATE_RECORD_US: i64 = 40_000_000;

type Judged = Result<(), String>;

impl World {
    /// A minute after peace, and a minute after that, and again.
    pub fn judge(&mut self) {
        let rate = self.judge_rate();
        self.requests_at_judgement = self.steady_requests();
        self.judged += 1;
        let judged = self.judge_node().and_then(|()| self.judge_status()).and_then(|()| self.judge_lease()).and(rate);
        let judged = judged.and_then(|()| self.judge_telling());
        let seconds = self.judged * self.calm_us() / 1_000_000;
        self.check(judged.map_err(|why| format!("{seconds} s after peace: {why}")));
        self.schedule(self.calm_us(), Event::Judge);
    }

    /// In the end everything is told.
    fn judge_telling(&mut self) -> Judged {
        if !self.is_last_judgement() {
            return Ok(());
        }
        if self.ledger.waiting() > 0 && self.patience > 0 {
            self.patience -= 1;
            self.judged -= 1;
            return Ok(());
        }
        self.ledger.judge()?;
        if self.was_faultless { self.judge_last_outage() } else { Ok(()) }
    }

    /// The annotation sums up the last outage, unless the Node was made anew since.
    fn judge_last_outage(&self) -> Judged {
        let Some(ended) = self.ledger.last_end() else { return Ok(()) };
        let Happened::OutageEnded { cause, changes, dropped } = &ended.record.what else { return Ok(()) };
        let node = self.server.node(NODE).ok_or("there is no Node")?;
        // The disk may have heard of the end long after the server, or never: then its last record is of another outage.
        let told_us = self.ledger.summary.map_or(ended.synced_us, |summary| summary.sent_us);
        let created = node["metadata"]["creationTimestamp"].as_str().and_then(Wall::parse_stamp);
        let is_another_node = created.is_none_or(|created| created.unix_us() > EPOCH_US + told_us as i64 - 1_000_000);
        // What was summed up may be a later outage than the last one on disk.
        let is_from_memory = self.ledger.is_end_from_memory();
        if is_another_node || is_from_memory || self.ledger.summary.is_some_and(|summary| summary.is_excused) {
            return Ok(());
        }
        let text = node["metadata"]["annotations"][LAST_OUTAGE].as_str().unwrap_or_default();
        let outage: Value = serde_json::from_str(text).map_err(|error| format!("last-outage is {text:?}: {error}"))?;
        let expected = json!({"cause": cause.as_str(), "changes": changes, "dropped": dropped});
        let is_other = ["cause", "changes", "dropped"].into_iter().any(|key| outage[key] != expected[key]);
        if is_other || !self.ledger.had_changes(&ended.record, u64::from(*changes)) {
            return Err(format!("last-outage is {text}, the record {expected}"));
        }
        let synced_us = EPOCH_US + ended.synced_us as i64;
        let recorded_us = EPOCH_US + ended.record.at.up.as_duration().as_micros() as i64 - self.boot_offset_us;
        let stored = outage["to"].as_str().and_then(Wall::parse_stamp).map_or(0, Wall::unix_us);
        // A disk that is broken or slow has the record long after the end, which then only the record tells.
        let happens = |kind| self.plan.happenings.contains_key(&kind);
        let may_be_late = happens(Happening::DiskFull) || happens(Happening::DiskSlow);
        let earliest_us = if may_be_late { recorded_us - TOLERANCE_US } else { synced_us - LATE_RECORD_US };
        // A process of another boot that had no clock cannot know, nor when the board slept.
        let is_knowable = ended.record.at.boot == self.boot() && !happens(Happening::Suspend);
        if is_knowable && !(earliest_us..=synced_us + TOLERANCE_US).contains(&stored) {
            return Err(format!("last-outage ended at another time: {text}"));
        }
        Ok(())
    }

    fn steady_requests(&self) -> u64 {
        self.watch.requests - self.watch.event_requests
    }

    fn judge_rate(&self) -> Judged {
        let requests = self.steady_requests() - self.requests_at_judgement;
        if self.judged > 0 && requests * 60_000_000 > IDLE_REQUESTS_PER_MINUTE * self.calm_us() {
            return Err(format!("{requests} requests in a minute of peace"));
        }
        Ok(())
    }

    /// What anybody sees with kubectl.
    fn judge_node(&self) -> Judged {
        let node = self.server.node(NODE).ok_or("there is no Node")?;
        for kind in truth::KINDS {
            let stored = condition(node, kind).and_then(|stored| stored["lastTransitionTime"].as_str());
            let stored = stored.and_then(Wall::parse_stamp).ok_or_else(|| format!("{kind} has no time"))?;
            self.truth.is_since(kind, stored.unix_us())?;
        }
        for (kind, status) in self.true_conditions() {
            let stored = condition(node, kind).ok_or_else(|| format!("the Node has no condition {kind}"))?;
            if stored["status"] != status {
                return Err(format!("{kind} is {}, in truth it is {status}", stored["status"]));
            }
            if stored["reason"] == "NodeStatusUnknown" || stored["reason"] == "NodeStatusNeverUpdated" {
                return Err(format!("{kind} has the controller's reason: {stored}"));
            }
        }
        let taints = node["spec"]["taints"].to_string();
        if taints.contains("unreachable") || taints.contains("not-ready") {
            return Err(format!("the controller still taints it: {taints}"));
        }
        let addresses = node["status"]["addresses"].as_array().map_or(0, Vec::len);
        let expected = if self.plan.settings.node_ip == nodepulse::config::settings::NodeIp::Detect { 2 } else { 3 };
        if addresses != expected {
            return Err(format!("{expected} addresses are expected: {}", node["status"]["addresses"]));
        }
        Ok(())
    }

    /// What the Node has of cpu, memory and storage, and whether it is Ready.
    pub fn stored_sizes(&self) -> BTreeMap<String, String> {
        let Some(node) = self.server.node(NODE) else { return BTreeMap::new() };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let capacity = node["status"]["capacity"].as_object().into_iter().flatten();
        let mut sizes: BTreeMap<String, String> = capacity
            .filter(|(name, _)| ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()))
            .map(|(name, size)| (name.clone(), text(size)))
            .collect();
        sizes.extend(condition(node, "Ready").map(|ready| ("Ready".to_owned(), text(&ready["status"]))));
        sizes
    }

    /// No report takes a size away, or Ready: what cannot be read is what it was.
    pub fn check_sizes(&mut self, before: &BTreeMap<String, String>) {
        let after = self.stored_sizes();
        let zero = after.iter().find(|(_, size)| *size == "0");
        let lost = before.iter().find(|(name, size)| match name.as_str() {
            "Ready" => *size == "True" && after.get("Ready").is_some_and(|now| now == "False"),
            name => !after.contains_key(name),
        });
        if let Some((name, size)) = zero.or(lost) {
            self.violated(format!("a report makes {name} {:?}, it was {size}", after.get(name)));
        }
    }

    /// By rules of this file's own, not the agent's.
    fn true_conditions(&self) -> [(&'static str, &'static str); 4] {
        let readings = &self.board.facts.readings;
        let word = |pressed: bool| if pressed { "True" } else { "False" };
        let memory = readings.memory.as_ref().is_ok_and(|memory| memory.available_bytes < 100 << 20);
        let disk = readings.node_file_system.as_ref().is_ok_and(|disk| disk.available_bytes < disk.capacity_bytes / 10);
        [("MemoryPressure", word(memory)), ("DiskPressure", word(disk)), ("PIDPressure", "False"), ("Ready", "True")]
    }

    /// The agent's own rules find nothing left to change.
    fn judge_status(&self) -> Judged {
        let stored = self.server.node(NODE).cloned().unwrap_or_default();
        let base: Node = serde_json::from_value(stored).map_err(|error| format!("the stored Node is odd: {error}"))?;
        let facts = &self.board.facts;
        let settings = &self.plan.settings;
        let board = Board {
            settings,
            facts,
            name: NODE,
            kubelet_version: &base.status.node_info.kubelet_version,
            conditions: &conditions::first_look(settings, facts, self.now().up),
            stamp: Wall::from_unix_us(self.server_wall_us()),
        };
        let mut remembered =
            Remembered { pod_cidrs: base.spec.pod_cidrs.join(","), reboot_reported: true, ..Remembered::default() };
        remembered.unschedulable = base.spec.unschedulable;
        let update = desired::updated(&base, &board, &mut remembered, false);
        if update.changed {
            return Err(format!(
                "the server's status is not the board's: missing {}",
                status_patch(&base, &update.node)
            ));
        }
        if !base.status.node_info.kubelet_version.starts_with("v1.3") {
            return Err(format!("kubeletVersion is {:?}", base.status.node_info.kubelet_version));
        }
        Ok(())
    }

    fn judge_lease(&self) -> Judged {
        let node = self.server.node(NODE).ok_or("there is no Node")?;
        let lease = self.server.lease(NODE).ok_or("there is no Lease")?;
        let owners: Vec<&Value> = lease["metadata"]["ownerReferences"].as_array().into_iter().flatten().collect();
        let owned = matches!(owners[..], [owner] if owner["uid"] == node["metadata"]["uid"] && owner["kind"] == "Node");
        if !owned {
            return Err(format!("the Lease has owners {owners:?}, the Node has uid {}", node["metadata"]["uid"]));
        }
        if lease["spec"]["holderIdentity"] != NODE || lease["spec"]["leaseDurationSeconds"] != 40 {
            return Err(format!("the Lease says {}", lease["spec"]));
        }
        if lease["metadata"].get("managedFields").is_some() && !self.lease_made_by_stray {
            return Err("the Lease still carries managedFields".to_owned());
        }
        let stored = lease["spec"]["renewTime"].as_str().and_then(Wall::parse_stamp).map_or(0, Wall::unix_us);
        let off_us = (stored - self.lease_renewed_at_us).abs();
        if off_us > DATED_US {
            return Err(format!("renewTime is {} s off: {}", off_us / 1_000_000, lease["spec"]["renewTime"]));
        }
        let silent_us = self.server_wall_us() - self.lease_renewed_at_us;
        if silent_us > FRESH_US {
            return Err(format!("the Lease was last renewed {} s ago", silent_us / 1_000_000));
        }
        Ok(())
    }
}
