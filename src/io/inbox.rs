//! Turns what other tasks of this thread have to say into one queue that the agent's loop reads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A queue between tasks of one thread: no lock, and no allocation once it has grown. Each sender has at most one
/// message waiting (a lane, a timer, a descriptor), so it stays short.
pub struct Inbox<T> {
    queue: RefCell<VecDeque<T>>,
    reader: RefCell<Option<Waker>>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { queue: RefCell::default(), reader: RefCell::default() }
    }
}

impl<T> Inbox<T> {
    pub fn push(&self, message: T) {
        self.queue.borrow_mut().push_back(message);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// The oldest message, as soon as there is one.
    pub async fn next(&self) -> T {
        poll_fn(|context| match self.queue.borrow_mut().pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                self.reader.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
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
