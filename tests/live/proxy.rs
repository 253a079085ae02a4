//! Turns a port of loopback into a way to the API server that a test can stall, cut, fork and dress up.

use super::super::cluster::Result;
use super::super::cluster::apiserver::free_port;
use super::super::cluster::pki::Keypair;
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// No peer of a test is slower on purpose.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a new connection meets.
#[derive(Clone)]
pub enum Manner {
    /// Bytes go to the upstream port and back.
    Forward,
    /// An HTTP proxy: `CONNECT host:port`, and then bytes to that port.
    Tunnel,
    /// A proxy that takes nobody.
    RefuseTunnel,
    /// A TLS handshake with a certificate of the test's own, and then this answer to whatever is asked.
    Serve(Arc<ServerConfig>, &'static str),
}

/// A listening port and everything that came through it. It ends with its value.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    upstream_port: u16,
    manner: Mutex<Manner>,
    links: Mutex<Vec<Arc<Link>>>,
    accepted: AtomicUsize,
    moved_bytes: Arc<AtomicU64>,
    asked: Mutex<Vec<String>>,
    ended: AtomicBool,
}

/// One connection: two sockets, and whether bytes move between them.
struct Link {
    near: TcpStream,
    far: TcpStream,
    stalled: Mutex<bool>,
    released: Condvar,
    moved_bytes: Arc<AtomicU64>,
}

impl Proxy {
    pub fn forward(upstream_port: u16) -> Result<Self> {
        Self::start((Ipv4Addr::LOCALHOST, free_port()?).into(), upstream_port, Manner::Forward)
    }

    pub fn start(address: SocketAddr, upstream_port: u16, manner: Manner) -> Result<Self> {
        let listener = TcpListener::bind(address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        let shared = Arc::new(Shared {
            upstream_port,
            manner: Mutex::new(manner),
            links: Mutex::default(),
            accepted: AtomicUsize::new(0),
            moved_bytes: Arc::default(),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let held = Arc::clone(&shared);
        let listening = spawn(move || held.listen(&listener));
        Ok(Self { address, shared, listening: Some(listening) })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How connections are met from now on.
    pub fn become_a(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
    }

    /// How many connections there were.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// What was carried both ways, above TCP.
    pub fn moved_bytes(&self) -> u64 {
        self.shared.moved_bytes.load(Ordering::SeqCst)
    }

    /// The first lines that tunnels were asked for with.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.shared.asked).clone()
    }

    /// Holds back every byte of the connections that there are; new ones are not touched.
    pub fn stall(&self) {
        for link in lock(&self.shared.links).iter() {
            *lock(&link.stalled) = true;
        }
    }

    /// Lets what was held back go on its way.
    pub fn release(&self) {
        for link in lock(&self.shared.links).iter() {
            *lock(&link.stalled) = false;
            link.released.notify_all();
        }
    }

    /// Ends every connection at once.
    pub fn cut(&self) {
        for link in lock(&self.shared.links).drain(..) {
            link.end();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        self.cut();
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for near in listener.incoming().map_while(std::result::Result::ok) {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            self.accepted.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(self);
            // Ends with its connection, which ends with the proxy.
            spawn(move || shared.meet(near));
        }
    }

    fn meet(&self, mut near: TcpStream) -> Option<()> {
        near.set_nodelay(true).ok()?;
        let manner = lock(&self.manner).clone();
        match manner {
            Manner::Forward => self.join(near, self.upstream_port),
            Manner::Tunnel | Manner::RefuseTunnel => {
                let line = read_head(&mut near)?;
                let port = line.split(' ').nth(1)?.rsplit(':').next()?.parse().ok()?;
                lock(&self.asked).push(line);
                if matches!(manner, Manner::RefuseTunnel) {
                    near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").ok()?;
                    return None;
                }
                near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
                self.join(near, port)
            }
            Manner::Serve(config, answer) => serve(near, config, answer),
        }
    }

    fn join(&self, near: TcpStream, port: u16) -> Option<()> {
        let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        far.set_nodelay(true).ok()?;
        let moved_bytes = Arc::clone(&self.moved_bytes);
        let link = Arc::new(Link { near, far, stalled: Mutex::new(false), released: Condvar::new(), moved_bytes });
        lock(&self.links).push(Arc::clone(&link));
        let back = Arc::clone(&link);
        let backward = spawn(move || back.pump(&back.far, &back.near));
        link.pump(&link.near, &link.far);
        let _ = backward.join();
        lock(&self.links).retain(|other| !Arc::ptr_eq(other, &link));
        Some(())
    }
}

impl Link {
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(many @ 1..) = from.read(&mut bytes) {
            let mut stalled = lock(&self.stalled);
            while *stalled {
                stalled = self.released.wait(stalled).unwrap_or_else(PoisonError::into_inner);
            }
            drop(stalled);
            self.moved_bytes.fetch_add(many as u64, Ordering::SeqCst);
            if to.write_all(&bytes[..many]).is_err() {
                break;
            }
        }
        self.end();
    }

    fn end(&self) {
        let _ = self.near.shutdown(Shutdown::Both);
        let _ = self.far.shutdown(Shutdown::Both);
        *lock(&self.stalled) = false;
        self.released.notify_all();
    }
}

/// A server of TLS with this certificate, for [`Manner::Serve`].
pub fn server_config(serving: &Keypair) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(serving.chain.clone(), serving.secret())
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config))
}

/// Answers each request of one connection.
fn serve(near: TcpStream, config: Arc<ServerConfig>, answer: &str) -> Option<()> {
    near.set_read_timeout(Some(PATIENCE)).ok()?;
    let session = ServerConnection::new(config).ok()?;
    let mut stream = rustls::StreamOwned::new(session, near);
    read_head(&mut stream)?;
    stream.write_all(answer.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// The first line of a head of at most 8 KiB, which is read to its end.
fn read_head(from: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        if head.len() > 8192 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&head).lines().next()?.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
