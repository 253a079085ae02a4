//! Turns the text of a kubeconfig into the server and the credentials of one context.
//!
//! Keys that are not named here are other people's and are skipped, as client-go skips them. What would change who the
//! agent is, or whom it trusts, and cannot be honoured, is refused.

mod server;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::field::Field;
use super::limits;
use super::problem::{Origin, Problem};
use super::yaml::{self, Content, Value};

pub(super) use server::parse_proxy;
pub use server::parse_server;

/// What one context of a kubeconfig says, files not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    pub server: Server,
    /// More API servers of the same cluster, in the order in which they are tried; at most [`limits::JOIN_SERVERS`].
    pub other_servers: Vec<Server>,
    /// The control plane's own addresses, as a board that has joined learned them: asked when none of those answers for long;
    /// at most [`limits::LAST_RESORTS`].
    pub last_resorts: Vec<Server>,
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
        if self.port == 443 { self.bracketed() } else { self.with_port() }
    }

    /// `host:port`, IPv6 in brackets.
    pub fn with_port(&self) -> String {
        [&self.bracketed(), ":", &self.port.to_string()].concat()
    }

    /// Where the API is beside a supervisor. `ports`: of the supervisor, and of the API.
    pub fn of_api(self, ports: Option<(u16, u16)>) -> Server {
        match ports {
            Some((supervisor, port)) if self.port == supervisor => Server { port, ..self },
            _ => self,
        }
    }

    /// Each once, in their order; at most [`limits::JOIN_SERVERS`].
    pub fn without_repeats(servers: &mut dyn Iterator<Item = Server>) -> Vec<Server> {
        let mut each: Vec<Server> = Vec::new();
        for server in servers.take(limits::JOIN_SERVERS) {
            if !each.contains(&server) {
                each.push(server);
            }
        }
        each
    }

    /// The servers of a cluster that is `known` by these, where the settings name others by now: those first (JOIN-7).
    pub fn moved(known: &[Server], named: &[Server]) -> Option<Vec<Server>> {
        let has_first = known.first().is_some_and(|first| named.contains(first));
        let is_new = named.iter().any(|server| !known.contains(server)) || !(has_first || named.is_empty());
        is_new.then(|| Server::without_repeats(&mut named.iter().chain(known).cloned()))
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
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
    /// That of a board which has yet to join: nothing can be asked with it.
    pub fn of_nobody() -> Kubeconfig {
        Kubeconfig {
            server: Server { host: "not-joined.invalid".to_owned(), port: 443, path_prefix: String::new() },
            other_servers: Vec::new(),
            last_resorts: Vec::new(),
            certificate_authority: Some(Material::Data(Vec::new())),
            tls_server_name: None,
            proxy: None,
            credentials: Credentials::Anonymous,
            context: String::new(),
            path: String::new(),
        }
    }

    /// All API servers, in the order in which they are tried, but the last resorts.
    pub fn servers(&self) -> impl Iterator<Item = &Server> + Clone {
        std::iter::once(&self.server).chain(&self.other_servers)
    }

    /// The last resorts come after all others.
    pub fn server_at(&self, place: usize) -> Option<&Server> {
        self.servers().chain(&self.last_resorts).nth(place)
    }

    /// The same with this server alone.
    pub fn with_server(self, server: Server) -> Kubeconfig {
        Kubeconfig { server, other_servers: Vec::new(), last_resorts: Vec::new(), ..self }
    }

    /// Whether they differ in nothing but the last resorts: what was opened by the one serves the other.
    pub fn is_like(&self, other: &Kubeconfig) -> bool {
        *self == Kubeconfig { last_resorts: self.last_resorts.clone(), ..other.clone() }
    }

    /// Reads the file's `current-context`. Relative paths are joined to the folder of `path`, where the kubeconfig stands.
    /// JSON is read as well: it is YAML.
    pub fn parse(text: &str, path: &str) -> Result<Kubeconfig, Problem> {
        let origin = Origin::File(path.to_owned());
        let (tree, problems) = yaml::parse(text);
        let file = checked(Field::of_file(&origin, &tree), problems.into_iter().next())?;
        let name = file.at("current-context").text()?.ok_or_else(|| file.problem(no_context(&file)))?;
        let context = entry(&file, "contexts", "context", name)?;
        let cluster_name = required(&context.at("cluster"))?;
        let cluster = entry(&file, "clusters", "cluster", cluster_name)?;
        let credentials = match context.at("user").text()? {
            Some(user) => credentials(&entry(&file, "users", "user", user)?)?,
            None => Credentials::Anonymous,
        };
        let unverified = cluster.at("insecure-skip-tls-verify");
        if !matches!(unverified.text()?, None | Some("false" | "False" | "FALSE")) {
            return Err(unverified.problem(UNVERIFIED));
        }
        let server = cluster.at("server");
        let proxy = cluster.at("proxy-url");
        let certificate_authority = material(&cluster, "certificate-authority")?;
        Ok(Kubeconfig {
            server: parse_server(required(&server)?).map_err(|wrong| server.problem(wrong))?,
            other_servers: other_servers(&file, cluster_name, certificate_authority.as_ref()),
            last_resorts: last_resorts(&file, cluster_name),
            certificate_authority,
            tls_server_name: cluster.at("tls-server-name").text()?.map(str::to_owned),
            proxy: proxy.text()?.map(parse_proxy).transpose().map_err(|wrong| proxy.problem(wrong))?,
            credentials,
            context: name.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// Those of clusters whose name is `name-NUMBER` and whose CA is the same, as a board that joins writes them: in the kubeconfig of
/// an administrator other clusters are other clusters.
fn other_servers(file: &Field<'_>, name: &str, authority: Option<&Material>) -> Vec<Server> {
    let is_number = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
    let is_alternative = |item: &Field<'_>| {
        let rest = name_of(item.value).and_then(|other| other.strip_prefix(name)?.strip_prefix('-'));
        rest.is_some_and(is_number) && authority.is_some()
    };
    let server = |item: Field<'_>| {
        let cluster = item.at("cluster");
        let is_same = material(&cluster, "certificate-authority").ok()?.as_ref() == authority;
        parse_server(cluster.at("server").text().ok()??).ok().filter(|_| is_same)
    };
    file.at("clusters").items().filter(is_alternative).filter_map(server).take(limits::JOIN_SERVERS).collect()
}

/// Behind the name of the cluster that they belong to, before a number.
pub const LAST_RESORT: &str = "-last-resort-";

/// Those of clusters of that name which say where they are and nothing else.
fn last_resorts(file: &Field<'_>, name: &str) -> Vec<Server> {
    let is_one = |item: &Field<'_>| {
        let number = name_of(item.value).and_then(|other| other.strip_prefix(name)?.strip_prefix(LAST_RESORT));
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    let server = |item: Field<'_>| parse_server(item.at("cluster").at("server").text().ok()??).ok();
    file.at("clusters").items().filter(is_one).filter_map(server).take(limits::LAST_RESORTS).collect()
}

/// Server and CA of every cluster that a kubeconfig names, in its order; contexts and users need not be there. Relative paths
/// as for [`Kubeconfig::parse`].
pub fn clusters(text: &str, path: &str) -> Result<Vec<(Server, Option<Material>)>, Problem> {
    let origin = Origin::File(path.to_owned());
    let (tree, problems) = yaml::parse(text);
    let file = checked(Field::of_file(&origin, &tree), problems.into_iter().next())?;
    let read = |item: Field<'_>| {
        let cluster = item.at("cluster");
        let server = cluster.at("server");
        let parsed = parse_server(required(&server)?).map_err(|wrong| server.problem(wrong))?;
        Ok((parsed, material(&cluster, "certificate-authority")?))
    };
    file.at("clusters").items().take(limits::JOIN_SERVERS).map(read).collect()
}

const UNVERIFIED: &str = "is refused: anybody between this board and the server could take over the node; remove it and set \
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

fn credentials(user: &Field<'_>) -> Result<Credentials, Problem> {
    for (name, why) in REFUSED {
        if user.value.get(name).is_some_and(|value| value.as_text() != Some("")) {
            return Err(user.at(name).problem(why));
        }
    }
    match (material(user, "client-certificate")?, material(user, "client-key")?) {
        (Some(certificate), Some(key)) => return Ok(Credentials::Certificate { certificate, key }),
        (Some(_), None) => return Err(user.at("client-key").problem(HALF_A_CERTIFICATE)),
        (None, Some(_)) => return Err(user.at("client-certificate").problem(HALF_A_CERTIFICATE)),
        (None, None) => {}
    }
    // Where both are given the file wins, as in client-go: it is the one that is renewed.
    if let Some(path) = user.at("tokenFile").path()? {
        return Ok(Credentials::Token(Material::File(path)));
    }
    let token = user.at("token");
    match token.text()? {
        Some(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Credentials::Token(Material::Data(text.as_bytes().to_vec())))
        }
        Some(_) => Err(token.problem("has spaces or characters that no token has")),
        None => Ok(Credentials::Anonymous),
    }
}

/// The file, where it is YAML and of this kind; `first` is what is wrong with the YAML, and in which line.
fn checked<'a>(file: Field<'a>, first: Option<(u32, String)>) -> Result<Field<'a>, Problem> {
    if let Some((line, wrong)) = first {
        return Err(Problem { line, ..file.problem(wrong) });
    }
    check_kind(&file)?;
    Ok(file)
}

fn check_kind(file: &Field<'_>) -> Result<(), Problem> {
    let not = |found: &str| format!("not a kubeconfig (kind Config) but {found}");
    if !matches!(file.value.content, Content::Map(_)) {
        return Err(file.problem(not(file.value.kind())));
    }
    let kind = file.at("kind");
    match kind.text()? {
        None | Some("Config") => Ok(()),
        Some(other) => Err(kind.problem(not(&format!("kind {other}")))),
    }
}

fn no_context(file: &Field<'_>) -> String {
    match names(&file.at("contexts")) {
        names if names.is_empty() => "no context: is this file a kubeconfig?".to_owned(),
        names => format!("no current-context: set it to one of {names}"),
    }
}

fn required<'a>(field: &Field<'a>) -> Result<&'a str, Problem> {
    field.text()?.ok_or_else(|| field.problem("is missing"))
}

/// Data in the file (the key with `-data` behind it), or else the path of a file.
fn material(section: &Field<'_>, key: &str) -> Result<Option<Material>, Problem> {
    let data = section.at(&format!("{key}-data"));
    if let Some(text) = data.text()? {
        let packed: String = text.split_ascii_whitespace().collect();
        let not_base64 = "is not base64: take the output of `base64 -w0 FILE`";
        return Ok(Some(Material::Data(STANDARD.decode(packed).map_err(|_| data.problem(not_base64))?)));
    }
    Ok(section.at(key).path()?.map(Material::File))
}

fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_text()
}

fn names(list: &Field<'_>) -> String {
    let names: Vec<&str> = list.value.items().iter().filter_map(name_of).take(10).collect();
    names.join(", ")
}

/// The map below `key` of the entry of that name in a list of the file.
fn entry<'a>(file: &Field<'a>, list: &str, key: &str, name: &str) -> Result<Field<'a>, Problem> {
    let list = file.at(list);
    let Some(item) = list.items().find(|item| name_of(item.value) == Some(name)) else {
        return Err(list.problem(match names(&list) {
            names if names.is_empty() => format!("no entry is named {name:?}: the list is empty"),
            names => format!("no entry is named {name:?}; there are {names}"),
        }));
    };
    let section = Field { name: format!("{}[{name}]", list.name), ..item }.at(key);
    match section.value.content {
        Content::Map(_) | Content::Nothing => Ok(section),
        _ => Err(section.problem(format!("must be a map, not {}", section.value.kind()))),
    }
}
