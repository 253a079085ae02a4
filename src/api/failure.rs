//! Why an exchange gave no answer at all: a machine word and a sentence that says what to do next.

use std::fmt;
use std::time::Duration;

use crate::config::limits;

/// An exchange that failed below the meaning of HTTP. The connection is not used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    word: &'static str,
    text: String,
    /// The patience that was asked for in an answer that is not known to be the API server's (D14).
    retry_after: Option<Duration>,
}

const BODY_TOO_LARGE: &str = "body-too-large";
const BROKEN: &str = "connection-broken";
const NOT_SENT: &str = "not-sent";
const CLOSED: &str = "connection-closed";
const TIMED_OUT: &str = "timed-out";
/// No server could be connected to.
pub const CONNECT_FAILED: &str = "connect-failed";
/// Its name has no address.
pub const NAME_NOT_RESOLVED: &str = "name-not-resolved";

impl Failure {
    /// One of this machine word, with its sentence.
    pub fn new(word: &'static str, text: impl Into<String>) -> Failure {
        Failure { word, text: text.into(), retry_after: None }
    }

    /// The same of a request of which a try before this one may have left, over a connection that broke then.
    pub fn after_sending(mut self) -> Failure {
        if self.is_unsent() {
            self.word = BROKEN;
        }
        self
    }

    /// Nothing of the request has left, so nobody has done it.
    pub fn is_unsent(&self) -> bool {
        [NOT_SENT, CONNECT_FAILED, NAME_NOT_RESOLVED].contains(&self.word)
    }

    /// It was not sent, for this reason of our own.
    pub fn not_sent(why: &'static str) -> Failure {
        Failure::new(NOT_SENT, why)
    }

    /// Whether it was for a reason of our own that it was not sent.
    pub fn is_ours(&self) -> bool {
        self.word == NOT_SENT
    }

    /// No complete answer in time.
    pub fn timed_out(after: Duration) -> Failure {
        Failure::new(TIMED_OUT, format!("no complete answer within {} ms", after.as_millis()))
    }

    pub fn is_timed_out(&self) -> bool {
        self.word == TIMED_OUT
    }

    /// The peer closed before the answer was complete.
    pub fn closed(received_bytes: usize) -> Failure {
        let text = format!("the server closed the connection after {received_bytes} bytes of an unfinished answer");
        Failure::new(CLOSED, text)
    }

    /// The socket failed while in use.
    pub fn broken(detail: &str) -> Failure {
        Failure::new(BROKEN, format!("the connection broke: {detail}"))
    }

    /// The connection ended, whatever was said over it.
    pub fn is_of_connection(&self) -> bool {
        [BROKEN, CLOSED].contains(&self.word)
    }

    pub fn header_too_large() -> Failure {
        let limit_bytes = limits::REPLY_HEADER_BYTES;
        let text = format!("the reply's headers are longer than {limit_bytes} bytes; is this an API server?");
        Failure::new("header-too-large", text)
    }

    pub fn body_too_large(limit_bytes: usize) -> Failure {
        let text = format!("the reply's body is longer than {limit_bytes} bytes; is this an API server?");
        Failure::new(BODY_TOO_LARGE, text)
    }

    pub fn is_body_too_large(&self) -> bool {
        self.word == BODY_TOO_LARGE
    }

    /// Not HTTP, or not what HTTP allows here.
    pub fn malformed(detail: impl fmt::Display) -> Failure {
        Failure::new("reply-malformed", format!("the reply is not valid HTTP: {detail}"))
    }

    /// Not known to be the API server's own word (D14), for want of what that has: a proxy, a portal or a load balancer said
    /// it, or the API server was in too much trouble to say it properly. It ends nothing and proves nothing; patience is
    /// all that it may ask for.
    pub fn unconfirmed(code: u16, content_type: &str, lacks: &str, retry_after: Option<Duration>) -> Failure {
        let text = format!(
            "answered {code} ({content_type}) without {lacks}: not the API server's own word; \
             a proxy, a portal or a load balancer may stand between"
        );
        Failure { retry_after, ..Failure::new("answer-unconfirmed", text) }
    }

    /// The machine word.
    pub fn word(&self) -> &'static str {
        self.word
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What somebody else said, as much of it as anybody reads.
pub fn cut(foreign: &str) -> String {
    // No character is shorter than a byte: hardly any text has to be counted.
    let is_short = foreign.len() <= limits::FOREIGN_TEXT_CHARS;
    let cut_at = if is_short { None } else { foreign.char_indices().nth(limits::FOREIGN_TEXT_CHARS) };
    foreign.get(..cut_at.map_or(foreign.len(), |(end, _)| end)).unwrap_or_default().to_owned()
}
