//! Turns what ends an attempt to join into whether the next server may do better.

use crate::api::Refusal;
use crate::identity::IdentityError;

/// Why a step is not followed by the next one.
pub(super) enum Stop {
    Failed(Refusal),
    /// A machine word, and a sentence.
    Hindered(&'static str, String),
}

impl From<IdentityError> for Stop {
    fn from(error: IdentityError) -> Stop {
        Stop::Hindered(error.word(), error.to_string())
    }
}

/// What may be wrong with one server, and not with the next: it is not the cluster's, or not in order. Each is asked
/// once in a long pause then.
const OF_ONE_SERVER: [&str; 11] = [
    "tls-unknown-issuer",
    "tls-wrong-name",
    "tls-certificate-expired",
    "tls-certificate-not-yet-valid",
    "server-clock-wrong",
    "pin-mismatch",
    "signature-wrong",
    "ca-changed",
    "answer-malformed",
    "anonymous-refused",
    "no-cluster-info",
];

/// Whether another server is asked soon.
pub(super) fn is_of_one_server(word: &str) -> bool {
    OF_ONE_SERVER.contains(&word)
}
