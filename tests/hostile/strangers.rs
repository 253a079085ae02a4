//! Turns requests into the answers of boxes on the way that are no API server, or of one that leaves out what it owes.

use super::model::http::http_date;
use super::server::{Hit, Stream, unix_us};
use serde_json::{Value, json};
use std::io::{self, Write};

const PAGE: &str =
    "<!DOCTYPE html><html><head><title>Access denied</title></head><body>Ask your administrator.</body></html>";

fn reply(stream: &mut Stream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let date = http_date(unix_us());
    let head = format!("HTTP/1.1 {status}\r\nDate: {date}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat())
}

fn page(stream: &mut Stream, status: &str) -> io::Result<()> {
    reply(stream, status, "Server: portal\r\nContent-Type: text/html; charset=utf-8\r\n", PAGE.as_bytes())
}

pub fn html_403(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    page(stream, "403 Forbidden")
}

pub fn html_404(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    page(stream, "404 Not Found")
}

pub fn html_422(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    page(stream, "422 Unprocessable Entity")
}

pub fn html_502(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    page(stream, "502 Bad Gateway")
}

pub fn html_200(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    page(stream, "200 OK")
}

pub fn redirect(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    reply(stream, "302 Found", "Location: http://login.hotel.example/?next=/\r\n", b"")
}

/// What a caching proxy or a portal with an API of its own may say.
pub fn json_200(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    reply(stream, "200 OK", "Content-Type: application/json\r\n", br#"{"ok":true,"items":[null,{}],"kind":"Portal"}"#)
}

/// The media type that was asked for, and nothing of the kind in it.
pub fn protobuf_200(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    reply(stream, "200 OK", "Content-Type: application/vnd.kubernetes.protobuf\r\n", b"k8s\0")
}

fn status(code: u16, reason: &str, message: &str) -> Vec<u8> {
    let status: Value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    status.to_string().into_bytes()
}

/// As an API server refuses.
pub fn refuse(hit: &Hit, stream: &mut Stream, code: u16, reason: &str, message: &str, headers: &str) -> io::Result<()> {
    let own = hit.request.header("audit-id").unwrap_or("6f1c4a52-1d7e-4b39-9a1c-2f6d0c5b7e11");
    let headers = format!("Audit-Id: {own}\r\nContent-Type: application/json\r\n{headers}");
    reply(stream, &format!("{code} {reason}"), &headers, &status(code, reason, message))
}

/// The form of a refusal without the header that every answer of an API server has.
fn without_audit_id(stream: &mut Stream, code: u16, reason: &str) -> io::Result<()> {
    let headers = "Content-Type: application/json\r\n";
    reply(stream, &format!("{code} {reason}"), headers, &status(code, reason, "a proxy that speaks JSON"))
}

pub fn status_403_without_audit_id(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    without_audit_id(stream, 403, "Forbidden")
}

pub fn status_404_without_audit_id(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    without_audit_id(stream, 404, "NotFound")
}

/// What the server says, through a box that mixes answers up.
pub fn wrong_audit_id(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let mut response = hit.honest();
    for (name, value) in &mut response.headers {
        if *name == "Audit-Id" {
            *value = "AAAAAAAAAAAA".to_owned();
        }
    }
    stream.write_all(&response.to_bytes())
}

pub fn forbidden(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 403, "Forbidden", "exceeded quota: objects, requested: 1, used: 9, limited: 9", "")
}

pub fn unauthorized(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 401, "Unauthorized", "Unauthorized", "")
}

pub fn not_found(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 404, "NotFound", &format!("nodes \"{}\" not found", hit.node_name()), "")
}

pub fn conflict(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 409, "Conflict", "the object has been modified; please apply your changes again", "")
}

pub fn invalid(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 422, "Invalid", "spec: Invalid value", "")
}

pub fn patience_for_ever(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 429, "TooManyRequests", "Too many requests", "Retry-After: 1000000000\r\n")
}

pub fn patience_below_zero(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 503, "ServiceUnavailable", "not now", "Retry-After: -1\r\n")
}

pub fn patience_of_nothing(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 503, "ServiceUnavailable", "not now", "Retry-After: 0\r\n")
}

pub fn patience_beyond_numbers(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    refuse(hit, stream, 503, "ServiceUnavailable", "not now", "Retry-After: 99999999999999999999999999\r\n")
}

/// The Node is made and gone each time.
pub fn deleted_at_once(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let response = hit.honest();
    let name = hit.node_name();
    hit.store().delete_node(name);
    stream.write_all(&response.to_bytes())
}

/// 900 kB, once they are escaped, of what a terminal, a log and a service manager must not get.
pub fn long_foul_message(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let piece = format!(
        "{}\n\r\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\u{2066}\u{85}\u{9b}31m\u{2028}\0READY=1\nMAINPID=1\nFDSTORE=1 ok rights \u{feff}",
        hit.number
    );
    let message = piece.repeat(600_000 / piece.len());
    refuse(hit, stream, 500, "InternalError", &message, "")
}

/// The same in a reason, which is a word.
pub fn long_foul_reason(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let piece = format!("Foul{}\n\u{1b}[31m\u{202e}READY=1\n", hit.number);
    let body = status(500, &piece.repeat(600_000 / piece.len()), "see reason");
    let own = hit.request.header("audit-id").unwrap_or("6f1c4a52-1d7e-4b39-9a1c-2f6d0c5b7e11");
    let headers = format!("Audit-Id: {own}\r\nContent-Type: application/json\r\n");
    reply(stream, "500 Internal Server Error", &headers, &body)
}

/// A place to go to that is meant for a terminal.
pub fn foul_redirect(_: &Hit, stream: &mut Stream) -> io::Result<()> {
    let headers = "Location: http://\u{1b}[2Jx\u{202e}y\u{9b}z/\r\n";
    reply(stream, "302 Found", headers, b"")
}

pub fn foul_content_type(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let headers = format!("Content-Type: text/{}\u{202e}\u{85}\u{9b}2J\t\u{feff}html\r\n", hit.number);
    reply(stream, "200 OK", &headers, PAGE.as_bytes())
}

/// A code that was not there before, each time.
pub fn another_refusal_each_time(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let code = 500 + u16::try_from(hit.number % 90).unwrap_or_default();
    refuse(hit, stream, code, &format!("Reason{}", hit.number), &format!("number {}", hit.number), "")
}

pub fn another_stranger_each_time(hit: &Hit, stream: &mut Stream) -> io::Result<()> {
    let strangers = [html_502, redirect, html_200, html_403, json_200, html_404, foul_redirect, html_422, protobuf_200];
    strangers[hit.number % strangers.len()](hit, stream)
}
