//! Turns what happened to the Node into Event requests: counted, thinned out, one at a time, never in the way (EVT-*, D6).
//!
//! An event of a record is never thinned out or given up for want of an answer: it is fetched when the one before it is
//! done, after it is on disk, and the record is forgotten when the server has accepted it.

use std::collections::VecDeque;
use std::time::Duration;

use heapless::Vec as Bounded;

use super::bucket::Bucket;
use super::budget::PutOff;
use super::contract::Because;
use super::failure_log::RetryReason;
use super::notice::Level;
use super::replay::Unreported;
use super::shared::{Departure, Ownership, Shared, Step};
use super::tries::Tries;
use crate::api::{Answer, Class, Operation, Refusal, StatusError};
use crate::config::limits::{TRIES_PER_EVENT, WAITING_EVENTS};
use crate::journal::Sequence;
use crate::node::Event;
use crate::node::NodeEvent;
use crate::node::event::number_at;
use crate::time::{Now, Up, Wall};

#[derive(Debug)]
pub(super) struct EventLane {
    /// At most [`WAITING_EVENTS`], on the heap: room for all inside the agent would be 20 KB, which the stack would keep a
    /// copy of for every hand-over.
    waiting: VecDeque<Waiting>,
    /// The latest events the server has, newest last: a repeat counts instead of adding (EVT-5).
    delivered: Bounded<Event, REMEMBERED>,
    /// One for each event type: how many are taken in (EVT-6).
    spam: [Bucket; 2],
    /// How many are sent: `eventRecordQPS` and `eventBurst` (TR-1).
    rate: Bucket,
    /// Of the first that waits.
    tries: Tries,
    not_before: Up,
    /// Tells the names of events of one microsecond apart.
    names: u16,
    dropped: u32,
    /// The first that waits is on its way.
    is_sent: bool,
}

#[derive(Debug)]
struct Waiting {
    event: Event,
    /// The record that it tells of.
    record: Option<Sequence>,
    state: Telling,
}

/// Whether an earlier sighting of an event was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    First,
    Repeat,
}

const BURST: f64 = 25.0;
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
const REMEMBERED: usize = 16;
const RETRY_AFTER: Duration = Duration::from_secs(10);
const CEILING: Duration = Duration::from_secs(300);
/// Who has no right to tell asks ever more rarely, up to this: it may come back, and a quota or a namespace may too.
const FORBIDDEN_CEILING: Duration = Duration::from_secs(3600);

impl EventLane {
    pub(super) fn new() -> EventLane {
        let bucket = || Bucket::new(BURST, REFILL_PER_SECOND);
        EventLane {
            waiting: VecDeque::new(),
            delivered: Bounded::new(),
            spam: [bucket(), bucket()],
            rate: Bucket::new(1.0, 1.0),
            tries: Tries::of("event delivery", RETRY_AFTER),
            not_before: Up::BOOT,
            names: 0,
            dropped: 0,
            is_sent: false,
        }
    }

    /// The machine goes down: its event goes before all that waits.
    pub(super) fn depart(&mut self, departure: &Departure, shared: &mut Shared, now: Now) -> Step {
        // Whoever asked for patience gets it.
        if now.up < self.not_before {
            return Step::Wait { until: self.not_before, because: self.tries.because() };
        }
        let sequence = departure.sequence;
        let record = shared.records.waiting().find(|record| record.sequence == sequence);
        let Some(event) = record.and_then(|record| shared.event_of(record, now)) else { return Step::Idle };
        let operation = Operation::CreateEvent { body: event.create_body() };
        self.waiting.retain(|waiting| waiting.record != Some(sequence));
        self.waiting.push_front(Waiting { event, record: Some(sequence), state: Telling::First });
        self.is_sent = true;
        Step::Send(self.tries.asking(operation))
    }

    /// `heartbeat_is_near`: one is on its way, or about to be, and what waited since an outage stands back.
    pub(super) fn poll(&mut self, shared: &mut Shared, heartbeat_is_near: bool, now: Now) -> Step {
        if self.waiting.is_empty() && shared.fresh_events.is_empty() && shared.replay.next(&shared.records).is_none() {
            return Step::Idle;
        }
        // Whether the board's clock is right, only a server can say, and an event that was told with a wrong time keeps it.
        // (One that knows our Node by now does not say.)
        let has_answered = shared.clock.was_compared() || shared.node_uid().is_some();
        let Some(stamp) = shared.stamp(now).filter(|_| has_answered) else { return Step::Idle };
        if shared.node == Ownership::Contested {
            return Step::Idle;
        }
        self.fetch(shared, now);
        for (came, event) in std::mem::take(&mut shared.fresh_events) {
            self.take_in(event, shared, stamp.minus(now.up - came), now.up);
        }
        if shared.budget.puts_off(PutOff::Events) {
            return Step::Idle;
        }
        let Some(first) = self.waiting.front_mut() else { return Step::Idle };
        let replay = &shared.replay;
        let may_tell_at = if first.record.is_some() { replay.may_tell_at() } else { Some(replay.quiet_until()) };
        let Some(may_tell_at) = may_tell_at.filter(|_| !shared.is_lost()) else {
            // While no server is found there is nothing to wait for but that one is.
            self.hurry(RetryReason::Link, now);
            return Step::Idle;
        };
        let not_before = self.not_before.max(may_tell_at);
        if now.up < not_before {
            return Step::Wait { until: not_before, because: self.tries.because() };
        }
        if first.record.is_some() {
            let stands_back = heartbeat_is_near && !shared.replay.is_live();
            if stands_back || shared.records.must_wait(now.up) {
                return Step::Idle;
            }
        }
        let (burst, per_second) = (shared.settings.event_burst, shared.settings.event_record_qps);
        if per_second > 0 {
            self.rate.set(f64::from(burst.max(1)), f64::from(per_second));
            let wait = self.rate.wait(0.0, now.up);
            if !wait.is_zero() {
                self.not_before = now.up + wait;
                return Step::Wait { until: self.not_before, because: Because { what: "an event", after: None } };
            }
            self.rate.take();
        }
        self.is_sent = true;
        let event = &mut first.event;
        if let Some(record) = first.record {
            shared.replay.telling(now.up);
            if first.state == Telling::First
                && let Some((_, now_dated)) = shared.next_telling(now).filter(|(sequence, _)| *sequence == record)
            {
                // The clock may have been put right while it waited.
                (event.first_seen, event.last_seen) = (now_dated.first_seen, now_dated.last_seen);
            }
        }
        if let Some(uid) = shared.node_uid() {
            // It may have become known while the event waited (D6).
            uid.clone_into(&mut event.uid);
        }
        let operation = match first.state {
            Telling::First => Operation::CreateEvent { body: event.create_body() },
            Telling::Repeat => Operation::PatchEvent { name: event.name.clone(), body: event.repeat_body() },
        };
        Step::Send(self.tries.asking(operation))
    }

    /// `unreported`: what has to be remembered although it was told.
    pub(super) fn answered(&mut self, answer: Answer, unreported: &Unreported, shared: &mut Shared, now: Now) {
        self.is_sent = false;
        self.tries.answered(answer.result.as_ref().err());
        let Some(first) = self.waiting.front_mut() else { return };
        let is_recorded = first.record.is_some();
        let Err(refusal) = answer.result else {
            if let Some(event) = self.delivered(unreported, shared, now) {
                self.remember(event);
            }
            return;
        };
        match refusal.class() {
            // A repeat whose event was not found, and now is: it is counted on it, whatever the server said before.
            Class::Exists if first.state == Telling::First && first.event.count > 1 => {
                first.state = Telling::Repeat;
                self.keep(&refusal, shared, now);
            }
            // An earlier try was done, and its answer lost. How often it was seen since, only who told that knows.
            Class::Exists => drop(self.delivered(unreported, shared, now)),
            // The server forgot it (events expire): the same name again (EVT-5).
            Class::Missing if first.state == Telling::Repeat => first.state = Telling::First,
            // This one would be refused each time, and would keep the others from being told.
            _ if refusal.is_of_content() => self.give_up(&refusal, unreported, shared, now),
            _ if is_recorded => self.keep(&refusal, shared, now),
            Class::After(_) if self.tries.may_postpone() => self.keep(&refusal, shared, now),
            Class::Unreachable | Class::Rights if self.tries.failed + 1 < TRIES_PER_EVENT => {
                self.keep(&refusal, shared, now)
            }
            _ => self.give_up(&refusal, unreported, shared, now),
        }
    }

    /// What is worth another try for this reason is tried now: tries that came sooner than they had to make no pause longer.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        if self.tries.hurry(reason) {
            self.not_before = self.not_before.min(now.up);
            self.tries.start_over();
        }
    }

    /// Answers what was.
    fn delivered(&mut self, unreported: &Unreported, shared: &mut Shared, now: Now) -> Option<Event> {
        self.tries.succeeded(shared, now);
        let done = self.waiting.pop_front()?;
        if let Some(sequence) = done.record {
            shared.replay.told(sequence, unreported, &mut shared.records);
        }
        Some(done.event)
    }

    fn remember(&mut self, event: Event) {
        self.delivered.retain(|known| known.name != event.name);
        if self.delivered.is_full() {
            self.delivered.remove(0);
        }
        // There is room: the oldest just went.
        let _ = self.delivered.push(event);
    }

    /// Nothing is lost while a record tells of it: it is tried ever more rarely, and what comes after it waits.
    fn keep(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let Some(first) = self.waiting.front() else { return };
        self.tries.failed(refusal, shared, now);
        if let Some(wait) = self.tries.postponed(refusal, CEILING) {
            self.not_before = now.up + wait;
            return;
        }
        let is_forbidden = matches!(refusal, Refusal::Status(StatusError { code: 403, .. }));
        let ceiling = if is_forbidden { FORBIDDEN_CEILING } else { CEILING };
        let wait = match self.tries.failed - 1 {
            0 => shared.random.up_to(RETRY_AFTER),
            // EVT-7.
            _ if first.record.is_none() && refusal.class() == Class::Unreachable => RETRY_AFTER,
            tries => RETRY_AFTER * (1 << tries.min(9)),
        };
        self.not_before = now.up + refusal.retry_after().max(wait).min(ceiling);
    }

    /// EVT-7: an event that the server refuses is dropped, and said.
    fn give_up(&mut self, refusal: &Refusal, unreported: &Unreported, shared: &mut Shared, now: Now) {
        self.tries.start_over();
        if let Some(lost) = self.waiting.pop_front() {
            let advice = shared.advise(refusal, self.tries.asked, now);
            if let Some(sequence) = lost.record {
                shared.replay.told(sequence, unreported, &mut shared.records);
            }
            let text = format!("event {} dropped: {refusal}{advice}", lost.event.reason);
            shared.say(Level::Warn, "event-dropped", text);
            if lost.event.count > 1 {
                // It may have been counted all the same: the next sighting is another one.
                self.remember(lost.event);
            }
        }
    }

    /// The next record's event, when the one before it is done.
    fn fetch(&mut self, shared: &mut Shared, now: Now) {
        if self.waiting.iter().any(|waiting| waiting.record.is_some()) {
            return;
        }
        let Some((sequence, mut event)) = shared.next_telling(now) else { return };
        let mut state = Telling::First;
        // What happened before the last sighting that the server has is none of it: its own time would be lost.
        let known = self.known(&event).filter(|known| shared.replay.is_live() && known.last_seen <= event.last_seen);
        if let Some(known) = known {
            event = known.again(&event);
            state = Telling::Repeat;
        }
        self.waiting.push_back(Waiting { event, record: Some(sequence), state });
    }

    /// What the server has of this, so that it counts instead of adding (EVT-5). While another sighting waits, nobody knows
    /// yet how many there are.
    fn known(&self, event: &Event) -> Option<&Event> {
        let is_waiting = self.waiting.iter().any(|waiting| waiting.event.is_repeated_by(event));
        self.delivered.iter().find(|known| !is_waiting && known.is_repeated_by(event))
    }

    fn take_in(&mut self, event: NodeEvent, shared: &mut Shared, stamp: Wall, now: Up) {
        let Some(bucket) = self.spam.get_mut(usize::from(event.warning)) else { return };
        if !bucket.wait(0.0, now).is_zero() {
            return;
        }
        bucket.take();
        let name = self.names.wrapping_add(1);
        let uid = shared.node_uid().unwrap_or_default();
        let event = Event::new(&shared.node_name, uid, &event, stamp, number_at(stamp, name));
        let mut others = self.waiting.iter_mut().filter(|waiting| waiting.record.is_none());
        if let Some(waiting) = others.find(|waiting| waiting.event.is_repeated_by(&event)) {
            waiting.event = waiting.event.again(&event);
            return;
        }
        let (event, state) = match self.known(&event) {
            Some(known) => (known.again(&event), Telling::Repeat),
            None => {
                self.names = name;
                (event, Telling::First)
            }
        };
        if self.waiting.len() >= WAITING_EVENTS {
            // What is on its way is answered, and what a record tells of costs no place.
            let is_free =
                |(place, waiting): (usize, &Waiting)| !(self.is_sent && place == 0) && waiting.record.is_none();
            let place = self.waiting.iter().enumerate().position(is_free);
            place.and_then(|place| self.waiting.remove(place));
            self.dropped = self.dropped.saturating_add(1);
            let text = format!("the queue of events is full: {} dropped so far, oldest first", self.dropped);
            shared.say(Level::Warn, "events-dropped", text);
        }
        self.waiting.push_back(Waiting { event, record: None, state });
    }
}
