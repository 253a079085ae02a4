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

use std::time::Duration;

use zeroize::Zeroizing;

use super::super::backoff::Backoff;
use super::super::contract::{Access, Means, Output, Trust};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::stop::{self, Stop};
use super::{HOUR, hashes};
use crate::api::{Class, Document, Operation, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::config::limits;
use crate::identity::cluster_info::{self, Cluster, ClusterInfo};
use crate::identity::supervisor::{self, Asked, Distribution};
use crate::identity::token::Kind;
use crate::identity::{CertificateDer, IdentityError, pem, pin};
use crate::time::{Now, Up};

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

/// Anything that a person has to change.
const LONG_PAUSE: Duration = Duration::from_secs(300);
const CA_CHANGED: &str = "ca-changed";
/// A fleet that is switched on together is spread over this.
const SPREAD: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// What goes on being in the way is told again this often.
const TOLD_EVERY: Duration = Duration::from_secs(600);

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
            shared.output(Output::ReadMeans { has_other_ca: self.reason == Reason::OtherCa });
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
                    Trust::Pinned(_) | Trust::Token => Step::Discover,
                    Trust::Given(authorities) => Step::Confirm(Some(authorities.clone())),
                    Trust::InUse => Step::Confirm(None),
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
                self.confirmed(&body, authorities.is_none(), shared)?;
                if self.reason == Reason::OtherCa && self.supervisor().is_none() {
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

    /// The server does not take the token that cluster-info was signed with a moment ago.
    pub(super) fn token_died(&mut self, shared: &mut Shared, now: Now) {
        let id = match self.kind() {
            Some(Kind::Bootstrap(token)) => token.id.to_owned(),
            _ => String::new(),
        };
        self.refused(IdentityError::TokenUnknown(id), shared, now);
    }

    /// No certificate comes of the server that was proven.
    pub(super) fn refused(&mut self, error: IdentityError, shared: &mut Shared, now: Now) {
        self.stop(error.into(), shared, now);
    }

    /// Settings, token or link may be others now.
    pub(super) fn hurry(&mut self, now: Up) {
        if self.obstacle.is_some() {
            self.at = now;
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
        let cluster = self.cluster(body, false);
        let shown = match &cluster {
            Ok(cluster) => cluster.authorities.clone(),
            // Even so people are told which one it is.
            Err(IdentityError::SignatureWrong(_) | IdentityError::TokenUnknown(_))
                if self.reason == Reason::OtherCa =>
            {
                ClusterInfo::read(body)?.cluster()?.authorities
            }
            Err(error) => return Err(error.clone()),
        };
        let pinned = match self.means.as_ref().map(|means| &means.trust) {
            Some(Trust::Pinned(pins)) => pin::pinned(&shown, pins),
            _ => Ok(shown),
        };
        let pinned = match pinned {
            Err(IdentityError::PinMismatch(found)) if self.reason == Reason::OtherCa => {
                return Err(IdentityError::CaChanged(found, cluster.is_ok()));
            }
            pinned => cluster.and(pinned)?,
        };
        self.say(format!("its CA is{}", hashes(pinned.get(..1).unwrap_or_default())), shared);
        self.step = Step::Confirm(Some(pinned));
        Ok(())
    }

    /// Now the whole bundle is the cluster's (JOIN-4).
    fn confirmed(&mut self, body: &[u8], is_in_use: bool, shared: &mut Shared) -> Result<(), IdentityError> {
        let Cluster { server, authorities } = self.cluster(body, true)?;
        if self.supervisor().is_some() {
            // Where the API is, it says to who shows the token.
            self.step = Step::Look(Some(authorities));
            return Ok(());
        }
        self.say("its cluster-info is signed with the token".to_owned(), shared);
        if !is_in_use {
            self.use_cluster(None, &[server], &authorities, shared);
        }
        self.step = Step::Look((!is_in_use).then_some(authorities));
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
        let own = own.map(|server| match ports {
            Some((supervisor, port)) if server.port == supervisor => Server { port, ..server },
            _ => server,
        });
        let mut servers: Vec<Server> = Vec::new();
        for server in own.chain(named.iter().cloned()).take(limits::JOIN_SERVERS) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        if self.reason == Reason::OtherCa {
            let text = format!("the cluster's CA is another from now on:{}", hashes(authorities));
            shared.say(Level::Info, "ca-added", text);
        }
        let supervisor = ports.map(|(supervisor, _)| supervisor);
        shared.output(Output::UseCluster { servers, authorities: authorities.to_vec().into(), supervisor });
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

    fn stop(&mut self, why: Stop, shared: &mut Shared, now: Now) {
        let unreachable = |join: &mut Join, shared: &mut Shared| shared.random.up_to(join.unreachable.step());
        let (word, text, pause) = match why {
            Stop::Failed(refusal) if refusal.class() == Class::Rights => return self.token_died(shared, now),
            Stop::Failed(refusal) => {
                let pause = match stop::is_of_one_server(&refusal.word()) {
                    true => self.pause_for_server(shared),
                    false => unreachable(self, shared).max(refusal.retry_after().min(LONG_PAUSE)),
                };
                let server = self.server().map(Server::authority).unwrap_or_default();
                ("join-failing", format!("{server}: {refusal}"), pause)
            }
            Stop::Hindered(word @ "token-unknown", text) => (word, text, self.pause_for_token(shared, now)),
            Stop::Hindered(word @ "supervisor-busy", text) => (word, text, unreachable(self, shared)),
            Stop::Hindered(word, text) if stop::is_of_one_server(word) => (word, text, self.pause_for_server(shared)),
            Stop::Hindered(word, text) => (word, text, LONG_PAUSE),
        };
        self.hindered(word, text, pause, shared, now);
    }

    /// A server that is none of this cluster's is asked again later; before that it is the turn of those that were not yet.
    fn pause_for_server(&self, shared: &mut Shared) -> Duration {
        let servers = self.means.as_ref().map_or(1, |means| means.servers.len());
        if (self.turn + 1).is_multiple_of(servers) { LONG_PAUSE } else { shared.random.up_to(SPREAD) }
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

    /// Whoever has a certificate that has ended asks every quarter of an hour for a day, then every hour, each time spread (EXP-3).
    fn pause_for_token(&mut self, shared: &mut Shared, now: Now) -> Duration {
        if self.reason != Reason::Ended {
            return self.unknown.step();
        }
        let pause = if now.up - self.began < DAY { HOUR / 4 } else { HOUR };
        pause / 2 + shared.random.up_to(pause)
    }

    /// From the beginning, later: token and settings may be others by then, and it is another server's turn.
    fn hindered(&mut self, word: &'static str, text: String, pause: Duration, shared: &mut Shared, now: Now) {
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
