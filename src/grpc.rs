//! Turns calls of gRPC into requests of HTTP/2, and what a peer answers into messages, or into why there is none; and for a server
//! the other way round ([`Server`]).
//!
//! ```text
//! request:  POST /PACKAGE.SERVICE/METHOD, content 0 (not compressed) u32 length (big-endian) message
//! answer:   fields, content of the same form, trailers "grpc-status" and "grpc-message";
//!           or, where there is no message, all of that in the fields
//! ```
//!
//! A call sends one message and is answered with one, or with as many as the peer likes ([`Answer::Each`]). [`Client`] is one connection: it owns no socket and knows no time, so
//! whoever has a clock gives up a call that is not answered ([`Client::cancel`]). What it knows of HTTP/2 is `http2`'s, and that is
//! where the limits of frames and fields are kept; of messages it knows nothing. PING is never sent, as servers of gRPC close the
//! connection over it.

mod server;

pub use self::server::{Asked, Server};
use crate::config::limits;
pub use crate::http2::StreamId as CallId;
use crate::http2::{Code, Connection, Error, Event, Field, Fields, NotSent, When};

/// In front of each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Why a call has no answer: a code of gRPC, or the one that it has for an answer of HTTP that says none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub code: u32,
    /// In the peer's words, cut.
    pub message: String,
}

impl Status {
    /// Somebody gave it up.
    pub const CANCELLED: u32 = 1;
    /// No other code fits.
    pub const UNKNOWN: u32 = 2;
    /// Whoever asks may not.
    pub const PERMISSION_DENIED: u32 = 7;
    /// The answer is too large.
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    /// The peer does not have this method.
    pub const UNIMPLEMENTED: u32 = 12;
    /// The answer is none of gRPC.
    pub const INTERNAL: u32 = 13;
    /// Nobody has looked at it.
    pub const UNAVAILABLE: u32 = 14;

    fn internal(message: &str) -> Status {
        Status { code: Status::INTERNAL, message: message.to_owned() }
    }
}

/// What became of a call: its one message, or why there is none.
pub type Outcome = Result<Vec<u8>, Status>;

/// How the message of an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Whole, with so many bytes at most; a longer one is [`Status::RESOURCE_EXHAUSTED`].
    Whole { most_bytes: usize },
    /// One after the other, each with so many bytes at most; the message of its [`Outcome`] is empty.
    Each { most_bytes: usize },
    /// However long it is, in pieces as they come; the message of its [`Outcome`] is empty.
    Pieces,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More of a message that is wanted in pieces, or one of those that are wanted each.
    Piece(CallId, Vec<u8>),
    /// The last that is heard of it.
    Ended(CallId, Outcome),
}

#[derive(Debug)]
struct Call {
    id: CallId,
    http_status: u16,
    wanted: Answer,
    /// What came of its message, with the prefix; of one that is wanted in pieces the prefix alone, of those that are wanted each
    /// what was not told yet.
    content: Vec<u8>,
    /// How much came, with the prefix.
    came_bytes: u64,
}

/// One connection, as its client.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    calls: Vec<Call>,
}

impl Default for Client {
    fn default() -> Client {
        Client { connection: Connection::client(limits::GRPC_WINDOW_BYTES), calls: Vec::new() }
    }
}

impl Client {
    /// Puts a call into the output. `path`: `/PACKAGE.SERVICE/METHOD`. `timeout`: how long the peer is to try, as gRPC writes it
    /// (`10S`); empty: for ever.
    pub fn call(&mut self, path: &str, message: &[u8], timeout: &str, wanted: Answer) -> Result<CallId, NotSent> {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", timeout),
        ];
        let fields = fields.map(|(name, value)| Field::new(name, value));
        let (without_timeout, _) = fields.split_at_checked(fields.len() - 1).unwrap_or((&fields, &[]));
        let fields = if timeout.is_empty() { without_timeout } else { &fields };
        let id = self.connection.request(fields, &framed(message)?, 0)?;
        self.calls.push(Call { id, http_status: 0, wanted, content: Vec::new(), came_bytes: 0 });
        Ok(id)
    }

    /// Gives up a call, of which nothing more is heard.
    pub fn cancel(&mut self, id: CallId) {
        self.calls.retain(|call| call.id != id);
        self.connection.reset(id, Code::CANCEL, When::Now);
    }

    /// Appends what is to be sent.
    pub fn take_output(&mut self, output: &mut Vec<u8>) {
        self.connection.take_output(output);
    }

    /// Takes bytes of the peer, cut anywhere. All that came of them is to be taken before there are more.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes);
    }

    /// What came of a call next. After an error the connection is of no use.
    pub fn next_progress(&mut self) -> Result<Option<Progress>, Error> {
        if let Some(progress) = self.next_message() {
            return Ok(Some(progress));
        }
        while let Some(event) = self.connection.next_event()? {
            let calls = &mut self.calls;
            let (id, ended) = match event {
                Event::Headers { stream, status, fields, ends } => {
                    if let Some(call) = find(calls, stream) {
                        call.http_status = status;
                    }
                    (stream, ends.then(|| status_of(fields, status)))
                }
                Event::Data { stream, bytes, ends } => {
                    if let Some(call) =
                        find(calls, stream).filter(|call| matches!(call.wanted, Answer::Each { .. }) && !ends)
                    {
                        call.content.extend_from_slice(bytes);
                        match self.next_message() {
                            Some(progress) => return Ok(Some(progress)),
                            None => continue,
                        }
                    }
                    let no_status = || Err(Status::internal("the answer ends without a status"));
                    match find(calls, stream).map(|call| call.append(bytes)) {
                        Some(Ok(piece)) if !ends && !piece.is_empty() => {
                            return Ok(Some(Progress::Piece(stream, piece)));
                        }
                        Some(Err(status)) => (stream, Some(Err(status))),
                        _ => (stream, ends.then(no_status)),
                    }
                }
                Event::Trailers { stream, fields } => {
                    let http_status = find(calls, stream).map_or(0, |call| call.http_status);
                    (stream, Some(status_of(fields, http_status)))
                }
                Event::Reset { stream, code, .. } => (stream, Some(Err(of_reset(code)))),
                // Calls that will not be answered end one by one.
                Event::GoAway { .. } => continue,
            };
            let Some(ended) = ended else { continue };
            let Some(place) = self.calls.iter().position(|call| call.id == id) else { continue };
            let call = self.calls.remove(place);
            if matches!(&ended, Err(status) if status.code == Status::RESOURCE_EXHAUSTED) {
                self.connection.reset(id, Code::CANCEL, When::Now);
            }
            return Ok(Some(Progress::Ended(id, ended.and_then(|()| call.message()))));
        }
        Ok(None)
    }

    /// The next one of those that are wanted each. One that is too long ends its call.
    fn next_message(&mut self) -> Option<Progress> {
        for call in &mut self.calls {
            let Answer::Each { most_bytes } = call.wanted else { continue };
            let Some((&[is_compressed, length @ ..], rest)) = call.content.split_first_chunk::<PREFIX_BYTES>() else {
                continue;
            };
            let length = u32::from_be_bytes(length) as usize;
            let id = call.id;
            let wrong = match (is_compressed, length > most_bytes) {
                (0, false) if rest.len() < length => continue,
                (0, false) => {
                    let message = rest.get(..length).unwrap_or_default().to_vec();
                    call.content.drain(..PREFIX_BYTES + length);
                    return Some(Progress::Piece(id, message));
                }
                (0, true) => Status { code: Status::RESOURCE_EXHAUSTED, message: "too long a message".to_owned() },
                _ => Status::internal("a message is compressed, which nobody asked for"),
            };
            self.cancel(id);
            return Some(Progress::Ended(id, Err(wrong)));
        }
        None
    }
}

/// A message with its prefix.
fn framed(message: &[u8]) -> Result<Vec<u8>, NotSent> {
    let length = u32::try_from(message.len()).map_err(|_| NotSent::TooLarge)?;
    Ok([&[0], length.to_be_bytes().as_slice(), message].concat())
}

fn find(calls: &mut [Call], id: CallId) -> Option<&mut Call> {
    calls.iter_mut().find(|call| call.id == id)
}

impl Call {
    /// Takes more of the answer. Answers what whoever called is to have now.
    fn append(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Status> {
        self.came_bytes += bytes.len() as u64;
        let most_bytes = match self.wanted {
            Answer::Whole { most_bytes } => PREFIX_BYTES + most_bytes,
            Answer::Each { .. } | Answer::Pieces => PREFIX_BYTES,
        };
        let room = most_bytes.saturating_sub(self.content.len()).min(bytes.len());
        let (kept, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.content.extend_from_slice(kept);
        if rest.is_empty() || self.wanted == Answer::Pieces {
            return Ok(rest.to_vec());
        }
        Err(Status { code: Status::RESOURCE_EXHAUSTED, message: "too long an answer".to_owned() })
    }

    /// The one message of a call that has ended well.
    fn message(mut self) -> Outcome {
        if matches!(self.wanted, Answer::Each { .. }) {
            let is_whole = self.content.is_empty();
            return if is_whole { Ok(Vec::new()) } else { Err(Status::internal("the last message is cut")) };
        }
        let Some((prefix, _)) = self.content.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(Status::internal("there is no message in the answer"));
        };
        let [is_compressed, length @ ..] = *prefix;
        if is_compressed != 0 {
            return Err(Status::internal("the answer is compressed, which nobody asked for"));
        }
        if self.came_bytes != PREFIX_BYTES as u64 + u64::from(u32::from_be_bytes(length)) {
            return Err(Status::internal("the answer is not one message"));
        }
        self.content.drain(..PREFIX_BYTES);
        Ok(self.content)
    }
}

/// What the last fields of an answer say of the call. An answer of HTTP without a status of gRPC has one of its own.
fn status_of(fields: Fields<'_>, http_status: u16) -> Result<(), Status> {
    let code =
        fields.get("grpc-status").map(|value| std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()));
    let code = match (code, http_status) {
        (Some(code), _) => code.unwrap_or(Status::UNKNOWN),
        (None, 200 | 400) => Status::INTERNAL,
        (None, 401) => 16,
        (None, 403) => Status::PERMISSION_DENIED,
        (None, 404) => Status::UNIMPLEMENTED,
        (None, 429 | 502 | 503 | 504) => Status::UNAVAILABLE,
        (None, _) => Status::UNKNOWN,
    };
    if code == 0 {
        return Ok(());
    }
    let message = match fields.get("grpc-message") {
        Some(text) => decoded(text),
        None => format!("HTTP {http_status}"),
    };
    Err(Status { code, message })
}

fn of_reset(code: Code) -> Status {
    let is_unseen = code == Code::REFUSED_STREAM;
    let grpc_code = if is_unseen { Status::UNAVAILABLE } else { Status::CANCELLED };
    let name = match code.name() {
        "" => code.0.to_string(),
        name => name.to_owned(),
    };
    Status { code: grpc_code, message: format!("the call was reset: {name}") }
}

/// Text with `%` and two digits in the place of bytes, cut.
fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let escaped =
            digits.filter(|_| byte == b'%').and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { after.get(2..).unwrap_or_default() } else { after };
        if bytes.len() >= limits::GRPC_TEXT_BYTES {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
