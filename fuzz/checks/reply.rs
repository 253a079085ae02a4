//! Turns any bytes into the reply of a server, whole and byte by byte: both say the same. The first byte says what the
//! rest is: a reply, or the body of one of three kinds, of which one is protobuf, as the server of a renewal speaks it.

use nodepulse::api::{Answer, AuditId, Exchange, Failure, Operation, Progress, Target};

fn target() -> Target {
    let (authority, node_name) = ("192.0.2.1:6443".to_owned(), "board".to_owned());
    Target { authority, path_prefix: String::new(), node_name, bearer_token: None }
}

fn answer(bytes: &[u8], step: usize) -> Result<Answer, Failure> {
    let (_, mut exchange) = Exchange::start(Operation::ReadNode { heartbeat: false }, &target(), AuditId::new(0));
    let mut input = Vec::new();
    for part in bytes.chunks(step) {
        input.extend_from_slice(part);
        if let Progress::Done { answer, .. } = exchange.feed(&mut input)? {
            return Ok(answer);
        }
    }
    exchange.end_of_stream()
}

/// `bytes` stand for what a server sends.
pub fn check(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let reply = match kind % 4 {
        0 => bytes.to_vec(),
        1 => with_head("application/vnd.kubernetes.protobuf", "403 Forbidden", body),
        2 => with_head("application/json", "200 OK", body),
        _ => with_head("application/json", "409 Conflict", body),
    };
    let whole = answer(&reply, reply.len());
    let piecemeal = answer(&reply, 1);
    assert_eq!(whole.is_ok(), piecemeal.is_ok(), "{whole:?} {piecemeal:?}");
    if let (Ok(whole), Ok(piecemeal)) = (whole, piecemeal) {
        assert_eq!(whole.result.is_ok(), piecemeal.result.is_ok());
    }
}

fn with_head(kind: &str, status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nAudit-Id: AAAAAAAAAAAA\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}
