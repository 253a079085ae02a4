//! Turns a Node's name, password and key into the requests of a k3s or rke2 agent, and the supervisor's answers into what
//! they mean (K3S-1 to K3S-6).

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::files::PrivateKey;
use super::{IdentityError, pem};
use crate::api::failure::cut;
use crate::config::kubeconfig::{Server, parse_server};
use crate::config::limits;

/// Where rke2's supervisor listens; k3s' is on the port of the API.
const PORT_OF_RKE2: u16 = 9345;

/// Asked for on a connection that trusts nobody yet, without any credential (K3S-1).
pub const CA_CERTIFICATES: &str = "/cacerts";

/// Whose supervisor it is: it stands in paths and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    K3s,
    Rke2,
}

/// One request to the supervisor; nothing prints it.
pub struct Request {
    pub verb: &'static str,
    pub path: String,
    /// Name and value; secrets are among the values.
    pub headers: Vec<(String, Zeroizing<String>)>,
    pub body: Vec<u8>,
}

/// What proves the board to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Token,
    /// For a renewal (K3S-6).
    Certificate,
}

impl Distribution {
    pub fn of(server: &Server) -> Distribution {
        if server.port == PORT_OF_RKE2 { Distribution::Rke2 } else { Distribution::K3s }
    }

    fn prefix(self) -> &'static str {
        match self {
            Distribution::K3s => "k3s",
            Distribution::Rke2 => "rke2",
        }
    }

    /// A certificate for `node` (K3S-2). `password`: 32 hexadecimal digits, the same for as long as the Node is ours.
    /// `addresses`: of the Node, with commas. `request`: DER of a PKCS#10. `authorization`: as the token says, none where the
    /// connection shows the certificate that is to be renewed.
    pub fn ask_certificate(
        self,
        node: &str,
        password: &str,
        addresses: &str,
        request: Vec<u8>,
        authorization: Option<Zeroizing<String>>,
    ) -> Request {
        let mut asked = self.ask("client-kubelet.crt", authorization);
        for (name, value) in [("Name", node), ("Password", password), ("IP", addresses)] {
            let header = format!("{}-Node-{name}", self.prefix());
            asked.headers.push((header, Zeroizing::new(value.to_owned())));
        }
        Request { verb: "POST", body: request, ..asked }
    }

    /// The CAs of the API server, as PEM (K3S-3).
    pub fn ask_server_authorities(self, authorization: Option<Zeroizing<String>>) -> Request {
        self.ask("server-ca.crt", authorization)
    }

    /// For [`read_api_servers`] (K3S-3).
    pub fn ask_api_servers(self, authorization: Option<Zeroizing<String>>) -> Request {
        self.ask("apiservers", authorization)
    }

    /// For [`read_api_port`]; only rke2's differs from the supervisor's (K3S-3).
    pub fn ask_settings(self, authorization: Option<Zeroizing<String>>) -> Request {
        self.ask("config", authorization)
    }

    fn ask(self, what: &str, authorization: Option<Zeroizing<String>>) -> Request {
        let headers = authorization.map(|value| ("Authorization".to_owned(), value));
        let path = format!("/v1-{}/{what}", self.prefix());
        Request { verb: "GET", path, headers: headers.into_iter().collect(), body: Vec::new() }
    }

    /// What a refusal of the certificate for `node` means (K3S-5). `said`: its body.
    pub fn refused(self, code: u16, said: &str, node: &str, proof: Proof) -> IdentityError {
        let (name, said) = (self.prefix(), cut(said.trim()));
        let (word, text) = match (code, proof) {
            (401, Proof::Token) => (
                "token-unknown",
                format!(
                    "{name} does not take this token; its server has the right one in /var/lib/rancher/{name}/server/token"
                ),
            ),
            (401, Proof::Certificate) => (
                "certificate-refused",
                format!(
                    "{name} does not take this certificate, or there is no Node {node}: it is registered, then asked again"
                ),
            ),
            (403, _) => (
                "node-password-differs",
                format!(
                    "another board has been {node} ({said}); if this one replaces it: \
                     kubectl -n kube-system delete secret {node}.node-password.{name}"
                ),
            ),
            (429 | 503, _) => ("supervisor-busy", format!("{name} is busy or not ready ({code}): it is asked again")),
            _ => ("supervisor-refused", format!("{name} answered {code}: {said}; is this its server?")),
        };
        IdentityError::SupervisorRefused(word, text)
    }
}

/// The chain of an answer to [`Distribution::ask_certificate`], leaf first, and the key where one comes with it: the same for
/// all agents of an old server, taken only where the settings say so (`takes_shared_key`).
pub fn read_certificate(
    body: &[u8],
    takes_shared_key: bool,
) -> Result<(Vec<CertificateDer<'static>>, Option<PrivateKey>), IdentityError> {
    let chain = pem::certificates(body).take(limits::CA_CERTIFICATES).collect();
    let key = match PrivateKeyDer::from_pem_slice(body) {
        Err(_) => return Ok((chain, None)),
        Ok(key) => Zeroizing::new(key),
    };
    match &*key {
        _ if !takes_shared_key => Err(IdentityError::SharedKey),
        PrivateKeyDer::Pkcs8(key) => Ok((chain, Some(PrivateKey::new(key.secret_pkcs8_der())))),
        PrivateKeyDer::Sec1(key) => Ok((chain, Some(PrivateKey::of_sec1(key.secret_sec1_der())))),
        _ => Err(IdentityError::WrongCertificate("it comes with a key that is not on P-256".to_owned())),
    }
}

/// JSON list of `HOST:PORT`, those that can be read.
pub fn read_api_servers(body: &[u8]) -> Result<Vec<Server>, IdentityError> {
    let servers: Vec<String> = read_json(body)?;
    Ok(servers.iter().filter_map(|server| parse_server(server).ok()).take(limits::JOIN_SERVERS).collect())
}

/// Port of the API beside rke2's supervisor.
pub fn read_api_port(body: &[u8]) -> Result<u16, IdentityError> {
    #[derive(Deserialize)]
    struct Settings {
        #[serde(rename = "HTTPSPort")]
        https_port: u16,
    }
    read_json::<Settings>(body).map(|settings| settings.https_port)
}

fn read_json<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, IdentityError> {
    serde_json::from_slice(body).map_err(|error| IdentityError::AnswerMalformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Token;
    use crate::identity::samples::{self, Key};
    use crate::identity::token::Kind;
    use rcgen::PublicKeyData;

    const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn header(request: &Request, name: &str) -> Option<String> {
        let found = request.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.to_string())
    }

    #[test]
    fn a_certificate_is_asked_for_with_name_password_addresses_and_token_and_renewed_without_a_token() {
        let token = Token::parse(&format!("K10{HASH}::server:secret")).unwrap();
        let Some(Kind::Supervisor(token)) = Kind::of(&token) else { panic!("another kind") };
        let ask = |authorization| {
            Distribution::Rke2.ask_certificate("n1", "0f1e", "10.0.0.1,fd00::1", b"DER".to_vec(), authorization)
        };
        let request = ask(Some(token.authorization()));
        assert_eq!((request.verb, request.path.as_str()), ("POST", "/v1-rke2/client-kubelet.crt"));
        assert_eq!(request.body, b"DER");
        assert_eq!(header(&request, "Authorization").as_deref(), Some("Basic bm9kZTpzZWNyZXQ="), "node:secret");
        let expected = [("rke2-Node-Name", "n1"), ("rke2-Node-Password", "0f1e"), ("rke2-Node-IP", "10.0.0.1,fd00::1")];
        for (name, value) in expected {
            assert_eq!(header(&request, name).as_deref(), Some(value));
        }
        let renewal = ask(None);
        assert_eq!((renewal.headers.len(), header(&renewal, "Authorization")), (3, None));
        let others = [
            Distribution::K3s.ask_server_authorities(Some(token.authorization())),
            Distribution::K3s.ask_api_servers(Some(token.authorization())),
            Distribution::K3s.ask_settings(Some(token.authorization())),
        ];
        assert_eq!(
            others.each_ref().map(|request| (request.verb, request.path.as_str(), request.headers.len())),
            [("GET", "/v1-k3s/server-ca.crt", 1), ("GET", "/v1-k3s/apiservers", 1), ("GET", "/v1-k3s/config", 1)]
        );
    }

    #[test]
    fn the_port_says_whose_supervisor_it_is() {
        let of = |url| Distribution::of(&parse_server(url).unwrap());
        assert_eq!(
            ["https://a:6443", "a", "a:9345"].map(of),
            [Distribution::K3s, Distribution::K3s, Distribution::Rke2]
        );
    }

    #[test]
    fn a_chain_is_taken_and_a_key_that_all_agents_share_only_where_that_is_allowed() {
        let key = Key::new();
        let leaf: CertificateDer<'static> = samples::leaf("n1", &key, 2026, 2027).into();
        let chain = [leaf.clone(), leaf];
        let text = pem::of_certificates(&chain);
        assert_eq!(read_certificate(text.as_bytes(), false), Ok((chain.to_vec(), None)));
        let with = |label, der: &[u8]| {
            let mut text = text.clone();
            pem::write(&mut text, label, der);
            text
        };
        let pkcs8 = key.pkcs8();
        // SEQUENCE, version, algorithm, OCTET STRING: what it holds is the key as RFC 5915 has it.
        let sec1 = &pkcs8[29..];
        for text in [with("PRIVATE KEY", &pkcs8), with("EC PRIVATE KEY", sec1)] {
            assert_eq!(read_certificate(text.as_bytes(), false), Err(IdentityError::SharedKey));
            let (found, shared) = read_certificate(text.as_bytes(), true).unwrap();
            let shared = shared.unwrap();
            assert_eq!((found.as_slice(), shared.point()), (&chain[..], Some(key.0.der_bytes())));
            let again = rcgen::KeyPair::try_from(shared.pkcs8()).unwrap();
            assert_eq!(again.der_bytes(), key.0.der_bytes(), "whoever signs can use it");
        }
        assert_eq!(read_certificate(b"", true), Ok((Vec::new(), None)));
    }

    #[test]
    fn each_refusal_has_its_word_and_what_to_do() {
        let of = |code, proof| Distribution::K3s.refused(code, "said\n", "n1", proof);
        for (code, proof, word) in [
            (400, Proof::Token, "supervisor-refused"),
            (401, Proof::Token, "token-unknown"),
            (401, Proof::Certificate, "certificate-refused"),
            (403, Proof::Token, "node-password-differs"),
            (429, Proof::Certificate, "supervisor-busy"),
            (503, Proof::Token, "supervisor-busy"),
            (500, Proof::Token, "supervisor-refused"),
        ] {
            assert_eq!(of(code, proof).word(), word, "{code}");
        }
        let told = of(403, Proof::Token).to_string();
        assert!(told.contains("kubectl -n kube-system delete secret n1.node-password.k3s"), "{told}");
        let long = Distribution::K3s.refused(500, &"x".repeat(100_000), "n1", Proof::Token).to_string();
        assert!(long.len() < 2 * limits::FOREIGN_TEXT_CHARS, "{}", long.len());
    }

    #[test]
    fn where_the_api_is_is_read() {
        let servers = read_api_servers(br#"["10.0.0.1:6443", "[fd00::1]:6443", "http://x", "a b"]"#).unwrap();
        assert_eq!(servers.iter().map(Server::authority).collect::<Vec<_>>(), ["10.0.0.1:6443", "[fd00::1]:6443"]);
        assert_eq!(read_api_servers(b"null").unwrap_err().word(), "answer-malformed");
        assert_eq!(read_api_port(br#"{"HTTPSPort":6443,"SupervisorPort":9345,"Other":[1]}"#), Ok(6443));
        assert_eq!(read_api_port(br#"{"HTTPSPort":70000}"#).unwrap_err().word(), "answer-malformed");
        assert_eq!(read_api_port(b"").unwrap_err().word(), "answer-malformed");
    }
}
