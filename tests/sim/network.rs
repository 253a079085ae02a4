//! Turns a request of the agent into its fate: what reaches the server, what comes back, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse::agent::Ticket;
use nodepulse::api::{Answer, AuditId, Exchange, Failure, Operation};

use super::judge::conditions::UNDATED;
use super::judge::wire::{Lane, Said};
use super::plan::{FAULTS, Fault};
use super::planted::Planted;
use super::stranger::Stranger;
use super::world::{Event, World};
use crate::model::http::Request;
use crate::model::http::Response;
use crate::model::problem::Problem;
use crate::model::rights::Caller;

/// When the shell gives a request up.
pub const PATIENCE_US: u64 = 10_000_000;
/// An assertion finds out within a minute that somebody else wrote the Node.
const STRAYS_SURPRISE_FOR_US: u64 = 80_000_000;
/// Refusals that may come from anything between agent and server.
const CODES: [u16; 13] = [401, 403, 404, 409, 410, 422, 429, 429, 500, 502, 503, 503, 504];
const PORTAL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<html>log in</html>\n";
const REDIRECT: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\nContent-Length: 0\r\n\r\n";
const HALF_JSON: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"kind\":\"";

/// What a request meets at the server.
#[derive(Debug, Clone, Default)]
pub struct Orders {
    /// Answered without being looked at.
    pub refuse: Option<Problem>,
    /// Done first, though refused.
    pub done: bool,
    /// It comes when nobody waits for it any more, or for the second time.
    pub stray: bool,
    pub reply: Reply,
    /// What the answer takes longer than others.
    pub back_us: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub enum Reply {
    #[default]
    Whole,
    Lost,
    Cut,
    /// The connection closes without a byte.
    Closed,
    Garbage,
    Stranger(Stranger),
}

/// What a request is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// What anybody may ask: an answer to it is no sign of being known.
    Version,
    Reading,
    Writing,
    /// NodeStatus.
    Reporting,
}

/// A request that somebody waits for.
#[derive(Debug)]
pub struct Flight {
    pub lane: Lane,
    /// `None`: a planted fault gave it back too early.
    pub ticket: Option<Ticket>,
    /// Kept only where a planted fault repeats it.
    pub operation: Option<Operation>,
    /// The event that it tells, and which repeat.
    pub letter: Option<(String, u64)>,
    pub asks: Asks,
    pub sent_us: u64,
    /// Whether who sent it knew the time.
    pub is_dated: bool,
    pub exchange: Exchange,
    /// Until then its answer lies unread, unless something else is read.
    pub unread_until_us: Option<u64>,
    pub unread: Option<(Answer, Said)>,
}

/// Requests by number.
#[derive(Debug, Default)]
pub struct Flights {
    pub open: BTreeMap<u64, Flight>,
    count: u64,
}

impl Flights {
    pub fn numbers(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    pub fn forget_all(&mut self) {
        self.open.clear();
    }

    fn waits_for(&self, lane: Lane) -> bool {
        self.open.values().any(|flight| flight.lane == lane)
    }
}

impl World {
    /// The agent wants this sent.
    pub fn send(&mut self, ticket: Ticket, operation: Operation) {
        let is_of_lease =
            matches!(operation, Operation::ReadLease | Operation::CreateLease { .. } | Operation::RenewLease { .. });
        if self.shim.is(Planted::StatusBlocksLease) && is_of_lease && self.flights.waits_for(Lane::Status) {
            return self.schedule(100_000, Event::Held { ticket, operation });
        }
        if self.shim.is(Planted::RenewalsPutOff) && is_of_lease && self.spending.is_exhausted() {
            return self.schedule(1_000_000, Event::Held { ticket, operation });
        }
        let is_of_node = matches!(
            operation,
            Operation::ReadNode { .. } | Operation::PatchStatus { .. } | Operation::CreateNode { .. }
        );
        if is_of_node && self.shim.is_doubt_forgotten(self.now_us) {
            return self.schedule(1_000_000, Event::Held { ticket, operation });
        }
        let given_up = self.shim.has_given_up && matches!(operation, Operation::CreateNode { .. });
        let (wall, server_us) = (self.now().wall, self.server_wall_us());
        let operation = self.shim.operation(operation, wall, server_us);
        if self.shim.puts_off(&operation, server_us, self.was_touched && self.is_repaired()) {
            return self.schedule(100, Event::SaidTold { ticket });
        }
        let put_off = self.shim.comes_after(&operation);
        let put_off = if self.shim.is(Planted::ChangesToldTogether) { self.tell_put_off(put_off) } else { put_off };
        let kept = self.shim.is(Planted::Impatient).then(|| operation.clone());
        self.trace.say(|| format!("-> {operation:?}"));
        let audit_id = AuditId::new(u128::from(self.random.next()));
        let (bytes, exchange) = Exchange::start(operation, &self.target, audit_id);
        let asks = match &bytes {
            bytes if bytes.starts_with(b"GET /version ") => Asks::Version,
            bytes if bytes.starts_with(b"GET ") => Asks::Reading,
            bytes if contains(bytes.split(|byte| *byte == b'\r').next().unwrap_or_default(), b"/status") => {
                Asks::Reporting
            }
            _ => Asks::Writing,
        };
        let (lane, letter) = self.check_request(&bytes);
        self.takes(lane, bytes.len(), true);
        self.trace.mix(&bytes);
        self.flights.count += 1;
        let number = self.flights.count;
        let unread_until_us = ticket.answer_by().filter(|_| self.plan.reads_late()).map(|by| self.us_of(by));
        let (ticket, operation, sent_us, is_dated, unread) = (Some(ticket), kept, self.now_us, self.is_dated(), None);
        let flight =
            Flight { lane, ticket, operation, letter, asks, sent_us, is_dated, exchange, unread_until_us, unread };
        self.flights.open.insert(number, flight);
        self.departure.requests += u64::from(self.departure.is_going);
        let checked = self.watch.sent(lane, number, self.now_us);
        self.check(checked);
        self.shim.sends += 1;
        if self.shim.is(Planted::TwoInFlight) && self.shim.sends.is_multiple_of(40) {
            self.schedule(100, Event::ForgetFlight { flight: number });
        }
        let times = if self.shim.is(Planted::ReadTooLate) { 2 } else { 1 };
        let unread_us = unread_until_us.map_or(0, |until_us| until_us.saturating_sub(self.now_us)) * times;
        if unread_until_us.is_some() {
            self.schedule(unread_us, Event::Read { flight: number });
        }
        let failure = Failure::timed_out(Duration::from_micros(PATIENCE_US));
        self.schedule(PATIENCE_US.max(unread_us), Event::Fail { flight: number, failure });
        if !given_up {
            self.decide_fate(number, lane, bytes);
        }
        self.tell_put_off(put_off);
    }

    /// A planted fault: nobody waits for an answer.
    fn tell_put_off(&mut self, put_off: Option<Operation>) -> Option<Operation> {
        let (bytes, _) = Exchange::start(put_off?, &self.target, AuditId::new(0));
        self.check_request(&bytes);
        self.serve(&bytes, false);
        None
    }

    fn decide_fate(&mut self, flight: u64, lane: Lane, bytes: Vec<u8>) {
        if self.is_link_down() {
            if self.random.per_mille(500) {
                let failure = Failure::new("connect-failed", "10.0.0.1:6443: Network is unreachable");
                self.schedule(1_000, Event::Fail { flight, failure });
            }
            return;
        }
        let latency_us = self.latency_us();
        let mut orders = Orders::default();
        let mut delay_us = latency_us;
        let in_front = self.stranger_until_us.filter(|(until_us, _)| self.now_us < *until_us);
        if let Some((_, stranger)) = in_front {
            // What stands in front lets nothing through.
            orders.refuse = Some(Problem::injected(500, None));
            orders.reply = Reply::Stranger(stranger);
            return self.schedule(delay_us, Event::Arrive { flight, bytes, orders });
        }
        match self.draw_fault(lane) {
            None => {}
            Some(Fault::RequestLost | Fault::Hung) => return,
            Some(Fault::ReplyLost) => orders.reply = Reply::Lost,
            Some(Fault::Late) => {
                orders.reply = Reply::Lost;
                orders.stray = true;
                delay_us = PATIENCE_US + self.random.between(500_000, 20_000_000);
            }
            Some(Fault::Duplicated) => {
                let again = Orders { stray: true, reply: Reply::Lost, ..Orders::default() };
                let later_us = delay_us + self.random.below(3_000_000);
                self.schedule(later_us, Event::Arrive { flight, bytes: bytes.clone(), orders: again });
            }
            Some(Fault::Cut) => orders.reply = Reply::Cut,
            Some(fault @ (Fault::Refused | Fault::DoneAndRefused)) => {
                orders.done = fault == Fault::DoneAndRefused;
                orders.refuse = Some(self.draw_problem(orders.done));
            }
            Some(Fault::Slow) => {
                let slow_us = self.random.between(1_000_000, 9_000_000);
                let is_back = self.random.per_mille(500);
                *(if is_back { &mut orders.back_us } else { &mut delay_us }) += slow_us;
            }
            Some(Fault::HalfClosed) => orders.reply = Reply::Closed,
            Some(Fault::Garbage) => orders.reply = Reply::Garbage,
            Some(Fault::Stranger) => {
                orders.done = self.random.per_mille(250);
                orders.refuse = (!orders.done).then(|| Problem::injected(404, None));
                orders.reply = Reply::Stranger(Stranger::new(&mut self.random));
            }
            Some(Fault::ConnectFailed) => {
                let failure = self.draw_failure();
                return self.schedule(latency_us, Event::Fail { flight, failure });
            }
        }
        self.schedule(delay_us, Event::Arrive { flight, bytes, orders });
    }

    pub fn draw_fault(&mut self, lane: Lane) -> Option<Fault> {
        for fault in FAULTS {
            let rate = self.plan.faults.get(&fault).copied().unwrap_or(0);
            // Only status hangs for long, so that Leases can be watched to go on meanwhile (LSE-16).
            let rate = if fault == Fault::Hung && lane != Lane::Status { 0 } else { rate };
            if rate > 0 && self.random.per_mille(rate) {
                return Some(fault);
            }
        }
        None
    }

    fn draw_problem(&mut self, done: bool) -> Problem {
        let code = if done { self.random.pick(&[500, 502, 504]) } else { self.random.pick(&CODES) };
        let may_wait = code == 429 || code >= 500;
        let wait = self.random.pick(&[1, 2, 5, 30, 3600]);
        let problem = Problem::injected(code, (may_wait && self.random.per_mille(500)).then_some(wait));
        // Too busy, or a panic: said before anything that knows of objects is asked.
        let is_plain = [429, 500].contains(&code) && self.random.per_mille(500);
        if is_plain { problem.in_plain_words() } else { problem }
    }

    fn draw_failure(&mut self) -> Failure {
        match self.random.below(4) {
            0 => Failure::new("name-not-resolved", "api.example has no address"),
            1 => Failure::new("tls-certificate-not-yet-valid", "until 2026"),
            _ => Failure::new("connect-failed", "10.0.0.1:6443: Connection refused"),
        }
    }

    /// A request reaches the place where the server is.
    pub fn arrive(&mut self, flight: u64, bytes: Vec<u8>, orders: Orders) {
        let stray = orders.stray || !self.flights.open.contains_key(&flight);
        if self.is_link_down() || (stray && self.peace) {
            return;
        }
        if let Some(wait_us) = self.server_frozen_for_us() {
            return self.schedule(wait_us + 1_000, Event::Arrive { flight, bytes, orders });
        }
        if self.is_server_down() {
            let failure = Failure::new("connect-failed", "10.0.0.1:6443: Connection refused");
            return self.schedule(1_000, Event::Fail { flight, failure });
        }
        let wall_us = self.server_wall_us();
        let done = orders.refuse.is_none() || orders.done;
        let (is_awaited, is_heard) = (self.is_report_awaited, matches!(orders.reply, Reply::Whole));
        let mut response = done.then(|| self.serve(&bytes, stray));
        // A report whose answer is lost puts right what controllers write; the next one all (seed 88102797).
        self.is_report_awaited |= is_awaited && !(is_heard && orders.refuse.is_none());
        if let Some(problem) = orders.refuse {
            response = Some(self.server.refuse(&bytes, problem, wall_us));
        }
        let Some(response) = response else { return };
        let whole = response.to_bytes();
        let by_stranger = matches!(orders.reply, Reply::Stranger(_));
        let mut said = Said::SILENCE;
        let (bytes, closes) = match orders.reply {
            Reply::Whole => {
                said = said_by(&response);
                (whole, false)
            }
            Reply::Stranger(stranger) => {
                said = Said::Nothing { retry_after_s: stranger.retry_after_s };
                (stranger.answer(&response), true)
            }
            Reply::Lost => return,
            // What is missing is more than the line break after the last byte that counts.
            Reply::Cut => (whole[..self.random.below(whole.len() as u64 - 7) as usize].to_vec(), true),
            Reply::Closed => (Vec::new(), true),
            Reply::Garbage => {
                (self.random.pick(&[PORTAL, REDIRECT, HALF_JSON, b"SSH-2.0-OpenSSH_9.2\r\n"]).to_vec(), true)
            }
        };
        let back_us = self.latency_us() + orders.back_us;
        self.schedule(back_us, Event::Deliver { flight, bytes, closes, by_stranger, said });
    }

    /// The server does it. What it finds wrong with a request of ours is a violation: only faults may refuse so, and a
    /// request that comes too late may not fit any more.
    fn serve(&mut self, bytes: &[u8], stray: bool) -> Response {
        let caller = Caller::Node(self.target.node_name.clone());
        let wall_us = self.server_wall_us();
        let request = match Request::parse(bytes) {
            Ok(Some((request, used))) if used == bytes.len() => request,
            other => {
                self.violated(format!("not one whole request: {other:?}"));
                return self.server.refuse(bytes, Problem::injected(500, None), wall_us);
            }
        };
        // What was decided before a stray came between need not fit after it, and the next report puts it right (seed 5143855).
        // A Lease that a late creation made says of itself that it is another one (seeds 5240, 6077639).
        let surprised = stray
            || self.lease_made_by_stray && request.path.contains("/leases")
            || self.is_report_awaited && request.path.ends_with("/status")
            || self.stray_write_us.is_some_and(|stray_us| self.now_us < stray_us + STRAYS_SURPRISE_FOR_US);
        let before = self.stored_before(&request, surprised);
        let response = if self.trace.keeps_lines() {
            let (response, line) = self.server.answer_aloud(&request, &caller, wall_us);
            self.trace.say(|| format!("   server: {line}"));
            response
        } else {
            self.server.answer(&request, &caller, wall_us)
        };
        if !stray && request.path.contains("/nodes") {
            self.note_own_version();
        }
        if stray && request.path.contains("/leases") && response.is_success() {
            self.watch.lease_came_late();
        }
        if stray && request.path.contains("/nodes") {
            self.stray_write_us = Some(self.now_us);
            self.is_report_awaited = true;
            // Nobody else writes that one: only what we said before can come back (seeds 13955, 1039489).
            let by = self.teller();
            UNDATED.into_iter().for_each(|kind| self.events.repair_may_be_told(kind, by));
            // A late creation is of the boot in which it was asked for, and of what was known then (seeds 40041494, 30253427).
            self.note_named_boot();
            if response.code == 201 {
                self.conditions.made_late(self.stored_times());
            }
        }
        if request.path.contains("/nodes") && (stray || response.code == 201) {
            self.touched();
        }
        if request.path.contains("/nodes") && !stray && response.is_success() {
            self.shown = self.stored_statuses();
            if self.shown.iter().any(|status| status.as_deref() == Some("")) {
                // Asserted on a Node that somebody had made anew: what has no status is repaired, and that told (seed 70280941).
                let by = self.teller();
                UNDATED.into_iter().for_each(|kind| self.events.repair_may_be_told(kind, by));
            }
            self.is_report_awaited &= !request.path.ends_with("/status");
            // What was written before this one was done stands in its answer, or would have refused it: 1003279.
            self.watched.others.asked();
        }
        if !surprised && [400, 403, 405, 406, 415, 422].contains(&response.code) {
            let body: String = String::from_utf8_lossy(&response.body).chars().filter(|c| !c.is_control()).collect();
            self.violated(format!("the server finds fault with {} {}: {body}", request.method, request.path));
        }
        if let Some(warning) = self.server.warnings.pop() {
            self.violated(format!("the server warns of {} {}: {warning}", request.method, request.path));
        }
        self.check_written(&request, &response, before, stray);
        self.trace.mix(&response.body);
        response
    }
}

/// By its own code and header.
fn said_by(response: &Response) -> Said {
    if response.is_success() {
        return Said::Done;
    }
    let header = response.headers.iter().find(|(name, _)| *name == "Retry-After");
    let retry_after_s = header.and_then(|(_, seconds)| seconds.parse().ok());
    let is_there = response.code == 409 && contains(&response.body, b"AlreadyExists");
    Said::Refused { code: response.code, is_there, retry_after_s }
}

fn contains(body: &[u8], words: &[u8]) -> bool {
    body.windows(words.len()).any(|window| window == words)
}
