//! Turns frames that come without end into the end of their connection, within the limits of `config/limits.rs`.

use nodepulse::config::limits;
use nodepulse::http2::Connection;

use super::peer::*;

fn greeted() -> Connection {
    let mut connection = Connection::client(0);
    get(&mut connection);
    assert_eq!(told(&mut connection, &settings(&[]), 99), [""; 0]);
    output(&mut connection);
    connection
}

/// How many of these frames are taken before the connection ends, where what is to be sent is sent or not.
fn taken(each: &[u8], is_sent: bool) -> usize {
    let mut connection = greeted();
    for count in 0..100_000 {
        match told(&mut connection, each, each.len()).last().map(String::as_str) {
            None => {}
            Some("dead 11") => return count,
            Some(other) => panic!("{other}"),
        }
        if is_sent {
            output(&mut connection);
        }
    }
    panic!("there is no end");
}

#[test]
fn frames_that_say_nothing_end_the_connection() {
    for (what, each) in [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("PING ACK", frame(PING, ACK, 0, &[0; 8])),
        ("SETTINGS", settings(&[(4, 65_535)])),
        ("SETTINGS ACK", frame(SETTINGS, ACK, 0, &[])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0; 5])),
        ("an unknown type", frame(0x77, 0, 0, &[])),
    ] {
        let count = taken(&each, true);
        assert!(count < limits::HTTP2_IDLE_FRAMES as usize, "{what}: {count}");
    }
    let mut connection = Connection::client(0);
    get(&mut connection);
    let begin = [settings(&[]), headers(0, 1, OK)].concat();
    assert_eq!(told(&mut connection, &begin, 999), ["1 200 1"]);
    let empty = frame(DATA, 0, 1, &[]).repeat(limits::HTTP2_IDLE_FRAMES as usize);
    assert_eq!(told(&mut connection, &empty, empty.len()), [""; 0]);
    assert_eq!(told(&mut connection, &frame(DATA, 0, 1, &[]), 99), ["dead 11"], "empty DATA");
}

#[test]
fn replies_that_cannot_be_sent_are_few() {
    for each in [frame(PING, 0, 0, &[0; 8]), settings(&[])] {
        assert_eq!(taken(&each, false), limits::HTTP2_REPLIES);
    }
}

#[test]
fn a_request_between_them_says_that_the_connection_is_of_use() {
    let mut connection = greeted();
    for _ in 0..5 {
        let pings = frame(PING, 0, 0, &[0; 8]).repeat(limits::HTTP2_REPLIES);
        for _ in 0..9 {
            assert_eq!(told(&mut connection, &pings, pings.len()), [""; 0]);
            assert_eq!(frames(&output(&mut connection)).len(), limits::HTTP2_REPLIES);
        }
        let stream = get(&mut connection);
        told(&mut connection, &headers(END_STREAM, stream, OK), 99);
        output(&mut connection);
    }
}

#[test]
fn a_header_block_without_end_ends_the_connection() {
    for (size, frames) in [(0, limits::HTTP2_BLOCK_FRAMES), (16_384, limits::HTTP2_BLOCK_BYTES / 16_384)] {
        let mut connection = greeted();
        assert_eq!(told(&mut connection, &frame(HEADERS, 0, 1, &vec![0x88; size]), usize::MAX), [""; 0]);
        let more = frame(CONTINUATION, 0, 1, &vec![0x88; size]);
        for _ in 1..frames {
            assert_eq!(told(&mut connection, &more, usize::MAX), [""; 0]);
        }
        assert_eq!(told(&mut connection, &more, usize::MAX), ["dead 11"], "frames of {size}");
    }
}

#[test]
fn streams_that_are_reset_again_and_again_are_only_those_that_we_open() {
    let mut connection = greeted();
    let resets: Vec<u8> = (0..900).flat_map(|_| frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])).collect();
    assert_eq!(told(&mut connection, &resets, 13), ["1 reset 8"]);
    assert!(!connection.has_output());
}
