//! Turns a token, and what is known of a cluster's CA, into a server that is proven: only then is anything secret said.
//!
//! ```text
//!         read              pinned               confirmed           taken             located
//! Means -------> Discover -----------> Confirm -----------> Look -----------> Locate -----------> a key, a request for
//!   ^            (nobody proven)       (proven, nobody)     (proven, token)   (the same)            a certificate
//!   '---------------- anything else: after seconds to minutes, with the next server ----------------'
//!
//! a token of      Discover, Confirm: who is it?                   Look                    Locate
//! kubeadm         cluster-info, signed with the token             the Node: is it free?
//! k3s and rke2    /cacerts, of which the token has the hash       the port of the API     its other servers
//! ```

mod stop;

use std::time::Duration;

use zeroize::Zeroizing;

use super::super::backoff::Backoff;
use super::super::contract::{Access, IdentityStep, Means, Trust};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::hashes;
use crate::api::{Document, Operation, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::config::limits;
use crate::identity::cluster_info::{self, Cluster, ClusterInfo};
use crate::identity::supervisor::{self, Asked, Distribution};
use crate::identity::token::Kind;
use crate::identity::{CertificateDer, IdentityError, pem, pin};
use crate::time::{Now, Up};
pub(super) use stop::Stop;

#[derive(Debug)]
pub(super) struct Join {
    step: Step,
    /// When it is due.
    pub(super) at: Up,
    /// How often a server was asked that is none, or none of ours: with each time it is the next one's turn.
    turn: usize,
    means: Option<Box<Means>>,
    /// Since when; one that has been a Node asks rarely after a day.
    began: Up,
    pub(super) reason: Reason,
    /// Where nobody answers.
    unreachable: Backoff,
    /// Where the token is not known: it may have been made seconds ago.
    unknown: Backoff,
    /// What is in the way, its machine word, and when that was told.
    obstacle: Option<(&'static str, String, Up)>,
}

/// Why a server has to be found and proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// There has been no certificate yet.
    First,
    /// The server does not take the certificate in use any more (EXP-2).
    Ended,
    /// No server has a certificate of the CA in use (CA-4): what is looked for is a CA alone.
    OtherCa,
}

/// CAs that prove the server; `None`: those in use.
type Authorities = Option<Vec<CertificateDer<'static>>>;

#[derive(Debug)]
enum Step {
    /// `io` reads token and CA.
    Means {
        is_asked: bool,
    },
    Discover,
    Confirm(Authorities),
    Look(Authorities),
    /// `port`: of the API, where it is not the supervisor's.
    Locate {
        authorities: Authorities,
        port: Option<u16>,
    },
}

const CA_CHANGED: &str = "ca-changed";
/// A fleet that is switched on together is spread over this.
const SPREAD: Duration = Duration::from_secs(5);
/// Between two tries where nobody answers, or a person has to change something.
const LONG_PAUSE: Duration = Duration::from_secs(300);
const NO_TRUST: &str =
    "nothing says which server may have the token: set caHash or caFile, or run nodepulse join on this board";

impl Join {
    pub(super) fn new(reason: Reason, shared: &mut Shared, now: Up) -> Join {
        let spread = if reason == Reason::Ended { Duration::ZERO } else { shared.random.up_to(SPREAD) };
        Join {
            step: Step::Means { is_asked: false },
            at: now + spread,
            turn: 0,
            means: None,
            began: now,
            reason,
            unreachable: Backoff::between(Duration::from_secs(2), LONG_PAUSE),
            unknown: Backoff::between(Duration::from_secs(5), LONG_PAUSE),
            obstacle: None,
        }
    }

    /// What is in the way, for people.
    pub(super) fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_ref().map(|(_, text, _)| text.as_str())
    }

    /// Whether nothing has come of it for so long, or there is no token that is known.
    pub(super) fn has_failed_for(&self, span: Duration, now: Up) -> bool {
        let is_without = |word: &str| matches!(word, "no-token" | "token-unknown");
        self.obstacle.as_ref().is_some_and(|(word, ..)| is_without(word) || now - self.began >= span)
    }

    /// Whether a file is being read: nothing else can happen.
    pub(super) fn reads(&self) -> bool {
        matches!(self.step, Step::Means { is_asked: true })
    }

    /// What to ask now, if that is another server than before.
    pub(super) fn operation(&mut self, shared: &mut Shared) -> Option<(Access, Operation)> {
        if matches!(self.step, Step::Means { .. }) {
            // What a server was proven with before, for a certificate that did not come, is read again.
            self.means = None;
        }
        let Some((means, server)) = self.means.as_ref().and_then(|means| Some((means, self.server()?))) else {
            self.step = Step::Means { is_asked: true };
            shared.wants(IdentityStep::ReadMeans { has_other_ca: self.reason == Reason::OtherCa });
            return None;
        };
        let introduced = |authorities: &Authorities, token| Access::Introduced {
            server: server.clone(),
            authorities: authorities.clone(),
            token,
        };
        let supervisor = self.supervisor();
        let who_is_it =
            || if supervisor.is_some() { supervisor::ask_authorities() } else { Operation::ReadClusterInfo };
        Some(match (&self.step, supervisor) {
            (Step::Means { .. }, _) => return None,
            (Step::Discover, _) => (Access::Unverified { server: server.clone() }, who_is_it()),
            (Step::Confirm(authorities), _) => (introduced(authorities, None), who_is_it()),
            (Step::Look(authorities), Some(of)) => {
                (introduced(authorities, None), of.ask_settings(self.authorization()))
            }
            (Step::Look(authorities), None) => {
                (introduced(authorities, Some(means.token.clone())), Operation::ReadNode { heartbeat: false })
            }
            (Step::Locate { authorities, .. }, of) => {
                (introduced(authorities, None), of?.ask_api_servers(self.authorization()))
            }
        })
    }

    pub(super) fn means_read(&mut self, means: Result<Box<Means>, String>, shared: &mut Shared, now: Now) {
        match means {
            Ok(means) => {
                self.step = match &means.trust {
                    // The CA in use has proven itself: whoever has another one is not asked for a certificate.
                    _ if self.reason == Reason::Ended => Step::Confirm(None),
                    Trust::Given(authorities) => Step::Confirm(Some(authorities.clone())),
                    Trust::Pinned(pins)
                        if pins.is_empty() && !means.token.has_pin() && self.reason == Reason::First =>
                    {
                        return self.hindered("no-pin", NO_TRUST.to_owned(), LONG_PAUSE, shared, now);
                    }
                    // Where none is pinned, people are told which one there is.
                    Trust::Pinned(_) | Trust::Token => Step::Discover,
                };
                self.means = Some(means);
                self.at = now.up;
                let server = self.server().map(Server::authority).unwrap_or_default();
                self.say(format!("asking {server} which cluster it is"), shared);
            }
            Err(missing) if self.reason == Reason::OtherCa => {
                let text = format!("no server has a certificate of a CA that this board trusts, and {missing}");
                self.hindered(CA_CHANGED, text, LONG_PAUSE, shared, now);
            }
            Err(missing) => self.hindered("no-token", missing, LONG_PAUSE, shared, now),
        }
    }

    /// Answers over what a certificate can be asked for, once the server is proven and the name is free or ours. `stranger`:
    /// who else has written the Node that was read.
    pub(super) fn answered(
        &mut self,
        result: Result<Document, Refusal>,
        stranger: Option<String>,
        shared: &mut Shared,
        now: Now,
    ) -> Option<Access> {
        self.at = now.up;
        let step = std::mem::replace(&mut self.step, Step::Means { is_asked: false });
        let is_confirming = matches!(step, Step::Confirm(_));
        let next = match result {
            // The CA that was given is the old one as well: which one is the new?
            Err(Refusal::Failed(_)) if is_confirming && self.reason == Reason::OtherCa && self.was_given_ca() => {
                Ok(None)
            }
            Ok(document) => self.took(step, document, stranger, shared),
            Err(Refusal::Status(status)) => self.was_refused(step, status, shared),
            Err(failed) => Err(Stop::Failed(failed)),
        };
        next.unwrap_or_else(|why| {
            self.stop(why, shared, now);
            None
        })
    }

    fn took(
        &mut self,
        step: Step,
        document: Document,
        stranger: Option<String>,
        shared: &mut Shared,
    ) -> Result<Option<Access>, Stop> {
        match (step, document) {
            (Step::Discover, Document::Json(body) | Document::HandedOut(body)) => self.discovered(&body, shared)?,
            (Step::Confirm(authorities), Document::Json(body) | Document::HandedOut(body)) => {
                self.confirmed(&body, authorities, shared)?;
                if self.reason == Reason::OtherCa {
                    return Ok(self.proven(None));
                }
            }
            (Step::Look(authorities), Document::Node(node)) => {
                if let Some(who) = stranger.filter(|_| node.is_ready()) {
                    let text = format!(
                        "Node {} is {who}, and it is Ready: give this board another name, or switch the other off",
                        shared.node_name
                    );
                    return Err(Stop::Hindered("name-taken", text));
                }
                return Ok(self.proven(authorities));
            }
            (Step::Look(authorities), Document::HandedOut(body)) => {
                self.say("it takes the token".to_owned(), shared);
                self.step = Step::Locate { authorities, port: supervisor::read_api_port(&body)? };
            }
            (Step::Locate { authorities, port }, Document::HandedOut(body)) => {
                return Ok(self.located(authorities, port, &supervisor::read_api_servers(&body)?, shared));
            }
            // Nothing that was asked for.
            _ => {}
        }
        Ok(None)
    }

    fn was_refused(&mut self, step: Step, status: StatusError, shared: &mut Shared) -> Result<Option<Access>, Stop> {
        match (step, self.supervisor(), status.code) {
            // It is older than that question.
            (Step::Locate { authorities, port }, _, 404) => Ok(self.located(authorities, port, &[], shared)),
            (_, Some(supervisor), _) => Err(supervisor.refused(&status, &shared.node_name, Asked::Place).into()),
            (Step::Look(authorities), _, 403 | 404) => Ok(self.proven(authorities)),
            (Step::Discover, _, code) if let Some(error) = cluster_info::refused(code) => Err(error.into()),
            // Whoever has the CA, or had it, needs no cluster-info (JOIN-8).
            (Step::Confirm(authorities), _, code) if cluster_info::refused(code).is_some() => {
                if let Some(authorities) = &authorities {
                    self.use_cluster(None, &[], authorities, shared);
                }
                if self.reason == Reason::OtherCa {
                    return Ok(self.proven(None));
                }
                self.step = Step::Look(authorities);
                Ok(None)
            }
            _ => Err(Stop::Failed(Refusal::Status(status))),
        }
    }

    /// Settings, token or link may be others now.
    pub(super) fn hurry(&mut self, now: Up) {
        if self.obstacle.is_some() {
            self.at = now;
            self.unreachable.reset();
        }
    }

    /// What shows a supervisor the token; `None` for an API server.
    pub(super) fn authorization(&self) -> Option<Zeroizing<String>> {
        match self.kind()? {
            Kind::Supervisor(token) => Some(token.authorization()),
            Kind::Bootstrap(_) => None,
        }
    }

    /// Nothing is kept of this answer but certificates that are pinned (JOIN-3).
    fn discovered(&mut self, body: &[u8], shared: &mut Shared) -> Result<(), IdentityError> {
        let has_other_ca = self.reason == Reason::OtherCa;
        let cluster = self.cluster(body, false);
        let shown = match &cluster {
            Ok(cluster) => cluster.authorities.clone(),
            // Even so people are told which one it is.
            Err(IdentityError::SignatureWrong(_) | IdentityError::TokenUnknown(_)) if has_other_ca => {
                ClusterInfo::read(body)?.cluster()?.authorities
            }
            Err(IdentityError::PinMismatch(_)) if has_other_ca => pem::certificates(body).collect(),
            Err(error) => return Err(error.clone()),
        };
        let pinned = match self.means.as_ref().map(|means| &means.trust) {
            // That of k3s has been vouched for.
            Some(Trust::Pinned(pins)) if cluster.is_err() || self.supervisor().is_none() => pin::pinned(&shown, pins),
            _ => Ok(shown),
        };
        let pinned = match (pinned, cluster) {
            (Err(IdentityError::PinMismatch(found)), cluster) if has_other_ca => {
                return Err(IdentityError::CaChanged(found, cluster.is_ok()));
            }
            // The hash of a CA vouches for it, whatever has become of the token (CA-4).
            (pinned, Err(IdentityError::TokenUnknown(_) | IdentityError::PinMismatch(_))) => pinned?,
            (pinned, cluster) => cluster.and(pinned)?,
        };
        self.say(format!("its CA is{}", hashes(pinned.get(..1).unwrap_or_default())), shared);
        self.step = Step::Confirm(Some(pinned));
        Ok(())
    }

    /// Now the whole bundle is the cluster's (JOIN-4). `over`: CAs that verified the connection; `None`: those in use.
    fn confirmed(&mut self, body: &[u8], over: Authorities, shared: &mut Shared) -> Result<(), IdentityError> {
        let has_other_ca = self.reason == Reason::OtherCa;
        let Cluster { server, authorities } = match (self.cluster(body, true), &over) {
            // Nobody vouches for what stands beside it.
            (Err(IdentityError::TokenUnknown(_)), Some(over)) if has_other_ca => {
                self.use_cluster(None, &[], over, shared);
                return Ok(());
            }
            (cluster, _) => cluster?,
        };
        if self.supervisor().is_some() {
            // Where the API is, it says to who shows the token.
            if has_other_ca {
                self.use_cluster(None, &[], &authorities, shared);
            }
            self.step = Step::Look(Some(authorities));
            return Ok(());
        }
        self.say("its cluster-info is signed with the token".to_owned(), shared);
        if over.is_some() {
            self.use_cluster(None, &[server], &authorities, shared);
        }
        self.step = Step::Look(over.map(|_| authorities));
        Ok(())
    }

    /// `port`: of the API. `named`: API servers that the supervisor knows.
    fn located(
        &mut self,
        authorities: Authorities,
        port: Option<u16>,
        named: &[Server],
        shared: &mut Shared,
    ) -> Option<Access> {
        let supervisor = self.server()?.port;
        self.use_cluster(Some((supervisor, port.unwrap_or(supervisor))), named, authorities.as_ref()?, shared);
        self.proven(authorities)
    }

    /// The given servers in their order, the one that answered first; those that it names are the last resort (JOIN-7).
    /// `ports`: of its supervisor, and of the API beside it.
    fn use_cluster(
        &self,
        ports: Option<(u16, u16)>,
        named: &[Server],
        authorities: &[CertificateDer<'static>],
        shared: &mut Shared,
    ) {
        let own = self.server().into_iter().chain(self.means.iter().flat_map(|means| &means.servers)).cloned();
        let own = own.map(|server| server.of_api(ports));
        // Beside a supervisor those in use stay where it does not say which there are.
        let is_known = self.supervisor().is_none() || ports.is_some();
        let servers = Server::without_repeats(&mut own.chain(named.iter().cloned()).filter(|_| is_known));
        if self.reason == Reason::OtherCa {
            let text = format!("the cluster's CA is another from now on:{}", hashes(authorities));
            // Where it does not help it is found again each half hour.
            if shared.credentials.is_news_of_ca(&text) {
                shared.say(Level::Info, "ca-added", text);
            }
        }
        let supervisor = ports.map(|(supervisor, _)| supervisor);
        shared.wants(IdentityStep::UseCluster { servers, authorities: authorities.to_vec().into(), supervisor });
    }

    /// What an answer says of the cluster, as far as the token vouches for it, or who gave it `is_proven`.
    fn cluster(&self, body: &[u8], is_proven: bool) -> Result<Cluster, IdentityError> {
        let malformed = |what: &str| IdentityError::AnswerMalformed(what.to_owned());
        match self.kind().ok_or_else(|| malformed("no token"))? {
            Kind::Bootstrap(token) => {
                let info = ClusterInfo::read(body)?;
                info.check_signature(token)?;
                info.cluster()
            }
            Kind::Supervisor(token) => {
                let authorities = match is_proven {
                    true => pem::certificates(body).take(limits::CA_CERTIFICATES).collect(),
                    false => pin::vouched_by_token(body, token.hash)?,
                };
                let server = self.server().filter(|_| !authorities.is_empty());
                let server = server.ok_or_else(|| malformed("no certificate"))?.clone();
                Ok(Cluster { server, authorities })
            }
        }
    }

    fn proven(&mut self, authorities: Authorities) -> Option<Access> {
        self.obstacle = None;
        if self.reason == Reason::OtherCa {
            return Some(Access::InUse);
        }
        let (server, token) = (self.server()?.clone(), self.means.as_ref()?.token.clone());
        // A supervisor is shown it by each request.
        let token = Some(token).filter(|_| self.supervisor().is_none());
        Some(Access::Introduced { server, authorities, token })
    }

    /// Each step is told, but not again and again while something is in the way.
    fn say(&self, step: String, shared: &mut Shared) {
        if self.obstacle.is_none() {
            shared.say(Level::Info, "joining", step);
        }
    }

    fn server(&self) -> Option<&Server> {
        let servers = &self.means.as_ref()?.servers;
        servers.get(self.turn.checked_rem(servers.len())?)
    }

    fn kind(&self) -> Option<Kind<'_>> {
        Kind::of(&self.means.as_ref()?.token)
    }

    /// Whose supervisor is asked; `None`: an API server is.
    fn supervisor(&self) -> Option<Distribution> {
        self.authorization()?;
        Some(Distribution::of(self.server()?.port))
    }

    /// Then nothing is pinned, and a server is asked which CA it has.
    fn was_given_ca(&mut self) -> bool {
        let Some(means) = self.means.as_mut().filter(|means| matches!(means.trust, Trust::Given(_))) else {
            return false;
        };
        means.trust = Trust::Pinned(Vec::new());
        self.step = Step::Discover;
        true
    }
}
