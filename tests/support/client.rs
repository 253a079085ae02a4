//! Turns a method, a path and JSON into the API server's answer, by `ureq`: what the agent did is judged by a client that
//! shares none of its code.

use super::Result;
use super::pki::Keypair;
use rustls::crypto::ring;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Request};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};

/// No request of a test takes longer unless the server is frozen.
const PATIENCE: Duration = Duration::from_secs(10);

pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// One identity's way to one API server on loopback.
#[derive(Clone)]
pub struct Client {
    port: u16,
    tls: TlsConfig,
    patience: Duration,
    /// More headers of each request.
    headers: Vec<(&'static str, String)>,
}

/// An answer of the server. A body that is not JSON is kept as a string.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Client {
    /// `authority` holds the certificates, as PEM, of which one has signed the server's. `None` takes whatever a server shows: a
    /// test must be able to ask one whose certificate has expired.
    pub fn new(port: u16, authority: Option<&str>, identity: &Keypair) -> Result<Self> {
        let key = PrivateKey::from_pem(identity.key.as_bytes()).map_err(text)?;
        let own = ClientCert::new_with_certs(&certificates(&identity.certificate)?, key);
        Self::with_certificate(port, authority, Some(own))
    }

    /// Nobody, as far as the server knows.
    pub fn anonymous(port: u16, authority: Option<&str>) -> Result<Self> {
        Self::with_certificate(port, authority, None)
    }

    fn with_certificate(port: u16, authority: Option<&str>, own: Option<ClientCert>) -> Result<Self> {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .client_cert(own)
            .disable_verification(authority.is_none())
            .root_certs(RootCerts::from(authority.map(certificates).transpose()?.unwrap_or_default()))
            .build();
        Ok(Self { port, tls, patience: PATIENCE, headers: Vec::new() })
    }

    /// The same with another limit for each request.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same with one more header in each request.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The answer of the server, whatever its status; `Err` if there was none.
    pub fn request(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Result<Reply> {
        let body = body.map(|(kind, value)| (kind, value.to_string().into_bytes()));
        self.exchange(method, path, body).map_err(|e| format!("{method} {path}: {e}"))
    }

    /// The same with bytes of any kind.
    pub fn send(&self, method: &str, path: &str, kind: &str, bytes: &[u8]) -> Result<Reply> {
        self.exchange(method, path, Some((kind, bytes.to_vec()))).map_err(|e| format!("{method} {path}: {e}"))
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

    /// Each over a connection of its own, so that a server that was restarted in between makes no difference.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> std::result::Result<Reply, ureq::Error> {
        let agent: Agent = Agent::config_builder()
            .tls_config(self.tls.clone())
            .proxy(None)
            .timeout_global(Some(self.patience))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent("cluster-test")
            .accept("application/json")
            .build()
            .into();
        let mut request = Request::builder().method(method).uri(format!("https://127.0.0.1:{}{path}", self.port));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut reply = match body {
            None => agent.run(request.body(())?)?,
            Some((kind, bytes)) => agent.run(request.header("Content-Type", kind).body(bytes)?)?,
        };
        let bytes = reply.body_mut().with_config().limit(u64::MAX).read_to_vec()?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Reply { status: reply.status().as_u16(), headers: std::mem::take(reply.headers_mut()), body })
    }
}

impl Reply {
    /// A header's value; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body of a 2xx answer; anything else is an error with the server's own words.
    pub fn accepted(self, method: &str, path: &str) -> Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let words = self.body["message"].as_str().map_or_else(|| self.body.to_string(), str::to_owned);
        Err(format!("{method} {path}: {} {words}", self.status))
    }
}

fn certificates(pem: &str) -> Result<Vec<Certificate<'static>>> {
    let all = ureq::tls::parse_pem(pem.as_bytes()).map(|item| match item.map_err(text)? {
        PemItem::Certificate(certificate) => Ok(certificate),
        _ => Err("something else than a certificate among the authorities".to_owned()),
    });
    all.collect()
}

fn text(error: ureq::Error) -> String {
    error.to_string()
}
