//! Turns a token, and what is known of a cluster's CA, into an API server that is proven: only then is anything secret said.
//!
//! ```text
//!         read              pinned               signed              ours, free
//! Means -------> Discover -----------> Confirm -----------> Look ----------------> a key, a request for a certificate
//!   ^            (nobody proven)       (proven, nobody)     (proven, the token)
//!   '---------------- anything else: after seconds to minutes, with the next server ----------------'
//! ```

use std::time::Duration;

use super::super::backoff::Backoff;
use super::super::contract::{Access, Means, Output, Trust};
use super::super::notice::Level;
use super::super::shared::Shared;
use crate::api::{Class, Document, Operation, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::identity::cluster_info::{self, Cluster, ClusterInfo};
use crate::identity::token::{BootstrapToken, Kind};
use crate::identity::{CertificateDer, IdentityError, pin};
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
    is_back: bool,
    /// Where nobody answers.
    unreachable: Backoff,
    /// Where the token is not known: it may have been made seconds ago.
    unknown: Backoff,
    /// What is in the way, its machine word, and when that was told.
    obstacle: Option<(&'static str, String, Up)>,
}

#[derive(Debug)]
enum Step {
    /// `io` reads token and CA.
    Means {
        is_asked: bool,
    },
    Discover,
    Confirm {
        authorities: Option<Vec<CertificateDer<'static>>>,
    },
    Look {
        authorities: Option<Vec<CertificateDer<'static>>>,
    },
}

/// Anything that a person has to change.
const LONG_PAUSE: Duration = Duration::from_secs(300);
/// A fleet that is switched on together is spread over this.
const SPREAD: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// What goes on being in the way is told again this often.
const TOLD_EVERY: Duration = Duration::from_secs(600);

impl Join {
    /// For the first time.
    pub(super) fn first(shared: &mut Shared, now: Up) -> Join {
        Join::at(now + shared.random.up_to(SPREAD), false, now)
    }

    /// The server does not take the certificate in use any more (EXP-2).
    pub(super) fn again(now: Up) -> Join {
        Join::at(now, true, now)
    }

    fn at(at: Up, is_back: bool, began: Up) -> Join {
        Join {
            step: Step::Means { is_asked: false },
            at,
            turn: 0,
            means: None,
            began,
            is_back,
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
        let Some((means, server)) = self.means.as_ref().and_then(|means| Some((means, self.server()?))) else {
            self.step = Step::Means { is_asked: true };
            shared.output(Output::ReadMeans);
            return None;
        };
        let introduced = |authorities: &Option<_>, token| Access::Introduced {
            server: server.clone(),
            authorities: Clone::clone(authorities),
            token,
        };
        Some(match &self.step {
            Step::Means { .. } => return None,
            Step::Discover => (Access::Unverified { server: server.clone() }, Operation::ReadClusterInfo),
            Step::Confirm { authorities } => (introduced(authorities, None), Operation::ReadClusterInfo),
            Step::Look { authorities } => {
                (introduced(authorities, Some(means.token.clone())), Operation::ReadNode { heartbeat: false })
            }
        })
    }

    pub(super) fn means_read(&mut self, means: Result<Box<Means>, String>, shared: &mut Shared, now: Now) {
        match means {
            Ok(means) if matches!(Kind::of(&means.token), Some(Kind::Supervisor(_))) => {
                let text = "this is a token of k3s or rke2, whose own way to join is not built in yet: give this board a kubeconfig \
                    (targets/kubernetes/enroll on a machine of an administrator)";
                self.hindered("k3s-token", text.to_owned(), LONG_PAUSE, shared, now);
            }
            Ok(means) => {
                self.step = match &means.trust {
                    Trust::Pinned(_) | Trust::Token => Step::Discover,
                    Trust::Given(authorities) => Step::Confirm { authorities: Some(authorities.clone()) },
                    Trust::InUse => Step::Confirm { authorities: None },
                };
                self.means = Some(means);
                self.at = now.up;
                let server = self.server().map(Server::authority).unwrap_or_default();
                self.say(format!("asking {server} which cluster it is"), shared);
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
        let refused = match (&step, result) {
            (Step::Discover, Ok(Document::Json(body))) => self.discovered(&body, shared).err(),
            (Step::Confirm { authorities }, Ok(Document::Json(body))) => {
                self.confirmed(&body, authorities.is_none(), shared).err()
            }
            (Step::Look { authorities }, Ok(Document::Node(node))) => {
                let is_ready = node.is_ready();
                match stranger.filter(|_| is_ready) {
                    None => return self.proven(authorities.clone()),
                    Some(who) => {
                        let text = format!(
                            "Node {} is {who}, and it is Ready: give this board another name, or switch the \
                            other off",
                            shared.node_name
                        );
                        self.hindered("name-taken", text, LONG_PAUSE, shared, now);
                        return None;
                    }
                }
            }
            (Step::Look { authorities }, Err(Refusal::Status(StatusError { code: 403 | 404, .. }))) => {
                return self.proven(authorities.clone());
            }
            (Step::Discover | Step::Confirm { .. }, Err(Refusal::Status(StatusError { code, .. })))
                if cluster_info::refused(code).is_some() =>
            {
                match &step {
                    // Whoever has the CA, or had it, needs no cluster-info (JOIN-8).
                    Step::Confirm { authorities } => {
                        if let Some(authorities) = authorities {
                            self.use_cluster(None, authorities, shared);
                        }
                        self.step = Step::Look { authorities: authorities.clone() };
                        None
                    }
                    _ => cluster_info::refused(code),
                }
            }
            (_, Err(refusal)) => {
                self.failed(&refusal, shared, now);
                None
            }
            _ => None,
        };
        if let Some(error) = refused {
            let pause = match error {
                IdentityError::TokenUnknown(_) => self.pause_for_token(shared, now),
                _ => LONG_PAUSE,
            };
            self.hindered(error.word(), error.to_string(), pause, shared, now);
        }
        None
    }

    /// The server does not take the token that cluster-info was signed with a moment ago.
    pub(super) fn token_died(&mut self, shared: &mut Shared, now: Now) {
        let id = self.token().map(|token| token.id.to_owned()).unwrap_or_default();
        let error = IdentityError::TokenUnknown(id);
        let pause = self.pause_for_token(shared, now);
        self.hindered(error.word(), error.to_string(), pause, shared, now);
    }

    /// Settings, token or link may be others now.
    pub(super) fn hurry(&mut self, now: Up) {
        if self.obstacle.is_some() {
            self.at = now;
        }
    }

    /// Nothing is kept of this answer but certificates that are pinned (JOIN-3).
    fn discovered(&mut self, body: &[u8], shared: &mut Shared) -> Result<(), IdentityError> {
        let cluster = self.signed(body)?;
        let pinned = match self.means.as_ref().map(|means| &means.trust) {
            Some(Trust::Pinned(pins)) => pin::pinned(&cluster.authorities, pins)?,
            _ => cluster.authorities,
        };
        let first = pinned.first().and_then(|authority| pin::of(authority)).map(|pin| pin.to_string());
        self.say(format!("its CA is {}", first.unwrap_or_default()), shared);
        self.step = Step::Confirm { authorities: Some(pinned) };
        Ok(())
    }

    /// Now the whole bundle is the cluster's (JOIN-4).
    fn confirmed(&mut self, body: &[u8], is_in_use: bool, shared: &mut Shared) -> Result<(), IdentityError> {
        let Cluster { server, authorities } = self.signed(body)?;
        self.say("its cluster-info is signed with the token".to_owned(), shared);
        if !is_in_use {
            self.use_cluster(Some(&server), &authorities, shared);
        }
        self.step = Step::Look { authorities: (!is_in_use).then_some(authorities) };
        Ok(())
    }

    /// The given servers in their order, the one that answered first; what cluster-info names is the last resort (JOIN-7).
    fn use_cluster(&self, named: Option<&Server>, authorities: &[CertificateDer<'static>], shared: &mut Shared) {
        let own = self.server().into_iter().chain(self.means.iter().flat_map(|means| &means.servers));
        let mut servers: Vec<Server> = Vec::new();
        for server in own.chain(named) {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        shared.output(Output::UseCluster { servers, authorities: authorities.to_vec() });
    }

    fn signed(&self, body: &[u8]) -> Result<Cluster, IdentityError> {
        let info = ClusterInfo::read(body)?;
        let token = self.token().ok_or_else(|| IdentityError::AnswerMalformed("a token of k3s".to_owned()))?;
        info.check_signature(token)?;
        info.cluster()
    }

    fn proven(&mut self, authorities: Option<Vec<CertificateDer<'static>>>) -> Option<Access> {
        self.obstacle = None;
        let (server, token) = (self.server()?.clone(), self.means.as_ref()?.token.clone());
        Some(Access::Introduced { server, authorities, token: Some(token) })
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

    fn token(&self) -> Option<BootstrapToken<'_>> {
        match Kind::of(&self.means.as_ref()?.token)? {
            Kind::Bootstrap(token) => Some(token),
            Kind::Supervisor(_) => None,
        }
    }

    fn failed(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let pause = match refusal.class() {
            Class::Rights => return self.token_died(shared, now),
            _ => shared.random.up_to(self.unreachable.step()).max(refusal.retry_after().min(LONG_PAUSE)),
        };
        let server = self.server().map(Server::authority).unwrap_or_default();
        self.hindered("join-failing", format!("{server}: {refusal}"), pause, shared, now);
    }

    /// Whoever has been a Node asks every quarter of an hour for a day, then every hour, each time spread (EXP-3).
    fn pause_for_token(&mut self, shared: &mut Shared, now: Now) -> Duration {
        if !self.is_back {
            return self.unknown.step();
        }
        let pause = if now.up - self.began < DAY { HOUR / 4 } else { HOUR };
        pause / 2 + shared.random.up_to(pause)
    }

    /// From the beginning, later: token and settings may be others by then, and it is another server's turn.
    fn hindered(&mut self, word: &'static str, text: String, pause: Duration, shared: &mut Shared, now: Now) {
        let was_told = self.obstacle.take().filter(|(told, _, at)| *told == word && now.up - *at < TOLD_EVERY);
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
