//! Turns a method, a path and JSON into the API server's answer: a blocking HTTPS client of the test's own,
//! so that what the agent did is judged by code that it does not share.

use super::Result;
use super::pki::Keypair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// No read of a test takes longer unless the server is frozen.
const PATIENCE: Duration = Duration::from_secs(10);

pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// One identity's way to one API server. Every request has a connection of its own, so that a server
/// that was restarted in between makes no difference.
#[derive(Clone)]
pub struct Client {
    port: u16,
    tls: Arc<ClientConfig>,
    patience: Duration,
    /// A header line of each request, with its end; empty for none.
    header: String,
}

/// An answer of the server. A body that is not JSON is kept as a string.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    pub body: Value,
}

impl Client {
    /// `server` is the certificate that the server shows; nothing else about it matters.
    pub fn new(port: u16, server: CertificateDer<'static>, identity: &Keypair) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { server, algorithms }))
            .with_client_auth_cert(identity.chain.clone(), identity.secret())
            .map_err(|e| e.to_string())?;
        Ok(Self { port, tls: Arc::new(tls), patience: PATIENCE, header: String::new() })
    }

    /// The same with another limit for each read and write.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same with one more header, as `Name: value`, in each request.
    pub fn with_header(self, header: &str) -> Self {
        Self { header: format!("{header}\r\n"), ..self }
    }

    /// The answer of the server, whatever its status; `Err` if there was none.
    pub fn request(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Result<Reply> {
        let bytes = self.exchange(method, path, body).map_err(|e| format!("{method} {path}: {e}"))?;
        parse(&bytes).ok_or_else(|| format!("{method} {path}: no HTTP: {}", String::from_utf8_lossy(&bytes)))
    }

    /// The object at a path; `None` if there is none.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.request("GET", path, None)? {
            Reply { status: 404, .. } => Ok(None),
            reply => reply.accepted("GET", path).map(Some),
        }
    }

    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None)?.accepted("GET", path)
    }

    pub fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.request("POST", path, Some(("application/json", object)))?.accepted("POST", path)
    }

    pub fn put(&self, path: &str, object: &Value) -> Result<Value> {
        self.request("PUT", path, Some(("application/json", object)))?.accepted("PUT", path)
    }

    /// A strategic merge patch, as `kubectl patch` sends for built-in kinds.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.request("PATCH", path, Some((STRATEGIC_MERGE_PATCH, patch)))?.accepted("PATCH", path)
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.request("DELETE", path, None)?.accepted("DELETE", path)
    }

    fn exchange(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> std::io::Result<Vec<u8>> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let socket = TcpStream::connect_timeout(&address, self.patience)?;
        socket.set_read_timeout(Some(self.patience))?;
        socket.set_write_timeout(Some(self.patience))?;
        socket.set_nodelay(true)?;
        let name = ServerName::IpAddress(address.ip().into());
        let session = ClientConnection::new(Arc::clone(&self.tls), name).map_err(std::io::Error::other)?;
        let mut stream = StreamOwned::new(session, socket);
        let payload = body.map(|(_, value)| value.to_string()).unwrap_or_default();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: cluster-test\r\n\
             Accept: application/json\r\nConnection: close\r\n{}Content-Length: {}\r\n",
            self.header,
            payload.len()
        );
        if let Some((kind, _)) = body {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{payload}").as_bytes())?;
        let mut reply = Vec::new();
        match stream.read_to_end(&mut reply) {
            // A server that is being stopped closes without TLS's good-bye.
            Err(e) if e.kind() != ErrorKind::UnexpectedEof || reply.is_empty() => Err(e),
            _ => Ok(reply),
        }
    }
}

impl Reply {
    /// The body of a 2xx answer; anything else is an error with the server's own words.
    pub fn accepted(self, method: &str, path: &str) -> Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let words = self.body["message"].as_str().map_or_else(|| self.body.to_string(), str::to_owned);
        Err(format!("{method} {path}: {} {words}", self.status))
    }
}

/// Accepts one certificate, by its bytes: a test must be able to ask a server whose certificate has expired.
#[derive(Debug)]
struct Pinned {
    server: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        if *shown == self.server {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, shown, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, shown, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let chunked = lines.any(|l| l.eq_ignore_ascii_case("transfer-encoding: chunked"));
    let body = if chunked { join_chunks(&bytes[end + 4..])? } else { bytes[end + 4..].to_vec() };
    let body =
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    Some(Reply { status, head: head.to_owned(), body })
}

fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let begin = line + 2;
        body.extend_from_slice(rest.get(begin..begin.checked_add(size)?)?);
        rest = rest.get(begin + size + 2..)?;
    }
}
