//! Turns the text of a kubeconfig into the server and the credentials of one context.
//!
//! Keys that are not named here are other people's and are skipped, as client-go skips them. What would change who the
//! agent is, or whom it trusts, and cannot be honoured, is refused.

mod server;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::problem::{Origin, Problem};
use super::setting::beside;
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

impl Material {
    /// Of the file; `None` for what stands in the kubeconfig itself.
    pub fn path(&self) -> Option<&str> {
        match self {
            Material::File(path) => Some(path),
            Material::Data(_) => None,
        }
    }
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

impl Credentials {
    /// What they are made of; the secret comes last.
    pub fn materials(&self) -> Vec<&Material> {
        match self {
            Credentials::Certificate { certificate, key } => vec![certificate, key],
            Credentials::Token(token) => vec![token],
            Credentials::Anonymous => Vec::new(),
        }
    }
}

impl Kubeconfig {
    /// Reads the file's `current-context`. Relative paths are joined to the folder of `path`, where the kubeconfig stands.
    /// JSON is read as well: it is YAML.
    pub fn parse(text: &str, path: &str) -> Result<Kubeconfig, Problem> {
        let yaml::Parsed { tree, problems } = yaml::parse(text);
        let file = Section { tree: &tree, path: String::new(), file: path };
        if let Some((line, wrong)) = problems.into_iter().next() {
            return Err(file.problem(line, "", wrong));
        }
        file.check_kind()?;
        let name = file.text("current-context")?.ok_or_else(|| file.problem(tree.line(), "", file.no_context()))?;
        let context = file.entry("contexts", "context", name)?;
        let cluster = file.entry("clusters", "cluster", context.required("cluster")?)?;
        let credentials = match context.text("user")? {
            Some(user) => credentials(&file.entry("users", "user", user)?)?,
            None => Credentials::Anonymous,
        };
        if !matches!(cluster.text("insecure-skip-tls-verify")?, None | Some("false" | "False" | "FALSE")) {
            return Err(cluster.problem_at("insecure-skip-tls-verify", UNVERIFIED));
        }
        let server = server::parse_server(cluster.required("server")?);
        let proxy = cluster.text("proxy-url")?.map(server::parse_proxy).transpose();
        Ok(Kubeconfig {
            server: server.map_err(|wrong| cluster.problem_at("server", wrong))?,
            certificate_authority: cluster.material("certificate-authority-data", "certificate-authority")?,
            tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
            proxy: proxy.map_err(|wrong| cluster.problem_at("proxy-url", wrong))?,
            credentials,
            context: name.to_owned(),
            path: path.to_owned(),
        })
    }
}

const UNVERIFIED: &str = "is refused: whoever sits on the way could take over the node; remove it and set \
    certificate-authority to the cluster's CA (kubectl config view --raw --minify shows it)";
const NO_PLUGIN: &str = "is not supported: a plugin is another program, which this board may not have; use a client \
    certificate or a tokenFile";
const NO_PASSWORD: &str = "is not supported, as the API server has known no passwords since 1.19; use a client \
    certificate or a tokenFile";
const NO_IMPERSONATION: &str = "is not supported: a node acts as itself; use a credential of system:node:NAME";

/// Ways to log in that this agent has no part for, and the reason to say so instead of trying without.
const REFUSED: [(&str, &str); 7] = [
    ("exec", NO_PLUGIN),
    ("auth-provider", NO_PLUGIN),
    ("username", NO_PASSWORD),
    ("password", NO_PASSWORD),
    ("as", NO_IMPERSONATION),
    ("as-groups", NO_IMPERSONATION),
    ("as-uid", NO_IMPERSONATION),
];

const HALF_A_CERTIFICATE: &str =
    "is missing: client-certificate and client-key belong together, each as a file or as -data";

fn credentials(user: &Section<'_>) -> Result<Credentials, Problem> {
    for (name, why) in REFUSED {
        if user.tree.get(name).is_some_and(|value| value.as_text() != Some("")) {
            return Err(user.problem_at(name, why));
        }
    }
    let certificate = user.material("client-certificate-data", "client-certificate")?;
    let key = user.material("client-key-data", "client-key")?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => return Ok(Credentials::Certificate { certificate, key }),
        (Some(_), None) => return Err(user.problem_at("client-key", HALF_A_CERTIFICATE)),
        (None, Some(_)) => return Err(user.problem_at("client-certificate", HALF_A_CERTIFICATE)),
        (None, None) => {}
    }
    // Where both are given the file wins, as in client-go: it is the one that is renewed.
    if let Some(path) = user.text("tokenFile")? {
        return Ok(Credentials::Token(Material::File(beside(user.file, path))));
    }
    match user.text("token")? {
        Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Credentials::Token(Material::Data(token.as_bytes().to_vec())))
        }
        Some(_) => Err(user.problem_at("token", "holds blanks or characters that no token has")),
        None => Ok(Credentials::Anonymous),
    }
}

/// One map of the file, and where it stands.
struct Section<'a> {
    tree: &'a Value,
    /// `clusters[home].cluster.`; empty for the file itself.
    path: String,
    /// Path of the file.
    file: &'a str,
}

impl<'a> Section<'a> {
    fn problem(&self, line: u32, field: &str, text: impl Into<String>) -> Problem {
        Problem { origin: Origin::File(self.file.to_owned()), line, field: field.to_owned(), text: text.into() }
    }

    /// What is wrong with the value of a key, or with its absence.
    fn problem_at(&self, key: &str, text: impl Into<String>) -> Problem {
        let line = self.tree.get(key).unwrap_or(self.tree).line();
        self.problem(line, &format!("{}{key}", self.path), text)
    }

    fn check_kind(&self) -> Result<(), Problem> {
        let not = |found: &str| format!("not a kubeconfig (kind Config) but {found}");
        if !matches!(self.tree, Value::Map { .. }) {
            return Err(self.problem(self.tree.line(), "", not(self.tree.kind())));
        }
        match self.text("kind")? {
            None | Some("Config") => Ok(()),
            Some(kind) => Err(self.problem_at("kind", not(&format!("kind {kind}")))),
        }
    }

    fn no_context(&self) -> String {
        match self.names("contexts") {
            names if names.is_empty() => "no context: is this file a kubeconfig?".to_owned(),
            names => format!("no current-context: set it to one of {names}"),
        }
    }

    /// The text of a key; `None` where it is absent or empty.
    fn text(&self, key: &str) -> Result<Option<&'a str>, Problem> {
        match self.tree.get(key).map(|value| value.as_text().ok_or(value.kind())) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Err(kind)) => Err(self.problem_at(key, format!("must be text, not {kind}"))),
        }
    }

    fn required(&self, key: &str) -> Result<&'a str, Problem> {
        self.text(key)?.ok_or_else(|| self.problem_at(key, "is missing"))
    }

    /// Data in the file, or else the path of a file.
    fn material(&self, data_key: &str, file_key: &str) -> Result<Option<Material>, Problem> {
        if let Some(text) = self.text(data_key)? {
            let packed: String = text.split_ascii_whitespace().collect();
            let not_base64 = "is not base64: take the output of `base64 -w0 FILE`";
            let bytes = STANDARD.decode(packed).map_err(|_| self.problem_at(data_key, not_base64))?;
            return Ok(Some(Material::Data(bytes)));
        }
        Ok(self.text(file_key)?.map(|path| Material::File(beside(self.file, path))))
    }

    fn named(&self, list: &str) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        let items = match self.tree.get(list) {
            Some(Value::List { items, .. }) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(|item| Some((item.get("name")?.as_text()?, item)))
    }

    fn names(&self, list: &str) -> String {
        let names: Vec<&str> = self.named(list).take(10).map(|(name, _)| name).collect();
        names.join(", ")
    }

    /// The map below `key` of the entry of that name in a list.
    fn entry(&self, list: &str, key: &str, name: &str) -> Result<Section<'a>, Problem> {
        let Some((_, item)) = self.named(list).find(|(known, _)| *known == name) else {
            let text = match self.names(list) {
                names if names.is_empty() => format!("no entry is named {name:?}: the list is empty"),
                names => format!("no entry is named {name:?}; there are {names}"),
            };
            return Err(self.problem_at(list, text));
        };
        let path = format!("{list}[{name}].{key}");
        match item.get(key) {
            Some(other) if !matches!(other, Value::Map { .. }) => {
                Err(self.problem(other.line(), &path, format!("must be a map, not {}", other.kind())))
            }
            found => Ok(Section { tree: found.unwrap_or(item), path: format!("{path}."), file: self.file }),
        }
    }
}
