//! Turns what the server has of the Node into what each of two boards hears of it that watches, and when that ends.

use std::collections::VecDeque;

use nodepulse::agent::{Input, Ticket};
use nodepulse::api::{Answer, Document, Failure, Refusal, Seen};

use super::pair::{Event, NODE, Pair, SECOND_US};

/// The watch of a board.
#[derive(Debug)]
pub struct Watch {
    number: u64,
    ticket: Ticket,
    has_begun: bool,
    /// uid and version that were told last.
    told: Option<(String, String)>,
    /// What is on its way, and when that is there: nothing overtakes it.
    on_its_way: VecDeque<Seen>,
    told_until_us: u64,
}

/// What happens to a watch, each of which has a number.
#[derive(Debug)]
pub enum OfWatch {
    Begins,
    /// What is next on its way is there.
    Tells,
    /// The agent has ended it.
    Ends,
    /// Its connection broke.
    Breaks,
}

impl Pair {
    pub fn watch(&mut self, board: usize, ticket: Ticket) {
        self.watches += 1;
        let number = self.watches;
        self.machines[board].watch = Some(Watch {
            number,
            ticket,
            has_begun: false,
            told: None,
            on_its_way: VecDeque::new(),
            told_until_us: self.now_us,
        });
        // One that is lost ends with its connection.
        if self.is_linked(board) {
            let delay_us = self.latency_us();
            self.schedule(delay_us, Event::OfWatch { board, number, what: OfWatch::Begins });
        }
    }

    pub fn of_watch(&mut self, board: usize, number: u64, what: OfWatch) {
        let is_linked = self.is_linked(board);
        let Some(watch) = self.machines[board].watch.as_mut().filter(|watch| watch.number == number) else { return };
        match what {
            OfWatch::Begins => {
                watch.has_begun = true;
                self.tell_of_node();
            }
            OfWatch::Tells if is_linked => {
                let Some(seen) = watch.on_its_way.pop_front() else { return };
                self.say(|| format!("board {board} hears {seen:?}"));
                self.feed(board, Input::Seen(seen));
            }
            OfWatch::Tells => self.schedule(SECOND_US, Event::OfWatch { board, number, what: OfWatch::Tells }),
            OfWatch::Ends => self.ended(board, Ok(Document::Nothing)),
            OfWatch::Breaks => {
                let failure = Failure::broken("Connection reset by peer");
                self.ended(board, Err(Refusal::Failed(failure)));
            }
        }
    }

    pub fn end_watch(&mut self, board: usize, how: OfWatch) {
        if let Some(number) = self.machines[board].watch.as_ref().map(|watch| watch.number) {
            self.schedule(1, Event::OfWatch { board, number, what: how });
        }
    }

    fn ended(&mut self, board: usize, result: Result<Document, Refusal>) {
        let Some(watch) = self.machines[board].watch.take() else { return };
        self.say(|| format!("board {board} watches no more"));
        self.feed(board, Input::Answered(watch.ticket, Answer { date: None, result }));
    }

    /// The server may have another version now than it has told of.
    pub fn tell_of_node(&mut self) {
        let found = self.server.node(NODE).map(|node| {
            let text = |key: &str| node["metadata"][key].as_str().unwrap_or_default().to_owned();
            (text("uid"), text("resourceVersion"))
        });
        for board in 0..2 {
            let (is_blind, now_us) = (self.blind.to_events, self.now_us);
            let delay_us = if self.machines[board].watch.is_some() { self.latency_us() } else { 0 };
            let Some(watch) = self.machines[board].watch.as_mut().filter(|watch| watch.has_begun) else { continue };
            let is_first = watch.told.is_none();
            if found == watch.told || is_blind && !is_first {
                continue;
            }
            let seen = match (&found, watch.told.take()) {
                (Some((uid, version)), told) => Seen::Version {
                    resource_version: version.clone(),
                    is_next: told.is_some_and(|(known, _)| known == *uid),
                },
                (None, Some(_)) => Seen::Deleted { resource_version: self.server.store.version().to_string() },
                (None, None) => continue,
            };
            watch.told.clone_from(&found);
            watch.on_its_way.push_back(seen);
            watch.told_until_us = watch.told_until_us.max(now_us + delay_us);
            let (number, delay_us) = (watch.number, watch.told_until_us - now_us);
            self.schedule(delay_us, Event::OfWatch { board, number, what: OfWatch::Tells });
        }
    }
}
