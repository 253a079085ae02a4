//! Turns what ends an attempt to join into when the next one begins, and whether another server may do better.

use std::time::Duration;

use super::super::super::contract::Output;
use super::super::super::credentials::is_stranger;
use super::super::super::notice::Level;
use super::super::super::shared::Shared;
use super::super::HOUR;
use super::{CA_CHANGED, Join, Reason, SPREAD, Step};
use crate::api::{Class, Refusal};
use crate::config::kubeconfig::Server;
use crate::identity::IdentityError;
use crate::identity::token::Kind;
use crate::time::{DAY, Now};

/// Why a step is not followed by the next one.
pub(in crate::agent::identity) enum Stop {
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

/// Anything that a person has to change.
const LONG_PAUSE: Duration = Duration::from_secs(300);

/// What goes on being in the way is told again this often.
const TOLD_EVERY: Duration = Duration::from_secs(600);

/// Whether another server is asked soon.
fn is_of_one_server(word: &str) -> bool {
    OF_ONE_SERVER.contains(&word)
}

impl Join {
    /// The server does not take the token that cluster-info was signed with a moment ago.
    fn token_died(&mut self, shared: &mut Shared, now: Now) {
        let id = match self.kind() {
            Some(Kind::Bootstrap(token)) => token.id.to_owned(),
            _ => String::new(),
        };
        self.refused(IdentityError::TokenUnknown(id), shared, now);
    }

    /// No certificate comes of the server that was proven.
    pub(in crate::agent::identity) fn refused(&mut self, error: IdentityError, shared: &mut Shared, now: Now) {
        self.stop(error.into(), shared, now);
    }

    pub(in crate::agent::identity) fn stop(&mut self, why: Stop, shared: &mut Shared, now: Now) {
        let unreachable = |join: &mut Join, shared: &mut Shared| shared.random.up_to(join.unreachable.step());
        let (word, text, pause) = match why {
            Stop::Failed(refusal) if refusal.class() == Class::Rights => return self.token_died(shared, now),
            Stop::Failed(refusal) => {
                let has_other_ca = self.reason == Reason::Ended && is_stranger(&refusal);
                if has_other_ca && shared.credentials.refused(&refusal, now.up) {
                    shared.output(Output::ReloadCredentials);
                }
                let pause = match is_of_one_server(&refusal.word()) {
                    // Whether each has is found out at once: a CA is looked for then, and only then the token is tried.
                    true if has_other_ca => shared.random.up_to(SPREAD),
                    true => self.pause_for_server(shared),
                    false => unreachable(self, shared).max(refusal.retry_after().min(LONG_PAUSE)),
                };
                let server = self.server().map(Server::authority).unwrap_or_default();
                ("join-failing", format!("{server}: {refusal}"), pause)
            }
            Stop::Hindered(word @ "token-unknown", text) => (word, text, self.pause_for_token(shared, now)),
            Stop::Hindered(word @ "supervisor-busy", text) => (word, text, unreachable(self, shared)),
            Stop::Hindered(word, text) if is_of_one_server(word) => (word, text, self.pause_for_server(shared)),
            Stop::Hindered(word, text) => (word, text, LONG_PAUSE),
        };
        self.hindered(word, text, pause, shared, now);
    }

    /// A server that is none of this cluster's is asked again later; before that it is the turn of those that were not yet.
    fn pause_for_server(&self, shared: &mut Shared) -> Duration {
        let servers = self.means.as_ref().map_or(1, |means| means.servers.len());
        if (self.turn + 1).is_multiple_of(servers) { LONG_PAUSE } else { shared.random.up_to(SPREAD) }
    }

    /// Whoever has a certificate that has ended asks every quarter of an hour for a day, then every hour, each time spread (EXP-3).
    fn pause_for_token(&mut self, shared: &mut Shared, now: Now) -> Duration {
        if self.reason != Reason::Ended {
            return self.unknown.step();
        }
        let pause = if now.up - self.began < DAY { HOUR / 4 } else { HOUR };
        pause / 2 + shared.random.up_to(pause)
    }

    /// From the beginning, later: token and settings may be others by then, and it is another server's turn.
    pub(super) fn hindered(
        &mut self,
        word: &'static str,
        text: String,
        pause: Duration,
        shared: &mut Shared,
        now: Now,
    ) {
        // A new CA that is signed by now is news.
        let is_known = |told: &'static str, before: &str| told == word && (word != CA_CHANGED || before == text);
        let was_told = self.obstacle.take();
        let was_told = was_told.filter(|(told, before, at)| is_known(told, before) && now.up - *at < TOLD_EVERY);
        let told_at = was_told.map_or(now.up, |(_, _, at)| at);
        if told_at == now.up {
            shared.say(Level::Warn, word, text.clone());
        }
        self.obstacle = Some((word, text, told_at));
        self.step = Step::Means { is_asked: false };
        self.means = None;
        self.turn += 1;
        self.at = now.up + pause;
    }
}
