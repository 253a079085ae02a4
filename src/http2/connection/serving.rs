//! Turns answers into frames to send: one connection, as its server.

use super::{Connection, NotSent, Role};
use crate::config::limits;
use crate::http2::error::{Code, Fault};
use crate::http2::frame::{self, DATA, PREFACE};
use crate::http2::hpack::Field;
use crate::http2::stream::{DEFAULT_WINDOW_BYTES, Due, Stream, StreamId, Window};

impl Connection {
    /// SETTINGS are in the output. `stream_window`: how much content a request may bring before some is consumed, bytes; no less
    /// than the 65,535 that every client believes in before it has read them.
    pub fn server(stream_window: u32) -> Connection {
        let stream_window = stream_window.max(DEFAULT_WINDOW_BYTES);
        let mut connection = Connection::new(Role::Server { is_greeted: false }, stream_window);
        connection.write_settings((frame::MAX_CONCURRENT_STREAMS, limits::HTTP2_STREAMS as u32));
        connection
    }

    /// Puts a whole answer into the output: its fields (`:status` first), its content, and the fields behind that, with which the
    /// stream is over. To one that is over already this means nothing. Content has to fit the windows that the client has
    /// opened, and one frame.
    pub fn answer(
        &mut self,
        stream: StreamId,
        fields: &[Field<'_>],
        content: &[u8],
        trailers: &[Field<'_>],
    ) -> Result<(), NotSent> {
        let open = self.streams.iter().position(|one| one.id == stream && one.reset.is_none());
        let Some(open) = open.filter(|_| self.error.is_none()) else { return Ok(()) };
        let Some(of) = self.streams.get(open) else { return Ok(()) };
        let window = usize::try_from(self.send_window.min(of.send_window)).unwrap_or_default();
        if content.len() > window.min(self.peer.payload_bytes) {
            return Err(NotSent::TooLarge);
        }
        let is_request_whole = of.due == Due::Nothing;
        self.streams.remove(open);
        self.write_fields(stream, fields, trailers.is_empty() && content.is_empty());
        if !content.is_empty() {
            let flags = if trailers.is_empty() { frame::END_STREAM } else { 0 };
            frame::write(&mut self.output, DATA, flags, stream, content);
            self.send_window -= content.len() as i64;
        }
        if !trailers.is_empty() {
            self.write_fields(stream, trailers, true);
        }
        if !is_request_whole {
            // Nobody reads the rest (RFC 9113 8.1).
            self.write_reset(stream, Code::NO_ERROR);
        }
        Ok(())
    }

    /// A client says who it is before its first frame. Answers whether that has come.
    pub(super) fn take_preface(&mut self, input: &[u8]) -> Result<bool, Fault> {
        let Role::Server { is_greeted: false } = self.role else { return Ok(true) };
        let come = input.get(..PREFACE.len().min(input.len())).unwrap_or_default();
        if !PREFACE.starts_with(come) {
            return Err(Fault::Connection(Code::PROTOCOL_ERROR, "it does not begin as a client of HTTP/2"));
        }
        let is_greeted = come.len() == PREFACE.len();
        if is_greeted {
            self.role = Role::Server { is_greeted };
            self.looked_at += PREFACE.len();
        }
        Ok(is_greeted)
    }

    /// The client opens a stream, if its number is new: those below it that it did not open are closed with that. One stream too
    /// many is refused, its fields are read all the same, as others refer to them.
    pub(super) fn open_stream(&mut self, id: StreamId) {
        if id.is_multiple_of(2) || id < self.next_stream {
            return;
        }
        let newer = (id - self.next_stream) / 2 + 1;
        self.reset_by_us = self.reset_by_us.checked_shl(newer).unwrap_or_default();
        self.next_stream = id + 2;
        if self.streams.len() >= limits::HTTP2_STREAMS || self.is_closed {
            return self.write_reset(id, Code::REFUSED_STREAM);
        }
        self.streams.push(Stream {
            id,
            send_window: self.peer.stream_window,
            unsent: Vec::new(),
            window: Window::new(self.stream_window),
            due: Due::Request,
            reset: None,
        });
    }

    /// The client has said all: what is left to do is ours.
    pub(super) fn end_of_request(&mut self, place: usize) {
        if let Some(stream) = self.streams.get_mut(place) {
            stream.due = Due::Nothing;
        }
    }

    /// The highest value with which the peer may say whether it is pushed to.
    pub(super) fn most_push(&self) -> u32 {
        u32::from(self.role != Role::Client)
    }
}
