//! Turns what a supervisor of k3s or rke2 answers to a request for a certificate into that certificate, or into what stands
//! in its way (K3S-2, K3S-5).

use std::time::Duration;

use super::super::contract::IdentityStep;
use super::super::notice::Level;
use super::super::shared::Shared;
use super::request::{Issued, Request};
use super::{IdentityLane, Stage};
use crate::api::{Refusal, StatusError};
use crate::identity::supervisor::{Asked, Distribution, read_certificate};
use crate::identity::{IdentityError, SigningRequest};
use crate::time::{Now, Wall};

/// Of two boards that were refused in the same moment each asks again in one of its own.
const SPREAD: Duration = Duration::from_secs(5);

impl IdentityLane {
    pub(super) fn handed_out(
        &mut self,
        mut request: Box<Request>,
        body: &[u8],
        received: Option<Wall>,
        shared: &mut Shared,
        now: Now,
    ) {
        let (chain, key) = match read_certificate(body, shared.settings.k3s_shared_key) {
            Ok(read) => read,
            Err(error) => return self.hindered(error, shared, now),
        };
        if let Some(key) = key {
            let text = "the certificate came with a key that all agents of this server share, as k3sSharedKey allows";
            shared.say(Level::Warn, "shared-key", text);
            request.request = SigningRequest::new(request.request.node(), key.point().unwrap_or_default());
            shared.wants(IdentityStep::TakeKey(key));
        }
        self.issued(request, Issued { chain, received }, shared, now);
    }

    pub(super) fn refused_by_supervisor(
        &mut self,
        mut request: Box<Request>,
        status: StatusError,
        shared: &mut Shared,
        now: Now,
    ) {
        if matches!(status.code, 429 | 500..) {
            let refusal = Refusal::Status(status);
            self.tries.failed_with(&refusal, "", shared, now);
            request.at = now.up + self.tries.pause() + shared.random.up_to(SPREAD);
            self.stage = Stage::Create(request);
            return;
        }
        let asked = if self.join.is_some() { Asked::Certificate } else { Asked::Renewal };
        let port = request.node_password.as_ref().map_or(0, |known| known.port);
        self.hindered(Distribution::of(port).refused(&status, &shared.node_name, asked), shared, now);
    }

    /// A board that joins looks for a server again; one that renews keeps its certificate, and asks ever more rarely.
    fn hindered(&mut self, error: IdentityError, shared: &mut Shared, now: Now) {
        match &mut self.join {
            Some(join) => {
                join.refused(error, shared, now);
                self.stage = Stage::Join;
            }
            None => {
                shared.say(Level::Warn, error.word(), error.to_string());
                self.stage = Stage::Rest { not_before: now.up + self.refusals.step() };
            }
        }
    }
}
