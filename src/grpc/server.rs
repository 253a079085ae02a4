//! Turns requests of HTTP/2 into calls of gRPC, and what is said to them into answers: one connection, as its server.

use super::{CallId, PREFIX_BYTES, Status, framed};
use crate::config::limits;
use crate::http2::{Code, Connection, Error, Event, Field, NotSent, When};

/// A call with its one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub id: CallId,
    /// `/PACKAGE.SERVICE/METHOD`, cut.
    pub path: String,
    pub message: Vec<u8>,
}

/// One connection, as its server. As with its client, whoever has a clock and a socket does the rest.
#[derive(Debug)]
pub struct Server {
    connection: Connection,
    /// Those of which more is to come: path and content.
    coming: Vec<Asked>,
}

impl Default for Server {
    fn default() -> Server {
        Server { connection: Connection::server(limits::GRPC_WINDOW_BYTES), coming: Vec::new() }
    }
}

impl Server {
    /// Appends what is to be sent.
    pub fn take_output(&mut self, output: &mut Vec<u8>) {
        self.connection.take_output(output);
    }

    /// Takes bytes of the client, cut anywhere. All calls that came with them are to be taken before there are more.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes);
    }

    /// The next call that is whole. What is none, or too long, is answered here. After an error the connection is of no use.
    pub fn next_call(&mut self) -> Result<Option<Asked>, Error> {
        while let Some(event) = self.connection.next_event()? {
            let ended = match event {
                Event::Headers { stream, fields, ends, .. } => {
                    let path = fields.get(":path").unwrap_or_default();
                    let cut = path.get(..path.len().min(limits::GRPC_TEXT_BYTES)).unwrap_or_default();
                    let path = String::from_utf8_lossy(cut).into_owned();
                    let is_call = fields.get("content-type").is_some_and(|kind| kind.starts_with(b"application/grpc"));
                    if !is_call {
                        // What gRPC says of it in words of HTTP.
                        let _ = self.connection.answer(stream, &[Field::new(":status", "415")], b"", &[]);
                        continue;
                    }
                    self.coming.push(Asked { id: stream, path, message: Vec::new() });
                    ends.then_some(stream)
                }
                Event::Data { stream, bytes, ends } => {
                    let Some(call) = self.coming.iter_mut().find(|call| call.id == stream) else { continue };
                    if call.message.len() + bytes.len() > PREFIX_BYTES + limits::GRPC_REQUEST_BYTES {
                        self.coming.retain(|call| call.id != stream);
                        self.refuse(stream, Status::RESOURCE_EXHAUSTED, "too long a request");
                        continue;
                    }
                    call.message.extend_from_slice(bytes);
                    ends.then_some(stream)
                }
                Event::Trailers { stream, .. } => Some(stream),
                Event::Reset { stream, .. } => {
                    self.coming.retain(|call| call.id != stream);
                    None
                }
                // It opens no more, and waits for what it has opened.
                Event::GoAway { .. } => None,
            };
            let Some(place) = self.coming.iter().position(|call| Some(call.id) == ended) else { continue };
            let mut call = self.coming.remove(place);
            let length = call.message.split_first_chunk::<PREFIX_BYTES>().map(|(&[flag, length @ ..], rest)| {
                (flag == 0 && u32::from_be_bytes(length) as usize == rest.len()).then_some(())
            });
            if length.flatten().is_some() {
                call.message.drain(..PREFIX_BYTES);
                return Ok(Some(call));
            }
            self.refuse(call.id, Status::INTERNAL, "the request is not one plain message");
        }
        Ok(None)
    }

    /// Answers a call with one message. To one that was given up this means nothing.
    pub fn answer(&mut self, id: CallId, message: &[u8]) {
        let head = [Field::new(":status", "200"), Field::new("content-type", "application/grpc")];
        let tail = [Field::new("grpc-status", "0")];
        let sent = framed(message).and_then(|content| self.connection.answer(id, &head, &content, &tail));
        if sent == Err(NotSent::TooLarge) {
            self.connection.reset(id, Code::CANCEL, When::Now);
        }
    }

    /// Says why a call has no message.
    pub fn refuse(&mut self, id: CallId, code: u32, message: &str) {
        let (code, message) = (code.to_string(), encoded(message));
        let fields = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", code.as_str()),
            ("grpc-message", message.as_str()),
        ];
        let _ = self.connection.answer(id, &fields.map(|(name, value)| Field::new(name, value)), b"", &[]);
    }
}

/// Text with `%` and two digits in the place of what a field may not hold.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes().take(limits::GRPC_TEXT_BYTES) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{frame, headers};
    use super::super::{Answer, Client, Progress};
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const END: u8 = 1;
    const HEAD: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("content-type", "application/grpc")];

    fn message(text: &[u8]) -> Vec<u8> {
        framed(text).unwrap()
    }

    fn request(stream: u32, content: &[u8]) -> Vec<u8> {
        [headers(stream, &HEAD, 0), frame(0, END, stream, content)].concat()
    }

    fn asked(server: &mut Server, bytes: &[u8]) -> Vec<Asked> {
        server.receive(bytes);
        std::iter::from_fn(|| server.next_call().unwrap()).collect()
    }

    /// The fields of what comes back of one request.
    fn said(bytes: &[u8]) -> String {
        let (mut server, mut client) = (Server::default(), Connection::client(0));
        client.request(&HEAD.map(|(name, value)| Field::new(name, value)), b"", 0).unwrap();
        assert_eq!(asked(&mut server, &[PREFACE, bytes].concat()), []);
        let mut output = Vec::new();
        server.take_output(&mut output);
        client.receive(&output);
        match client.next_event().unwrap() {
            Some(Event::Headers { fields, ends: true, .. }) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                fields.iter().map(|(name, value)| text(name) + ": " + &text(value) + "\n").collect()
            }
            other => format!("{other:?}"),
        }
    }

    /// Both sides, until nobody has anything to say.
    fn talk(client: &mut Client, server: &mut Server, answer: impl Fn(&mut Server, Asked)) -> Vec<Progress> {
        let mut all = Vec::new();
        loop {
            let mut bytes = Vec::new();
            client.take_output(&mut bytes);
            let calls = asked(server, &bytes);
            calls.into_iter().for_each(|call| answer(server, call));
            let mut back = Vec::new();
            server.take_output(&mut back);
            client.receive(&back);
            all.extend(std::iter::from_fn(|| client.next_progress().unwrap()));
            if bytes.is_empty() && back.is_empty() {
                return all;
            }
        }
    }

    #[test]
    fn a_call_is_told_whole_wherever_its_bytes_are_cut() {
        let bytes = [PREFACE, &request(1, &message(b"who")), &request(3, &message(b""))].concat();
        let call = |id, text: &[u8]| Asked { id, path: "/a.B/C".to_owned(), message: text.to_vec() };
        for cut in 0..bytes.len() {
            let (mut server, (one, other)) = (Server::default(), bytes.split_at(cut));
            let all = [asked(&mut server, one), asked(&mut server, other)].concat();
            assert_eq!(all, [call(1, b"who"), call(3, b"")], "cut at {cut}");
        }
    }

    #[test]
    fn a_client_hears_what_is_said_to_it() {
        let (mut client, mut server) = (Client::default(), Server::default());
        let wanted = Answer::Whole { most_bytes: 100 };
        let ids: Vec<CallId> = ["/x/Yes", "/x/No"].map(|path| client.call(path, b"?", "10S", wanted).unwrap()).into();
        let all = talk(&mut client, &mut server, |server, call| match call.path.as_str() {
            "/x/Yes" => server.answer(call.id, &[&b"to "[..], &call.message].concat()),
            _ => server.refuse(call.id, Status::UNIMPLEMENTED, "50 % \u{e4} of\n it "),
        });
        let refused = Status { code: Status::UNIMPLEMENTED, message: "50 % \u{e4} of\n it".to_owned() };
        assert_eq!(all, [Progress::Ended(ids[0], Ok(b"to ?".to_vec())), Progress::Ended(ids[1], Err(refused))]);
    }

    #[test]
    fn what_is_no_call_is_answered_and_told_to_nobody() {
        let plain: Vec<(&str, &str)> = HEAD[..3].to_vec();
        assert_eq!(said(&headers(1, &plain, END)), ":status: 415\n", "no content of gRPC");
        for content in [&b""[..], b"\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x02x", b"\0\0\0\0\0\0"] {
            let said = said(&request(1, content));
            assert!(said.ends_with("grpc-status: 13\ngrpc-message: the request is not one plain message\n"), "{said}");
        }
        let long = [vec![0, 0, 0, 255, 255], vec![b'x'; limits::GRPC_REQUEST_BYTES + 1]].concat();
        assert!(said(&request(1, &long)).contains("too long a request"));
        assert_eq!(said(&[headers(1, &HEAD, 0), frame(3, 0, 1, &[0, 0, 0, 8])].concat()), "None", "it was given up");
    }

    #[test]
    fn messages_that_are_wanted_each_are_told_one_by_one_wherever_they_are_cut() {
        let stream = [message(b"one"), message(b""), message(b"three")].concat();
        let open = [PREFACE.get(24..).unwrap(), &headers(1, &[(":status", "200")], 0)].concat();
        for cut in 0..=stream.len() {
            let mut client = Client::default();
            let id = client.call("/x/Watch", b"", "", Answer::Each { most_bytes: 5 }).unwrap();
            let mut told = Vec::new();
            for part in [&open[..], &frame(0, 0, 1, &stream[..cut]), &frame(0, 0, 1, &stream[cut..])] {
                client.receive(part);
                told.extend(std::iter::from_fn(|| client.next_progress().unwrap()));
            }
            let expected = [&b"one"[..], b"", b"three"].map(|text| Progress::Piece(id, text.to_vec()));
            assert_eq!(told, expected, "cut at {cut}");
            client.receive(&headers(1, &[("grpc-status", "0")], END));
            assert_eq!(client.next_progress().unwrap(), Some(Progress::Ended(id, Ok(Vec::new()))));
        }
    }

    #[test]
    fn a_message_that_is_too_long_or_cut_ends_its_call_and_no_memory_is_taken_for_it() {
        for (content, ends, why) in [
            (message(b"longer"), false, "too long a message"),
            (b"\0\xff\xff\xff\xff".to_vec(), false, "too long a message"),
            (b"\x01\0\0\0\0".to_vec(), false, "a message is compressed, which nobody asked for"),
            (b"\0\0\0\0\x04on".to_vec(), true, "the last message is cut"),
        ] {
            let mut client = Client::default();
            let id = client.call("/x/Watch", b"", "", Answer::Each { most_bytes: 5 }).unwrap();
            let open = [PREFACE.get(24..).unwrap(), &headers(1, &[(":status", "200")], 0)].concat();
            let end = if ends { headers(1, &[("grpc-status", "0")], END) } else { Vec::new() };
            client.receive(&[open, frame(0, 0, 1, &content), end].concat());
            let Some(Progress::Ended(of, Err(status))) = client.next_progress().unwrap() else { panic!("{why}") };
            assert_eq!((of, status.message.as_str()), (id, why));
        }
    }
}
