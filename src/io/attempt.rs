//! The attempts of one pool to get an answer: one that ends wakes those that wait for its connection, and a change of the
//! network cancels those whose path to the server is gone.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::task::Waker;

use super::connection::Ends;
use super::inbox::Flag;

/// How far an attempt has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// It has no connection, and opens none yet.
    #[default]
    Waiting,
    Connecting,
    Connected(Ends),
}

/// Those under way.
#[derive(Default)]
pub struct Attempts {
    under_way: RefCell<Vec<Rc<State>>>,
    waiting: RefCell<Vec<Waker>>,
}

#[derive(Default)]
struct State {
    stage: Cell<Stage>,
    cancelled: Flag,
}

/// One of them. It ends with its value.
pub struct Attempt<'a> {
    attempts: &'a Attempts,
    state: Rc<State>,
}

impl Attempts {
    pub fn begin(&self) -> Attempt<'_> {
        let state = Rc::<State>::default();
        self.under_way.borrow_mut().push(Rc::clone(&state));
        Attempt { attempts: self, state }
    }

    /// Whether one has a connection, or is opening one.
    pub fn have_connections(&self) -> bool {
        self.under_way.borrow().iter().any(|state| state.stage.get() != Stage::Waiting)
    }

    /// Ends when `is_true` is, which is looked at now and at the end of each attempt.
    pub async fn until(&self, is_true: impl Fn() -> bool) {
        poll_fn(|context| {
            if is_true() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Cancels those that are opening a connection (what was sent may have gone nowhere, and TCP says it again ever more
    /// rarely), and those from local addresses that `still_works` denies.
    pub fn cancel(&self, still_works: &dyn Fn(IpAddr) -> bool) {
        for state in self.under_way.borrow().iter() {
            let goes_on = match state.stage.get() {
                Stage::Waiting => true,
                Stage::Connecting => false,
                Stage::Connected(ends) => still_works(ends.local),
            };
            if !goes_on {
                state.cancelled.raise();
            }
        }
    }
}

impl Attempt<'_> {
    /// It opens a connection; a kept one that it may have had is of no use.
    pub fn connecting(&self) {
        self.state.stage.set(Stage::Connecting);
    }

    pub fn connected(&self, ends: Ends) {
        self.state.stage.set(Stage::Connected(ends));
    }

    /// Whom it is connected to.
    pub fn peer(&self) -> Option<IpAddr> {
        match self.state.stage.get() {
            Stage::Connected(ends) => Some(ends.peer),
            Stage::Waiting | Stage::Connecting => None,
        }
    }

    /// Ends when the path to the server is gone.
    pub async fn cancelled(&self) {
        self.state.cancelled.raised().await;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.attempts.under_way.borrow_mut().retain(|state| !Rc::ptr_eq(state, &self.state));
        self.attempts.waiting.take().into_iter().for_each(Waker::wake);
    }
}
