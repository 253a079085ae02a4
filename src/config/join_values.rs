//! Reads what a board joins a cluster with: servers, token, hashes of the cluster's CA, how long its certificate is to last.

use std::fmt;
use std::time::Duration;

use zeroize::Zeroizing;

use super::field::Field;
use super::kubeconfig::{Server, parse_proxy, parse_server};
use super::node_values::distinct;
use super::problem::{Findings, Problem, quoted};
use super::values::at_least;
use super::yaml::Value;

/// What lets a board that has no certificate yet ask for one. Whoever knows it can be a Node: it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

/// `SHA-256` of the public key (SubjectPublicKeyInfo, DER) of a CA, as kubeadm prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaHash {
    pub digest: [u8; 32],
}

/// The server refuses a shorter one.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(600);
/// `expirationSeconds` is a signed number of 32 bits.
const LONGEST_LIFETIME: Duration = Duration::from_secs(i32::MAX as u64);

const TWICE: &str = "is in the list twice: keep one of them";

impl Token {
    /// `ID.SECRET` of kubeadm, or `K10HASH::USER:PASSWORD` and `K10HASH::ID.SECRET` of k3s. The error holds nothing of it.
    pub fn parse(text: &str) -> Result<Token, &'static str> {
        let token = Token(Zeroizing::new(text.to_owned()));
        match text.strip_prefix("K10").and_then(|rest| rest.split_once("::")) {
            Some((hash, user)) if bytes_of(hash).is_some() && is_graphic(user) => Ok(token),
            None if is_kubeadm(text) => Ok(token),
            _ => Err(NO_TOKEN),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it says by itself which CA is the cluster's: k3s' do.
    pub fn has_pin(&self) -> bool {
        !is_kubeadm(&self.0)
    }
}

const NO_TOKEN: &str = "is neither a token of kubeadm (six of a-z 0-9, a dot, sixteen more) nor one of k3s that begins with K10 \
    and the hash of its CA (without that: no-pin; take the whole line of /var/lib/rancher/k3s/server/node-token)";

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl CaHash {
    pub fn parse(text: &str) -> Result<CaHash, String> {
        let hash = text.strip_prefix("sha256:").and_then(bytes_of).map(|digest| CaHash { digest });
        hash.ok_or_else(|| format!("must be sha256: and 64 hexadecimal digits, not {}", quoted(text)))
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Six letters and digits, a dot, sixteen more.
fn is_kubeadm(text: &str) -> bool {
    let is_of = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.split_once('.').is_some_and(|(id, secret)| is_of(id, 6) && is_of(secret, 16))
}

fn is_graphic(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Of 64 hexadecimal digits.
fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

pub(super) fn token(field: &Field<'_>, _: &mut Findings) -> Result<Option<Token>, Problem> {
    field.text()?.map(Token::parse).transpose().map_err(|wrong| field.problem(wrong))
}

pub(super) fn servers(field: &Field<'_>, findings: &mut Findings) -> Result<Vec<Server>, Problem> {
    let read = |item: &Value| parse_server(text_of(item, "https://HOST:PORT")?);
    Ok(distinct(field, findings, read, Server::eq, TWICE))
}

pub(super) fn ca_hashes(field: &Field<'_>, findings: &mut Findings) -> Result<Vec<CaHash>, Problem> {
    let read = |item: &Value| CaHash::parse(text_of(item, "sha256:HASH")?);
    Ok(distinct(field, findings, read, CaHash::eq, TWICE))
}

pub(super) fn proxy(field: &Field<'_>, _: &mut Findings) -> Result<Option<Server>, Problem> {
    field.text()?.map(parse_proxy).transpose().map_err(|wrong| field.problem(wrong))
}

pub(super) fn certificate_lifetime(field: &Field<'_>, findings: &mut Findings) -> Result<Option<Duration>, Problem> {
    if field.text()?.is_none() {
        return Ok(None);
    }
    match at_least(SHORTEST_LIFETIME)(field, findings)? {
        lifetime if lifetime <= LONGEST_LIFETIME => Ok(Some(lifetime)),
        lifetime => Err(field.problem(format!("must be at most {LONGEST_LIFETIME:?}, not {lifetime:?}"))),
    }
}

fn text_of<'v>(item: &'v Value, form: &str) -> Result<&'v str, String> {
    item.as_text().ok_or_else(|| format!("must be {form}, not {}", item.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_is_one_of_kubeadm_or_one_of_k3s_with_its_hash() {
        let of_k3s = [format!("K10{HASH}::node:secret"), format!("K10{HASH}::abcdef.0123456789abcdef")];
        for (token, has_pin) in [("abcdef.0123456789abcdef", false), (&of_k3s[0], true), (&of_k3s[1], true)] {
            let token = Token::parse(token).unwrap();
            assert_eq!(token.has_pin(), has_pin);
        }
    }

    #[test]
    fn what_is_no_token_is_refused_and_never_shown() {
        let cut = format!("K10{}::node:secret", &HASH[1..]);
        let [nobody, spaced] = [format!("K10{HASH}::"), format!("K10{HASH}::node:a b")];
        let long = format!("abcdef.{HASH}");
        for bad in
            ["", "secret", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcde.f0123456789abcdef"]
                .into_iter()
                .chain(["abcdef.0123456789abcdef\n", "abcdef-0123456789abcdef", &cut, &nobody, &spaced, &long])
        {
            let wrong = Token::parse(bad).unwrap_err();
            assert!(
                wrong.starts_with("is neither ") && (bad.len() < 7 || !wrong.contains(&bad[..7])),
                "{bad}: {wrong}"
            );
        }
    }

    #[test]
    fn a_token_is_not_in_its_debug_text() {
        let token = Token::parse("abcdef.0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?} {token:#?}"), "Token(..) Token(..)");
    }

    #[test]
    fn a_hash_is_32_bytes_of_either_case() {
        let hash = CaHash::parse(&format!("sha256:{}", HASH.to_uppercase())).unwrap();
        assert_eq!(hash.to_string(), format!("sha256:{HASH}"));
        assert_eq!(hash.digest[..3], [0x01, 0x23, 0x45]);
        for bad in [HASH, "sha256:", &format!("sha256:{HASH}0"), &format!("sha256:+{}", &HASH[1..]), "sha512:00"] {
            let wrong = CaHash::parse(bad).unwrap_err();
            assert!(wrong.starts_with("must be sha256: and 64 hexadecimal digits, not \""), "{wrong}");
        }
    }
}
