//! Turns what happened, and when, into what to do next: the whole behaviour, without a clock, a socket or a file.
//!
//! The contract (after str0m): [`Agent::handle`] one input, then [`Agent::poll`] until it answers [`Output::Wait`], then
//! wait for the deadline or the next input, whichever comes first.
//!
//! Three lanes, each with at most one request in flight: Lease, status (registration included), events. A lane is asked
//! what it wants only when nothing of its own is in flight, so no lane can wait for another's answer (LSE-16).

mod backoff;
mod clock;
mod events;
mod lease;
pub mod notice;
mod random;
mod registration;
mod status;
#[cfg(test)]
mod tests;
mod trouble;
mod truth;
mod world;

pub use notice::{Level, Notice};

use std::time::Duration;

use crate::api::{Answer, Lane, Wish};
use crate::config::Settings;
use crate::node::desired::NodeEvent;
use crate::probe::{Facts, Readings};
use crate::time::{Now, Up, Wall};
use events::EventLane;
use lease::LeaseLane;
use status::StatusLane;
use trouble::Remedy;
use truth::Seen;
use world::{Step, World};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The deadline of [`Output::Wait`] passed, or the process just started.
    Woke,
    /// The answer to [`Output::Probe`].
    Facts(Box<Facts>),
    /// The same where machine and network are still those of the last [`Input::Facts`].
    Readings(Box<Readings>),
    /// The end of the request that carried this ticket.
    Answered(Ticket, Answer),
    /// An address, a route or a carrier changed: worth trying at once.
    LinkChanged,
    /// SIGHUP: new settings, credentials already read again.
    Reloaded(Box<Settings>),
    /// What the client certificate says of itself, at start and after each [`Output::ReloadCredentials`].
    Credentials(CredentialDates),
}

/// Validity of the client certificate in use; all `None` for a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CredentialDates {
    /// First second in which the certificate is valid.
    pub not_before: Option<Wall>,
    /// Last second in which the certificate is valid.
    pub not_after: Option<Wall>,
}

/// What to do next.
#[must_use = "an output that is dropped is an action that never happens"]
#[derive(Debug)]
pub enum Output {
    /// Read the board again and hand the facts back.
    Probe,
    /// Send this; answer with the same ticket, exactly once.
    Send(Ticket, Wish),
    /// Read certificate, key or token again.
    ReloadCredentials,
    /// Close idle connections: what they lead to may be gone.
    DropConnections,
    /// Something a person wants to know.
    Say(Notice),
    /// Nothing to do until then, or until an input.
    Wait {
        /// The deadline, on the boot-time clock.
        until: Up,
        /// Why then.
        because: Because,
    },
}

/// A request in flight; made by the agent, given back once with the answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    lane: Lane,
    number: u64,
}

impl Ticket {
    /// Which lane is occupied until this comes back.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

/// Why a deadline is when it is: one line for the log and for `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// What happens then.
    pub what: &'static str,
    /// What the server or the network said last, when that is why.
    pub after: Option<String>,
}

/// A look at everything this often costs nothing, and bounds what a missed input could do.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

const LANES: [Lane; 3] = [Lane::Lease, Lane::Status, Lane::Events];

/// The core.
#[derive(Debug)]
pub struct Agent {
    world: World,
    lease: LeaseLane,
    status: StatusLane,
    events: EventLane,
    /// Number of the ticket in flight, a place for each lane in the order of [`LANES`].
    in_flight: [Option<u64>; LANES.len()],
    tickets: u64,
    probing: bool,
}

impl Agent {
    /// `node_name` is settled by the caller (`node::name`); `seed` feeds all jitter.
    pub fn new(settings: Settings, node_name: String, seed: u64, now: Now) -> Agent {
        let status = StatusLane::new(now.up, settings.register_node);
        let mut world = World::new(settings, node_name, seed);
        let message = "Starting nodepulse.".to_owned();
        world.fresh_events.push(NodeEvent { warning: false, reason: "Starting", message });
        Agent {
            world,
            lease: LeaseLane::new(),
            status,
            events: EventLane::new(),
            in_flight: [None; LANES.len()],
            tickets: 0,
            probing: false,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Woke => {}
            Input::Facts(facts) => self.observed(Seen::Board(facts), now),
            Input::Readings(readings) => self.observed(Seen::Readings(readings), now),
            Input::Answered(ticket, answer) => self.answered(&ticket, answer, now),
            Input::LinkChanged => {
                if self.world.lost_since.is_some() {
                    self.world.output(Output::DropConnections);
                }
                self.hurry(Remedy::Link, now);
            }
            Input::Reloaded(settings) => {
                self.world.settings = *settings;
                self.world.say(Level::Info, "reloaded", "settings and credentials read again");
                self.hurry(Remedy::Reload, now);
            }
            Input::Credentials(dates) => self.world.credential_dates = dates,
        }
    }

    /// The next thing to do; ends with [`Output::Wait`].
    pub fn poll(&mut self, now: Now) -> Output {
        if let Some(output) = self.world.next_output() {
            return output;
        }
        let mut wait: Option<(Up, Because)> = None;
        for (place, lane) in LANES.into_iter().enumerate() {
            if self.in_flight.get(place).is_some_and(Option::is_some) {
                continue;
            }
            let step = match lane {
                Lane::Lease => self.lease.poll(&mut self.world, now),
                Lane::Status => self.status.poll(&mut self.world, now),
                Lane::Events => self.events.poll(&mut self.world, now),
            };
            match step {
                Step::Send(wish) => {
                    let output = self.send(place, lane, wish);
                    self.world.output(output);
                }
                Step::Probe if !self.probing => {
                    self.probing = true;
                    self.world.output(Output::Probe);
                }
                Step::Probe | Step::Idle => {}
                Step::Wait { until, because } => {
                    if wait.as_ref().is_none_or(|(earliest, _)| until < *earliest) {
                        wait = Some((until, because));
                    }
                }
            }
        }
        // Polling a lane may have left something to say as well: that goes first.
        if let Some(output) = self.world.next_output() {
            return output;
        }
        let answers = Because { what: "the answer to a request in flight", after: None };
        let (until, because) = wait.unwrap_or((now.up + LONGEST_WAIT, answers));
        Output::Wait { until, because }
    }

    fn observed(&mut self, seen: Seen, now: Now) {
        self.probing = false;
        self.status.observed(seen, &mut self.world, now);
    }

    fn hurry(&mut self, remedy: Remedy, now: Now) {
        self.lease.hurry(remedy, now);
        self.status.hurry(remedy, now);
        self.events.hurry(remedy, now);
    }

    fn send(&mut self, place: usize, lane: Lane, wish: Wish) -> Output {
        self.tickets += 1;
        if let Some(number) = self.in_flight.get_mut(place) {
            *number = Some(self.tickets);
        }
        Output::Send(Ticket { lane, number: self.tickets }, wish)
    }

    fn answered(&mut self, ticket: &Ticket, answer: Answer, now: Now) {
        let place = LANES.iter().position(|lane| *lane == ticket.lane);
        let Some(number) = place.and_then(|place| self.in_flight.get_mut(place)) else { return };
        if number.take_if(|number| *number == ticket.number).is_none() {
            return;
        }
        if let Some(skew) = self.world.clock.hear(answer.date, now) {
            self.world.say(Level::Warning, "clock-skew", skew);
        }
        match ticket.lane {
            Lane::Lease => self.lease.answered(answer, &mut self.world, now),
            Lane::Status => self.status.answered(answer, &mut self.world, now),
            Lane::Events => self.events.answered(answer, &mut self.world, now),
        }
    }
}
