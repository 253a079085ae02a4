//! Turns a token of the settings into what proves a server with it, and what is shown to a server that is proven.
//!
//! Nothing here can be printed: whoever knows a token can be a Node.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::config::settings::{CaHash, Token};

/// A token of kubeadm, `ID.SECRET`.
#[derive(Clone, Copy)]
pub struct BootstrapToken<'t> {
    /// Six characters, known to everybody: the Secret `bootstrap-token-ID` holds the rest.
    pub id: &'t str,
    pub(super) secret: &'t str,
    bearer: &'t str,
}

/// A token of k3s or rke2, `K10HASH::USER:PASSWORD` or `K10HASH::ID.SECRET`.
#[derive(Clone, Copy)]
pub struct SupervisorToken<'t> {
    /// HASH: what the bundle of CAs must have (K3S-1).
    pub hash: CaHash,
    credential: &'t str,
}

/// Of which kind it is decides how a board joins.
#[derive(Clone, Copy)]
pub enum Kind<'t> {
    Bootstrap(BootstrapToken<'t>),
    Supervisor(SupervisorToken<'t>),
}

impl<'t> Kind<'t> {
    /// `None` for no token that the settings would take.
    pub fn of(token: &'t Token) -> Option<Kind<'t>> {
        let text = token.as_str();
        let Some((hash, credential)) = text.strip_prefix("K10").and_then(|rest| rest.split_once("::")) else {
            return BootstrapToken::read(text).map(Kind::Bootstrap);
        };
        let hash = CaHash::parse(&format!("sha256:{hash}")).ok()?;
        Some(Kind::Supervisor(SupervisorToken { hash, credential }))
    }
}

impl<'t> BootstrapToken<'t> {
    fn read(bearer: &'t str) -> Option<BootstrapToken<'t>> {
        Token::parse(bearer).ok().filter(|token| !token.has_pin())?;
        let (id, secret) = bearer.split_once('.')?;
        Some(BootstrapToken { id, secret, bearer })
    }

    /// `Authorization`, for a connection that is verified (JOIN-5).
    pub fn authorization(&self) -> Zeroizing<String> {
        Zeroizing::new(["Bearer ", self.bearer].concat())
    }
}

impl SupervisorToken<'_> {
    /// `Authorization`, for a connection that is verified: agents are user `node`, whatever the token says (K3S-2).
    pub fn authorization(&self) -> Zeroizing<String> {
        if let Some(token) = BootstrapToken::read(self.credential) {
            return token.authorization();
        }
        let password = self.credential.split_once(':').map_or(self.credential, |(_, password)| password);
        let pair = Zeroizing::new(["node:", password].concat());
        let packed = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
        Zeroizing::new(["Basic ", packed.as_str()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn authorization(text: &str) -> String {
        let token = Token::parse(text).unwrap();
        match Kind::of(&token).unwrap() {
            Kind::Bootstrap(token) => token.authorization().to_string(),
            Kind::Supervisor(token) => {
                assert_eq!(token.hash.to_string(), format!("sha256:{HASH}"));
                token.authorization().to_string()
            }
        }
    }

    #[test]
    fn a_token_of_kubeadm_has_an_id_and_a_secret_and_is_shown_whole() {
        let token = Token::parse("abcdef.0123456789abcdef").unwrap();
        let Some(Kind::Bootstrap(read)) = Kind::of(&token) else { panic!("another kind") };
        assert_eq!((read.id, read.secret), ("abcdef", "0123456789abcdef"));
        assert_eq!(authorization("abcdef.0123456789abcdef"), "Bearer abcdef.0123456789abcdef");
    }

    #[test]
    fn a_token_of_k3s_is_shown_as_the_password_of_a_node_or_as_a_bootstrap_token() {
        for (credential, pair) in [
            ("node:pass:word", "node:pass:word"),
            ("server:0f1e2d", "node:0f1e2d"),
            ("abcdef.0123456789abcde", "node:abcdef.0123456789abcde"),
        ] {
            assert_eq!(authorization(&format!("K10{HASH}::{credential}")), format!("Basic {}", STANDARD.encode(pair)));
        }
        let bearer = authorization(&format!("K10{HASH}::abcdef.0123456789abcdef"));
        assert_eq!(bearer, "Bearer abcdef.0123456789abcdef");
    }
}
