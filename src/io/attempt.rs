//! The attempts of one pool to get an answer: one that ends wakes those that wait for its connection, and a change of the
//! network cancels those whose path to the server is gone.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::Duration;

use super::connection::Ends;
use super::inbox::Waiting;
use crate::config::limits;
use crate::time::Up;

/// Least time between two requests that are sent once more.
pub const REPEAT_SPACING: Duration = Duration::from_secs(60 / limits::REPEATS_PER_MINUTE as u64);

/// How far an attempt has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has no connection, and opens none yet.
    Waiting,
    /// It opens one; a kept one that it may have had is of no use.
    Connecting,
    Connected(Ends),
    /// The path to the server is gone.
    Cancelled,
}

/// Those under way.
#[derive(Default)]
pub struct Attempts {
    under_way: RefCell<Vec<(u64, Stage)>>,
    next_number: Cell<u64>,
    /// When a request was sent once more, the last time.
    repeated: Cell<Option<Up>>,
    /// For the end of one, or that it is cancelled.
    waiting: Waiting,
}

/// One of them. It ends with its value.
pub struct Attempt<'a> {
    attempts: &'a Attempts,
    number: u64,
    /// Of the server that it has turned to, in the list of servers.
    pub place: Cell<Option<usize>>,
    /// How long the connection had been silent on which it began; `None` for one of its own.
    pub silent_for: Cell<Option<Duration>>,
    /// It had a connection at some time, and may have sent over it.
    pub was_connected: Cell<bool>,
}

impl Attempts {
    pub fn begin(&self) -> Attempt<'_> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        self.under_way.borrow_mut().push((number, Stage::Waiting));
        Attempt {
            attempts: self,
            number,
            place: Cell::default(),
            silent_for: Cell::default(),
            was_connected: Cell::default(),
        }
    }

    /// Whether one has a connection, or is opening one.
    pub fn have_connections(&self) -> bool {
        self.under_way.borrow().iter().any(|(_, stage)| matches!(stage, Stage::Connecting | Stage::Connected(_)))
    }

    /// Whether a request may be sent once more. Often enough for a server that ends connections between two renewals; where
    /// more end, the agent asks again, and counts.
    pub fn may_repeat(&self, now: Up) -> bool {
        let may = self.repeated.get().is_none_or(|last| now - last >= REPEAT_SPACING);
        if may {
            self.repeated.set(Some(now));
        }
        may
    }

    /// Lets those that wait look again.
    pub fn wake(&self) {
        self.waiting.wake();
    }

    /// Ends when `is_true` is, which is looked at now and at the end of each attempt.
    pub async fn until(&self, is_true: impl Fn() -> bool) {
        self.waiting.until(|| is_true().then_some(())).await;
    }

    /// Cancels those that are opening a connection (what was sent may have gone nowhere, and TCP says it again ever more
    /// rarely), and those from local addresses that `still_works` denies.
    pub fn cancel(&self, still_works: &dyn Fn(IpAddr) -> bool) {
        for (_, stage) in self.under_way.borrow_mut().iter_mut() {
            match stage {
                Stage::Connected(ends) if still_works(ends.local) => {}
                Stage::Connecting | Stage::Connected(_) => *stage = Stage::Cancelled,
                Stage::Waiting | Stage::Cancelled => {}
            }
        }
        self.waiting.wake();
    }
}

impl Attempt<'_> {
    pub fn reached(&self, stage: Stage) {
        self.was_connected.set(self.was_connected.get() || matches!(stage, Stage::Connected(_)));
        let mut under_way = self.attempts.under_way.borrow_mut();
        under_way.iter_mut().filter(|(number, _)| *number == self.number).for_each(|(_, known)| *known = stage);
    }

    fn stage(&self) -> Option<Stage> {
        self.attempts.under_way.borrow().iter().find(|(number, _)| *number == self.number).map(|(_, stage)| *stage)
    }

    /// Whom it is connected to.
    pub fn peer(&self) -> Option<IpAddr> {
        if let Some(Stage::Connected(ends)) = self.stage() { Some(ends.peer) } else { None }
    }

    /// Ends when the path to the server is gone.
    pub async fn cancelled(&self) {
        self.attempts.until(|| self.stage() == Some(Stage::Cancelled)).await;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.attempts.under_way.borrow_mut().retain(|(number, _)| *number != self.number);
        self.attempts.waiting.wake();
    }
}
