//! Turns a certificate and a cluster-info of one's own into a server that a board may take for its cluster, and writes down
//! whether it was ever told a secret.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps threads out of the agent; the other end of the wire is another machine in life.
#![allow(clippy::disallowed_methods)]

use super::cluster::apiserver::free_port;
use super::cluster::joining::{CLUSTER_INFO, Token};
use super::cluster::pki::{Authority, Validity};
use super::cluster::{ApiServer, Result};
use super::http1::read_head;
use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(15);

/// What it says cluster-info is. `None`: 404, as where kubeadm made none.
pub type Said = Option<Value>;

/// A listening server. It ends with its value.
pub struct Impostor {
    pub port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    config: Arc<ServerConfig>,
    said: Mutex<Said>,
    date: Mutex<Option<String>>,
    heads: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Impostor {
    /// With a certificate of this authority, for 127.0.0.1.
    pub fn start(authority: &Authority, validity: Validity, said: Said) -> Result<Self> {
        let serving = authority.server(&[IpAddr::from([127, 0, 0, 1])], validity)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_no_client_auth()
            .with_single_cert(serving.chain.clone(), serving.secret())
            .map_err(|e| e.to_string())?;
        let port = free_port()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| e.to_string())?;
        let shared = Arc::new(Shared {
            config: Arc::new(config),
            said: Mutex::new(said),
            date: Mutex::default(),
            heads: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let held = Arc::clone(&shared);
        let listening = spawn(move || held.listen(&listener));
        Ok(Self { port, shared, listening: Some(listening) })
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// From now on this is cluster-info.
    pub fn say(&self, info: Value) {
        *self.shared.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(info);
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `Date` of its answers from now on; without one it sends none.
    pub fn dated(&self, date: &str) {
        *self.shared.date.lock().unwrap_or_else(PoisonError::into_inner) = Some(date.to_owned());
    }

    /// Whether this ever came to it, as it is or as Basic authentication would hold it, or anything that is meant to be kept.
    pub fn was_told(&self, token: &Token) -> bool {
        let words = [token.secret.clone(), BASE64_STANDARD.encode(token.to_string())];
        self.heads().iter().any(|head| {
            let lower = head.to_lowercase();
            lower.contains("\r\nauthorization:") || words.iter().any(|word| head.contains(word))
        })
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for near in listener.incoming().map_while(std::result::Result::ok) {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let shared = Arc::clone(self);
            // Ends with its connection, or with the patience.
            spawn(move || shared.meet(near));
        }
    }

    fn meet(&self, near: TcpStream) -> Option<()> {
        near.set_read_timeout(Some(PATIENCE)).ok()?;
        let session = ServerConnection::new(Arc::clone(&self.config)).ok()?;
        let mut stream = StreamOwned::new(session, near);
        loop {
            let head = read_head(&mut stream)?;
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            // As the API server does, which says by it that the answer is its own.
            let echoed =
                head.lines().find(|line| line.to_lowercase().starts_with("audit-id:")).unwrap_or("Audit-Id: 0");
            let echoed = echoed.to_owned();
            self.heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (status, body) = match said.filter(|_| path == CLUSTER_INFO) {
                Some(object) => (200, object.to_string()),
                None => (404, refusal(404)),
            };
            let date = self.date.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let date = date.map_or(String::new(), |date| format!("Date: {date}\r\n"));
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{echoed}\r\n{date}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).ok()?;
        }
    }
}

fn refusal(code: u16) -> String {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": code}).to_string()
}

/// cluster-info with these certificates, signed with this token, in the words of kubeadm.
pub fn cluster_info(server: &str, authorities: &[&Authority], token: &Token) -> Value {
    let bundle: String = authorities.iter().map(|authority| authority.certificate()).collect();
    let kubeconfig = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {server}\n  name: \"\"\n\
         contexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n",
        BASE64_STANDARD.encode(bundle)
    );
    let signature = token.signature(&kubeconfig);
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig, token.signature_key(): signature},
    })
}

/// The cluster's own, with another server in it than the one that was signed.
pub fn tampered(api: &ApiServer, server: &str) -> Result<Value> {
    let mut info = api.anonymous()?.get(CLUSTER_INFO)?;
    let text = info["data"]["kubeconfig"].as_str().unwrap_or_default().replace(&api.url(), server);
    info["data"]["kubeconfig"] = text.into();
    Ok(info)
}
