//! Turns a Node's name, password and key into the requests of a k3s or rke2 agent, and the supervisor's answers into what
//! they mean (K3S-1 to K3S-6).

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::files::PrivateKey;
use super::{IdentityError, pem};
use crate::api::failure::cut;
use crate::api::{Operation, StatusError, SupervisorRequest};
use crate::config::kubeconfig::{Server, parse_server};
use crate::config::limits;

/// Where rke2's supervisor listens; k3s' is on the port of the API.
const PORT_OF_RKE2: u16 = 9345;

/// Asked on a connection that trusts nobody yet, and then on one that is verified, both times without any credential (K3S-1):
/// the answer is the bundle of CAs.
pub fn ask_authorities() -> Operation {
    ask("/cacerts".to_owned(), String::new(), Vec::new())
}

/// `headers`: whole lines.
fn ask(path: String, headers: String, body: Vec<u8>) -> Operation {
    Operation::AskSupervisor(SupervisorRequest { path, headers: Zeroizing::new(headers), body })
}

/// Whose supervisor it is: it stands in paths, in headers and in the names of Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distribution(&'static str);

/// For what a supervisor is asked, as far as that decides what its refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Where the API is, with the token.
    Place,
    /// The first certificate, with the token.
    Certificate,
    /// The next one, with the certificate in use (K3S-6).
    Renewal,
}

/// `node-password`: what shows a supervisor that this board is the one which was first under its name, and where that
/// supervisor listens. Nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct NodePassword {
    /// 32 hexadecimal digits.
    password: Zeroizing<String>,
    /// Beside the API server.
    pub port: u16,
}

impl NodePassword {
    pub fn new(random: [u8; 16], port: u16) -> NodePassword {
        let mut password = Zeroizing::new(String::with_capacity(2 * random.len()));
        random.iter().for_each(|byte| *password += &format!("{byte:02x}"));
        NodePassword { password, port }
    }

    /// With the password that there was, if there was one.
    pub fn like(self, known: Option<&NodePassword>) -> NodePassword {
        let password = known.map_or(self.password, |known| known.password.clone());
        NodePassword { password, ..self }
    }

    /// The password, then line `port`.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}\nport {}\n", *self.password, self.port))
    }

    /// Whole, or nothing.
    pub fn read(text: &[u8]) -> Option<NodePassword> {
        let (password, port) = std::str::from_utf8(text).ok()?.strip_suffix('\n')?.split_once("\nport ")?;
        let is_whole = password.len() == 32 && password.bytes().all(|digit| digit.is_ascii_hexdigit());
        let password = Zeroizing::new(password.to_owned());
        Some(NodePassword { password, port: port.parse().ok()? }).filter(|_| is_whole)
    }

    /// A certificate for `node` (K3S-2). `request`: DER of a PKCS#10. `authorization`: as the token says; none where the
    /// connection shows the certificate that is to be renewed.
    pub fn ask_certificate(&self, node: &str, request: Vec<u8>, authorization: Option<Zeroizing<String>>) -> Operation {
        let (Distribution(name), password) = (Distribution::of(self.port), self.password.as_str());
        let headers = format!("{name}-Node-Name: {node}\r\n{name}-Node-Password: {password}\r\n");
        ask(format!("/v1-{name}/client-kubelet.crt"), headers + &authorized(authorization), request)
    }
}

impl std::fmt::Debug for NodePassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodePassword(.., {})", self.port)
    }
}

impl Distribution {
    /// By the port of its supervisor.
    pub fn of(port: u16) -> Distribution {
        Distribution(if port == PORT_OF_RKE2 { "rke2" } else { "k3s" })
    }

    /// As it calls itself in paths.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// For [`read_api_port`] (K3S-3).
    pub fn ask_settings(self, authorization: Option<Zeroizing<String>>) -> Operation {
        ask(format!("/v1-{}/config", self.0), authorized(authorization), Vec::new())
    }

    /// For [`read_api_servers`] (K3S-3).
    pub fn ask_api_servers(self, authorization: Option<Zeroizing<String>>) -> Operation {
        ask(format!("/v1-{}/apiservers", self.0), authorized(authorization), Vec::new())
    }

    /// What a refusal means (K3S-5); `node` is who was to get a certificate.
    pub fn refused(self, refusal: &StatusError, node: &str, asked: Asked) -> IdentityError {
        let (Distribution(name), code, said) = (self, refusal.code, cut(refusal.message.trim()));
        let (word, text) = match (code, asked) {
            (401, Asked::Renewal) => (
                "certificate-refused",
                format!(
                    "{name} does not take this certificate, or there is no Node {node}: it is registered, then asked again"
                ),
            ),
            (401, _) => (
                "token-unknown",
                format!(
                    "{name} does not take this token; its server has the right one in /var/lib/rancher/{name}/server/token"
                ),
            ),
            (403, Asked::Certificate | Asked::Renewal) => (
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

fn authorized(authorization: Option<Zeroizing<String>>) -> String {
    authorization.map(|value| format!("authorization: {}\r\n", *value)).unwrap_or_default()
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

/// Port of the API, where it is another than the supervisor's: as rke2 has it.
pub fn read_api_port(body: &[u8]) -> Result<Option<u16>, IdentityError> {
    #[derive(Deserialize)]
    struct Settings {
        #[serde(rename = "HTTPSPort")]
        https_port: u16,
        #[serde(rename = "SupervisorPort")]
        supervisor_port: u16,
    }
    let Settings { https_port, supervisor_port } = read_json(body)?;
    Ok(Some(https_port).filter(|port| *port != supervisor_port))
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

    fn asked(operation: &Operation) -> (&'static str, &str, &str) {
        let Operation::AskSupervisor(request) = operation else { panic!("{operation:?}") };
        (operation.verb(), &request.path, &request.headers)
    }

    #[test]
    fn a_certificate_is_asked_for_with_name_password_and_token_and_renewed_without_a_token() {
        let token = Token::parse(&format!("K10{HASH}::server:secret")).unwrap();
        let Some(Kind::Supervisor(token)) = Kind::of(&token) else { panic!("another kind") };
        let password = NodePassword::new([0x0f; 16], 9345);
        let ask = |authorization| password.ask_certificate("n1", b"DER".to_vec(), authorization);
        let request = ask(Some(token.authorization()));
        let who = "rke2-Node-Name: n1\r\nrke2-Node-Password: 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f\r\n";
        let shown = "authorization: Basic bm9kZTpzZWNyZXQ=\r\n";
        assert_eq!(asked(&request), ("POST", "/v1-rke2/client-kubelet.crt", &*(who.to_owned() + shown)), "node:secret");
        assert_eq!(asked(&ask(None)).2, who);
        let (k3s, authorization) = (Distribution::of(443), || Some(token.authorization()));
        assert_eq!(asked(&k3s.ask_settings(authorization())), ("GET", "/v1-k3s/config", shown));
        assert_eq!(asked(&k3s.ask_api_servers(authorization())), ("GET", "/v1-k3s/apiservers", shown));
        assert_eq!(asked(&ask_authorities()), ("GET", "/cacerts", ""), "nobody has proven who it is");
    }

    #[test]
    fn a_password_is_32_digits_that_nothing_prints_and_is_read_whole_or_not_at_all() {
        let password = NodePassword::new([0xa5; 16], 9345);
        let text = password.text();
        assert_eq!(*text, format!("{}\nport 9345\n", "a5".repeat(16)));
        assert_eq!(NodePassword::read(text.as_bytes()), Some(password.clone()));
        assert_eq!(format!("{password:?}"), "NodePassword(.., 9345)");
        (0..text.len()).for_each(|end| assert_eq!(NodePassword::read(&text.as_bytes()[..end]), None, "{end}"));
        samples::cut_and_changed(text.as_bytes(), |changed| drop(NodePassword::read(changed)));
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
        let of = |code, message: &str, asked| {
            let (reason, retry_after, message) = (String::new(), None, message.to_owned());
            Distribution::of(6443).refused(&StatusError { code, reason, message, retry_after }, "n1", asked)
        };
        for (code, asked, word) in [
            (400, Asked::Certificate, "supervisor-refused"),
            (401, Asked::Place, "token-unknown"),
            (401, Asked::Certificate, "token-unknown"),
            (401, Asked::Renewal, "certificate-refused"),
            (403, Asked::Place, "supervisor-refused"),
            (403, Asked::Certificate, "node-password-differs"),
            (403, Asked::Renewal, "node-password-differs"),
            (429, Asked::Renewal, "supervisor-busy"),
            (503, Asked::Place, "supervisor-busy"),
            (500, Asked::Certificate, "supervisor-refused"),
        ] {
            assert_eq!(of(code, "said\n", asked).word(), word, "{code}");
        }
        let told = of(403, "unable to verify hash", Asked::Certificate).to_string();
        assert!(told.contains("kubectl -n kube-system delete secret n1.node-password.k3s"), "{told}");
        let long = of(500, &"x".repeat(100_000), Asked::Place).to_string();
        assert!(long.len() < 2 * limits::FOREIGN_TEXT_CHARS, "{}", long.len());
    }

    #[test]
    fn where_the_api_is_is_read() {
        let servers = read_api_servers(br#"["10.0.0.1:6443", "[fd00::1]:6443", "http://x", "a b"]"#).unwrap();
        assert_eq!(servers.iter().map(Server::authority).collect::<Vec<_>>(), ["10.0.0.1:6443", "[fd00::1]:6443"]);
        assert_eq!(read_api_servers(b"null").unwrap_err().word(), "answer-malformed");
        let of =
            |port: u32| read_api_port(format!(r#"{{"HTTPSPort":{port},"SupervisorPort":9345,"O":[1]}}"#).as_bytes());
        assert_eq!((of(6443), of(9345)), (Ok(Some(6443)), Ok(None)));
        assert_eq!(of(70_000).unwrap_err().word(), "answer-malformed");
        assert_eq!(read_api_port(b"").unwrap_err().word(), "answer-malformed");
    }
}
