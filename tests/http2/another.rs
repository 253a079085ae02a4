//! Turns the HTTP/2 of another author (the crate shiguredo_http2: both roles, no code in common) into our encoder's reader, our
//! decoder's writer, and our client's server.

use std::collections::BTreeMap;

use nodepulse::http2::{Code, Connection, Decoder, Encoder, Event, Field, FieldList, Indexing, NotSent, When};
use shiguredo_http2 as other;

use super::peer::{DATA, GOAWAY, WINDOW_UPDATE, frame, with_frames};

pub const CONVERSATIONS: u64 = 60;

/// Numbers that follow from a seed (xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

const NAMES: [&str; 8] =
    ["accept", "x-kubernetes-pf-flowschema-uid", "date", "audit-id", "a", "warning", "via", "etag"];

/// Some fields; values come again now and then.
fn list(random: &mut Random) -> Vec<(String, String)> {
    let field = |random: &mut Random| {
        let name = NAMES[random.below(NAMES.len())].to_owned();
        let length = [0, 1, 7, 30, 300][random.below(5)];
        let letters = random.below(3);
        let letter = |random: &mut Random| char::from(b'!' + random.below([3, 26, 94][letters]) as u8);
        (name, (0..length).map(|_| letter(random)).collect())
    };
    (0..random.below(9)).map(|_| field(random)).collect()
}

#[test]
fn header_blocks_are_read_by_another_decoder_as_they_were_meant() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut encoder, mut decoder) = (Encoder::default(), other::HpackDecoder::new(4096));
        for _ in 0..40 {
            if random.below(10) == 0 {
                let bytes = [0, 100, 1000, 4096][random.below(4)];
                encoder.set_table_bytes(bytes);
                // Its limit, which our block then tells it to use: the RFC's least and last size.
                decoder.set_max_table_size(4096);
            }
            let fields = list(&mut random);
            let kinds = [Indexing::Indexed, Indexing::Indexed, Indexing::Once, Indexing::Never];
            let with: Vec<Field<'_>> = fields
                .iter()
                .map(|(name, value)| Field { name, value, indexing: kinds[random.below(kinds.len())] })
                .collect();
            let mut block = Vec::new();
            encoder.encode(&with, &mut block);
            let read = decoder.decode(&block).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let read: Vec<_> = read.iter().map(|field| (text(field.name()), text(field.value()))).collect();
            assert_eq!(read, fields, "seed {seed}");
        }
    }
}

#[test]
fn header_blocks_of_another_encoder_are_read_as_they_were_meant_and_damaged_ones_never_otherwise() {
    let (mut both, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (mut encoder, mut decoder) = (other::HpackEncoder::new(4096), Decoder::new(4096));
        let mut judge = other::HpackDecoder::new(4096);
        encoder.set_huffman(random.below(2) == 0);
        for _ in 0..40 {
            let fields = list(&mut random);
            let theirs: Vec<_> =
                fields.iter().map(|(name, value)| other::HeaderField::new(name, value).unwrap()).collect();
            let mut block = Vec::new();
            encoder.encode(&mut block, &theirs);
            let is_damaged = random.below(30) == 0 && !block.is_empty();
            if is_damaged {
                let place = random.below(block.len());
                block[place] ^= 1 << random.below(8);
            }
            let mut read = FieldList::default();
            let ours = decoder.decode(&block, &mut read);
            let theirs = judge.decode(&block);
            if let (Ok(()), Ok(theirs)) = (&ours, &theirs) {
                let theirs: Vec<_> = theirs.iter().map(|field| (field.name(), field.value())).collect();
                assert_eq!(read.all().iter().collect::<Vec<_>>(), theirs, "seed {seed}");
                both += 1;
            }
            if is_damaged {
                refused += usize::from(ours.is_err());
                break;
            }
            assert_eq!((ours, theirs.is_ok()), (Ok(()), true), "seed {seed}");
        }
    }
    assert!(both > 5000 && refused > 10, "{both} {refused}");
}

/// What one stream is meant to carry, and what has come of it.
#[derive(Default)]
struct Talk {
    request: Vec<u8>,
    /// What the server has of it.
    taken: Vec<u8>,
    answer: Vec<u8>,
    has_trailers: bool,
    is_answered: bool,
    /// What the client has of the answer.
    status: u16,
    came: Vec<u8>,
    is_over: bool,
    is_reset: bool,
    /// The server that goes has not looked at it.
    is_refused: bool,
}

pub fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most);
    (0..length).map(|place| (place % 251) as u8 ^ length as u8).collect()
}

pub fn field(name: &str, value: &str) -> other::HeaderField {
    other::HeaderField::new(name, value).unwrap()
}

/// The server looks at what came, and answers what is whole.
fn serve(server: &mut other::Connection, talks: &mut BTreeMap<u32, Talk>, random: &mut Random) {
    server.process().unwrap();
    while let Some(event) = server.poll_event() {
        let (stream, data, ends) = match event {
            other::Event::HeadersReceived { stream_id, headers, end_stream, .. } => {
                assert_eq!(headers[0].value(), b"POST");
                (stream_id, Vec::new(), end_stream)
            }
            other::Event::DataReceived { stream_id, data, end_stream } => {
                if !data.is_empty() {
                    let increment = u32::try_from(data.len()).unwrap();
                    server.send_window_update(other::StreamId::Connection, increment).unwrap();
                    if !end_stream {
                        server.send_window_update(stream_id, increment).unwrap();
                    }
                }
                (stream_id, data, end_stream)
            }
            other::Event::ConnectionError { reason, .. } => panic!("{reason}"),
            _ => continue,
        };
        let talk = talks.get_mut(&stream.as_u32()).unwrap();
        talk.taken.extend_from_slice(&data);
        if !ends || talk.is_reset {
            continue;
        }
        assert_eq!(talk.taken, talk.request);
        talk.answer = bytes(random, 40_000);
        talk.has_trailers = random.below(3) == 0;
        let length = talk.answer.len().to_string();
        let mut fields = vec![field(":status", "201"), field("content-length", &length)];
        fields.extend(list(random).iter().map(|(name, value)| field(name, value)));
        if random.below(4) == 0 {
            server.send_response(stream, vec![field(":status", "103"), field("link", "x")], false).unwrap();
        }
        let ends = talk.answer.is_empty() && !talk.has_trailers;
        server.send_response(stream, fields, ends).unwrap();
        talk.is_answered = true;
        if !talk.answer.is_empty() {
            server.send_data(stream, talk.answer.clone(), !talk.has_trailers).unwrap();
        }
    }
    for (id, talk) in talks.iter_mut().filter(|(_, talk)| talk.is_answered && talk.has_trailers && !talk.is_reset) {
        let stream = other::StreamId::from_wire(*id);
        if !server.has_pending_send_data(stream) {
            server.send_trailers(stream, vec![field("grpc-status", "0")]).unwrap();
            talk.is_answered = false;
        }
    }
}

/// The client looks at what came, in pieces, and opens windows or resets.
fn hear(client: &mut Connection, talks: &mut BTreeMap<u32, Talk>, random: &mut Random, mut rest: &[u8]) {
    while !rest.is_empty() {
        let (piece, later) = rest.split_at((1 + random.below(3000)).min(rest.len()));
        client.receive(piece);
        rest = later;
        let mut begun = Vec::new();
        loop {
            match client.next_event().unwrap() {
                None => break,
                Some(Event::Headers { stream, status, ends, fields }) => {
                    let talk = talks.get_mut(&stream).unwrap();
                    assert_eq!((talk.status, talk.is_over, talk.is_reset), (0, false, false));
                    assert_eq!(fields.get("content-length"), Some(talk.answer.len().to_string().as_bytes()));
                    (talk.status, talk.is_over) = (status, ends);
                    begun.push(stream);
                }
                Some(Event::Data { stream, bytes, ends }) => {
                    let talk = talks.get_mut(&stream).unwrap();
                    assert!(!talk.is_over && !talk.is_reset && talk.status == 201);
                    talk.came.extend_from_slice(bytes);
                    talk.is_over = ends;
                }
                Some(Event::Trailers { stream, fields }) => {
                    let talk = talks.get_mut(&stream).unwrap();
                    assert!(!talk.is_over && talk.has_trailers && fields.get("grpc-status") == Some(b"0"));
                    talk.is_over = true;
                }
                Some(Event::GoAway { code, .. }) => assert_eq!(code, Code::NO_ERROR),
                Some(Event::Reset { stream, code: Code::REFUSED_STREAM, broken_rule: None }) => {
                    let talk = talks.get_mut(&stream).unwrap();
                    assert!(
                        !talk.is_over && talk.status == 0 && !talk.is_refused,
                        "{stream} is refused, and was answered"
                    );
                    talk.is_refused = true;
                }
                Some(event) => panic!("{event:?}"),
            }
        }
        for stream in begun {
            let talk = talks.get_mut(&stream).unwrap();
            match random.below(4) {
                0 if !talk.is_over => {
                    talk.is_reset = true;
                    client.reset(stream, Code::CANCEL, if random.below(2) == 0 { When::Now } else { When::WithNext });
                }
                _ => client.open_window(stream, 1000 + random.below(60_000) as u32),
            }
        }
    }
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// Our client and a server of another author, as the seed has it; what they send goes through `wire`, which is asked for what
/// the server has to say in each turn, and may let it go (`goes`). Panics where one of them, or what it says, is not as it should
/// be; answers how many requests were answered whole, how many were given up, and how many the server refused as it went.
pub fn converse(seed: u64, goes: bool, mut wire: impl FnMut(Side, Vec<u8>) -> Vec<u8>) -> [usize; 3] {
    let mut random = Random::new(seed);
    let limits = other::Limits::builder()
        .initial_window_size(other::WindowSize::new([65_535, 500, 5000, 20_000][random.below(4)]).unwrap())
        .header_table_size([4096, 0, 200][random.below(3)])
        .max_concurrent_streams(Some(1 + random.below(6) as u32))
        .build()
        .unwrap();
    let mut client = Connection::client([0, 65_535, 100][random.below(3)]);
    let mut server = other::Connection::server(limits);
    server.initiate().unwrap();
    let mut talks: BTreeMap<u32, Talk> = BTreeMap::new();
    // The server's SETTINGS say how many streams it allows.
    let mut may_open = false;
    for turn in 0..2000 {
        if turn > 40 && talks.values().all(|talk| talk.is_over || talk.is_reset || talk.is_refused) {
            break;
        }
        if may_open && turn < 40 && random.below(2) == 0 {
            let fields = [(":method", "POST"), (":scheme", "https"), (":path", "/x"), (":authority", "y")];
            let request = bytes(&mut random, 30_000);
            match client.request(&fields.map(|(name, value)| Field::new(name, value)), &request, 0) {
                Ok(stream) => drop(talks.insert(stream, Talk { request, ..Talk::default() })),
                Err(NotSent::Never) if goes => {}
                Err(error) => assert_eq!(error, NotSent::Later, "seed {seed}"),
            }
        }
        let mut out = Vec::new();
        client.take_output(&mut out);
        for piece in wire(Side::Client, out).chunks(1 + random.below(5000)) {
            server.feed(piece).unwrap();
            serve(&mut server, &mut talks, &mut random);
        }
        serve(&mut server, &mut talks, &mut random);
        while let Some(output) = server.poll_output() {
            hear(&mut client, &mut talks, &mut random, &wire(Side::Server, output));
        }
        hear(&mut client, &mut talks, &mut random, &wire(Side::Server, Vec::new()));
        may_open = true;
    }
    let mut counts = [0; 3];
    for talk in talks.values() {
        let is_untouched = goes && talk.taken.is_empty() && !talk.is_answered;
        assert!(!talk.is_refused || is_untouched, "seed {seed}: refused, and looked at");
        assert!(talk.is_reset || talk.is_refused || talk.is_over && talk.came == talk.answer, "seed {seed}");
        for (count, is_it) in counts.iter_mut().zip([talk.is_over, talk.is_reset, talk.is_refused]) {
            *count += usize::from(is_it);
        }
    }
    counts
}

/// A server that goes: it says so in that turn, and looks at nothing that was under way to it.
struct Going {
    in_turn: usize,
    turn: usize,
    /// The last stream that it looks at.
    last: u32,
    /// What it ignores of the connection's window it gives back.
    ignored_bytes: u32,
}

impl Going {
    fn wire(&mut self, side: Side, bytes: Vec<u8>) -> Vec<u8> {
        match side {
            Side::Client => self.looks_at(&bytes),
            Side::Server if self.turn == self.in_turn => {
                self.turn += 1;
                let window =
                    (self.ignored_bytes > 0).then(|| frame(WINDOW_UPDATE, 0, 0, &self.ignored_bytes.to_be_bytes()));
                let goaway = frame(GOAWAY, 0, 0, &[self.last.to_be_bytes(), [0; 4]].concat());
                [bytes, goaway, window.unwrap_or_default()].concat()
            }
            Side::Server => bytes,
        }
    }

    fn looks_at(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.turn += 1;
        with_frames(bytes, |kind, stream, payload| {
            if self.turn < self.in_turn {
                self.last = self.last.max(*stream);
            }
            let is_ignored = self.turn >= self.in_turn && *stream > self.last;
            if is_ignored && kind == DATA {
                self.ignored_bytes += u32::try_from(payload.len()).unwrap();
            }
            !is_ignored
        })
    }
}

#[test]
fn a_server_of_another_author_and_our_client_understand_each_other_whatever_the_windows() {
    let counts = (0..CONVERSATIONS).map(|seed| converse(seed, false, |_, bytes| bytes));
    let [whole, reset, _] = counts.fold([0; 3], sum);
    assert!(whole > 200 && reset > 50, "{whole} {reset}");
}

#[test]
fn a_server_that_goes_at_any_time_answers_what_it_looked_at_and_the_rest_is_known_to_be_refused() {
    let counts = (0..CONVERSATIONS).map(|seed| {
        let mut going = Going { in_turn: 2 + Random::new(!seed).below(40), turn: 0, last: 0, ignored_bytes: 0 };
        converse(seed, true, |side, bytes| going.wire(side, bytes))
    });
    let [whole, reset, refused] = counts.fold([0; 3], sum);
    assert!(whole > 100 && reset > 20 && refused > 10, "{whole} {reset} {refused}");
}

fn sum(left: [usize; 3], right: [usize; 3]) -> [usize; 3] {
    [left[0] + right[0], left[1] + right[1], left[2] + right[2]]
}
