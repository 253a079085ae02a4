//! The same over HTTP/2: cut at every byte, said by strangers, reset, sent away, flooded.

use super::http2_client::{self as server, Client, REFUSED_STREAM, Said};
use super::*;
use std::net::Shutdown;
use std::sync::Arc;

const JSON: &str = "application/json";
const VERSION: &[u8] = br#"{"gitVersion":"v1.36.3"}"#;

fn good(request: &Said) -> Vec<u8> {
    server::answer(request, "200", JSON, VERSION)
}

/// A server whose first connections answer their first request with these bytes and then end, as often with close_notify as
/// without; every later one is good.
fn answering(
    authority: &Authority,
    times: usize,
    reply: impl Fn(usize, &Said) -> Vec<u8> + Send + Sync + 'static,
) -> Listener {
    let mut config = authority.server_config(&authority.sign(&["127.0.0.1"])).as_ref().clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Listener::tls(Arc::new(config), move |number, mut stream| {
        let (mut client, mut bytes) = (Client::default(), [0; 4096]);
        stream.write_all(&server::settings()).unwrap();
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            for request in client.read(&bytes[..count]).iter().filter(|said| matches!(said, Said::Request { .. })) {
                if number >= times {
                    stream.write_all(&good(request)).unwrap();
                    continue;
                }
                let _ = stream.write_all(&reply(number, request));
                if number % 2 == 1 {
                    stream.conn.send_close_notify();
                }
                let _ = stream.flush();
                // What the client says meanwhile is read, or the kernel would cut the reply short.
                let _ = stream.sock.shutdown(Shutdown::Write);
                let _ = std::io::copy(&mut stream.sock, &mut std::io::sink());
                return;
            }
        }
    })
}

/// What such an answer leads to, and that the next request works.
fn failure_of(reply: impl Fn(&Said) -> Vec<u8> + Send + Sync + 'static) -> Failure {
    let authority = Authority::new();
    let server = answering(&authority, 1, move |_, request| reply(request));
    let session = open(kubeconfig(&authority, server.port));
    let failure = failure(ask(&session));
    assert_works(&session);
    assert_eq!(server.accepted(), 2);
    failure
}

fn stream_of(request: &Said) -> u32 {
    let Said::Request { stream, .. } = request else { panic!("{request:?}") };
    *stream
}

#[test]
fn an_answer_over_http2_is_an_answer_and_its_connection_stays() {
    let authority = Authority::new();
    let server = answering(&authority, 0, |_, _| Vec::new());
    let session = open(kubeconfig(&authority, server.port));
    (0..3).for_each(|_| assert_works(&session));
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_reply_cut_at_every_byte_is_an_unfinished_answer() {
    let authority = Authority::new();
    let request = Said::Request { stream: 1, fields: vec![("audit-id".to_owned(), "A".repeat(12))], body: Vec::new() };
    let length = good(&request).len();
    let server = answering(&authority, length * 2, |number, request| good(request)[..number / 2].to_vec());
    let session = open(kubeconfig(&authority, server.port));
    assert_unfinished(&session, length);
}

#[test]
fn what_a_stranger_says_is_no_answer() {
    let told = |fields: &'static [(&'static str, &'static str)]| {
        failure_of(move |request| server::headers(stream_of(request), fields, true)).word()
    };
    assert_eq!(told(&[(":status", "200"), ("content-type", "text/html")]), "answer-unconfirmed");
    assert_eq!(told(&[(":status", "200"), ("audit-id", "another"), ("content-type", JSON)]), "answer-unconfirmed");
    assert_eq!(told(&[(":status", "503"), ("content-type", "text/html")]), "answer-unconfirmed");
    assert_eq!(told(&[(":status", "302"), ("location", "http://login.hotel/")]), "redirected");
}

#[test]
fn what_breaks_a_rule_of_the_protocol_ends_the_connection_and_the_next_one_works() {
    let text = failure_of(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()).to_string();
    assert!(text.contains("not valid HTTP"), "{text}");
    for reply in [
        server::frame(0, 1, 0, b"on no stream"),
        server::frame(1, 4, 1, &[0xff; 8]),
        server::frame(9, 4, 1, b""),
        server::frame(8, 0, 0, &[0; 4]),
        server::frame(5, 4, 1, &[0, 0, 0, 2]),
        server::frame(3, 0, 7, &[0; 4]),
    ] {
        assert_eq!(failure_of(move |_| reply.clone()).word(), "reply-malformed");
    }
}

#[test]
fn a_stream_that_is_reset_and_a_connection_that_is_left_are_told_apart() {
    let word = |reply: fn(u32) -> Vec<u8>| failure_of(move |request| reply(stream_of(request))).word();
    assert_eq!(word(|stream| server::reset(stream, 2)), "stream-reset");
    assert_eq!(word(|stream| server::reset(stream, REFUSED_STREAM)), "stream-reset");
    assert_eq!(word(|stream| server::go_away(stream - 1, 0)), "stream-reset");
    assert_eq!(word(|stream| server::go_away(stream, 0)), "connection-closed");
    assert_eq!(word(|stream| [server::headers(stream, &[(":status", "200")], false)].concat()), "answer-unconfirmed");
}

#[test]
fn a_server_that_leaves_after_its_answer_is_believed_and_asked_over_another_connection() {
    let authority = Authority::new();
    let server =
        answering(&authority, 3, |_, request| [server::go_away(stream_of(request), 0), good(request)].concat());
    let session = open(kubeconfig(&authority, server.port));
    (0..6).for_each(|_| assert_works(&session));
    assert_eq!(server.accepted(), 4);
}

#[test]
fn frames_that_say_nothing_have_an_end() {
    let authority = Authority::new();
    let server = answering(&authority, 1, |_, _| server::ping().repeat(200_000));
    let session = open(kubeconfig(&authority, server.port));
    let before = peak_memory_bytes();
    assert_eq!(failure(ask(&session)).word(), "reply-malformed");
    assert!(peak_memory_bytes() - before < 16 << 20);
    assert_works(&session);
}
