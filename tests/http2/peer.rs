//! Turns what a test wants a peer to say into frames, and what a client does into lines: nothing of the product is used to read it.

use nodepulse::http2::{Code, Connection, Event, Field, StreamId};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// `:status: 200`, by its index.
pub const OK: &[u8] = &[0x88];

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        settings.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub fn headers(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, block)
}

/// A field as a literal that no table remembers.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The same bytes with other frames: `change` is given type, stream and payload of each, and answers whether it stays.
pub fn with_frames(bytes: &[u8], mut change: impl FnMut(u8, &mut u32, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let mut changed = if bytes.starts_with(PREFACE) { PREFACE.to_vec() } else { Vec::new() };
    for (kind, flags, mut stream, mut payload) in frames(bytes) {
        if change(kind, &mut stream, &mut payload) {
            changed.extend(frame(kind, flags, stream, &payload));
        }
    }
    changed
}

/// The frames of some bytes: type, flags, stream, payload.
pub fn frames(bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        let stream = u32::from_be_bytes(rest[5..9].try_into().unwrap());
        frames.push((rest[3], rest[4], stream, rest[9..9 + length].to_vec()));
        rest = &rest[9 + length..];
    }
    frames
}

pub fn output(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    connection.take_output(&mut bytes);
    bytes
}

pub fn get(connection: &mut Connection) -> StreamId {
    let fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "board")];
    connection.request(&fields.map(|(name, value)| Field::new(name, value)), b"", 0).unwrap()
}

/// All events of some bytes that come in pieces, one line each; the last line of a dead connection is `dead CODE`.
pub fn told(connection: &mut Connection, bytes: &[u8], piece_bytes: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        connection.receive(piece);
        loop {
            match connection.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => lines.push(line(event)),
                Err(error) => {
                    assert!(!error.why.is_empty());
                    lines.push(format!("dead {}", error.code.0));
                    return lines;
                }
            }
        }
    }
    lines
}

pub fn line(event: Event<'_>) -> String {
    let end = |ends| if ends { " end" } else { "" };
    match event {
        Event::Headers { stream, status, fields, ends } => {
            format!("{stream} {status} {}{}", fields.iter().count(), end(ends))
        }
        Event::Data { stream, bytes, ends } => format!("{stream} data {}{}", String::from_utf8_lossy(bytes), end(ends)),
        Event::Trailers { stream, fields } => format!("{stream} trailers {} end", fields.iter().count()),
        Event::Reset { stream, code: Code(code), broken_rule: Some(rule) } => {
            assert!(!rule.is_empty());
            format!("{stream} broken {code}")
        }
        Event::Reset { stream, code: Code(code), broken_rule: None } => format!("{stream} reset {code}"),
        Event::GoAway { last, code: Code(code), debug } => {
            format!("goaway {last} {code} {}", String::from_utf8_lossy(debug))
        }
    }
}
