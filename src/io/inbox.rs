//! Lets tasks of this thread wait for each other: for whatever can be had, for a flag, for the next message of a queue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tasks that wait until they find something.
#[derive(Default)]
pub struct Waiting {
    wakers: RefCell<Vec<Waker>>,
}

impl Waiting {
    /// Lets each look again.
    pub fn wake(&self) {
        self.wakers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// What `look` finds, as soon as it finds something; it looks now and after each [`Waiting::wake`].
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| {
            if let Some(found) = look() {
                return Poll::Ready(found);
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// Tells one task that something has happened. Raised several times before that task looks counts as once.
#[derive(Default)]
pub struct Flag {
    is_raised: Cell<bool>,
    waiting: Waiting,
}

impl Flag {
    pub fn raise(&self) {
        self.is_raised.set(true);
        self.waiting.wake();
    }

    pub fn lower(&self) {
        self.is_raised.set(false);
    }

    /// Ends as soon as it is raised, and lowers it.
    pub async fn raised(&self) {
        self.waiting.until(|| self.is_raised.take().then_some(())).await;
    }
}

/// A queue: no lock, and no allocation once it has grown. Each sender has at most one message in it (a lane, a timer, a
/// descriptor), so it stays short.
pub struct Inbox<T> {
    queue: RefCell<VecDeque<T>>,
    waiting: Waiting,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { queue: RefCell::default(), waiting: Waiting::default() }
    }
}

impl<T> Inbox<T> {
    pub fn push(&self, message: T) {
        self.queue.borrow_mut().push_back(message);
        self.waiting.wake();
    }

    /// The oldest message, as soon as there is one.
    pub async fn next(&self) -> T {
        self.waiting.until(|| self.queue.borrow_mut().pop_front()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::reactor::Reactor;

    #[test]
    fn messages_come_out_in_order_and_wake_the_reader() {
        let reactor = Reactor::new().unwrap();
        let inbox = Inbox::default();
        inbox.push(1);
        let read = async { [inbox.next().await, inbox.next().await, inbox.next().await] };
        let write = async {
            smol::future::yield_now().await;
            inbox.push(2);
            smol::future::yield_now().await;
            inbox.push(3);
        };
        let (got, ()) = reactor.block_on(smol::future::zip(read, write)).unwrap();
        assert_eq!(got, [1, 2, 3]);
    }
}
