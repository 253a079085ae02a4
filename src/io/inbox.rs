//! Turns what other tasks of this thread have to say into one queue that the agent's loop reads, and into flags.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tells one task of this thread that something has happened. Raised several times before that task looks counts as once.
#[derive(Default)]
pub struct Flag {
    is_raised: Cell<bool>,
    waiting: Cell<Option<Waker>>,
}

impl Flag {
    pub fn raise(&self) {
        self.is_raised.set(true);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub fn lower(&self) {
        self.is_raised.set(false);
    }

    /// Ends as soon as it is raised, and lowers it.
    pub async fn raised(&self) {
        poll_fn(|context| {
            if self.is_raised.take() {
                return Poll::Ready(());
            }
            self.waiting.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// A queue between tasks of one thread: no lock, and no allocation once it has grown. Each sender has at most one
/// message waiting (a lane, a timer, a descriptor), so it stays short.
pub struct Inbox<T> {
    queue: RefCell<VecDeque<T>>,
    filled: Flag,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { queue: RefCell::default(), filled: Flag::default() }
    }
}

impl<T> Inbox<T> {
    pub fn push(&self, message: T) {
        self.queue.borrow_mut().push_back(message);
        self.filled.raise();
    }

    /// The oldest message, as soon as there is one.
    pub async fn next(&self) -> T {
        loop {
            let oldest = self.queue.borrow_mut().pop_front();
            match oldest {
                Some(message) => return message,
                None => self.filled.raised().await,
            }
        }
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
