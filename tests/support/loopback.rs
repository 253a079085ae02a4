//! Turns a script into an HTTPS server on loopback, for tests: its own CA, real sockets, one thread per connection.
//! The unit tests of `src/io` include this file too.

#![allow(clippy::disallowed_methods, reason = "the other end of the wire is another thread, as it would be in life")]
#![allow(clippy::unwrap_used, reason = "a test whose server cannot start has failed")]
#![allow(dead_code, reason = "two test crates use different halves")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::socket::{Backlog, listen};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, Server as Endpoint};

/// The plaintext side of one connection.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A cluster's CA. Every one has the same name, as those that kubeadm makes.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate of an [`Authority`] and its key.
pub struct Signed {
    pub certificate: rcgen::Certificate,
    pub key: KeyPair,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer }
    }

    /// Valid from 2026 to 2046.
    pub fn sign(&self, names: &[&str]) -> Signed {
        self.sign_for_years(names, 2026, 2046)
    }

    pub fn sign_for_years(&self, names: &[&str], from: i32, to: i32) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        Signed { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    pub fn pem(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }

    /// A server that asks for client certificates of this CA and refuses a wrong one, but not a missing one.
    pub fn server_config(&self, signed: &Signed) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let key = PrivateKeyDer::try_from(signed.key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![signed.certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }
}

/// A kubeconfig for `127.0.0.1:port` with a client certificate.
pub fn kubeconfig(authority: &Authority, port: u16) -> Kubeconfig {
    let client = authority.sign(&["system:node:board"]);
    Kubeconfig {
        server: Endpoint { host: "127.0.0.1".to_owned(), port, path_prefix: String::new() },
        other_servers: Vec::new(),
        last_resorts: Vec::new(),
        certificate_authority: Some(Material::Data(authority.pem())),
        tls_server_name: None,
        proxy: None,
        credentials: Credentials::Certificate {
            certificate: Material::Data(client.certificate.pem().into_bytes()),
            key: Material::Data(client.key.serialize_pem().into_bytes()),
        },
        context: "test".to_owned(),
        path: String::new(),
    }
}

/// A TCP server on loopback; its threads end with the test process.
pub struct Listener {
    pub port: u16,
    accepted: Arc<AtomicUsize>,
}

impl Listener {
    /// Runs `script` for every connection, in a thread of its own, with the connection's number from 0.
    pub fn tcp(script: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Listener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                std::thread::spawn(move || script(number, socket));
            }
        });
        Listener { port, accepted }
    }

    /// The same over TLS.
    pub fn tls(config: Arc<ServerConfig>, script: impl Fn(usize, Stream) + Send + Sync + 'static) -> Listener {
        Listener::tcp(move |number, socket| {
            socket.set_nodelay(true).unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            script(number, StreamOwned::new(connection, socket));
        })
    }

    /// A server of `authority` for `127.0.0.1` that gives every request the same answer, as an API server does.
    pub fn answering(authority: &Authority, answer: Vec<u8>) -> Listener {
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        Listener::tls(config, move |_, mut stream| {
            while let Some(request) = read_request(&mut stream) {
                if stream.write_all(&echoing(&request, &answer)).is_err() {
                    return;
                }
            }
        })
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A listener whose queue is full, so that the kernel drops every SYN to it.
pub struct Silent {
    pub address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Silent {
    pub fn new() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = vec![TcpStream::connect(address).unwrap()];
        // The first fills it, but perhaps not before the second comes.
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
            queue.push(stream);
        }
        Silent { address, _listener: listener, _queue: queue }
    }
}

/// Runs one side of a conversation.
pub fn in_background(side: impl FnOnce() + Send + 'static) {
    std::thread::spawn(side);
}

/// Head and body of the next request; `None` when the peer has gone.
pub fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8(request).ok()?;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).ok()?)
}

/// The reply with the request's own Audit-ID, as an API server repeats it.
pub fn echoing(request: &str, reply: &[u8]) -> Vec<u8> {
    let audit_id = request.lines().find_map(|line| line.strip_prefix("audit-id: ")).unwrap();
    let end = reply.windows(2).position(|bytes| bytes == b"\r\n").unwrap() + 2;
    [&reply[..end], b"Audit-Id: ", audit_id.as_bytes(), b"\r\n", &reply[end..]].concat()
}

/// A reply with a JSON body.
pub fn json_reply(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// What an API server of 1.36 says of its version.
pub fn version_reply() -> Vec<u8> {
    json_reply("200 OK", r#"{"gitVersion":"v1.36.3"}"#)
}

/// A folder that goes with the value.
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new() -> TempFolder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("nodepulse-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempFolder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
