//! Turns the text of a kubeconfig into the server and the credentials of one context.

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
