//! Turns the bytes of an HTTP/1.1 reply into what its headers say and how its body is found (RFC 9112).

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size, parse_headers};

use super::failure::Failure;

/// More of them are no reply of an API server.
pub(super) const MOST_HEADERS: usize = 128;
const MOST_TRAILERS: usize = 16;

/// What the first of the headers of this name says.
pub(super) fn header<'a>(reply: &Response<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    all(reply, name).next()
}

fn all<'r, 'a>(reply: &'r Response<'_, 'a>, name: &'r str) -> impl Iterator<Item = &'a [u8]> + 'r {
    reply.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Whether the server closes the connection after this reply.
pub(super) fn closes(reply: &Response<'_, '_>) -> bool {
    reply.version != Some(1) || all(reply, "connection").any(|value| value.eq_ignore_ascii_case(b"close"))
}

/// What is still to come of a body.
///
/// ```text
/// Size -> Chunk -> Size ... Size (0) -> Trailers -> Length (0)
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Length(usize),
    /// Whatever comes before the connection ends.
    Connection,
    /// The line with the size of a chunk.
    Size,
    /// So many bytes of a chunk, and the end of its line.
    Chunk(usize),
    /// Headers that nobody reads, and an empty line.
    Trailers,
}

impl Body {
    /// What the headers say of it. Where they say two things, somebody on the way may have understood the other.
    pub(super) fn of(reply: &Response<'_, '_>) -> Result<Body, Failure> {
        if let Some(encoding) = header(reply, "transfer-encoding") {
            let is_chunked = encoding.eq_ignore_ascii_case(b"chunked") && reply.version == Some(1);
            return if is_chunked { Ok(Body::Size) } else { Err(Failure::malformed("an unknown transfer encoding")) };
        }
        let mut lengths = all(reply, "content-length");
        let Some(length) = lengths.next() else {
            return Ok(if reply.code == Some(204) { Body::Length(0) } else { Body::Connection });
        };
        let digits = str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let parsed = digits.and_then(|digits| digits.parse().ok()).filter(|_| lengths.all(|other| other == length));
        parsed.map(Body::Length).ok_or_else(|| Failure::malformed("its length is no number, or two"))
    }

    /// One step: how much of `input` is understood, and how much of that is content, from its beginning on. Of a line without
    /// an end, nothing is.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<(usize, usize), Failure> {
        match self {
            Body::Connection => Ok((input.len(), input.len())),
            Body::Chunk(0) => match input {
                [b'\r', b'\n', ..] => {
                    *self = Body::Size;
                    Ok((2, 0))
                }
                [] | [b'\r'] => Ok((0, 0)),
                _ => Err(Failure::malformed("a chunk is longer than its size")),
            },
            Body::Length(left) | Body::Chunk(left) => {
                let taken = input.len().min(*left);
                *left -= taken;
                Ok((taken, taken))
            }
            Body::Size => {
                let size = parse_chunk_size(input).map_err(|_| Failure::malformed("a chunk without its size"))?;
                let Status::Complete((used, size)) = size else { return Ok((0, 0)) };
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                *self = if size == 0 { Body::Trailers } else { Body::Chunk(size) };
                Ok((used, 0))
            }
            Body::Trailers => {
                let mut trailers = [EMPTY_HEADER; MOST_TRAILERS];
                let Status::Complete((used, _)) = parse_headers(input, &mut trailers).map_err(Failure::malformed)?
                else {
                    return Ok((0, 0));
                };
                *self = Body::Length(0);
                Ok((used, 0))
            }
        }
    }
}

/// `Audit-ID` of the requests of one connection. The server takes it for its own and repeats it in each answer, whatever it
/// answers (`k8s.io/apiserver`, `audit_init.go`, its outermost filter): by that an answer is known to be the server's (D14).
/// In an audit log it tells connections apart, and two requests of one by their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditId([u8; 12]);

impl AuditId {
    /// What a request is called in the server's audit log.
    pub(super) const HEADER: &str = "audit-id";

    /// From the lowest 72 bits of a random number.
    pub fn new(random: u128) -> AuditId {
        const DIGITS: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let digit = |place: usize| DIGITS.get((random >> (6 * place)) as usize % DIGITS.len()).copied();
        AuditId(std::array::from_fn(|place| digit(place).unwrap_or_default()))
    }

    /// What the header says.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a body that comes in pieces of so many bytes; `None` where its end does not come.
    fn content(head: &str, bytes: &[u8], size: usize) -> Result<Option<Vec<u8>>, Failure> {
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut reply = Response::new(&mut headers);
        assert!(reply.parse(head.as_bytes()).unwrap().is_complete());
        let (mut body, mut content, mut input) = (Body::of(&reply)?, Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            input.extend_from_slice(piece);
            while let (used @ 1.., content_bytes) = body.read(&input)? {
                content.extend_from_slice(&input[..content_bytes]);
                input.drain(..used);
            }
        }
        Ok((body == Body::Length(0)).then_some(content))
    }

    fn read(head: &str, bytes: &str) -> Result<Option<String>, &'static str> {
        let whole = content(head, bytes.as_bytes(), bytes.len().max(1));
        for size in [1, 2, 7] {
            assert_eq!(content(head, bytes.as_bytes(), size), whole, "{bytes:?} in pieces of {size}");
        }
        whole.map(|content| content.map(|bytes| String::from_utf8(bytes).unwrap())).map_err(|why| why.word())
    }

    const CHUNKED: &str = "Transfer-Encoding: Chunked";
    const MALFORMED: Result<Option<String>, &str> = Err("reply-malformed");

    #[test]
    fn what_stands_around_chunks_is_passed_over() {
        let bytes = "A;name=\"value\"\r\n0123456789\r\n0003\r\nabc\r\n0\r\nTrailer: x\r\nAudit-Id: another\r\n\r\n";
        assert_eq!(read(CHUNKED, bytes), Ok(Some("0123456789abc".to_owned())));
        for end in 0..bytes.len() {
            assert_eq!(read(CHUNKED, &bytes[..end]), Ok(None), "{end}");
        }
        let both = format!("Content-Length: 2\r\n{CHUNKED}");
        assert_eq!(read(&both, "1\r\na\r\n0\r\n\r\n"), Ok(Some("a".to_owned())), "chunks count");
    }

    #[test]
    fn a_body_that_is_not_framed_as_http_allows_is_malformed() {
        for head in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: +5",
            "Content-Length: five",
            "Content-Length:",
            "Content-Length: 18446744073709551616",
            "Transfer-Encoding: gzip, chunked",
        ] {
            assert_eq!(read(head, "0"), MALFORMED, "{head}");
        }
        assert_eq!(read("Content-Length: 2\r\nContent-Length: 2", "ab"), Ok(Some("ab".to_owned())));
        for chunks in ["5\r\n{\"a\"xx\r\n", "g\r\n", "-1\r\n", "fffffffffffffffff\r\n", "0\r\nno colon\r\n\r\n"] {
            assert_eq!(read(CHUNKED, chunks), MALFORMED, "{chunks:?}");
        }
        assert_eq!(read(CHUNKED, "ffffffffffffffff\r\nx"), Ok(None), "nobody waits for all of it");
    }

    #[test]
    fn an_audit_id_is_twelve_characters_that_every_log_takes_and_differs_with_each_of_its_bits() {
        let text = |random| AuditId::new(random).as_str().to_owned();
        let ids = [text(0), text(u128::MAX), text(1 | 26 << 6 | 52 << 12)];
        assert_eq!(ids, ["AAAAAAAAAAAA", "____________", "Ba0AAAAAAAAA"]);
        let ids: std::collections::BTreeSet<String> = (0..72).map(|bit| text(1 << bit)).collect();
        assert_eq!(ids.len(), 72);
    }
}
