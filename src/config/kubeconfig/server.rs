//! Turns `https://host:port/prefix` into a [`Server`].

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Server;
use crate::config::labels::is_dns_subdomain;

/// The API server; without a scheme it is https, as in client-go. An error says what to write.
pub fn parse_server(url: &str) -> Result<Server, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    match scheme.to_ascii_lowercase().as_str() {
        "https" => parse_rest(rest, 443),
        "http" => Err("http:// is refused: credentials would be sent unencrypted; write https://HOST:PORT".to_owned()),
        other => Err(format!("{other:.20}:// is not supported; write https://HOST:PORT")),
    }
}

/// A proxy, always over HTTP.
pub(in crate::config) fn parse_proxy(url: &str) -> Result<Server, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    match scheme.to_ascii_lowercase().as_str() {
        "http" => parse_rest(rest, 80),
        other => Err(format!(
            "a proxy by {other:.20}:// is not supported, only one that knows CONNECT; write http://HOST:PORT \
             (what goes through it is encrypted up to the API server)"
        )),
    }
}

fn parse_rest(rest: &str, default_port: u16) -> Result<Server, String> {
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte)) {
        return Err("must be SCHEME://HOST:PORT, without spaces, `?` or `#`".to_owned());
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("a user or a password in the URL is not supported; remove it".to_owned());
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let (host, is_good) = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inside) => (inside, inside.parse::<Ipv6Addr>().is_ok()),
        None => (host, host.parse::<Ipv4Addr>().is_ok() || is_host_name(host)),
    };
    if !is_good {
        return Err("has no valid host: write a DNS name, an IPv4 address, or [IPv6]".to_owned());
    }
    let port = match port {
        "" => Some(default_port),
        digits => digits.parse().ok().filter(|port| *port > 0 && !digits.starts_with('+')),
    };
    let port = port.ok_or("has no valid port: 1 to 65535")?;
    Ok(Server { host: host.to_ascii_lowercase(), port, path_prefix: path.trim_end_matches('/').to_owned() })
}

/// A DNS name as resolvers take it; underscores exist in the wild, a last part of digits is a mistyped address.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    is_dns_subdomain(&name.to_ascii_lowercase().replace('_', "x"))
        && name.split('.').all(|part| part.len() <= 63)
        && !name.rsplit('.').next().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_HOST: &str = "has no valid host: write a DNS name, an IPv4 address, or [IPv6]";
    const NO_PORT: &str = "has no valid port: 1 to 65535";

    fn server(host: &str, port: u16, path_prefix: &str) -> Result<Server, String> {
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
        for (url, start) in [
            ("https://proxy:3128", "a proxy by https:// is not supported"),
            ("socks5://proxy:1080", "a proxy by socks5:// is not supported"),
            ("http://me:secret@proxy:3128", "a user or a password in the URL"),
        ] {
            let wrong = parse_proxy(url).unwrap_err();
            assert!(wrong.starts_with(start) && !wrong.contains("secret"), "{wrong}");
        }
    }

    #[test]
    fn every_bad_url_has_its_own_reason() {
        for (url, start) in [
            ("http://10.0.0.1:8080", "http:// is refused"),
            ("unix:///run/api.sock", "unix:// is not supported"),
            ("https://me@api:6443", "a user or a password"),
            ("https://api:6443?x=1", "must be SCHEME://HOST:PORT"),
            ("https://a b", "must be SCHEME://HOST:PORT"),
            ("https://api/\r\nHost: evil", "must be SCHEME://HOST:PORT"),
            ("https://\u{e9}.example", "must be SCHEME://HOST:PORT"),
            ("https://", NO_HOST),
            ("", NO_HOST),
            ("https://10.0.0.300:6443", NO_HOST),
            ("https://-api-:6443", NO_HOST),
            ("https://[fe80::1%25eth0]:6443", NO_HOST),
            ("https://[::1", NO_HOST),
            ("https://api:0", NO_PORT),
            ("https://api:65536", NO_PORT),
            ("https://api:+443", NO_PORT),
            ("https://2001:db8::1", NO_HOST),
            ("https://[::1]6443", NO_HOST),
        ] {
            let found = parse_server(url).unwrap_err();
            assert!(found.starts_with(start), "{url}: {found}");
        }
    }
}
