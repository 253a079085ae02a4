//! Turns what a board asks of a supervisor of k3s or rke2 into what that hands out, or why it does not: written from what
//! `tests/support/supervisor.rs` was written from.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::random::Random;
use super::cluster::{Approver, Authority, Cluster, SECOND_US, Signer, TOKEN, point};
use super::der;
use crate::model::http::{Request, Response, http_date};

/// The password of all agents.
const PASSWORD: &str = "fedcba9876543210fedcba9876543210";
const CERTIFICATES: &str = "/client-kubelet.crt";

/// Beside the API servers.
#[derive(Debug)]
pub struct Supervisor {
    /// In paths and headers.
    pub program: &'static str,
    pub port: u16,
    /// The token that boards have is that of all agents, which does not end.
    is_password: bool,
    /// By name of the Node, what it first came with.
    pub node_passwords: BTreeMap<String, String>,
}

impl Supervisor {
    pub fn new(program: &'static str, is_password: bool) -> Supervisor {
        let port = if program == "rke2" { 9345 } else { 6443 };
        Supervisor { program, port, is_password, node_passwords: BTreeMap::new() }
    }

    /// What boards have, with the hash of the one certificate that servers show.
    pub fn token(&self, authority: &Authority) -> String {
        let shown = der::pem(std::slice::from_ref(&authority.der));
        let hash = ring::digest::digest(&ring::digest::SHA256, shown.as_bytes());
        let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let credential = if self.is_password { format!("node:{PASSWORD}") } else { TOKEN.to_owned() };
        format!("K10{digits}::{credential}")
    }

    fn is_shown(&self, authorization: &str) -> bool {
        match self.is_password {
            true => authorization == format!("Basic {}", STANDARD.encode(format!("node:{PASSWORD}"))),
            false => authorization == format!("Bearer {TOKEN}"),
        }
    }
}

/// Whether a supervisor is asked, and not an API server.
pub fn is_of_supervisor(request: &Request) -> bool {
    request.path == "/cacerts" || request.path.starts_with("/v1-k3s/") || request.path.starts_with("/v1-rke2/")
}

/// The password that a board shows under its name.
pub fn node_password(request: &Request) -> Option<&str> {
    let header = request.headers.iter().find(|(name, _)| name.ends_with("-node-password"));
    header.map(|(_, value)| value.as_str())
}

/// The key that a certificate is asked for, where one is.
pub fn key_asked_for(request: &Request) -> Option<Vec<u8>> {
    let is_one = request.method == "POST" && request.path.ends_with(CERTIFICATES);
    is_one.then(|| der::asked_in(&request.body).map(|(_, key)| key)).flatten()
}

/// What is handed out, or a code and a sentence.
type Answer = Result<Vec<u8>, (u16, &'static str)>;

impl Cluster {
    /// It has a supervisor, whose nodes' CA is none that servers show.
    pub fn of_supervisor(mut self, supervisor: Supervisor, random: &mut Random) -> Cluster {
        self.signs = Authority::new("client-ca", random);
        self.accepts = vec![self.signs.clone()];
        (self.supervisor, self.is_anonymous_refused) = (Some(supervisor), true);
        self
    }

    /// `leaf`: the client certificate of the connection. `servers`: what it calls its own.
    pub fn supervise(&mut self, request: &Request, leaf: Option<&[u8]>, servers: &[String], now_us: i64) -> Response {
        let answer = match request.path.as_str() {
            "/cacerts" => Ok(der::pem(std::slice::from_ref(&self.serves.der)).into_bytes()),
            _ => self.hand_out(request, leaf, servers, now_us),
        };
        let (code, body) = match answer {
            Ok(body) => (200, body),
            Err((code, why)) => (code, why.as_bytes().to_vec()),
        };
        let headers = vec![("Date", http_date(now_us)), ("Content-Type", "text/plain".to_owned())];
        Response { code, headers, body }
    }

    fn hand_out(&mut self, request: &Request, leaf: Option<&[u8]>, servers: &[String], now_us: i64) -> Answer {
        let Some(supervisor) = &self.supervisor else { return Err((404, "404 page not found")) };
        match self.approver {
            Approver::Absent => return Err((503, "runtime core not ready")),
            Approver::Slow if self.random.per_mille(500) => return Err((429, "too many requests")),
            Approver::Prompt | Approver::Slow | Approver::Denies => {}
        }
        let node = leaf.and_then(|leaf| self.accepts(leaf, now_us)).map(|issued| issued.node.clone());
        let is_agent = request
            .header("authorization")
            .is_some_and(|shown| supervisor.is_shown(shown) && (supervisor.is_password || self.is_token_live(now_us)));
        // The role of a node's certificate is looked up with its Node.
        let is_known = node.as_ref().is_some_and(|node| self.api.node(node).is_some());
        if !is_agent && !is_known {
            return Err((401, "Unauthorized"));
        }
        if let Some(leaf) = leaf.filter(|_| is_known) {
            self.taken.insert(leaf.to_vec());
        }
        let (program, port) = (supervisor.program, supervisor.port);
        match request.path.strip_prefix(&format!("/v1-{program}")) {
            Some("/config") => Ok(format!(r#"{{"HTTPSPort":6443,"SupervisorPort":{port},"Other":[1]}}"#).into_bytes()),
            Some("/apiservers") => Ok(serde_json::to_vec(servers).unwrap_or_default()),
            Some(CERTIFICATES) if request.method == "POST" => self.certify(request, node, now_us),
            _ => Err((404, "404 page not found")),
        }
    }

    /// `node`: whose certificate shows who asks.
    fn certify(&mut self, request: &Request, node: Option<String>, now_us: i64) -> Answer {
        let Some(supervisor) = &mut self.supervisor else { return Err((404, "404 page not found")) };
        let name = request.header(&format!("{}-node-name", supervisor.program)).unwrap_or_default().to_owned();
        let Some(password) = node_password(request).filter(|_| !name.is_empty()) else {
            return Err((400, "node name or password not set"));
        };
        if node.is_some_and(|node| node != name) {
            return Err((400, "header node name does not match auth node name"));
        }
        let known = supervisor.node_passwords.entry(name.clone()).or_insert_with(|| password.to_owned());
        if known != password || self.approver == Approver::Denies {
            return Err((403, "unable to verify hash for node"));
        }
        let Some((_, key)) = der::asked_in(&request.body) else { return Err((400, "no request")) };
        self.created_us.push(now_us);
        let until_us = now_us + self.life_us;
        let (signs, stranger) = (self.signs.clone(), Authority::new("another", &mut self.random));
        if matches!(self.signer, Signer::OfAnotherName | Signer::OfAnotherCa) {
            self.spoiled.insert(key.clone());
        }
        let mut shared = String::new();
        let leaf = match self.signer {
            Signer::Fails => return Err((500, "unable to sign")),
            Signer::Prompt => self.issue(&name, &key, until_us),
            // Each is dated from the birth of its CA.
            Signer::Slow => self.issue_of(&signs, &name, &key, (now_us - 300 * 24 * 3_600 * SECOND_US, until_us)),
            Signer::OfAnotherName => self.issue(&format!("{name}-other"), &key, until_us),
            Signer::OfAnotherCa => self.issue_of(&stranger, &name, &key, (now_us, until_us)),
            // An old one, which gives all agents one key.
            Signer::OfAnotherKey => {
                let point = point(&mut self.random);
                shared = der::pem_of("EC PRIVATE KEY", &der::private_key(&point));
                self.issue(&name, &der::key_info(&point), until_us)
            }
        };
        Ok((der::pem(&[leaf, signs.der]) + &shared).into_bytes())
    }
}
