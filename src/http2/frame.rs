//! Turns frames into bytes and bytes into frames (RFC 9113 4.1, 6): their headers, flags, padding and settings.

use super::error::{Code, Fault};

/// Length, type, flags and stream.
pub(super) const HEADER_BYTES: usize = 9;
/// The longest payload that may come, as we ask for none that is longer (`SETTINGS_MAX_FRAME_SIZE`); the same holds for
/// what is sent until the peer says otherwise.
pub(super) const PAYLOAD_BYTES: usize = 16_384;
/// What a client says first (RFC 9113 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of SETTINGS and PING.
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The highest bit of a stream and of an increment means nothing.
const RESERVED: u32 = 1 << 31;

/// What stands before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) payload_bytes: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    /// `None` while not all of it is there.
    pub(super) fn read(bytes: &[u8]) -> Option<Header> {
        let [a, b, c, kind, flags, s, t, u, v] = *bytes.first_chunk::<HEADER_BYTES>()?;
        let payload_bytes = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Header { payload_bytes, kind, flags, stream: u32::from_be_bytes([s, t, u, v]) & !RESERVED })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What is left of a payload of DATA or HEADERS without its padding and its priority.
    pub(super) fn content<'a>(&self, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
        let too_short = Fault::Connection(Code::FRAME_SIZE_ERROR, "a frame is shorter than what it must hold");
        let mut content = payload;
        let mut padding_bytes = 0;
        if self.has(PADDED) {
            let (first, rest) = content.split_first().ok_or(too_short)?;
            (padding_bytes, content) = (usize::from(*first), rest);
        }
        if self.kind == HEADERS && self.has(WITH_PRIORITY) {
            content = content.get(5..).ok_or(too_short)?;
        }
        let too_long = Fault::Connection(Code::PROTOCOL_ERROR, "a frame has more padding than payload");
        content.get(..content.len().checked_sub(padding_bytes).ok_or(too_long)?).ok_or(too_long)
    }
}

/// Appends a frame.
pub(super) fn write(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    output.extend_from_slice(&length);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

/// Appends a frame whose payload is one number: RST_STREAM, WINDOW_UPDATE.
pub(super) fn write_number(output: &mut Vec<u8>, kind: u8, stream: u32, number: u32) {
    write(output, kind, 0, stream, &number.to_be_bytes());
}

/// Appends SETTINGS.
pub(super) fn write_settings(output: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::new();
    for (name, value) in settings {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(output, SETTINGS, 0, 0, &payload);
}

/// The settings of a payload, whose length is known to be right.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.as_chunks().0.iter().map(|[a, b, c, d, e, f]| (u16::from_be_bytes([*a, *b]), number([*c, *d, *e, *f])))
}

fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// The four bytes that a payload begins with.
pub(super) fn first_number(payload: &[u8]) -> u32 {
    payload.first_chunk().copied().map_or(0, number)
}

/// The same, where the highest bit means nothing: an increment, a stream.
pub(super) fn first_31_bits(payload: &[u8]) -> u32 {
    first_number(payload) & !RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, flags: u8) -> Header {
        Header { payload_bytes: 0, kind, flags, stream: 1 }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 0x7fff_fffd, &[7; 300]);
        assert_eq!(bytes.len(), 309);
        let read = Header { payload_bytes: 300, kind: HEADERS, flags: 5, stream: 0x7fff_fffd };
        assert_eq!(Header::read(&bytes), Some(read));
        assert_eq!(Header::read(&bytes[..8]), None);
        bytes[5] |= 0x80;
        assert_eq!(Header::read(&bytes), Some(read), "the reserved bit is ignored");
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let told = [(INITIAL_WINDOW_SIZE, 0), (MAX_FRAME_SIZE, u32::MAX), (0xffff, 1)];
        let mut bytes = Vec::new();
        write_settings(&mut bytes, &told);
        assert_eq!(settings(&bytes[HEADER_BYTES..]).collect::<Vec<_>>(), told);
    }

    #[test]
    fn padding_and_priority_are_taken_off() {
        let of = |kind, flags, payload: &'static [u8]| header(kind, flags).content(payload);
        assert_eq!(of(DATA, 0, b"ab"), Ok(&b"ab"[..]));
        assert_eq!(of(DATA, PADDED, b"\x02ab\0\0"), Ok(&b"ab"[..]));
        assert_eq!(of(DATA, PADDED, b"\x02\0\0"), Ok(&b""[..]), "nothing but padding");
        assert_eq!(of(DATA, WITH_PRIORITY, b"abcdefg"), Ok(&b"abcdefg"[..]), "DATA has no priority");
        assert_eq!(of(HEADERS, WITH_PRIORITY, b"12345ab"), Ok(&b"ab"[..]));
        assert_eq!(of(HEADERS, PADDED | WITH_PRIORITY, b"\x0112345ab\0"), Ok(&b"ab"[..]));
        let code = |kind, flags, payload| of(kind, flags, payload).map_err(Fault::code);
        assert_eq!(code(DATA, PADDED, b""), Err(Code::FRAME_SIZE_ERROR));
        assert_eq!(code(DATA, PADDED, b"\x03\0\0"), Err(Code::PROTOCOL_ERROR));
        assert_eq!(code(HEADERS, PADDED | WITH_PRIORITY, b"\x01123"), Err(Code::FRAME_SIZE_ERROR));
        assert_eq!(code(HEADERS, PADDED | WITH_PRIORITY, b"\x0112345"), Err(Code::PROTOCOL_ERROR));
    }
}
