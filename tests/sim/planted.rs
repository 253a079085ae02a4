//! Turns a correct agent into one with a known fault, by standing between it and its world.

use nodepulse::api::{Answer, Document, Failure, Lane, Operation, PatchAnswer, Refusal, StatusError};
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::Facts;
use nodepulse::time::Wall;
use serde_json::{Value, json};

/// Faults that the simulator must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// The Lease keeps the first owner it ever had (LSE-6's bug).
    OwnerNeverRefreshed,
    /// A link that comes back is not noticed.
    LinkChangeSwallowed,
    /// renewTime is the wall clock, steps included (undoes D5).
    RenewTimeIsTheWallClock,
    /// renewTime with milliseconds.
    RenewTimeWithThreeDigits,
    /// A lane sends again while it waits.
    TwoInFlight,
    /// The Lease waits for a hung status (undoes LSE-16).
    StatusBlocksLease,
    /// Conditions are sent only when the board changes, never asserted (undoes D4, PRS-7).
    ConditionsNeverAsserted,
    /// One condition is forgotten in every patch.
    PidPressureForgotten,
    /// After a 404 the Node is never registered again (undoes D1).
    GivenUpOn404,
    /// Deadlines in the past.
    BusyLoop,
    /// Addresses merged by type, as the API declares them (PAT-4's bug).
    AddressesMerged,
    /// Refused requests repeated at once.
    Impatient,
    /// Retry-After is not read.
    RetryAfterIgnored,
    /// Wiped labels stay wiped (undoes UPD-2).
    LabelsNeverSent,
    /// The board is probed once and never again.
    ProbedOnce,
    /// What cannot be counted is none.
    UnreadIsZero,
    /// A misspelt field.
    FieldMisspelt,
    /// What is on its way to the disk is told as if it were there.
    SentBeforeSynced,
    /// When nothing waits, the next process begins with the first number again.
    NumberingRestarts,
    /// What made room for others leaves no trace.
    DropsNotRecorded,
    /// A report is sent again after a later one.
    OlderStatusOverNewer,
    /// A record is forgotten when it is sent.
    ForgottenBeforeAccepted,
    /// What waits is sorted by the board's clock.
    OrderedByTheWallClock,
    /// A wrong `Date` is taken for the time.
    WrongDateBelieved,
    /// A 404 of anybody means that the Node is gone (undoes D14).
    StrangersDeletion,
    /// Any refusal of anybody ends a record.
    StrangersRefusal,
    /// A success of anybody is an acknowledged renewal.
    StrangersSuccess,
}

pub const PLANTED: [Planted; 27] = [
    Planted::OwnerNeverRefreshed,
    Planted::LinkChangeSwallowed,
    Planted::RenewTimeIsTheWallClock,
    Planted::RenewTimeWithThreeDigits,
    Planted::TwoInFlight,
    Planted::StatusBlocksLease,
    Planted::ConditionsNeverAsserted,
    Planted::PidPressureForgotten,
    Planted::GivenUpOn404,
    Planted::BusyLoop,
    Planted::AddressesMerged,
    Planted::Impatient,
    Planted::RetryAfterIgnored,
    Planted::LabelsNeverSent,
    Planted::ProbedOnce,
    Planted::UnreadIsZero,
    Planted::FieldMisspelt,
    Planted::SentBeforeSynced,
    Planted::NumberingRestarts,
    Planted::DropsNotRecorded,
    Planted::OlderStatusOverNewer,
    Planted::ForgottenBeforeAccepted,
    Planted::OrderedByTheWallClock,
    Planted::WrongDateBelieved,
    Planted::StrangersDeletion,
    Planted::StrangersRefusal,
    Planted::StrangersSuccess,
];

impl Planted {
    /// What the violation says by which it is noticed: another one would be an accident.
    pub fn sign(self) -> &'static str {
        match self {
            Planted::OwnerNeverRefreshed => "Lease",
            Planted::LinkChangeSwallowed => "the Lease is late",
            Planted::RenewTimeIsTheWallClock => "is not after the last one",
            Planted::RenewTimeWithThreeDigits => "spec.renewTime",
            Planted::TwoInFlight => "in flight",
            Planted::StatusBlocksLease => "in flight are [Status]",
            Planted::ConditionsNeverAsserted => "is \"Unknown\", in truth it is",
            Planted::PidPressureForgotten => "PIDPressure is \"Unknown\"",
            Planted::GivenUpOn404 => "there is no Node",
            Planted::BusyLoop => "a busy loop",
            Planted::AddressesMerged => "addresses",
            Planted::Impatient => "requests in a minute",
            Planted::RetryAfterIgnored => "Retry-After",
            Planted::LabelsNeverSent => "kubernetes.io/",
            Planted::ProbedOnce => "in truth it is",
            Planted::UnreadIsZero => "a report makes cpu",
            Planted::FieldMisspelt => "unknown field",
            Planted::SentBeforeSynced => "synced",
            Planted::NumberingRestarts => "the numbering falls back",
            Planted::DropsNotRecorded => "0 are counted as dropped",
            Planted::OlderStatusOverNewer => "is told to be",
            Planted::ForgottenBeforeAccepted => "records are forgotten that the server never accepted",
            Planted::OrderedByTheWallClock => "out of order",
            Planted::WrongDateBelieved => "renewTime is",
            Planted::StrangersDeletion => "what the API server never said",
            Planted::StrangersRefusal => "records are forgotten that the server never accepted",
            Planted::StrangersSuccess => "the Lease is late",
        }
    }
}

impl Planted {
    /// Only a long outage shows it.
    pub fn takes_long(self) -> bool {
        self == Planted::DropsNotRecorded
    }
}

/// What a planted fault remembers.
#[derive(Debug, Default)]
pub struct Shim {
    fault: Option<Planted>,
    first_owner: Option<Value>,
    other_facts: Option<Facts>,
    first_report: Option<String>,
    reports: u64,
    pub has_given_up: bool,
    pub sends: u64,
}

impl Shim {
    pub fn new(fault: Option<Planted>) -> Shim {
        Shim { fault, ..Shim::default() }
    }

    pub fn is(&self, fault: Planted) -> bool {
        self.fault == Some(fault)
    }

    pub fn facts<'a>(&'a mut self, facts: &'a Facts) -> &'a Facts {
        match self.fault {
            Some(Planted::ProbedOnce) => self.other_facts.get_or_insert_with(|| facts.clone()),
            Some(Planted::UnreadIsZero) if facts.machine.cpu_count.is_err() => {
                self.other_facts.insert(facts.clone()).machine.cpu_count = Ok(0);
                self.other_facts.as_ref().unwrap_or(facts)
            }
            _ => facts,
        }
    }

    /// The journal as the faulty agent would find it.
    pub fn journal(&self, bytes: Vec<u8>) -> Vec<u8> {
        let waits = |bytes: &[u8]| Journal::recover(bytes, bytes.len(), BootId(0)).0.waiting().count();
        if self.is(Planted::NumberingRestarts) && waits(&bytes) == 0 { Vec::new() } else { bytes }
    }

    /// The operation as the faulty agent would have had it.
    pub fn operation(&mut self, operation: Operation, wall: Option<Wall>) -> Operation {
        if self.fault.is_none() {
            return operation;
        }
        match operation {
            Operation::CreateLease { body } => Operation::CreateLease { body: self.lease_body(&body, wall) },
            Operation::RenewLease { body } => Operation::RenewLease { body: self.lease_body(&body, wall) },
            Operation::CreateNode { body } if self.is(Planted::FieldMisspelt) => {
                Operation::CreateNode { body: body.replacen("\"machineID\"", "\"machineId\"", 1) }
            }
            Operation::PatchStatus { body, .. } if self.is(Planted::OlderStatusOverNewer) => self.report(body),
            Operation::PatchStatus { body, answer, heartbeat } => {
                Operation::PatchStatus { body: self.status_body(&body), answer, heartbeat }
            }
            other => other,
        }
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
        Operation::PatchStatus { body, answer: PatchAnswer::Node, heartbeat: true }
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
                lease["spec"]["renewTime"] = json!(wall.to_micro_stamp())
            }
            (Some(Planted::RenewTimeWithThreeDigits), _) => {
                let stamp = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
                lease["spec"]["renewTime"] = json!(format!("{}Z", stamp.get(..23).unwrap_or_default()));
            }
            _ => {}
        }
        lease.to_string()
    }

    fn status_body(&self, body: &str) -> String {
        let mut patch: Value = serde_json::from_str(body).unwrap_or_default();
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
            Some(Planted::LabelsNeverSent) => remove(&mut patch, "metadata", &["labels"]),
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

fn remove(object: &mut Value, part: &str, keys: &[&str]) {
    if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// The code of an answer that is not known to be the API server's.
fn strangers_code(failure: &Failure) -> Option<u16> {
    let text = failure.to_string();
    text.strip_prefix("answered ").filter(|_| failure.word() == "answer-unconfirmed")?.split(' ').next()?.parse().ok()
}
