//! Turns client certificates into whose they are and whether they have ended, after a handshake that did not ask for that.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::sync::Arc;
use std::time::SystemTime;

/// Whoever signed it: a handshake asks for no more, as with an API server, which judges the dates afterwards.
#[derive(Debug)]
pub struct Undated(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Undated {
    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.0.verify_client_cert(leaf, chain, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Ok(ClientCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

pub fn has_ended(leaf: &[u8]) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    super::super::cluster::pki::dates_of(leaf).is_ok_and(|(_, end)| end < now)
}

/// The last common name of a certificate: its subject comes after its issuer.
pub fn common_name(der: &[u8]) -> Option<String> {
    const NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
    let at = der.windows(NAME.len()).rposition(|window| window == NAME)? + NAME.len();
    let length = usize::from(*der.get(at + 1)?);
    String::from_utf8(der.get(at + 2..at + 2 + length)?.to_vec()).ok()
}
