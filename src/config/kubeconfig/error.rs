//! Turns what is wrong with a kubeconfig into a word and a sentence.

use std::fmt;

use super::server::ServerError;
use crate::config::yaml;

/// What is wrong with a kubeconfig, and where; the caller names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigError {
    /// Counts from 1; 0 where no line is to blame.
    pub line: u32,
    /// `users[NAME].user.exec`; empty where the whole file is to blame.
    pub field: String,
    pub why: Why,
}

/// The reason, as a machine word ([`Why::word`]) and a sentence (`Display`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Yaml(yaml::Why),
    /// Holds what the file is instead.
    NotAKubeconfig(String),
    /// No context asked for and no `current-context`; holds the names that there are.
    NoContext(String),
    NoSuchName {
        name: String,
        known: String,
    },
    Missing,
    NotText(&'static str),
    NotAMap(&'static str),
    NotBase64,
    Server(ServerError),
    Proxy(ServerError),
    InsecureSkipTlsVerify,
    /// A way to log in that is not supported: the key.
    Refused(&'static str),
    HalfACertificate,
    Token,
}

impl KubeconfigError {
    pub(super) fn new(line: u32, field: &str, why: Why) -> KubeconfigError {
        KubeconfigError { line, field: field.to_owned(), why }
    }
}

impl Why {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            Why::Yaml(why) => why.word(),
            Why::NotAKubeconfig(_) => "not-a-kubeconfig",
            Why::NoContext(_) => "no-context",
            Why::NoSuchName { .. } => "no-such-name",
            Why::Missing => "missing",
            Why::NotText(_) => "not-text",
            Why::NotAMap(_) => "not-a-map",
            Why::NotBase64 => "not-base64",
            Why::Server(_) => "server-url",
            Why::Proxy(_) => "proxy-url",
            Why::InsecureSkipTlsVerify => "insecure-skip-tls-verify",
            Why::Refused(_) => "login-not-supported",
            Why::HalfACertificate => "half-a-certificate",
            Why::Token => "token",
        }
    }
}

impl fmt::Display for KubeconfigError {
    /// `12: clusters[home].cluster.server: ...`, to stand after the path and a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}: ", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.why.fmt(f)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Yaml(why) => why.fmt(f),
            Why::NotAKubeconfig(found) => write!(f, "not a kubeconfig (kind Config) but {found}"),
            Why::NoContext(known) if known.is_empty() => f.write_str("no context: is this file a kubeconfig?"),
            Why::NoContext(known) => write!(f, "no current-context: set it to one of {known}"),
            Why::NoSuchName { name, known } if known.is_empty() => {
                write!(f, "no entry is named {name:?}: the list is empty")
            }
            Why::NoSuchName { name, known } => write!(f, "no entry is named {name:?}; there are {known}"),
            Why::Missing => f.write_str("is missing"),
            Why::NotText(found) => write!(f, "must be text, not {found}"),
            Why::NotAMap(found) => write!(f, "must be a map, not {found}"),
            Why::NotBase64 => f.write_str("is not base64: take the output of `base64 -w0 FILE`"),
            Why::Server(why) | Why::Proxy(why) => why.fmt(f),
            Why::InsecureSkipTlsVerify => f.write_str(
                "is refused: whoever sits on the way could take over the node; remove it and set \
                 certificate-authority to the cluster's CA (kubectl config view --raw --minify shows it)",
            ),
            Why::Refused("exec" | "auth-provider") => f.write_str(
                "is not supported: a plugin is another program, which this board may not have; use a client \
                 certificate or a tokenFile",
            ),
            Why::Refused("username" | "password") => f.write_str(
                "is not supported, as the API server has known no passwords since 1.19; use a client certificate or a \
                 tokenFile",
            ),
            Why::Refused(_) => {
                f.write_str("is not supported: a node acts as itself; use a credential of system:node:NAME")
            }
            Why::HalfACertificate => {
                f.write_str("is missing: client-certificate and client-key belong together, each as a file or as -data")
            }
            Why::Token => f.write_str("holds blanks or characters that no token has"),
        }
    }
}

impl std::error::Error for KubeconfigError {}
