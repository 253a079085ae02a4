//! Turns a kind of key, a key exchange and a cipher into an API server on loopback, and a kubeconfig for it: what the
//! cryptography library, built small for a processor, must be able to do there. A board that cannot is locked out.

use super::cluster::Result;
use super::loopback::{Listener, TempFolder, echoing, json_reply, read_request, version_reply};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd,
};
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use rustls::crypto::ring::{default_provider, kx_group};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};
use std::io::Write;
use std::sync::Arc;

/// Only for this test, and public: ring cannot make one.
const RSA_KEY: &str = include_str!("rsa-2048.pem");

/// What a server and its client agree on; both sign with the same kind of key, and their authority too.
pub struct Way {
    pub name: &'static str,
    key: fn() -> std::result::Result<KeyPair, rcgen::Error>,
    group: &'static dyn SupportedKxGroup,
    cipher: SupportedCipherSuite,
}

/// Each kind of key that an API server may have, each key exchange and each cipher.
pub fn ways() -> [Way; 4] {
    [
        Way {
            name: "P-256 keys, X25519, AES-256",
            key: || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            group: kx_group::X25519,
            cipher: TLS13_AES_256_GCM_SHA384,
        },
        Way {
            name: "RSA keys, P-256, AES-128",
            key: || KeyPair::from_pem(RSA_KEY),
            group: kx_group::SECP256R1,
            cipher: TLS13_AES_128_GCM_SHA256,
        },
        Way {
            name: "P-384 keys, P-384, AES-256",
            key: || KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            group: kx_group::SECP384R1,
            cipher: TLS13_AES_256_GCM_SHA384,
        },
        Way {
            name: "Ed25519 keys, X25519, AES-128",
            key: || KeyPair::generate_for(&PKCS_ED25519),
            group: kx_group::X25519,
            cipher: TLS13_AES_128_GCM_SHA256,
        },
    ]
}

/// A server that grants everything to whoever has a certificate of its authority, and the kubeconfig of such a one.
pub struct Server {
    pub kubeconfig: String,
    listener: Listener,
    _folder: TempFolder,
}

impl Server {
    pub fn start(way: &Way) -> Result<Server> {
        let mut authority = CertificateParams::new(Vec::new()).map_err(text)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "kubernetes");
        let authority = CertifiedIssuer::self_signed(authority, (way.key)().map_err(text)?).map_err(text)?;
        let sign = |name: &str| -> Result<(rcgen::Certificate, KeyPair)> {
            let mut params = CertificateParams::new([name.to_owned()]).map_err(text)?;
            (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2046, 1, 1));
            let key = (way.key)().map_err(text)?;
            Ok((params.signed_by(&key, &authority).map_err(text)?, key))
        };
        let (certificate, key) = sign("127.0.0.1")?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).map_err(text)?;
        let mut provider = default_provider();
        (provider.kx_groups, provider.cipher_suites) = (vec![way.group], vec![way.cipher]);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(text)?
            .with_client_cert_verifier(clients.build().map_err(text)?)
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der())?)
            .map_err(text)?;
        let listener = Listener::tls(Arc::new(config), |_, mut stream| {
            while let Some(request) = read_request(&mut stream) {
                let granted = json_reply("201 Created", r#"{"status":{"allowed":true}}"#);
                let reply = if request.starts_with("GET /version") { version_reply() } else { granted };
                if stream.write_all(&echoing(&request, &reply)).is_err() {
                    return;
                }
            }
        });
        let folder = TempFolder::new();
        let (certificate, key) = sign("board")?;
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
             clusters: [{{name: s, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: {}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: {}, client-key: {}}}}}]\n",
            listener.port,
            folder.write("ca.crt", authority.pem().as_bytes()),
            folder.write("client.crt", certificate.pem().as_bytes()),
            folder.write("client.key", key.serialize_pem().as_bytes()),
        );
        Ok(Server { kubeconfig: folder.write("kubeconfig", kubeconfig.as_bytes()), listener, _folder: folder })
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.listener.accepted()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
