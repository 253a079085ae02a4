//! Turns the wish to watch the Node into a stream of the connection that all lanes share: it opens none, and keeps none that is
//! not shared any more.

use std::cell::Cell;
use std::rc::Rc;

use super::{Pool, end};
use crate::api::{Answer, Failure, NoAnswer, Operation, Refusal, Seen};
use crate::io::clock;
use crate::io::connection::Connection;

/// Lanes that may need a stream beside the watch at any time.
pub(super) const OTHER_LANES: usize = 4;

/// What ends a watch.
#[derive(Default)]
pub struct Leaving {
    /// Somebody wants no more of it.
    is_wanted: Cell<bool>,
    /// How often what was kept was given up.
    drops: Cell<u64>,
}

impl Leaving {
    /// Whether what was kept is given up.
    pub fn dropped(&self, is_so: bool) {
        self.drops.set(self.drops.get() + u64::from(is_so));
    }
}

impl Pool {
    /// Watches, and tells what is seen, until the server, the connection or [`Pool::end_watch`] ends that. After GOAWAY it goes
    /// on as long as no other connection is kept.
    pub async fn watch(&self, operation: &Operation, tell: &dyn Fn(Seen)) -> Answer {
        let result = self.watch_over_kept(operation, tell).await;
        self.leaving.is_wanted.set(false);
        result.unwrap_or_else(|failure| Answer { date: None, result: Err(Refusal::Failed(failure)) })
    }

    /// Ends the watch that is under way, or about to be.
    pub fn end_watch(&self) {
        self.leaving.is_wanted.set(true);
        self.attempts.wake();
    }

    async fn watch_over_kept(&self, operation: &Operation, tell: &dyn Fn(Seen)) -> Result<Answer, Failure> {
        let mut was_unseen = false;
        loop {
            let connection = self.kept_for_a_watch()?;
            let target = self.target(&self.current().server);
            let drops = self.leaving.drops.get();
            let moved = async {
                self.attempts.until(|| self.is_left(&connection, drops)).await;
                None
            };
            let tell = |seen| {
                self.silences.broken(clock::up());
                tell(seen);
            };
            let watched = async { Some(connection.watch(operation, &target, &tell).await) };
            match smol::future::or(moved, watched).await {
                Some(Ok(answer)) => return Ok(answer),
                // The server had ended the connection before it looked: once more over the next, which others open.
                Some(Err(NoAnswer { is_unseen: true, .. })) if !was_unseen && connection.is_over() => {
                    was_unseen = true;
                    self.attempts.until(|| self.leaving.is_wanted.get() || self.keeps_other_than(&connection)).await;
                    end(Some(connection));
                    if self.leaving.is_wanted.get() {
                        return Err(Failure::closed(0));
                    }
                }
                Some(Err(NoAnswer { failure, .. })) => return Err(failure),
                None => {
                    // Where its path is gone, nobody is there to be told.
                    if drops == self.leaving.drops.get() {
                        end(Some(connection));
                    }
                    return Err(Failure::closed(0));
                }
            }
        }
    }

    fn kept_for_a_watch(&self) -> Result<Rc<Connection>, Failure> {
        let kept = self.kept.borrow().clone().ok_or_else(|| Failure::not_sent("there is no connection"))?;
        if !kept.has_room_beside_a_watch(OTHER_LANES) {
            return Err(Failure::not_sent(
                "over this connection requests are answered one after the other, or too few at once",
            ));
        }
        Ok(kept)
    }

    /// Whether the watch over this connection is to end.
    fn is_left(&self, connection: &Rc<Connection>, drops: u64) -> bool {
        self.keeps_other_than(connection) || self.leaving.is_wanted.get() || drops != self.leaving.drops.get()
    }

    fn keeps_other_than(&self, connection: &Rc<Connection>) -> bool {
        self.kept.borrow().as_ref().is_some_and(|kept| !Rc::ptr_eq(kept, connection))
    }
}
