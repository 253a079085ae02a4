//! Turns loopback ports into an API server that is honest until its attack is switched on, and keeps a record with times.

use super::attack::{Act, Attack, Kind, Launch};
use super::cluster::Result;
use super::model::ModelServer;
use super::model::http::{Request, Response};
use super::model::rights::Caller;
use super::model::store::Resource;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant, SystemTime};

/// The plaintext side of one connection.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Most bytes of one request that are waited for; the agent sends a hundredth of it.
const REQUEST_BYTES: usize = 8 << 20;

/// One request, or a connection that brought none.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub at: Instant,
    /// `None`: a connection without a request.
    pub kind: Option<Kind>,
    pub bytes: usize,
}

/// What happened, as far as a server can know.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub seen: Vec<Seen>,
    /// When the stored Lease got a renewTime that is later than all before.
    pub renewals: Vec<Instant>,
    /// When the stored Ready condition got another heartbeat.
    pub heartbeats: Vec<Instant>,
    pub registered: Option<Instant>,
    pub connections: usize,
}

/// Whether the attack is still on; scripts that go on for ever look at it.
pub struct Going<'a>(&'a Shared);

impl Going<'_> {
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::SeqCst)
    }

    /// A moment, cut short by the end of the attack; whether the attack is still on.
    pub fn pause(&self, span: Duration) -> bool {
        let end = Instant::now() + span;
        while self.is_on() && Instant::now() < end {
            sleep(Duration::from_millis(20).min(span));
        }
        self.is_on()
    }

    /// Writes `piece` until the peer has had enough or the attack is over.
    pub fn pour(&self, into: &mut impl Write, piece: &[u8]) -> io::Result<()> {
        while self.is_on() {
            into.write_all(piece)?;
            into.flush()?;
        }
        Ok(())
    }

    /// Writes `bytes` one by one, with a pause after each.
    pub fn drip(&self, into: &mut impl Write, bytes: &[u8], pause: Duration) -> io::Result<()> {
        for byte in bytes {
            into.write_all(&[*byte])?;
            into.flush()?;
            if !self.pause(pause) {
                break;
            }
        }
        Ok(())
    }
}

/// One request that is hit.
pub struct Hit<'a> {
    pub request: &'a Request,
    /// How many were hit before.
    pub number: usize,
    pub going: Going<'a>,
}

impl Hit<'_> {
    /// What an honest server does and says.
    pub fn honest(&self) -> Response {
        self.going.0.answer(self.request)
    }

    /// Changes what the server stores, as somebody else with all rights would.
    pub fn store(&self) -> MutexGuard<'_, ModelServer> {
        lock(&self.going.0.model)
    }

    /// Somebody else renews the Lease, if there is one.
    pub fn renew_until(&self, stamp: &str) {
        let mut model = self.store();
        let name = self.node_name();
        if model.store.edit(Resource::Leases, name, "spec", |spec| spec["renewTime"] = stamp.into()) {
            *lock(&self.going.0.latest) = stamp.to_owned();
        }
    }

    pub fn node_name(&self) -> &str {
        &self.going.0.node_name
    }
}

/// The server. Its threads end with its connections, or with the test.
pub struct Server {
    pub port: u16,
    /// Where an HTTP proxy leads to it, if that is what is attacked.
    pub proxy_port: Option<u16>,
    shared: Arc<Shared>,
}

struct Shared {
    attack: &'static Attack,
    node_name: String,
    on: AtomicBool,
    hits: AtomicUsize,
    tls: Mutex<[Arc<ServerConfig>; 2]>,
    model: Mutex<ModelServer>,
    record: Mutex<Record>,
    /// The latest renewTime that a controller has seen: it counts only a later one (NLC-2).
    latest: Mutex<String>,
    /// Every connection that may be open.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Server {
    /// `tls`: in peace, and under attack.
    pub fn start(attack: &'static Attack, node_name: &str, tls: [Arc<ServerConfig>; 2]) -> Result<Server> {
        let shared = Arc::new(Shared {
            attack,
            node_name: node_name.to_owned(),
            on: AtomicBool::new(false),
            hits: AtomicUsize::new(0),
            tls: Mutex::new(tls),
            model: Mutex::default(),
            record: Mutex::default(),
            latest: Mutex::default(),
            sockets: Mutex::default(),
        });
        let addresses = if attack.launch == Launch::ThreeAddresses { THREE_ADDRESSES } else { &[Ipv4Addr::LOCALHOST] };
        let mut port = 0;
        // The honest one comes last.
        for (number, ip) in addresses.iter().enumerate() {
            let is_last = addresses.len() > 1 && number + 1 == addresses.len();
            let is_spared = is_last || attack.launch == Launch::Proxy;
            let meet = move |shared: Arc<Shared>, socket| shared.meet(socket, is_spared);
            port = listen(SocketAddr::from((*ip, port)), &shared, meet)?;
        }
        let proxy_port = if attack.launch == Launch::Proxy {
            let lead = move |shared: Arc<Shared>, socket| shared.lead(socket, port);
            Some(listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &shared, lead)?)
        } else {
            None
        };
        Ok(Server { port, proxy_port, shared })
    }

    /// Begins or ends the attack. Connections that it changes the rules of are closed.
    pub fn set_attack(&self, on: bool) {
        self.shared.on.store(on, Ordering::SeqCst);
        if !on || matches!(self.shared.attack.act, Act::Session(_) | Act::Connection(_)) {
            for socket in lock(&self.shared.sockets).drain(..) {
                // It may have ended already.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    /// New connections get this certificate.
    pub fn set_tls(&self, tls: Arc<ServerConfig>) {
        *lock(&self.shared.tls) = [Arc::clone(&tls), tls];
    }

    pub fn record(&self) -> Record {
        lock(&self.shared.record).clone()
    }

    /// How many requests or connections the attack has hit.
    pub fn hits(&self) -> usize {
        self.shared.hits.load(Ordering::SeqCst)
    }

    /// Reasons of the events that were accepted.
    pub fn told(&self) -> Vec<String> {
        let model = lock(&self.shared.model);
        model.store.list(Resource::Events).map(|(_, event)| text(&event["reason"])).collect()
    }

    /// The status of the stored Ready condition.
    pub fn ready(&self) -> String {
        let model = lock(&self.shared.model);
        model.node(&self.shared.node_name).map(|node| ready_of(node, "status")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.set_attack(false);
    }
}

/// Whose first two accept and hang. All as far from 127.0.0.1, so that a resolver keeps their order.
pub const THREE_ADDRESSES: &[Ipv4Addr] =
    &[Ipv4Addr::new(127, 9, 0, 2), Ipv4Addr::new(127, 9, 0, 3), Ipv4Addr::new(127, 9, 0, 4)];

/// What a certificate has to be for.
pub fn addresses() -> Vec<IpAddr> {
    THREE_ADDRESSES.iter().copied().chain([Ipv4Addr::LOCALHOST]).map(IpAddr::V4).collect()
}

/// A thread for each connection; the port.
fn listen(
    address: SocketAddr,
    shared: &Arc<Shared>,
    meet: impl Fn(Arc<Shared>, TcpStream) + Send + Copy + 'static,
) -> Result<u16> {
    let listener = TcpListener::bind(address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let shared = Arc::clone(shared);
    spawn(move || {
        for socket in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            spawn(move || meet(shared, socket));
        }
    });
    Ok(port)
}

impl Shared {
    /// An HTTP proxy: what comes is led to the server, unless the attack is on.
    fn lead(self: Arc<Shared>, mut near: TcpStream, port: u16) {
        if let Ok(handle) = near.try_clone() {
            lock(&self.sockets).push(handle);
        }
        if let (true, Act::Connection(script)) = (self.on.load(Ordering::SeqCst), self.attack.act) {
            self.hits.fetch_add(1, Ordering::SeqCst);
            let silent = Seen { at: Instant::now(), kind: None, bytes: 0 };
            lock(&self.record).seen.push(silent);
            let _ = script(near, &Going(&self));
            return;
        }
        let mut lead = || -> io::Result<()> {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 {
                let mut byte = [0];
                near.read_exact(&mut byte)?;
                head.push(byte[0]);
            }
            let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let (mut far_in, mut near_out) = (far.try_clone()?, near.try_clone()?);
            spawn(move || {
                let _ = io::copy(&mut far_in, &mut near_out);
                let _ = near_out.shutdown(Shutdown::Both);
            });
            let _ = io::copy(&mut near, &mut &far);
            far.shutdown(Shutdown::Both)
        };
        let _ = lead();
    }

    /// One connection to its end.
    fn meet(self: Arc<Shared>, socket: TcpStream, is_spared: bool) {
        let at = Instant::now();
        lock(&self.record).connections += 1;
        if let Ok(handle) = socket.try_clone() {
            lock(&self.sockets).push(handle);
        }
        let mut requests = 0;
        // Whatever ends a connection ends it: what matters is in the record.
        let _ = self.serve(socket, is_spared, &mut requests);
        if requests == 0 {
            let silent = Seen { at, kind: None, bytes: 0 };
            lock(&self.record).seen.push(silent);
        }
    }

    fn serve(&self, socket: TcpStream, is_spared: bool, requests: &mut usize) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let is_struck = || !is_spared && self.on.load(Ordering::SeqCst);
        if let (true, Act::Connection(script)) = (is_struck(), self.attack.act) {
            self.hits.fetch_add(1, Ordering::SeqCst);
            return script(socket, &Going(self));
        }
        let tls = Arc::clone(&lock(&self.tls)[usize::from(is_struck())]);
        let mut stream = StreamOwned::new(ServerConnection::new(tls).map_err(io::Error::other)?, socket);
        if let (true, Act::Session(script)) = (is_struck(), self.attack.act) {
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            self.hits.fetch_add(1, Ordering::SeqCst);
            script(&mut stream, &Going(self))?;
        }
        let mut received = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some((request, used)) = Request::parse(&received).map_err(io::Error::other)? {
                received.drain(..used);
                *requests += 1;
                self.react(&request, used, &mut stream)?;
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                read => received.extend_from_slice(&chunk[..read]),
            }
            if received.len() > REQUEST_BYTES {
                return Err(io::Error::other("a request without an end"));
            }
        }
    }

    fn react(&self, request: &Request, bytes: usize, stream: &mut Stream) -> io::Result<()> {
        let kind = Kind::of(&request.method, &request.path);
        let on = self.on.load(Ordering::SeqCst);
        let script = match self.attack.act {
            Act::Answer(script) if on && self.attack.hits.contains(&kind) => Some(script),
            _ => None,
        };
        lock(&self.record).seen.push(Seen { at: Instant::now(), kind: Some(kind), bytes });
        match script {
            Some(script) => {
                let number = self.hits.fetch_add(1, Ordering::SeqCst);
                script(&Hit { request, number, going: Going(self) }, stream)?;
            }
            None => stream.write_all(&self.answer(request).to_bytes())?,
        }
        stream.flush()
    }

    fn answer(&self, request: &Request) -> Response {
        let mut model = lock(&self.model);
        let before = signs(&model, &self.node_name);
        let mut response = model.answer(request, &Caller::Node(self.node_name.clone()), unix_us());
        let after = signs(&model, &self.node_name);
        drop(model);
        let now = Instant::now();
        let mut record = lock(&self.record);
        // Stamps of one form: the later one is the greater text.
        let mut latest = lock(&self.latest);
        if after.0 > *latest {
            record.renewals.push(now);
            latest.clone_from(&after.0);
        }
        if after.1 != before.1 {
            record.heartbeats.push(now);
            // A controller then forgets what it knew of the Lease, and looks anew.
            *latest = after.0;
        }
        if response.code == 201 && request.path == "/api/v1/nodes" {
            record.registered.get_or_insert(now);
        }
        // An API server takes the client's own, if there is one.
        if let Some(own) = request.header("audit-id") {
            response.headers.retain(|(name, _)| *name != "Audit-Id");
            response.headers.insert(0, ("Audit-Id", own.to_owned()));
        }
        response
    }
}

/// The stored renewTime and Ready's lastHeartbeatTime.
fn signs(model: &ModelServer, name: &str) -> (String, String) {
    let renewed = model.lease(name).map(|lease| text(&lease["spec"]["renewTime"])).unwrap_or_default();
    let heartbeat = model.node(name).map(|node| ready_of(node, "lastHeartbeatTime")).unwrap_or_default();
    (renewed, heartbeat)
}

fn ready_of(node: &serde_json::Value, key: &str) -> String {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == "Ready").map(|condition| text(&condition[key])).collect()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn unix_us() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
