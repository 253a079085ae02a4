//! Turns any bytes into what a server sends over HTTP/2, whole and in pieces: both say the same, each request ends once at most,
//! nothing grows, and what is sent back is frames. The first byte says how wide the windows are, how many bytes a piece has, and
//! whether SETTINGS stand in front.

#![allow(clippy::unwrap_used, reason = "a check panics where it fails")]

use nodepulse::http2::{Connection, Event, Field};

const REQUESTS: u32 = 4;

fn asked(window: u32) -> Connection {
    let mut connection = Connection::client(window);
    for stream in 0..REQUESTS {
        let fields = [(":method", "PATCH"), (":scheme", "https"), (":path", "/"), ("content-type", "text/plain")];
        // The last two have more body than the window of a server that says nothing.
        let body = vec![b'x'; if stream < 2 { 52 } else { 40_000 }];
        connection.request(&fields.map(|(name, value)| Field::new(name, value)), &body, 0).unwrap();
    }
    connection
}

/// Events and output, and how many requests have ended.
fn told(window: u32, bytes: &[u8], step: usize) -> (String, Vec<u8>) {
    let mut connection = asked(window);
    let (mut said, mut output, mut ended) = (String::new(), Vec::new(), 0);
    'pieces: for piece in bytes.chunks(step) {
        connection.receive(piece);
        loop {
            match connection.next_event() {
                Ok(None) => break,
                Err(error) => {
                    said.push_str(&format!("{error:?}\n"));
                    break 'pieces;
                }
                Ok(Some(event)) => {
                    ended += match event {
                        Event::Headers { ends, .. } | Event::Data { ends, .. } => u32::from(ends),
                        Event::Trailers { .. } | Event::Reset { .. } => 1,
                        Event::GoAway { .. } => 0,
                    };
                    said.push_str(&format!("{event:?}\n"));
                }
            }
        }
    }
    connection.take_output(&mut output);
    assert!(ended + connection.open_streams() as u32 == REQUESTS, "{said}");
    (said, output)
}

/// `bytes` stand for what a server sends.
pub fn check(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let window = if first & 1 == 0 { 65_535 } else { 20 };
    let sent = if first & 2 == 0 { [&[0, 0, 0, 4, 0, 0, 0, 0, 0], rest].concat() } else { rest.to_vec() };
    let (said, output) = told(window, &sent, sent.len().max(1));
    assert_eq!((&said, &output), (&told(window, &sent, 1 + usize::from(first >> 2)).0, &told(window, &sent, 1).1));
    let mut frames = output.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    while let [a, b, c, kind, rest @ ..] = frames {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        assert!(*kind < 10 && (length <= 16_384 || *kind == 0));
        frames = rest.get(5 + length..).unwrap();
    }
    assert!(frames.is_empty());
}
