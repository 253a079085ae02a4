//! Turns clients that keep the rules, break each of them, or are somebody else's program into proof of the server's side.

use std::collections::BTreeMap;

use nodepulse::http2::{Connection, Event, Field, NotSent};
use shiguredo_http2 as other;

use super::another::{Random, bytes, field};
use super::peer::*;

/// `:method: POST`, `:scheme: http`, `:path: /`, by their indices.
const REQUEST: &[u8] = &[0x83, 0x86, 0x84];

fn greeted() -> Connection {
    let mut server = Connection::server(1000);
    assert_eq!(told(&mut server, &[PREFACE, &settings(&[])].concat(), 7), [""; 0]);
    output(&mut server);
    server
}

fn answer(server: &mut Connection, stream: u32, content: &[u8]) -> Result<(), NotSent> {
    server.answer(stream, &[Field::new(":status", "200")], content, &[Field::new("grpc-status", "0")])
}

/// Type, flags and stream of what is sent.
fn sent(server: &mut Connection) -> Vec<(u8, u8, u32)> {
    frames(&output(server)).into_iter().map(|(kind, flags, stream, _)| (kind, flags, stream)).collect()
}

#[test]
fn a_server_says_its_settings_at_once_and_takes_nothing_before_the_preface() {
    let mut server = Connection::server(1000);
    assert_eq!(sent(&mut server), [(SETTINGS, 0, 0)]);
    for wrong in [&b"GET / HTTP/1.1\r\n"[..], b"X", &settings(&[]), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"] {
        assert_eq!(told(&mut Connection::server(1000), wrong, 3), ["dead 1"], "{wrong:?}");
    }
    let no_settings = [PREFACE, &headers(END_STREAM, 1, REQUEST)].concat();
    assert_eq!(told(&mut server, &no_settings, 5), ["dead 1"]);
}

#[test]
fn a_request_is_told_and_its_answer_ends_the_stream() {
    let mut server = greeted();
    let request = [headers(0, 1, REQUEST), frame(DATA, 0, 1, b"ab"), frame(DATA, END_STREAM, 1, b"c")].concat();
    for piece in [1, 4, 100] {
        let mut server = greeted();
        assert_eq!(told(&mut server, &request, piece), ["1 0 3", "1 data ab", "1 data c end"]);
    }
    told(&mut server, &request, 100);
    assert_eq!(server.open_streams(), 1);
    assert_eq!(answer(&mut server, 1, b"xyz"), Ok(()));
    let all = [(HEADERS, END_HEADERS, 1), (DATA, 0, 1), (HEADERS, END_HEADERS | END_STREAM, 1)];
    assert_eq!(sent(&mut server), all);
    assert_eq!((server.open_streams(), answer(&mut server, 1, b"twice")), (0, Ok(())), "which means nothing");
    assert_eq!(sent(&mut server), []);
    assert_eq!(told(&mut server, &headers(END_STREAM, 5, REQUEST), 100), ["5 0 3 end"], "numbers may be left out");
    assert_eq!(server.answer(5, &[Field::new(":status", "415")], b"", &[]), Ok(()));
    assert_eq!(sent(&mut server), [(HEADERS, END_HEADERS | END_STREAM, 5)]);
}

#[test]
fn an_answer_before_the_end_of_its_request_ends_that_too_and_what_comes_late_is_no_fault() {
    let mut server = greeted();
    told(&mut server, &headers(0, 1, REQUEST), 100);
    assert_eq!(server.answer(1, &[Field::new(":status", "415")], b"", &[]), Ok(()));
    assert_eq!(sent(&mut server), [(HEADERS, END_HEADERS | END_STREAM, 1), (RST_STREAM, 0, 1)]);
    assert_eq!(told(&mut server, &frame(DATA, END_STREAM, 1, b"late"), 100), [""; 0]);
    assert_eq!(told(&mut server, &headers(END_STREAM, 3, REQUEST), 100), ["3 0 3 end"]);
}

#[test]
fn each_rule_that_a_client_breaks_ends_what_the_rfc_says() {
    let begun = headers(0, 1, REQUEST);
    let whole = headers(END_STREAM, 1, REQUEST);
    let lacking = headers(END_STREAM, 1, &[0x83, 0x86]);
    let pushes = frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]);
    let trailers = headers(0, 1, &literal("a", "b"));
    for (bytes, expected) in [
        (headers(END_STREAM, 2, REQUEST), vec!["dead 1"]),
        (headers(END_STREAM, 0, REQUEST), vec!["dead 1"]),
        (frame(DATA, 0, 1, b"x"), vec!["dead 1"]),
        (frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), vec!["dead 1"]),
        (frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 8]), vec!["dead 1"]),
        (settings(&[(2, 2)]), vec!["dead 1"]),
        (settings(&[(2, 1), (2, 0)]), vec![]),
        (lacking, vec!["1 broken 1"]),
        ([begun.clone(), trailers].concat(), vec!["1 0 3", "1 broken 1"]),
        ([whole.clone(), frame(DATA, 0, 1, b"x")].concat(), vec!["1 0 3 end", "1 broken 5"]),
        ([whole.clone(), whole.clone()].concat(), vec!["1 0 3 end", "1 broken 5"]),
        ([headers(END_STREAM, 5, REQUEST), whole.clone()].concat(), vec!["5 0 3 end", "dead 5"]),
        ([begun.clone(), frame(DATA, 0, 1, &[b'x'; 16_385])].concat(), vec!["1 0 3", "dead 6"]),
        ([begun.clone(), pushes].concat(), vec!["1 0 3", "dead 1"]),
        ([begun, frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])].concat(), vec!["1 0 3", "1 reset 8"]),
        ([whole, frame(GOAWAY, 0, 0, &[0; 8])].concat(), vec!["1 0 3 end", "goaway 0 0 "]),
    ] {
        assert_eq!(told(&mut greeted(), &bytes, 100), expected, "{bytes:?}");
    }
}

#[test]
fn more_requests_than_are_allowed_are_refused_and_cost_nothing() {
    let mut server = greeted();
    let most = nodepulse::config::limits::HTTP2_STREAMS as u32;
    // The first names its path for those after it, also after one that was refused.
    let named = [&[0x83, 0x86, 0x44, 2][..], b"/a"].concat();
    let mut all = headers(0, 1, &named);
    for place in 1..=most {
        all.extend(headers(0, 1 + 2 * place, &[0x83, 0x86, 0xbe]));
    }
    let lines = told(&mut server, &all, 64);
    assert_eq!((lines.len() as u32, server.open_streams() as u32), (most, most), "{lines:?}");
    assert_eq!(sent(&mut server), [(RST_STREAM, 0, 1 + 2 * most)]);
    assert_eq!(told(&mut server, &frame(DATA, END_STREAM, 1 + 2 * most, b"late"), 64), [""; 0]);
    assert_eq!(answer(&mut server, 1, b""), Ok(()));
    let again = headers(END_STREAM, 3 + 2 * most, &[0x83, 0x86, 0xbe]);
    assert_eq!(told(&mut server, &again, 64), [format!("{} 0 3 end", 3 + 2 * most)]);
}

#[test]
fn an_answer_that_no_window_holds_is_not_begun() {
    let mut server = Connection::server(1000);
    told(&mut server, &[PREFACE, &settings(&[(4, 10)]), &headers(END_STREAM, 1, REQUEST)].concat(), 100);
    output(&mut server);
    assert_eq!(answer(&mut server, 1, &[b'x'; 11]), Err(NotSent::TooLarge));
    assert_eq!(sent(&mut server), []);
    assert_eq!(answer(&mut server, 1, &[b'x'; 10]), Ok(()));
}

#[test]
fn a_server_that_goes_says_which_request_was_the_last_it_looked_at() {
    let mut server = greeted();
    told(&mut server, &headers(END_STREAM, 7, REQUEST), 100);
    server.close();
    let goaway = frames(&output(&mut server)).pop().unwrap();
    assert_eq!((goaway.0, &goaway.3[..4]), (GOAWAY, &[0, 0, 0, 7][..]));
    assert_eq!(told(&mut server, &headers(END_STREAM, 9, REQUEST), 100), [""; 0]);
    assert_eq!(sent(&mut server), [(RST_STREAM, 0, 9)]);
    assert_eq!(answer(&mut server, 7, b"still"), Ok(()));
}

/// What one stream is meant to carry, and what has come of it.
#[derive(Default)]
struct Talk {
    request: Vec<u8>,
    taken: Vec<u8>,
    answer: Vec<u8>,
    came: Vec<u8>,
    is_over: bool,
    is_reset: bool,
}

/// Our server looks at what came in pieces, and answers what is whole.
fn serve(server: &mut Connection, talks: &mut BTreeMap<u32, Talk>, random: &mut Random, mut rest: &[u8]) {
    while !rest.is_empty() {
        let (piece, later) = rest.split_at((1 + random.below(3000)).min(rest.len()));
        server.receive(piece);
        rest = later;
        let mut whole = Vec::new();
        while let Some(event) = server.next_event().unwrap() {
            let ended = match event {
                Event::Headers { stream, status, fields, ends } => {
                    assert_eq!((status, fields.get(":path")), (0, Some(&b"/a.b/C"[..])));
                    ends.then_some(stream)
                }
                Event::Data { stream, bytes, ends } => {
                    talks.get_mut(&stream).unwrap().taken.extend_from_slice(bytes);
                    ends.then_some(stream)
                }
                Event::Reset { stream, broken_rule: None, .. } => {
                    assert!(talks[&stream].is_reset);
                    None
                }
                event => panic!("{event:?}"),
            };
            whole.extend(ended);
        }
        for stream in whole {
            let talk = talks.get_mut(&stream).unwrap();
            assert_eq!(talk.taken, talk.request);
            talk.answer = bytes(random, 400);
            assert_eq!(answer(server, stream, &talk.answer.clone()), Ok(()));
        }
    }
}

/// The other's client looks at what came.
fn hear(client: &mut other::Connection, talks: &mut BTreeMap<u32, Talk>) {
    client.process().unwrap();
    while let Some(event) = client.poll_event() {
        match event {
            other::Event::DataReceived { stream_id, data, .. } if !data.is_empty() => {
                let increment = u32::try_from(data.len()).unwrap();
                client.send_window_update(other::StreamId::Connection, increment).unwrap();
                talks.get_mut(&stream_id.as_u32()).unwrap().came.extend_from_slice(&data);
            }
            other::Event::TrailersReceived { stream_id, trailers } => {
                assert_eq!((trailers[0].name(), trailers[0].value()), (&b"grpc-status"[..], &b"0"[..]));
                talks.get_mut(&stream_id.as_u32()).unwrap().is_over = true;
            }
            other::Event::ConnectionError { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
}

#[test]
fn a_client_of_another_author_and_our_server_understand_each_other_whatever_the_windows() {
    let (mut whole, mut reset) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let limits = other::Limits::builder()
            .initial_window_size(other::WindowSize::new([65_535, 500, 5000][random.below(3)]).unwrap())
            .header_table_size([4096, 0, 200][random.below(3)])
            .build()
            .unwrap();
        let mut client = other::Connection::client(limits);
        let mut server = Connection::server([0, 65_535, 200_000][random.below(3)]);
        client.initiate().unwrap();
        let mut talks: BTreeMap<u32, Talk> = BTreeMap::new();
        for turn in 0..2000 {
            if turn > 40 && talks.values().all(|talk| talk.is_over || talk.is_reset) {
                break;
            }
            if turn < 40 && random.below(2) == 0 {
                let request = bytes(&mut random, 30_000);
                let fields = [(":method", "POST"), (":scheme", "http"), (":path", "/a.b/C"), (":authority", "x")];
                let fields = fields.map(|(name, value)| field(name, value)).into();
                // It knows how many the server allows.
                if let Ok(stream) = client.start_stream(fields, request.is_empty()) {
                    talks.insert(stream.as_u32(), Talk { request: request.clone(), ..Talk::default() });
                    if !request.is_empty() {
                        client.send_data(stream, request, true).unwrap();
                    }
                    if random.below(6) == 0 {
                        client.reset_stream(stream, other::ErrorCode::Cancel).unwrap();
                        talks.get_mut(&stream.as_u32()).unwrap().is_reset = true;
                    }
                }
            }
            while let Some(output) = client.poll_output() {
                serve(&mut server, &mut talks, &mut random, &output);
            }
            let mut out = Vec::new();
            server.take_output(&mut out);
            for piece in out.chunks(1 + random.below(5000)) {
                client.feed(piece).unwrap();
                hear(&mut client, &mut talks);
            }
        }
        for talk in talks.values() {
            assert!(talk.is_reset || talk.is_over && talk.came == talk.answer, "seed {seed}");
            (whole, reset) = (whole + usize::from(talk.is_over), reset + usize::from(talk.is_reset));
        }
        assert_eq!(server.open_streams(), 0, "seed {seed}");
    }
    assert!(whole > 200 && reset > 50, "{whole} {reset}");
}
