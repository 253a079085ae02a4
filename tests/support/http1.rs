//! Turns the bytes of a connection into requests of HTTP/1.1, and one answer after the other into bytes of another connection.

// Every user takes a part of it.
#![allow(dead_code)]

use std::io::{Read, Write};

const HEAD_BYTES: usize = 16 * 1024;
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// A request, as it came.
pub struct Request {
    pub line: String,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// One answer, to its end.
pub fn relay(from: &mut impl Read, to: &mut impl Write) -> Option<()> {
    let head = read_head(from)?;
    to.write_all(head.as_bytes()).ok()?;
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    if let Some(many) = field("content-length").and_then(|text| text.parse::<usize>().ok()) {
        to.write_all(&read_exactly(from, many)?).ok()?;
    } else if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        loop {
            let line = read_line(from)?;
            to.write_all(line.as_bytes()).ok()?;
            let many = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
            to.write_all(&read_exactly(from, many + 2)?).ok()?;
            to.flush().ok()?;
            if many == 0 {
                break;
            }
        }
    }
    to.flush().ok()
}

impl Request {
    /// Without its query.
    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default()
    }

    /// The first of this name, which is given in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The next request of a connection; `None` at its end, and where it is no request.
pub fn read_request(from: &mut impl Read) -> Option<Request> {
    let head = read_head(from)?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let pairs = lines.filter_map(|line| line.split_once(':'));
    let headers: Vec<(String, String)> =
        pairs.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
    let many = headers.iter().find(|(name, _)| name == "content-length").map_or(Some(0), |(_, v)| v.parse().ok())?;
    let body = read_exactly(from, many)?;
    Some(Request { line, headers, body })
}

/// The lines of a head, the empty one included.
pub fn read_head(from: &mut impl Read) -> Option<String> {
    let mut head = String::new();
    loop {
        let line = read_line(from)?;
        head.push_str(&line);
        if line == "\r\n" {
            return Some(head);
        }
        if head.len() > HEAD_BYTES {
            return None;
        }
    }
}

fn read_line(from: &mut impl Read) -> Option<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        from.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
        if line.len() > HEAD_BYTES {
            return None;
        }
    }
    String::from_utf8(line).ok()
}

fn read_exactly(from: &mut impl Read, many: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; Some(many).filter(|many| *many <= BODY_BYTES)?];
    from.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
