//! Turns each rule of RFC 9113 that a server can break into bytes that break it, and the code that they are answered with.

use nodepulse::http2::{Code, Connection, When};

use super::peer::*;

/// What a breach ends: everything, or the stream of this number. 0 codes do not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Connection(u32),
    Stream(u32, u32),
    Nothing,
}
use Ends::{Nothing, Stream};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Stream 1 waits for its answer, of 3 the fields have come, 5 has ended, 7 was reset by us, 9 brings 5 bytes, 11 has a window of
/// 10 bytes, 13 waits for its answer, 15 was reset by the server. 17 is opened next.
fn prepared() -> Connection {
    let mut connection = Connection::client(10);
    let mut say = settings(&[]);
    for _ in 0..8 {
        get(&mut connection);
    }
    for stream in [3, 5, 9, 11] {
        say.extend(match stream {
            5 => headers(END_STREAM, stream, OK),
            9 => headers(0, stream, &[OK, &literal("content-length", "5")].concat()),
            _ => headers(0, stream, OK),
        });
    }
    say.extend(frame(RST_STREAM, 0, 15, &[0, 0, 0, 8]));
    assert_eq!(told(&mut connection, &say, say.len()), ["3 200 1", "5 200 1 end", "9 200 2", "11 200 1", "15 reset 8"]);
    connection.open_window(3, 1 << 20);
    connection.reset(7, Code::CANCEL, When::Now);
    output(&mut connection);
    connection
}

type Row = (&'static str, Vec<u8>, Ends);

fn of_frames() -> Vec<Row> {
    let whole = Ends::Connection;
    vec![
        ("4.2: a frame above SETTINGS_MAX_FRAME_SIZE", frame(DATA, 0, 3, &[0; 16_385]), whole(FRAME_SIZE_ERROR)),
        ("4.2: of any type", frame(0xfe, 0, 0, &[0; 16_385]), whole(FRAME_SIZE_ERROR)),
        ("4.3: a block that does not decompress", headers(0, 1, &[0x80]), whole(COMPRESSION_ERROR)),
        ("4.3: on a stream that is over", headers(0, 7, &[0xff, 0xff, 0xff, 0xff, 1]), whole(COMPRESSION_ERROR)),
        ("4.3: a block that is cut", headers(0, 1, &[0x40]), whole(COMPRESSION_ERROR)),
        ("4.3.1: a table above the one agreed", headers(0, 1, &[0x3f, 0xe2, 0x1f, 0x88]), whole(COMPRESSION_ERROR)),
        ("5.1: DATA on an idle stream", frame(DATA, 0, 17, b"x"), whole(PROTOCOL_ERROR)),
        ("5.1: HEADERS on an idle stream", headers(0, 17, OK), whole(PROTOCOL_ERROR)),
        ("5.1: RST_STREAM on an idle stream", frame(RST_STREAM, 0, 17, &[0; 4]), whole(PROTOCOL_ERROR)),
        ("5.1: WINDOW_UPDATE on an idle stream", frame(WINDOW_UPDATE, 0, 17, &[0, 0, 0, 1]), whole(PROTOCOL_ERROR)),
        ("5.1: PRIORITY on an idle stream", frame(PRIORITY, 0, 17, &[0; 5]), Nothing),
        ("5.1: DATA after the end", frame(DATA, 0, 5, b"x"), whole(STREAM_CLOSED)),
        ("5.1: HEADERS after the end", headers(END_STREAM, 5, OK), whole(STREAM_CLOSED)),
        ("5.1: HEADERS after its own RST_STREAM", headers(END_STREAM, 15, OK), whole(STREAM_CLOSED)),
        ("5.1: WINDOW_UPDATE after the end", frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]), Nothing),
        ("5.1: RST_STREAM after the end", frame(RST_STREAM, 0, 5, &[0; 4]), Nothing),
        ("5.1: HEADERS after our reset", headers(END_STREAM, 7, OK), Nothing),
        ("5.1: DATA after our reset", frame(DATA, END_STREAM, 7, b"x"), Nothing),
        ("5.1.1: a stream that the server opened", headers(0, 2, OK), whole(PROTOCOL_ERROR)),
        ("5.5: an unknown frame", frame(0x42, 0xff, 3, b"anything"), Nothing),
        ("5.5: the same where nothing else may stand", within_a_block(&frame(0x42, 0, 1, b"")), whole(PROTOCOL_ERROR)),
        ("6.1: DATA without a stream", frame(DATA, 0, 0, b"x"), whole(PROTOCOL_ERROR)),
        ("6.1: more padding than payload", frame(DATA, PADDED, 3, &[3, 0, 0]), whole(PROTOCOL_ERROR)),
        ("6.1: padded without a length", frame(DATA, PADDED, 3, &[]), whole(FRAME_SIZE_ERROR)),
        ("6.2: HEADERS without a stream", headers(0, 0, OK), whole(PROTOCOL_ERROR)),
        ("6.2: more padding than payload", headers(PADDED, 1, &[2, 0x88]), whole(PROTOCOL_ERROR)),
        ("6.2: a priority that is cut", headers(0x20, 1, &[0, 0, 0, 0]), whole(FRAME_SIZE_ERROR)),
        ("6.2: a frame within a block", within_a_block(&frame(PING, 0, 0, &[0; 8])), whole(PROTOCOL_ERROR)),
        ("6.2: HEADERS within a block", within_a_block(&headers(0, 1, OK)), whole(PROTOCOL_ERROR)),
        ("6.3: PRIORITY without a stream", frame(PRIORITY, 0, 0, &[0; 5]), whole(PROTOCOL_ERROR)),
        ("6.3: PRIORITY of another length", frame(PRIORITY, 0, 1, &[0; 4]), Stream(1, FRAME_SIZE_ERROR)),
        ("6.3: the same, no stream to end", frame(PRIORITY, 0, 17, &[0; 6]), whole(FRAME_SIZE_ERROR)),
        ("6.4: RST_STREAM without a stream", frame(RST_STREAM, 0, 0, &[0; 4]), whole(PROTOCOL_ERROR)),
        ("6.4: RST_STREAM of another length", frame(RST_STREAM, 0, 1, &[0; 5]), whole(FRAME_SIZE_ERROR)),
    ]
}

/// A frame between HEADERS and the CONTINUATION that they need.
fn within_a_block(between: &[u8]) -> Vec<u8> {
    [&frame(HEADERS, 0, 1, &[]), between, &frame(CONTINUATION, END_HEADERS, 1, OK)].concat()
}

fn of_the_connection() -> Vec<Row> {
    let whole = Ends::Connection;
    let one = |name: u16, value: u32| settings(&[(name, value)]);
    let window = |stream, increment: u32| frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    let twice = |bytes: Vec<u8>| [bytes.clone(), bytes].concat();
    vec![
        ("6.5: SETTINGS on a stream", frame(SETTINGS, 0, 1, &[]), whole(PROTOCOL_ERROR)),
        ("6.5: SETTINGS of another length", frame(SETTINGS, 0, 0, &[0; 5]), whole(FRAME_SIZE_ERROR)),
        ("6.5: an ACK that says something", frame(SETTINGS, ACK, 0, &[0; 6]), whole(FRAME_SIZE_ERROR)),
        ("6.5.2: ENABLE_PUSH from a server", one(2, 1), whole(PROTOCOL_ERROR)),
        ("6.5.2: ENABLE_PUSH that is no boolean", one(2, 2), whole(PROTOCOL_ERROR)),
        ("6.5.2: ENABLE_PUSH off", one(2, 0), Nothing),
        ("6.5.2: a window above 2^31-1", one(4, 1 << 31), whole(FLOW_CONTROL_ERROR)),
        ("6.5.2: frames below 2^14", one(5, 16_383), whole(PROTOCOL_ERROR)),
        ("6.5.2: frames above 2^24-1", one(5, 1 << 24), whole(PROTOCOL_ERROR)),
        ("6.5.2: the longest frames", one(5, (1 << 24) - 1), Nothing),
        ("6.5.2: an unknown setting", one(0xfafa, u32::MAX), Nothing),
        ("6.6, 8.4: PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), whole(PROTOCOL_ERROR)),
        ("6.7: PING on a stream", frame(PING, 0, 1, &[0; 8]), whole(PROTOCOL_ERROR)),
        ("6.7: PING of another length", frame(PING, 0, 0, &[0; 7]), whole(FRAME_SIZE_ERROR)),
        ("6.7: an ACK that nobody asked for", frame(PING, ACK, 0, &[0; 8]), Nothing),
        ("6.8: GOAWAY on a stream", frame(GOAWAY, 0, 1, &[0; 8]), whole(PROTOCOL_ERROR)),
        ("6.8: GOAWAY that is cut", frame(GOAWAY, 0, 0, &[0; 7]), whole(FRAME_SIZE_ERROR)),
        ("6.9: WINDOW_UPDATE of another length", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), whole(FRAME_SIZE_ERROR)),
        ("6.9: the same on a stream", frame(WINDOW_UPDATE, 0, 1, &[0; 5]), whole(FRAME_SIZE_ERROR)),
        ("6.9: by nothing", window(0, 0), whole(PROTOCOL_ERROR)),
        ("6.9: by nothing, on a stream", window(1, 0), Stream(1, PROTOCOL_ERROR)),
        ("6.9: by nothing but the reserved bit", window(1, 1 << 31), Stream(1, PROTOCOL_ERROR)),
        ("6.9.1: above 2^31-1", twice(window(0, (1 << 31) - 1)), whole(FLOW_CONTROL_ERROR)),
        ("6.9.1: above 2^31-1, a stream", twice(window(1, 1 << 30)), Stream(1, FLOW_CONTROL_ERROR)),
        (
            "6.9.2: a setting that widens a stream above",
            [window(1, 1 << 30), one(4, 1 << 30)].concat(),
            whole(FLOW_CONTROL_ERROR),
        ),
        ("6.9.1: DATA beyond the stream's window", frame(DATA, 0, 11, &[0; 11]), Stream(11, FLOW_CONTROL_ERROR)),
        (
            "6.9.1: padding counts",
            frame(DATA, PADDED, 11, &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Stream(11, FLOW_CONTROL_ERROR),
        ),
        (
            "6.9: an empty DATA is always allowed",
            [frame(DATA, 0, 11, &[0; 10]), frame(DATA, 0, 11, &[])].concat(),
            Nothing,
        ),
        ("6.10: CONTINUATION without HEADERS", frame(CONTINUATION, END_HEADERS, 1, OK), whole(PROTOCOL_ERROR)),
        ("6.10: CONTINUATION without a stream", frame(CONTINUATION, END_HEADERS, 0, OK), whole(PROTOCOL_ERROR)),
        (
            "6.10: of another stream",
            [frame(HEADERS, 0, 1, &[]), frame(CONTINUATION, 4, 13, OK)].concat(),
            whole(PROTOCOL_ERROR),
        ),
        (
            "6.10: after the end of the block",
            [headers(0, 1, OK), frame(CONTINUATION, 4, 1, &[])].concat(),
            whole(PROTOCOL_ERROR),
        ),
    ]
}

fn of_messages() -> Vec<Row> {
    let malformed = |stream| Stream(stream, PROTOCOL_ERROR);
    let answer = |fields: &[(&str, &str)]| {
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        headers(0, 1, &block)
    };
    let with = |name: &str, value: &str| answer(&[(":status", "200"), (name, value)]);
    let interim = |flags, status: &str| headers(flags, 1, &literal(":status", status));
    vec![
        ("8.1: DATA before the fields", frame(DATA, 0, 1, b"x"), malformed(1)),
        ("8.1: trailers that do not end their stream", headers(0, 3, &literal("a", "b")), malformed(3)),
        ("8.1: trailers with a pseudo-field", headers(END_STREAM, 3, OK), malformed(3)),
        ("8.1: an interim answer that ends", interim(END_STREAM, "100"), malformed(1)),
        ("8.1.1: more content than announced", frame(DATA, 0, 9, b"123456"), malformed(9)),
        ("8.1.1: less content than announced", frame(DATA, END_STREAM, 9, b"1234"), malformed(9)),
        ("8.1.1: trailers before all of it", headers(END_STREAM, 9, &literal("a", "b")), malformed(9)),
        (
            "8.1.1: none where some was announced",
            headers(END_STREAM, 1, &[OK, &literal("content-length", "1")].concat()),
            malformed(1),
        ),
        ("8.1.1: a length that is no number", with("content-length", "1x"), malformed(1)),
        (
            "8.1.1: two lengths",
            answer(&[(":status", "200"), ("content-length", "1"), ("content-length", "2")]),
            malformed(1),
        ),
        ("8.2.1: an upper-case name", with("Date", "x"), malformed(1)),
        ("8.2.1: an empty name", with("", "x"), malformed(1)),
        ("8.2.1: a blank in a name", with("a b", "x"), malformed(1)),
        ("8.2.1: a colon in a name", with("a:b", "x"), malformed(1)),
        ("8.2.1: NUL in a value", with("a", "x\0y"), malformed(1)),
        ("8.2.1: CR in a value", with("a", "x\ry"), malformed(1)),
        ("8.2.1: LF in a value", with("a", "x\ny"), malformed(1)),
        ("8.2.1: a blank before a value", with("a", " x"), malformed(1)),
        ("8.2.1: a tab behind a value", with("a", "x\t"), malformed(1)),
        ("8.2.1: in trailers too", headers(END_STREAM, 3, &literal("A", "b")), malformed(3)),
        ("8.2.2: connection", with("connection", "close"), malformed(1)),
        ("8.2.2: keep-alive", with("keep-alive", "timeout=5"), malformed(1)),
        ("8.2.2: proxy-connection", with("proxy-connection", "close"), malformed(1)),
        ("8.2.2: transfer-encoding", with("transfer-encoding", "chunked"), malformed(1)),
        ("8.2.2: upgrade", with("upgrade", "h2c"), malformed(1)),
        ("8.3: a pseudo-field of requests", with(":path", "/"), malformed(1)),
        ("8.3: an unknown pseudo-field", with(":unknown", "x"), malformed(1)),
        ("8.3: a pseudo-field behind others", answer(&[("a", "b"), (":status", "200")]), malformed(1)),
        ("8.3.2: no status", answer(&[("a", "b")]), malformed(1)),
        ("8.3.2: no field at all", headers(0, 1, &[]), malformed(1)),
        ("8.3.2: two", answer(&[(":status", "200"), (":status", "200")]), malformed(1)),
        ("8.3.2: one that is no number", answer(&[(":status", "2x0")]), malformed(1)),
        ("8.6: 101", interim(0, "101"), malformed(1)),
        ("10.5: interim answers without end", interim(0, "103").repeat(9), Stream(1, ENHANCE_YOUR_CALM)),
        ("10.5.1: a list above SETTINGS_MAX_HEADER_LIST_SIZE", long_list(), Stream(1, ENHANCE_YOUR_CALM)),
    ]
}

/// One field of 250 bytes, put into the table once and named a hundred times.
fn long_list() -> Vec<u8> {
    let mut block = vec![0x88, 0x40, 1, b'a', 0x7f, 123];
    block.extend_from_slice(&[b'x'; 250]);
    block.extend_from_slice(&[0xbe; 100]);
    headers(0, 1, &block)
}

fn hold(rows: Vec<Row>) {
    for (rule, bytes, ends) in rows {
        for piece_bytes in [1, 7, bytes.len()] {
            let mut connection = prepared();
            let lines = told(&mut connection, &bytes, piece_bytes);
            let sent = frames(&output(&mut connection));
            let code = |kind| {
                sent.iter().rev().find(|frame| frame.0 == kind).map(|frame| {
                    let number: [u8; 4] = frame.3[frame.3.len() - 4..].try_into().unwrap();
                    (frame.2, u32::from_be_bytes(number))
                })
            };
            let last = lines.last().map(String::as_str).unwrap_or_default();
            match ends {
                Ends::Connection(expected) => {
                    assert_eq!(last, format!("dead {expected}"), "{rule}: {lines:?}");
                    assert_eq!(code(GOAWAY), Some((0, expected)), "{rule}: {sent:?}");
                    assert_eq!(told(&mut connection, &headers(0, 13, OK), 99), [format!("dead {expected}")], "{rule}");
                    assert!(connection.next_event().is_err() && !connection.has_output(), "{rule}: it stays dead");
                    continue;
                }
                Stream(stream, expected) => {
                    assert_eq!(last, format!("{stream} broken {expected}"), "{rule}: {lines:?}");
                    assert_eq!(code(RST_STREAM), Some((stream, expected)), "{rule}: {sent:?}");
                }
                Nothing => {
                    assert!(code(RST_STREAM).is_none() && !last.contains("broken"), "{rule}: {lines:?} {sent:?}")
                }
            }
            assert_eq!(code(GOAWAY), None, "{rule}");
            assert_eq!(
                told(&mut connection, &headers(END_STREAM, 13, OK), 1),
                ["13 200 1 end"],
                "{rule}: the others go on"
            );
        }
    }
}

#[test]
fn a_breach_of_the_rules_of_frames_and_streams_is_answered_with_its_code() {
    hold(of_frames());
}

#[test]
fn a_breach_of_the_rules_of_settings_and_windows_is_answered_with_its_code() {
    hold(of_the_connection());
}

#[test]
fn a_malformed_answer_ends_its_stream_and_no_other() {
    hold(of_messages());
}

#[test]
fn a_peer_that_does_not_begin_with_settings_speaks_something_else() {
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        frame(SETTINGS, ACK, 0, &[]),
        headers(0, 1, OK),
        frame(PING, 0, 0, &[0; 8]),
        b"\x15\x03\x03\0\x02\x02\x46\0\0".to_vec(),
    ] {
        let mut connection = Connection::client(0);
        get(&mut connection);
        assert_eq!(told(&mut connection, &bytes, 1), ["dead 1"]);
    }
}
