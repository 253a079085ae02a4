//! Turns the state of a world at peace into "as it should be" or a sentence saying what is not.
//!
//! This file and those below it are a model of their own, made from `kubelet-behaviour` and the design: nothing in them
//! is the agent's (`tidy::judge`). What they need of the world are plain numbers, the server's objects and the clock.

pub mod budget;
pub mod conditions;
mod ending;
pub mod events;
pub mod excuse;
mod matching;
pub mod node;
pub mod reach;
pub mod requests;
pub mod seen;
mod sensor;
pub mod thresholds;
pub mod wire;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::board::Clock;
use super::meter::LAST_DATE;
use super::world::{Event, World};
use crate::model::controller::condition;
use crate::model::stamp;
use conditions::{CLOCK, KINDS, TOLERANCE_US, UNDATED};
use events::{BUDGET, Events};
use node::{Expected, judge_condition};

const MINUTE_US: u64 = 60_000_000;
/// A report and its answer travel, and may have to be made again.
const TELLING_US: i64 = 20_000_000;
/// What may come on top of renewals, assertions and reports in a minute of peace.
const MORE_REQUESTS: u64 = 4;
/// A renewal that is due travels, and timers are late.
const RENEWAL_LATE_US: i64 = 1_600_000;
/// A board's clock that is 10 s off counts as right, and the same to the other side some moments before.
const DATED_US: i64 = 22_000_000;
const SIZES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const NETWORK_BYTES: &str = "nodepulse.dev/network-bytes";
const LAST_OUTAGE: &str = "nodepulse.dev/last-outage";

type Judged = Result<(), String>;

impl World {
    /// A minute after peace, and a minute after that, and again.
    pub fn judge(&mut self) {
        let rate = self.judge_rate();
        self.requests_at_judgement = self.steady_requests();
        self.judged += 1;
        let judged = self.judge_node().and_then(|()| self.judge_lease()).and(rate);
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
        let mut excuses = self.excuses.clone();
        let told = self.events.judge(&mut excuses);
        // The summary of an outage goes out when its end is told (seed 5105271).
        let told = told.and_then(|()| if self.was_faultless { self.judge_last_outage() } else { Ok(()) });
        let told = told.and_then(|()| self.judge_last_day());
        if told.is_err() && self.patience > 0 {
            self.patience -= 1;
            self.judged -= 1;
            return Ok(());
        }
        told?;
        self.excuses = excuses;
        Ok(())
    }

    /// The annotation sums up the last outage, unless the Node was made anew since.
    fn judge_last_outage(&self) -> Judged {
        let Some((lost_us, reached_us)) = self.reach.outage_us.clone() else { return Ok(()) };
        let (earliest_us, lost_us) = lost_us.into_inner();
        let node = self.server.node(&self.plan.name).ok_or("there is no Node")?;
        let created_us = node["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse).unwrap_or(0);
        if created_us > lost_us {
            return Ok(());
        }
        let text = node["metadata"]["annotations"][LAST_OUTAGE].as_str().unwrap_or_default();
        let outage: Value = serde_json::from_str(text).map_err(|error| format!("last-outage is {text:?}: {error}"))?;
        let time = |key: &str| outage[key].as_str().and_then(stamp::parse).unwrap_or(0);
        let (from_us, to_us) = (time("from"), time("to"));
        if to_us < reached_us - TOLERANCE_US {
            return Err(format!("last-outage is of an earlier one: {text}"));
        }
        if to_us > reached_us + TOLERANCE_US || from_us > reached_us - TOLERANCE_US && to_us > reached_us {
            // There was a shorter one since (seed 55120).
            return Ok(());
        }
        if !(earliest_us - TOLERANCE_US..=lost_us + TOLERANCE_US).contains(&from_us) {
            return Err(format!("last-outage began {} s off: {text}", (from_us - lost_us) / 1_000_000));
        }
        let least = self.events.changes_within(lost_us + TOLERANCE_US, reached_us - TOLERANCE_US);
        // The answer before it may have lain there while the machine slept (seed 84285227).
        let most = [Events::changes_within, Events::changes_told_within]
            .map(|count| count(&self.events, earliest_us - TOLERANCE_US, reached_us + TOLERANCE_US));
        let most = most.into_iter().max().unwrap_or_default() + self.events.told_of_budget();
        let number = |key: &str| outage[key].as_u64().unwrap_or(u64::MAX / 2);
        // What made room for others is counted, not told.
        let (changes, dropped) = (number("changes"), number("dropped"));
        if changes > most || changes + dropped < least || outage["cause"].as_str().is_none_or(str::is_empty) {
            return Err(format!("last-outage is {text}, there were {least} to {most} changes"));
        }
        Ok(())
    }

    /// What the network took goes along with reports, and these may be put off.
    fn judge_last_day(&self) -> Judged {
        if self.had_budget {
            return Ok(());
        }
        let node = self.server.node(&self.plan.name).ok_or("there is no Node")?;
        let text = node["metadata"]["annotations"][NETWORK_BYTES].as_str().unwrap_or_default();
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        if said != json!({ "day": LAST_DATE, "bytes": self.last_day_bytes() }) {
            return Err(format!("of the last day the Node says {text:?}"));
        }
        Ok(())
    }

    fn steady_requests(&self) -> u64 {
        self.watch.requests - self.watch.event_requests
    }

    fn judge_rate(&self) -> Judged {
        let requests = self.steady_requests() - self.requests_at_judgement;
        let wanted = &self.plan.wanted;
        let renew_us = u64::from(wanted.lease_s) * 1_000_000 / 4;
        let often = |period_us: u64| self.calm_us() / period_us + 1;
        let expected = often(renew_us) + often(wanted.assert_us) + often(wanted.report_us);
        if self.judged > 0 && requests > expected + MORE_REQUESTS * self.calm_us() / MINUTE_US {
            return Err(format!("{requests} requests in a minute of peace"));
        }
        Ok(())
    }

    /// What anybody sees with kubectl.
    fn judge_node(&mut self) -> Judged {
        let node = self.server.node(&self.plan.name).ok_or("there is no Node")?;
        let mut absent = 0;
        for kind in KINDS {
            let is_there = condition(node, kind).is_some();
            absent += usize::from(!is_there);
            if kind == CLOCK && self.board.clock == Clock::Untold && is_there && self.is_last_judgement() {
                judge_condition(node, kind, "Unknown")?;
            }
            if kind == CLOCK && (self.is_unsettled(kind) || self.conditions.status(kind).is_none() && !is_there) {
                // What nobody could say yet is on no Node.
                continue;
            }
            let stored = condition(node, kind).and_then(|stored| stored["lastTransitionTime"].as_str());
            let stored_us = stored.and_then(stamp::parse).ok_or_else(|| format!("{kind} has no time"))?;
            self.conditions.is_since(kind, stored_us, &mut self.excuses)?;
            judge_condition(node, kind, self.conditions.status(kind).unwrap_or("False"))?;
        }
        judge_condition(node, "Ready", if self.board.has_runtime() { "True" } else { "False" })?;
        let conditions = node["status"]["conditions"].as_array().map_or(0, Vec::len);
        let budget = condition(node, BUDGET);
        if budget.is_some_and(|budget| budget["status"] != "False") || budget.is_some() && !self.had_budget {
            return Err(format!("{BUDGET} without a budget: {}", node["status"]["conditions"]));
        }
        let others = usize::from(condition(node, "KernelDeadlock").is_some()) + usize::from(budget.is_some());
        let others = others + self.judge_absence(node)? + self.judge_last_boot(node)?;
        let expected = KINDS.len() - absent + 1 + others;
        if conditions != expected {
            return Err(format!("conditions nobody knows: {}", node["status"]["conditions"]));
        }
        self.judge_heartbeat(node)?;
        let taints = node["spec"]["taints"].to_string();
        if taints.contains("unreachable") || taints.contains("not-ready") && self.board.has_runtime() {
            return Err(format!("the controller still taints it: {taints}"));
        }
        Expected { name: &self.plan.name, board: &self.board, wanted: &self.plan.wanted }.judge(node)
    }

    /// A sensor takes a minute, and another one after a change, to be believed; then it is told.
    fn is_unsettled(&self, kind: &str) -> bool {
        self.conditions.is_unread(kind) || self.conditions.is_within(kind, self.server_wall_us(), TELLING_US)
    }

    /// SYN-6 and SYN-7: a report at the latest after one and a half periods, and the run that it comes with.
    fn judge_heartbeat(&self, node: &Value) -> Judged {
        let Some(reported) = self.reported else { return Ok(()) };
        let wanted = &self.plan.wanted;
        let longest_us = (wanted.report_us * 3 / 2 + wanted.update_us * 2) as i64;
        let silent_us = self.server_wall_us() - reported.at_us;
        if silent_us > longest_us {
            return Err(format!("the last report was {} s ago", silent_us / 1_000_000));
        }
        for kind in KINDS.into_iter().chain(["Ready"]).filter(|kind| !reported.is_misdated && !UNDATED.contains(kind)) {
            let beat = condition(node, kind).and_then(|stored| stored["lastHeartbeatTime"].as_str());
            let off_us = beat.and_then(stamp::parse).unwrap_or(0) - reported.at_us;
            if off_us.abs() > DATED_US {
                return Err(format!("lastHeartbeatTime of {kind} is {} s off the last report", off_us / 1_000_000));
            }
        }
        Ok(())
    }

    /// What the Node has of cpu, memory and storage, and whether it is Ready.
    pub fn stored_sizes(&self) -> BTreeMap<String, String> {
        let Some(node) = self.server.node(&self.plan.name) else { return BTreeMap::new() };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let capacity = node["status"]["capacity"].as_object().into_iter().flatten();
        let mut sizes: BTreeMap<String, String> = capacity
            .filter(|(name, _)| SIZES.contains(&name.as_str()))
            .map(|(name, size)| (name.clone(), text(size)))
            .collect();
        sizes.extend(condition(node, "Ready").map(|ready| ("Ready".to_owned(), text(&ready["status"]))));
        sizes
    }

    /// No report takes a size away, or Ready: what cannot be read is what it was.
    pub fn check_sizes(&mut self, before: &BTreeMap<String, String>) {
        let after = self.stored_sizes();
        let zero = after.iter().find(|(_, size)| *size == "0");
        // RDY-3: the sizes of a Node that somebody made anew may be beyond reading just now (seed 38469).
        let was_sized = SIZES.iter().all(|name| before.contains_key(*name) || !self.is_size_wanted(name));
        let lost = before.iter().find(|(name, size)| match name.as_str() {
            "Ready" => {
                self.departure.count == 0
                    && was_sized
                    && !self.may_have_heard_of_no_runtime()
                    && *size == "True"
                    && after.get("Ready").is_some_and(|now| now == "False")
            }
            name => !after.contains_key(name),
        });
        if let Some((name, size)) = zero.or(lost) {
            self.violated(format!("a report makes {name} {:?}, it was {size}", after.get(name)));
        }
    }

    /// RDY-4: it is down, or was a moment ago; a report that is sent again may be of before.
    fn may_have_heard_of_no_runtime(&self) -> bool {
        let is_fresh = |at_us: i64| self.server_wall_us() - at_us < 120_000_000;
        self.board.runtime.is_some() && (!self.board.has_runtime() || self.resized_us.is_some_and(is_fresh))
    }

    fn is_size_wanted(&self, name: &str) -> bool {
        name != "ephemeral-storage" || self.plan.wanted.isolates_storage
    }

    fn judge_lease(&self) -> Judged {
        let node = self.server.node(&self.plan.name).ok_or("there is no Node")?;
        let lease = self.server.lease(&self.plan.name).ok_or("there is no Lease")?;
        let owners: Vec<&Value> = lease["metadata"]["ownerReferences"].as_array().into_iter().flatten().collect();
        let owned = matches!(owners[..], [owner] if owner["uid"] == node["metadata"]["uid"] && owner["kind"] == "Node");
        if !owned {
            return Err(format!("the Lease has owners {owners:?}, the Node has uid {}", node["metadata"]["uid"]));
        }
        let spec = &lease["spec"];
        if spec["holderIdentity"] != self.plan.name.as_str() || spec["leaseDurationSeconds"] != self.plan.wanted.lease_s
        {
            return Err(format!("the Lease says {spec}"));
        }
        // The first renewal takes it away (seed 12016533).
        let created_us = lease["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse).unwrap_or(0);
        let is_new = self.server_wall_us() < created_us + i64::from(self.plan.wanted.lease_s) * 1_000_000 / 2;
        if lease["metadata"].get("managedFields").is_some() && !self.lease_made_by_stray && !is_new {
            return Err("the Lease still carries managedFields".to_owned());
        }
        let stored_us = spec["renewTime"].as_str().and_then(stamp::parse).unwrap_or(0);
        let off_us = (stored_us - self.lease_renewed_at_us).abs();
        if off_us > DATED_US {
            return Err(format!("renewTime is {} s off: {}", off_us / 1_000_000, spec["renewTime"]));
        }
        let silent_us = self.server_wall_us() - self.lease_renewed_at_us;
        let period_us = i64::from(self.plan.wanted.lease_s) * 260_000;
        if silent_us > period_us + RENEWAL_LATE_US {
            return Err(format!("the Lease was last renewed {} s ago", silent_us / 1_000_000));
        }
        Ok(())
    }
}
