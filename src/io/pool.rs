//! Turns wishes into answers over as few connections as will do: one that all lanes share, a second while one hangs.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::clock::{self, CertificateClock};
use super::connection::{Carried, Connection};
use super::credentials::{self, Loaded};
use super::flight::{Flight, Flights};
use super::reactor::Reactor;
use super::resolve::Resolver;
use crate::agent::CredentialDates;
use crate::api::exchange::Target;
use crate::api::{Answer, Exchange, Failure, Refusal, Wish};
use crate::config::kubeconfig::Kubeconfig;
use crate::config::limits;
use crate::time::Up;

/// How long a request waits for a connection that is in use: less than a heartbeat would notice, more than an answer
/// takes. A second connection costs 3.4 KB of handshake, a kept one nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// The connections to one API server, and what they prove with.
pub struct Pool {
    reactor: Rc<Reactor>,
    resolver: Rc<Resolver>,
    clock: Arc<CertificateClock>,
    node_name: String,
    kubeconfig: RefCell<Rc<Kubeconfig>>,
    /// `None` until the credentials could be read.
    loaded: RefCell<Option<Loaded>>,
    /// The kept connection. There is never a second: of two, the one that becomes idle last is closed.
    idle: RefCell<Option<Connection>>,
    /// Exchanges that hold a connection.
    flights: Flights,
    /// Connections of an earlier epoch are not kept: addresses or credentials have changed since.
    epoch: Cell<u64>,
}

impl Pool {
    pub fn new(
        reactor: Rc<Reactor>,
        resolver: Rc<Resolver>,
        clock: Arc<CertificateClock>,
        kubeconfig: Kubeconfig,
        node_name: String,
    ) -> Pool {
        Pool {
            reactor,
            resolver,
            clock,
            node_name,
            kubeconfig: RefCell::new(Rc::new(kubeconfig)),
            loaded: RefCell::default(),
            idle: RefCell::default(),
            flights: Flights::default(),
            epoch: Cell::default(),
        }
    }

    /// Reads the credentials again. What cannot be read leaves those in use that could; equal ones keep connections.
    pub fn reload(&self) -> Result<CredentialDates, Failure> {
        let fresh = credentials::load(&self.kubeconfig.borrow(), Arc::clone(&self.clock))?;
        let dates = fresh.dates;
        let mut loaded = self.loaded.borrow_mut();
        match loaded.as_mut().filter(|old| old.fingerprint == fresh.fingerprint) {
            Some(old) => old.token = fresh.token,
            None => {
                *loaded = Some(fresh);
                self.drop_idle();
            }
        }
        Ok(dates)
    }

    /// SIGHUP: another server, CA or identity from now on.
    pub fn replace(&self, kubeconfig: Kubeconfig) {
        if **self.kubeconfig.borrow() != kubeconfig {
            self.kubeconfig.replace(Rc::new(kubeconfig));
            self.loaded.replace(None);
            self.drop_idle();
        }
    }

    /// Closes the idle connection, and those in use as soon as they are idle.
    pub fn drop_idle(&self) {
        self.epoch.set(self.epoch.get() + 1);
        self.idle.take().into_iter().for_each(Connection::close);
    }

    /// The network is another than before: connections from local addresses that do not `stand` are not used again, and
    /// what is under way over them, or over none yet, begins anew.
    pub fn network_changed(&self, stands: &dyn Fn(IpAddr) -> bool) {
        let mut idle = self.idle.borrow_mut();
        // Nobody is there to be told.
        drop(idle.take_if(|connection| !stands(connection.ends().local)));
        self.flights.call_back(stands);
    }

    /// One exchange, from looking the name up to the last byte of the answer, within [`limits::REQUEST_DEADLINE`] of its
    /// beginning, or of the last change of the network that took its way.
    pub async fn exchange(&self, wish: Wish) -> Answer {
        self.exchange_within(wish, limits::REQUEST_DEADLINE).await
    }

    async fn exchange_within(&self, wish: Wish, span: Duration) -> Answer {
        let result = loop {
            let deadline = clock::up() + span;
            match self.reactor.before(deadline, self.attempt(&wish, deadline)).await {
                Some(Some(result)) => break result,
                // Called back. A look at the network comes before each time, and these are spaced.
                Some(None) => {}
                None => break Err(Failure::TimedOut { after_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX) }),
            }
        };
        result.unwrap_or_else(|failure| Answer { date: None, result: Err(Refusal::Failed(failure)) })
    }

    /// `None`: the way was gone before there was an answer.
    async fn attempt(&self, wish: &Wish, deadline: Up) -> Option<Result<Answer, Failure>> {
        if self.loaded.borrow().is_none()
            && let Err(failure) = self.reload()
        {
            return Some(Err(failure));
        }
        let kept = self.take_idle().await;
        // Counted until this function ends, or is dropped at its deadline.
        let flight = self.flights.begin(kept.as_ref().map(Connection::ends));
        let answer = async { Some(self.carry(wish, kept, &flight, deadline).await) };
        let called_back = async {
            flight.called_back().await;
            None
        };
        smol::future::or(answer, called_back).await
    }

    async fn carry(
        &self,
        wish: &Wish,
        kept: Option<Connection>,
        flight: &Flight<'_>,
        deadline: Up,
    ) -> Result<Answer, Failure> {
        let target = self.target();
        let epoch = self.epoch.get();
        if let Some(connection) = kept {
            let (request, exchange) = Exchange::start(wish.clone(), &target)?;
            match connection.carry(&request, exchange).await {
                Carried::Answered(answer, connection) => return Ok(self.answered(answer, connection, epoch)),
                Carried::Failed(failure) => return Err(failure),
                // Sent once more, at most: every request of ours is either idempotent or answered by 409.
                Carried::Silent(_) => flight.set_ends(None),
            }
        }
        let config = self.loaded.borrow().as_ref().map(|loaded| Arc::clone(&loaded.config));
        let Some(config) = config else {
            return Err(Failure::Credentials { what: "the kubeconfig was replaced meanwhile".to_owned() });
        };
        let kubeconfig = Rc::clone(&self.kubeconfig.borrow());
        let connected = |ends| flight.set_ends(Some(ends));
        let opening = Connection::open(&self.reactor, &self.resolver, &kubeconfig, config, deadline, connected);
        let connection = opening.await?;
        let (request, exchange) = Exchange::start(wish.clone(), &target)?;
        match connection.carry(&request, exchange).await {
            Carried::Answered(answer, connection) => Ok(self.answered(answer, connection, epoch)),
            Carried::Failed(failure) | Carried::Silent(failure) => Err(failure),
        }
    }

    fn target(&self) -> Target {
        let server = &self.kubeconfig.borrow().server;
        let mut loaded = self.loaded.borrow_mut();
        let token = loaded.as_mut().and_then(|loaded| loaded.token.current());
        Target {
            authority: server.authority(),
            path_prefix: server.path_prefix.clone(),
            node_name: self.node_name.clone(),
            bearer_token: token.map(str::to_owned),
        }
    }

    /// The kept connection; `None` when there is none and none comes back within [`PATIENCE`].
    async fn take_idle(&self) -> Option<Connection> {
        let wait = poll_fn(|context| {
            if self.idle.borrow().is_some() || self.flights.is_empty() {
                return Poll::Ready(());
            }
            self.flights.wake_at_end(context.waker().clone());
            Poll::Pending
        });
        self.reactor.before(clock::up() + PATIENCE, wait).await;
        let mut kept = self.idle.take()?;
        kept.is_usable().then_some(kept)
    }

    fn answered(&self, answer: Answer, connection: Option<Connection>, epoch: u64) -> Answer {
        if let Some(connection) = connection {
            let mut idle = self.idle.borrow_mut();
            if epoch == self.epoch.get() && idle.is_none() {
                *idle = Some(connection);
            } else {
                connection.close();
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Document;
    use crate::api::failure::TlsFailure;
    use crate::io::loopback::{Authority, Listener, kubeconfig, read_request, version_reply};
    use std::io::Write;
    use std::sync::mpsc;

    fn pool(kubeconfig: Kubeconfig) -> Pool {
        let reactor = Reactor::new().unwrap();
        let resolver = Rc::new(Resolver::new(Rc::clone(&reactor)));
        Pool::new(reactor, resolver, CertificateClock::new(), kubeconfig, "board".to_owned())
    }

    fn ask(pool: &Pool) -> Answer {
        pool.reactor.block_on(pool.exchange(Wish::ReadVersion)).unwrap()
    }

    fn version() -> Result<Document, Refusal> {
        Ok(Document::Version("v1.36.3".to_owned()))
    }

    #[test]
    fn exchanges_share_one_connection() {
        let authority = Authority::new();
        let server = Listener::answering(&authority, version_reply());
        let pool = pool(kubeconfig(&authority, server.port));
        for _ in 0..3 {
            assert_eq!(ask(&pool).result, version());
        }
        assert_eq!(server.accepted(), 1);
        pool.drop_idle();
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), 2);
    }

    #[test]
    fn a_connection_that_the_server_closed_while_idle_costs_no_request() {
        let authority = Authority::new();
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        let server = Listener::tls(config, |_, mut stream| {
            read_request(&mut stream);
            stream.write_all(&version_reply()).unwrap();
        });
        let pool = pool(kubeconfig(&authority, server.port));
        for expected in 1..=3 {
            assert_eq!(ask(&pool).result, version());
            assert_eq!(server.accepted(), expected);
        }
    }

    #[test]
    fn a_kept_connection_that_dies_with_the_request_is_replaced_once() {
        let authority = Authority::new();
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        let server = Listener::tls(config, |number, mut stream| {
            read_request(&mut stream);
            if number == 0 {
                stream.write_all(&version_reply()).unwrap();
                // The second request is read and never answered.
                read_request(&mut stream);
            }
        });
        let pool = pool(kubeconfig(&authority, server.port));
        assert_eq!(ask(&pool).result, version());
        let second = ask(&pool).result;
        assert_eq!(second, Err(Refusal::Failed(Failure::Closed { received_bytes: 0 })));
        assert_eq!(server.accepted(), 2);
    }

    #[test]
    fn a_server_that_hangs_costs_its_deadline_and_its_connection() {
        let authority = Authority::new();
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        let server = Listener::tls(config, |number, mut stream| {
            while read_request(&mut stream).is_some() {
                if number > 0 {
                    stream.write_all(&version_reply()).unwrap();
                }
            }
        });
        let pool = pool(kubeconfig(&authority, server.port));
        let hung = pool.exchange_within(Wish::ReadVersion, Duration::from_millis(300));
        let hung = pool.reactor.block_on(hung).unwrap().result;
        assert_eq!(hung, Err(Refusal::Failed(Failure::TimedOut { after_ms: 300 })));
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), 2);
    }

    /// Answers the first connection only when told to, every other one at once.
    fn server_that_hangs_first(authority: &Authority) -> (Listener, mpsc::Sender<()>) {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        let server = Listener::tls(config, move |number, mut stream| {
            while read_request(&mut stream).is_some() {
                if number == 0 {
                    let _ = gate.lock().unwrap().recv();
                }
                let _ = stream.write_all(&version_reply());
            }
        });
        (server, release)
    }

    #[test]
    fn a_lane_that_is_due_while_another_hangs_opens_a_second_connection_which_does_not_stay() {
        let authority = Authority::new();
        let (server, release) = server_that_hangs_first(&authority);
        let pool = pool(kubeconfig(&authority, server.port));
        let executor = smol::LocalExecutor::new();
        let hung = executor.spawn(pool.exchange(Wish::ReadVersion));
        let both = async {
            while server.accepted() == 0 {
                pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
            }
            let start = clock::up();
            assert_eq!(pool.exchange(Wish::ReadVersion).await.result, version());
            assert!(clock::up() - start >= PATIENCE, "it waits for the shared one first");
            assert_eq!(server.accepted(), 2);
            release.send(()).unwrap();
            assert_eq!(hung.await.result, version());
            assert!(pool.idle.borrow().is_some() && pool.flights.is_empty());
            assert_eq!(pool.exchange(Wish::ReadVersion).await.result, version());
            assert_eq!(server.accepted(), 2);
        };
        pool.reactor.block_on(executor.run(both)).unwrap();
    }

    #[test]
    fn two_lanes_that_are_due_together_share_a_connection_that_does_not_hang() {
        let authority = Authority::new();
        let server = Listener::answering(&authority, version_reply());
        let pool = pool(kubeconfig(&authority, server.port));
        let both = smol::future::zip(pool.exchange(Wish::ReadVersion), pool.exchange(Wish::ReadVersion));
        let (first, second) = pool.reactor.block_on(both).unwrap();
        assert_eq!((first.result, second.result), (version(), version()));
        assert_eq!(server.accepted(), 1);
    }

    #[test]
    fn credentials_that_cannot_be_read_fail_each_request_until_they_can() {
        let authority = Authority::new();
        let server = Listener::answering(&authority, version_reply());
        let good = kubeconfig(&authority, server.port);
        let folder = crate::io::loopback::TempFolder::new();
        let mut missing = good.clone();
        let path = folder.path("ca.crt");
        missing.certificate_authority = Some(crate::config::kubeconfig::Material::File(path));
        let pool = pool(missing);
        assert!(matches!(ask(&pool).result, Err(Refusal::Failed(Failure::Credentials { .. }))));
        folder.write("ca.crt", &authority.pem());
        assert_eq!(ask(&pool).result, version());
    }

    #[test]
    fn reloading_equal_credentials_keeps_the_connection_and_others_do_not() {
        let authority = Authority::new();
        let server = Listener::answering(&authority, version_reply());
        let pool = pool(kubeconfig(&authority, server.port));
        assert_eq!(ask(&pool).result, version());
        pool.reload().unwrap();
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), 1);
        pool.replace(kubeconfig(&Authority::new(), server.port));
        let refused = ask(&pool).result;
        assert_eq!(refused, Err(Refusal::Failed(Failure::Tls(TlsFailure::UnknownIssuer))));
        assert_eq!(server.accepted(), 2);
    }

    #[test]
    fn a_change_of_the_network_begins_anew_what_is_under_way_over_a_way_that_is_gone() {
        let authority = Authority::new();
        let (server, _release) = server_that_hangs_first(&authority);
        let pool = pool(kubeconfig(&authority, server.port));
        let executor = smol::LocalExecutor::new();
        let start = clock::up();
        let hung = executor.spawn(pool.exchange(Wish::ReadVersion));
        let change = async {
            while pool.flights.is_empty() || server.accepted() == 0 {
                pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
            }
            // The server has it for certain, and does not answer.
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(50)).await;
            pool.network_changed(&|_| true);
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(50)).await;
            assert_eq!(server.accepted(), 1, "this way stands");
            pool.network_changed(&|_| false);
            assert_eq!(hung.await.result, version());
        };
        pool.reactor.block_on(executor.run(change)).unwrap();
        assert_eq!(server.accepted(), 2);
        assert!(clock::up() - start < limits::REQUEST_DEADLINE, "its time-out was not waited for");
    }

    #[test]
    fn a_change_of_the_network_takes_the_idle_connection_only_if_its_way_is_gone() {
        let authority = Authority::new();
        let server = Listener::answering(&authority, version_reply());
        let pool = pool(kubeconfig(&authority, server.port));
        for (stands, connections) in [(true, 1), (true, 1), (false, 2), (true, 2)] {
            assert_eq!(ask(&pool).result, version());
            pool.network_changed(&|local| stands && local.is_loopback());
            assert_eq!(ask(&pool).result, version());
            assert_eq!(server.accepted(), connections);
        }
    }

    #[test]
    fn a_change_of_the_network_begins_a_connection_that_is_being_opened_anew() {
        let authority = Authority::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fill = || std::net::TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_millis(50));
        let _full = [fill(), fill()];
        let pool = pool(kubeconfig(&authority, port));
        let executor = smol::LocalExecutor::new();
        let opening = executor.spawn(pool.exchange_within(Wish::ReadVersion, Duration::from_millis(400)));
        let start = clock::up();
        let change = async {
            pool.reactor.sleep_until(start + Duration::from_millis(300)).await;
            pool.network_changed(&|_| true);
            opening.await.result
        };
        let result = pool.reactor.block_on(executor.run(change)).unwrap();
        assert!(
            matches!(result, Err(Refusal::Failed(Failure::TimedOut { .. } | Failure::Connect { .. }))),
            "{result:?}"
        );
        assert!(clock::up() - start >= Duration::from_millis(700), "it has its whole time again");
    }
}
