//! Turns one socket into exchanges with the API server, one after the other: TCP, perhaps a proxy's tunnel, TLS, HTTP.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

use rustls::ClientConfig;

use super::dial::{dial, set_abort_on_close};
use super::meter::Metered;
use super::reactor::{Reactor, Watched};
use super::resolve::Resolver;
use super::tls::Tls;
use crate::api::{Answer, AuditId, Exchange, Failure, Progress};
use crate::config::kubeconfig::{Kubeconfig, Server};
use crate::config::limits;
use crate::identity::certificate;
use crate::time::{Up, Wall};

/// Bytes read at once. Answers to heartbeats fit; a deframer that holds no more shrinks back to this.
const READ_BYTES: usize = 4096;

/// A connection to the API server that carries one exchange at a time.
pub struct Connection {
    socket: Metered,
    pub ends: Ends,
    /// What its requests are called, and its answers known by.
    pub audit_id: AuditId,
    tls: Tls,
    /// From when until when the server's certificate is valid, once an answer has come.
    certified: Option<(Wall, Wall)>,
    /// Reply bytes that no exchange has taken yet.
    plaintext: Vec<u8>,
}

/// The addresses that a connection is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub local: IpAddr,
    /// The server's, or the proxy's.
    pub peer: IpAddr,
}

/// Why an exchange ended without an answer.
pub struct NoAnswer {
    pub failure: Failure,
    /// Closed or broken before the first byte of the reply. On a connection that had been idle this most likely means
    /// that the server had closed it meanwhile, and never saw the request.
    pub is_silent: bool,
}

impl Connection {
    /// Looks the server (or the proxy) up and connects. The TLS handshake happens with the first exchange, so that the
    /// request leaves together with the client's last flight. `connected` is told as soon as the ends are known.
    pub async fn open(
        reactor: &Rc<Reactor>,
        resolver: &Resolver,
        kubeconfig: &Kubeconfig,
        config: Arc<ClientConfig>,
        deadline: Up,
        connected: impl FnOnce(Ends),
    ) -> Result<Connection, Failure> {
        let server = &kubeconfig.server;
        let name = kubeconfig.tls_server_name.as_deref().unwrap_or(&server.host);
        let tls = Tls::new(config, name)?;
        let first_hop = first_hop(kubeconfig);
        let addresses = resolver.server_addresses(&first_hop.host, deadline).await?;
        let addresses: Vec<SocketAddr> = addresses.into_iter().map(|ip| SocketAddr::new(ip, first_hop.port)).collect();
        let socket = dial(reactor, resolver.meter(), &addresses, deadline).await?;
        let ends = ends(socket.get()).map_err(broken)?;
        connected(ends);
        if let Some(proxy) = &kubeconfig.proxy {
            open_tunnel(&socket, proxy, server).await?;
        }
        let random = || u128::from(RandomState::new().build_hasher().finish());
        let audit_id = AuditId::new(random() << 64 | random());
        Ok(Connection { socket, ends, audit_id, tls, certified: None, plaintext: Vec::new() })
    }

    /// Whether an idle connection may be used: looks at the socket only if something came since.
    pub fn is_usable(&mut self) -> bool {
        let mut left = limits::READS_PER_TURN;
        while self.socket.may_be_readable() {
            left -= 1;
            match receive(&self.socket, self.socket.get(), &mut self.tls, &mut self.plaintext) {
                // Tickets, and nothing else that could be meant for us now.
                Ok(Ok(1..)) if self.plaintext.is_empty() && left > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.set_drained();
                    break;
                }
                _ => return false,
            }
        }
        // A server that talks without being asked is not one whose next answer could be trusted to be ours.
        self.plaintext.is_empty() && !self.tls.is_closed_by_peer()
    }

    /// Sends `request` and waits for its answer, which comes with this connection if that may carry another exchange.
    pub async fn carry(&mut self, request: &[u8], mut exchange: Exchange) -> Result<(Answer, bool), NoAnswer> {
        let purpose = exchange.purpose();
        self.socket.sends(purpose, request.len());
        let ended = self.run(request, &mut exchange).await;
        self.socket.received(purpose, exchange.received_bytes());
        let is_silent = exchange.received_bytes() == 0 && self.plaintext.is_empty();
        ended.map_err(|failure| NoAnswer { is_silent: is_silent && failure.is_of_connection(), failure })
    }

    /// From when until when the certificate is valid that the server proved itself with.
    pub fn certified(&mut self) -> Option<(Wall, Wall)> {
        if self.certified.is_none() {
            self.certified = certificate::validity(self.tls.server_certificate()?);
        }
        self.certified
    }

    async fn run(&mut self, request: &[u8], exchange: &mut Exchange) -> Result<(Answer, bool), Failure> {
        let mut sent = false;
        let mut received_bytes = 0;
        loop {
            if !sent && self.tls.is_ready() {
                self.tls.seal(request)?;
                sent = true;
            }
            self.flush().await.map_err(broken)?;
            let (socket, tls, plaintext) = (&*self.socket, &mut self.tls, &mut self.plaintext);
            let received = socket.read_with(|stream| receive(socket, stream, tls, plaintext)).await;
            match received.map_err(broken)? {
                Ok(count @ 1..) => received_bytes += count,
                Ok(0) if !self.tls.is_ready() => {
                    return Err(Failure::new(
                        "tls-failed",
                        "TLS failed: the peer closed the connection during the handshake",
                    ));
                }
                // Without close_notify the end may have been forged: a body that ends with it could be cut anywhere.
                Ok(0) if self.tls.is_closed_by_peer() => return Ok((exchange.end_of_stream()?, false)),
                Ok(0) => return Err(Failure::closed(exchange.received_bytes())),
                Err(failure) => {
                    self.send_alert();
                    return Err(failure);
                }
            }
            if sent && !self.plaintext.is_empty() {
                match exchange.feed(&mut self.plaintext)? {
                    Progress::Done { answer, reusable } => {
                        return Ok((answer, reusable && self.plaintext.is_empty() && !self.tls.is_closed_by_peer()));
                    }
                    Progress::NeedMore => {}
                }
            }
            if received_bytes > limits::EXCHANGE_BYTES {
                let limit_bytes = limits::EXCHANGE_BYTES;
                let text =
                    format!("more than {limit_bytes} bytes came, and no end of the reply; is this an API server?");
                return Err(Failure::new("reply-too-large", text));
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        while self.tls.has_outgoing() {
            let outgoing = self.tls.take();
            let written = self.socket.write_with(|mut stream| stream.write(outgoing)).await?;
            outgoing.drain(..written);
        }
        Ok(())
    }

    /// Tells the peer why, if the socket takes it at once; nobody waits for that.
    fn send_alert(&mut self) {
        let _ = self.socket.get().write(self.tls.take());
    }

    /// Ends an idle connection in order.
    pub fn close(mut self) {
        self.socket.ends_in_order();
        // Should that fail, the peer hears of it a little more rudely.
        let _ = set_abort_on_close(self.socket.get(), false);
        self.tls.close();
        self.send_alert();
    }
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
    let detail = error.raw_os_error().map(|errno| nix::errno::Errno::from_raw(errno).desc().to_owned());
    Failure::broken(&detail.unwrap_or_else(|| error.to_string()))
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
