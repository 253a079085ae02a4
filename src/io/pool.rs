//! Turns operations into answers over as few connections as will do: one that all lanes share, over HTTP/2 at the same time;
//! over HTTP/1.1 a second while one hangs.

mod watch;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smol::lock::Mutex;

use super::attempt::{Attempt, Attempts, Stage};
use super::clock::{self, CertificateClock};
use super::connection::{Connection, first_hop};
use super::credentials::{self, Loaded};
use super::identity::{self, Successor};
use super::reactor::Reactor;
use super::resolve::Resolver;
use super::silences::Silences;
use super::thread::{self, Source};
use super::turns::Turns;
use crate::agent::CredentialDates;
use crate::api::exchange::Target;
use crate::api::{Answer, Failure, NoAnswer, Operation, Refusal};
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, Server};
use crate::config::limits;
use crate::config::settings::{Http, Token};
use crate::identity::files::NodePem;
use crate::identity::pem;
use crate::time::{Up, Wall};

/// How long a request waits for a connection that is in use: less than a heartbeat would notice, more than an answer
/// takes. A second connection costs 3.4 KB of handshake, a kept one nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a token in a file is read again, as a client in a pod does: its successor comes minutes before its end.
const TOKEN_PERIOD: Duration = Duration::from_secs(60);

/// Nobody vouches for the server.
pub struct Unproven;

/// The connections to one API server, and what they prove with.
pub struct Pool {
    reactor: Rc<Reactor>,
    resolver: Rc<Resolver>,
    clock: Arc<CertificateClock>,
    /// Whoever answers is heard; nothing secret is said, and nothing is learned of the time.
    is_unverified: bool,
    http: Cell<Http>,
    kubeconfig: RefCell<Arc<Kubeconfig>>,
    turns: RefCell<Turns>,
    successor: RefCell<Successor>,
    /// `None` until the credentials could be read.
    loaded: RefCell<Option<Loaded>>,
    /// Where they are; one reading after the other.
    source: Source,
    reading: Mutex<()>,
    /// Where the successor of the kubeconfig's certificate is: the state directory, which may hang although they do not.
    successor_source: Source,
    token_due: Cell<Up>,
    /// The one that is shared, the last that was opened. Others end with what is under way there.
    kept: RefCell<Option<Rc<Connection>>>,
    attempts: Attempts,
    leaving: watch::Leaving,
    silences: Silences,
    /// Connections of an earlier epoch are not kept: server, credentials or protocol have changed since.
    epoch: Cell<u64>,
}

impl Pool {
    pub fn new(
        reactor: Rc<Reactor>,
        resolver: Rc<Resolver>,
        clock: Arc<CertificateClock>,
        kubeconfig: Kubeconfig,
        successor: Successor,
        http: Http,
    ) -> Pool {
        Pool {
            reactor,
            resolver,
            clock,
            is_unverified: false,
            http: Cell::new(http),
            successor: RefCell::new(successor),
            kubeconfig: RefCell::new(Arc::new(kubeconfig)),
            turns: RefCell::default(),
            loaded: RefCell::default(),
            source: Source::new("credential-reader", 1),
            successor_source: Source::new("identity-reader", 1),
            reading: Mutex::new(()),
            token_due: Cell::new(Up::BOOT),
            kept: RefCell::default(),
            attempts: Attempts::default(),
            leaving: Default::default(),
            silences: Silences::default(),
            epoch: Cell::default(),
        }
    }

    /// Reads the credentials again, with the kubeconfig where they stand in it. What cannot be read leaves those in use
    /// that could; equal ones keep connections.
    pub async fn reload(&self) -> Result<CredentialDates, Failure> {
        let _one = self.reading.lock().await;
        self.read(None).await
    }

    /// SIGHUP: another server, CA or identity from now on. One whose credentials cannot be used changes nothing, where
    /// others are in use.
    pub async fn replace(&self, kubeconfig: Kubeconfig) -> Result<CredentialDates, Failure> {
        let _one = self.reading.lock().await;
        self.read(Some(kubeconfig)).await
    }

    /// One like it that proves with another certificate of the same Node.
    pub fn with_certificate(&self, identity: &NodePem) -> Pool {
        let certificate = Material::Data(pem::of_certificates(&identity.chain).into_bytes());
        let key = Material::Data(identity.text().as_bytes().to_vec());
        let kubeconfig = Kubeconfig {
            credentials: Credentials::Certificate { certificate, key },
            path: String::new(),
            ..self.kubeconfig.borrow().as_ref().clone()
        };
        let successor = Successor::none(&self.successor.borrow().node_name);
        Pool { turns: self.turns.clone(), ..self.another(Arc::clone(&self.clock), kubeconfig, successor) }
    }

    /// One to another server of the same network, which is to be proven by these CAs, or with `Err` by nobody; with a token,
    /// or without any credential.
    pub fn introduced(&self, server: Server, trust: Result<Material, Unproven>, token: Option<&Token>) -> Pool {
        let is_unverified = trust.is_err();
        let credentials = match token.filter(|_| !is_unverified) {
            Some(token) => Credentials::Token(Material::Data(token.as_str().as_bytes().to_vec())),
            None => Credentials::Anonymous,
        };
        let known = self.kubeconfig.borrow();
        let kubeconfig = Kubeconfig {
            certificate_authority: trust.ok(),
            tls_server_name: None,
            credentials,
            path: String::new(),
            ..known.as_ref().clone().with_server(server)
        };
        // What is told by who is not proven teaches nothing.
        let clock = if is_unverified { CertificateClock::new() } else { Arc::clone(&self.clock) };
        let successor = Successor::none(&self.successor.borrow().node_name);
        Pool { is_unverified, ..self.another(clock, kubeconfig, successor) }
    }

    /// One to the supervisor beside the API server in use, with the certificate in use.
    pub fn supervisor(&self, port: u16) -> Pool {
        let (known, server) = (self.current(), Server { port, ..self.current().server.clone() });
        // In no file, or what that says would be read again.
        let kubeconfig = Kubeconfig { path: String::new(), ..known.as_ref().clone().with_server(server) };
        self.another(Arc::clone(&self.clock), kubeconfig, self.successor.borrow().clone())
    }

    fn another(&self, clock: Arc<CertificateClock>, kubeconfig: Kubeconfig, successor: Successor) -> Pool {
        let (reactor, resolver) = (Rc::clone(&self.reactor), Rc::clone(&self.resolver));
        Pool::new(reactor, resolver, clock, kubeconfig, successor, self.http.get())
    }

    /// The next connections speak that.
    pub fn speak(&self, http: Http) {
        if self.http.replace(http) != http {
            self.outdate();
        }
    }

    /// The servers, the one in use first; none for a board that has yet to join.
    pub fn servers(&self) -> Vec<Server> {
        let known = self.kubeconfig.borrow();
        let (current, place) = (self.current().server.clone(), self.turns.borrow().current());
        let others = known.servers().cycle().skip(place).take(self.places().0).cloned();
        Server::without_repeats(&mut std::iter::once(current).chain(others).filter(|_| !known.context.is_empty()))
    }

    /// The kubeconfig in use.
    pub fn kubeconfig(&self) -> Arc<Kubeconfig> {
        Arc::clone(&self.kubeconfig.borrow())
    }

    /// From now on this certificate, over the connection that has proved it.
    pub async fn change_over(&self, identity: Arc<NodePem>, proved: &Pool) -> Result<CredentialDates, Failure> {
        self.successor.borrow_mut().in_memory = Some(identity);
        let dates = self.reload().await;
        self.keep(proved.kept.take());
        dates
    }

    async fn read(&self, other: Option<Kubeconfig>) -> Result<CredentialDates, Failure> {
        let wanted = other.map_or_else(|| Arc::clone(&self.kubeconfig.borrow()), Arc::new);
        match self.load(Arc::clone(&wanted)).await {
            Ok((kubeconfig, fresh)) => Ok(self.adopt(kubeconfig, fresh)),
            Err(failure) => {
                if self.loaded.borrow().is_none() {
                    self.kubeconfig.replace(wanted);
                }
                Err(failure)
            }
        }
    }

    /// What the files say, which may stand on a file system that hangs: nothing else waits for that.
    async fn load(&self, known: Arc<Kubeconfig>) -> Result<(Arc<Kubeconfig>, Loaded), Failure> {
        self.token_due.set(clock::up() + TOKEN_PERIOD);
        if self.is_unverified {
            return credentials::unverified(Arc::clone(&self.clock)).map(|loaded| (known, loaded));
        }
        let mut successor = self.successor.borrow().clone();
        let has_certificate = matches!(known.credentials, Credentials::Certificate { .. });
        if has_certificate && successor.is_on_disk() {
            let (folder, patience) = (successor.folder.clone(), clock::up() + thread::FILE_PATIENCE);
            let kept = self.successor_source.ask(move || identity::kept_in(&folder));
            let kept = self.reactor.before(patience, kept).await.and_then(Result::ok).flatten();
            successor.in_memory = kept.map(Arc::new);
        }
        let clock = Arc::clone(&self.clock);
        let read = move || {
            let kubeconfig = credentials::read_again(&known).map_or(known, Arc::new);
            credentials::load(&kubeconfig, &successor, clock).map(|loaded| (kubeconfig, loaded))
        };
        let read = self.reactor.before(clock::up() + thread::FILE_PATIENCE, self.source.ask(read)).await;
        read.and_then(Result::ok).unwrap_or_else(|| {
            let text = "a file that the kubeconfig names does not answer; see what its file system says: dmesg | tail";
            Err(Failure::new(credentials::SILENT, text))
        })
    }

    fn adopt(&self, kubeconfig: Arc<Kubeconfig>, fresh: Loaded) -> CredentialDates {
        let dates = fresh.dates;
        let is_same_kubeconfig = self.kubeconfig.borrow().is_like(&kubeconfig);
        if !is_same_kubeconfig {
            self.turns.take();
        }
        self.kubeconfig.replace(kubeconfig);
        let mut loaded = self.loaded.borrow_mut();
        match loaded.as_mut().filter(|old| is_same_kubeconfig && old.fingerprint == fresh.fingerprint) {
            Some(old) => old.token = fresh.token,
            None => {
                *loaded = Some(fresh);
                self.outdate();
            }
        }
        dates
    }

    /// There are credentials, and the token among them is a fresh one if such can be had.
    async fn ready(&self) -> Result<(), Failure> {
        if self.is_ready() {
            return Ok(());
        }
        let _one = self.reading.lock().await;
        if self.is_ready() {
            return Ok(());
        }
        let read = self.read(None).await;
        if self.loaded.borrow().is_some() { Ok(()) } else { read.map(drop) }
    }

    fn is_ready(&self) -> bool {
        let is_renewed = matches!(self.kubeconfig.borrow().credentials, Credentials::Token(Material::File(_)));
        self.loaded.borrow().is_some() && !(is_renewed && clock::up() >= self.token_due.get())
    }

    /// Closes the idle connection, and those in use as soon as they are idle. One that is being opened just now stays: it leads
    /// to what is there now.
    pub fn drop_idle(&self) {
        self.leaving.dropped(true);
        self.keep(None);
    }

    /// The same, unless something was heard so lately.
    pub fn drop_unheard(&self, lately: Duration) {
        let lives = |kept: &Rc<Connection>| clock::up() - kept.heard_at() < lately;
        if !self.kept.borrow().as_ref().is_some_and(lives) {
            self.drop_idle();
        }
    }

    /// The same for all of them, those that are being opened too: they are not what is wanted any more.
    fn outdate(&self) {
        self.epoch.set(self.epoch.get() + 1);
        self.drop_idle();
    }

    /// In the place of the one before.
    fn keep(&self, connection: Option<Rc<Connection>>) {
        end(self.kept.replace(connection));
        self.attempts.wake();
    }

    /// Whether a connection is kept, or is being opened.
    pub fn is_connected(&self) -> bool {
        self.kept.borrow().is_some() || self.attempts.have_connections()
    }

    /// The network is another than before: connections from local addresses that `still_works` denies are not used again,
    /// and what is under way over them, or over none yet, begins anew.
    pub fn network_changed(&self, still_works: &dyn Fn(IpAddr) -> bool) {
        // Nobody is there to be told.
        let dropped = self.kept.borrow_mut().take_if(|connection| !still_works(connection.ends.local));
        self.leaving.dropped(dropped.is_some());
        self.attempts.cancel(still_works);
    }

    /// One exchange, from looking the name up to the last byte of the answer, within [`limits::REQUEST_DEADLINE`] of its
    /// beginning, or of the last change of the network that took its path.
    pub async fn exchange(&self, operation: Operation) -> Answer {
        self.exchange_by(operation, None).await
    }

    /// The same; the answer may lie unread until `answer_by`, and the exchange goes on as long.
    pub async fn exchange_by(&self, operation: Operation, answer_by: Option<Up>) -> Answer {
        self.exchange_within(operation, answer_by, limits::REQUEST_DEADLINE).await
    }

    async fn exchange_within(&self, operation: Operation, mut answer_by: Option<Up>, span: Duration) -> Answer {
        let mut was_sent = false;
        let result = loop {
            let began = clock::up();
            let deadline = (began + span).max(answer_by.unwrap_or(Up::BOOT));
            let attempt = self.attempts.begin();
            let answered = async { Some(self.carry(&operation, &attempt, (deadline, answer_by)).await) };
            let cancelled = async {
                attempt.cancelled().await;
                None
            };
            let ended = self.reactor.before(deadline, smol::future::or(cancelled, answered)).await;
            was_sent |= attempt.was_connected.get();
            let result = match ended {
                Some(Some(result)) => result,
                // Once more. A look at the network comes before each time, and these are spaced.
                Some(None) => {
                    answer_by = None;
                    continue;
                }
                None => Err(Failure::timed_out(span)),
            };
            if let Some(peer) = attempt.peer().filter(|_| result.is_err()) {
                self.resolver.failed(peer);
            }
            if let Some(place) = attempt.place.get() {
                self.judge(place, &result);
            }
            self.silences.heard(attempt.silent_for.get(), began, result.is_ok(), clock::up());
            end(self.kept.borrow_mut().take_if(|connection| connection.is_over()));
            break result;
        };
        result.unwrap_or_else(|failure| {
            let failure = if was_sent { failure.after_sending() } else { failure };
            Answer { date: None, result: Err(Refusal::Failed(failure)) }
        })
    }

    /// What an exchange says of the server at that place. A load balancer whose servers are dead answers, too.
    fn judge(&self, place: usize, result: &Result<Answer, Failure>) {
        let failure = match result {
            Ok(Answer { result: Err(Refusal::Failed(failure)), .. }) | Err(failure) => Some(failure),
            Ok(_) => None,
        };
        let mut turns = self.turns.borrow_mut();
        if failure.is_none_or(Failure::is_body_too_large) {
            turns.worked();
        } else if turns.failed(place, self.places(), clock::up()) {
            drop(turns);
            ::log::info!(target: "server-changed", "asking {} from now on", self.current().server.authority());
            self.outdate();
        }
    }

    /// How many servers, and last resorts after them.
    fn places(&self) -> (usize, usize) {
        let known = self.kubeconfig.borrow();
        (known.servers().count(), known.last_resorts.len())
    }

    /// The kubeconfig with the server whose turn it is.
    fn current(&self) -> Arc<Kubeconfig> {
        let known = self.kubeconfig.borrow();
        match known.server_at(self.turns.borrow().current()).filter(|server| **server != known.server) {
            Some(server) => Arc::new(Kubeconfig { server: server.clone(), ..known.as_ref().clone() }),
            None => Arc::clone(&known),
        }
    }

    async fn carry(
        &self,
        operation: &Operation,
        attempt: &Attempt<'_>,
        (deadline, answer_by): (Up, Option<Up>),
    ) -> Result<Answer, Failure> {
        self.ready().await?;
        let mut kept = self.kept_with_room().await;
        let kubeconfig = self.current();
        let target = self.target(&kubeconfig.server);
        attempt.place.set(Some(self.turns.borrow().current()));
        loop {
            let was_kept = kept.is_some();
            attempt.silent_for.set(self.silences.before(clock::up()).filter(|_| was_kept));
            let connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect(&kubeconfig, attempt, deadline).await?,
            };
            attempt.reached(Stage::Connected(connection.ends));
            match connection.carry(operation, &target, answer_by).await {
                Ok(answer) => {
                    if let Some(place) = attempt.place.get().filter(|_| connection.holds_answers_back()) {
                        self.turns.borrow_mut().held_back(place);
                    }
                    let answer = self.dated(answer, connection.certified()).inspect_err(|_| connection.stop())?;
                    if !was_kept {
                        self.resolver.worked(&first_hop(&kubeconfig).host, connection.ends.peer);
                    }
                    end(Some(connection));
                    return Ok(answer);
                }
                // Sent once more, at most: every request of ours is either idempotent or answered by 409.
                Err(NoAnswer { is_unseen: true, .. }) if was_kept && self.attempts.may_repeat(clock::up()) => {}
                Err(NoAnswer { failure, .. }) => return Err(failure),
            }
        }
    }

    /// One of its own, which from now on is everybody's.
    async fn connect(
        &self,
        kubeconfig: &Kubeconfig,
        attempt: &Attempt<'_>,
        deadline: Up,
    ) -> Result<Rc<Connection>, Failure> {
        attempt.reached(Stage::Connecting);
        let epoch = self.epoch.get();
        let config = self.loaded.borrow().as_ref().map(|loaded| Arc::clone(&loaded.config));
        let Some(config) = config else {
            return Err(credentials::unusable("the kubeconfig was replaced meanwhile"));
        };
        let connected = |ends| attempt.reached(Stage::Connected(ends));
        let mut http = self.http.get();
        http.zero_window &= !self.turns.borrow().holds_back();
        let how = (kubeconfig, http);
        let opened = Connection::open(&self.reactor, &self.resolver, how, config, deadline, connected).await;
        let connection = Rc::new(opened?);
        if epoch == self.epoch.get() {
            self.keep(Some(Rc::clone(&connection)));
        }
        Ok(connection)
    }

    fn target(&self, server: &Server) -> Target {
        Target {
            authority: server.authority(),
            path_prefix: server.path_prefix.clone(),
            node_name: self.successor.borrow().node_name.clone(),
            bearer_token: self.loaded.borrow().as_ref().and_then(|loaded| loaded.token.as_deref().cloned()),
        }
    }

    /// The kept connection; `None` when there is none with room for one more exchange, and none comes within [`PATIENCE`].
    async fn kept_with_room(&self) -> Option<Rc<Connection>> {
        let with_room = || self.kept.borrow().as_ref().filter(|connection| connection.has_room()).map(Rc::clone);
        let is_decided = || with_room().is_some() || !self.attempts.have_connections();
        self.reactor.before(clock::up() + PATIENCE, self.attempts.until(is_decided)).await;
        with_room()
    }

    /// Holds what the server calls the time against the life of its own certificate. What both agree on teaches us that
    /// the certificates of both sides were issued in the past; a date that they do not agree on is none, and where that
    /// certificate was believed for want of a clock, it is not believed any more.
    fn dated(&self, mut answer: Answer, certified: Option<(Wall, Wall)>) -> Result<Answer, Failure> {
        if self.is_unverified {
            answer.date = None;
        }
        let (Some(date), Some((from, until))) = (answer.date, certified) else { return Ok(answer) };
        if (from..=until).contains(&date) {
            let ours = self.loaded.borrow().as_ref().and_then(|loaded| loaded.dates.not_before);
            let issued = from.max(ours.filter(|ours| *ours <= date).unwrap_or(from));
            self.clock.passed(issued);
            self.resolver.known_servers().certificate_issued(issued);
        } else if self.clock.known().is_some() {
            answer.date = None;
        } else {
            let text = format!(
                "the server's clock and its certificate do not agree (it says {date}, its certificate is valid from \
                 {from} until {until}); set its clock, or renew its certificate"
            );
            return Err(Failure::new("server-clock-wrong", text));
        }
        Ok(answer)
    }
}

/// One that is neither kept nor used by anybody else.
fn end(connection: Option<Rc<Connection>>) {
    connection.and_then(Rc::into_inner).into_iter().for_each(Connection::close);
}

#[cfg(test)]
mod tests;
