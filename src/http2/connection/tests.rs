//! Turns requests and frames of a peer into what a connection sends and tells: its own arithmetic, seen from outside.

use super::*;
use crate::http2::frame::{PING, SETTINGS};

const GREETING: usize = 24 + 9 + 18;
const OK: &[u8] = &[0x88];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, kind, flags, stream, payload);
    bytes
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_settings(&mut bytes, settings);
    bytes
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn output(connection: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    connection.take_output(&mut bytes);
    bytes
}

/// Types, streams and lengths of the frames in the output.
fn sent(connection: &mut Connection) -> Vec<(u8, u32, usize)> {
    let bytes = output(connection);
    let mut rest = bytes.strip_prefix(frame::PREFACE).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some(header) = frame::Header::read(rest) {
        frames.push((header.kind, header.stream, header.payload_bytes));
        rest = &rest[9 + header.payload_bytes..];
    }
    assert!(rest.is_empty());
    frames
}

/// What the events say, one line each.
fn told(connection: &mut Connection, bytes: &[u8]) -> Vec<String> {
    connection.receive(bytes);
    let mut lines = Vec::new();
    loop {
        lines.push(match connection.next_event() {
            Ok(None) => return lines,
            Ok(Some(event)) => line(&event),
            Err(error) => {
                lines.push(format!("dead {}", error.code.name()));
                return lines;
            }
        });
    }
}

fn line(event: &Event<'_>) -> String {
    match event {
        Event::Headers { stream, status, ends, .. } => format!("{stream} {status}{}", if *ends { " end" } else { "" }),
        Event::Data { stream, bytes, ends } => format!("{stream} +{}{}", bytes.len(), if *ends { " end" } else { "" }),
        Event::Trailers { stream, fields } => format!("{stream} trailers {}", fields.iter().count()),
        Event::Reset { stream, code, broken_rule } => {
            format!("{stream} {} {}", if broken_rule.is_some() { "we" } else { "peer" }, code.name())
        }
        Event::GoAway { last, code, debug } => format!("goaway {last} {} {}", code.name(), debug.len()),
    }
}

/// One that has heard the peer's SETTINGS, and answered.
fn greeted(stream_window: u32, of_peer: &[(u16, u32)]) -> Connection {
    let mut connection = Connection::client(stream_window);
    assert_eq!(told(&mut connection, &settings(of_peer)), [""; 0]);
    assert_eq!(output(&mut connection).len(), GREETING + 9);
    connection
}

fn ask(connection: &mut Connection, body: &[u8]) -> StreamId {
    let fields = [(":method", "PATCH"), (":scheme", "https"), (":path", "/a"), ("content-type", "text/plain")];
    connection.request(&fields.map(|(name, value)| Field::new(name, value)), body, 0).unwrap()
}

#[test]
fn a_connection_begins_with_the_preface_and_settings_and_the_first_request_follows_at_once() {
    let mut connection = Connection::client(0);
    ask(&mut connection, b"body");
    let bytes = output(&mut connection);
    assert!(bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0\0\x02\0\0\0\0"));
    assert!(bytes.ends_with(b"\0\0\x04\0\x01\0\0\0\x01body"));
    assert!(!connection.has_output());
}

#[test]
fn a_request_that_comes_again_costs_four_bytes_of_fields_and_the_reset_of_the_last_stream_rides_in_front() {
    let mut connection = greeted(0, &[]);
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let stream = ask(&mut connection, &[b'x'; 52]);
        sizes.push(output(&mut connection).len());
        assert_eq!(told(&mut connection, &frame(HEADERS, END_HEADERS, stream, OK)), [format!("{stream} 200")]);
        connection.reset(stream, Code::CANCEL, When::WithNext);
        assert!(!connection.has_output());
        assert_eq!(output(&mut connection), [0; 0], "nothing is sent for a reset's sake");
    }
    assert_eq!(&sizes[1..], [13 + 9 + 4 + 9 + 52; 2]);
    assert_eq!(connection.opening(), Opening::Now);
}

#[test]
fn a_reset_never_stands_in_front_of_its_own_request() {
    let mut connection = greeted(0, &[]);
    let stream = ask(&mut connection, b"");
    connection.reset(stream, Code::CANCEL, When::WithNext);
    let kinds: Vec<u8> = sent(&mut connection).into_iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [HEADERS, RST_STREAM]);
    let stream = ask(&mut connection, b"");
    output(&mut connection);
    connection.reset(stream, Code::CANCEL, When::Now);
    assert_eq!(sent(&mut connection), [(RST_STREAM, 3, 4)]);
    connection.reset(stream, Code::CANCEL, When::Now);
    connection.open_window(stream, 10);
    assert!(!connection.has_output(), "a stream that is over is left alone");
}

#[test]
fn what_was_on_its_way_when_we_reset_is_passed_over_and_counts_for_the_connection() {
    let mut connection = greeted(65_535, &[]);
    let stream = ask(&mut connection, b"");
    connection.reset(stream, Code::CANCEL, When::Now);
    output(&mut connection);
    // Its header block puts a field into the table that the next answer names.
    let fields = frame(HEADERS, END_HEADERS, stream, b"\x88\x40\x01a\x01b");
    let data = frame(DATA, 0, stream, &[0; 16_384]);
    let late = [fields, data.clone(), data, frame(RST_STREAM, 0, stream, &[0; 4]), window(stream, 0)].concat();
    assert_eq!(told(&mut connection, &late), [""; 0]);
    assert_eq!(sent(&mut connection), [(WINDOW_UPDATE, 0, 4)]);
    let next = ask(&mut connection, b"");
    assert_eq!(told(&mut connection, &frame(HEADERS, END_HEADERS | END_STREAM, next, b"\x88\xbe")), ["3 200 end"]);
}

#[test]
fn a_body_waits_for_the_windows_of_its_stream_and_of_the_connection() {
    let mut connection = greeted(0, &[(frame::INITIAL_WINDOW_SIZE, 10)]);
    ask(&mut connection, &[b'x'; 25]);
    assert_eq!(sent(&mut connection)[1..], [(DATA, 1, 10)]);
    told(&mut connection, &window(1, 5));
    assert_eq!(sent(&mut connection), [(DATA, 1, 5)]);
    told(&mut connection, &settings(&[(frame::INITIAL_WINDOW_SIZE, 2)]));
    told(&mut connection, &window(1, 8));
    assert_eq!(sent(&mut connection), [(SETTINGS, 0, 0)], "eight less and eight more are none");
    told(&mut connection, &window(1, 9));
    let last = output(&mut connection);
    assert_eq!(last, frame(DATA, 0, 1, &[b'x'; 9]));
    told(&mut connection, &window(1, 9));
    assert_eq!(output(&mut connection), frame(DATA, END_STREAM, 1, b"x"));

    let mut connection = greeted(0, &[(frame::INITIAL_WINDOW_SIZE, 1 << 20), (frame::MAX_FRAME_SIZE, 40_000)]);
    ask(&mut connection, &[b'x'; 65_000]);
    ask(&mut connection, &[b'y'; 1000]);
    let frames = sent(&mut connection);
    assert_eq!(frames[1..3], [(DATA, 1, 40_000), (DATA, 1, 25_000)]);
    assert_eq!(frames[4..], [(DATA, 3, 535)], "of the connection's 65,535");
    told(&mut connection, &window(0, 1000));
    assert_eq!(output(&mut connection), frame(DATA, END_STREAM, 3, &[b'y'; 465]));
}

#[test]
fn a_body_that_nobody_can_take_is_refused_before_anything_of_it_is_sent() {
    let mut connection = greeted(0, &[(frame::INITIAL_WINDOW_SIZE, 0)]);
    let half = vec![0; limits::HTTP2_UNSENT_BYTES / 2];
    ask(&mut connection, &half);
    ask(&mut connection, &half);
    output(&mut connection);
    assert_eq!(connection.request(&[], b"x", 0), Err(NotSent::TooLarge));
    assert!(!connection.has_output());
    connection.reset(1, Code::CANCEL, When::Now);
    ask(&mut connection, b"x");
}

#[test]
fn an_answer_that_ends_before_its_request_ends_that_too() {
    let mut connection = greeted(0, &[(frame::INITIAL_WINDOW_SIZE, 0)]);
    ask(&mut connection, b"body");
    output(&mut connection);
    assert_eq!(told(&mut connection, &frame(HEADERS, END_HEADERS | END_STREAM, 1, OK)), ["1 200 end"]);
    assert_eq!(output(&mut connection), frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()));
    assert_eq!(told(&mut connection, &frame(RST_STREAM, 0, 1, &[0; 4])), [""; 0], "the server's own is late");
}

#[test]
fn windows_are_returned_when_half_is_used_and_never_on_a_stream_that_is_over() {
    let mut connection = greeted(0, &[]);
    let stream = connection.request(&[Field::new(":method", "GET")], b"", 20_000).unwrap();
    assert_eq!(sent(&mut connection)[1..], [(WINDOW_UPDATE, stream, 4)]);
    told(&mut connection, &frame(HEADERS, END_HEADERS, stream, OK));
    assert_eq!(told(&mut connection, &frame(DATA, 0, stream, &[0; 9_999])), ["1 +9999"]);
    assert!(!connection.has_output());
    assert_eq!(told(&mut connection, &frame(DATA, 8, stream, &[0])), [""; 0], "padding alone is no event");
    assert_eq!(output(&mut connection), window(stream, 10_000), "and counts");
    for _ in 0..2 {
        told(&mut connection, &frame(DATA, 0, stream, &[0; 10_000]));
        assert_eq!(output(&mut connection), window(stream, 10_000));
    }
    told(&mut connection, &frame(DATA, END_STREAM, stream, &[0; 10_000]));
    assert_eq!(sent(&mut connection), [(WINDOW_UPDATE, 0, 4)], "the connection's, after half of 65,535");
}

#[test]
fn a_goaway_refuses_what_nobody_looked_at_and_lets_the_rest_end() {
    let mut connection = greeted(0, &[]);
    for _ in 0..3 {
        ask(&mut connection, b"");
    }
    let goaway = |last: u32| frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4], b"graceful"].concat());
    assert_eq!(told(&mut connection, &goaway(MOST)), [format!("goaway {MOST} NO_ERROR 8")]);
    assert_eq!((connection.opening(), connection.open_streams()), (Opening::Never, 3));
    let second = told(&mut connection, &goaway(1));
    assert_eq!(second, ["goaway 1 NO_ERROR 8", "3 peer REFUSED_STREAM", "5 peer REFUSED_STREAM"]);
    assert_eq!(told(&mut connection, &goaway(5)), ["goaway 1 NO_ERROR 8"], "it does not rise again");
    assert_eq!(told(&mut connection, &frame(HEADERS, 5, 1, OK)), ["1 200 end"]);
    assert_eq!(connection.request(&[], b"", 0), Err(NotSent::Never));
}

#[test]
fn no_more_streams_are_opened_than_the_peer_and_we_allow_and_there_are_numbers_for() {
    let mut connection = greeted(0, &[(frame::MAX_CONCURRENT_STREAMS, 1)]);
    ask(&mut connection, b"");
    assert_eq!((connection.opening(), connection.request(&[], b"", 0)), (Opening::Later, Err(NotSent::Later)));
    told(&mut connection, &settings(&[(frame::MAX_CONCURRENT_STREAMS, u32::MAX)]));
    for _ in 1..limits::HTTP2_STREAMS {
        ask(&mut connection, b"");
    }
    assert_eq!(connection.opening(), Opening::Later);
    assert_eq!(told(&mut connection, &frame(HEADERS, 5, 31, OK)), ["31 200 end"]);
    connection.next_stream = MOST;
    assert_eq!(ask(&mut connection, b""), MOST);
    told(&mut connection, &frame(HEADERS, 5, 1, OK));
    assert_eq!((connection.open_streams(), connection.opening()), (15, Opening::Never));
}

#[test]
fn fields_that_fit_no_frame_go_on_in_continuations() {
    let mut connection = greeted(0, &[]);
    let long = "~".repeat(40_000);
    connection.request(&[Field::new(":method", "GET"), Field::new("a", &long)], b"", 0).unwrap();
    let bytes = output(&mut connection);
    let mut rest = bytes.as_slice();
    let (mut frames, mut block) = (Vec::new(), Vec::new());
    while let Some(header) = frame::Header::read(rest) {
        frames.push((header.kind, header.flags, header.payload_bytes > 16_000));
        block.extend_from_slice(&rest[9..9 + header.payload_bytes]);
        rest = &rest[9 + header.payload_bytes..];
    }
    assert_eq!(frames, [(HEADERS, END_STREAM, true), (9, 0, true), (9, END_HEADERS, false)]);
    assert_eq!(block.len(), 1 + 3 + 4 + 40_000, "an index, a short name, a long value as it is");
}

#[test]
fn settings_and_pings_are_answered_and_a_close_is_said_once() {
    let mut connection = greeted(0, &[]);
    told(&mut connection, &frame(PING, 0, 0, b"12345678"));
    assert_eq!(output(&mut connection), frame(PING, 1, 0, b"12345678"));
    told(&mut connection, &[frame(PING, 1, 0, b"12345678"), frame(SETTINGS, 1, 0, b"")].concat());
    assert!(!connection.has_output(), "an ACK wants none");
    connection.close();
    connection.close();
    assert_eq!(sent(&mut connection), [(GOAWAY, 0, 8)]);
    assert_eq!(connection.opening(), Opening::Never);
    assert_eq!(told(&mut connection, &frame(PING, 0, 0, b"")), ["dead FRAME_SIZE_ERROR"]);
    assert_eq!(sent(&mut connection), [(GOAWAY, 0, 8)], "an error is another end");
}

#[test]
fn a_long_frame_leaves_no_memory_behind() {
    let mut connection = greeted(65_535, &[]);
    ask(&mut connection, &[0; 16_000]);
    assert!(output(&mut connection).len() > 16_000);
    assert!(connection.output.capacity() <= limits::CONNECTION_KEPT_BYTES);
    told(&mut connection, &frame(HEADERS, END_HEADERS, 1, OK));
    told(&mut connection, &frame(DATA, 0, 1, &[0; 16_384]));
    told(&mut connection, &frame(DATA, 0, 1, &[0; 10]));
    assert!(connection.input.capacity() <= limits::CONNECTION_KEPT_BYTES);
}
