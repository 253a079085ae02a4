//! Turns operations into the bytes of one connection and back, whichever version of HTTP it speaks: over HTTP/1.1 one after the
//! other, over HTTP/2 each on a stream of its own. No socket.

use super::answer::Answer;
use super::exchange::{Exchange, Progress, Step, Target};
use super::failure::Failure;
use super::http::AuditId;
use super::operation::Operation;
use super::watch::Seen;
use crate::config::limits;
use crate::http2::{self, Code, Event, Opening, StreamId, When};

#[cfg(test)]
mod tests;

/// The exchanges of one connection.
pub struct Exchanges {
    protocol: Protocol,
    audit_id: AuditId,
    /// Content that nobody reads is not sent: HTTP/2 with a window of zero.
    saves_content: bool,
    /// Answers that came only when their stream had a window; `None` once one has come without, and by itself: whoever holds
    /// heads back lets them go with what comes for other streams.
    held_back: Option<u32>,
    /// Frames that said something of a stream.
    heard: u64,
    /// Those under way, and those whose end nobody has taken yet.
    all: Vec<Running>,
    next_number: u64,
    /// Nothing more is begun: what is under way may go on.
    is_over: bool,
    /// What was said last was not heard to its end.
    is_broken: bool,
    /// From the peer, TLS included.
    received_bytes: usize,
    /// Answers that began, over HTTP/1.1 those that came whole. What else a peer says, somebody on the way may say for a server that is gone.
    answers: u64,
}

enum Protocol {
    Http1 {
        /// Of the reply, not understood yet.
        input: Vec<u8>,
        output: Vec<u8>,
    },
    Http2(Box<http2::Connection>),
}

struct Running {
    number: u64,
    /// Of HTTP/2.
    stream: StreamId,
    exchange: Exchange,
    window: Window,
    /// What had come when it began.
    answers_before: u64,
    heard_before: u64,
    received_before: usize,
    /// Plaintext that came for it; what came for several at once counts as the last one's.
    own_bytes: usize,
    end: Option<Result<Answer, NoAnswer>>,
}

/// What the peer may send of an answer's content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Window {
    Open,
    /// Nothing, or no more than what is worth waiting for.
    Narrow,
    /// No answer came so.
    OpenedLate,
}

/// So many answers in a row are held back by whoever holds them back; one may have been slow.
const HELD_BACK: u32 = 2;

/// Why an exchange ended without an answer.
#[derive(Debug, Clone)]
pub struct NoAnswer {
    pub failure: Failure,
    /// The server said that it had not looked at the request, or the connection ended before the first byte of the reply: on
    /// one that had been idle this most likely means that the server had closed it meanwhile, and never saw the request.
    pub is_unseen: bool,
}

impl Exchanges {
    /// Of a new connection. `audit_id`: what its requests are called, and its answers known by.
    pub fn new(is_http2: bool, saves_content: bool, audit_id: AuditId) -> Exchanges {
        let window_bytes = if saves_content { 0 } else { limits::STREAM_WINDOW_BYTES };
        let protocol = match is_http2 {
            true => Protocol::Http2(Box::new(http2::Connection::client(window_bytes))),
            false => Protocol::Http1 { input: Vec::new(), output: Vec::new() },
        };
        Exchanges {
            protocol,
            audit_id,
            saves_content: saves_content && is_http2,
            held_back: Some(0),
            heard: 0,
            all: Vec::new(),
            next_number: 0,
            is_over: false,
            is_broken: false,
            received_bytes: 0,
            answers: 0,
        }
    }

    /// Whether an exchange can begin now.
    pub fn has_room(&self) -> bool {
        let has_room = match &self.protocol {
            Protocol::Http1 { .. } => self.all.is_empty(),
            Protocol::Http2(connection) => matches!(connection.opening(), Opening::Now),
        };
        has_room && !self.is_over
    }

    /// Whether a watch can begin, over HTTP/2 alone, and leave room for so many exchanges beside it.
    pub fn has_room_beside_a_watch(&self, exchanges: usize) -> bool {
        let Protocol::Http2(connection) = &self.protocol else { return false };
        self.has_room() && connection.room() > exchanges
    }

    /// Nothing can be begun any more.
    pub fn is_over(&self) -> bool {
        match &self.protocol {
            Protocol::Http2(connection) => self.is_over || matches!(connection.opening(), Opening::Never),
            Protocol::Http1 { .. } => self.is_over,
        }
    }

    /// It came to an end that nobody had meant.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Nothing is to be begun any more.
    pub fn stop(&mut self) {
        self.is_over = true;
    }

    /// Its request is in the output. Answers the number of the exchange, whose end somebody is to take or to give up.
    pub fn begin(&mut self, operation: &Operation, target: &Target) -> Result<u64, NoAnswer> {
        let full = || NoAnswer { failure: Failure::broken("it takes no more requests"), is_unseen: true };
        if !self.has_room() {
            return Err(full());
        }
        let saves_content = self.saves_content && !self.holds_answers_back();
        let content_bytes = operation.content_bytes(&target.node_name).filter(|_| saves_content);
        let window = if content_bytes.is_some() { Window::Narrow } else { Window::Open };
        let (stream, exchange) = match &mut self.protocol {
            Protocol::Http1 { output, .. } => {
                let (request, exchange) = Exchange::start(operation.clone(), target, self.audit_id);
                *output = request;
                (0, exchange)
            }
            Protocol::Http2(connection) => {
                let opened = Exchange::open(operation, target, self.audit_id, connection, content_bytes);
                opened.map_err(|_| full())?
            }
        };
        let (number, answers_before, received_before) = (self.next_number, self.answers, self.received_bytes);
        self.next_number += 1;
        let own_bytes = 0;
        self.all.push(Running {
            number,
            stream,
            exchange,
            window,
            answers_before,
            heard_before: self.heard,
            received_before,
            own_bytes,
            end: None,
        });
        Ok(number)
    }

    /// Whether nothing speaks against reading its answer late: the peer has answered here, and where the answer may bring no
    /// content, it has answered so.
    pub fn may_lie_unread(&self, number: u64) -> bool {
        let needs_window = self.held_back.is_some() && self.has_narrow_window(number);
        self.answers > 0 && !needs_window
    }

    /// Whether an answer is still to come.
    pub fn are_under_way(&self) -> bool {
        self.all.iter().any(|one| one.end.is_none())
    }

    /// Its answer may bring no content, or little of it, and is not there.
    pub fn has_narrow_window(&self, number: u64) -> bool {
        self.all.iter().any(|one| one.number == number && one.window == Window::Narrow && one.end.is_none())
    }

    /// The answer takes long. Perhaps somebody on the way keeps its head back until content may follow (nginx does): now it
    /// may.
    pub fn open_window(&mut self, number: u64) {
        if let Protocol::Http2(connection) = &mut self.protocol
            && let Some(one) = self.all.iter_mut().find(|one| one.number == number && one.window == Window::Narrow)
        {
            one.window = Window::OpenedLate;
            connection.open_window(one.stream, limits::STREAM_WINDOW_BYTES);
        }
    }

    /// The peer answers no stream that has no window: from now on each has one.
    pub fn holds_answers_back(&self) -> bool {
        self.held_back.is_some_and(|count| count >= HELD_BACK)
    }

    /// Whether there is an end to take.
    pub fn has_ended(&self, number: u64) -> bool {
        self.all.iter().any(|one| one.number == number && one.end.is_some())
    }

    /// The end, and how many bytes of plaintext came for it.
    pub fn take_end(&mut self, number: u64) -> Option<(Result<Answer, NoAnswer>, usize)> {
        let place = self.all.iter().position(|one| one.number == number && one.end.is_some())?;
        let Running { end, own_bytes, .. } = self.all.swap_remove(place);
        end.map(|end| (end, own_bytes))
    }

    /// What a watch said last, once, how long that was, and how many bytes of plaintext came for it since.
    pub fn take_seen(&mut self, number: u64) -> Option<(Seen, usize, usize)> {
        let one = self.all.iter_mut().find(|one| one.number == number)?;
        let (seen, event_bytes) = one.exchange.take_seen()?;
        Some((seen, event_bytes, std::mem::take(&mut one.own_bytes)))
    }

    /// Whether a watch said anything since it was asked.
    pub fn has_seen(&self, number: u64) -> bool {
        self.all.iter().any(|one| one.number == number && one.exchange.has_seen())
    }

    /// Whether a watch has begun.
    pub fn goes_on(&self, number: u64) -> bool {
        self.all.iter().any(|one| one.number == number && one.exchange.goes_on())
    }

    /// Nobody waits for it any more. A connection on which nothing was answered since it began is over, and all that is under
    /// way there has come to nothing. Not so of a watch, which has nothing to say for days: other requests find that out.
    pub fn give_up(&mut self, number: u64) {
        let Some(place) = self.all.iter().position(|one| one.number == number) else { return };
        let given_up = self.all.swap_remove(place);
        match &mut self.protocol {
            _ if given_up.end.is_some() => {}
            Protocol::Http1 { .. } => (self.is_over, self.is_broken) = (true, true),
            Protocol::Http2(connection) => {
                connection.reset(given_up.stream, Code::CANCEL, When::WithNext);
                if self.answers == given_up.answers_before && !given_up.exchange.is_watch() {
                    self.fail(&Failure::broken("nothing was answered over it for too long"));
                }
            }
        }
    }

    /// So many bytes came, TLS included, and with them the plaintext, which is taken.
    pub fn receive(&mut self, count: usize, plaintext: &mut Vec<u8>) {
        self.received_bytes += count;
        let plaintext_bytes = plaintext.len();
        let stream = match &mut self.protocol {
            Protocol::Http2(connection) => {
                connection.receive(plaintext);
                plaintext.clear();
                self.take_events()
            }
            Protocol::Http1 { input, .. } if plaintext_bytes > 0 => {
                input.append(plaintext);
                self.read_reply();
                0
            }
            Protocol::Http1 { .. } => 0,
        };
        self.all.iter_mut().filter(|one| one.stream == stream).for_each(|one| one.own_bytes += plaintext_bytes);
        let received_bytes = self.received_bytes;
        let is_flooded = |one: &Running| received_bytes - one.received_before > limits::EXCHANGE_BYTES;
        // How much a watch brings in a day, its window and the limit of each event leave open.
        if self.all.iter().any(|one| one.end.is_none() && !one.exchange.goes_on() && is_flooded(one)) {
            let limit_bytes = limits::EXCHANGE_BYTES;
            let text = format!("more than {limit_bytes} bytes came, and no end of the reply; is this an API server?");
            self.fail(&Failure::new("reply-too-large", text));
        }
    }

    /// The peer has closed its side; `is_meant`: TLS said so, and no accident cut it.
    pub fn end_of_stream(&mut self, is_meant: bool) {
        self.is_over = true;
        let is_http1 = matches!(self.protocol, Protocol::Http1 { .. });
        for one in self.all.iter_mut().filter(|one| one.end.is_none()) {
            let received_bytes = one.exchange.received_bytes();
            let answer = match is_http1 && is_meant {
                true => one.exchange.end_of_stream(),
                false => Err(Failure::closed(received_bytes)),
            };
            one.end = Some(answer.map_err(|failure| self.protocol.no_answer(&one.exchange, failure)));
        }
    }

    /// The connection is of no use any more, for this reason.
    pub fn fail(&mut self, failure: &Failure) {
        (self.is_over, self.is_broken) = (true, true);
        for one in self.all.iter_mut().filter(|one| one.end.is_none()) {
            one.end = Some(Err(self.protocol.no_answer(&one.exchange, failure.clone())));
        }
    }

    /// Whether something is to be sent now.
    pub fn has_output(&self) -> bool {
        match &self.protocol {
            Protocol::Http1 { output, .. } => !output.is_empty(),
            Protocol::Http2(connection) => connection.has_output(),
        }
    }

    /// Appends what is to be sent: requests whole, so that each leaves in one piece.
    pub fn take_output(&mut self, into: &mut Vec<u8>) {
        match &mut self.protocol {
            Protocol::Http1 { output, .. } => {
                into.append(output);
                output.shrink_to(limits::CONNECTION_KEPT_BYTES);
            }
            Protocol::Http2(connection) => connection.take_output(into),
        }
    }

    /// Says that this was all.
    pub fn close(&mut self) {
        self.is_over = true;
        if let Protocol::Http2(connection) = &mut self.protocol {
            connection.close();
        }
    }

    fn read_reply(&mut self) {
        let Protocol::Http1 { input, .. } = &mut self.protocol else { return };
        let Some(one) = self.all.first_mut().filter(|one| one.end.is_none()) else {
            // A server that talks without being asked is not one whose next answer could be trusted to be ours.
            self.is_over = true;
            input.clear();
            return;
        };
        match one.exchange.feed(input) {
            Ok(Progress::NeedMore) => {}
            Ok(Progress::Done { answer, reusable }) => {
                self.is_over |= !reusable || !input.is_empty();
                self.answers += 1;
                one.end = Some(Ok(answer));
            }
            Err(failure) => self.fail(&failure),
        }
    }

    /// Answers on which stream the last of them was.
    fn take_events(&mut self) -> StreamId {
        let (mut last, mut came_by_itself) = (0, None);
        let Exchanges { protocol: Protocol::Http2(connection), all, is_over, held_back, heard, answers, .. } = self
        else {
            return last;
        };
        let newest = self.next_number.checked_sub(1);
        loop {
            let (stream, step) = match connection.next_event() {
                Ok(Some(Event::GoAway { .. })) => {
                    *is_over = true;
                    continue;
                }
                Ok(Some(event)) => {
                    let stream = stream_of(&event);
                    last = stream;
                    *heard += 1;
                    came_by_itself.take_if(|alone| *alone != stream);
                    *answers += u64::from(matches!(event, Event::Headers { .. }));
                    let Some(one) = all.iter_mut().find(|one| one.stream == stream && one.end.is_none()) else {
                        continue;
                    };
                    if matches!(event, Event::Headers { .. }) {
                        match one.window {
                            Window::Narrow if one.heard_before + 1 == *heard && Some(one.number) == newest => {
                                came_by_itself = Some(stream);
                            }
                            Window::Open | Window::Narrow => {}
                            Window::OpenedLate => *held_back = held_back.map(|count| count + 1),
                        }
                    }
                    let step = match &event {
                        Event::Reset { code, broken_rule, .. } => Err(was_reset(*code, *broken_rule)),
                        event => one.exchange.take(event).map_err(|failure| {
                            // As over HTTP/1.1: who does not answer as an API server does is not asked again.
                            *is_over = true;
                            NoAnswer { failure, is_unseen: false }
                        }),
                    };
                    (stream, step)
                }
                Ok(None) => {
                    *held_back = held_back.filter(|_| came_by_itself.is_none());
                    return last;
                }
                Err(error) => {
                    let failure = Failure::malformed(format_args!("{} ({})", error.why, error.code.name()));
                    self.fail(&failure);
                    return last;
                }
            };
            let is_whole = matches!(step, Ok(Step::Done(_)));
            let end = match step {
                Ok(Step::More) => continue,
                Ok(Step::OpenWindow) => {
                    connection.open_window(stream, limits::STREAM_WINDOW_BYTES);
                    continue;
                }
                Ok(Step::Done(answer) | Step::Enough(answer)) => Ok(answer),
                Err(no_answer) => Err(no_answer),
            };
            if !is_whole {
                connection.reset(stream, Code::CANCEL, When::WithNext);
            }
            all.iter_mut().filter(|one| one.stream == stream).for_each(|one| one.end = Some(end.clone()));
        }
    }
}

impl Protocol {
    fn no_answer(&self, exchange: &Exchange, failure: Failure) -> NoAnswer {
        let has_begun = matches!(self, Protocol::Http1 { input, .. } if !input.is_empty());
        let is_unseen = exchange.received_bytes() == 0 && !has_begun && failure.is_of_connection();
        NoAnswer { failure, is_unseen }
    }
}

/// 0: the connection itself.
fn stream_of(event: &Event<'_>) -> StreamId {
    match event {
        Event::Headers { stream, .. }
        | Event::Data { stream, .. }
        | Event::Trailers { stream, .. }
        | Event::Reset { stream, .. } => *stream,
        Event::GoAway { .. } => 0,
    }
}

fn was_reset(code: Code, broken_rule: Option<&'static str>) -> NoAnswer {
    let failure = match broken_rule {
        Some(why) => Failure::malformed(why),
        None => Failure::new(
            "stream-reset",
            format!(
                "the server, or what stands before it, ended the request without an answer ({}); where that goes on, \
                 alpnProtocol: http/1.1 does without HTTP/2",
                code.name()
            ),
        ),
    };
    NoAnswer { failure, is_unseen: code == Code::REFUSED_STREAM && broken_rule.is_none() }
}
