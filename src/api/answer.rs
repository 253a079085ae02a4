//! What the API server said: a document, or a refusal with a retry class.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::failure::{Failure, cut};
use super::http::AuditId;
use super::operation::{Document, Wanted};
use super::protobuf::{self, StatusText};
use crate::node::object::Node;
use crate::time::Wall;

/// The end of one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The server's clock, from its `Date` header (verified TLS).
    pub date: Option<Wall>,
    pub result: Result<Document, Refusal>,
}

/// Why there was no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The API server itself refused (D14): with a `metav1.Status`, or, in trouble, in plain words.
    Status(StatusError),
    /// There was no answer, or none that is known to be the API server's.
    Failed(Failure),
}

/// What a refusal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusError {
    pub code: u16,
    /// `AlreadyExists`, `Conflict`, `Forbidden` ...; empty when the server gave none.
    pub reason: String,
    pub message: String,
    pub retry_after: Option<Duration>,
}

/// In the message of that policy.
const REVOKED: &str = "identity is revoked";

/// What a refusal means for the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// 401, 403: read the credentials again, back off, keep going.
    Rights,
    /// 404, 410.
    Missing,
    /// 409 `AlreadyExists`.
    Exists,
    /// 409 otherwise, 422: read, recompute, once more.
    Conflict,
    /// 429 or 5xx with Retry-After: the same request, that much later (TR-5).
    After(Duration),
    /// No answer, or one that cannot be understood: a fresh connection, then the lane's back-off.
    Unreachable,
    /// Everything else.
    Error,
}

impl Refusal {
    /// The machine word: the failure's own, or `http-CODE`.
    pub fn word(&self) -> Cow<'static, str> {
        match self {
            Refusal::Failed(failure) => Cow::Borrowed(failure.word()),
            Refusal::Status(status) => Cow::Owned(format!("http-{}", status.code)),
        }
    }

    /// Whether it is what was sent that is refused, and will be each time: malformed, too large, invalid. Not so where the
    /// server knows or likes us too little (401, 403: rights, quotas, a namespace that ends), or what we do (404, 405, 415).
    pub fn is_of_content(&self) -> bool {
        matches!(self, Refusal::Status(StatusError { code: 400 | 413 | 422, .. }))
    }

    /// Whether the object is not, or not any more, of the version that was sent along.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Refusal::Status(StatusError { code: 409, .. })) && self.class() == Class::Conflict
    }

    /// Whether an administrator has revoked this Node's identity, by the policy of `targets/kubernetes/revoked.yaml` (REV-1).
    pub fn is_revocation(&self) -> bool {
        matches!(self, Refusal::Status(StatusError { code: 422, message, .. }) if message.contains(REVOKED))
    }

    /// Whether the server has more to say of the Node than is taken in.
    pub fn is_too_long(&self) -> bool {
        matches!(self, Refusal::Failed(failure) if failure.is_body_too_large())
    }

    /// The patience that was asked for, whoever did; zero where nobody did.
    pub fn retry_after(&self) -> Duration {
        let asked = match self {
            Refusal::Status(status) => status.retry_after,
            Refusal::Failed(failure) => failure.retry_after(),
        };
        asked.unwrap_or_default()
    }

    /// The retry class.
    pub fn class(&self) -> Class {
        match self {
            Refusal::Failed(_) => Class::Unreachable,
            Refusal::Status(status) => status.class(),
        }
    }
}

impl StatusError {
    fn class(&self) -> Class {
        match (self.code, self.retry_after) {
            (401 | 403, _) => Class::Rights,
            (404 | 410, _) => Class::Missing,
            (409, _) if self.reason == "AlreadyExists" => Class::Exists,
            (409 | 422, _) => Class::Conflict,
            (429 | 500..=599, Some(wait)) => Class::After(wait),
            _ => Class::Error,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Failed(failure) => failure.fmt(f),
            Refusal::Status(status) => {
                write!(f, "server answered {}", status.code)?;
                if !status.reason.is_empty() {
                    write!(f, " {}", status.reason)?;
                }
                if !status.message.is_empty() {
                    write!(f, ": {}", status.message)?;
                }
                Ok(())
            }
        }
    }
}

/// Status line and headers of a reply, as far as they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) code: u16,
    content_type: String,
    date: Option<Wall>,
    retry_after: Option<Duration>,
    audit_id: Echo,
}

/// Whether an answer has an `Audit-Id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Echo {
    Missing,
    Another,
    Ours,
}

impl Head {
    /// Status code and headers; of an answer that no API server gives, why it is none (D14).
    pub(super) fn read<'a>(
        code: u16,
        header: &dyn Fn(&str) -> Option<&'a [u8]>,
        audit_id: &AuditId,
        wanted: Wanted,
    ) -> Result<Head, Failure> {
        let text = |name| header(name).and_then(|value| str::from_utf8(value).ok());
        if let 300..400 = code {
            let location: String = text("location").unwrap_or("nowhere").chars().take(200).collect();
            let between = "an API server never does, a captive portal or proxy stands between";
            return Err(Failure::new("redirected", format!("redirected to {location}: {between}")));
        }
        let echo = header(AuditId::HEADER).map(|echo| echo == audit_id.as_str().as_bytes());
        let head = Head {
            audit_id: echo.map_or(Echo::Missing, |is_ours| if is_ours { Echo::Ours } else { Echo::Another }),
            code,
            content_type: cut(text("content-type").unwrap_or_default()),
            date: text("date").and_then(Wall::parse_http_date),
            retry_after: text("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs),
        };
        head.confirm(wanted).map(|()| head)
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether this may be the API server's own word, as far as a head can show it (D14).
    fn confirm(&self, wanted: Wanted) -> Result<(), Failure> {
        match self.audit_id {
            // No API server; the connection has proven who it is, or nothing is believed of it but what a hash vouches for.
            _ if wanted == Wanted::HandedOut => Ok(()),
            Echo::Missing => Err(self.unconfirmed("an Audit-Id")),
            Echo::Another if self.is_success() => Err(self.unconfirmed("our Audit-ID")),
            _ if self.is_success() && !is_same(essence(&self.content_type), essence(wanted.content_type())) => {
                Err(self.unconfirmed("the content type that was asked for"))
            }
            _ => Ok(()),
        }
    }

    /// `body` is complete; for a success nobody reads it is empty.
    pub(super) fn into_answer(self, wanted: Wanted, body: &[u8]) -> Result<Answer, Failure> {
        let date = self.date;
        let result =
            if self.is_success() { Ok(self.document(wanted, body)?) } else { Err(self.refusal(wanted, body)?) };
        Ok(Answer { date, result })
    }

    fn document(&self, wanted: Wanted, body: &[u8]) -> Result<Document, Failure> {
        Ok(match wanted {
            Wanted::Node => {
                let node: Box<Node> = self.json(body)?;
                if node.metadata.name.is_empty() {
                    return Err(self.not_json("a Node without a name"));
                }
                Document::Node(node)
            }
            Wanted::Metadata => {
                // Of a long one, or where no more was wanted, the beginning has come.
                let metadata = protobuf::read_metadata(body, true).filter(has_version);
                metadata.ok_or_else(|| self.not_json("this is not the protobuf form of an object's metadata"))?
            }
            Wanted::Lease => Document::Lease(self.json(body)?),
            Wanted::LeaseMetadata => protobuf::read_metadata(body, false).unwrap_or(Document::Nothing),
            Wanted::Version => Document::Version(cut(&self.json::<VersionInfo>(body)?.git_version)),
            Wanted::Names | Wanted::Json => Document::Json(body.to_vec()),
            Wanted::Protobuf => Document::Protobuf(body.to_vec()),
            Wanted::HandedOut => Document::HandedOut(body.to_vec()),
            Wanted::Events | Wanted::Nothing => Document::Nothing,
        })
    }

    fn json<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(body).map_err(|error| self.not_json(&error.to_string()))
    }

    fn unconfirmed(&self, lacks: &str) -> Failure {
        Failure::unconfirmed(self.code, &self.content_type, lacks, self.retry_after)
    }

    /// The API server's success, and its body is not what was asked for.
    fn not_json(&self, detail: &str) -> Failure {
        let (content_type, detail) = (&self.content_type, cut(detail));
        let text = format!("the API server's reply ({content_type}) is not what was asked for ({detail})");
        Failure::new("reply-not-json", text)
    }

    fn refusal(self, wanted: Wanted, body: &[u8]) -> Result<Refusal, Failure> {
        // Which of the two it is, their first bytes say; what is asked for in one comes in the other at times.
        let status = protobuf::read_status(body).or_else(|| serde_json::from_slice::<StatusText>(body).ok());
        let is_in_trouble = self.audit_id == Echo::Ours && matches!(self.code, 429 | 500..);
        let may_be_plain = is_in_trouble || wanted == Wanted::HandedOut;
        let status = match status {
            Some(status) if status.kind == "Status" => status,
            // Too busy, shutting down, a panic, a time-out: it says so before anything that knows of objects is asked, and
            // repeats our Audit-ID all the same.
            status if may_be_plain => status.unwrap_or_else(|| StatusText::saying(body)),
            _ => return Err(self.unconfirmed("a Status")),
        };
        let (code, retry_after, reason, message) =
            (self.code, self.retry_after, cut(&status.reason), cut(&status.message));
        Ok(Refusal::Status(StatusError { code, reason, message, retry_after }))
    }
}

/// A content type without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split_once(';').map_or(content_type, |(essence, _)| essence).trim()
}

/// An API server writes it as it was asked for, which is seen sooner.
fn is_same(said: &str, asked: &str) -> bool {
    said == asked || said.eq_ignore_ascii_case(asked)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionInfo {
    git_version: String,
}

/// It stands last of what is read, so that whatever was cut off is not missed.
fn has_version(document: &Document) -> bool {
    matches!(document, Document::Metadata { resource_version, .. } if !resource_version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, reason: &str, retry_after: Option<u64>) -> Refusal {
        let retry_after = retry_after.map(Duration::from_secs);
        Refusal::Status(StatusError { code, reason: reason.to_owned(), message: "no".to_owned(), retry_after })
    }

    #[test]
    fn every_status_has_its_class() {
        for (code, reason, retry_after, class) in [
            (401, "Unauthorized", None, Class::Rights),
            (403, "Forbidden", Some(1), Class::Rights),
            (404, "NotFound", None, Class::Missing),
            (410, "Expired", None, Class::Missing),
            (409, "AlreadyExists", None, Class::Exists),
            (409, "Conflict", None, Class::Conflict),
            (409, "", None, Class::Conflict),
            (422, "Invalid", None, Class::Conflict),
            (429, "TooManyRequests", Some(2), Class::After(Duration::from_secs(2))),
            (503, "ServiceUnavailable", Some(30), Class::After(Duration::from_secs(30))),
            (429, "TooManyRequests", None, Class::Error),
            (500, "InternalError", None, Class::Error),
            (400, "BadRequest", Some(1), Class::Error),
        ] {
            assert_eq!(refusal(code, reason, retry_after).class(), class, "{code} {reason}");
        }
        assert_eq!(Refusal::Failed(Failure::closed(0)).class(), Class::Unreachable);
    }

    #[test]
    fn a_refusal_is_a_word_for_machines_and_a_sentence_for_people() {
        let forbidden = refusal(403, "Forbidden", None);
        assert_eq!(
            (forbidden.word(), forbidden.to_string()),
            ("http-403".into(), "server answered 403 Forbidden: no".into())
        );
        for code in [400, 413, 422] {
            assert!(refusal(code, "", None).is_of_content(), "{code}");
        }
        for code in [401, 403, 404, 405, 408, 409, 415, 429, 500, 503, 504] {
            assert!(!refusal(code, "", None).is_of_content(), "{code}");
        }
        let silent = Refusal::Failed(Failure::timed_out(Duration::from_secs(10)));
        assert_eq!(
            (silent.word(), silent.to_string()),
            ("timed-out".into(), "no complete answer within 10000 ms".into())
        );
    }
}
