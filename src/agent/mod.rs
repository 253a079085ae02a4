//! Turns what happened, and when, into what to do next: the whole behaviour, without a clock, a socket or a file.
//!
//! The contract (after str0m): [`Agent::handle`] one input, then [`Agent::poll`] until it answers [`Output::Wait`], then
//! wait for the deadline or the next input, whichever comes first.

pub mod notice;

pub use notice::Notice;

use crate::api::{Answer, Lane, Wish};
use crate::config::Settings;
use crate::probe::Facts;
use crate::time::{Now, Up, Wall};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The deadline of [`Output::Wait`] passed, or the process just started.
    Woke,
    /// The answer to [`Output::Probe`].
    Facts(Box<Facts>),
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
    pub not_before: Option<Wall>,
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
    Wait { until: Up, because: Because },
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
    pub what: &'static str,
    /// What the server or the network said last, when that is why.
    pub after: Option<String>,
}

/// The core.
pub struct Agent {
    _settings: Settings,
}

impl Agent {
    /// `node_name` is settled by the caller (`node::name`); `seed` feeds all jitter.
    pub fn new(settings: Settings, _node_name: String, _seed: u64) -> Agent {
        Agent { _settings: settings }
    }

    /// Takes one input.
    pub fn handle(&mut self, _input: Input, _now: Now) {}

    /// The next thing to do; ends with [`Output::Wait`].
    pub fn poll(&mut self, now: Now) -> Output {
        Output::Wait { until: now.up, because: Because { what: "nothing", after: None } }
    }
}
