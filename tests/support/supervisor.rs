//! Turns a real API server into one behind a k3s supervisor, as far as boards see it: what it hands out, to whom, and how it
//! refuses. Written from what k3s does, none of it k3s' own: it cannot be had here.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps threads out of the agent; the other end of the wire is another machine in life.
#![allow(clippy::disallowed_methods)]

mod client_certificates;

use super::cluster::apiserver::free_port;
use super::cluster::pki::{Authority, Validity, requested_key_of};
use super::cluster::{ApiServer, Client, Cluster, Result, node_path};
use super::http1::{Request, read_request, relay};
use base64::prelude::{BASE64_STANDARD, Engine};
use client_certificates::{Undated, common_name, has_ended};
use ring::digest;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// How it answers where k3s has answered in more than one way, or can be out of sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As since January 2025.
    Recent,
    /// Before: a POST is taken for a GET, and the answer has the key that all agents share.
    SharedKey,
    /// Every certificate is dated from the birth of its CA.
    DatedFromBirth,
    /// 503: its core does not work yet.
    NotReady,
    /// 429: too many at once.
    Busy,
    /// It signs for another name than the one that was asked for.
    WrongName,
    /// It shows this to everybody, whatever it was before.
    OtherAuthority,
    /// It shows this beside its own, which it uses still.
    NextAuthority,
}

/// A request, as it came. Requests that went on to the API server are not in it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    /// The user of its client certificate, if it had one.
    pub certificate: Option<String>,
    pub status: u16,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether anything came with it that somebody could use.
    pub fn holds_a_secret(&self) -> bool {
        self.headers.iter().any(|(name, _)| name == "authorization" || name.ends_with("-node-password"))
    }
}

/// A listening supervisor. It ends with its value.
pub struct Supervisor {
    pub port: u16,
    shared: Arc<Shared>,
    listening: Vec<(SocketAddr, JoinHandle<()>)>,
}

/// Where rke2 listens; its API is on another port.
const PORT_OF_RKE2: u16 = 9345;

/// What a port is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Both,
    Supervisor,
    Api,
}

struct Shared {
    address: IpAddr,
    api_port: u16,
    port: u16,
    /// `k3s` or `rke2`.
    program: &'static str,
    password: String,
    /// Signs what servers show; the API server behind has its own.
    server_authority: Authority,
    /// Signs what nodes show.
    client_authority: Authority,
    stranger: Authority,
    config: Arc<ServerConfig>,
    upstream: Upstream,
    admin: Client,
    manner: Mutex<Manner>,
    asked: Mutex<Vec<Asked>>,
    ended: AtomicBool,
    connections: AtomicUsize,
}

/// The API server, which believes what this says of its clients.
struct Upstream {
    config: Arc<ClientConfig>,
    api: Arc<ApiServer>,
}

/// One connection, and whose it is.
struct Peer {
    stream: StreamOwned<ServerConnection, TcpStream>,
    certificate: Option<String>,
    /// It has one, which has ended: it is nobody.
    is_expired: bool,
    upstream: Option<StreamOwned<ClientConnection, TcpStream>>,
}

struct Answer {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
}

impl Supervisor {
    /// In front of another API server of this cluster.
    pub fn start(cluster: &Cluster, program: &'static str) -> Result<Self> {
        let port = free_port()?;
        Self::start_at(cluster, program, Ipv4Addr::LOCALHOST, [port, port])
    }

    /// rke2 as it is: its supervisor at a port of its own, and the API at another.
    pub fn start_rke2(cluster: &Cluster) -> Result<Self> {
        let [.., high, low] = std::process::id().to_be_bytes();
        Self::start_at(cluster, "rke2", Ipv4Addr::new(127, 93, high, low), [PORT_OF_RKE2, free_port()?])
    }

    fn start_at(
        cluster: &Cluster,
        program: &'static str,
        address: Ipv4Addr,
        [port, api_port]: [u16; 2],
    ) -> Result<Self> {
        let address = IpAddr::from(address);
        let front_proxy = Authority::new("front-proxy-ca")?;
        let api = Arc::new(cluster.api_server_behind(&front_proxy)?);
        let (server_authority, client_authority) =
            (Authority::new(&format!("{program}-server-ca"))?, Authority::new(&format!("{program}-client-ca"))?);
        let own = front_proxy.client("front-proxy", None, Validity::Now)?;
        let mut roots = RootCertStore::empty();
        roots.add(cluster.authority().der()).map_err(text)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(text)?
            .with_root_certificates(roots)
            .with_client_auth_cert(own.chain.clone(), own.secret())
            .map_err(text)?;
        let serving = server_authority.server(&[address], Validity::Now)?;
        let mut clients = RootCertStore::empty();
        clients.add(client_authority.der()).map_err(text)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(text)?;
        let verifier = Arc::new(Undated(verifier));
        let serving = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(text)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(serving.chain.clone(), serving.secret())
            .map_err(text)?;
        let shared = Arc::new(Shared {
            address,
            api_port,
            port,
            program,
            password: "0123456789abcdef0123456789abcdef".to_owned(),
            server_authority,
            client_authority,
            stranger: Authority::new("nobody-trusts-this")?,
            config: Arc::new(serving),
            upstream: Upstream { config: Arc::new(config), api },
            admin: cluster.api.admin.clone(),
            manner: Mutex::new(Manner::Recent),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let mut listening = Vec::new();
        let roles: &[_] =
            if port == api_port { &[(Role::Both, port)] } else { &[(Role::Supervisor, port), (Role::Api, api_port)] };
        for (role, port) in roles.iter().copied() {
            let at = SocketAddr::new(address, port);
            let listener = TcpListener::bind(at).map_err(|e| format!("{at}: {e}"))?;
            let held = Arc::clone(&shared);
            listening.push((at, spawn(move || held.listen(&listener, role))));
        }
        Ok(Self { port, shared, listening })
    }

    pub fn url(&self) -> String {
        format!("https://{}:{}", self.shared.address, self.port)
    }

    pub fn become_a(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
    }

    /// `K10HASH::node:PASSWORD`, as the server's own file `node-token` holds it.
    pub fn node_token(&self) -> String {
        format!("{}node:{}", self.pinned(), self.shared.password)
    }

    /// `K10HASH::`: one certificate in the bundle, so it is the hash of the bytes of `/cacerts`.
    pub fn pinned(&self) -> String {
        let hash = digest::digest(&digest::SHA256, self.shared.server_authority.certificate().as_bytes());
        hash.as_ref().iter().fold("K10".to_owned(), |text, byte| format!("{text}{byte:02x}")) + "::"
    }

    /// What `Authorization` has of the password of nodes.
    pub fn password(&self) -> &str {
        &self.shared.password
    }

    pub fn server_authority(&self) -> &Authority {
        &self.shared.server_authority
    }

    pub fn client_authority(&self) -> &Authority {
        &self.shared.client_authority
    }

    /// The API server behind it, for its audit log.
    pub fn api(&self) -> &ApiServer {
        &self.shared.upstream.api
    }

    /// How many there were so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// What was asked of it so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it is over.
        for (at, listening) in self.listening.drain(..) {
            let _ = TcpStream::connect(at);
            let _ = listening.join();
        }
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener, role: Role) {
        for near in listener.incoming().map_while(std::result::Result::ok) {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            self.connections.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(self);
            // Ends with its connection, or with the patience.
            spawn(move || shared.meet(near, role));
        }
    }

    fn meet(&self, near: TcpStream, role: Role) -> Option<()> {
        near.set_nodelay(true).ok()?;
        near.set_read_timeout(Some(PATIENCE)).ok()?;
        let session = ServerConnection::new(Arc::clone(&self.config)).ok()?;
        let mut peer =
            Peer { stream: StreamOwned::new(session, near), certificate: None, is_expired: false, upstream: None };
        while let Some(request) = read_request(&mut peer.stream) {
            let chain = peer.stream.conn.peer_certificates();
            let leaf = chain.and_then(|chain| chain.first()).map(|leaf| leaf.as_ref().to_vec());
            peer.is_expired = leaf.as_deref().is_some_and(has_ended);
            peer.certificate = leaf.as_deref().filter(|_| !peer.is_expired).and_then(common_name);
            if role == Role::Supervisor && !self.is_own(&request) {
                write_answer(&mut peer.stream, &refuse(503, "apiserver disabled"))?;
            } else if role != Role::Api && self.is_own(&request) {
                let answer = self.answer(&request, peer.certificate.as_deref());
                lock(&self.asked).push(Asked {
                    line: request.line,
                    headers: request.headers,
                    certificate: peer.certificate.clone(),
                    status: answer.status,
                });
                write_answer(&mut peer.stream, &answer)?;
            } else {
                self.forward(&mut peer, &request)?;
            }
        }
        Some(())
    }

    fn is_own(&self, request: &Request) -> bool {
        let path = request.path();
        path == "/cacerts" || path == "/ping" || path.starts_with(&format!("/v1-{}/", self.program))
    }

    fn answer(&self, request: &Request, certificate: Option<&str>) -> Answer {
        let manner = *lock(&self.manner);
        let path = request.path();
        if path == "/cacerts" {
            return plain(match manner {
                Manner::OtherAuthority => self.stranger.certificate(),
                Manner::NextAuthority => self.server_authority.certificate() + &self.stranger.certificate(),
                _ => self.server_authority.certificate(),
            });
        }
        if path == "/ping" {
            return plain("pong".to_owned());
        }
        match manner {
            Manner::Busy => return refuse(429, "Too many requests, please try again later."),
            Manner::NotReady => return refuse(503, "runtime core not ready"),
            _ => {}
        }
        if let Err(refused) = self.authenticate(request, certificate) {
            return refused;
        }
        match path.rsplit('/').next().unwrap_or_default() {
            "client-kubelet.crt" => self.certify(request, certificate, manner).unwrap_or_else(|refused| refused),
            "server-ca.crt" => plain(self.server_authority.certificate()),
            "client-ca.crt" => plain(self.client_authority.certificate()),
            "apiservers" => json_answer(200, &json!([SocketAddr::new(self.address, self.api_port).to_string()])),
            "config" => json_answer(200, &json!({"HTTPSPort": self.api_port, "SupervisorPort": self.port})),
            "readyz" => plain("ok".to_owned()),
            _ => refuse(404, "not found"),
        }
    }

    /// What is wrong is 401; nothing at all, or one who is no node, 403.
    fn authenticate(&self, request: &Request, certificate: Option<&str>) -> std::result::Result<(), Answer> {
        if let Some(user) = certificate {
            let is_node = user.starts_with("system:node:");
            return if is_node { Ok(()) } else { Err(refuse(403, "forbidden")) };
        }
        let Some(given) = request.header("authorization") else { return Err(refuse(403, "forbidden")) };
        let is_known = match given.split_once(' ') {
            Some(("Basic", encoded)) => {
                let users = [format!("node:{}", self.password), format!("server:{}", self.password)];
                let decoded = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                decoded.is_some_and(|text| users.contains(&text))
            }
            Some(("Bearer", token)) => self.is_bootstrap_token(token),
            _ => false,
        };
        if is_known { Ok(()) } else { Err(refuse(401, "not authorized")) }
    }

    /// As the API server's own authenticator judges it, by the Secret.
    fn is_bootstrap_token(&self, token: &str) -> bool {
        let Some((id, secret)) = token.split_once('.') else { return false };
        let Ok(Some(found)) = self.admin.find(&format!("{SECRETS}/bootstrap-token-{id}")) else { return false };
        let value = |key: &str| {
            let bytes = BASE64_STANDARD.decode(found["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        value("token-secret").is_some_and(|known| known == secret)
            && value("usage-bootstrap-authentication").as_deref() == Some("true")
    }

    fn certify(
        &self,
        request: &Request,
        certificate: Option<&str>,
        manner: Manner,
    ) -> std::result::Result<Answer, Answer> {
        let header = |name: &str| request.header(&format!("{}-node-{name}", self.program)).filter(|v| !v.is_empty());
        let name = header("name").ok_or_else(|| refuse(400, "node name not set"))?.to_lowercase();
        let password = header("password").ok_or_else(|| refuse(400, "node password not set"))?;
        if let Some(user) = certificate {
            if user != format!("system:node:{name}") {
                return Err(refuse(400, "header node name does not match auth node name"));
            }
            if !matches!(self.admin.find(&node_path(&name)), Ok(Some(_))) {
                return Err(refuse(401, "unable to verify node identity"));
            }
        }
        self.check_password(&name, password)?;
        let failed = |error: String| refuse(500, &error);
        let signed_name = if manner == Manner::WrongName { "somebody-else" } else { &name };
        let user = format!("system:node:{signed_name}");
        let validity = if manner == Manner::DatedFromBirth { Validity::FromBirth } else { Validity::Year };
        let key = requested_key_of(&request.body).ok().filter(|_| request.line.starts_with("POST "));
        let mut text = match (key, manner) {
            (Some(key), manner) if manner != Manner::SharedKey => {
                self.client_authority.certify(&key, &user, Some("system:nodes"), validity).map_err(failed)?
            }
            // Without a request that it can read, it still hands out the key that all agents share.
            _ => {
                let shared = self.client_authority.client(&user, Some("system:nodes"), validity).map_err(failed)?;
                format!("{}{}{}", shared.certificate, self.client_authority.certificate(), shared.key)
            }
        };
        if !text.contains("PRIVATE KEY") {
            text.push_str(&self.client_authority.certificate());
        }
        Ok(plain(text))
    }

    /// The first who comes with a name decides its password.
    fn check_password(&self, name: &str, password: &str) -> std::result::Result<(), Answer> {
        let secret = format!("{name}.node-password.{}", self.program);
        let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, password.as_bytes()));
        match self.admin.find(&format!("{SECRETS}/{secret}")).map_err(|e| refuse(500, &e))? {
            Some(found) if found["data"]["hash"] == hash.as_str() => Ok(()),
            Some(_) => Err(refuse(403, "unable to verify hash for node")),
            None => {
                let object = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "immutable": true,
                    "data": {"hash": hash},
                });
                self.admin.post(SECRETS, &object).map(drop).map_err(|e| refuse(500, &e))
            }
        }
    }

    /// To the API server, in the name of the client certificate, or of the token that is in it.
    fn forward(&self, peer: &mut Peer, request: &Request) -> Option<()> {
        if peer.is_expired {
            // An API server takes the handshake, and nothing else; this is its own word, as its head shows.
            let refused = refuse(401, "Unauthorized");
            let audit_id = request.header("audit-id").unwrap_or_default();
            let head = format!("HTTP/1.1 401 X\r\nAudit-Id: {audit_id}\r\nContent-Type: application/json\r\n");
            let head = format!("{head}Content-Length: {}\r\n\r\n", refused.body.len());
            let sent = peer.stream.write_all(head.as_bytes()).and_then(|()| peer.stream.write_all(&refused.body));
            return sent.and_then(|()| peer.stream.flush()).ok();
        }
        if peer.upstream.is_none() {
            let far = TcpStream::connect((Ipv4Addr::LOCALHOST, self.upstream.api.port)).ok()?;
            far.set_nodelay(true).ok()?;
            far.set_read_timeout(Some(PATIENCE)).ok()?;
            let name = ServerName::try_from("localhost").ok()?;
            let session = ClientConnection::new(Arc::clone(&self.upstream.config), name).ok()?;
            peer.upstream = Some(StreamOwned::new(session, far));
        }
        let far = peer.upstream.as_mut()?;
        let mut head = format!("{}\r\n", request.line);
        for (name, value) in request.headers.iter().filter(|(name, _)| !name.starts_with("x-remote-")) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(user) = &peer.certificate {
            head.push_str(&format!("x-remote-user: {user}\r\nx-remote-group: system:nodes\r\n"));
        }
        head.push_str("\r\n");
        far.write_all(head.as_bytes()).and_then(|()| far.write_all(&request.body)).and_then(|()| far.flush()).ok()?;
        relay(far, &mut peer.stream)
    }
}

fn write_answer(to: &mut impl Write, answer: &Answer) -> Option<()> {
    let Answer { status, kind, body } = answer;
    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    to.write_all(head.as_bytes()).and_then(|()| to.write_all(body)).and_then(|()| to.flush()).ok()
}

fn plain(text: String) -> Answer {
    Answer { status: 200, kind: "text/plain", body: text.into_bytes() }
}

fn json_answer(status: u16, value: &Value) -> Answer {
    Answer { status, kind: "application/json", body: format!("{value}\n").into_bytes() }
}

/// A Status like the API server's, but without its Audit-Id.
fn refuse(status: u16, message: &str) -> Answer {
    let status_object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": status,
    });
    json_answer(status, &status_object)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
