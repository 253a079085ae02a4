//! Turns one long conversation, cut at every byte, and conversations from seeds, into the same events and the same output.

use nodepulse::http2::Connection;

use super::peer::*;

/// Everything that a server may say, to eight requests.
fn conversation() -> Vec<u8> {
    let padded = [&[3][..], b"padded", &[0; 3]].concat();
    let priority = [&[2, 0x80, 0, 0, 1, 15][..], OK, &[0; 2]].concat();
    let block = [OK, &literal("content-length", "11"), &literal("x", "y")].concat();
    [
        settings(&[(3, 100), (4, 1 << 20), (0x99, 7)]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(WINDOW_UPDATE, 0, 0, &1000u32.to_be_bytes()),
        headers(0, 1, &literal(":status", "103")),
        frame(HEADERS, 0, 1, &block[..1]),
        frame(CONTINUATION, 0, 1, &[]),
        frame(CONTINUATION, 0, 1, &block[1..9]),
        frame(CONTINUATION, END_HEADERS, 1, &block[9..]),
        frame(DATA, 0, 1, b"hello"),
        headers(PADDED | 0x20 | END_STREAM, 3, &priority),
        frame(DATA, PADDED, 1, &padded),
        frame(DATA, 0, 1, &[]),
        headers(END_STREAM, 1, &[literal("grpc-status", "0"), literal("grpc-message", "")].concat()),
        frame(PING, 0, 0, b"8 bytes."),
        frame(0xbb, 1, 99, b"unknown"),
        frame(PRIORITY, 0, 5, &[0; 5]),
        headers(0, 5, &[&[0x48, 3][..], b"404", &[0x58, 2], b"no"].concat()),
        headers(END_STREAM, 7, &[0xbf, 0xbe]),
        frame(DATA, END_STREAM, 5, b"not here"),
        frame(RST_STREAM, 0, 9, &[0, 0, 0, 13]),
        frame(GOAWAY, 0, 0, &[&[0, 0, 0, 13, 0, 0, 0, 0][..], b"bye"].concat()),
        headers(END_STREAM, 11, OK),
        frame(DATA, END_STREAM | PADDED, 13, &[0]),
    ]
    .concat()
}

fn asked() -> Connection {
    let mut connection = Connection::client(65_535);
    for _ in 0..8 {
        get(&mut connection);
    }
    connection
}

#[test]
fn a_conversation_means_the_same_wherever_its_bytes_are_cut() {
    let bytes = conversation();
    let mut whole = asked();
    let lines = told(&mut whole, &bytes, bytes.len());
    let expected = [
        "1 200 3",
        "1 data hello",
        "3 200 1 end",
        "1 data padded",
        "1 trailers 2 end",
        "5 404 2",
        "7 404 2 end",
        "5 data not here end",
        "9 reset 13",
        "goaway 13 0 bye",
        "15 reset 7",
        "11 200 1 end",
        "13 broken 1",
    ];
    assert_eq!(lines, expected);
    let sent = output(&mut whole);
    for cut in 0..=bytes.len() {
        let mut connection = asked();
        let (first, second) = bytes.split_at(cut);
        let both = [told(&mut connection, first, cut.max(1)), told(&mut connection, second, bytes.len())].concat();
        assert_eq!((both, output(&mut connection)), (lines.clone(), sent.clone()), "cut at {cut}");
    }
    let mut bytewise = asked();
    assert_eq!((told(&mut bytewise, &bytes, 1), output(&mut bytewise)), (lines, sent));
}

#[test]
fn a_conversation_that_is_cut_off_at_any_byte_tells_no_more_than_what_came() {
    let bytes = conversation();
    let lines = told(&mut asked(), &bytes, bytes.len());
    for end in 0..bytes.len() {
        let so_far = told(&mut asked(), &bytes[..end], 5);
        assert_eq!(so_far, lines[..so_far.len()], "the first {end} bytes");
    }
}

/// The next of the numbers that follow from a seed (xorshift64).
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

#[test]
fn bytes_that_are_changed_at_random_are_answered_the_same_in_any_pieces_and_never_with_more_than_was_asked() {
    let whole = conversation();
    for seed in 1..=3000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = whole.clone();
        for _ in 0..1 + next(&mut state) % 4 {
            let place = next(&mut state) % bytes.len();
            match next(&mut state) % 4 {
                0 => bytes[place] = next(&mut state) as u8,
                1 => bytes[place] ^= 1 << (next(&mut state) % 8),
                2 => drop(bytes.remove(place)),
                _ => bytes.insert(place, next(&mut state) as u8),
            }
        }
        let mut one = asked();
        let lines = told(&mut one, &bytes, bytes.len());
        let mut other = asked();
        assert_eq!(told(&mut other, &bytes, 1 + next(&mut state) % 40), lines, "seed {seed}");
        assert_eq!(output(&mut one), output(&mut other), "seed {seed}");
        let ends =
            lines.iter().filter(|line| line.ends_with(" end") || line.contains("broken") || line.contains("reset"));
        assert!(ends.count() <= 8, "seed {seed}: {lines:?}");
    }
}
