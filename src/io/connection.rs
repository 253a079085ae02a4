//! Turns one socket into exchanges with the API server: TCP, perhaps a proxy's tunnel, TLS, HTTP of the version that the server
//! chose.
//!
//! Whoever waits for an answer reads for all, and whoever has something to send writes for all: there is no task of the
//! connection's own, and nothing happens on one that nobody uses.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use rustls::ClientConfig;

use super::clock;
use super::dial::{dial, set_abort_on_close};
use super::file::cause;
use super::kernel::set_receive_low_water;
use super::meter::Metered;
use super::reactor::{Reactor, Watched};
use super::resolve::Resolver;
use super::tls::Tls;
use crate::api::exchange::Target;
use crate::api::{Answer, AuditId, Exchanges, Failure, NoAnswer, Operation, Seen};
use crate::config::kubeconfig::{Kubeconfig, Server};
use crate::config::limits;
use crate::config::settings::Http;
use crate::identity::certificate;
use crate::time::{Up, Wall};

/// Bytes read at once. Answers to heartbeats fit; a deframer that holds no more shrinks back to this.
const READ_BYTES: usize = 4096;

/// A connection to the API server.
pub struct Connection {
    reactor: Rc<Reactor>,
    socket: Metered,
    pub ends: Ends,
    state: RefCell<State>,
    /// How many answers are waited for; others may lie unread.
    hurried: Cell<usize>,
    /// Fewer bytes than these lie unread.
    unread_bytes: Cell<usize>,
    /// The most that may be, so that an event of a watch does not.
    most_unread_bytes: Cell<usize>,
    heard_at: Cell<Up>,
}

struct State {
    tls: Tls,
    exchanges: Exchanges,
    /// From when until when the server's certificate is valid, once an answer has come.
    certified: Option<(Wall, Wall)>,
    /// On its way between the two: empty but while bytes are handed over.
    plaintext: Vec<u8>,
}

/// The addresses that a connection is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub local: IpAddr,
    /// The server's, or the proxy's.
    pub peer: IpAddr,
}

/// An exchange that somebody waits for.
struct Waited<'a> {
    connection: &'a Connection,
    number: u64,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        self.connection.state.borrow_mut().exchanges.give_up(self.number);
        // Its silence may be the end of others.
        self.connection.socket.wake();
    }
}

/// That somebody waits for an answer.
struct Hurry<'a>(&'a Connection);

impl<'a> Hurry<'a> {
    fn new(connection: &'a Connection) -> Hurry<'a> {
        connection.hurried.set(connection.hurried.get() + 1);
        connection.may_lie_unread(1);
        Hurry(connection)
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.set(self.0.hurried.get() - 1);
        if self.0.state.borrow().exchanges.are_under_way() {
            self.0.let_lie();
        }
    }
}

impl Connection {
    /// Looks the server (or the proxy) up and connects. The client's last flight of the TLS handshake leaves with the first
    /// request. `connected` is told as soon as the ends are known.
    pub async fn open(
        reactor: &Rc<Reactor>,
        resolver: &Resolver,
        (kubeconfig, http): (&Kubeconfig, Http),
        config: Arc<ClientConfig>,
        deadline: Up,
        connected: impl FnOnce(Ends),
    ) -> Result<Connection, Failure> {
        let server = &kubeconfig.server;
        let name = kubeconfig.tls_server_name.as_deref().unwrap_or(&server.host);
        let first_hop = first_hop(kubeconfig);
        let addresses = resolver.server_addresses(&first_hop.host, deadline).await?;
        let addresses: Vec<SocketAddr> = addresses.into_iter().map(|ip| SocketAddr::new(ip, first_hop.port)).collect();
        let socket = dial(reactor, resolver.meter(), &addresses, deadline).await?;
        let ends = ends(socket.get()).map_err(broken)?;
        connected(ends);
        if let Some(proxy) = &kubeconfig.proxy {
            open_tunnel(&socket, proxy, server).await?;
        }
        // Only now: it takes the ticket of the connection before, of which there is one.
        let mut tls = Tls::new(config, name, http.alpn_protocol)?;
        let mut plaintext = Vec::new();
        shake_hands(&socket, &mut tls, &mut plaintext).await?;
        let random = || u128::from(RandomState::new().build_hasher().finish());
        let audit_id = AuditId::new(random() << 64 | random());
        let mut exchanges = Exchanges::new(tls.speaks_http2(http.alpn_protocol)?, http.zero_window, audit_id);
        exchanges.receive(plaintext.len(), &mut plaintext);
        let state = State { tls, exchanges, certified: None, plaintext };
        let (reactor, state) = (Rc::clone(reactor), RefCell::new(state));
        let most_unread_bytes = Cell::new(limits::UNREAD_BYTES);
        let (hurried, unread_bytes) = (Cell::new(0), Cell::new(1));
        let heard_at = Cell::new(clock::up());
        Ok(Connection { reactor, socket, ends, state, hurried, unread_bytes, most_unread_bytes, heard_at })
    }

    /// Whether an exchange can begin now: looks at the socket only if something came since, or what lies there unread is in the
    /// way.
    pub fn has_room(&self) -> bool {
        let has_room = || self.state.borrow().exchanges.has_room();
        let is_in_the_way = self.hurried.get() == 0 && !has_room();
        if is_in_the_way {
            // The answer that is in the way may still have to come.
            self.may_lie_unread(1);
        }
        if is_in_the_way || self.socket.may_be_readable() {
            self.take_what_came();
        }
        has_room()
    }

    /// Takes what has come, although the kernel may not have said so.
    fn take_what_came(&self) {
        for left in (0..limits::READS_PER_TURN).rev() {
            if self.is_over() {
                return;
            }
            match self.receive(self.socket.get()) {
                Ok(()) if left > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.socket.set_drained(),
                _ => self.state.borrow_mut().exchanges.stop(),
            }
            self.socket.wake();
            if !self.socket.may_be_readable() {
                return;
            }
        }
    }

    /// Less than that wakes nobody. A kernel that knows no such limit wakes us for each byte.
    fn may_lie_unread(&self, bytes: usize) {
        if self.unread_bytes.replace(bytes) != bytes {
            let _ = set_receive_low_water(self.socket.get(), bytes);
        }
    }

    /// The answers of all that is under way may lie unread, unless somebody waits for one.
    fn let_lie(&self) {
        if self.hurried.get() == 0 {
            self.may_lie_unread(self.most_unread_bytes.get());
        }
    }

    /// No exchange can begin any more.
    pub fn is_over(&self) -> bool {
        self.state.borrow().exchanges.is_over()
    }

    /// No exchange is to begin any more.
    pub fn stop(&self) {
        self.state.borrow_mut().exchanges.stop();
    }

    /// Sends a request and waits for its answer, which may lie unread until `answer_by` where nothing speaks against it. Whoever
    /// does not wait until then gives it up.
    pub async fn carry(
        &self,
        operation: &Operation,
        target: &Target,
        answer_by: Option<Up>,
    ) -> Result<Answer, NoAnswer> {
        let number = self.state.borrow_mut().exchanges.begin(operation, target)?;
        let waited = Waited { connection: self, number };
        self.socket.sends(operation.purpose(), self.seal());
        let mut ended = None;
        if let Some(answer_by) = answer_by.filter(|_| self.state.borrow().exchanges.may_lie_unread(number)) {
            self.let_lie();
            ended = self.reactor.before(answer_by, self.end(&waited)).await;
            if ended.is_none() {
                self.take_what_came();
                ended = self.state.borrow_mut().exchanges.take_end(number);
            }
        }
        let _hurry = ended.is_none().then(|| Hurry::new(self));
        if ended.is_none() && self.state.borrow().exchanges.has_narrow_window(number) {
            let patience = clock::up() + limits::ANSWER_WITHOUT_WINDOW;
            ended = self.reactor.before(patience, self.end(&waited)).await;
            self.state.borrow_mut().exchanges.open_window(number);
        }
        let (end, received_bytes) = match ended {
            Some(ended) => ended,
            None => self.end(&waited).await,
        };
        self.socket.received(operation.purpose(), received_bytes);
        self.send_at_once();
        end
    }

    /// Takes the end of an exchange when it has come, and how many bytes of plaintext came for it.
    async fn end(&self, waited: &Waited<'_>) -> (Result<Answer, NoAnswer>, usize) {
        loop {
            let ended = self.state.borrow_mut().exchanges.take_end(waited.number);
            if let Some(ended) = ended {
                return ended;
            }
            self.until(|exchanges| exchanges.has_ended(waited.number)).await;
        }
    }

    /// Goes on until this is so.
    async fn until(&self, is_so: impl Fn(&Exchanges) -> bool) {
        let is_so = || is_so(&self.state.borrow().exchanges);
        while !is_so() {
            let found = poll_fn(|_| if is_so() { Poll::Ready(Ok(())) } else { Poll::Pending });
            if let Err(error) = smol::future::or(found, self.go_on()).await {
                self.state.borrow_mut().exchanges.fail(&broken(error));
                self.socket.wake();
            }
        }
    }

    /// Whether a watch can begin, and leave room for so many exchanges beside it.
    pub fn has_room_beside_a_watch(&self, exchanges: usize) -> bool {
        self.state.borrow().exchanges.has_room_beside_a_watch(exchanges)
    }

    /// Watches, and tells what is seen, until that ends. Whoever does not wait until then gives it up.
    pub async fn watch(&self, operation: &Operation, target: &Target, tell: &dyn Fn(Seen)) -> Result<Answer, NoAnswer> {
        let number = self.state.borrow_mut().exchanges.begin(operation, target)?;
        let waited = Waited { connection: self, number };
        self.socket.sends(operation.purpose(), self.seal());
        let mut hurry = Some(Hurry::new(self));
        let has_begun = self.until(|exchanges| exchanges.goes_on(number) || exchanges.has_ended(number));
        if self.reactor.before(clock::up() + limits::REQUEST_DEADLINE, has_begun).await.is_none() {
            return Err(NoAnswer { failure: Failure::timed_out(limits::REQUEST_DEADLINE), is_unseen: false });
        }
        loop {
            self.until(|exchanges| exchanges.has_seen(number) || exchanges.has_ended(number)).await;
            let seen = self.state.borrow_mut().exchanges.take_seen(number);
            let Some((seen, event_bytes, received_bytes)) = seen else { break };
            self.socket.heard(operation.purpose(), received_bytes);
            // The next may be a little shorter; its frame and its record are on top.
            self.most_unread_bytes.set(event_bytes.min(self.most_unread_bytes.get()));
            hurry.take();
            tell(seen);
        }
        let (end, received_bytes) = self.end(&waited).await;
        self.socket.received(operation.purpose(), received_bytes);
        self.send_at_once();
        end
    }

    /// Whether it answers no stream that has no window.
    pub fn holds_answers_back(&self) -> bool {
        self.state.borrow().exchanges.holds_answers_back()
    }

    /// From when until when the certificate is valid that the server proved itself with.
    pub fn certified(&self) -> Option<(Wall, Wall)> {
        let State { tls, certified, .. } = &mut *self.state.borrow_mut();
        if certified.is_none() {
            *certified = certificate::validity(tls.server_certificate()?);
        }
        *certified
    }

    /// Sends what there is to send, and takes what comes then.
    async fn go_on(&self) -> io::Result<()> {
        self.seal();
        while self.has_records() {
            self.socket.write_with(|stream| self.write(stream)).await?;
        }
        self.socket.read_with(|stream| self.receive(stream)).await?;
        // It may have been the answer of others.
        self.socket.wake();
        Ok(())
    }

    /// Makes records of what there is to send: how many bytes of plaintext that was.
    fn seal(&self) -> usize {
        let State { tls, exchanges, plaintext, .. } = &mut *self.state.borrow_mut();
        if !exchanges.has_output() {
            return 0;
        }
        exchanges.take_output(plaintext);
        let (sealed, count) = (tls.seal(plaintext), plaintext.len());
        plaintext.clear();
        plaintext.shrink_to(limits::CONNECTION_KEPT_BYTES);
        if let Err(failure) = sealed {
            exchanges.fail(&failure);
        }
        count
    }

    fn has_records(&self) -> bool {
        self.state.borrow().tls.has_outgoing()
    }

    fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let State { tls, .. } = &mut *self.state.borrow_mut();
        let outgoing = tls.take();
        if !outgoing.is_empty() {
            let written = stream.write(outgoing)?;
            outgoing.drain(..written);
            outgoing.shrink_to(limits::CONNECTION_KEPT_BYTES);
        }
        Ok(())
    }

    /// Tells the peer what it should know, if the socket takes it at once; nobody waits for that.
    fn send_at_once(&self) {
        self.seal();
        let _ = self.write(self.socket.get());
    }

    /// When something came from the server last.
    pub fn heard_at(&self) -> Up {
        self.heard_at.get()
    }

    /// One read. What the reactor must see, the errors of the socket, is the answer.
    fn receive(&self, stream: &TcpStream) -> io::Result<()> {
        let State { tls, exchanges, plaintext, .. } = &mut *self.state.borrow_mut();
        match receive(&self.socket, stream, tls, plaintext)? {
            Ok(0) => exchanges.end_of_stream(tls.is_closed_by_peer()),
            Ok(count) => {
                self.heard_at.set(clock::up());
                exchanges.receive(count, plaintext);
                plaintext.shrink_to(limits::CONNECTION_KEPT_BYTES);
            }
            Err(failure) => exchanges.fail(&failure),
        }
        if tls.is_closed_by_peer() {
            exchanges.stop();
        }
        Ok(())
    }

    /// Ends an idle connection in order; one on which something was given up at once, or that would reach the server after its
    /// successor.
    pub fn close(self) {
        if self.state.borrow().exchanges.is_broken() {
            return;
        }
        self.socket.ends_in_order();
        // Should that fail, the peer hears of it a little more rudely.
        let _ = set_abort_on_close(self.socket.get(), false);
        self.state.borrow_mut().exchanges.close();
        self.seal();
        self.state.borrow_mut().tls.close();
        let _ = self.write(self.socket.get());
    }
}

/// Ends when requests can be encrypted; the last records of the handshake have not been sent then.
async fn shake_hands(socket: &Watched<TcpStream>, tls: &mut Tls, plaintext: &mut Vec<u8>) -> Result<(), Failure> {
    let mut received_bytes = 0;
    while !tls.is_ready() {
        while tls.has_outgoing() {
            let outgoing = tls.take();
            let written = socket.write_with(|mut stream| stream.write(outgoing)).await.map_err(broken)?;
            outgoing.drain(..written);
        }
        let received = socket.read_with(|stream| receive(socket, stream, tls, plaintext)).await.map_err(broken)?;
        match received {
            Ok(count @ 1..) if received_bytes <= limits::EXCHANGE_BYTES => received_bytes += count,
            Ok(count) => {
                let what = if count == 0 { "the peer closed the connection during" } else { "there is no end of" };
                return Err(Failure::new("tls-failed", format!("TLS failed: {what} the handshake")));
            }
            Err(failure) => {
                // Tells the peer why, if the socket takes it at once; nobody waits for that.
                let _ = socket.get().write(tls.take());
                return Err(failure);
            }
        }
    }
    Ok(())
}

/// One read of the socket, decrypted: how many bytes it took, with what TLS adds; 0 is the end of the stream. What the reactor
/// must see, the errors of the socket, stand outside.
fn receive(
    watched: &Watched<TcpStream>,
    mut stream: &TcpStream,
    tls: &mut Tls,
    plaintext: &mut Vec<u8>,
) -> io::Result<Result<usize, Failure>> {
    let mut buffer = [0; READ_BYTES];
    let count = stream.read(&mut buffer)?;
    if count < buffer.len() {
        watched.set_drained();
    }
    let records = buffer.get(..count).unwrap_or_default();
    Ok(tls.feed(records, plaintext).map(|()| count))
}

/// Whom a connection is opened to: the proxy, or else the server.
pub fn first_hop(kubeconfig: &Kubeconfig) -> &Server {
    kubeconfig.proxy.as_ref().unwrap_or(&kubeconfig.server)
}

fn ends(socket: &TcpStream) -> io::Result<Ends> {
    Ok(Ends { local: socket.local_addr()?.ip(), peer: socket.peer_addr()?.ip() })
}

fn broken(error: io::Error) -> Failure {
    Failure::broken(&cause(&error))
}

/// `CONNECT` (RFC 9110 9.3.6): the proxy's answer ends with its headers; what follows belongs to TLS.
async fn open_tunnel(socket: &Watched<TcpStream>, proxy: &Server, server: &Server) -> Result<(), Failure> {
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let target = format!("{host}:{}", server.port);
    let refused = |detail: String| {
        Failure::new("proxy-refused", format!("the proxy {}:{} refused the tunnel: {detail}", proxy.host, proxy.port))
    };
    let io_failed = |error: io::Error| refused(error.to_string());
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes();
    let mut left = request.as_slice();
    while !left.is_empty() {
        let written = socket.write_with(|mut stream| stream.write(left)).await.map_err(io_failed)?;
        left = left.get(written..).unwrap_or_default();
    }
    let mut reply = Vec::new();
    // Byte by byte: what follows the headers stays in the socket. A tunnel is opened once per connection.
    while !reply.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let count = socket.read_with(|mut stream| stream.read(&mut byte)).await.map_err(io_failed)?;
        if count == 0 {
            return Err(refused("it closed the connection".to_owned()));
        }
        reply.extend_from_slice(&byte);
        if reply.len() > limits::REPLY_HEADER_BYTES {
            return Err(refused(format!("its answer is longer than {} bytes", limits::REPLY_HEADER_BYTES)));
        }
    }
    let status_line = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status_line: String = String::from_utf8_lossy(status_line).chars().take(100).collect();
    let code = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    if code.is_some_and(|code| code.starts_with('2')) { Ok(()) } else { Err(refused(status_line)) }
}
