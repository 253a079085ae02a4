//! Turns names and dates into the keys and certificates of a cluster, in memory and as PEM text.

use super::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// When a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// From an hour ago, for a week: a board whose clock is a day ahead still believes in it.
    Now,
    /// From an hour ago, for twenty years.
    Years,
    /// Ended yesterday.
    Expired,
    /// Begins tomorrow.
    NotYet,
    /// From an hour ago, for a year.
    Year,
    /// From three hundred days ago, for a year from now on: dated from the birth of its CA.
    FromBirth,
    /// From five minutes ago, as signers date, for so long from now on.
    Ending(Duration),
    /// From ten hours ago, for so long from now on.
    Old(Duration),
}

/// A certificate and its key.
pub struct Keypair {
    pub certificate: String,
    pub key: String,
    pub chain: Vec<CertificateDer<'static>>,
    secret: Vec<u8>,
}

impl Keypair {
    pub fn secret(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.secret.clone().into())
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    key: String,
    pin: String,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let mut params = params(name, None, Validity::Years)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(text)?;
        let pem = key.serialize_pem();
        let pin = pin(&key.subject_public_key_info());
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(text)?;
        Ok(Self { issuer, key: pem, pin })
    }

    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Its private key: the controller-manager signs certificate requests with it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What kubeadm calls `--discovery-token-ca-cert-hash`.
    pub fn pin(&self) -> &str {
        &self.pin
    }

    /// A client certificate; Kubernetes takes the user from the common name and the group from the organization.
    pub fn client(&self, user: &str, group: Option<&str>, validity: Validity) -> Result<Keypair> {
        let mut params = params(user, group, validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// A server certificate for the names that clients of an API server use.
    pub fn server(&self, addresses: &[IpAddr], validity: Validity) -> Result<Keypair> {
        let mut names: Vec<String> =
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned).into();
        names.extend(addresses.iter().map(IpAddr::to_string));
        let mut params = params("kube-apiserver", None, validity)?;
        params.subject_alt_names = CertificateParams::new(names).map_err(text)?.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// What a signer answers to a request: a client certificate for somebody else's key.
    pub fn certify(&self, key: &RequestedKey, user: &str, group: Option<&str>, validity: Validity) -> Result<String> {
        let mut params = params(user, group, validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.signed_by(key, &self.issuer).map(|certificate| certificate.pem()).map_err(text)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Keypair> {
        let key = KeyPair::generate().map_err(text)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(text)?;
        Ok(Keypair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            chain: vec![certificate.der().clone()],
            secret: key.serialize_der(),
        })
    }
}

/// SHA-256 of a public key as a certificate holds it.
fn pin(public_key_info: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, public_key_info);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A point of P-256, uncompressed.
pub struct RequestedKey([u8; 65]);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// The key of a PKCS#10 request in PEM.
pub fn requested_key(request: &[u8]) -> Result<RequestedKey> {
    let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(request).map_err(text)?;
    requested_key_of(&der)
}

/// The same of DER.
pub fn requested_key_of(der: &[u8]) -> Result<RequestedKey> {
    // The curve's name, and a string of 66 bytes of which the first says that all bits count.
    const CURVE: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 3, 66, 0];
    let at = der.windows(CURVE.len()).position(|window| window == CURVE).ok_or("no key of P-256 in the request")?;
    let point = der[at + CURVE.len()..].first_chunk().ok_or("a request that is cut off")?;
    Ok(RequestedKey(*point))
}

/// From when on and until when a certificate is valid, in seconds since 1970: its two UTCTimes.
pub fn dates(certificate: &str) -> Result<(u64, u64)> {
    dates_of(&CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(text)?)
}

/// The same of DER.
pub fn dates_of(der: &[u8]) -> Result<(u64, u64)> {
    let time = |bytes: &[u8]| {
        let digits = std::str::from_utf8(bytes.strip_prefix(b"\x17\x0d")?.get(..12)?).ok()?;
        let at = |n: usize| &digits[2 * n..2 * n + 2];
        let stamp = format!("20{}-{}-{}T{}:{}:{}Z", at(0), at(1), at(2), at(3), at(4), at(5));
        super::audit::micros(&stamp).map(|us| us / 1_000_000)
    };
    let found = der.windows(30).find_map(|both| Some((time(both)?, time(&both[15..])?)));
    found.ok_or_else(|| "a certificate without two UTCTimes".to_owned())
}

/// A private key and its public half, for signing and checking the tokens of service accounts.
pub fn signing_keys() -> Result<(String, String)> {
    KeyPair::generate().map(|k| (k.serialize_pem(), k.public_key_pem())).map_err(text)
}

fn params(name: &str, group: Option<&str>, validity: Validity) -> Result<CertificateParams> {
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(86_400);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(text)?;
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(since_1970.as_secs());
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = match validity {
        Validity::Now => (now - HOUR, now + 7 * DAY),
        Validity::Years => (now - HOUR, now + 20 * 365 * DAY),
        Validity::Expired => (now - 2 * DAY, now - DAY),
        Validity::NotYet => (now + DAY, now + 2 * DAY),
        Validity::Year => (now - HOUR, now + 365 * DAY),
        Validity::FromBirth => (now - 300 * DAY, now + 365 * DAY),
        Validity::Ending(life) => (now - Duration::from_secs(300), now + life),
        Validity::Old(life) => (now - 10 * HOUR, now + life),
    };
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
