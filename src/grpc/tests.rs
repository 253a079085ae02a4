//! Turns frames that are written here byte by byte, as a server of gRPC sends them, into what became of calls.

use super::*;

pub(crate) const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const END: u8 = 1;
const WHOLE: Answer = Answer::Whole { most_bytes: 100 };

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// HEADERS that are whole, each field literal.
pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
    frame(1, 4 | flags, stream, &block)
}

fn data(stream: u32, content: &[u8], flags: u8) -> Vec<u8> {
    frame(0, flags, stream, content)
}

fn message(text: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

fn answer(stream: u32, text: &[u8]) -> Vec<u8> {
    let began = headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], 0);
    [began, data(stream, &message(text), 0), headers(stream, &[("grpc-status", "0")], END)].concat()
}

fn client(calls: usize) -> Client {
    let mut client = Client::default();
    for call in 0..calls {
        let id = client.call("/runtime.v1.RuntimeService/Version", b"", "10S", WHOLE).unwrap();
        assert_eq!(id, 1 + 2 * u32::try_from(call).unwrap());
    }
    client
}

fn told(client: &mut Client, bytes: &[u8]) -> Vec<(CallId, Outcome)> {
    client.receive(bytes);
    let ended = |progress| match progress {
        Progress::Ended(id, outcome) => (id, outcome),
        Progress::Piece(..) => panic!("nothing is wanted in pieces"),
    };
    std::iter::from_fn(|| client.next_progress().unwrap()).map(ended).collect()
}

fn status(code: u32, message: &str) -> Outcome {
    Err(Status { code, message: message.to_owned() })
}

/// What one answer to one call says.
fn outcome(answer: &[Vec<u8>]) -> Outcome {
    let mut all = told(&mut client(1), &[SETTINGS, &answer.concat()].concat());
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).1
}

#[test]
fn a_call_goes_out_with_the_preface_in_one_piece() {
    let (mut client, mut bytes) = (Client::default(), Vec::new());
    client.call("/runtime.v1.RuntimeService/Version", b"\x0a\x050.1.0", "10S", WHOLE).unwrap();
    client.take_output(&mut bytes);
    assert!(bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    let body = frame(0, END, 1, b"\0\0\0\0\x07\x0a\x050.1.0");
    assert!(bytes.ends_with(&body), "{bytes:?}");
    let mut second = Vec::new();
    client.call("/runtime.v1.RuntimeService/Version", b"", "10S", WHOLE).unwrap();
    client.take_output(&mut second);
    assert!(second.len() < 40, "what was said once is remembered: {} bytes", second.len());
}

#[test]
fn answers_are_told_whole_however_they_are_cut_and_in_whichever_order_they_end() {
    let [long, pieces] = [message(b"second"), message(b"first")];
    let (head, tail) = pieces.split_at(3);
    let bytes = [
        SETTINGS.to_vec(),
        headers(3, &[(":status", "200")], 0),
        headers(1, &[(":status", "200")], 0),
        data(1, head, 0),
        data(3, &long, 0),
        // What a server measures its line with.
        frame(6, 0, 0, b"\x02\x04\x10\x10\x09\x0e\x07\x07"),
        headers(3, &[("grpc-status", "0"), ("grpc-message", "")], END),
        data(1, tail, 0),
        headers(1, &[("grpc-status", "0")], END),
    ]
    .concat();
    let expected = [(3, Ok(b"second".to_vec())), (1, Ok(b"first".to_vec()))];
    for cut in 0..bytes.len() {
        let mut client = client(2);
        let (one, other) = bytes.split_at(cut);
        let all = [told(&mut client, one), told(&mut client, other)].concat();
        assert_eq!(all, expected, "cut at {cut}");
    }
}

#[test]
fn why_a_call_has_no_answer_is_told_by_its_code() {
    let refused = |fields: &[(&str, &str)]| outcome(&[headers(1, fields, END)]);
    let unknown = [(":status", "200"), ("grpc-status", "12"), ("grpc-message", "unknown service %22x%22 %C3%A4 100%")];
    assert_eq!(refused(&unknown), status(12, "unknown service \"x\" \u{e4} 100%"));
    assert_eq!(refused(&[(":status", "200"), ("grpc-status", "nine")]), status(2, "HTTP 200"));
    for (http, code) in [("400", 13), ("401", 16), ("403", 7), ("404", 12), ("429", 14), ("503", 14), ("500", 2)] {
        assert_eq!(refused(&[(":status", http)]), status(code, &format!("HTTP {http}")));
    }
    let began = headers(1, &[(":status", "200")], 0);
    let late = headers(1, &[("grpc-status", "14"), ("grpc-message", "gone")], END);
    assert_eq!(outcome(&[began, data(1, &message(b"x"), 0), late]), status(14, "gone"));
    assert_eq!(outcome(&[frame(3, 0, 1, &[0, 0, 0, 7])]), status(14, "the call was reset: REFUSED_STREAM"));
    assert_eq!(outcome(&[frame(3, 0, 1, &[0, 0, 0, 99])]), status(1, "the call was reset: 99"));
}

#[test]
fn what_is_not_one_plain_message_is_no_answer() {
    let began = || headers(1, &[(":status", "200")], 0);
    let ended = || headers(1, &[("grpc-status", "0")], END);
    for (content, why) in [
        (b"".to_vec(), "there is no message in the answer"),
        (b"\0\0\0".to_vec(), "there is no message in the answer"),
        (b"\x01\0\0\0\0".to_vec(), "the answer is compressed, which nobody asked for"),
        (b"\0\0\0\0\x02x".to_vec(), "the answer is not one message"),
        ([message(b"x"), message(b"y")].concat(), "the answer is not one message"),
    ] {
        assert_eq!(outcome(&[began(), data(1, &content, 0), ended()]), status(13, why));
    }
    let no_status = outcome(&[began(), data(1, &message(b"x"), END)]);
    assert_eq!(no_status, status(13, "the answer ends without a status"));
}

#[test]
fn a_long_answer_costs_no_more_memory_than_it_may_and_the_next_call_is_answered() {
    let mut client = client(1);
    let mut bytes = [SETTINGS.to_vec(), headers(1, &[(":status", "200")], 0)].concat();
    bytes.extend(data(1, &message(&[b'x'; 101]), 0));
    assert_eq!(told(&mut client, &bytes), [(1, status(8, "too long an answer"))]);
    let mut output = Vec::new();
    client.take_output(&mut output);
    assert!(output.ends_with(&frame(3, 0, 1, &[0, 0, 0, 8])), "the server hears that nobody reads on");
    client.call("/x/y", b"", "10S", WHOLE).unwrap();
    assert_eq!(told(&mut client, &answer(3, &[b'y'; 100])), [(3, Ok(vec![b'y'; 100]))]);
}

#[test]
fn of_a_call_that_was_given_up_nothing_is_told() {
    let mut client = client(2);
    client.cancel(1);
    let bytes = [SETTINGS.to_vec(), answer(1, b"late"), answer(3, b"in time")].concat();
    assert_eq!(told(&mut client, &bytes), [(3, Ok(b"in time".to_vec()))]);
}

#[test]
fn a_server_that_goes_answers_what_it_has_taken_and_takes_nothing_more() {
    let mut client = client(2);
    let goaway = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let all = told(&mut client, &[SETTINGS.to_vec(), goaway, answer(1, b"last")].concat());
    let unseen = (3, status(14, "the call was reset: REFUSED_STREAM"));
    assert_eq!(all, [unseen, (1, Ok(b"last".to_vec()))]);
    assert_eq!(client.call("/x/y", b"", "10S", WHOLE), Err(NotSent::Never));
}

#[test]
fn what_is_no_http_2_ends_the_connection() {
    let mut client = client(1);
    client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(client.next_progress().is_err());
}

#[test]
fn a_text_is_cut() {
    let long = "a".repeat(2 * limits::GRPC_TEXT_BYTES);
    assert_eq!(decoded(long.as_bytes()).len(), limits::GRPC_TEXT_BYTES);
    assert_eq!(decoded(b"%+1%4%zz%41%"), "%+1%4%zzA%");
}

#[test]
fn a_message_that_is_wanted_in_pieces_is_told_as_it_comes_and_then_that_it_was_whole() {
    let text = b"a message";
    let whole = message(text);
    for cut in 0..=whole.len() {
        let (first, second) = whole.split_at(cut);
        for (last, is_whole) in [(second, true), (&second[second.len().min(1)..], second.is_empty())] {
            let mut client = Client::default();
            let id = client.call("/x/y", b"", "10S", Answer::Pieces).unwrap();
            let began = headers(1, &[(":status", "200"), ("content-type", "application/grpc")], 0);
            let came = [data(1, first, 0), data(1, last, 0), headers(1, &[("grpc-status", "0")], END)].concat();
            client.receive(&[SETTINGS, &began, &came].concat());
            let mut pieces = Vec::new();
            let outcome = loop {
                match client.next_progress().unwrap().unwrap() {
                    Progress::Piece(of, piece) => {
                        assert_eq!(of, id);
                        pieces.extend(piece);
                    }
                    Progress::Ended(of, outcome) => {
                        assert_eq!(of, id);
                        break outcome;
                    }
                }
            };
            assert_eq!(outcome.is_ok(), is_whole, "{cut}: {outcome:?}");
            assert!(!is_whole || pieces == text && outcome == Ok(Vec::new()), "{cut}: {pieces:?}");
        }
    }
}

#[test]
fn a_message_in_pieces_may_be_longer_than_any_window() {
    let mut client = Client::default();
    client.call("/x/y", b"", "10S", Answer::Pieces).unwrap();
    let mut sent = Vec::new();
    client.take_output(&mut sent);
    let pieces = 20;
    let length = u32::try_from(pieces * 16_000).unwrap().to_be_bytes();
    let began = headers(1, &[(":status", "200"), ("content-type", "application/grpc")], 0);
    client.receive(&[SETTINGS, &began, &data(1, &[&[0], &length[..]].concat(), 0)].concat());
    assert_eq!(client.next_progress().unwrap(), None);
    for _ in 0..pieces {
        client.receive(&data(1, &[b'z'; 16_000], 0));
        assert_eq!(client.next_progress().unwrap(), Some(Progress::Piece(1, vec![b'z'; 16_000])));
    }
    sent.clear();
    client.take_output(&mut sent);
    assert!(sent.windows(4).any(|four| four == [0, 0, 4, 8]), "the windows are opened again");
    client.receive(&headers(1, &[("grpc-status", "0")], END));
    assert_eq!(client.next_progress().unwrap(), Some(Progress::Ended(1, Ok(Vec::new()))));
}
