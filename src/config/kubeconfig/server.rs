//! Turns `https://host:port/prefix` into a [`Server`].

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::Server;

/// Why a URL cannot be used; the sentence says what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerError {
    /// `http://` for the API server: credentials would travel in the open.
    PlainHttp,
    Scheme(String),
    /// An HTTP proxy spoken to over something else than plain HTTP.
    ProxyScheme(String),
    /// `user:password@`.
    UserInfo,
    /// `?` or `#`, or a character that no URL has.
    Malformed,
    Host,
    Port,
}

impl ServerError {
    pub fn word(&self) -> &'static str {
        match self {
            ServerError::PlainHttp => "plain-http",
            ServerError::Scheme(_) => "scheme",
            ServerError::ProxyScheme(_) => "proxy-scheme",
            ServerError::UserInfo => "user-info",
            ServerError::Malformed => "malformed",
            ServerError::Host => "host",
            ServerError::Port => "port",
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::PlainHttp => {
                f.write_str("http:// is refused: credentials would travel in the open; write https://HOST:PORT")
            }
            ServerError::Scheme(scheme) => write!(f, "{scheme}:// is not supported; write https://HOST:PORT"),
            ServerError::ProxyScheme(scheme) => write!(
                f,
                "a proxy by {scheme}:// is not supported, only one that takes CONNECT; write http://HOST:PORT (what \
                 passes it is TLS to the API server)"
            ),
            ServerError::UserInfo => f.write_str("a user or a password in the URL is not supported; remove it"),
            ServerError::Malformed => f.write_str("must be SCHEME://HOST:PORT, without blanks, `?` or `#`"),
            ServerError::Host => f.write_str("has no valid host: write a DNS name, an IPv4 address, or [IPv6]"),
            ServerError::Port => f.write_str("has no valid port: 1 to 65535"),
        }
    }
}

/// The API server; without a scheme it is https, as in client-go.
pub(super) fn parse_server(url: &str) -> Result<Server, ServerError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    match scheme.to_ascii_lowercase().as_str() {
        "https" => parse_rest(rest, 443),
        "http" => Err(ServerError::PlainHttp),
        other => Err(ServerError::Scheme(other.chars().take(20).collect())),
    }
}

/// A proxy, always over HTTP.
pub(super) fn parse_proxy(url: &str) -> Result<Server, ServerError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    match scheme.to_ascii_lowercase().as_str() {
        "http" => parse_rest(rest, 80),
        other => Err(ServerError::ProxyScheme(other.chars().take(20).collect())),
    }
}

fn parse_rest(rest: &str, default_port: u16) -> Result<Server, ServerError> {
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte)) {
        return Err(ServerError::Malformed);
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    if authority.contains('@') {
        return Err(ServerError::UserInfo);
    }
    let (host, port) = match authority.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((inside, after))) => {
            inside.parse::<Ipv6Addr>().map_err(|_| ServerError::Host)?;
            (inside, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(ServerError::Port)?) })
        }
        Some(None) => return Err(ServerError::Host),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.parse::<IpAddr>().is_err() && !is_host_name(host) {
        return Err(ServerError::Host);
    }
    let port = match port {
        None | Some("") => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or(ServerError::Port)?
        }
        Some(_) => return Err(ServerError::Port),
    };
    Ok(Server { host: host.to_ascii_lowercase(), port, path_prefix: path.trim_end_matches('/').to_owned() })
}

/// A DNS name as resolvers take it; underscores exist in the wild, a last part of digits is a mistyped address.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let label_holds = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last_is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(label_holds) && !last_is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: &str, port: u16, path_prefix: &str) -> Result<Server, ServerError> {
        Ok(Server { host: host.to_owned(), port, path_prefix: path_prefix.to_owned() })
    }

    #[test]
    fn the_server_is_host_port_and_prefix() {
        assert_eq!(parse_server("https://10.0.0.1:6443"), server("10.0.0.1", 6443, ""));
        assert_eq!(parse_server("https://Api.Example.com/"), server("api.example.com", 443, ""));
        assert_eq!(
            parse_server("https://rancher.lan/k8s/clusters/c-1/"),
            server("rancher.lan", 443, "/k8s/clusters/c-1")
        );
        assert_eq!(parse_server("HTTPS://[2001:db8::1]:6443"), server("2001:db8::1", 6443, ""));
        assert_eq!(parse_server("https://[::1]"), server("::1", 443, ""));
        assert_eq!(parse_server("api:6443"), server("api", 6443, ""));
        assert_eq!(parse_server("https://api:"), server("api", 443, ""));
    }

    #[test]
    fn a_proxy_is_spoken_to_over_http() {
        assert_eq!(parse_proxy("http://proxy:3128"), server("proxy", 3128, ""));
        assert_eq!(parse_proxy("http://192.0.2.1"), server("192.0.2.1", 80, ""));
        assert_eq!(parse_proxy("https://proxy:3128"), Err(ServerError::ProxyScheme("https".to_owned())));
        assert_eq!(parse_proxy("socks5://proxy:1080"), Err(ServerError::ProxyScheme("socks5".to_owned())));
        assert_eq!(parse_proxy("http://me:secret@proxy:3128"), Err(ServerError::UserInfo));
    }

    #[test]
    fn every_bad_url_has_its_own_reason() {
        for (url, error) in [
            ("http://10.0.0.1:8080", ServerError::PlainHttp),
            ("unix:///run/api.sock", ServerError::Scheme("unix".to_owned())),
            ("https://me@api:6443", ServerError::UserInfo),
            ("https://api:6443?x=1", ServerError::Malformed),
            ("https://a b", ServerError::Malformed),
            ("https://api/\r\nHost: evil", ServerError::Malformed),
            ("https://\u{e9}.example", ServerError::Malformed),
            ("https://", ServerError::Host),
            ("", ServerError::Host),
            ("https://10.0.0.300:6443", ServerError::Host),
            ("https://-api-:6443", ServerError::Host),
            ("https://[fe80::1%25eth0]:6443", ServerError::Host),
            ("https://[::1", ServerError::Host),
            ("https://api:0", ServerError::Port),
            ("https://api:65536", ServerError::Port),
            ("https://api:+443", ServerError::Port),
            ("https://2001:db8::1", ServerError::Host),
            ("https://[::1]6443", ServerError::Port),
        ] {
            let found = parse_server(url).unwrap_err();
            assert_eq!(found, error, "{url}");
            assert!(!found.word().is_empty() && !found.to_string().is_empty());
        }
    }
}
