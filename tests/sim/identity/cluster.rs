//! Turns requests, and who makes them, into what a cluster answers about identities: kube-public/cluster-info and its tokens,
//! requests for certificates with whoever approves and signs them, revoked Nodes. All else is the model API server's.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::random::Random;
use super::der::{self, Certificate, Point};
use super::plan::Step;
use super::supervisor::Supervisor;
use crate::model::ModelServer;
use crate::model::http::{Request, Response};
use crate::model::problem::Problem;
use crate::model::rights::Caller;
use crate::model::stamp;
use crate::model::store::Resource;

pub const SECOND_US: i64 = 1_000_000;
pub const MINUTE_US: i64 = 60 * SECOND_US;
pub const HOUR_US: i64 = 60 * MINUTE_US;
const YEAR_US: i64 = 365 * 24 * HOUR_US;

pub const TOKEN_ID: &str = "fleet1";
pub const TOKEN: &str = "fleet1.0123456789abcdef";
const SECRET: &str = "0123456789abcdef";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// A signer dates certificates back.
const DATED_BACK_US: i64 = 5 * MINUTE_US;

/// A CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    pub name: String,
    pub der: Vec<u8>,
    pub key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approver {
    Prompt,
    Slow,
    Absent,
    Denies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    Prompt,
    Slow,
    Fails,
    OfAnotherKey,
    OfAnotherName,
    OfAnotherCa,
}

/// A CertificateSigningRequest.
#[derive(Debug, Clone)]
pub struct Asked {
    uid: String,
    version: u64,
    packed: String,
    pub node: String,
    pub key: Vec<u8>,
    created_us: i64,
    decided: Option<(i64, bool)>,
    /// Somebody will decide then, and how.
    decides: Option<(i64, bool)>,
    signs_at_us: Option<i64>,
    failed_us: Option<i64>,
    pub certificate: Option<Vec<u8>>,
}

/// A certificate of a Node.
#[derive(Debug, Clone)]
pub struct Issued {
    pub node: String,
    pub key: Vec<u8>,
    pub from_us: i64,
    pub until_us: i64,
    /// Name of the CA.
    pub authority: String,
}

pub struct Cluster {
    pub api: ModelServer,
    /// By which the servers are certified.
    pub serves: Authority,
    /// By which Nodes are.
    pub signs: Authority,
    /// Whose certificates of Nodes are taken.
    pub accepts: Vec<Authority>,
    /// All that are, or were, or will be the cluster's.
    pub own: Vec<Authority>,
    /// What is on the cards: hashes of keys of CAs.
    pub pinned: Vec<[u8; 32]>,
    /// In cluster-info.
    pub published: Vec<Authority>,
    /// Until when the token is there.
    pub token_until_us: Option<i64>,
    pub is_anonymous_refused: bool,
    pub approver: Approver,
    pub signer: Signer,
    pub life_us: i64,
    /// Between one certificate and the next.
    pub signer_gap_us: i64,
    signer_free_us: i64,
    pub asked: BTreeMap<String, Asked>,
    /// By its DER.
    pub issued: BTreeMap<Vec<u8>, Issued>,
    /// Certificates that a request was served for.
    pub taken: BTreeSet<Vec<u8>>,
    pub revoked: BTreeSet<String>,
    /// Keys of which no certificate can come that may be kept, for the signer or somebody else spoiled it.
    pub spoiled: BTreeSet<Vec<u8>>,
    /// Those of them whose certificate is by another CA, which nobody sees before the server refuses it.
    pub unproven: BTreeSet<Vec<u8>>,
    /// When each request for a certificate was made.
    pub created_us: Vec<i64>,
    /// Of k3s or rke2.
    pub supervisor: Option<Supervisor>,
    counted: u64,
    pub random: Random,
}

impl Asked {
    /// Denied, failed, or signed for somebody or something else.
    pub fn is_hopeless(&self, spoiled: &BTreeSet<Vec<u8>>) -> bool {
        let is_denied = self.decided.is_some_and(|(_, is_approved)| !is_approved);
        let is_wrong = self.certificate.is_some() && spoiled.contains(&self.key);
        is_denied || self.failed_us.is_some() || is_wrong || der::asked_for(&self.packed).is_none()
    }
}

impl Authority {
    pub fn new(name: &str, random: &mut Random) -> Authority {
        let key = der::key_info(&point(random));
        let certificate = Certificate {
            issuer: name,
            organization: "",
            common_name: name,
            key: &key,
            from_us: super::world::EPOCH_US - YEAR_US,
            until_us: super::world::EPOCH_US + 9 * YEAR_US,
            serial: random.next() >> 1,
        };
        Authority { name: name.to_owned(), der: certificate.der(), key: key.clone() }
    }
}

/// Another key.
pub fn point(random: &mut Random) -> Point {
    let mut point = [4; 65];
    point[1..].chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_be_bytes()));
    point
}

impl Cluster {
    pub fn new(life_us: i64, mut random: Random) -> Cluster {
        let authority = Authority::new("kubernetes", &mut random);
        Cluster {
            api: ModelServer::default(),
            serves: authority.clone(),
            signs: authority.clone(),
            accepts: vec![authority.clone()],
            own: vec![authority.clone()],
            pinned: vec![pin(&authority)],
            published: vec![authority],
            token_until_us: Some(i64::MAX),
            is_anonymous_refused: false,
            approver: Approver::Prompt,
            signer: Signer::Prompt,
            life_us,
            signer_gap_us: 0,
            signer_free_us: 0,
            asked: BTreeMap::new(),
            issued: BTreeMap::new(),
            taken: BTreeSet::new(),
            revoked: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            unproven: BTreeSet::new(),
            created_us: Vec::new(),
            supervisor: None,
            counted: 0,
            random,
        }
    }

    pub fn is_token_live(&self, now_us: i64) -> bool {
        self.token_until_us.is_some_and(|until_us| now_us < until_us)
    }

    /// Whether this certificate of a Node is taken now.
    pub fn accepts(&self, leaf: &[u8], now_us: i64) -> Option<&Issued> {
        let issued = self.issued.get(leaf).filter(|issued| (issued.from_us..issued.until_us).contains(&now_us))?;
        self.accepts.iter().any(|authority| authority.name == issued.authority).then_some(issued)
    }

    /// Whether a certificate for this key was issued that nobody takes any more.
    pub fn has_ended(&self, key: &[u8], now_us: i64) -> bool {
        self.issued.iter().any(|(leaf, issued)| issued.key == key && self.accepts(leaf, now_us).is_none())
    }

    /// `leaf`: the client certificate of the connection.
    pub fn answer(&mut self, request: &Request, leaf: Option<&[u8]>, now_us: i64) -> Response {
        let bearer = request.header("authorization");
        let node = match (leaf, bearer) {
            (Some(leaf), _) => match self.accepts(leaf, now_us).map(|issued| issued.node.clone()) {
                Some(node) => {
                    self.taken.insert(leaf.to_vec());
                    Some(node)
                }
                None => return self.refuse(request, Problem::unauthorized(), now_us),
            },
            (None, Some(bearer)) if bearer == format!("Bearer {TOKEN}") && self.is_token_live(now_us) => None,
            (None, Some(_)) => return self.refuse(request, Problem::unauthorized(), now_us),
            (None, None) => return self.answer_nobody(request, now_us),
        };
        if let Some(rest) = request.path.strip_prefix(REQUESTS) {
            let result = match (request.method.as_str(), rest.strip_prefix('/')) {
                ("POST", None) => self.create(request, node.as_deref(), now_us),
                ("GET", Some(name)) => {
                    self.settle(name, now_us);
                    self.found(name).map(|object| (200, object))
                }
                _ => Err(Problem::method_not_allowed()),
            };
            return self.api.show(request, result, now_us);
        }
        match node {
            Some(node) if self.is_revoked(&node, request) => self.refuse(request, revoked(), now_us),
            Some(node) => self.api.answer(request, &Caller::Node(node), now_us),
            None if request.method == "GET" && request.path.starts_with("/api/v1/nodes/") => {
                self.api.answer(request, &Caller::Admin, now_us)
            }
            None => self.refuse(request, forbidden("system:bootstrap:fleet1"), now_us),
        }
    }

    fn is_revoked(&self, node: &str, request: &Request) -> bool {
        request.method != "GET" && !request.path.contains("/events") && self.revoked.contains(node)
    }

    fn refuse(&mut self, request: &Request, problem: Problem, now_us: i64) -> Response {
        self.api.show(request, Err(problem), now_us)
    }

    fn answer_nobody(&mut self, request: &Request, now_us: i64) -> Response {
        let result = match request.path.as_str() {
            _ if self.is_anonymous_refused => Err(Problem::unauthorized()),
            CLUSTER_INFO => Ok((200, self.cluster_info(&self.published, Some(SECRET), now_us))),
            _ => Err(forbidden("system:anonymous")),
        };
        self.api.show(request, result, now_us)
    }

    /// As the bootstrap signer, or somebody else who knows a secret, makes it.
    pub fn cluster_info(&self, authorities: &[Authority], secret: Option<&str>, now_us: i64) -> Value {
        let bundle: Vec<Vec<u8>> = authorities.iter().map(|authority| authority.der.clone()).collect();
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: https://10.0.0.1:6443\n  \
             name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
            STANDARD.encode(der::pem(&bundle))
        );
        let mut data = json!({ "kubeconfig": kubeconfig });
        if let Some(secret) = secret.filter(|_| self.is_token_live(now_us)) {
            data[format!("jws-kubeconfig-{TOKEN_ID}")] = json!(der::signature(&kubeconfig, TOKEN_ID, secret));
        }
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "cluster-info" }, "data": data })
    }

    fn create(&mut self, request: &Request, node: Option<&str>, now_us: i64) -> Result<(u16, Value), Problem> {
        let body: Value =
            serde_json::from_slice(&request.body).map_err(|error| Problem::bad_request(error.to_string()))?;
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let packed = body["spec"]["request"].as_str().unwrap_or_default().to_owned();
        let asked = der::asked_for(&packed).filter(|_| body["spec"]["signerName"] == SIGNER);
        let Some((common_name, key)) = asked else {
            return Err(Problem::invalid(Resource::Nodes, &name, "spec.request: Invalid value"));
        };
        let wanted = common_name.strip_prefix("system:node:").unwrap_or_default().to_owned();
        if node.is_some_and(|node| node != wanted) {
            return Err(forbidden("a node can only create a node CSR with its own CN"));
        }
        if node.is_some_and(|node| self.revoked.contains(node)) {
            return Err(revoked());
        }
        self.settle(&name, now_us);
        if self.asked.contains_key(&name) {
            return Err(Problem::already_exists(Resource::Nodes, &name));
        }
        self.add(&name, packed, wanted, key, now_us);
        self.found(&name).map(|object| (201, object))
    }

    fn add(&mut self, name: &str, packed: String, node: String, key: Vec<u8>, now_us: i64) {
        self.counted += 1;
        self.created_us.push(now_us);
        let prompt_us = now_us + self.random.between(50_000, 150_000) as i64;
        let decides = match self.approver {
            Approver::Prompt => Some((prompt_us, true)),
            Approver::Slow => Some((now_us + self.random.between(2, 1800) as i64 * SECOND_US, true)),
            Approver::Absent => None,
            Approver::Denies => Some((prompt_us, false)),
        };
        let asked = Asked {
            uid: format!("u-{}", self.counted),
            version: self.counted,
            packed,
            node,
            key,
            created_us: now_us,
            decided: None,
            decides,
            signs_at_us: None,
            failed_us: None,
            certificate: None,
        };
        self.asked.insert(name.to_owned(), asked);
    }

    fn found(&self, name: &str) -> Result<Value, Problem> {
        let asked = self.asked.get(name).ok_or_else(|| Problem::not_found(Resource::Nodes, name))?;
        let condition =
            |kind: &str| json!({ "type": kind, "status": "True", "reason": "Somebody", "message": "said so" });
        let mut conditions = Vec::new();
        if let Some((_, is_approved)) = asked.decided {
            conditions.push(condition(if is_approved { "Approved" } else { "Denied" }));
        }
        conditions.extend(asked.failed_us.map(|_| condition("Failed")));
        let mut status = json!({ "conditions": conditions });
        if let Some(certificate) = &asked.certificate {
            status["certificate"] = json!(STANDARD.encode(der::pem(std::slice::from_ref(certificate))));
        }
        Ok(json!({
            "kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1",
            "metadata": {
                "name": name, "uid": asked.uid, "resourceVersion": asked.version.to_string(),
                "creationTimestamp": stamp::seconds(asked.created_us),
            },
            "spec": { "request": asked.packed, "signerName": SIGNER, "usages": ["digital signature", "client auth"] },
            "status": status,
        }))
    }

    /// Approver, signer and cleaner do what is due.
    pub fn tick(&mut self, now_us: i64) {
        let names: Vec<String> = self.asked.keys().cloned().collect();
        names.iter().for_each(|name| self.settle(name, now_us));
    }

    /// The same for one request.
    fn settle(&mut self, name: &str, now_us: i64) {
        let Some(mut asked) = self.asked.remove(name) else { return };
        self.decide(&mut asked, now_us);
        self.sign(&mut asked, now_us);
        let denied_us = asked.decided.filter(|(_, is_approved)| !is_approved).map(|(at_us, _)| at_us);
        let ended_us = asked.failed_us.or(denied_us).or(asked.certificate.as_ref().and(asked.signs_at_us));
        let cleaned_us = ended_us.map_or(asked.created_us + 24 * HOUR_US, |ended_us| ended_us + HOUR_US);
        if now_us < cleaned_us {
            self.asked.insert(name.to_owned(), asked);
        }
    }

    fn decide(&mut self, asked: &mut Asked, now_us: i64) {
        if asked.decided.is_none() && asked.decides.is_none() && self.approver == Approver::Prompt {
            asked.decides = Some((now_us, true));
        }
        if let (None, Some((at_us, is_approved))) = (asked.decided, asked.decides)
            && at_us <= now_us
        {
            asked.decided = Some((at_us, is_approved));
            let slow_us = self.random.between(1, 3600) as i64 * SECOND_US;
            let delay_us = if self.signer == Signer::Slow { slow_us } else { 50_000 };
            let signs_at_us = (at_us + delay_us).max(self.signer_free_us);
            asked.signs_at_us = is_approved.then_some(signs_at_us);
            self.signer_free_us = signs_at_us + self.signer_gap_us;
            self.counted += 1;
            asked.version = self.counted;
        }
    }

    fn sign(&mut self, asked: &mut Asked, now_us: i64) {
        let Some(at_us) = asked.signs_at_us.filter(|at_us| *at_us <= now_us) else { return };
        if asked.certificate.is_some() || asked.failed_us.is_some() {
            return;
        }
        self.counted += 1;
        asked.version = self.counted;
        if self.signer == Signer::Fails {
            asked.failed_us = Some(at_us);
            return;
        }
        let (mut key, mut node, mut authority) = (asked.key.clone(), asked.node.clone(), self.signs.clone());
        match self.signer {
            Signer::OfAnotherKey => key = der::key_info(&point(&mut self.random)),
            Signer::OfAnotherName => node.push_str("-other"),
            Signer::OfAnotherCa => {
                authority = Authority::new("another", &mut self.random);
                self.unproven.insert(asked.key.clone());
            }
            Signer::Prompt | Signer::Slow | Signer::Fails => {}
        }
        if !matches!(self.signer, Signer::Prompt | Signer::Slow) {
            self.spoiled.insert(asked.key.clone());
        }
        let until_us = at_us + self.life_us;
        asked.certificate = Some(self.issue_of(&authority, &node, &key, (self.dated_from(until_us), until_us)));
    }

    /// A certificate that ends then.
    pub fn issue(&mut self, node: &str, key: &[u8], until_us: i64) -> Vec<u8> {
        self.issue_of(&self.signs.clone(), node, key, (self.dated_from(until_us), until_us))
    }

    fn dated_from(&self, until_us: i64) -> i64 {
        until_us - self.life_us - DATED_BACK_US
    }

    pub fn issue_of(
        &mut self,
        authority: &Authority,
        node: &str,
        key: &[u8],
        (from_us, until_us): (i64, i64),
    ) -> Vec<u8> {
        self.counted += 1;
        let common_name = format!("system:node:{node}");
        let certificate = Certificate {
            issuer: &authority.name,
            organization: "system:nodes",
            common_name: &common_name,
            key,
            from_us,
            until_us,
            serial: self.counted,
        };
        let (der, authority) = (certificate.der(), authority.name.clone());
        let issued = Issued { node: node.to_owned(), key: key.to_vec(), from_us, until_us, authority };
        self.issued.insert(der.clone(), issued);
        der
    }

    /// Somebody takes the request away, and where `is_taken` puts one of their own there.
    pub fn disturb(&mut self, is_taken: bool, now_us: i64) {
        let Some((name, asked)) = self.asked.pop_first() else { return };
        if is_taken {
            self.spoiled.insert(asked.key);
            let key = der::key_info(&point(&mut self.random));
            self.add(&name, STANDARD.encode("no request"), asked.node, key, now_us);
        }
    }

    /// There will be another CA. `is_pinned`: its key is on the cards already.
    pub fn will_rotate(&mut self, is_pinned: bool) {
        let next = Authority::new("kubernetes-2", &mut self.random);
        if is_pinned {
            self.pinned.push(pin(&next));
        }
        self.own.push(next);
    }

    pub fn rotate(&mut self, step: Step) {
        let Some(next) = self.own.last().cloned() else { return };
        match step {
            Step::Both => (self.published, self.accepts) = (self.own.clone(), self.own.clone()),
            Step::Switch => (self.serves, self.signs) = (next.clone(), next),
            Step::New => (self.published, self.accepts) = (vec![next.clone()], vec![next]),
        }
    }

    /// From now on all is well; what was spoiled is gone.
    pub fn make_peace(&mut self) {
        (self.approver, self.signer, self.token_until_us) = (Approver::Prompt, Signer::Prompt, Some(i64::MAX));
        self.is_anonymous_refused = self.supervisor.is_some();
        // Somebody has deleted the Secrets with the passwords of boards that are others by now.
        self.supervisor.iter_mut().for_each(|supervisor| supervisor.node_passwords.clear());
    }
}

/// SHA-256 of a key, as a pin has it.
fn pin(authority: &Authority) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, &authority.key);
    let mut pin = [0; 32];
    pin.copy_from_slice(digest.as_ref());
    pin
}

fn forbidden(who: &str) -> Problem {
    Problem::forbidden(Resource::Nodes, "", who)
}

/// By the admission policy (REV-1).
fn revoked() -> Problem {
    Problem::invalid(Resource::Nodes, "", "this node's identity is revoked")
}
