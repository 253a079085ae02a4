//! Turns an honest answer into one that nobody should have to read: in its form, its length, its pace or its content.

use super::server::{Hit, Stream};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
const PIECE: [u8; 16 * 1024] = [b'0'; 16 * 1024];

fn pour_after(hit: &Hit, stream: &mut Stream, head: &str, piece: &[u8]) -> io::Result<()> {
    stream.write_all(head.as_bytes())?;
    hit.going.pour(stream, piece)
}

pub fn chunk_size_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, CHUNKED, &PIECE)
}

pub fn chunk_extension_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, &format!("{CHUNKED}1;name="), &PIECE)
}

pub fn chunks_of_one_byte(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, CHUNKED, &b"1\r\n \r\n".repeat(2048))
}

pub fn chunks_with_extensions(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let piece = format!("1;x={}\r\n \r\n", "y".repeat(1000)).repeat(16);
    pour_after(hit, stream, CHUNKED, piece.as_bytes())
}

pub fn trailers_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, &format!("{CHUNKED}0\r\n"), "X-Trailer: y\r\n".repeat(1000).as_bytes())
}

pub fn continue_flood(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "", "HTTP/1.1 100 Continue\r\n\r\n".repeat(600).as_bytes())
}

pub fn early_hints_flood(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(300).as_bytes())
}

pub fn header_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "HTTP/1.1 200 OK\r\nX: ", &PIECE)
}

pub fn headers_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "HTTP/1.1 200 OK\r\n", "X-Header: y\r\n".repeat(1000).as_bytes())
}

pub fn status_line_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "HTTP/1.1 200 ", &PIECE)
}

pub fn empty_lines_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "", &b"\r\n".repeat(8192))
}

/// No head at all: HTTP/0.9.
pub fn body_alone(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, "<html>", &PIECE)
}

pub fn body_without_end(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, &format!("{OK}\r\n"), &PIECE)
}

pub fn body_of_a_gigabyte(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, &format!("{OK}Content-Length: 1000000000\r\n\r\n"), &[b' '; 16 * 1024])
}

pub fn refusal_of_a_gigabyte(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let head =
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n";
    pour_after(hit, stream, head, &[b' '; 16 * 1024])
}

/// The length that overflows, the one below zero, two that differ, and both ways to say it.
pub fn strange_lengths(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let lengths = [
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
    ];
    let length = lengths[hit.number % lengths.len()];
    stream.write_all(format!("{OK}{length}\r\n{{}}").as_bytes())
}

pub fn huge_chunk(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    pour_after(hit, stream, &format!("{CHUNKED}ffffffffffffffff\r\n"), &[b' '; 16 * 1024])
}

const SECOND: Duration = Duration::from_secs(1);

/// True to the last byte, which comes in an hour.
pub fn one_byte_a_second(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let bytes = hit.honest().to_bytes();
    hit.going.drip(stream, &bytes, SECOND)
}

pub fn body_of_one_byte_a_second(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let bytes = hit.honest().to_bytes();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    stream.write_all(&bytes[..head])?;
    hit.going.drip(stream, &bytes[head..], SECOND)
}

/// Each byte in a record of its own: slow to take apart, and true.
pub fn tiny_records(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    hit.going.drip(stream, &hit.honest().to_bytes(), Duration::ZERO)
}

pub fn silence(hit: &Hit, _: &mut Stream) -> io::Result<()> {
    while hit.going.pause(SECOND) {}
    Ok(())
}

pub fn close(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Half of it, and the end.
pub fn cut(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let bytes = hit.honest().to_bytes();
    stream.write_all(&bytes[..bytes.len() / 2])?;
    close(hit, stream)
}

/// The second is the first again, for a request that nobody has made.
pub fn two_answers(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let bytes = hit.honest().to_bytes();
    stream.write_all(&bytes.repeat(2))
}

pub fn gzip(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let body = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0xed; 200]].concat();
    let own = hit.request.header("audit-id").unwrap_or("6f1c4a52-1d7e-4b39-9a1c-2f6d0c5b7e11");
    let head = format!("{OK}Audit-Id: {own}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), &body].concat())
}

/// SETTINGS, as a server of HTTP/2 begins.
pub fn http2(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    const SETTINGS: &[u8] = b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff";
    hit.going.pour(stream, &SETTINGS.repeat(200))
}

fn with_body(hit: &Hit, stream: &mut Stream, content_type: &str, body: Vec<u8>) -> io::Result<()> {
    let mut response = hit.honest();
    for (name, value) in &mut response.headers {
        if *name == "Content-Type" {
            content_type.clone_into(value);
        }
    }
    response.body = body;
    stream.write_all(&response.to_bytes())
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Lengths beyond everything, at each level.
pub fn protobuf_with_huge_lengths(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let outer = [&b"k8s\0\x12"[..], &huge].concat();
    let inner = [&b"k8s\0\x0a\x04\x0a\x02v1\x12\x0c\x0a"[..], &huge, b"x"].concat();
    let endless = [&b"k8s\0"[..], &[0xff; 5000]].concat();
    let body = [outer, inner, endless][hit.number % 3].clone();
    with_body(hit, stream, PROTOBUF, body)
}

pub fn protobuf_cut(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let body = hit.honest().body;
    let end = hit.number % body.len().max(1);
    with_body(hit, stream, PROTOBUF, body[..end].to_vec())
}

/// Ten thousand nested fields, as deep as they can be in 20 kB.
pub fn nested_json(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_body(hit, stream, "application/json", "{\"a\":".repeat(100_000).into_bytes())
}

fn with_date(hit: &Hit, stream: &mut Stream, date: &str) -> io::Result<()> {
    let mut response = hit.honest();
    for (name, value) in &mut response.headers {
        if *name == "Date" {
            date.clone_into(value);
        }
    }
    stream.write_all(&response.to_bytes())
}

pub fn date_2035(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_date(hit, stream, "Mon, 01 Jan 2035 00:00:00 GMT")
}

pub fn date_9999(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_date(hit, stream, "Fri, 31 Dec 9999 23:59:59 GMT")
}

pub fn date_1970(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_date(hit, stream, "Thu, 01 Jan 1970 00:00:00 GMT")
}

pub fn date_garbage(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let garbage = ["", "yesterday", "Mon, 99 Xyz -1 99:99:99 GMT", "Sun, 06 Nov 1994 08:49:37 +9999", "0"];
    with_date(hit, stream, garbage[hit.number % garbage.len()])
}

/// Changes the JSON of a Node, and nothing else.
fn with_node(hit: &Hit, stream: &mut Stream, change: impl Fn(&str, usize) -> String) -> io::Result<()> {
    let mut response = hit.honest();
    if let Ok(text) = String::from_utf8(response.body.clone())
        && text.contains("\"kind\":\"Node\"")
        && response.is_success()
    {
        response.body = change(&text, hit.number).into_bytes();
    }
    stream.write_all(&response.to_bytes())
}

/// `count` members before the first one of an object or a list.
fn stuffed(node: &str, opening: &str, count: usize, member: impl Fn(usize) -> String) -> String {
    let members = (0..count).fold(String::new(), |mut members, number| {
        let _ = write!(members, "{},", member(number));
        members
    });
    node.replacen(opening, &format!("{opening}{members}"), 1)
}

pub fn node_with_80000_capacities(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_node(hit, stream, |node, _| stuffed(node, "\"capacity\":{", 80_000, |n| format!("\"a{n:05}\":\"1\"")))
}

pub fn node_with_60000_labels(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_node(hit, stream, |node, _| stuffed(node, "\"labels\":{", 60_000, |n| format!("\"a{n:05}\":\"b\"")))
}

pub fn node_with_60000_annotations(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_node(hit, stream, |node, _| stuffed(node, "\"annotations\":{", 60_000, |n| format!("\"a{n:05}\":\"b\"")))
}

pub fn node_with_10000_conditions(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let condition = |n| format!("{{\"type\":\"Kind{n}\",\"status\":\"True\",\"reason\":\"Foreign\"}}");
    with_node(hit, stream, move |node, _| stuffed(node, "\"conditions\":[", 10_000, condition))
}

pub fn node_with_20000_addresses(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let address = |n| format!("{{\"type\":\"ExternalIP\",\"address\":\"10.0.{}.{}\"}}", n / 256, n % 256);
    with_node(hit, stream, move |node, _| stuffed(node, "\"addresses\":[", 20_000, address))
}

/// Escape sequences, lines of their own and turned text wherever a Node has words.
pub fn foul_node(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    const FOUL: &str = r"\n\u001b[2J\u202e\u009b31m\u2028READY=1\n";
    with_node(hit, stream, |node, _| {
        let condition = format!("{{\"type\":\"T{FOUL}\",\"status\":\"S{FOUL}\",\"reason\":\"R{FOUL}\"}}");
        let node = stuffed(node, "\"conditions\":[", 1, |_| condition.clone());
        let node = stuffed(&node, "\"labels\":{", 1, |_| format!("\"l{FOUL}\":\"v{FOUL}\""));
        // Not in what says whose Node it is: one of another board is rightly left alone for a while (D10).
        node.replacen("\"uid\":\"", &format!("\"uid\":\"{FOUL}"), 1)
    })
}

pub fn foul_version(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let body = r#"{"major":"1","minor":"36","gitVersion":"v1.36.2\n\u001b[2J\u202e\u009bREADY=1\n"}"#;
    with_body(hit, stream, "application/json", body.into())
}

/// Which then is to be told as the Node's own.
pub fn version_of_600_kb(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let body = format!("{{\"gitVersion\":\"v1.36.2-{}\"}}", "x".repeat(600_000));
    with_body(hit, stream, "application/json", body.into_bytes())
}

/// What counts writes counts nothing any more.
pub fn version_that_is_no_number(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let mut response = hit.honest();
    let version = |text: String| text.replace("\"resourceVersion\":\"", "\"resourceVersion\":\"x\u{202e}");
    response.body = match String::from_utf8(std::mem::take(&mut response.body)) {
        Ok(text) if text.starts_with('{') => version(text).into_bytes(),
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    stream.write_all(&response.to_bytes())
}

pub fn another_uid_each_time(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    with_node(hit, stream, |node, number| {
        let fresh = format!("\"uid\":\"6f1c4a52-0000-4000-8000-{number:012x}\",\"was\":\"");
        node.replacen("\"uid\":\"", &fresh, 1)
    })
}

/// A Lease that is there already was renewed at the end of time.
pub fn lease_of_9999(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    hit.renew_until("9999-12-31T23:59:59.999999Z");
    stream.write_all(&hit.honest().to_bytes())
}
