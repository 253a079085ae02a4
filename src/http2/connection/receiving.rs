//! Turns a peer's bytes, cut anywhere, into events; what it asks of us is answered on the way (RFC 9113 5, 6).

use super::{Connection, Role};
use crate::config::limits;
use crate::http2::error::{Code, Error, Fault};
use crate::http2::fields::Fields;
use crate::http2::frame::{self, ACK, END_HEADERS, END_STREAM, HEADER_BYTES, Header, PAYLOAD_BYTES, PING, SETTINGS};
use crate::http2::message;
use crate::http2::stream::{Due, MOST, Stream, StreamId, widen};

/// What came of a peer.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The fields of a request, or of the final answer; interim ones (1xx) are passed over. Pseudo-fields are among them.
    Headers {
        stream: StreamId,
        /// Of an answer; 0 in a request, which only a server hears.
        status: u16,
        fields: Fields<'a>,
        /// There is no content, and the stream is over.
        ends: bool,
    },
    /// Some content, or its end, with which the stream is over.
    Data { stream: StreamId, bytes: &'a [u8], ends: bool },
    /// The fields behind the content. The stream is over.
    Trailers { stream: StreamId, fields: Fields<'a> },
    /// The stream is over without the end of its answer. With [`Code::REFUSED_STREAM`] nobody looked at the request, and
    /// another connection, or this one later, may carry it. `broken_rule`: it was us, as the peer broke a rule.
    Reset { stream: StreamId, code: Code, broken_rule: Option<&'static str> },
    /// Nothing can be opened any more. Streams up to `last` go on; the others end with [`Code::REFUSED_STREAM`].
    GoAway { last: StreamId, code: Code, debug: &'a [u8] },
}

/// An event without what it borrows.
enum Found {
    Headers {
        stream: StreamId,
        status: u16,
        ends: bool,
    },
    /// Where its content begins and ends in the input.
    Data {
        stream: StreamId,
        content: (usize, usize),
        ends: bool,
    },
    Trailers {
        stream: StreamId,
    },
    Reset {
        stream: StreamId,
        code: Code,
        broken_rule: Option<&'static str>,
    },
    GoAway {
        last: StreamId,
        code: Code,
        debug: (usize, usize),
    },
}

/// A header block of which more is to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    stream: StreamId,
    ends: bool,
    frames: usize,
}

/// What a frame of a stream meets.
enum Meets {
    /// This place in the list.
    Open(usize),
    /// A stream that we reset, perhaps before the peer sent this.
    Reset,
    Closed,
}

const fn protocol(why: &'static str) -> Fault {
    Fault::Connection(Code::PROTOCOL_ERROR, why)
}

const fn frame_size(why: &'static str) -> Fault {
    Fault::Connection(Code::FRAME_SIZE_ERROR, why)
}

const fn malformed(why: &'static str) -> Fault {
    Fault::Stream(Code::PROTOCOL_ERROR, why)
}

const WRONG_SIZE: Fault = frame_size("a frame has not the size of its type");
const NO_STREAM: Fault = protocol("a frame that belongs to a stream names none");
const A_STREAM: Fault = protocol("a frame of the connection names a stream");
const AFTER_THE_END: Fault = Fault::Connection(Code::STREAM_CLOSED, "a frame comes on a stream that has ended");
const WINDOW_TOO_WIDE: &str = "a window is above 2^31-1 bytes";

impl Connection {
    /// Takes bytes of the peer. Whoever takes all events before the next call keeps what is held here below one frame and
    /// one header block.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.drain(..self.looked_at);
        self.looked_at = 0;
        if self.error.is_none() {
            // A long frame that has passed leaves no memory behind.
            self.input.shrink_to(limits::CONNECTION_KEPT_BYTES.max(bytes.len()));
            self.input.extend_from_slice(bytes);
        }
    }

    /// The next event, if the bytes so far tell of one. An error ends the connection: its GOAWAY is in the output, nothing
    /// further is understood, and the error is told again whenever this is asked.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        let Some(found) = self.find()? else { return Ok(None) };
        let within = |(from, to): (usize, usize)| self.input.get(from..to).unwrap_or_default();
        let fields = self.fields.all();
        Ok(Some(match found {
            Found::Headers { stream, status, ends } => Event::Headers { stream, status, fields, ends },
            Found::Data { stream, content, ends } => Event::Data { stream, bytes: within(content), ends },
            Found::Trailers { stream } => Event::Trailers { stream, fields },
            Found::Reset { stream, code, broken_rule } => Event::Reset { stream, code, broken_rule },
            Found::GoAway { last, code, debug } => Event::GoAway { last, code, debug: within(debug) },
        }))
    }

    fn find(&mut self) -> Result<Option<Found>, Error> {
        loop {
            if let Some(error) = self.error {
                return Err(error);
            }
            if let Some(place) = self.streams.iter().position(|stream| stream.reset.is_some()) {
                let stream = self.streams.remove(place);
                let (code, broken_rule) = stream.reset.unwrap_or((Code::CANCEL, None));
                return Ok(Some(Found::Reset { stream: stream.id, code, broken_rule }));
            }
            // Taken out, so that its bytes can be looked at while everything else changes.
            let input = std::mem::take(&mut self.input);
            let frame = self.next_frame(&input);
            let found = frame.and_then(|frame| match frame {
                Some((header, payload)) => self.take_frame(header, payload).map(|found| (true, found)),
                None => Ok((false, None)),
            });
            self.input = input;
            match found {
                Ok((false, _)) => return Ok(None),
                Ok((true, Some(found))) => {
                    self.idle_frames = 0;
                    return Ok(Some(found));
                }
                Ok((true, None)) => {}
                Err(fault) => self.end_over(fault),
            }
        }
    }

    /// The frame after the last, once all of it is there.
    fn next_frame<'a>(&mut self, input: &'a [u8]) -> Result<Option<(Header, &'a [u8])>, Fault> {
        if !self.take_preface(input)? {
            return Ok(None);
        }
        let rest = input.get(self.looked_at..).unwrap_or_default();
        let Some(header) = Header::read(rest) else { return Ok(None) };
        let is_greeting = header.kind == SETTINGS && !header.has(ACK) && header.stream == 0;
        if !self.peer.has_settings && !is_greeting {
            return Err(protocol("it does not begin with SETTINGS, so this is not HTTP/2"));
        }
        if header.payload_bytes > PAYLOAD_BYTES {
            return Err(frame_size("a frame is longer than 16,384 bytes"));
        }
        let end = HEADER_BYTES + header.payload_bytes;
        let Some(payload) = rest.get(HEADER_BYTES..end) else { return Ok(None) };
        self.looked_at += end;
        self.frame_stream = header.stream;
        self.heard_frames += 1;
        self.idle_frames += 1;
        if self.idle_frames > limits::HTTP2_IDLE_FRAMES {
            return Err(Fault::Connection(Code::ENHANCE_YOUR_CALM, "too many frames come that say nothing"));
        }
        Ok(Some((header, payload)))
    }

    fn take_frame(&mut self, header: Header, payload: &[u8]) -> Result<Option<Found>, Fault> {
        if self.block_of.is_some() && header.kind != frame::CONTINUATION {
            return Err(protocol("another frame comes within a header block"));
        }
        match header.kind {
            frame::DATA => return self.take_data(header, payload),
            frame::HEADERS => return self.take_headers(header, payload),
            frame::CONTINUATION => return self.take_continuation(header, payload),
            frame::GOAWAY => return self.take_goaway(header, payload).map(Some),
            frame::PRIORITY => self.take_priority(header, payload)?,
            frame::RST_STREAM => self.take_reset(header, payload)?,
            SETTINGS => self.take_settings(header, payload)?,
            frame::PUSH_PROMISE => return Err(protocol("it pushes, which our SETTINGS forbid")),
            PING => self.take_ping(header, payload)?,
            frame::WINDOW_UPDATE => self.take_window(header, payload)?,
            // An extension that nobody asked for.
            _ => {}
        }
        Ok(None)
    }

    /// Ends what a fault ends, and says so to the peer.
    fn end_over(&mut self, fault: Fault) {
        let open = self.streams.iter_mut().find(|stream| stream.id == self.frame_stream);
        match (fault, open) {
            (Fault::Stream(code, why), Some(stream)) => {
                stream.reset = Some((code, Some(why)));
                self.write_reset(self.frame_stream, code);
            }
            (Fault::Stream(code, why) | Fault::Connection(code, why), _) => {
                self.error = Some(Error { code, why });
                // Even where an orderly end was announced: this is another one.
                self.is_closed = false;
                self.write_goaway(code);
            }
        }
    }

    /// What a frame of this stream meets; a stream that was never opened breaks a rule.
    fn meets(&self, stream: StreamId) -> Result<Meets, Fault> {
        if stream == 0 {
            return Err(NO_STREAM);
        }
        if stream.is_multiple_of(2) || stream >= self.next_stream {
            return Err(protocol("a frame names a stream that nobody has opened"));
        }
        if let Some(place) = self.streams.iter().position(|one| one.id == stream) {
            return Ok(Meets::Open(place));
        }
        let age = (self.next_stream - 2 - stream) / 2;
        let is_reset = age >= u64::BITS || self.reset_by_us >> age & 1 == 1;
        Ok(if is_reset { Meets::Reset } else { Meets::Closed })
    }

    fn take_data(&mut self, header: Header, payload: &[u8]) -> Result<Option<Found>, Fault> {
        let meets = self.meets(header.stream)?;
        let content = header.content(payload)?;
        // Its window is used whatever becomes of the stream.
        if !self.window.take(payload.len()) {
            return Err(Fault::Connection(
                Code::FLOW_CONTROL_ERROR,
                "content comes for which the connection has no window",
            ));
        }
        if let Some(increment) = self.window.give_back() {
            frame::write_number(&mut self.output, frame::WINDOW_UPDATE, 0, increment);
        }
        let place = match meets {
            Meets::Open(place) => place,
            Meets::Reset => return Ok(None),
            Meets::Closed => return Err(AFTER_THE_END),
        };
        let ends = header.has(END_STREAM);
        let Some(stream) = self.streams.get_mut(place) else { return Ok(None) };
        stream.take(content.len(), payload.len(), ends)?;
        if ends {
            self.end(place);
        } else if let Some(increment) = stream.window.give_back() {
            frame::write_number(&mut self.output, frame::WINDOW_UPDATE, header.stream, increment);
        }
        let padding_before = usize::from(content.len() < payload.len());
        let from = self.looked_at - payload.len() + padding_before;
        let found = Found::Data { stream: header.stream, content: (from, from + content.len()), ends };
        Ok((ends || !content.is_empty()).then_some(found))
    }

    /// The peer has said all: a body that still waits is of no use to it.
    fn end(&mut self, place: usize) {
        if self.role != Role::Client {
            return self.end_of_request(place);
        }
        let stream = self.streams.remove(place);
        if !stream.unsent.is_empty() {
            frame::write_number(&mut self.output, frame::RST_STREAM, stream.id, Code::CANCEL.0);
        }
    }

    fn take_headers(&mut self, header: Header, payload: &[u8]) -> Result<Option<Found>, Fault> {
        if self.role != Role::Client {
            self.open_stream(header.stream);
        }
        self.meets(header.stream)?;
        self.block.clear();
        self.block_of = Some(Block { stream: header.stream, ends: header.has(END_STREAM), frames: 0 });
        self.take_fragment(header, header.content(payload)?)
    }

    fn take_continuation(&mut self, header: Header, payload: &[u8]) -> Result<Option<Found>, Fault> {
        if self.block_of.is_none_or(|block| block.stream != header.stream) {
            return Err(protocol("a CONTINUATION continues nothing"));
        }
        self.take_fragment(header, payload)
    }

    fn take_fragment(&mut self, header: Header, fragment: &[u8]) -> Result<Option<Found>, Fault> {
        let Some(block) = &mut self.block_of else { return Ok(None) };
        block.frames += 1;
        self.block.extend_from_slice(fragment);
        if self.block.len() > limits::HTTP2_BLOCK_BYTES || block.frames > limits::HTTP2_BLOCK_FRAMES {
            return Err(Fault::Connection(Code::ENHANCE_YOUR_CALM, "a header block has no end"));
        }
        if !header.has(END_HEADERS) {
            return Ok(None);
        }
        let Block { stream, ends, .. } = *block;
        self.block_of = None;
        let decoded = self.decoder.decode(&self.block, &mut self.fields);
        decoded.map_err(|why| Fault::Connection(Code::COMPRESSION_ERROR, why))?;
        match self.meets(stream)? {
            Meets::Open(place) => self.take_fields(place, stream, ends),
            Meets::Reset => Ok(None),
            Meets::Closed => Err(AFTER_THE_END),
        }
    }

    /// A whole list of fields: interim, final, or trailers.
    fn take_fields(&mut self, place: usize, id: StreamId, ends: bool) -> Result<Option<Found>, Fault> {
        let Some(stream) = self.streams.get_mut(place) else { return Ok(None) };
        let fields = self.fields.all();
        if self.fields.is_cut() {
            return Err(Fault::Stream(Code::ENHANCE_YOUR_CALM, "too many fields come at once"));
        }
        let found = match &mut stream.due {
            Due::Content { .. } if !ends => return Err(malformed("trailers are not the end of their stream")),
            Due::Content { .. } => {
                message::check_trailers(fields).map_err(malformed)?;
                Found::Trailers { stream: id }
            }
            Due::Nothing => {
                return Err(Fault::Stream(Code::STREAM_CLOSED, "fields come after the end of their request"));
            }
            Due::Request => {
                message::check_request(fields).map_err(malformed)?;
                stream.due = Due::Content { left: message::content_length(200, fields).map_err(malformed)? };
                Found::Headers { stream: id, status: 0, ends }
            }
            Due::Fields { interim } => {
                let status = message::status(fields).map_err(malformed)?;
                if status < 200 {
                    *interim += 1;
                    return match status {
                        // RFC 9113 8.6: nothing switches protocols here.
                        101 => Err(malformed("it switches protocols")),
                        _ if ends => Err(malformed("an interim answer is the end of its stream")),
                        _ if *interim > limits::HTTP2_INTERIM_ANSWERS => {
                            Err(Fault::Stream(Code::ENHANCE_YOUR_CALM, "too many interim answers come"))
                        }
                        _ => Ok(None),
                    };
                }
                stream.due = Due::Content { left: message::content_length(status, fields).map_err(malformed)? };
                Found::Headers { stream: id, status, ends }
            }
        };
        if ends {
            // As much as was announced must have come.
            stream.take(0, 0, true)?;
            self.end(place);
        }
        Ok(Some(found))
    }

    fn take_priority(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        match (header.stream, payload.len()) {
            (0, _) => Err(NO_STREAM),
            (_, 5) => Ok(()),
            _ => Err(Fault::Stream(Code::FRAME_SIZE_ERROR, "a PRIORITY has not five bytes")),
        }
    }

    fn take_reset(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        let meets = self.meets(header.stream)?;
        if payload.len() != 4 {
            return Err(WRONG_SIZE);
        }
        if let Meets::Open(place) = meets
            && let Some(stream) = self.streams.get_mut(place)
        {
            stream.reset = Some((Code(frame::first_number(payload)), None));
        }
        Ok(())
    }

    fn take_settings(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        if header.stream != 0 {
            return Err(A_STREAM);
        }
        if !payload.len().is_multiple_of(6) || header.has(ACK) && !payload.is_empty() {
            return Err(WRONG_SIZE);
        }
        if header.has(ACK) {
            return Ok(());
        }
        self.peer.has_settings = true;
        for (name, value) in frame::settings(payload) {
            match name {
                frame::HEADER_TABLE_SIZE => self.encoder.set_table_bytes(value as usize),
                frame::ENABLE_PUSH if value > self.most_push() => {
                    return Err(protocol("it says of pushes what nobody may"));
                }
                frame::MAX_CONCURRENT_STREAMS => self.peer.streams = value as usize,
                frame::INITIAL_WINDOW_SIZE if value > MOST => {
                    return Err(Fault::Connection(Code::FLOW_CONTROL_ERROR, WINDOW_TOO_WIDE));
                }
                frame::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - self.peer.stream_window;
                    self.peer.stream_window = value.into();
                    if !self.streams.iter_mut().all(|stream| widen(&mut stream.send_window, change)) {
                        return Err(Fault::Connection(Code::FLOW_CONTROL_ERROR, WINDOW_TOO_WIDE));
                    }
                }
                frame::MAX_FRAME_SIZE if !(PAYLOAD_BYTES..1 << 24).contains(&(value as usize)) => {
                    return Err(protocol("its largest frame is out of bounds"));
                }
                frame::MAX_FRAME_SIZE => self.peer.payload_bytes = value as usize,
                _ => {}
            }
        }
        self.reply(SETTINGS, &[])?;
        self.write_unsent();
        Ok(())
    }

    fn take_ping(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        match (header.stream, payload.len()) {
            (1.., _) => Err(A_STREAM),
            (_, 8) if header.has(ACK) => Ok(()),
            (_, 8) => self.reply(PING, payload),
            _ => Err(WRONG_SIZE),
        }
    }

    /// Says ACK. Whoever asks faster than we can send is not answered for ever.
    fn reply(&mut self, kind: u8, payload: &[u8]) -> Result<(), Fault> {
        self.replies += 1;
        if self.replies > limits::HTTP2_REPLIES {
            return Err(Fault::Connection(Code::ENHANCE_YOUR_CALM, "too many frames come that want an answer"));
        }
        frame::write(&mut self.output, kind, ACK, 0, payload);
        Ok(())
    }

    fn take_goaway(&mut self, header: Header, payload: &[u8]) -> Result<Found, Fault> {
        if header.stream != 0 {
            return Err(A_STREAM);
        }
        let (Some(code), Some(debug_bytes)) = (payload.get(4..8), payload.len().checked_sub(8)) else {
            return Err(WRONG_SIZE);
        };
        let said = frame::first_31_bits(payload);
        let last = self.peer.last_stream.map_or(said, |before| before.min(said));
        self.peer.last_stream = Some(last);
        // What a client says is of streams that we never open.
        let is_refused = |stream: &&mut Stream| self.role == Role::Client && stream.id > last;
        for stream in self.streams.iter_mut().filter(is_refused) {
            stream.reset = Some((Code::REFUSED_STREAM, None));
        }
        let debug = (self.looked_at - debug_bytes, self.looked_at);
        Ok(Found::GoAway { last, code: Code(frame::first_number(code)), debug })
    }

    fn take_window(&mut self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        let meets = if header.stream == 0 { None } else { Some(self.meets(header.stream)?) };
        if payload.len() != 4 {
            return Err(WRONG_SIZE);
        }
        let increment = frame::first_31_bits(payload);
        let window = match meets {
            None => &mut self.send_window,
            Some(Meets::Open(place)) => match self.streams.get_mut(place) {
                Some(stream) => &mut stream.send_window,
                None => return Ok(()),
            },
            Some(Meets::Reset | Meets::Closed) => return Ok(()),
        };
        let of = |code, why| if header.stream == 0 { Fault::Connection(code, why) } else { Fault::Stream(code, why) };
        if increment == 0 {
            return Err(of(Code::PROTOCOL_ERROR, "a window is widened by nothing"));
        }
        if !widen(window, increment.into()) {
            return Err(of(Code::FLOW_CONTROL_ERROR, WINDOW_TOO_WIDE));
        }
        self.write_unsent();
        Ok(())
    }
}
