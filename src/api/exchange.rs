//! Turns one operation into a request and what comes back into an answer, over HTTP/1.1 or a stream of HTTP/2: no socket.

use super::answer::{Answer, Head, Refusal};
use super::failure::Failure;
use super::http::{self, AuditId, Body};
use super::operation::{Operation, Wanted};
use super::watch::{Events, Over, Seen};
use crate::config::limits;
use crate::http2::{self, Event, Field, NotSent, StreamId};

#[cfg(test)]
mod tests;

/// Product token of this program, and its name as a field manager (TR-4).
pub const USER_AGENT: &str = concat!("nodepulse/", env!("CARGO_PKG_VERSION"));

/// Where requests go, and as whom. No space and no end of a line is in it: whoever reads kubeconfig, token and names sees to
/// that.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// `Host` header: `Server::authority`.
    pub authority: String,
    /// `Server::path_prefix`.
    pub path_prefix: String,
    /// The Node's name, which is also the Lease's.
    pub node_name: String,
    /// `Authorization: Bearer`, when the kubeconfig has a token.
    pub bearer_token: Option<String>,
}

/// A request in flight.
#[derive(Debug)]
pub struct Exchange {
    operation: Operation,
    audit_id: AuditId,
    /// How much of its success's content is waited for, over HTTP/2; `None`: all.
    content_bytes: Option<u32>,
    received_bytes: usize,
    /// `None` until its headers have come.
    reply: Option<Reply>,
    /// Of a watch.
    events: Events,
    /// What they said last, until somebody takes it.
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Reply {
    head: Head,
    /// What is still to come.
    body: Body,
    kept: Vec<u8>,
    length_bytes: usize,
    /// The server will close the connection after this reply.
    closes: bool,
}

/// What feeding reply bytes led to.
#[derive(Debug)]
pub enum Progress {
    NeedMore,
    /// `reusable`: the connection may carry another exchange.
    Done {
        answer: Answer,
        reusable: bool,
    },
}

/// What an event of its stream led to.
pub(super) enum Step {
    More,
    /// A refusal has content that explains it.
    OpenWindow,
    Done(Answer),
    /// The rest of the stream is nothing that anybody reads.
    Enough(Answer),
}

impl Exchange {
    /// The whole request, ready to be written in one piece, and the exchange that waits for its reply.
    /// `audit_id` is the connection's.
    pub fn start(operation: Operation, target: &Target, audit_id: AuditId) -> (Vec<u8>, Exchange) {
        let request = request(&operation, target, &audit_id);
        (request, Exchange::of(operation, audit_id))
    }

    fn of(operation: Operation, audit_id: AuditId) -> Exchange {
        let events = Events::default();
        Exchange { operation, audit_id, content_bytes: None, received_bytes: 0, reply: None, events, seen: None }
    }

    /// What a watch said last, once, and how long that was.
    pub(super) fn take_seen(&mut self) -> Option<(Seen, usize)> {
        Some((self.seen.take()?, self.events.last_bytes()))
    }

    pub(super) fn has_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// It has no end of its own: it is a watch which the server has begun.
    pub(super) fn goes_on(&self) -> bool {
        self.is_watch() && self.reply.as_ref().is_some_and(|reply| reply.head.is_success())
    }

    pub(super) fn is_watch(&self) -> bool {
        self.operation == Operation::WatchNode
    }

    /// Bytes of the reply that were understood so far; before the first, a closed connection says nothing about the request.
    pub fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// Takes reply bytes; `input` may end anywhere. What was understood is removed from the front of `input`, and what
    /// is left is never more than [`limits::REPLY_HEADER_BYTES`].
    pub fn feed(&mut self, input: &mut Vec<u8>) -> Result<Progress, Failure> {
        let mut understood = 0;
        let progress = loop {
            let rest = input.get(understood..).unwrap_or_default();
            let used = match &mut self.reply {
                None => self.read_head(rest)?,
                Some(reply) => reply.read(rest, self.operation.wanted())?,
            };
            understood += used;
            self.received_bytes += used;
            if let Some(reply) =
                self.reply.take_if(|reply| reply.is_enough(self.operation.wanted(), self.content_bytes))
            {
                let reusable = !reply.closes && reply.body == Body::Length(0);
                let answer = reply.head.into_answer(self.operation.wanted(), &reply.kept)?;
                break Progress::Done { answer, reusable };
            }
            if used == 0 && input.len() - understood > limits::REPLY_HEADER_BYTES {
                return Err(Failure::malformed("a line of its chunks has no end"));
            }
            if used == 0 {
                break Progress::NeedMore;
            }
        };
        input.drain(..understood);
        Ok(progress)
    }

    /// The peer closed: a reply that ends with the connection is complete now, any other is not.
    pub fn end_of_stream(&mut self) -> Result<Answer, Failure> {
        match self.reply.take() {
            Some(reply) if reply.body == Body::Connection => {
                reply.head.into_answer(self.operation.wanted(), &reply.kept)
            }
            _ => Err(Failure::closed(self.received_bytes)),
        }
    }

    /// How much of `input` is understood: a whole block of headers or nothing.
    fn read_head(&mut self, input: &[u8]) -> Result<usize, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; http::MOST_HEADERS];
        let mut reply = httparse::Response::new(&mut headers);
        let parsed = reply.parse(input).map_err(Failure::malformed)?;
        let used = if let httparse::Status::Complete(used) = parsed { used } else { 0 };
        let length_bytes = if used > 0 { used } else { input.len() };
        if self.received_bytes + length_bytes > limits::REPLY_HEADER_BYTES {
            return Err(Failure::header_too_large());
        }
        match reply.code.unwrap_or_default() {
            _ if used == 0 => {}
            // Informational replies are passed over without being the reply.
            100..200 => {}
            code => {
                let header = |name: &str| http::header(&reply, name);
                let head = Head::read(code, &header, &self.audit_id, self.operation.wanted())?;
                let (body, closes) = (Body::of(&reply)?, http::closes(&reply));
                self.reply = Some(Reply { head, body, kept: Vec::new(), length_bytes: 0, closes });
            }
        }
        Ok(used)
    }

    /// The same over a new stream. `saves_content`: the connection's streams have no window of their own, and nothing is
    /// sent to this one that nobody reads.
    pub(super) fn open(
        operation: &Operation,
        target: &Target,
        audit_id: AuditId,
        connection: &mut http2::Connection,
        content_bytes: Option<u32>,
    ) -> Result<(StreamId, Exchange), NotSent> {
        let path = target.path_prefix.clone() + &operation.path(&target.node_name);
        let token = target.bearer_token.as_ref().map(|token| format!("Bearer {token}"));
        let body = operation.body().unwrap_or_default();
        let path = if operation.has_common_path() { Field::new(":path", &path) } else { Field::once(":path", &path) };
        let mut fields = vec![
            Field::new(":method", operation.verb()),
            Field::new(":scheme", "https"),
            path,
            Field::new(":authority", &target.authority),
            Field::new("accept", operation.wanted().content_type()),
            Field::new(AuditId::HEADER, audit_id.as_str()),
            Field::new("user-agent", USER_AGENT),
        ];
        if !body.is_empty() {
            fields.push(Field::new("content-type", operation.content_type()));
        }
        fields.extend(token.as_ref().map(|token| Field::new("authorization", token)));
        let own = operation.headers().to_ascii_lowercase();
        let own = own.lines().zip(operation.headers().lines());
        let own = own.filter_map(|(name, line)| Some((name.split_once(": ")?.0, line.split_once(": ")?.1)));
        fields.extend(own.map(|(name, value)| Field::never(name, value)));
        let window_bytes = content_bytes.unwrap_or_else(|| operation.wanted().window_bytes());
        let stream = connection.request(&fields, body, window_bytes)?;
        Ok((stream, Exchange { content_bytes, ..Exchange::of(operation.clone(), audit_id) }))
    }

    /// Takes an event of its stream.
    pub(super) fn take(&mut self, event: &Event<'_>) -> Result<Step, Failure> {
        let wanted = self.operation.wanted();
        let ends = match event {
            Event::Headers { status, fields, ends, .. } => {
                self.received_bytes += 1;
                let head = Head::read(*status, &|name| fields.get(name), &self.audit_id, wanted)?;
                if !ends && self.content_bytes == Some(0) && head.is_success() {
                    return Ok(Step::Enough(head.into_answer(Wanted::Nothing, &[])?));
                }
                let opens_window = !ends && self.content_bytes.is_some() && !head.is_success();
                let reply = Reply { head, body: Body::Connection, kept: Vec::new(), length_bytes: 0, closes: false };
                self.reply = Some(reply);
                if opens_window {
                    return Ok(Step::OpenWindow);
                }
                *ends
            }
            Event::Data { bytes, ends, .. } => {
                self.received_bytes += bytes.len();
                if self.goes_on() {
                    return self.take_events(bytes, *ends);
                }
                let Some(reply) = &mut self.reply else { return Err(Failure::malformed("content before its headers")) };
                reply.read(bytes, wanted)?;
                *ends
            }
            Event::Trailers { .. } => true,
            Event::Reset { .. } | Event::GoAway { .. } => false,
        };
        let is_enough = |reply: &mut Reply| ends || reply.is_enough(wanted, self.content_bytes);
        let Some(reply) = self.reply.take_if(is_enough) else { return Ok(Step::More) };
        let answer = reply.head.into_answer(wanted, &reply.kept)?;
        Ok(if ends { Step::Done(answer) } else { Step::Enough(answer) })
    }
}

impl Exchange {
    /// Content of a watch.
    fn take_events(&mut self, bytes: &[u8], ends: bool) -> Result<Step, Failure> {
        match self.events.take(bytes) {
            Ok(seen) => {
                let earlier = self.seen.take();
                self.seen = match seen {
                    Some(seen) => Some(seen.in_place_of(earlier)),
                    None => earlier,
                };
                let Some(reply) = self.reply.take_if(|_| ends) else { return Ok(Step::More) };
                // What its head said of the time was long ago.
                Ok(Step::Done(Answer { date: None, ..reply.head.into_answer(Wanted::Events, &[])? }))
            }
            Err(Over::Refused(refusal)) => Ok(Step::Enough(Answer { date: None, result: Err(refusal) })),
            // The others of its connection go on.
            Err(Over::Failed(failure)) => {
                Ok(Step::Enough(Answer { date: None, result: Err(Refusal::Failed(failure)) }))
            }
        }
    }
}

impl Reply {
    /// How much of `input` is understood.
    fn read(&mut self, input: &[u8], wanted: Wanted) -> Result<usize, Failure> {
        let (used, content_bytes) = self.body.read(input)?;
        self.length_bytes += content_bytes;
        if self.length_bytes > wanted.limit_bytes() {
            return Err(Failure::body_too_large(wanted.limit_bytes()));
        }
        if wanted != Wanted::Nothing || !self.head.is_success() {
            self.kept.extend_from_slice(input.get(..content_bytes).unwrap_or_default());
        }
        Ok(used)
    }

    /// All has come, or what is worth knowing of an answer this long, which stands at its beginning.
    fn is_enough(&self, wanted: Wanted, content_bytes: Option<u32>) -> bool {
        let beginning_bytes = content_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let is_long = wanted == Wanted::Metadata && self.kept.len() > limits::METADATA_BODY_BYTES;
        let has_beginning = is_long || beginning_bytes.is_some_and(|bytes| self.kept.len() >= bytes);
        self.body == Body::Length(0) || has_beginning && self.head.is_success()
    }
}

fn request(operation: &Operation, target: &Target, audit_id: &AuditId) -> Vec<u8> {
    let token = target.bearer_token.as_deref().unwrap_or_default();
    let (path, body) = (operation.path(&target.node_name), operation.body().unwrap_or_default());
    let headers = operation.headers();
    let known_bytes = target.authority.len() + target.path_prefix.len() + token.len() + headers.len() + body.len();
    let mut bytes = Vec::with_capacity(512 + known_bytes);
    let mut put = |texts: &[&str]| texts.iter().for_each(|text| bytes.extend_from_slice(text.as_bytes()));
    put(&[operation.verb(), " ", &target.path_prefix, &path, " HTTP/1.1\r\nhost: ", &target.authority]);
    put(&["\r\naccept: ", operation.wanted().content_type(), "\r\n"]);
    put(&[AuditId::HEADER, ": ", audit_id.as_str(), "\r\n"]);
    if operation.names_the_program() {
        put(&["user-agent: ", USER_AGENT, "\r\n"]);
    }
    if !body.is_empty() {
        put(&["content-type: ", operation.content_type(), "\r\ncontent-length: ", &body.len().to_string(), "\r\n"]);
    }
    if !token.is_empty() {
        put(&["authorization: Bearer ", token, "\r\n"]);
    }
    put(&[headers, "\r\n"]);
    bytes.extend_from_slice(body);
    bytes
}

impl std::fmt::Debug for Target {
    /// Never prints the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}{} as {})", self.authority, self.path_prefix, self.node_name)
    }
}
