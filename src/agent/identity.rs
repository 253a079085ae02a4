//! Turns the age of the node's certificate into its successor: a key, its request, an approval, a proof, the change-over.
//!
//! ```text
//!          due           made          201, 409        issued         200, 404         in use
//! Rest ---------> Making ----> Create ---------> Poll --------> Prove --------> Keep ---------> Rest
//!  ^                             ^                | ^             |
//!  |                             '-- gone, 404 ---' '- pending    |
//!  '------------- denied, failed, wrong, refused: an hour or more-'
//! ```
//!
//! The old certificate stays in use until the server has taken the new one. Each step can be taken once more after a power
//! cut: `io` keeps the key before the request is sent, and the request's name follows from the key (CSR-2).

mod approval;
mod asked;
mod authorities;
mod join;
mod request;
mod supervised;

use std::time::Duration;

use super::backoff::Backoff;
use super::contract::{Access, Because, IdentityStep, JoinedCluster, Means};
use super::credentials::is_stranger;
use super::failure_log::RetryReason;
use super::notice::Level;
use super::shared::{Shared, Step};
use super::tries::Tries;
use crate::api::{Answer, Class, Document, Operation, Refusal, StatusError};
use crate::identity::csr::{self, CertificateSigningRequest};
use crate::identity::supervisor::NodePassword;
use crate::identity::{CertificateDer, SigningRequest, certificate, pin};
use crate::time::{Now, Up, Wall};
use authorities::Look;
use join::{Join, Reason, Stop};
use request::{Issued, Poll, Request};

#[derive(Debug)]
pub(super) struct IdentityLane {
    stage: Stage,
    tries: Tries,
    /// Where the server refuses to be asked (403, 422).
    refusals: Backoff,
    /// Where somebody denied it, or the signer could not.
    denials: Backoff,
    /// The next key is to be another one.
    needs_new_key: bool,
    /// There are credentials to be a Node with.
    is_joined: bool,
    /// A person waits to be told what comes of it.
    is_asked: bool,
    /// A renewal that nobody approves: the token may do better (ROT-6).
    is_unapproved: bool,
    /// How a server is found and proven that gives the first certificate, or the first after one that has ended, or that shows
    /// another CA.
    join: Option<Box<Join>>,
    /// Not before then is another CA looked for again.
    other_ca_at: Up,
    look: Look,
}

#[derive(Debug)]
enum Stage {
    /// The certificate serves; in no case anything sooner than that.
    Rest {
        not_before: Up,
    },
    /// Looking for a server that is proven.
    Join,
    /// `io` makes the key.
    Making(Access),
    Create(Box<Request>),
    Poll(Box<Request>, Poll),
    Prove(Box<Request>, Issued),
    /// `io` puts it in the place of the old one.
    Keep,
}

/// Where there is no answer, and of the patience that a server may ask for (ROT-4).
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);
/// Between two times that another CA is looked for, whatever comes of it.
const OTHER_CA_PAUSE: Duration = Duration::from_secs(300);

impl IdentityLane {
    pub(super) fn new() -> IdentityLane {
        IdentityLane {
            stage: Stage::Rest { not_before: Up::BOOT },
            tries: Tries::between("the renewal of the certificate", Duration::from_secs(2), LONGEST_PAUSE),
            refusals: Backoff::between(Duration::from_secs(300), HOUR * 6),
            denials: Backoff::between(HOUR, HOUR * 24),
            needs_new_key: false,
            is_joined: true,
            is_asked: false,
            is_unapproved: false,
            join: None,
            other_ca_at: Up::BOOT,
            look: Look::default(),
        }
    }

    /// Whether other lanes have credentials to ask with.
    pub(super) fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// There are none: the board has to join.
    pub(super) fn join(&mut self, shared: &mut Shared, now: Now) {
        self.is_joined = false;
        self.join = Some(Box::new(Join::new(Reason::First, shared, now.up)));
        self.stage = Stage::Join;
    }

    /// Why a server has to be found and proven, if it has to.
    fn reason(&self, shared: &Shared) -> Option<Reason> {
        match &shared.credentials {
            _ if !self.is_joined => Some(Reason::First),
            credentials if credentials.have_other_ca() => Some(Reason::OtherCa),
            credentials if credentials.are_refused() || self.is_unapproved => Some(Reason::Ended),
            _ => None,
        }
    }

    pub(super) fn cluster_read(&mut self, cluster: Option<JoinedCluster>, shared: &mut Shared, now: Now) {
        self.look.cluster_read(cluster, shared, now);
    }

    pub(super) fn means_read(&mut self, means: Result<Box<Means>, String>, shared: &mut Shared, now: Now) {
        if let Some(join) = self.join.as_mut().filter(|join| join.reads()) {
            join.means_read(means, shared, now);
        }
    }

    /// `is_held`: the Lease is being renewed, so that the uplink and the certificate in use are good (ROT-3).
    pub(super) fn poll(&mut self, shared: &mut Shared, is_held: bool, now: Now) -> Step {
        self.end_asking_by_token(shared, now);
        let reason = self.reason(shared);
        let is_vain = match &self.stage {
            Stage::Join => self.join.as_ref().map(|join| join.reason) != reason,
            Stage::Create(_) | Stage::Poll(..) | Stage::Prove(..) => reason == Some(Reason::OtherCa),
            _ => false,
        };
        if is_vain {
            // The server takes what there is again, or something else is in the way first.
            (self.join, self.stage) = (None, Stage::Rest { not_before: now.up });
        }
        let may_look = match self.stage {
            Stage::Rest { .. } => reason.is_none() && is_held,
            // Between two tries with a token that may stay dead for longer than the CA lives.
            Stage::Join => reason == Some(Reason::Ended) && self.join.as_ref().is_some_and(|join| now.up < join.at),
            _ => false,
        };
        let look = if may_look { self.look.due(shared, now.up) } else { None };
        if look.is_some_and(|at| at <= now.up) {
            return match self.look.operation(shared) {
                Some((access, operation)) => Step::SendOver(access, operation),
                None => Step::Idle,
            };
        }
        let next = self.next_at(reason, shared, is_held, now).into_iter().chain(look).min();
        let Some(at) = next else { return Step::Idle };
        if now.up < at {
            // The clock may be set meanwhile.
            return Step::Wait { until: at.min(now.up + HOUR), because: self.because() };
        }
        match &self.stage {
            Stage::Rest { .. } if let Some(reason) = reason => {
                self.join = self.join.take().filter(|join| join.reason == reason);
                self.join.get_or_insert_with(|| Box::new(Join::new(reason, shared, now.up)));
                if reason == Reason::OtherCa {
                    self.other_ca_at = now.up + OTHER_CA_PAUSE;
                }
                self.stage = Stage::Join;
                Step::Idle
            }
            Stage::Rest { .. } => self.make(Access::InUse, shared),
            Stage::Join => match self.join.as_mut().and_then(|join| join.operation(shared)) {
                Some((access, operation)) => Step::SendOver(access, operation),
                None => Step::Idle,
            },
            Stage::Making(_) | Stage::Keep => Step::Idle,
            Stage::Create(made) => {
                let authorization = self.join.as_ref().and_then(|join| join.authorization());
                let operation = made.operation(authorization, shared.settings.certificate_lifetime);
                Step::SendOver(made.access.clone(), self.tries.asking(operation))
            }
            Stage::Poll(made, poll) => {
                let metadata_only = poll.reads_metadata();
                let operation = Operation::ReadCertificateRequest { name: made.request.name(), metadata_only };
                Step::SendOver(made.access.clone(), self.tries.asking(operation))
            }
            Stage::Prove(_, issued) => {
                let access = Access::Candidate { chain: issued.chain.clone() };
                Step::SendOver(access, self.tries.asking(Operation::ProveCertificate))
            }
        }
    }

    /// When the next step is due; `None` where something else has to happen first.
    fn next_at(&self, reason: Option<Reason>, shared: &Shared, is_held: bool, now: Now) -> Option<Up> {
        match &self.stage {
            // What its renewal waits for is no matter any more.
            Stage::Rest { .. } if self.join.is_none() && reason == Some(Reason::Ended) => Some(now.up),
            Stage::Rest { .. } if reason == Some(Reason::OtherCa) => Some(self.other_ca_at),
            Stage::Rest { not_before } if reason.is_some() => Some(*not_before),
            Stage::Rest { not_before } => {
                let renewal =
                    shared.credentials.dates().renewal.filter(|_| is_held && shared.settings.rotate_certificates)?;
                let (outage, stamp) = (shared.longest_outage, shared.stamp(now)?);
                let due = renewal.due_after(outage, outage);
                Some((now.up + due.since(stamp)).max(*not_before))
            }
            Stage::Join => self.join.as_ref().filter(|join| !join.reads()).map(|join| join.at),
            Stage::Making(_) | Stage::Keep => None,
            Stage::Create(request) | Stage::Poll(request, _) | Stage::Prove(request, _) => Some(request.at),
        }
    }

    fn because(&self) -> Because {
        match &self.stage {
            Stage::Rest { .. } => Because { what: "the time to renew the certificate", after: None },
            Stage::Join => {
                let obstacle = self.join.as_ref().and_then(|join| join.obstacle());
                Because { what: "joining the cluster", after: obstacle.map(str::to_owned) }
            }
            Stage::Poll(..) if self.tries.last_failure().is_none() => {
                Because { what: "the approval of the certificate", after: None }
            }
            _ => self.tries.because(),
        }
    }

    pub(super) fn request_made(
        &mut self,
        request: SigningRequest,
        signature: Vec<u8>,
        node_password: Option<NodePassword>,
        shared: &mut Shared,
        now: Now,
    ) {
        if let Stage::Making(access) = &self.stage {
            let access = access.clone();
            let level = if access == Access::InUse { Level::Debug } else { Level::Info };
            let text = format!("asking for a certificate: {} (the key's fingerprint)", request.name());
            shared.say(level, "certificate-asked", text);
            let access = match &node_password {
                Some(known) if access == Access::InUse => Access::Supervisor { port: known.port },
                _ => access,
            };
            self.stage = Stage::Create(Box::new(Request { access, request, signature, node_password, at: now.up }));
        }
    }

    /// Credentials were read; whether they are others than before.
    pub(super) fn credentials_read(&mut self, are_others: bool, shared: &mut Shared, now: Now) {
        let was_kept = matches!(self.stage, Stage::Keep);
        let word = if self.join.is_some() { "certificate-issued" } else { "certificate-renewed" };
        self.is_joined = true;
        if are_others {
            (self.join, self.is_unapproved) = (None, false);
            shared.longest_outage = Duration::ZERO;
            self.stage = Stage::Rest { not_before: now.up };
        } else if was_kept {
            self.stage = Stage::Rest { not_before: now.up + HOUR };
        }
        if let Some(renewal) = shared.credentials.dates().renewal.filter(|_| was_kept && are_others) {
            let text = format!("a new certificate is in use, valid until {}", renewal.end);
            self.tell(Ok(text.clone()), shared);
            shared.say(Level::Info, word, text);
        }
    }

    /// What is worth another try for this reason is tried now.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        if let Some(join) = &mut self.join {
            join.hurry(now.up);
        }
        if reason == RetryReason::Reload {
            self.look.hurry(now.up);
            self.other_ca_at = now.up;
        }
        match &mut self.stage {
            Stage::Create(request) | Stage::Poll(request, _) | Stage::Prove(request, _) if self.tries.hurry(reason) => {
                request.at = now.up;
            }
            // Whoever denied it may have changed their mind, and said so.
            Stage::Rest { not_before } if reason == RetryReason::Reload && self.join.is_some() => *not_before = now.up,
            _ => {}
        }
    }

    /// `stranger`: who else has written the Node, where one was read.
    pub(super) fn answered(&mut self, answer: Answer, stranger: Option<String>, shared: &mut Shared, now: Now) {
        if self.look.is_under_way() {
            return self.look.answered(answer.result, shared, now);
        }
        let received = answer.date.or_else(|| shared.stamp(now));
        let stage = std::mem::replace(&mut self.stage, Stage::Rest { not_before: now.up + HOUR });
        match (stage, answer.result) {
            (Stage::Join, result) => {
                self.stage = Stage::Join;
                let proven = self.join.as_mut().and_then(|join| join.answered(result, stranger, shared, now));
                match proven {
                    // What is to be used has changed already, and that was all.
                    Some(Access::InUse) => {
                        shared.credentials.other_ca();
                        (self.join, self.stage) = (None, Stage::Rest { not_before: now.up });
                    }
                    Some(access) => drop(self.make(access, shared)),
                    None => {}
                }
            }
            (Stage::Create(request), Ok(Document::Metadata { .. })) => {
                self.pending(request, Poll::since(now.up), shared, now);
            }
            (Stage::Create(request), Ok(Document::HandedOut(body))) => {
                self.handed_out(request, &body, received, shared, now);
            }
            (Stage::Create(request), Err(Refusal::Status(status))) if request.node_password.is_some() => {
                self.refused_by_supervisor(request, status, shared, now);
            }
            // It is there from before, or somebody else's.
            (Stage::Create(mut request), Err(refusal)) if refusal.class() == Class::Exists => {
                request.at = now.up;
                self.stage = Stage::Poll(request, Poll::since(now.up));
            }
            (Stage::Poll(request, poll), Ok(Document::Protobuf(body))) => {
                self.look(request, poll, &body, received, shared, now);
            }
            (Stage::Poll(request, poll), Ok(Document::Metadata { uid, resource_version, .. })) => {
                let has_changed = poll.seen != (uid, resource_version);
                self.pending(request, Poll { whole: has_changed, ..poll }, shared, now);
            }
            // The cleaner took it: the same key asks again.
            (Stage::Poll(mut request, _), Err(refusal)) if refusal.class() == Class::Missing => {
                request.at = now.up;
                self.stage = Stage::Create(request);
            }
            (Stage::Prove(_, issued), result) if proves(&result) => {
                self.tries.succeeded(shared, now);
                self.refusals.reset();
                self.denials.reset();
                let Issued { chain, received } = issued;
                shared.wants(IdentityStep::KeepCertificate { chain, received });
                self.stage = Stage::Keep;
            }
            (Stage::Prove(..), Err(refusal)) if refusal.class() == Class::Rights => {
                let text = format!(
                    "the API server does not take the certificate that was issued ({refusal}): the old one \
                    stays in use; is its signer's CA in the server's --client-ca-file?"
                );
                self.start_over("certificate-refused", text, shared, now);
            }
            (stage, Err(refusal)) => self.failed(stage, &refusal, shared, now),
            (_, Ok(_)) => {}
        }
    }

    /// What the server has of the request.
    fn look(
        &mut self,
        request: Box<Request>,
        mut poll: Poll,
        body: &[u8],
        received: Option<Wall>,
        shared: &mut Shared,
        now: Now,
    ) {
        let object = match CertificateSigningRequest::read(body) {
            Ok(object) => object,
            Err(error) => return self.start_over(error.word(), error.to_string(), shared, now),
        };
        let name = request.request.name();
        if !object.asks_for(&request.request) {
            let text = format!(
                "CertificateSigningRequest {name} is not this board's, although it has its name: asking with \
                another key"
            );
            self.start_over("request-not-ours", text, shared, now);
            return;
        }
        (poll.seen, poll.whole) = ((object.uid, object.resource_version), false);
        match object.stage {
            csr::Stage::Pending if object.is_of_node && request.access != Access::InUse => {
                self.ask_anew_by_token(&request, shared);
            }
            csr::Stage::Pending | csr::Stage::Approved => self.pending(request, poll, shared, now),
            csr::Stage::Issued(chain) => self.issued(request, Issued { chain, received }, shared, now),
            csr::Stage::Denied(why) => {
                let text = format!("{name} was denied ({why}): approve another, kubectl delete csr {name}");
                self.denied("certificate-denied", text, shared, now);
            }
            csr::Stage::Failed(why) => {
                let text =
                    format!("the signer could not sign {name} ({why}): look at the log of kube-controller-manager");
                self.denied("certificate-failed", text, shared, now);
            }
        }
    }

    fn issued(&mut self, mut request: Box<Request>, issued: Issued, shared: &mut Shared, now: Now) {
        let floor = issued.received.unwrap_or(Wall::from_unix_seconds(0));
        let leaf = issued.chain.first().map(AsRef::as_ref).unwrap_or_default();
        if let Err(error) = certificate::check_issued(leaf, request.request.node(), request.request.key(), floor) {
            return self.start_over(error.word(), error.to_string(), shared, now);
        }
        // An administrator's certificate may outlive what the signer gives: until it no longer does, or is refused, it stays.
        let ends = |end: Option<Wall>| end.unwrap_or(Wall::from_unix_seconds(0));
        let in_use = shared.credentials.dates().not_after.filter(|_| self.join.is_none());
        let shorter_by = ends(in_use).since(ends(end_of(leaf)));
        if !shorter_by.is_zero() {
            let text = "the certificate that was issued ends before the one in use, which therefore stays";
            self.tell(Err(text.to_owned()), shared);
            shared.say(Level::Info, "certificate-shorter", text);
            self.stage = Stage::Rest { not_before: now.up + shorter_by.max(HOUR) };
            return;
        }
        request.at = now.up;
        self.stage = Stage::Prove(request, issued);
    }

    fn make(&mut self, access: Access, shared: &mut Shared) -> Step {
        self.stage = Stage::Making(access);
        shared.wants(IdentityStep::MakeRequest { is_new: std::mem::take(&mut self.needs_new_key) });
        Step::Idle
    }

    /// Nothing comes of this key: another one, in an hour.
    fn start_over(&mut self, word: &'static str, text: String, shared: &mut Shared, now: Now) {
        self.warn(word, text, shared);
        self.needs_new_key = true;
        self.stage = Stage::Rest { not_before: now.up + HOUR };
    }

    /// The same key asks again, ever more rarely: whoever denied it may change their mind.
    fn denied(&mut self, word: &'static str, text: String, shared: &mut Shared, now: Now) {
        self.warn(word, text, shared);
        self.stage = Stage::Rest { not_before: now.up + self.denials.step() };
    }

    fn failed(&mut self, stage: Stage, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let is_nobody = matches!(refusal, Refusal::Status(StatusError { code: 401, .. }));
        // The server that was proven is gone, has another CA, or does not know the token any more. The key waits.
        let is_lost = is_nobody || matches!(refusal, Refusal::Failed(_));
        let is_vain = is_stranger(refusal) || is_lost && !matches!(stage, Stage::Prove(..));
        if let Some(join) = self.join.as_mut().filter(|_| is_vain) {
            join.stop(Stop::Failed(refusal.clone()), shared, now);
            self.stage = Stage::Join;
            return;
        }
        self.tell(Err(refusal.to_string()), shared);
        self.tries.failed(refusal, shared, now);
        let is_refused = matches!(refusal, Refusal::Status(StatusError { code: 400..=428, .. }));
        let pause = if is_refused {
            self.refusals.step()
        } else {
            self.tries.pause().max(refusal.retry_after().min(LONGEST_PAUSE))
        };
        let at = now.up + pause;
        if is_nobody && !matches!(stage, Stage::Prove(..)) {
            // The certificate has ended while its successor was on its way: the token may be the way to it. The key waits.
            self.stage = Stage::Rest { not_before: now.up + self.tries.pause() };
            return;
        }
        self.stage = stage;
        if let Stage::Create(request) | Stage::Poll(request, _) | Stage::Prove(request, _) = &mut self.stage {
            request.at = at;
        }
    }
}

/// Whether the server knew whose certificate this is: a Node that does not exist is none of the certificate's faults.
fn proves(result: &Result<Document, Refusal>) -> bool {
    result.as_ref().err().is_none_or(|refusal| refusal.class() == Class::Missing)
}

/// What people know CAs by, with a blank before each.
fn hashes(authorities: &[CertificateDer<'_>]) -> String {
    authorities.iter().filter_map(|one| pin::of(one)).map(|hash| format!(" {hash}")).collect()
}

fn end_of(leaf: &[u8]) -> Option<Wall> {
    certificate::validity(leaf).map(|(_, end)| end)
}
