//! Turns chance into the answer of something that is not the API server: a proxy, a portal, a gateway, a cache.
//!
//! Whatever it looks like, one of the marks is missing by which the API server's own words are known (D14), so nothing that
//! it says may end, begin or prove anything.

use nodepulse::api::Failure;
use serde_json::json;

use super::random::Random;
use crate::model::http::Response;
use crate::model::problem::{Problem, Words};
use crate::model::protobuf;

const CODES: [u16; 22] =
    [200, 200, 200, 201, 204, 400, 401, 403, 403, 404, 404, 405, 407, 409, 410, 413, 415, 422, 429, 502, 503, 504];
const REDIRECT: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\nContent-Length: 0\r\n\r\n";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One of them, with its ways.
#[derive(Debug, Clone, Copy)]
pub struct Stranger {
    code: u16,
    looks: u64,
    pub retry_after_s: Option<u64>,
    /// A name of its own, or of another request, or none.
    audit_id: Option<u64>,
}

impl Stranger {
    pub fn new(random: &mut Random) -> Stranger {
        Stranger {
            code: random.pick(&CODES),
            looks: random.below(10),
            retry_after_s: random.per_mille(200).then(|| random.pick(&[0, 1, 5, 3600, 1_000_000])),
            audit_id: random.per_mille(250).then(|| random.next()),
        }
    }

    /// What it says in place of `true_answer`, which it may have seen.
    pub fn answer(self, true_answer: &Response) -> Vec<u8> {
        let reason = [(404, "NotFound"), (409, "AlreadyExists"), (401, "Unauthorized"), (403, "Forbidden")];
        let reason = reason.into_iter().find(|(code, _)| *code == self.code).map_or("Invalid", |(_, reason)| reason);
        let message = "a stranger says so".to_owned();
        let problem = Problem { code: self.code, reason, message, retry_after: None, words: Words::Status };
        let (content_type, body) = match self.looks {
            0 => return REDIRECT.to_vec(),
            1 => ("text/html; charset=utf-8", b"<html>Please log in, or go away</html>".to_vec()),
            2 => ("text/plain; charset=utf-8", b"404 page not found\n".to_vec()),
            3 => (JSON, b"{}".to_vec()),
            4 => (JSON, json!({"error": {"status": self.code, "message": "no route"}}).to_string().into_bytes()),
            5 => (PROTOBUF, Vec::new()),
            6 => (JSON, problem.status().to_string().into_bytes()),
            7 => (PROTOBUF, protobuf::encode_status(&problem)),
            // Somebody keeps answers, and gives them to whoever asks.
            _ => (if true_answer.body.starts_with(b"k8s") { PROTOBUF } else { JSON }, true_answer.body.clone()),
        };
        let is_status = self.looks >= 6 && self.code >= 400;
        // A Status with an `Audit-Id` is what an API server says, though perhaps to somebody else.
        let audit_id = self.audit_id.filter(|_| !is_status).map(|number| ("Audit-Id", format!("{number:012x}")));
        let retry_after = self.retry_after_s.map(|seconds| ("Retry-After", seconds.to_string()));
        let mut headers = vec![("Server", "nginx".to_owned()), ("Content-Type", content_type.to_owned())];
        headers.extend(audit_id.into_iter().chain(retry_after));
        headers.push(("Date", "Fri, 01 Jan 2038 00:00:00 GMT".to_owned()));
        let body = if self.code == 204 { Vec::new() } else { body };
        Response { code: self.code, headers, body }.to_bytes()
    }
}

/// The code of an answer that is not known to be the API server's.
pub fn strangers_code(failure: &Failure) -> Option<u16> {
    let text = failure.to_string();
    text.strip_prefix("answered ").filter(|_| failure.word() == "answer-unconfirmed")?.split(' ').next()?.parse().ok()
}
