//! Turns what happened to the Node into Event requests: counted, thinned out, one at a time, never in the way (EVT-*, D6).

use std::collections::VecDeque;
use std::time::Duration;

use heapless::Vec as Bounded;

use super::Because;
use super::notice::Level;
use super::trouble::{Remedy, Trouble};
use super::world::{Step, World};
use crate::api::{Answer, Class, Refusal, Wish};
use crate::config::limits::{INNER_RETRIES, TRIES_PER_EVENT, WAITING_EVENTS};
use crate::node::Event;
use crate::node::desired::NodeEvent;
use crate::node::event::COMBINED;
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
    similar: Bounded<Similar, REMEMBERED>,
    trouble: Trouble,
    not_before: Up,
    /// Tells the names of events of one microsecond apart.
    names: u16,
    dropped: u32,
}

#[derive(Debug)]
struct Waiting {
    event: Event,
    state: Known,
    tries: u32,
    postponed: u32,
}

/// Whether an earlier sighting of an event was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    ToNobody,
    ToServer,
}

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Option<Up>,
}

/// Distinct messages of one type and reason (EVT-6).
#[derive(Debug)]
struct Similar {
    warning: bool,
    reason: &'static str,
    messages: Vec<String>,
    since: Up,
}

const BURST: f64 = 25.0;
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
const REMEMBERED: usize = 16;
const RETRY_AFTER: Duration = Duration::from_secs(10);
const SIMILAR_MESSAGES: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const CEILING: Duration = Duration::from_secs(300);

impl EventLane {
    pub(super) fn new() -> EventLane {
        let bucket = || Bucket { tokens: f64::INFINITY, filled_at: None };
        EventLane {
            waiting: VecDeque::new(),
            delivered: Bounded::new(),
            spam: [bucket(), bucket()],
            rate: bucket(),
            similar: Bounded::new(),
            trouble: Trouble::of("event delivery"),
            not_before: Up::BOOT,
            names: 0,
            dropped: 0,
        }
    }

    pub(super) fn poll(&mut self, world: &mut World, now: Now) -> Step {
        let Some(stamp) = world.stamp(now) else { return Step::Idle };
        for event in std::mem::take(&mut world.fresh_events) {
            self.take_in(event, world, stamp, now.up);
        }
        let Some(first) = self.waiting.front_mut() else { return Step::Idle };
        if now.up < self.not_before {
            let after = self.trouble.last().map(str::to_owned);
            return Step::Wait { until: self.not_before, because: Because { what: "an event", after } };
        }
        let (burst, per_second) = (world.settings.event_burst, world.settings.event_record_qps);
        if per_second > 0
            && let Err(wait) = self.rate.take(f64::from(burst.max(1)), f64::from(per_second), now.up)
        {
            self.not_before = now.up + wait;
            return Step::Wait { until: self.not_before, because: Because { what: "an event", after: None } };
        }
        let event = &mut first.event;
        if let Some(uid) = &world.node_uid {
            // It may have become known while the event waited (D6).
            event.uid.clone_from(uid);
        }
        Step::Send(match first.state {
            Known::ToNobody => Wish::CreateEvent { body: event.create_body() },
            Known::ToServer => Wish::PatchEvent { name: event.name.clone(), body: event.repeat_body() },
        })
    }

    pub(super) fn answered(&mut self, answer: Answer, world: &mut World, now: Now) {
        let Some(first) = self.waiting.front_mut() else { return };
        let Err(refusal) = answer.result else {
            world.say_if(self.trouble.ended(now.up));
            return self.delivered();
        };
        match refusal.class() {
            Class::Exists => {
                // An earlier try was done, and its answer lost.
                world.say_if(self.trouble.ended(now.up));
                self.delivered();
            }
            // The server forgot it (events expire): the same name again (EVT-5).
            Class::Missing if first.state == Known::ToServer => first.state = Known::ToNobody,
            Class::After(wait) if first.postponed < INNER_RETRIES => {
                first.postponed += 1;
                self.not_before = now.up + wait.min(CEILING);
                world.say_if(self.trouble.failed(&refusal, "", now.up));
            }
            Class::Unreachable if first.tries + 1 < TRIES_PER_EVENT => {
                first.tries += 1;
                let wait = if first.tries == 1 { world.random.up_to(RETRY_AFTER) } else { RETRY_AFTER };
                self.not_before = now.up + wait;
                world.say_if(self.trouble.failed(&refusal, "", now.up));
            }
            _ => self.give_up(&refusal, world, now),
        }
    }

    /// What waited for this remedy is tried now.
    pub(super) fn hurry(&mut self, remedy: Remedy, now: Now) {
        if self.trouble.may_end_with(remedy) {
            self.not_before = self.not_before.min(now.up);
        }
    }

    fn delivered(&mut self) {
        if let Some(done) = self.waiting.pop_front() {
            self.delivered.retain(|event| event.name != done.event.name);
            if self.delivered.is_full() {
                self.delivered.remove(0);
            }
            // There is room: the oldest just went.
            let _ = self.delivered.push(done.event);
        }
    }

    /// EVT-7: an event that the server refuses is dropped, and said.
    fn give_up(&mut self, refusal: &Refusal, world: &mut World, now: Now) {
        let advice = world.advise(refusal, "create events", now);
        if let Some(lost) = self.waiting.pop_front() {
            let text = format!("event {} dropped: {refusal}{advice}", lost.event.reason);
            world.say(Level::Warning, "event-dropped", text);
        }
    }

    fn take_in(&mut self, event: NodeEvent, world: &mut World, stamp: Wall, now: Up) {
        let mut event = event;
        event.message = self.aggregate(&event, now);
        let Some(bucket) = self.spam.get_mut(usize::from(event.warning)) else { return };
        if bucket.take(BURST, REFILL_PER_SECOND, now).is_err() {
            return;
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.event.repeats(&event)) {
            return waiting.event.seen_again(&event, stamp);
        }
        let (event, state) = match self.delivered.iter().find(|delivered| delivered.repeats(&event)) {
            Some(delivered) => {
                let mut again = delivered.clone();
                again.seen_again(&event, stamp);
                (again, Known::ToServer)
            }
            None => {
                self.names = self.names.wrapping_add(1);
                let uid = world.node_uid.as_deref().unwrap_or_default();
                (Event::new(&world.node_name, uid, &event, stamp, self.names), Known::ToNobody)
            }
        };
        if self.waiting.len() >= WAITING_EVENTS {
            self.waiting.pop_front();
            self.dropped = self.dropped.saturating_add(1);
            let text = format!("the queue of events is full: {} dropped so far, oldest first", self.dropped);
            world.say(Level::Warning, "events-dropped", text);
        }
        self.waiting.push_back(Waiting { event, state, tries: 0, postponed: 0 });
    }

    fn aggregate(&mut self, event: &NodeEvent, now: Up) -> String {
        self.similar.retain(|similar| now - similar.since < SIMILAR_WITHIN);
        let message = event.message.clone();
        let kind = (event.warning, event.reason);
        let Some(similar) = self.similar.iter_mut().find(|similar| (similar.warning, similar.reason) == kind) else {
            let first = Similar { warning: kind.0, reason: kind.1, messages: vec![message.clone()], since: now };
            // When there are more reasons than places, the rest is not aggregated; the bucket still holds.
            let _ = self.similar.push(first);
            return message;
        };
        if similar.messages.contains(&message) {
            return message;
        }
        if similar.messages.len() + 1 >= SIMILAR_MESSAGES {
            return format!("{COMBINED}{message}");
        }
        similar.messages.push(message.clone());
        message
    }
}

impl Bucket {
    /// Takes one token, or says how long until there is one. A bucket starts full.
    fn take(&mut self, burst: f64, per_second: f64, now: Up) -> Result<(), Duration> {
        let elapsed = self.filled_at.map_or(Duration::ZERO, |filled_at| now - filled_at);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * per_second).min(burst);
        self.filled_at = Some(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A millisecond more than it takes: rounding must not leave a sliver missing.
        Err(Duration::from_secs_f64((1.0 - self.tokens) / per_second) + Duration::from_millis(1))
    }
}
