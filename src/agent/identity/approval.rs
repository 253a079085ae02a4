//! Turns a request that nobody has approved into a word to people, and a renewal that waits for too long into a request by the
//! token, which may be approved by itself (ROT-6).

use std::time::Duration;

use super::super::contract::{Access, IdentityStep};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::request::{Poll, Request, TOLD_AT_LOOK};
use super::{IdentityLane, Stage};
use crate::time::{DAY, Now};

/// For good: what approves each renewal.
const APPROVE_RENEWALS: &str = "; all of them, from now on: kubectl create clusterrolebinding nodepulse-renewal \
    --clusterrole=system:certificates.k8s.io:certificatesigningrequests:selfnodeclient --group=system:nodes";
/// How long the token is tried before the request that waits is looked at again.
const BY_TOKEN: Duration = Duration::from_secs(600);

impl IdentityLane {
    pub(super) fn pending(&mut self, mut request: Box<Request>, mut poll: Poll, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        let life = shared.credentials.dates().renewal.map_or(Duration::MAX, |life| life.end.since(life.start));
        if request.access == Access::InUse && now.up - poll.since >= DAY.min(life / 10) {
            (self.is_unapproved, self.join) = (true, None);
            self.stage = Stage::Rest { not_before: now.up };
            return;
        }
        let pause = poll.next_pause(shared, now.up);
        if poll.looks == TOLD_AT_LOOK || (self.is_asked && poll.looks > TOLD_AT_LOOK) {
            let name = request.request.name();
            // Whoever may renew by himself was not told so (ROT-6).
            let renewals = if self.join.is_none() { APPROVE_RENEWALS } else { "" };
            let text = format!(
                "waiting for approval: kubectl certificate approve {name} (compare this name: it is the key's \
                fingerprint){renewals}"
            );
            self.warn("certificate-pending", text, shared);
        }
        request.at = if poll.whole { now.up } else { now.up + pause };
        self.stage = Stage::Poll(request, poll);
    }

    /// The token is of no use, and the certificate serves: what was asked for with it goes on waiting.
    pub(super) fn end_asking_by_token(&mut self, shared: &Shared, now: Now) {
        let is_vain = |stage: &Stage| matches!(stage, Stage::Join | Stage::Rest { .. });
        let has_failed = self.join.as_ref().is_some_and(|join| join.has_failed_for(BY_TOKEN, now.up));
        if self.is_unapproved && has_failed && is_vain(&self.stage) && !shared.credentials.are_refused() {
            (self.is_unapproved, self.join, self.stage) = (false, None, Stage::Rest { not_before: now.up });
        }
    }

    /// The node itself has asked for it, as which nobody approves it: as another user with another key.
    pub(super) fn ask_anew_by_token(&mut self, request: &Request, shared: &mut Shared) {
        let text = format!(
            "{} was asked for with the certificate, and nobody has approved it: asking with the token, and another key",
            request.request.name()
        );
        shared.say(Level::Info, "asking-by-token", text);
        self.stage = Stage::Making(request.access.clone());
        shared.wants(IdentityStep::MakeRequest { is_new: true });
    }
}
