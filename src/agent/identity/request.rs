//! Turns what the server has of a request for a certificate into when to look at it again, and how closely (CSR-4, CSR-5).

use std::time::Duration;

use zeroize::Zeroizing;

use super::super::contract::Access;
use super::super::shared::Shared;
use super::HOUR;
use crate::api::Operation;
use crate::identity::supervisor::NodePassword;
use crate::identity::{CertificateDer, SigningRequest, csr};
use crate::time::{Up, Wall};

/// What a certificate is asked for with.
#[derive(Debug)]
pub(super) struct Request {
    /// Over what it goes.
    pub(super) access: Access,
    pub(super) request: SigningRequest,
    pub(super) signature: Vec<u8>,
    /// For a supervisor, who gives the certificate out at once; `None`: an API server is asked.
    pub(super) node_password: Option<NodePassword>,
    /// When to ask, or ask again.
    pub(super) at: Up,
}

/// What the server has, as far as it was read.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) since: Up,
    /// How often it was looked at.
    pub(super) looks: u32,
    /// uid and resourceVersion; empty before the first look.
    pub(super) seen: (String, String),
    /// The next look is at the whole of it.
    pub(super) whole: bool,
}

#[derive(Debug)]
pub(super) struct Issued {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) received: Option<Wall>,
}

/// So many looks come after 1, 2, 4 ... s; those after them each minute, and read metadata alone (CSR-5).
const QUICK_LOOKS: u32 = 6;
const SLOW_LOOK: Duration = Duration::from_secs(60);
/// The same once it has waited for an hour.
const RARE_LOOK: Duration = Duration::from_secs(300);
/// After so many looks a person is told that there is something to approve.
pub(super) const TOLD_AT_LOOK: u32 = 4;

impl Request {
    /// `authorization`: of a board that has no certificate to show to a supervisor.
    pub(super) fn operation(&self, authorization: Option<Zeroizing<String>>, lifetime: Option<Duration>) -> Operation {
        let Request { request, signature, .. } = self;
        if let Some(password) = &self.node_password {
            return password.ask_certificate(request.node(), request.der(signature), authorization);
        }
        let lifetime_seconds = lifetime.map(|span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX));
        Operation::CreateCertificateRequest { body: csr::create_body(request, signature, lifetime_seconds) }
    }
}

impl Poll {
    pub(super) fn since(now: Up) -> Poll {
        Poll { since: now, looks: 0, seen: Default::default(), whole: false }
    }

    /// Whether the next look is at the metadata alone.
    pub(super) fn reads_metadata(&self) -> bool {
        self.looks > QUICK_LOOKS && !self.whole
    }

    /// There is nothing yet: how long until the next look.
    pub(super) fn next_pause(&mut self, shared: &mut Shared, now: Up) -> Duration {
        let pause = match self.looks {
            looks if looks < QUICK_LOOKS => Duration::from_secs(1 << looks),
            _ if now - self.since < HOUR => shared.random.around(SLOW_LOOK),
            _ => shared.random.around(RARE_LOOK),
        };
        self.looks += 1;
        pause
    }
}
