//! Turns reply bytes, or the lack of them, into what the agent hears, and when: what may lie unread is read late.

use std::time::Duration;

use nodepulse::agent::Input;
use nodepulse::api::{Answer, Document, Failure, Progress, Refusal};
use nodepulse::time::Wall;

use super::judge::wire::{Lane, Said};
use super::network::{Asks, Flight, PATIENCE_US};
use super::planted::Planted;
use super::world::World;

/// D11: a board's clock and a `Date`, which has whole seconds, bear each other out within ten seconds.
const BELIEVED_WITHIN_US: i64 = 11_000_000;

impl World {
    /// Reply bytes reach the agent's machine.
    pub fn deliver(&mut self, number: u64, mut bytes: Vec<u8>, closes: bool, by_stranger: bool, said: Said) {
        if self.is_link_down() {
            return;
        }
        let Some(mut flight) = self.flights.open.remove(&number) else { return };
        self.takes(flight.lane, bytes.len(), false);
        let first = self.random.below(bytes.len() as u64 + 1) as usize;
        let rest = bytes.split_off(first);
        let mut input = Vec::new();
        for piece in [bytes, rest] {
            input.extend(piece);
            match flight.exchange.feed(&mut input) {
                Ok(Progress::NeedMore) => {}
                Ok(Progress::Done { answer, .. }) if by_stranger => {
                    return self.violated(format!("a stranger is taken for the API server: {answer:?}"));
                }
                Ok(Progress::Done { answer, .. }) => return self.came(number, flight, answer, said),
                Err(failure) => return self.end(flight, failed(failure), said),
            }
        }
        if closes {
            self.break_watch();
            if by_stranger {
                return self.violated("a stranger's answer is waited for to its end".to_owned());
            }
            let answer = flight.exchange.end_of_stream().unwrap_or_else(failed);
            return self.end(flight, answer, said);
        }
        self.flights.open.insert(number, flight);
    }

    /// A whole answer is there: it is read, and what came before it, unless it may lie there.
    fn came(&mut self, number: u64, mut flight: Flight, answer: Answer, said: Said) {
        if flight.unread_until_us.is_some_and(|until_us| self.now_us < until_us) {
            flight.unread = Some((answer, said));
            self.flights.open.insert(number, flight);
            return;
        }
        for lying in self.flights.numbers() {
            self.read(lying);
        }
        self.end(flight, answer, said);
    }

    /// What has come for that request is read now.
    pub fn read(&mut self, number: u64) {
        let Some(mut flight) = self.flights.open.remove(&number) else { return };
        match flight.unread.take() {
            Some((answer, said)) => {
                let checked = self.watch.read(flight.sent_us, self.now_us);
                self.check(checked);
                self.end(flight, answer, said);
            }
            None => {
                self.flights.open.insert(number, flight);
            }
        }
    }

    /// A request fails without a reply.
    pub fn fail(&mut self, number: u64, failure: Failure) {
        if let Some(flight) = self.flights.open.remove(&number) {
            // It takes along what else its connection carries.
            self.break_watch();
            self.end(flight, failed(failure), Said::SILENCE);
        }
    }

    fn end(&mut self, flight: Flight, mut answer: Answer, said: Said) {
        let Flight { lane, ticket, operation, letter, asks, sent_us, unread_until_us, .. } = flight;
        self.trace.say(|| match &answer.result {
            Ok(_) => format!("<- {lane:?} done"),
            Err(refusal) => format!("<- {lane:?} {refusal}"),
        });
        self.shim.hear(&mut answer);
        self.check_understood(&answer, said);
        if lane == Lane::Lease && said.is_missing() {
            self.shim.lease_gone_us = Some(self.now_us);
            self.spending.lease_is_gone();
        }
        self.watch.answered(lane, said, unread_until_us.and(Some(sent_us)), self.now_us);
        self.note_reached(lane, said, asks, sent_us);
        if let Some((name, count)) = letter
            && (said == Said::Done
                || matches!(said, Said::Refused { code: 400 | 413 | 422, .. } | Said::Refused { is_there: true, .. }))
        {
            self.events.settled(&name, count);
        }
        if let Some(date) = &mut answer.date {
            *date = self.said_date(*date, unread_until_us.is_none().then_some(sent_us));
        }
        self.has_missed_node |= lane == Lane::Status && said.is_missing();
        if asks == Asks::Reporting && said == Said::Done {
            self.watch.report_accepted();
        }
        // Of one whose bookkeeping is thrown away first, the answer to that says that it is known, whatever it is (seeds
        // 9031630, 9122796). So is it of one that is read again at once, as nobody has borne out its time (seed 91936578).
        let is_first = self.plan.wanted.register_node && !self.events.knows_node(self.life);
        let is_known = match &answer.result {
            Ok(Document::Node(node)) => !is_first || self.is_dated() && !node.metadata.has_needless_managers,
            _ => lane == Lane::Status && asks == Asks::Writing && self.events.is_node_tracked,
        };
        self.events.is_node_tracked = matches!(answer.result, Ok(Document::Node(_))) && !is_known
            || self.events.is_node_tracked && lane != Lane::Status;
        if is_known {
            self.note_read();
        }
        self.shim.answer(lane, &mut answer);
        match (ticket, operation) {
            (Some(ticket), Some(operation)) if answer.result.is_err() && self.violation.is_none() => {
                self.send(ticket, operation)
            }
            (Some(ticket), _) => self.feed(Input::Answered(ticket, answer)),
            (None, _) => {}
        }
    }

    /// What an answer says of the time: one of them is wrong.
    fn said_date(&mut self, right: Wall, sent_us: Option<u64>) -> Wall {
        self.dates_heard.1 += 1;
        let (number, off_us) = self.plan.wrong_date.unwrap_or_default();
        let is_believed = self.shim.is(Planted::WrongDateBelieved) && self.dates_heard.1 == number + 1;
        // In peace nobody is wrong (seed 6053095).
        if self.peace || self.dates_heard.1 != number && !is_believed {
            // What lay there unread, or while the board slept, is of another time.
            self.dates_heard.0 += u64::from(sent_us.is_some_and(|sent_us| self.now_us <= sent_us + PATIENCE_US));
            return right;
        }
        // Two in a row bear each other out, whatever is said after them, but for a board's clock that is as wrong (90890).
        let wall = self.now().wall.map(|wall| wall.unix_us() - self.server_wall_us());
        let is_borne_out = wall.is_some_and(|wall_off_us| (wall_off_us - off_us).abs() <= BELIEVED_WITHIN_US);
        self.was_deceived |= is_borne_out;
        self.dates_heard.0 = if self.dates_heard.0 < 2 || is_borne_out { 0 } else { self.dates_heard.0 };
        let said = Wall::from_unix_us(right.unix_us() + off_us);
        self.trace.say(|| format!("   the answer says that it is {said}"));
        said
    }

    /// The agent understands an answer as what it is.
    fn check_understood(&mut self, answer: &Answer, said: Said) {
        let is_right = match (&answer.result, said) {
            (Ok(_), said) => said == Said::Done,
            (Err(Refusal::Status(status)), Said::Refused { code, .. }) => status.code == code,
            (Err(Refusal::Status(_)), _) | (Err(Refusal::Failed(_)), Said::Done | Said::Refused { .. }) => false,
            (Err(Refusal::Failed(_)), Said::Nothing { .. }) => true,
        };
        if !is_right {
            self.violated(format!("{said:?} is understood as {:?}", answer.result));
        }
    }

    /// A planted fault: the agent takes a request for ended that is not.
    pub fn forget_flight(&mut self, number: u64) {
        let ticket = self.flights.open.get_mut(&number).and_then(|flight| flight.ticket.take());
        if let Some(ticket) = ticket {
            self.feed(Input::Answered(ticket, failed(Failure::timed_out(Duration::ZERO))));
        }
    }
}

fn failed(failure: Failure) -> Answer {
    Answer { date: None, result: Err(Refusal::Failed(failure)) }
}
