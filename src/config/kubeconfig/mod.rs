//! Turns the text of a kubeconfig into the server and the credentials of one context.
//!
//! Keys that are not named here are other people's and are skipped, as client-go skips them. What would change who the
//! agent is, or whom it trusts, and cannot be honoured, is refused.

mod error;
mod server;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub use error::{KubeconfigError, Why};
pub use server::ServerError;

use super::scalars::{folder, joined};
use super::yaml::{self, Value};

/// What one context of a kubeconfig says, files not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    pub server: Server,
    /// `None`: the system's trusted roots.
    pub certificate_authority: Option<Material>,
    /// `tls-server-name`: the name to verify instead of the host.
    pub tls_server_name: Option<String>,
    /// `proxy-url`: an HTTP proxy to CONNECT through.
    pub proxy: Option<Server>,
    pub credentials: Credentials,
    /// Name of the context that was used.
    pub context: String,
    /// Where all this stands; empty where it is in no file.
    pub path: String,
}

/// An endpoint: `https://host:port/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// A host name or an IP literal, without brackets.
    pub host: String,
    pub port: u16,
    /// Path before `/api`, without a trailing slash; usually empty.
    pub path_prefix: String,
}

impl Server {
    /// `host:port` as a `Host` header wants it: IPv6 in brackets, default port 443 left out.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 443 { host } else { format!("{host}:{}", self.port) }
    }
}

/// Bytes that stand in the kubeconfig itself or in a file beside it.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// Absolute path, or relative to the kubeconfig's folder and already joined with it.
    File(String),
    /// Decoded from base64.
    Data(Vec<u8>),
}

impl std::fmt::Debug for Material {
    /// Never prints the bytes: they may be a private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Material::File(path) => write!(f, "File({path:?})"),
            Material::Data(bytes) => write!(f, "Data({} bytes)", bytes.len()),
        }
    }
}

/// How the agent proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    Certificate {
        certificate: Material,
        key: Material,
    },
    /// A bearer token; [`Material::File`] is read again when it changes.
    Token(Material),
    Anonymous,
}

impl Kubeconfig {
    /// Reads one context: `context`, or else the file's `current-context`. Relative paths are joined to the folder of
    /// `path`, where the kubeconfig stands. JSON is read as well: it is YAML.
    pub fn parse(text: &str, path: &str, context: Option<&str>) -> Result<Kubeconfig, KubeconfigError> {
        let parsed = yaml::parse(text);
        if let Some(problem) = parsed.problems.into_iter().next() {
            return Err(KubeconfigError::new(problem.line, "", Why::Yaml(problem.why)));
        }
        let file = Section { tree: &parsed.tree, path: String::new(), folder: folder(path) };
        file.check_kind()?;
        let name = match context {
            Some(name) => name,
            None => file.text("current-context")?.ok_or_else(|| file.error(Why::NoContext(file.names("contexts"))))?,
        };
        let context = file.entry("contexts", "context", name)?;
        let cluster_name = context.text("cluster")?.ok_or_else(|| context.error_at("cluster", Why::Missing))?;
        let cluster = file.entry("clusters", "cluster", cluster_name)?;
        let credentials = match context.text("user")? {
            Some(user) => credentials(&file.entry("users", "user", user)?)?,
            None => Credentials::Anonymous,
        };
        if cluster.is_true("insecure-skip-tls-verify")? {
            return Err(cluster.error_at("insecure-skip-tls-verify", Why::InsecureSkipTlsVerify));
        }
        let server = cluster.text("server")?.ok_or_else(|| cluster.error_at("server", Why::Missing))?;
        let proxy = cluster.text("proxy-url")?.map(server::parse_proxy).transpose();
        Ok(Kubeconfig {
            server: server::parse_server(server).map_err(|why| cluster.error_at("server", Why::Server(why)))?,
            certificate_authority: cluster.material("certificate-authority-data", "certificate-authority")?,
            tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
            proxy: proxy.map_err(|why| cluster.error_at("proxy-url", Why::Proxy(why)))?,
            credentials,
            context: name.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// Ways to log in that this agent has no part for, and the reason to say so instead of trying without.
const REFUSED: [&str; 7] = ["exec", "auth-provider", "username", "password", "as", "as-groups", "as-uid"];

fn credentials(user: &Section<'_>) -> Result<Credentials, KubeconfigError> {
    for name in REFUSED {
        if user.tree.get(name).is_some_and(|value| !matches!(value, Value::Scalar { text, .. } if text.is_empty())) {
            return Err(user.error_at(name, Why::Refused(name)));
        }
    }
    let certificate = user.material("client-certificate-data", "client-certificate")?;
    let key = user.material("client-key-data", "client-key")?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => return Ok(Credentials::Certificate { certificate, key }),
        (Some(_), None) => return Err(user.error_at("client-key", Why::HalfACertificate)),
        (None, Some(_)) => return Err(user.error_at("client-certificate", Why::HalfACertificate)),
        (None, None) => {}
    }
    // Where both are given the file wins, as in client-go: it is the one that is renewed.
    if let Some(path) = user.text("tokenFile")? {
        return Ok(Credentials::Token(Material::File(joined(user.folder, path))));
    }
    match user.text("token")? {
        Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Credentials::Token(Material::Data(token.as_bytes().to_vec())))
        }
        Some(_) => Err(user.error_at("token", Why::Token)),
        None => Ok(Credentials::Anonymous),
    }
}

/// One map of the file, and where it stands.
struct Section<'a> {
    tree: &'a Value,
    /// `clusters[home].cluster.`; empty for the file itself.
    path: String,
    folder: &'a str,
}

impl<'a> Section<'a> {
    fn error(&self, why: Why) -> KubeconfigError {
        KubeconfigError::new(self.tree.line(), "", why)
    }

    fn error_at(&self, key: &str, why: Why) -> KubeconfigError {
        let line = self.tree.get(key).unwrap_or(self.tree).line();
        KubeconfigError::new(line, &format!("{}{key}", self.path), why)
    }

    fn check_kind(&self) -> Result<(), KubeconfigError> {
        if !matches!(self.tree, Value::Map { .. }) {
            return Err(self.error(Why::NotAKubeconfig(self.tree.kind().to_owned())));
        }
        match self.text("kind")? {
            None | Some("Config") => Ok(()),
            Some(kind) => Err(self.error_at("kind", Why::NotAKubeconfig(format!("kind {kind}")))),
        }
    }

    /// The text of a key; `None` where it is absent or empty.
    fn text(&self, key: &str) -> Result<Option<&'a str>, KubeconfigError> {
        match self.tree.get(key) {
            None => Ok(None),
            Some(Value::Scalar { text, .. }) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.error_at(key, Why::NotText(other.kind()))),
        }
    }

    fn is_true(&self, key: &str) -> Result<bool, KubeconfigError> {
        match self.text(key)? {
            None | Some("false" | "False" | "FALSE") => Ok(false),
            // Whatever it is, it is not the word that keeps the server verified.
            Some(_) => Ok(true),
        }
    }

    /// Data in the file, or else the path of a file.
    fn material(&self, data_key: &str, file_key: &str) -> Result<Option<Material>, KubeconfigError> {
        if let Some(text) = self.text(data_key)? {
            let packed: String = text.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(packed).map_err(|_| self.error_at(data_key, Why::NotBase64))?;
            return Ok(Some(Material::Data(bytes)));
        }
        Ok(self.text(file_key)?.map(|path| Material::File(joined(self.folder, path))))
    }

    fn named(&self, list: &str) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        let items = match self.tree.get(list) {
            Some(Value::List { items, .. }) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(|item| match item.get("name") {
            Some(Value::Scalar { text, .. }) => Some((text.trim(), item)),
            _ => None,
        })
    }

    fn names(&self, list: &str) -> String {
        let names: Vec<&str> = self.named(list).take(10).map(|(name, _)| name).collect();
        names.join(", ")
    }

    /// The map below `key` of the entry of that name in a list.
    fn entry(&self, list: &str, key: &str, name: &str) -> Result<Section<'a>, KubeconfigError> {
        let found = self.named(list).find(|(known, _)| *known == name);
        let Some((_, item)) = found else {
            return Err(self.error_at(list, Why::NoSuchName { name: name.to_owned(), known: self.names(list) }));
        };
        let path = format!("{list}[{name}].{key}");
        match item.get(key) {
            Some(tree @ Value::Map { .. }) => Ok(Section { tree, path: format!("{path}."), folder: self.folder }),
            Some(other) => Err(KubeconfigError::new(other.line(), &path, Why::NotAMap(other.kind()))),
            None => Ok(Section { tree: item, path: format!("{path}."), folder: self.folder }),
        }
    }
}
