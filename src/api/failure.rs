//! Why an exchange gave no answer at all: a machine word and a sentence that says what to do next.

use std::fmt;
use std::time::Duration;

use crate::config::limits;

/// An exchange that failed below the meaning of HTTP. The connection is not used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Credentials or certificate authority cannot be read.
    Credentials {
        what: String,
    },
    /// The name has no address.
    Resolve {
        host: String,
        detail: String,
    },
    Connect {
        address: String,
        detail: String,
    },
    /// The proxy refused the tunnel.
    Proxy {
        address: String,
        detail: String,
    },
    Tls(TlsFailure),
    /// The server's `Date` lies outside the life of its certificate, and this board has no clock to say which is wrong.
    ServerClock {
        detail: String,
    },
    /// No complete answer in time.
    TimedOut {
        after_ms: u64,
    },
    /// The peer closed before the answer was complete.
    Closed {
        received_bytes: usize,
    },
    /// The socket failed while in use.
    Broken {
        detail: String,
    },
    HeaderTooLarge {
        limit_bytes: usize,
    },
    BodyTooLarge {
        limit_bytes: usize,
    },
    /// All that came during one exchange: TLS, headers, chunks and trailers as well.
    ReplyTooLarge {
        limit_bytes: usize,
    },
    /// Not HTTP, or not what HTTP allows here.
    Malformed {
        detail: String,
    },
    /// An API server never redirects: something stands between.
    Redirected {
        location: String,
    },
    /// The API server's success, and its body is not what was asked for.
    NotJson {
        content_type: String,
        detail: String,
    },
    /// Not known to be the API server's own word (D14): a proxy, a portal or a load balancer said it, or the API server was
    /// in too much trouble to say it properly. It ends nothing and proves nothing; patience is all that it may ask for.
    Unconfirmed {
        code: u16,
        content_type: String,
        /// What the API server's own word has and this has not.
        lacks: &'static str,
        retry_after: Option<Duration>,
    },
}

/// What TLS found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsFailure {
    /// Signed by nobody we trust: wrong CA, or somebody intercepts.
    UnknownIssuer,
    Expired {
        detail: String,
    },
    NotYetValid {
        detail: String,
    },
    NotValidForName {
        name: String,
    },
    /// The server refused our handshake or certificate.
    RefusedByPeer {
        alert: String,
    },
    Other {
        detail: String,
    },
}

/// What somebody else said, as much of it as anybody reads.
pub fn cut(foreign: &str) -> String {
    // No character is shorter than a byte: hardly any text has to be counted.
    let is_short = foreign.len() <= limits::FOREIGN_TEXT_CHARS;
    let cut_at = if is_short { None } else { foreign.char_indices().nth(limits::FOREIGN_TEXT_CHARS) };
    foreign.get(..cut_at.map_or(foreign.len(), |(end, _)| end)).unwrap_or_default().to_owned()
}

impl Failure {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            Failure::Credentials { .. } => "credentials-unreadable",
            Failure::Resolve { .. } => "name-not-resolved",
            Failure::Connect { .. } => "connect-failed",
            Failure::Proxy { .. } => "proxy-refused",
            Failure::Tls(TlsFailure::UnknownIssuer) => "tls-unknown-issuer",
            Failure::Tls(TlsFailure::Expired { .. }) => "tls-certificate-expired",
            Failure::Tls(TlsFailure::NotYetValid { .. }) => "tls-certificate-not-yet-valid",
            Failure::Tls(TlsFailure::NotValidForName { .. }) => "tls-wrong-name",
            Failure::Tls(TlsFailure::RefusedByPeer { .. }) => "tls-refused-by-peer",
            Failure::Tls(TlsFailure::Other { .. }) => "tls-failed",
            Failure::ServerClock { .. } => "server-clock-wrong",
            Failure::TimedOut { .. } => "timed-out",
            Failure::Closed { .. } => "connection-closed",
            Failure::Broken { .. } => "connection-broken",
            Failure::HeaderTooLarge { .. } => "header-too-large",
            Failure::BodyTooLarge { .. } => "body-too-large",
            Failure::ReplyTooLarge { .. } => "reply-too-large",
            Failure::Malformed { .. } => "reply-malformed",
            Failure::Redirected { .. } => "redirected",
            Failure::NotJson { .. } => "reply-not-json",
            Failure::Unconfirmed { .. } => "answer-unconfirmed",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Credentials { what } => f.write_str(what),
            Failure::Resolve { host, detail } => {
                write!(
                    f,
                    "the name {host} has no address ({detail}); check DNS, or put an IP address into the kubeconfig"
                )
            }
            Failure::Connect { address, detail } => write!(f, "cannot connect to {address}: {detail}"),
            Failure::Proxy { address, detail } => write!(f, "the proxy {address} refused the tunnel: {detail}"),
            Failure::Tls(tls) => tls.fmt(f),
            Failure::ServerClock { detail } => {
                write!(
                    f,
                    "the server's clock and its certificate do not agree ({detail}); set its clock, or renew its certificate"
                )
            }
            Failure::TimedOut { after_ms } => write!(f, "no complete answer within {after_ms} ms"),
            Failure::Closed { received_bytes } => {
                write!(f, "the server closed the connection after {received_bytes} bytes of an unfinished answer")
            }
            Failure::Broken { detail } => write!(f, "the connection broke: {detail}"),
            Failure::HeaderTooLarge { limit_bytes } => {
                write!(f, "the reply's headers are longer than {limit_bytes} bytes; is this an API server?")
            }
            Failure::BodyTooLarge { limit_bytes } => {
                write!(f, "the reply's body is longer than {limit_bytes} bytes; is this an API server?")
            }
            Failure::ReplyTooLarge { limit_bytes } => {
                write!(f, "more than {limit_bytes} bytes came, and no end of the reply; is this an API server?")
            }
            Failure::Malformed { detail } => write!(f, "the reply is not valid HTTP: {detail}"),
            Failure::Redirected { location } => {
                write!(
                    f,
                    "redirected to {location}: an API server never does, a captive portal or proxy stands between"
                )
            }
            Failure::NotJson { content_type, detail } => {
                write!(f, "the API server's reply ({content_type}) is not what was asked for ({detail})")
            }
            Failure::Unconfirmed { code, content_type, lacks, .. } => write!(
                f,
                "answered {code} ({content_type}) without {lacks}: not the API server's own word; a proxy, a portal or a load balancer may stand between"
            ),
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::UnknownIssuer => f.write_str(
                "the server's certificate is signed by nobody the kubeconfig trusts: wrong certificate-authority, or somebody intercepts TLS",
            ),
            TlsFailure::Expired { detail } => {
                write!(f, "the server's certificate has expired ({detail}); renew it, or set this board's clock")
            }
            TlsFailure::NotYetValid { detail } => {
                write!(f, "the server's certificate is not valid yet ({detail}); this board's clock is probably behind")
            }
            TlsFailure::NotValidForName { name } => {
                write!(f, "the server's certificate is not for {name}; set tls-server-name in the kubeconfig, or fix the server's address")
            }
            TlsFailure::RefusedByPeer { alert } => {
                write!(f, "the server ended the TLS handshake ({alert}); it may not accept our client certificate")
            }
            TlsFailure::Other { detail } => write!(f, "TLS failed: {detail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn every_failure() -> Vec<Failure> {
        let text = || "DETAIL".to_owned();
        let tls = [
            TlsFailure::UnknownIssuer,
            TlsFailure::Expired { detail: text() },
            TlsFailure::NotYetValid { detail: text() },
            TlsFailure::NotValidForName { name: text() },
            TlsFailure::RefusedByPeer { alert: text() },
            TlsFailure::Other { detail: text() },
        ];
        let others = [
            Failure::Credentials { what: text() },
            Failure::Resolve { host: text(), detail: text() },
            Failure::Connect { address: text(), detail: text() },
            Failure::Proxy { address: text(), detail: text() },
            Failure::ServerClock { detail: text() },
            Failure::TimedOut { after_ms: 10_000 },
            Failure::Closed { received_bytes: 17 },
            Failure::Broken { detail: text() },
            Failure::HeaderTooLarge { limit_bytes: 16_384 },
            Failure::BodyTooLarge { limit_bytes: 1_048_576 },
            Failure::ReplyTooLarge { limit_bytes: 2_097_152 },
            Failure::Malformed { detail: text() },
            Failure::Redirected { location: text() },
            Failure::NotJson { content_type: text(), detail: text() },
            Failure::Unconfirmed { code: 403, content_type: text(), lacks: "our Audit-ID", retry_after: None },
        ];
        others.into_iter().chain(tls.into_iter().map(Failure::Tls)).collect()
    }

    #[test]
    fn every_failure_has_a_word_of_its_own_and_a_sentence_with_what_is_known() {
        let failures = every_failure();
        let words: BTreeSet<_> = failures.iter().map(Failure::word).collect();
        assert_eq!(words.len(), failures.len());
        for failure in failures {
            let (debug, sentence) = (format!("{failure:?}"), failure.to_string());
            assert!(!sentence.is_empty());
            for known in ["DETAIL", "10000", "17", "16384", "1048576", "2097152"] {
                assert_eq!(debug.contains(known), sentence.contains(known), "{sentence}");
            }
        }
    }
}
