//! Turns a correct agent into one with a known fault, by standing between it and its world.

use nodepulse::api::{Answer, Document, Failure, Operation, PatchAnswer, Refusal, StatusError};
use nodepulse::time::Wall;
use serde_json::{Value, json};

use super::board::{Board, Clock};
use super::bodies::{remove, remove_nulls, renamed, told_by};
use super::judge::wire::Lane;
use super::stranger::strangers_code;
use crate::model::json_patch::renew_time;
use crate::model::stamp;

mod kinds;

pub use kinds::{PLANTED, Planted};

/// What a planted fault remembers.
#[derive(Debug, Default)]
pub struct Shim {
    fault: Option<Planted>,
    first_owner: Option<Value>,
    other_board: Option<Board>,
    first_report: Option<String>,
    reports: u64,
    pub has_given_up: bool,
    pub lease_gone_us: Option<u64>,
    pub sends: u64,
    /// An event that waited, until a later one is told, and the time that it tells.
    put_off: Option<Operation>,
    put_off_us: Option<i64>,
    first_beat: Option<String>,
    /// How many there are of each device, as was told last.
    counts: serde_json::Map<String, Value>,
}

impl Shim {
    pub fn new(fault: Option<Planted>) -> Shim {
        Shim { fault, ..Shim::default() }
    }

    pub fn is(&self, fault: Planted) -> bool {
        self.fault == Some(fault)
    }

    pub fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the Node is asked for later, as somebody would who does not know what a Lease that is gone means.
    pub fn is_doubt_forgotten(&self, now_us: u64) -> bool {
        self.is(Planted::DoubtForgotten) && self.lease_gone_us.is_some_and(|gone_us| now_us < gone_us + 30_000_000)
    }

    /// An answer as the faulty agent would have understood it.
    pub fn hear(&mut self, answer: &mut Answer) {
        if let Err(Refusal::Status(status)) = &answer.result
            && self.is(Planted::PlainWordsUnheard)
            && status.reason.is_empty()
        {
            answer.result = Err(Refusal::Failed(Failure::new("answer-unconfirmed", "without a Status")));
        }
    }

    /// Once, an event that has waited for long, of which only a record can tell. `is_mended`: somebody else wrote the Node,
    /// and that is put right. Answers whether it waits on.
    pub fn puts_off(&mut self, operation: &Operation, server_us: i64, is_mended: bool) -> bool {
        let Operation::CreateEvent { body } = operation else { return false };
        if self.put_off_us.is_some() {
            return false;
        }
        let (reason, stamp_us) = told_by(body);
        let is_change = reason.starts_with("NodeHas") && is_mended;
        let is_sensors = reason.starts_with("NTPIs");
        let (is_chosen, waited_us) = match self.fault {
            Some(Planted::ToldInAnotherOrder) => (reason == "Starting", 45_000_000),
            Some(Planted::ChangesToldInAnotherOrder) => (is_change, 45_000_000),
            Some(Planted::ChangesToldTogether) => (is_change, 25_000_000),
            Some(Planted::SensorChangeInAnotherOrder) => (is_sensors, 45_000_000),
            Some(Planted::SensorChangeLost) => (is_sensors, 0),
            _ => return false,
        };
        let is_first = is_chosen && stamp_us < server_us - waited_us;
        if is_first {
            (self.put_off, self.put_off_us) = (Some(operation.clone()), Some(stamp_us));
        }
        is_first
    }

    /// What was put off, where this tells of something much later.
    pub fn comes_after(&mut self, operation: &Operation) -> Option<Operation> {
        if let (Operation::CreateEvent { body }, Some(Planted::SensorChangeDoubled)) = (operation, self.fault)
            && told_by(body).0.starts_with("NTPIs")
        {
            return Some(Operation::CreateEvent { body: renamed(body) });
        }
        let (Operation::CreateEvent { body }, Some(put_off_us)) = (operation, self.put_off_us) else { return None };
        let later_us = if self.is(Planted::ChangesToldTogether) { 0 } else { 45_000_000 };
        let is_lost = self.is(Planted::SensorChangeLost);
        self.put_off.take_if(|_| !is_lost && told_by(body).1 > put_off_us + later_us)
    }

    /// The board as the faulty agent would see it.
    pub fn board<'a>(&'a mut self, board: &'a Board) -> &'a Board {
        match self.fault {
            Some(Planted::ProbedOnce) => self.other_board.get_or_insert_with(|| board.clone()),
            Some(Planted::SensorSilenceUnseen) if matches!(board.clock, Clock::Unreadable(_)) => {
                self.other_board.insert(Board { clock: Clock::Untold, ..board.clone() })
            }
            Some(Planted::SensorGoneUnseen) if board.has_clock && board.clock == Clock::Untold => {
                self.other_board.insert(Board { clock: Clock::Right, ..board.clone() })
            }
            Some(Planted::UnreadIsZero) if board.uncounted.is_some() => {
                let uncounted = Board { uncounted: None, cpus: 0, ..board.clone() };
                self.other_board.insert(uncounted)
            }
            Some(Planted::ReclaimIgnored) => {
                // As if just enough were plenty.
                let enough = |bytes: u64| if bytes > board.memory_bytes / 10 { board.memory_bytes / 2 } else { bytes };
                let memory_available_bytes = board.memory_available_bytes.map(enough);
                self.other_board.insert(Board { memory_available_bytes, ..board.clone() })
            }
            _ => board,
        }
    }

    /// The operation as the faulty agent would have had it.
    pub fn operation(&mut self, operation: Operation, wall: Option<Wall>, server_us: i64) -> Operation {
        if self.fault.is_none() {
            return operation;
        }
        match operation {
            Operation::CreateEvent { body } => Operation::CreateEvent { body: self.event_body(&body, server_us) },
            Operation::CreateLease { body } => Operation::CreateLease { body: self.lease_body(&body, wall) },
            Operation::RenewLease { body, answer } => {
                Operation::RenewLease { body: self.lease_body(&body, wall), answer }
            }
            Operation::CreateNode { body }
                if self.is(Planted::NothingReserved) || self.is(Planted::SickDevicesAllocatable) =>
            {
                Operation::CreateNode { body: self.status_body(&body) }
            }
            Operation::CreateNode { body } if self.is(Planted::FieldMisspelt) => {
                Operation::CreateNode { body: body.replacen("\"machineID\"", "\"machineId\"", 1) }
            }
            Operation::PatchStatus { body, .. } if self.is(Planted::OlderStatusOverNewer) => self.report(body),
            Operation::PatchStatus { body, answer } => Operation::PatchStatus { body: self.status_body(&body), answer },
            other => other,
        }
    }

    fn event_body(&self, body: &str, server_us: i64) -> String {
        let mut event: Value = serde_json::from_str(body).unwrap_or_default();
        match self.fault {
            Some(Planted::NamesDrawnAnew) => {
                let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                event["metadata"]["name"] = json!(format!("{name}-{}", self.sends));
            }
            Some(Planted::EventsDatedNow) => {
                for key in ["firstTimestamp", "lastTimestamp"] {
                    event[key] = json!(stamp::seconds(server_us));
                }
            }
            _ => {}
        }
        event.to_string()
    }

    /// Every second report of a change is the first one once more.
    fn report(&mut self, body: String) -> Operation {
        let mut body = body;
        if body.contains("lastTransitionTime") {
            let first = self.first_report.get_or_insert_with(|| body.clone());
            self.reports += 1;
            if self.reports.is_multiple_of(2) {
                body.clone_from(first);
            }
        }
        Operation::PatchStatus { body, answer: PatchAnswer::Node }
    }

    fn lease_body(&mut self, body: &str, wall: Option<Wall>) -> String {
        let mut lease: Value = serde_json::from_str(body).unwrap_or_default();
        match (self.fault, wall) {
            (Some(Planted::OwnerNeverRefreshed), _) => {
                if let Some(uid) = lease.pointer_mut("/metadata/ownerReferences/0/uid") {
                    *uid = self.first_owner.get_or_insert(uid.clone()).clone();
                }
            }
            (Some(Planted::RenewTimeIsTheWallClock), Some(wall)) => {
                if let Some(time) = renew_time(&mut lease) {
                    *time = json!(stamp::micros(wall.unix_us()));
                }
            }
            (Some(Planted::LeaseOfAnotherLength), _) => {
                if let Some(seconds) = lease.pointer_mut("/spec/leaseDurationSeconds") {
                    *seconds = json!(seconds.as_u64().unwrap_or(0) + 1);
                }
            }
            (Some(Planted::RenewTimeWithThreeDigits), _) => {
                if let Some(time) = renew_time(&mut lease) {
                    *time = json!(format!("{}Z", time.as_str().and_then(|stamp| stamp.get(..23)).unwrap_or_default()));
                }
            }
            _ => {}
        }
        lease.to_string()
    }

    fn change_conditions(&mut self, patch: &mut Value) {
        let conditions = patch["status"].get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            let beat = condition["lastHeartbeatTime"].as_str().map(str::to_owned);
            match (self.fault, beat) {
                (Some(Planted::TransitionsDatedNow), Some(beat)) if condition.get("lastTransitionTime").is_some() => {
                    condition["lastTransitionTime"] = json!(beat);
                }
                (Some(Planted::HeartbeatStandsStill), Some(beat)) => {
                    condition["lastHeartbeatTime"] = json!(self.first_beat.get_or_insert(beat));
                }
                (Some(Planted::ReasonOfAnother), _) if condition["reason"] == "KubeletHasNoDiskPressure" => {
                    condition["reason"] = json!("KubeletHasSufficientMemory");
                }
                _ => {}
            }
        }
    }

    fn status_body(&mut self, body: &str) -> String {
        let mut patch: Value = serde_json::from_str(body).unwrap_or_default();
        if patch.get("status").is_none() {
            return body.to_owned();
        }
        match self.fault {
            Some(Planted::ConditionsNeverAsserted) => {
                remove(&mut patch, "status", &["conditions", "$setElementOrder/conditions"])
            }
            Some(Planted::PidPressureForgotten) => {
                for key in ["conditions", "$setElementOrder/conditions"] {
                    if let Some(list) = patch["status"].get_mut(key).and_then(Value::as_array_mut) {
                        list.retain(|condition| condition["type"] != "PIDPressure");
                    }
                }
            }
            Some(Planted::AddressesMerged) => {
                if let Some(list) = patch["status"].get_mut("addresses").and_then(Value::as_array_mut) {
                    list.retain(|address| address.get("$patch").is_none());
                }
            }
            Some(Planted::ResourceNeverTakenBack) => {
                ["capacity", "allocatable"].iter().for_each(|list| remove_nulls(&mut patch["status"], list));
            }
            Some(Planted::LabelNeverTakenBack) => remove_nulls(&mut patch["metadata"], "labels"),
            Some(Planted::LabelsNeverSent) => remove(&mut patch, "metadata", &["labels"]),
            Some(Planted::TransitionsDatedNow | Planted::HeartbeatStandsStill | Planted::ReasonOfAnother) => {
                self.change_conditions(&mut patch);
            }
            Some(Planted::NothingReserved) if patch["status"].get("allocatable").is_some() => {
                patch["status"]["allocatable"] = patch["status"]["capacity"].clone();
            }
            Some(Planted::SickDevicesAllocatable) => {
                let status = &mut patch["status"];
                let counts = status["capacity"].as_object().cloned().unwrap_or_default();
                self.counts.extend(counts.into_iter().filter(|(name, _)| name.contains('/')));
                for (name, count) in status["allocatable"].as_object_mut().into_iter().flatten() {
                    if let Some(all) = self.counts.get(name).filter(|_| !count.is_null()) {
                        count.clone_from(all);
                    }
                }
            }
            Some(Planted::LastDayUntold) => {
                let annotations = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
                annotations.map(|all| all.remove("nodepulse.dev/network-bytes"));
            }
            Some(Planted::OutageMiscounted) => {
                let last_outage = patch.pointer_mut("/metadata/annotations/nodepulse.dev~1last-outage");
                if let Some(Value::String(text)) = last_outage {
                    let mut outage: Value = serde_json::from_str(text).unwrap_or_default();
                    outage["changes"] = json!(outage["changes"].as_u64().unwrap_or(0) + 1);
                    *text = outage.to_string();
                }
            }
            _ => {}
        }
        patch.to_string()
    }

    /// The answer as the faulty agent would have read it.
    pub fn answer(&mut self, lane: Lane, answer: &mut Answer) {
        if self.is(Planted::ForgottenBeforeAccepted) && lane == Lane::Events && answer.result.is_err() {
            answer.result = Ok(Document::Nothing);
        }
        if let Err(Refusal::Failed(failure)) = &answer.result
            && let Some(code) = strangers_code(failure)
        {
            let believed = StatusError { code, reason: String::new(), message: String::new(), retry_after: None };
            match self.fault {
                Some(Planted::StrangersDeletion) if code == 404 => answer.result = Err(Refusal::Status(believed)),
                Some(Planted::StrangersRefusal) if code >= 400 => answer.result = Err(Refusal::Status(believed)),
                Some(Planted::StrangersSuccess) if code < 300 && lane == Lane::Lease => {
                    answer.result = Ok(Document::Nothing);
                }
                _ => {}
            }
        }
        let Err(Refusal::Status(status)) = &mut answer.result else { return };
        match self.fault {
            Some(Planted::RetryAfterIgnored) => status.retry_after = None,
            Some(Planted::GivenUpOn404) => self.has_given_up |= lane == Lane::Status && status.code == 404,
            _ => {}
        }
    }
}
