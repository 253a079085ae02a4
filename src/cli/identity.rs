//! Turns the files of a board's identity into who it is, by whom, until when, and when that is renewed; never into its key.

use std::io::ErrorKind;

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::args::Sources;
use super::colour::{RED, RESET, YELLOW};
use super::commands::exit;
use super::error::CliError;
use super::load;
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, Server, clusters};
use crate::config::plain_text::line;
use crate::config::{Settings, limits};
use crate::identity::files::{NODE, NodePem, PENDING, Pending};
use crate::identity::supervisor::Distribution;
use crate::identity::{Renewal, SigningRequest, certificate, pem};
use crate::io::identity::{KUBECONFIG, LEFT, kept_in, password_in};
use crate::io::{clock, file};
use crate::time::Wall;

/// What the files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What is used; `None`: there is none.
    pub certificate: Option<Certificate>,
    /// A request that is under way.
    pub pending: Option<Request>,
    /// `HOST:PORT`, in the order in which they are tried.
    servers: Vec<String>,
    /// Port of the supervisor that gives the certificates out; `None`: the API server does.
    supervisor: Option<u16>,
    /// `rotateCertificates`.
    is_renewed: bool,
    /// The board was told to leave its cluster.
    pub has_left: bool,
}

/// A certificate, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// NAME of `system:node:NAME`; `None`: it is for no Node.
    pub node: Option<String>,
    issuer: Option<String>,
    /// Of the answer that brought it, where that is known.
    received: Option<Wall>,
    pub life: Renewal,
    /// Paths of certificate and key, or of the kubeconfig that holds them.
    file: String,
    key: String,
}

/// A key that waits for its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    node: String,
    /// Of the CertificateSigningRequest: the key's fingerprint.
    name: String,
}

/// Everything that the files of these settings say.
pub fn read(sources: &Sources) -> Result<Identity, CliError> {
    let settings = load::settings(sources)?.settings;
    let folder = load::identity_folder(&settings);
    may_look_into(&folder)?;
    let kubeconfig = match load::kubeconfig_path(&settings) {
        Ok(_) => Some(load::kubeconfig(&settings)?),
        Err(_) => None,
    };
    let given = kubeconfig.as_ref().map(of_kubeconfig).transpose()?.flatten();
    let own = kept_in(&folder).map_or_else(|| damaged(&folder), |own| Ok(Some(own)))?;
    let own = own.and_then(|own| {
        let path = format!("{folder}/{NODE}");
        Certificate::of(own.chain.first()?, own.received, path.clone(), path)
    });
    let pending = read_if_there(&format!("{folder}/{PENDING}"))?.and_then(|text| Request::read(&text));
    Ok(Identity {
        certificate: newer(given, own),
        pending,
        servers: servers(&settings, kubeconfig.as_ref()),
        supervisor: password_in(&folder).map(|known| known.port),
        is_renewed: settings.rotate_certificates,
        has_left: read_if_there(&format!("{folder}/{LEFT}"))?.is_some(),
    })
}

/// A given certificate goes before our own, unless ours is its successor: the same Node, and a later end (ROT-7).
fn newer(given: Option<Certificate>, own: Option<Certificate>) -> Option<Certificate> {
    match (given, own) {
        (Some(given), Some(own)) if own.node == given.node && own.life.end >= given.life.end => Some(own),
        (Some(given), _) => Some(given),
        (None, own) => own,
    }
}

/// Nothing, or why that is so although there is a file.
fn damaged(folder: &str) -> Result<Option<NodePem>, CliError> {
    let path = format!("{folder}/{NODE}");
    let read = read_if_there(&path)?.map(|text| NodePem::read(&text)).transpose();
    read.map_err(|wrong| CliError::new(exit::SOFTWARE, format!("{path}: {wrong}")))
}

/// Those of the kubeconfig, the one in use first; without one, those that the settings name.
fn servers(settings: &Settings, kubeconfig: Option<&Kubeconfig>) -> Vec<String> {
    if let Some(kubeconfig) = kubeconfig {
        return kubeconfig.servers().map(Server::authority).collect();
    }
    let path = format!("{}/{KUBECONFIG}", load::identity_folder(settings));
    let text = file::read_text(&path, limits::SETTINGS_FILE_BYTES).ok();
    let joined = text.and_then(|text| clusters(&text, &path).ok()).filter(|joined| !joined.is_empty());
    match joined {
        Some(joined) => joined.iter().map(|(server, _)| server.authority()).collect(),
        None => settings.servers.iter().map(Server::authority).collect(),
    }
}

/// The client certificate of a kubeconfig, if it has one that can be read.
fn of_kubeconfig(kubeconfig: &Kubeconfig) -> Result<Option<Certificate>, CliError> {
    let Credentials::Certificate { certificate, key } = &kubeconfig.credentials else { return Ok(None) };
    let path = |material: &Material| material.path().unwrap_or(&kubeconfig.path).to_owned();
    let text = match certificate {
        Material::Data(bytes) => Zeroizing::new(bytes.clone()),
        Material::File(path) => match read_if_there(path)? {
            Some(text) => text,
            None => return Ok(None),
        },
    };
    let received = NodePem::read(&text).ok().and_then(|own| own.received);
    let leaf = pem::certificates(&text).next();
    Ok(leaf.and_then(|leaf| Certificate::of(&leaf, received, path(certificate), path(key))))
}

impl Certificate {
    fn of(leaf: &[u8], received: Option<Wall>, file: String, key: String) -> Option<Certificate> {
        let life = Renewal::of(leaf, received)?;
        let [node, issuer] =
            [certificate::node_name(leaf), certificate::issuer(leaf)].map(|text| text.map(str::to_owned));
        Some(Certificate { node, issuer, received, life, file, key })
    }
}

impl Request {
    fn read(text: &[u8]) -> Option<Request> {
        let Pending { node, key } = Pending::read(text).ok()?;
        let name = SigningRequest::new(&node, key.point()?).name();
        Some(Request { node, name })
    }
}

/// What a user may not see is not absent.
fn may_look_into(folder: &str) -> Result<(), CliError> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(hidden(folder)),
        _ => Ok(()),
    }
}

fn hidden(path: &str) -> CliError {
    let text = format!("{path} may not be read by this user: run as root (ls -ld {path} shows whose it is)");
    CliError::new(exit::NO_PERMISSION, text)
}

/// `None` where nothing is; what may not be read says so.
fn read_if_there(path: &str) -> Result<Option<Zeroizing<Vec<u8>>>, CliError> {
    match file::read(path, limits::CREDENTIAL_FILE_BYTES) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(file::Unreadable::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(file::Unreadable::Io(error)) if error.kind() == ErrorKind::PermissionDenied => Err(hidden(path)),
        Err(why) => Err(CliError::new(exit::SOFTWARE, format!("cannot read {path}: {why}"))),
    }
}

impl Identity {
    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut say = |what: &str, value: &str| text += &format!("{what:<12} {}\n", line(value));
        match &self.certificate {
            None if self.has_left => say("node", "none: this board has left its cluster, until: nodepulse join SERVER"),
            None => say("node", "none: this board has no certificate"),
            Some(certificate) => {
                say("node", certificate.node.as_deref().unwrap_or("none: the certificate is for no Node"));
                say("issuer", certificate.issuer.as_deref().unwrap_or("unknown"));
                say("received", &certificate.received.map_or("unknown".to_owned(), Wall::to_seconds_stamp));
                say("ends", &certificate.life.end.to_string());
                let due = certificate.life.due;
                let renewed =
                    if self.is_renewed { due.to_string() } else { "never: rotateCertificates is false".to_owned() };
                say("renewed", &renewed);
                say("certificate", &certificate.file);
                say("key", &certificate.key);
            }
        }
        if !self.servers.is_empty() {
            say("servers", &self.servers.join(", "));
        }
        if let Some(port) = self.supervisor {
            let name = Distribution::of(port).name();
            say("supervisor", &format!("{name}, port {port}: the certificates come from it"));
        }
        if let Some(Request { node, name }) = &self.pending {
            say(
                "waiting",
                &match self.supervisor {
                    Some(_) => format!("{node}, for its supervisor"),
                    None => format!("{node}, for: kubectl certificate approve {name}"),
                },
            );
        }
        let now = clock::now().wall;
        let ended = self.certificate.as_ref().filter(|certificate| now.is_some_and(|now| certificate.life.end < now));
        let warned = self.certificate.as_ref().filter(|of| now.is_some_and(|now| of.life.warned_from() < now));
        match (ended, warned) {
            (Some(_), _) => text + &format!("{RED}expired{RESET}\n"),
            (None, Some(_)) => text + &format!("{YELLOW}expires soon{RESET}\n"),
            (None, None) => text,
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let stamp = |wall: Wall| wall.to_seconds_stamp();
        json!({
            "certificate": self.certificate.as_ref().map(|of| json!({
                "node": of.node,
                "issuer": of.issuer,
                "received": of.received.map(stamp),
                "begins": stamp(of.life.start),
                "ends": stamp(of.life.end),
                "renewed": self.is_renewed.then(|| stamp(of.life.due)),
                "certificateFile": of.file,
                "keyFile": of.key,
            })),
            "pending": self.pending.as_ref().map(|of| json!({"node": of.node, "request": of.name})),
            "servers": self.servers,
            "supervisor": self.supervisor.map(|port| json!({"program": Distribution::of(port).name(), "port": port})),
            "left": self.has_left,
        })
    }
}
