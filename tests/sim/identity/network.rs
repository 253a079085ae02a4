//! Turns the agent's requests into answers of the cluster, or of somebody who stands between and is not the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use nodepulse::agent::{Access, Input, Ticket};
use nodepulse::api::{Answer, AuditId, Document, Exchange, Failure, Operation, Progress, Refusal, Target};
use nodepulse::config::kubeconfig::Server;
use nodepulse::identity::{Bundle, CertificateDer};

use super::cluster::{Authority, Signer};
use super::der;
use super::judge::Way;
use super::machine::Flight;
use super::planted::Fault;
use super::supervisor;
use super::world::{Event, SECOND_US, World};
use crate::model::http::{Request, Response, http_date};
use crate::model::problem::Problem;

const PATIENCE_US: u64 = 10 * SECOND_US;

/// Somebody to whom a board's connections go instead of to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intruder {
    /// Has another board's token, and puts a CA of its own beside the cluster's.
    MixesCas,
    /// The same with its own CA alone.
    OwnCa,
    /// Has no token.
    Forges,
    Silent,
}

pub const INTRUDERS: [Intruder; 4] = [Intruder::MixesCas, Intruder::OwnCa, Intruder::Forges, Intruder::Silent];

/// A request and over what it goes.
#[derive(Clone)]
pub struct Letter {
    pub bytes: Vec<u8>,
    pub to: Server,
    /// CAs by which the server is verified; `None`: it is not.
    trust: Option<Vec<CertificateDer<'static>>>,
    leaf: Option<Vec<u8>>,
}

impl World {
    pub fn send(&mut self, board: usize, ticket: Ticket, access: Option<Access>, operation: Operation) {
        let machine = &mut self.machines[board];
        let in_use = machine.shell.authorities.as_ref().map(Bundle::all);
        let is_of_identity = access.is_some();
        let is_proof = matches!(access, Some(Access::Candidate { .. }));
        let place = match &access {
            None | Some(Access::InUse) => Some(machine.shell.place()),
            Some(Access::Candidate { chain }) => Some(machine.shell.place_of_proof(chain)),
            Some(_) => None,
        };
        let machine = &self.machines[board];
        let (mut trusted, leaf, token, to) = match access.unwrap_or(Access::InUse) {
            Access::InUse if machine.shell.identity.is_none() => {
                return self.violated(format!("{} is sent without an identity", operation.label()));
            }
            Access::InUse => (in_use, machine.shell.leaf(), None, machine.shell.server()),
            Access::Candidate { .. } if self.is(Fault::OldDroppedEarly) => {
                let answer = Answer { date: None, result: Ok(Document::Nothing) };
                return self.answer(board, 1_000, Input::Answered(ticket, answer));
            }
            Access::Candidate { chain } => {
                let server = place.and_then(|place| machine.shell.server_at(place));
                (in_use, chain.first().map(|leaf| leaf.to_vec()), None, server)
            }
            Access::Supervisor { port } => {
                let server = machine.shell.server().map(|server| Server { port, ..server });
                (in_use, machine.shell.leaf(), None, server)
            }
            Access::Unverified { server } => {
                let token = self.is(Fault::TokenBeforeVerification).then(|| super::cluster::TOKEN.to_owned());
                (None, None, token, Some(server))
            }
            Access::Introduced { server, authorities, token } => {
                let token = token.map(|token| token.as_str().to_owned());
                (authorities.map(|given| self.with_unpinned(given)).or(in_use), None, token, Some(server))
            }
        };
        let Some(to) = to else { return self.violated("nobody to be asked".to_owned()) };
        if self.is(Fault::SupervisorUnverified) && matches!(operation, Operation::AskSupervisor(_)) {
            trusted = None;
        }
        if let Some(trusted) = &trusted {
            self.check_trust(trusted);
        }
        let operation = self.spoilt(operation);
        self.say_sent(board, &operation, trusted.is_some(), token.is_some());
        self.requests += 1;
        let (flight, life) = (self.requests, self.machines[board].life);
        self.schedule(PATIENCE_US, Event::Fail { board, life, flight, word: "timed-out" });
        let mut exchange = None;
        if self.is_linked(board) {
            let target = Target {
                authority: to.authority(),
                path_prefix: String::new(),
                node_name: self.machines[board].node.clone(),
                bearer_token: token,
            };
            let (bytes, started) = Exchange::start(operation, &target, AuditId::new(1));
            exchange = Some(Box::new(started));
            let letter = Box::new(Letter { bytes, to, trust: trusted, leaf });
            let delay_us = self.random.between(2_000, 120_000);
            self.schedule(delay_us, Event::Arrive { board, life, flight, letter });
        }
        self.machines[board].flights.insert(flight, Flight { ticket, exchange, place, is_proof });
        let cuts = self.plan.cuts_after_request_per_mille;
        if is_of_identity && self.peace_us.is_none() && self.random.per_mille(cuts) {
            let delay_us = self.random.below(400_000);
            self.schedule(delay_us, Event::PowerCut { board, life });
        }
    }

    fn say_sent(&mut self, board: usize, operation: &Operation, is_verified: bool, has_token: bool) {
        let how = match (is_verified, has_token) {
            (false, _) => " to whoever answers",
            (true, true) => " with the token",
            (true, false) => "",
        };
        let label = operation.label();
        self.say(|| format!("board {board} -> {label}{how}"));
    }

    /// As an agent would that takes a bundle for proven when one of it is.
    fn with_unpinned(&self, mut given: Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>> {
        if self.is(Fault::UnpinnedKept) && self.machines.iter().any(|machine| machine.intruder.is_some()) {
            given.push(CertificateDer::from(self.foreign.der.clone()));
        }
        given
    }

    fn spoilt(&mut self, operation: Operation) -> Operation {
        match operation {
            Operation::CreateCertificateRequest { body } if self.is(Fault::TwoRequestsForOneKey) => {
                let name = format!("node-csr-{}-", self.requests);
                Operation::CreateCertificateRequest { body: body.replacen("node-csr-", &name, 1) }
            }
            other => other,
        }
    }

    pub fn arrive(&mut self, board: usize, life: u64, flight: u64, letter: &Letter) {
        let is_silent = self.api_down_until_us > self.now_us && self.random.per_mille(500);
        if !self.is_linked(board) || is_silent {
            return;
        }
        let intruder = self.machines[board].intruder.filter(|(until_us, _)| *until_us > self.now_us);
        let intruder = intruder.map(|(_, intruder)| intruder);
        let (certified, is_stranger) = match self.meets(letter) {
            _ if intruder.is_some() => (&self.foreign.der, false),
            Ok(host) => (&host.certified.der, host.is_stranger),
            Err(word) => {
                word.into_iter().for_each(|word| self.schedule(5_000, Event::Fail { board, life, flight, word }));
                return;
            }
        };
        if letter.trust.as_ref().is_some_and(|trust| trust.iter().all(|one| one.as_ref() != certified.as_slice())) {
            return self.schedule(5_000, Event::Fail { board, life, flight, word: "tls-unknown-issuer" });
        }
        let Ok(Some((request, _))) = Request::parse(&letter.bytes) else {
            return self.violated("not one whole request".to_owned());
        };
        let way = Way {
            is_verified: letter.trust.is_some(),
            is_cluster: intruder.is_none() && !is_stranger,
            has_certificate: letter.leaf.is_some(),
        };
        let wall_us = self.wall_us();
        let checked = self.judge.sent(board, &request, way, wall_us);
        self.check(checked);
        let response = match intruder {
            Some(Intruder::Silent) => return,
            Some(intruder) => self.answer_of(intruder, &request),
            None if is_stranger => self.answer_of(Intruder::Forges, &request),
            None if self.api_down_until_us > self.now_us => {
                self.cluster.api.show(&request, Err(Problem::injected(503, None)), wall_us)
            }
            None => self.answer_of_cluster(board, life, &request, letter),
        };
        self.say(|| format!("    {} {} -> {}", request.method, request.path, response.code));
        let delay_us = self.random.between(2_000, 120_000);
        self.schedule(delay_us, Event::Deliver { board, life, flight, bytes: response.to_bytes() });
    }

    fn answer_of_cluster(&mut self, board: usize, life: u64, request: &Request, letter: &Letter) -> Response {
        let wall_us = self.wall_us();
        let machine = &self.machines[board];
        let is_handed_out = supervisor::key_asked_for(request).is_some();
        if request.path.ends_with("/certificatesigningrequests") || is_handed_out {
            let has_disk = !machine.folder.refuses && !machine.shell.is_pending_in_memory();
            let pending = machine.folder.read_synced("pending.pem").unwrap_or_default();
            let cluster = &self.cluster;
            let is_over = |key: &[u8]| cluster.spoiled.contains(key) || cluster.has_ended(key, wall_us);
            let checked = self.judge.asks(board, request, (pending, has_disk), is_over);
            self.check(checked);
            if !self.lives(board, life) {
                self.judge.asker_is_gone(board, request);
            }
        }
        if let Some(password) = supervisor::node_password(request) {
            let machine = &self.machines[board];
            let has_disk = !machine.folder.refuses && !machine.shell.is_password_in_memory();
            let synced = machine.folder.read_synced("node-password").unwrap_or_default();
            let checked = self.judge.shows(board, password, (synced, has_disk));
            self.check(checked);
        }
        if self.is_misdirected(letter, request) {
            return self.cluster.api.show(request, Err(Problem::injected(503, None)), wall_us);
        }
        if supervisor::is_of_supervisor(request) {
            return self.answer_of_supervisor(board, request, letter);
        }
        let response = self.cluster.answer(request, letter.leaf.as_deref(), wall_us);
        let is_proof = letter.leaf.is_some() && letter.leaf != self.machines[board].shell.leaf();
        if response.code == 401 && is_proof {
            // By the CA that signed it: only now the board knows, whatever was between it and the server until then (seeds
            // 70150, 104084).
            self.machines[board].was_denied = true;
            self.judge.refused(board, wall_us);
        } else if response.code == 401 {
            self.judge.unauthorized(board);
        }
        if request.path.contains("/leases") && request.method != "GET" && response.is_success() {
            (self.machines[board].renewed_us, self.renewed) = (Some(wall_us), Some(board));
        }
        if request.path.contains("/certificatesigningrequests/") && self.is_bad(request) {
            self.machines[board].was_denied = true;
            let is_first = self.judge.refused(board, wall_us);
            if is_first && self.is(Fault::AsksAgainAtOnce) {
                for second in 1..6 {
                    let again = Event::Arrive { board, life: 0, flight: 0, letter: Box::new(letter.clone()) };
                    self.schedule(second * SECOND_US, again);
                }
            }
        }
        response
    }

    fn answer_of_supervisor(&mut self, board: usize, request: &Request, letter: &Letter) -> Response {
        let (wall_us, listed) = (self.wall_us(), self.servers.listed());
        let response = self.cluster.supervise(request, letter.leaf.as_deref(), &listed, wall_us);
        let key = supervisor::key_asked_for(request);
        let is_wrong = match (&key, response.code) {
            (None, _) => false,
            (Some(_), 403) => true,
            (Some(key), 200) => self.cluster.spoiled.contains(key) || self.cluster.signer == Signer::OfAnotherKey,
            _ => false,
        };
        if response.code == 401 {
            self.judge.unauthorized(board);
        }
        if is_wrong {
            self.machines[board].was_denied = true;
            self.judge.refused(board, wall_us);
        }
        response
    }

    /// Nothing comes of the request that is read.
    fn is_bad(&self, request: &Request) -> bool {
        let name = request.path.rsplit('/').next().unwrap_or_default();
        let known: BTreeSet<_> = self.cluster.spoiled.difference(&self.cluster.unproven).cloned().collect();
        self.cluster.asked.get(name).is_some_and(|asked| asked.is_hopeless(&known))
    }

    fn answer_of(&mut self, intruder: Intruder, request: &Request) -> Response {
        let wall_us = self.wall_us();
        let own = [self.foreign.clone()];
        if supervisor::is_of_supervisor(request) {
            let body = der::pem(std::slice::from_ref(&self.foreign.der)).into_bytes();
            return Response { code: 200, headers: vec![("Date", http_date(wall_us))], body };
        }
        let both: Vec<Authority> = self.cluster.published.iter().cloned().chain(own.clone()).collect();
        let info = match intruder {
            Intruder::MixesCas => self.cluster.cluster_info(&both, Some("0123456789abcdef"), wall_us),
            Intruder::OwnCa => self.cluster.cluster_info(&own, Some("0123456789abcdef"), wall_us),
            Intruder::Forges | Intruder::Silent => self.cluster.cluster_info(&own, Some("anotherguessedse"), wall_us),
        };
        self.cluster.api.show(request, Ok((200, info)), wall_us)
    }

    pub fn deliver(&mut self, board: usize, life: u64, flight: u64, mut bytes: Vec<u8>) {
        if !self.lives(board, life) || !self.is_linked(board) {
            return;
        }
        let Some(Flight { ticket, exchange: Some(mut exchange), place, is_proof }) =
            self.machines[board].flights.remove(&flight)
        else {
            return;
        };
        let answer = match exchange.feed(&mut bytes) {
            Ok(Progress::Done { answer, .. }) => answer,
            Ok(Progress::NeedMore) => return self.violated("a whole reply was not understood".to_owned()),
            Err(failure) => Answer { date: None, result: Err(Refusal::Failed(failure)) },
        };
        self.answered(board, (place, is_proof), ticket, answer);
    }

    /// A server that came to nothing is not asked next.
    fn answered(&mut self, board: usize, (place, is_proof): (Option<usize>, bool), ticket: Ticket, answer: Answer) {
        let (up, is_stuck) = (self.now(board).up, self.is(Fault::OneServer));
        if let Some(place) = place.filter(|_| !is_stuck) {
            self.machines[board].shell.heard(place, is_proof, matches!(answer.result, Err(Refusal::Failed(_))), up);
        }
        self.feed(board, Input::Answered(ticket, answer));
    }

    pub fn fail(&mut self, board: usize, life: u64, flight: u64, word: &'static str) {
        if !self.lives(board, life) {
            return;
        }
        let Some(Flight { ticket, place, is_proof, .. }) = self.machines[board].flights.remove(&flight) else { return };
        let failure = match word {
            "timed-out" => Failure::timed_out(Duration::from_micros(PATIENCE_US)),
            "connect-refused" => Failure::new(word, "nobody listens there"),
            word => Failure::new(word, "the server's certificate is by nobody whom this board goes by"),
        };
        self.answered(board, (place, is_proof), ticket, Answer { date: None, result: Err(Refusal::Failed(failure)) });
    }
}
