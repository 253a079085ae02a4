//! Turns exchanges that hold a connection into a list: who is done wakes who waits, and a change of the network calls
//! back those whose way is gone.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::connection::Ends;

/// The exchanges of one pool that hold a connection, or are opening one.
#[derive(Default)]
pub struct Flights {
    under_way: RefCell<Vec<Rc<State>>>,
    /// Whom the last one that came to nothing was connected to.
    failed: Cell<Option<IpAddr>>,
    waiting: RefCell<Vec<Waker>>,
}

#[derive(Default)]
struct State {
    /// `None` while a connection is being opened.
    ends: Cell<Option<Ends>>,
    is_called_back: Cell<bool>,
    has_landed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// One of them. It ends with its value.
pub struct Flight<'a> {
    flights: &'a Flights,
    state: Rc<State>,
}

impl Flights {
    pub fn begin(&self, ends: Option<Ends>) -> Flight<'_> {
        let state = Rc::new(State { ends: Cell::new(ends), ..State::default() });
        self.under_way.borrow_mut().push(Rc::clone(&state));
        Flight { flights: self, state }
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// Wakes a task at the end of the next one that ends.
    pub fn wake_at_end(&self, waker: Waker) {
        self.waiting.borrow_mut().push(waker);
    }

    /// Whom an exchange was connected to that came to nothing, by itself or at its deadline; told once.
    pub fn take_failed(&self) -> Option<IpAddr> {
        self.failed.take()
    }

    /// Calls back those that are opening a connection (what was sent may have gone nowhere, and TCP says it again ever
    /// more rarely), and those from local addresses that do not `stand`.
    pub fn call_back(&self, stands: &dyn Fn(IpAddr) -> bool) {
        for state in self.under_way.borrow().iter() {
            if !state.ends.get().is_some_and(|ends| stands(ends.local)) {
                state.is_called_back.set(true);
                state.task.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Flight<'_> {
    /// Where the connection is, once it is known.
    pub fn set_ends(&self, ends: Option<Ends>) {
        self.state.ends.set(ends);
    }

    /// There is an answer, from here.
    pub fn land(&self) -> Option<Ends> {
        self.state.has_landed.set(true);
        self.state.ends.get()
    }

    /// Ends when the way is gone.
    pub async fn called_back(&self) {
        poll_fn(|context| {
            if self.state.is_called_back.get() {
                return Poll::Ready(());
            }
            self.state.task.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(ends) = self.state.ends.get()
            && !self.state.has_landed.get()
            && !self.state.is_called_back.get()
        {
            self.flights.failed.set(Some(ends.peer));
        }
        self.flights.under_way.borrow_mut().retain(|state| !Rc::ptr_eq(state, &self.state));
        self.flights.waiting.take().into_iter().for_each(Waker::wake);
    }
}
