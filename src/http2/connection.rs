//! Turns requests into frames to send: one connection. What comes back is `connection/receiving.rs`, and what a server does beside
//! that `connection/serving.rs`.

mod receiving;
mod serving;
#[cfg(test)]
mod tests;

use self::receiving::Block;
pub use self::receiving::Event;
use super::error::{Code, Error};
use super::fields::FieldList;
use super::frame::{self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE};
use super::hpack::{DEFAULT_TABLE_BYTES, Decoder, Encoder, Field};
use super::stream::{DEFAULT_WINDOW_BYTES, Due, MOST, Stream, StreamId, Window};
use crate::config::limits;

/// Whether a request would be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    Now,
    /// As many streams are open as the peer, or [`limits::HTTP2_STREAMS`], allows.
    Later,
    /// Somebody said GOAWAY, or all numbers of streams are used up: another connection is needed.
    Never,
}

/// Why a request was not taken. Nothing of it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    Later,
    Never,
    /// Its body fits neither the peer's windows nor [`limits::HTTP2_UNSENT_BYTES`].
    TooLarge,
}

/// When the peer hears of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Now,
    /// In front of whatever is sent next: nothing is sent for its sake.
    WithNext,
}

/// What the peer said of itself.
#[derive(Debug)]
struct Peer {
    /// Its SETTINGS have come: nothing else may come first.
    has_settings: bool,
    stream_window: i64,
    payload_bytes: usize,
    streams: usize,
    /// It said GOAWAY: higher streams are not looked at.
    last_stream: Option<StreamId>,
}

/// Which end of it this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    /// Whether the preface of the client has come.
    Server {
        is_greeted: bool,
    },
}

/// One connection, as its client or as its server.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    /// What came and was not looked at, from `looked_at` on.
    input: Vec<u8>,
    looked_at: usize,
    output: Vec<u8>,
    /// So much of the output, at its beginning, waits for something else to be sent.
    waiting_bytes: usize,
    /// Frames in the output that the peer made us send.
    replies: usize,
    /// Those that are open, in the order of their numbers.
    streams: Vec<Stream>,
    /// Of whoever is the client.
    next_stream: StreamId,
    /// Which streams we reset before they ended: a bit for each of the last 64, the newest lowest. The peer may not have heard
    /// of it yet.
    reset_by_us: u64,
    peer: Peer,
    send_window: i64,
    window: Window,
    /// The window of a new stream.
    stream_window: u32,
    encoder: Encoder,
    decoder: Decoder,
    sent_block: Vec<u8>,
    /// The header block that comes, and what is known of it while its end is still to come.
    block: Vec<u8>,
    block_of: Option<Block>,
    fields: FieldList,
    /// The stream of the last frame.
    frame_stream: StreamId,
    /// Frames since the last that led to an event, or let some of a body go.
    idle_frames: u32,
    heard_frames: u64,
    /// We said GOAWAY.
    is_closed: bool,
    error: Option<Error>,
}

impl Connection {
    /// The preface and SETTINGS are in the output. `stream_window`: how much content a new stream may bring, bytes; with 0,
    /// only streams that are given a window bring any.
    pub fn client(stream_window: u32) -> Connection {
        let mut connection = Connection::new(Role::Client, stream_window);
        connection.output.extend_from_slice(frame::PREFACE);
        connection.write_settings((frame::ENABLE_PUSH, 0));
        connection
    }

    /// One setting of its role, and those of both.
    fn write_settings(&mut self, own: (u16, u32)) {
        let fields = (frame::MAX_HEADER_LIST_SIZE, limits::HTTP2_FIELDS_BYTES as u32);
        let settings = [own, fields, (frame::INITIAL_WINDOW_SIZE, self.stream_window)];
        frame::write_settings(&mut self.output, &settings);
    }

    fn new(role: Role, stream_window: u32) -> Connection {
        Connection {
            role,
            input: Vec::new(),
            looked_at: 0,
            output: Vec::new(),
            waiting_bytes: 0,
            replies: 0,
            streams: Vec::new(),
            next_stream: 1,
            reset_by_us: 0,
            peer: Peer {
                has_settings: false,
                stream_window: DEFAULT_WINDOW_BYTES.into(),
                payload_bytes: frame::PAYLOAD_BYTES,
                streams: limits::HTTP2_STREAMS,
                last_stream: None,
            },
            send_window: DEFAULT_WINDOW_BYTES.into(),
            window: Window::new(DEFAULT_WINDOW_BYTES),
            stream_window: stream_window.min(MOST),
            encoder: Encoder::default(),
            decoder: Decoder::new(DEFAULT_TABLE_BYTES),
            sent_block: Vec::new(),
            block: Vec::new(),
            block_of: None,
            fields: FieldList::default(),
            frame_stream: 0,
            idle_frames: 0,
            heard_frames: 0,
            is_closed: false,
            error: None,
        }
    }

    /// Whether [`Connection::request`] would be taken.
    pub fn opening(&self) -> Opening {
        let is_over = self.is_closed || self.error.is_some() || self.peer.last_stream.is_some();
        if is_over || self.role != Role::Client || self.next_stream > MOST {
            Opening::Never
        } else if self.room() == 0 {
            Opening::Later
        } else {
            Opening::Now
        }
    }

    /// How many streams more may be open at once.
    pub fn room(&self) -> usize {
        self.peer.streams.min(limits::HTTP2_STREAMS).saturating_sub(self.streams.len())
    }

    /// Puts a whole request into the output: its fields (pseudo-fields first), its body, and, where its answer may bring more
    /// than the connection allows every stream, that window. What of the body does not fit the peer's windows waits here.
    /// The methods HEAD and CONNECT, whose answers are framed otherwise, are not for this.
    pub fn request(&mut self, fields: &[Field<'_>], body: &[u8], window: u32) -> Result<StreamId, NotSent> {
        match self.opening() {
            Opening::Now => {}
            Opening::Later => return Err(NotSent::Later),
            Opening::Never => return Err(NotSent::Never),
        }
        let fits = usize::try_from(self.send_window.min(self.peer.stream_window)).unwrap_or_default();
        let unsent_bytes: usize = self.streams.iter().map(|stream| stream.unsent.len()).sum();
        if body.len().saturating_sub(fits) + unsent_bytes > limits::HTTP2_UNSENT_BYTES {
            return Err(NotSent::TooLarge);
        }
        let id = self.next_stream;
        self.next_stream += 2;
        self.reset_by_us <<= 1;
        self.idle_frames = 0;
        self.write_fields(id, fields, body.is_empty());
        let mut stream = Stream {
            id,
            send_window: self.peer.stream_window,
            unsent: Vec::new(),
            window: Window::new(self.stream_window),
            due: Due::Fields { interim: 0 },
            reset: None,
        };
        let sent_bytes = self.write_body(&mut stream, body);
        stream.unsent.extend_from_slice(body.get(sent_bytes..).unwrap_or_default());
        self.streams.push(stream);
        if window > self.stream_window {
            self.open_window(id, window);
        }
        Ok(id)
    }

    /// HEADERS, and CONTINUATION where the peer takes no frame that long.
    fn write_fields(&mut self, id: StreamId, fields: &[Field<'_>], ends: bool) {
        self.sent_block.clear();
        self.encoder.encode(fields, &mut self.sent_block);
        let mut kind = HEADERS;
        let mut flags = if ends { END_STREAM } else { 0 };
        let mut rest = self.sent_block.as_slice();
        loop {
            let (part, later) = rest.split_at_checked(self.peer.payload_bytes).unwrap_or((rest, &[]));
            flags |= if later.is_empty() { END_HEADERS } else { 0 };
            frame::write(&mut self.output, kind, flags, id, part);
            if later.is_empty() {
                break;
            }
            (kind, flags, rest) = (frame::CONTINUATION, 0, later);
        }
    }

    /// DATA as far as the windows go; how much of the body that is. Its last frame ends the stream.
    fn write_body(&mut self, stream: &mut Stream, body: &[u8]) -> usize {
        let mut rest = body;
        while !rest.is_empty() {
            let window = usize::try_from(self.send_window.min(stream.send_window)).unwrap_or_default();
            let room = window.min(self.peer.payload_bytes).min(rest.len());
            let Some((part, later)) = rest.split_at_checked(room).filter(|_| room > 0) else { break };
            let flags = if later.is_empty() { END_STREAM } else { 0 };
            frame::write(&mut self.output, DATA, flags, stream.id, part);
            self.send_window -= room as i64;
            stream.send_window -= room as i64;
            rest = later;
        }
        body.len() - rest.len()
    }

    /// The peer widened a window: what waited for it goes out, the oldest first.
    fn write_unsent(&mut self) {
        let mut streams = std::mem::take(&mut self.streams);
        for stream in &mut streams {
            let unsent = std::mem::take(&mut stream.unsent);
            let sent_bytes = self.write_body(stream, &unsent);
            stream.unsent = unsent;
            stream.unsent.drain(..sent_bytes);
            // However little it was: the frame that allowed it said something.
            self.idle_frames = if sent_bytes > 0 { 0 } else { self.idle_frames };
        }
        self.streams = streams;
    }

    /// From now on the answer on this stream may bring content, so much of it before some is consumed. What an event brought
    /// counts as consumed. Of a stream that is over, this means nothing.
    pub fn open_window(&mut self, stream: StreamId, bytes: u32) {
        let stream = self.streams.iter_mut().find(|one| one.id == stream && one.reset.is_none());
        if let Some(stream) = stream
            && let Some(increment) = stream.window.open(bytes)
        {
            frame::write_number(&mut self.output, WINDOW_UPDATE, stream.id, increment);
        }
    }

    /// Ends a stream, of which no further event comes. Of one that is over already, this means nothing.
    pub fn reset(&mut self, stream: StreamId, code: Code, when: When) {
        let Some(place) = self.streams.iter().position(|one| one.id == stream) else { return };
        if self.streams.remove(place).reset.is_some() {
            return;
        }
        let may_wait = when == When::WithNext && !self.has_output();
        self.write_reset(stream, code);
        if may_wait {
            self.waiting_bytes = self.output.len();
        }
    }

    fn write_reset(&mut self, stream: StreamId, code: Code) {
        frame::write_number(&mut self.output, RST_STREAM, stream, code.0);
        // Streams have odd numbers: the newest is `next_stream - 2`.
        let age = (self.next_stream - 2).saturating_sub(stream) / 2;
        self.reset_by_us |= 1u64.checked_shl(age).unwrap_or_default();
    }

    /// Says that the connection is given up in order. Answers to what was asked may still come.
    pub fn close(&mut self) {
        self.write_goaway(Code::NO_ERROR);
    }

    fn write_goaway(&mut self, code: Code) {
        if !self.is_closed {
            self.is_closed = true;
            // The last stream that the peer opened and we looked at.
            let last = if self.role == Role::Client { 0 } else { self.next_stream.saturating_sub(2) };
            let payload = last.to_be_bytes().into_iter().chain(code.0.to_be_bytes());
            frame::write(&mut self.output, GOAWAY, 0, 0, &payload.collect::<Vec<u8>>());
        }
    }

    /// Whether there is anything to send that must not wait for something else.
    pub fn has_output(&self) -> bool {
        self.output.len() > self.waiting_bytes
    }

    /// Appends what is to be sent to `output`, with what waited for that in front.
    pub fn take_output(&mut self, output: &mut Vec<u8>) {
        if self.has_output() {
            output.append(&mut self.output);
            self.output.shrink_to(limits::CONNECTION_KEPT_BYTES);
            self.waiting_bytes = 0;
            self.replies = 0;
        }
    }

    /// How many frames of the peer have come. Two readings say whether it was silent between them.
    pub fn heard_frames(&self) -> u64 {
        self.heard_frames
    }

    /// How many requests wait for their answer, or for the rest of it.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }
}
