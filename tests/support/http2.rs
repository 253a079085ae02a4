//! Turns the bytes of a client of HTTP/2 into its frames, and frames into bytes: the server's side, for tests. What it sends is
//! written with literals alone; only header blocks of the client are read by our own decoder.

#![allow(dead_code, reason = "several test crates use different parts")]

use crate::http2::{Decoder, FieldList};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const CANCEL: u32 = 8;
pub const REFUSED_STREAM: u32 = 7;

/// What a client said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The first settings of all: identifiers and values.
    Settings(Vec<(u16, u32)>),
    Acknowledged,
    Request {
        stream: u32,
        fields: Vec<(String, String)>,
        body: Vec<u8>,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    /// 0: the connection's.
    Window {
        stream: u32,
        bytes: u32,
    },
    GoAway {
        code: u32,
    },
    Pong,
}

impl Said {
    /// What a request says in this field.
    pub fn field(&self, name: &str) -> &str {
        let Said::Request { fields, .. } = self else { return "" };
        fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// A client, as its server sees it.
pub struct Client {
    input: Vec<u8>,
    decoder: Decoder,
    has_begun: bool,
    /// A request whose content is on its way.
    open: Option<Said>,
}

impl Default for Client {
    fn default() -> Client {
        Client { input: Vec::new(), decoder: Decoder::new(4096), has_begun: false, open: None }
    }
}

impl Client {
    /// Everything that these bytes complete.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.input.extend_from_slice(bytes);
        if !self.has_begun && self.input.len() >= PREFACE.len() {
            assert_eq!(self.input.drain(..PREFACE.len()).collect::<Vec<_>>(), PREFACE);
            self.has_begun = true;
        }
        let mut said = Vec::new();
        while let Some(length) = self.input.get(..9).filter(|_| self.has_begun).map(|head| number(&head[..3])) {
            if self.input.len() < 9 + length as usize {
                break;
            }
            let frame: Vec<u8> = self.input.drain(..9 + length as usize).collect();
            said.extend(self.frame(frame[3], frame[4], number(&frame[5..9]), &frame[9..]));
        }
        said
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<Said> {
        match kind {
            SETTINGS if flags & ACK != 0 => Some(Said::Acknowledged),
            SETTINGS => {
                let one = |entry: &[u8]| (number(&entry[..2]) as u16, number(&entry[2..]));
                Some(Said::Settings(payload.chunks(6).map(one).collect()))
            }
            HEADERS => {
                assert_eq!(flags & !END_STREAM, END_HEADERS);
                let mut list = FieldList::default();
                self.decoder.decode(payload, &mut list).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let fields = list.all().iter().map(|(name, value)| (text(name), text(value))).collect();
                self.open = Some(Said::Request { stream, fields, body: Vec::new() });
                self.open.take_if(|_| flags & END_STREAM != 0)
            }
            DATA => {
                let Some(Said::Request { stream: open, body, .. }) = &mut self.open else { panic!("DATA of nothing") };
                assert_eq!(*open, stream);
                body.extend_from_slice(payload);
                self.open.take_if(|_| flags & END_STREAM != 0)
            }
            RST_STREAM => Some(Said::Reset { stream, code: number(payload) }),
            WINDOW_UPDATE => Some(Said::Window { stream, bytes: number(payload) }),
            GOAWAY => Some(Said::GoAway { code: number(&payload[4..8]) }),
            PING => Some(Said::Pong),
            other => panic!("a client sends no frame of type {other}"),
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Any frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The server's first frame; without any setting.
pub fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[7; 8])
}

pub fn headers(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // Lengths of 127 and more are written otherwise.
    let field = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    let block: Vec<u8> = fields.iter().flat_map(field).collect();
    frame(HEADERS, END_HEADERS | u8::from(ends), stream, &block)
}

pub fn data(stream: u32, content: &[u8], ends: bool) -> Vec<u8> {
    frame(DATA, u8::from(ends), stream, content)
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// A whole answer to `request`, as an API server gives it: with the Audit-ID of the request.
pub fn answer(request: &Said, status: &str, content_type: &str, content: &[u8]) -> Vec<u8> {
    let Said::Request { stream, .. } = request else { panic!("{request:?} is no request") };
    let fields = [(":status", status), ("audit-id", request.field("audit-id")), ("content-type", content_type)];
    [headers(*stream, &fields, content.is_empty()), data(*stream, content, true)]
        .into_iter()
        .take(if content.is_empty() { 1 } else { 2 })
        .collect::<Vec<_>>()
        .concat()
}
