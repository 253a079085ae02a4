//! Turns a watch of the Node into what the agent is told of it, and when that ends: with the connection that all requests share.

use std::collections::VecDeque;
use std::time::Duration;

use nodepulse::agent::{Input, Ticket};
use nodepulse::api::{Answer, Document, Failure, Refusal, Seen, StatusError};
use serde_json::Value;

use super::judge::seen::Others;
use super::judge::wire::Lane;
use super::plan::Fault;
use super::planted::Planted;
use super::world::{Event, World};

/// A packet that is lost comes again after about as long.
const AGAIN_US: u64 = 1_000_000;
/// The agent may come so late to what was told that more is told by then.
const UNTOLD_US: u64 = 4_000_000;

/// What happens to a watch, each of which has a number.
#[derive(Debug)]
pub enum OfWatch {
    /// The server has it.
    Begins(u64),
    /// What is next on its way is there.
    Tells(u64),
    /// The agent comes to what was told.
    IsTaken(u64),
    Ends(u64, Result<(), Refusal>),
}

/// Which Node it is, and which version of it.
type Version = (String, String);

/// The watch of a world.
#[derive(Debug, Default)]
pub struct Watched {
    number: u64,
    ticket: Option<Ticket>,
    has_begun: bool,
    /// What was told last of the Node that there is.
    told: Option<Version>,
    /// The last version that a request of the agent made.
    ours: Option<Version>,
    /// What is on its way, and when that is there: nothing overtakes it.
    on_its_way: VecDeque<Seen>,
    told_until_us: u64,
    /// What was told, and the agent has not come to it yet: of several the last.
    untold: Option<Seen>,
    pub others: Others,
}

impl Watched {
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Nobody hears of it any more.
    pub fn forget(&mut self) {
        *self = Watched { number: self.number, ours: self.ours.take(), ..Watched::default() };
    }
}

fn version_of(node: &Value) -> Version {
    let text = |key: &str| node["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("uid"), text("resourceVersion"))
}

fn broken() -> Refusal {
    Refusal::Failed(Failure::broken("Connection reset by peer"))
}

impl World {
    /// The agent wants to watch.
    pub fn watch_node(&mut self, ticket: Ticket) {
        if self.watched.ticket.is_some() || !self.plan.wanted.watches {
            return self.violated("a watch that nobody asked for".to_owned());
        }
        self.trace.say(|| "-> watches the Node".to_owned());
        let checked = self.watch.counts(self.now_us);
        self.check(checked);
        self.watched.number += 1;
        self.watched.ticket = Some(ticket);
        let (number, delay_us) = (self.watched.number, self.latency_us());
        let is_strange = self.stranger_until_us.is_some_and(|(until_us, _)| self.now_us < until_us);
        let what = match self.draw_fault(Lane::Events) {
            _ if is_strange || self.is_server_down() => OfWatch::Ends(number, Err(broken())),
            // Nobody waits for it: it ends with its connection.
            _ if self.is_link_down() => return,
            Some(Fault::RequestLost | Fault::ReplyLost | Fault::Hung | Fault::Late) => return,
            Some(Fault::Refused | Fault::DoneAndRefused) => OfWatch::Ends(number, Err(self.draw_refusal())),
            None | Some(Fault::Slow | Fault::Duplicated) => OfWatch::Begins(number),
            Some(_) => OfWatch::Ends(number, Err(broken())),
        };
        self.schedule(delay_us, Event::OfWatch(what));
    }

    fn draw_refusal(&mut self) -> Refusal {
        let code = self.random.pick(&[401, 403, 403, 403, 404, 429, 500, 503]);
        let retry_after = (code == 429).then_some(Duration::from_secs(5));
        Refusal::Status(StatusError { code, reason: "Injected".to_owned(), message: String::new(), retry_after })
    }

    pub fn of_watch(&mut self, what: OfWatch) {
        match what {
            OfWatch::Begins(number) if self.is_watching(number) => {
                self.watched.has_begun = true;
                self.look_for_watch();
            }
            OfWatch::Tells(number) if self.is_watching(number) => {
                if self.is_link_down() || self.server_frozen_for_us().is_some() {
                    return self.schedule(AGAIN_US, Event::OfWatch(OfWatch::Tells(number)));
                }
                let Some(seen) = self.watched.on_its_way.pop_front() else { return };
                self.was_heard();
                let untold = self.watched.untold.take();
                if untold.is_none() {
                    let most_us = if self.random.per_mille(100) { UNTOLD_US } else { 0 };
                    let delay_us = self.random.below(most_us + 1);
                    self.schedule(delay_us, Event::OfWatch(OfWatch::IsTaken(number)));
                }
                self.watched.untold = Some(seen.in_place_of(untold));
            }
            OfWatch::IsTaken(number) if self.is_watching(number) => {
                let Some(seen) = self.watched.untold.take() else { return };
                self.trace.say(|| format!("<- {seen:?}"));
                self.feed(Input::Seen(seen));
            }
            OfWatch::Ends(number, result) if self.is_watching(number) => self.end_watch(result),
            _ => {}
        }
    }

    /// The server is there, though it answers nothing (seed 30259741).
    fn was_heard(&mut self) {
        let wall_us = self.server_wall_us();
        if let Some(done_us) = self.reach.done_us.take() {
            self.reach.done_us = Some(*done_us.start()..=wall_us.max(*done_us.end()));
        }
    }

    fn is_watching(&self, number: u64) -> bool {
        self.watched.number == number && self.watched.ticket.is_some()
    }

    /// Its connection is gone.
    pub fn break_watch(&mut self) {
        let number = self.watched.number;
        if self.is_watching(number) {
            self.schedule(1, Event::OfWatch(OfWatch::Ends(number, Err(broken()))));
        }
    }

    pub fn end_watch(&mut self, result: Result<(), Refusal>) {
        let Some(ticket) = self.watched.ticket.take() else { return };
        self.watched.forget();
        self.trace.say(|| format!("<- the watch is over: {result:?}"));
        if result.is_ok() {
            self.was_heard();
        }
        let result = result.map(|()| Document::Nothing);
        self.feed(Input::Answered(ticket, Answer { date: None, result }));
    }

    /// The agent itself has made what is there now.
    pub fn note_own_version(&mut self) {
        self.watched.ours = self.server.node(&self.plan.name).map(version_of);
    }

    /// After each thing that happens: whether there is another version than was told of.
    pub fn look_for_watch(&mut self) {
        if !self.watched.has_begun {
            return;
        }
        let is_told = self.was_faultless && !self.had_budget && self.agent.is_some() && !self.is_stopping;
        let is_strange = self.stranger_until_us.is_some_and(|(until_us, _)| self.now_us < until_us);
        let is_silent = self.is_link_down() || self.is_server_down() || self.server_frozen_for_us().is_some();
        // A Node that was deleted again and again is registered in its own time.
        let is_missing = self.watch.is_node_missing(self.now_us);
        let is_patient = self.watch.is_status_asked_for_patience(self.now_us);
        // Who is about to go down looks at nothing (seed 76784398).
        let is_leaving = self.departure.is_going;
        if !is_told || is_silent || is_strange || is_missing || is_patient || is_leaving || self.is_asleep {
            self.watched.others.wait(self.now_us);
        }
        let heard = self.watched.others.are_heard(&self.plan.wanted, self.now_us);
        self.check(heard);
        let found = self.server.node(&self.plan.name).map(version_of);
        if found == self.watched.told {
            return;
        }
        let is_news = self.watched.told.is_some() && found != self.watched.ours;
        let seen = match (&found, self.watched.told.take()) {
            // One that was not there before, or is another, is added, not changed.
            (Some((uid, version)), told) => Seen::Version {
                resource_version: version.clone(),
                is_next: told.is_some_and(|(known, _)| known == *uid),
            },
            (None, Some(_)) => Seen::Deleted { resource_version: self.server.store.version().to_string() },
            (None, None) => return,
        };
        self.watched.told = found;
        if is_news {
            self.watched.others.wrote(self.now_us);
            self.watch.others_wrote();
        }
        if self.shim.is(Planted::OthersUnseen) && is_news {
            return;
        }
        self.watched.told_until_us = self.watched.told_until_us.max(self.now_us + self.latency_us());
        let (number, delay_us) = (self.watched.number, self.watched.told_until_us - self.now_us);
        self.watched.on_its_way.push_back(seen);
        self.schedule(delay_us, Event::OfWatch(OfWatch::Tells(number)));
    }
}
