//! Turns every send, answer and wait of the agent into "as it should be" or a sentence saying what must never happen.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::wanted::Wanted;
use crate::model::stamp;

/// No process sends more requests than this in any minute, whatever is answered, where renewals and runs are ten seconds
/// apart or more; whoever wants them more often gets more.
pub const REQUESTS_PER_MINUTE: usize = 60;
/// After a failure the Lease is tried again within 7 s (LSE-11), whatever Retry-After says.
const LEASE_BACKOFF_US: u64 = 7_000_000 + SLACK_US;
/// And after the first within this.
const FIRST_PAUSE_US: u64 = 200_000;
const SLACK_US: u64 = 200_000;
/// A minute with so many requests may have used up what may go at once: the next one then waits for its share of the minute.
const REQUESTS_AT_ONCE: usize = 12;
pub const SHARE_US: u64 = 1_500_000;
/// Retry-After is obeyed up to here in every lane; the Lease's ceiling is 7 s.
const RETRY_AFTER_US: u64 = 5_000_000;
/// TR-5: more postponements than this count as failures.
const POSTPONEMENTS: u32 = 10;
/// A deadline in the past may come once; again without anything done in between is a busy loop.
const STUCK_WAITS: u32 = 2;
/// With nothing in flight the status lane looks at the board every 10.4 s, or registration obeys Retry-After up to 30 s.
const LONGEST_IDLE_US: u64 = 30_000_000;
const SECOND_US: u64 = 1_000_000;
/// A look at the board, at its slowest, comes before a request for the Node.
const LOOKED_WITHIN_US: u64 = 2_500_000;
/// A disk that is silent for ten seconds has failed (design 4): the write that is under way, and the one behind it.
const LONGEST_WRITES_US: u64 = 21_000_000;
/// Longest patience of the status lane.
const STATUS_PATIENCE_S: u64 = 30;
/// D1: a Node that is not found again and again is looked for at least every five minutes.
const STOOD_OFF_US: u64 = 310_000_000;
/// Pressure is judged so often, however rarely status is sent (EVI-6).
const LOOK_US: u64 = 10 * SECOND_US;

/// Lease, then status: that is all that a server sees at first when it is back; and where the Node is watched, a look at what
/// others wrote meanwhile, and what puts that right (seeds 1007488, 1049857).
const REQUESTS_AT_COMEBACK: u64 = 2;
const REQUESTS_FOR_OTHERS: u64 = 2;
/// So long after the last success the server was away, rather than slow.
const OUTAGE_US: u64 = 25_000_000;
/// So long before that nothing else may have happened: an assertion finds it out in between.
const UNDISTURBED_US: u64 = 80_000_000;

type Checked = Result<(), String>;

/// Requests of one kind are never in flight together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Lease,
    /// Registration, the Node and its status.
    Status,
    Events,
}

impl Lane {
    /// By the path that is asked for.
    pub fn of(path: &str) -> Lane {
        if path.contains("/leases") {
            Lane::Lease
        } else if path.contains("/events") {
            Lane::Events
        } else {
            Lane::Status
        }
    }
}

/// What was truly said to a request, by whoever said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The API server: it is done.
    Done,
    /// The API server: it is not.
    Refused { code: u16, is_there: bool, retry_after_s: Option<u64> },
    /// Something else, or nobody. Whoever it was may have asked for patience.
    Nothing { retry_after_s: Option<u64> },
}

impl Said {
    pub const SILENCE: Said = Said::Nothing { retry_after_s: None };

    /// 404, 410.
    pub fn is_missing(self) -> bool {
        matches!(self, Said::Refused { code: 404 | 410, .. })
    }

    /// TR-5: the server asks for the same request, that much later.
    fn patience_s(self) -> Option<u64> {
        match self {
            Said::Refused { code, retry_after_s, .. } if code == 429 || code >= 500 => retry_after_s,
            _ => None,
        }
    }
}

/// LSE-14: a Lease that is gone was collected with its Node, perhaps, and whether there is one is asked as soon as the
/// status lane is free (D1), however that fared.
#[derive(Debug, Default)]
struct Doubt {
    since_us: Option<u64>,
    /// When a request for the Node must have been sent.
    due_us: Option<u64>,
    /// Who was asked for patience has it.
    patient_until_us: u64,
    /// A Node that was not found may be stood off from.
    missed_us: Option<u64>,
    /// When the last Lease request was sent.
    lease_us: u64,
}

impl Doubt {
    fn is_stood_off(&self, now_us: u64) -> bool {
        self.missed_us.is_some_and(|missed_us| now_us < missed_us + STOOD_OFF_US)
    }
}

/// The server was away, and is there again.
#[derive(Debug)]
struct Comeback {
    /// When the first Lease request was answered, or if nobody waited for the answer, sent.
    since_us: u64,
    /// How many there were since.
    requests: u64,
    most: u64,
}

/// What was seen of the agent so far.
#[derive(Debug, Default)]
pub struct Watch {
    in_flight: BTreeMap<Lane, u64>,
    sends_us: VecDeque<u64>,
    pub requests: u64,
    /// Those of the event lane; what waited for Retry-After may come minutes after peace.
    pub event_requests: u64,
    /// Most requests in one minute.
    pub busiest: usize,
    last_renew_us: Option<i64>,
    /// When the next Lease request must have been sent; `None` while nothing can be said.
    lease_due_us: Option<u64>,
    /// How the last Lease request failed.
    lease_failure: Option<Said>,
    /// How many failed since one was answered well, or since what came back begins the pauses anew.
    lease_failures: u32,
    /// The Node is gone and has to be registered first; Leases wait for that.
    node_missing: bool,
    /// Somebody else wrote the Lease that an earlier process left: whose Node it is has to be asked first, unless it was.
    owner_in_doubt: bool,
    /// What came late wrote the Lease, as another board would (D10): with the next answer, or after it, the agent may find
    /// that somebody else has it, and renews it no more before it knows whose Node this is.
    is_contested: bool,
    /// How many answers may still bring that out.
    came_late: u32,
    /// The Lease request in flight is nothing but a renewal.
    is_plain_renewal: bool,
    doubt: Doubt,
    /// What is reported waits for the disk for so long, where the disk is slow.
    disk_us: u64,
    not_before_us: BTreeMap<Lane, u64>,
    postponements: BTreeMap<Lane, u32>,
    stuck_waits: u32,
    pub probing: bool,
    /// No request is harmed on its way, in this world.
    is_faultless: bool,
    /// Renewals are due a quarter of the duration after the last (LSE-4), and 4 % of that; the rest is for timers and probes that are late.
    lease_spacing_us: u64,
    most_per_minute: usize,
    /// So long after the two that make a Node Ready nothing else is due: neither a renewal nor a run.
    pause_us: u64,
    most_at_comeback: u64,
    update_us: u64,
    /// When a Lease request was last answered well, for this process, and for the one before it.
    reached_us: Option<u64>,
    left_us: Option<u64>,
    /// The last renewal holds only for the Lease as an earlier process left it.
    resumes: bool,
    /// When the machine last woke.
    resumed_us: u64,
    /// When somebody last did to Node, Lease or settings what takes requests to heal.
    disturbed_us: Option<u64>,
    comeback: Option<Comeback>,
}

impl Watch {
    pub fn new(is_faultless: bool, is_disk_slow: bool, wanted: &Wanted) -> Watch {
        let renew_us = u64::from(wanted.lease_s) * SECOND_US / 4;
        let lease_spacing_us = renew_us / 100 * 104 + SLACK_US;
        let pause_us = renew_us.min(wanted.update_us).min(LOOK_US) / 100 * 99;
        let heartbeats = 60 * SECOND_US / renew_us + 60 * SECOND_US / wanted.update_us;
        let most_per_minute = REQUESTS_PER_MINUTE.max(REQUESTS_PER_MINUTE * heartbeats as usize / 12);
        let disk_us = if is_disk_slow { LONGEST_WRITES_US } else { 0 };
        let most_at_comeback = REQUESTS_AT_COMEBACK + if wanted.watches { REQUESTS_FOR_OTHERS } else { 0 };
        let most_at_comeback = most_at_comeback + u64::from(!wanted.podless);
        Watch {
            disk_us,
            is_faultless,
            lease_spacing_us,
            most_per_minute,
            pause_us,
            most_at_comeback,
            update_us: wanted.update_us,
            ..Watch::default()
        }
    }

    /// The process is gone, and everything in flight with it.
    pub fn process_ended(&mut self) {
        self.in_flight.clear();
        self.sends_us.clear();
        self.not_before_us.clear();
        self.postponements.clear();
        (self.last_renew_us, self.lease_due_us, self.lease_failure) = (None, None, None);
        (self.node_missing, self.owner_in_doubt, self.is_contested) = (false, false, false);
        (self.came_late, self.lease_failures, self.is_plain_renewal) = (0, 0, false);
        self.doubt = Doubt::default();
        (self.stuck_waits, self.probing) = (0, false);
        self.left_us = self.reached_us.take().or(self.left_us);
        self.comeback = None;
    }

    /// The Node is gone, or may be left alone for a while as it was gone again and again (D1): whether there is one by now or
    /// not (seeds 107802, 120061).
    pub fn is_node_missing(&self, now_us: u64) -> bool {
        self.node_missing || self.doubt.is_stood_off(now_us)
    }

    /// Whoever stands in front of the server may ask for it as well (seeds 4066372, 4077001).
    pub fn is_status_asked_for_patience(&self, now_us: u64) -> bool {
        now_us < self.doubt.patient_until_us
    }

    /// The server took a report, and the agent knows: whatever was missing is there again.
    pub fn report_accepted(&mut self) {
        self.doubt.missed_us = None;
    }

    pub fn lease_came_late(&mut self) {
        self.came_late = 2;
    }

    /// Somebody did what takes more requests to heal.
    pub fn disturbed(&mut self, now_us: u64) {
        self.disturbed_us = Some(now_us);
        self.comeback = None;
    }

    /// Others wrote the Node, which is watched (seeds 2068780, 5180431).
    pub fn others_wrote(&mut self) {
        if let Some(back) = &mut self.comeback {
            back.most += REQUESTS_FOR_OTHERS;
        }
    }

    /// The machine slept: what was due then is due now.
    pub fn resumed(&mut self, now_us: u64) {
        self.resumed_us = now_us;
        self.lease_due_us = self.lease_due_us.map(|due| due.max(now_us + SLACK_US));
        // What was being written then still is (seed 2148772).
        self.doubt.due_us = self.doubt.due_us.map(|due| due.max(now_us + LOOKED_WITHIN_US + self.disk_us));
    }

    /// The next Lease request is a renewal and nothing else.
    pub fn asks_for_lease(&mut self, is_plain_renewal: bool) {
        self.is_plain_renewal = is_plain_renewal;
    }

    /// The Node, not the version, is asked for, or written.
    pub fn asks_for_node(&mut self) {
        (self.doubt.since_us, self.doubt.due_us) = (None, None);
    }

    fn doubts(&mut self, lane: Lane, said: Said, now_us: u64) {
        let doubt = &mut self.doubt;
        if lane == Lane::Status {
            if let Said::Nothing { retry_after_s } | Said::Refused { retry_after_s, .. } = said {
                let patient_us = now_us + retry_after_s.unwrap_or(0).min(STATUS_PATIENCE_S) * SECOND_US;
                doubt.patient_until_us = doubt.patient_until_us.max(patient_us);
            }
            doubt.missed_us = if said.is_missing() { Some(now_us) } else { doubt.missed_us };
        }
        if matches!(said, Said::Nothing { .. }) {
            // Where no server is found, the Lease goes first.
            (doubt.since_us, doubt.due_us) = (None, None);
        }
        let is_gone = lane == Lane::Lease && self.is_plain_renewal && said.is_missing();
        if is_gone && !doubt.is_stood_off(now_us) && !self.node_missing && !self.is_contested && !self.owner_in_doubt {
            doubt.since_us = Some(now_us);
        }
        if doubt.since_us.is_some() && !self.in_flight.contains_key(&Lane::Status) {
            let due_us = now_us.max(doubt.patient_until_us) + LOOKED_WITHIN_US + self.disk_us;
            // Whoever asks for patience before the Node is asked for gets it (seed 6012661).
            doubt.due_us = doubt.due_us.filter(|_| now_us >= doubt.patient_until_us).or(Some(due_us));
        }
    }

    /// Looked at with every event, before it happens.
    pub fn is_node_asked_for(&self, now_us: u64) -> Checked {
        let Some(due_us) = self.doubt.due_us else { return Ok(()) };
        // The Lease goes first, and two requests are left to it, but not for ever (seeds 50194, 73015880, 92000350).
        let crowded_us = (self.doubt.lease_us + 5 * SHARE_US).clamp(due_us + SHARE_US, due_us + 20 * SHARE_US);
        let latest_us = if self.sends_us.len() < REQUESTS_AT_ONCE { due_us + SHARE_US } else { crowded_us };
        if now_us <= latest_us || self.in_flight.contains_key(&Lane::Status) {
            return Ok(());
        }
        let due_s = due_us as f64 / 1e6;
        Err(format!("the Lease is gone, and nobody asks whether the Node is: that was due at {due_s:.3} s"))
    }

    pub fn probes(&mut self) -> Checked {
        self.stuck_waits = 0;
        if std::mem::replace(&mut self.probing, true) {
            return Err("a second probe before the first was answered".to_owned());
        }
        Ok(())
    }

    pub fn writes(&mut self) {
        self.stuck_waits = 0;
    }

    /// Towards what a minute may have; the request of a watch as well (seed 100277257).
    pub fn counts(&mut self, now_us: u64) -> Checked {
        self.sends_us.push_back(now_us);
        while self.sends_us.front().is_some_and(|sent_us| now_us - sent_us >= 60_000_000) {
            self.sends_us.pop_front();
        }
        self.busiest = self.busiest.max(self.sends_us.len());
        let is_too_many = self.sends_us.len() > self.most_per_minute;
        if is_too_many { Err(format!("more than {} requests in a minute", self.most_per_minute)) } else { Ok(()) }
    }

    pub fn sent(&mut self, lane: Lane, flight: u64, now_us: u64) -> Checked {
        self.stuck_waits = 0;
        self.requests += 1;
        self.event_requests += u64::from(lane == Lane::Events);
        self.counts(now_us)?;
        if let Some(other) = self.in_flight.insert(lane, flight) {
            return Err(format!("lane {lane:?} has requests {other} and {flight} in flight"));
        }
        if lane == Lane::Lease {
            self.doubt.lease_us = now_us;
            self.lease_due_us = None;
            self.node_missing = false;
            self.owner_in_doubt = false;
        }
        if lane == Lane::Status && self.owner_in_doubt {
            self.lease_due_us = None;
        }
        if let Some(back) = self.comeback.as_mut().filter(|back| now_us < back.since_us + self.pause_us) {
            back.requests += 1;
            if back.requests > back.most {
                let (count, after) = (back.requests, Duration::from_micros(now_us - back.since_us));
                let text = format!("{count} requests in the first {after:?} after the server is back");
                return Err(format!("{text}, the last by {lane:?}"));
            }
        }
        match self.not_before_us.remove(&lane) {
            Some(not_before_us) if now_us < not_before_us => {
                let early = Duration::from_micros(not_before_us - now_us);
                Err(format!("lane {lane:?} sends {early:?} before the Retry-After it was given"))
            }
            _ => Ok(()),
        }
    }

    /// `None` where a body has none. `resumes`: it holds only for one version of the Lease.
    pub fn renews(&mut self, renew_us: Option<i64>, resumes: bool) -> Checked {
        self.resumes = resumes;
        // The agent has made up its mind.
        self.is_contested = false;
        let Some(renew_us) = renew_us else { return Err("a Lease write without renewTime".to_owned()) };
        let last = self.last_renew_us.replace(renew_us);
        if last.is_some_and(|last| renew_us <= last) {
            return Err(format!("renewTime {} is not after the last one", stamp::micros(renew_us)));
        }
        Ok(())
    }

    /// `sent_us`: of a request whose answer may have lain there unread.
    pub fn answered(&mut self, lane: Lane, said: Said, sent_us: Option<u64>, now_us: u64) {
        self.in_flight.remove(&lane);
        let is_done = said == Said::Done;
        if lane == Lane::Lease {
            self.is_contested |= self.came_late > 0;
            // Who is no API server brings nothing out (seed 319767), nor does who did not look (seed 76117544).
            let has_looked = is_done || matches!(said, Said::Refused { code: 404 | 409 | 410 | 422, .. });
            self.came_late = self.came_late.saturating_sub(u32::from(has_looked));
            self.lease_failure = (!is_done).then_some(said);
            if is_done {
                self.lease_succeeded(sent_us, now_us);
            }
            // That it was read late puts off nothing.
            let begun_us = sent_us.unwrap_or(now_us);
            let due_us = if is_done { begun_us + self.lease_spacing_us } else { now_us + self.lease_pause_us(said) };
            // One that was found is not yet renewed.
            self.lease_failures = if is_done && self.is_plain_renewal { 0 } else { self.lease_failures + 1 };
            self.lease_due_us = Some(due_us.max(now_us));
        }
        self.doubts(lane, said, now_us);
        if matches!(said, Said::Nothing { .. }) {
            // It is away again, or still.
            self.comeback = None;
        }
        self.node_missing |= lane == Lane::Status && said.is_missing();
        if lane == Lane::Status && self.owner_in_doubt {
            // One that fails is asked again in the next run.
            let run_us = if is_done { 0 } else { self.update_us / 100 * 104 + SLACK_US };
            self.lease_due_us = Some(now_us + run_us + LEASE_BACKOFF_US);
        }
        let is_in_doubt = matches!(said, Said::Refused { code: 404 | 409 | 410 | 422, is_there: false, .. });
        self.owner_in_doubt |= lane == Lane::Lease && self.resumes && is_in_doubt;
        if self.node_missing || self.is_contested {
            self.lease_due_us = None;
        }
        let Some(wait_s) = said.patience_s() else {
            self.postponements.remove(&lane);
            return;
        };
        let postponed = self.postponements.entry(lane).or_default();
        *postponed += 1;
        if *postponed <= POSTPONEMENTS {
            let wait_us = wait_s.saturating_mul(SECOND_US).min(RETRY_AFTER_US);
            self.not_before_us.insert(lane, now_us + wait_us);
        }
    }

    /// An answer that nobody had to wait for; the next request goes out when it is read.
    pub fn read(&self, sent_us: u64, now_us: u64) -> Checked {
        if now_us > sent_us + self.lease_spacing_us && self.resumed_us <= sent_us {
            return Err(format!("an answer lay there unread for {:?}", Duration::from_micros(now_us - sent_us)));
        }
        Ok(())
    }

    /// `unread_since_us`: the answer of before, so the renewal that brings the server back is the next one (seed 1117372); what
    /// came of it came when it was sent (seed 5014964).
    fn lease_succeeded(&mut self, unread_since_us: Option<u64>, now_us: u64) {
        let left_us = self.left_us.take().filter(|_| self.resumes);
        let Some(before_us) = self.reached_us.replace(now_us).or(left_us).filter(|_| self.is_faultless) else { return };
        let is_disturbed = self.disturbed_us.is_some_and(|disturbed_us| disturbed_us + UNDISTURBED_US > before_us);
        if now_us - before_us > OUTAGE_US.max(self.lease_spacing_us * 5 / 2) && !is_disturbed {
            let (since_us, requests) = (unread_since_us.unwrap_or(now_us), u64::from(unread_since_us.is_none()));
            self.comeback = Some(Comeback { since_us, requests, most: self.most_at_comeback });
        }
    }

    /// A link came back, or (`reload`) settings and credentials were read again: what may be cured by that is tried at once.
    /// A server that asked for patience gets it all the same.
    pub fn hurried(&mut self, reload: bool, now_us: u64) {
        // Another address is another report; and who waits for an answer waits on while others are served (seed 150021585).
        self.comeback = None;
        self.disturbed_us = self.in_flight.get(&Lane::Lease).map(|_| now_us).or(self.disturbed_us);
        let cured = match self.lease_failure {
            None | Some(Said::Done | Said::Nothing { retry_after_s: Some(_) }) => false,
            Some(Said::Nothing { .. }) => true,
            Some(said) => reload && said.patience_s().is_none(),
        };
        if cured && self.lease_due_us.is_some() && !self.owner_in_doubt {
            (self.lease_due_us, self.lease_failures) = (Some(now_us), 0);
        }
    }

    /// Twice as long each time.
    fn lease_pause_us(&self, said: Said) -> u64 {
        let is_patient = said.patience_s().is_some() || matches!(said, Said::Nothing { retry_after_s: Some(_) });
        let pause_us = (FIRST_PAUSE_US << self.lease_failures.min(9)) + SLACK_US;
        if is_patient { LEASE_BACKOFF_US } else { pause_us.min(LEASE_BACKOFF_US) }
    }

    pub fn waits(&mut self, until_us: u64, now_us: u64) -> Checked {
        if until_us <= now_us {
            self.stuck_waits += 1;
            return if self.stuck_waits < STUCK_WAITS {
                Ok(())
            } else {
                Err("a busy loop: deadline after deadline in the past".to_owned())
            };
        }
        self.stuck_waits = 0;
        if self.in_flight.is_empty()
            && !self.probing
            && until_us - now_us > LONGEST_IDLE_US.max(self.update_us / 100 * 104 + SLACK_US)
        {
            return Err(format!("the agent waits {} s with nothing in flight", (until_us - now_us) / 1_000_000));
        }
        Ok(())
    }

    /// Looked at with every event, before it happens.
    pub fn is_lease_in_time(&self, now_us: u64) -> Checked {
        let share_us = if self.sends_us.len() < REQUESTS_AT_ONCE { 0 } else { SHARE_US };
        let Some(due_us) = self.lease_due_us.filter(|due_us| now_us > due_us + share_us) else { return Ok(()) };
        let (due_s, others) = (due_us as f64 / 1e6, self.in_flight.keys().collect::<Vec<_>>());
        Err(format!("the Lease is late: a request was due at {due_s:.3} s; in flight are {others:?}"))
    }
}
