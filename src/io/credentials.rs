//! Turns what a kubeconfig names (files or data) into trusted roots, a client certificate or a token.
//!
//! No byte of a key or a token ever reaches a message: errors name the field and the path, nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::clock::CertificateClock;
use super::file;
use super::identity::Successor;
use super::tls::{self, Identity};
use crate::agent::CredentialDates;
use crate::api::failure::Failure;
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material};
use crate::config::limits;
use crate::identity::Renewal;
use crate::identity::certificate;
use crate::time::Wall;

/// Where distributions keep the roots they trust: Debian, Fedora, openSUSE, Alpine, Yocto.
pub(super) const TRUST_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Everything that one kubeconfig proves with.
pub struct Loaded {
    pub config: Arc<ClientConfig>,
    /// `Authorization: Bearer`.
    pub token: Option<Zeroizing<String>>,
    pub dates: CredentialDates,
    /// Equal for equal bytes: a second reading that finds nothing new keeps connections and tickets.
    pub fingerprint: u64,
}

/// Reads and checks everything.
pub fn load(kubeconfig: &Kubeconfig, successor: &Successor, clock: Arc<CertificateClock>) -> Result<Loaded, Failure> {
    let mut hasher = DefaultHasher::new();
    let (roots, mut issued) = read_roots(kubeconfig.certificate_authority.as_ref(), &mut hasher)?;
    let mut dates = CredentialDates::default();
    let mut token = None;
    let mut identity = None;
    match &kubeconfig.credentials {
        Credentials::Certificate { certificate, key } => {
            let (loaded, received) = successor.of(read_identity(certificate, key))?;
            loaded.chain.hash(&mut hasher);
            loaded.key.secret_der().hash(&mut hasher);
            if let Some(leaf) = loaded.chain.first() {
                (dates.not_before, dates.not_after) = certificate::validity(leaf).unzip();
                let is_ours = certificate::node_name(leaf) == Some(&successor.node_name);
                dates.renewal = Renewal::of(leaf, received).filter(|_| is_ours);
            }
            issued = issued.max(dates.not_before);
            identity = Some(loaded);
        }
        Credentials::Token(material) => token = Some(read_token(material)?),
        Credentials::Anonymous => {}
    }
    clock.credentials_issued(issued);
    let config = tls::client_config(Some(roots), identity, clock)
        .map_err(|failure| unusable(format!("client-certificate and client-key: {failure}")))?;
    Ok(Loaded { config, token, dates, fingerprint: hasher.finish() })
}

/// To hear what a server says that nobody has proven (JOIN-1): there is nothing secret to be said to it.
pub fn unverified(clock: Arc<CertificateClock>) -> Result<Loaded, Failure> {
    let config = tls::client_config(None, None, clock).map_err(|failure| unusable(failure.to_string()))?;
    Ok(Loaded { config, token: None, dates: CredentialDates::default(), fingerprint: 0 })
}

/// The Node that the client certificate is for, if it is one for Nodes.
pub fn node_name(kubeconfig: &Kubeconfig) -> Result<Option<String>, Failure> {
    let Credentials::Certificate { certificate, .. } = &kubeconfig.credentials else { return Ok(None) };
    let pem = read(certificate, "client-certificate")?;
    let leaf = CertificateDer::pem_slice_iter(&pem).next().and_then(Result::ok);
    Ok(leaf.and_then(|leaf| certificate::node_name(&leaf).map(str::to_owned)))
}

/// The kubeconfig as its file is now, where certificate, key, token or CA stand in it; `None` where they all have files of
/// their own, or this one cannot be used: then what is known of it stays.
pub fn read_again(known: &Kubeconfig) -> Option<Kubeconfig> {
    let is_data = |material: &Material| matches!(material, Material::Data(_));
    let mut materials = known.certificate_authority.iter().chain(known.credentials.materials());
    if known.path.is_empty() || !materials.any(is_data) {
        return None;
    }
    let read = read_file(&known.path, "kubeconfig", limits::SETTINGS_FILE_BYTES).map_err(|failure| failure.to_string());
    let parsed = read.and_then(|bytes| {
        Kubeconfig::parse(&String::from_utf8_lossy(&bytes), &known.path).map_err(|problem| problem.to_string())
    });
    let told = |why: &String| ::log::warn!(target: "kubeconfig-unreadable", "what the kubeconfig said before stays in use: {why}");
    parsed.inspect_err(told).ok()
}

/// The roots, and when the last of those that we were given was issued.
fn read_roots(
    authority: Option<&Material>,
    hasher: &mut DefaultHasher,
) -> Result<(RootCertStore, Option<Wall>), Failure> {
    let (name, pem) = match authority {
        Some(material) => (label("certificate-authority", material), read(material, "certificate-authority")?),
        None => read_system_roots()?,
    };
    pem.hash(hasher);
    let mut roots = RootCertStore::empty();
    let certificates = || CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
    let dates = certificates().filter_map(|certificate| Some(certificate::validity(&certificate)?.0));
    let issued = authority.and_then(|_| dates.max());
    let (added, _) = roots.add_parsable_certificates(certificates());
    if added == 0 {
        return Err(unusable(format!("{name} holds no certificate in PEM form; put the cluster's CA there")));
    }
    Ok((roots, issued))
}

fn read_system_roots() -> Result<(String, Vec<u8>), Failure> {
    let Some(path) = TRUST_BUNDLES.iter().find(|path| Path::new(path).is_file()) else {
        let looked = TRUST_BUNDLES.join(", ");
        let what = format!(
            "the kubeconfig names no certificate-authority, and this system has no bundle of trusted roots ({looked}); \
             add certificate-authority-data, or install ca-certificates"
        );
        return Err(unusable(what));
    };
    Ok(((*path).to_owned(), read_file(path, "trusted roots", limits::TRUST_BUNDLE_BYTES)?))
}

fn read_identity(certificate: &Material, key: &Material) -> Result<Identity, Failure> {
    let pem = read(certificate, "client-certificate")?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        unusable(format!("{} holds no certificate in PEM form", label("client-certificate", certificate)))
    })?;
    let pem = Zeroizing::new(read(key, "client-key")?);
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let encrypted = pem.windows(9).any(|window| window == b"ENCRYPTED");
        let why = if encrypted {
            "is encrypted; decrypt it, nobody types a password on a board"
        } else {
            "holds no private key in PEM form"
        };
        unusable(format!("{} {why}", label("client-key", key)))
    })?;
    Ok(Identity { chain, key })
}

fn read(material: &Material, field: &str) -> Result<Vec<u8>, Failure> {
    match material {
        Material::Data(bytes) => Ok(bytes.clone()),
        Material::File(path) => read_file(path, field, limits::CREDENTIAL_FILE_BYTES),
    }
}

fn read_file(path: &str, field: &str, limit_bytes: usize) -> Result<Vec<u8>, Failure> {
    file::read(path, limit_bytes).map_err(|why| unusable(format!("cannot read {field} {path}: {why}")))
}

fn label(field: &str, material: &Material) -> String {
    match material {
        Material::File(path) => format!("{field} {path}"),
        Material::Data(_) => format!("{field}-data"),
    }
}

/// The machine word where a file does not answer.
pub(super) const SILENT: &str = "credentials-silent";

/// Credentials or certificate authority cannot be read.
pub(super) fn unusable(what: impl Into<String>) -> Failure {
    Failure::new("credentials-unreadable", what)
}

/// A token is one word of visible ASCII: anything else would end the header it stands in.
fn read_token(material: &Material) -> Result<Zeroizing<String>, Failure> {
    let (field, name) = match material {
        Material::Data(_) => ("token", "token".to_owned()),
        Material::File(path) => ("tokenFile", format!("tokenFile {path}")),
    };
    let bytes = Zeroizing::new(read(material, field)?);
    let text = bytes.trim_ascii();
    if text.is_empty() || !text.iter().all(u8::is_ascii_graphic) {
        return Err(unusable(format!("{name} is not one word of visible characters")));
    }
    Ok(Zeroizing::new(String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::{Authority, TempFolder, kubeconfig};

    fn failed(kubeconfig: &Kubeconfig) -> String {
        match load(kubeconfig, &Successor::none("board"), CertificateClock::new()) {
            Err(failure) => failure.to_string(),
            Ok(_) => panic!("these credentials should not load"),
        }
    }

    #[test]
    fn the_dates_of_the_client_certificate_are_told() {
        let loaded =
            load(&kubeconfig(&Authority::new(), 1), &Successor::none("board"), CertificateClock::new()).unwrap();
        assert_eq!(loaded.dates.not_before.unwrap().to_seconds_stamp(), "2026-01-01T00:00:00Z");
        assert_eq!(loaded.dates.not_after.unwrap().to_seconds_stamp(), "2046-01-01T00:00:00Z");
    }

    #[test]
    fn a_board_without_a_clock_knows_when_its_certificate_was_issued() {
        let (authority, clock) = (Authority::new(), CertificateClock::reading(|| (Wall::from_unix_seconds(0), false)));
        let signed = authority.sign_for_years(&["system:node:board"], 2040, 2050);
        let mut kubeconfig = kubeconfig(&authority, 1);
        kubeconfig.credentials = Credentials::Certificate {
            certificate: Material::Data(signed.certificate.pem().into_bytes()),
            key: Material::Data(signed.key.serialize_pem().into_bytes()),
        };
        let dates = load(&kubeconfig, &Successor::none("board"), Arc::clone(&clock)).unwrap().dates;
        assert_eq!(Some(clock.at(None)), dates.not_before);
    }

    #[test]
    fn equal_bytes_give_equal_fingerprints() {
        let clock = CertificateClock::new();
        let authority = Authority::new();
        let (first, second) = (kubeconfig(&authority, 1), kubeconfig(&Authority::new(), 1));
        let of = |kubeconfig| load(kubeconfig, &Successor::none("board"), Arc::clone(&clock)).unwrap().fingerprint;
        assert_eq!(of(&first), of(&first));
        assert_ne!(of(&first), of(&second));
    }

    #[test]
    fn files_that_cannot_be_credentials_are_named_with_the_reason() {
        let folder = TempFolder::new();
        let mut config = kubeconfig(&Authority::new(), 1);
        config.certificate_authority = Some(Material::File(folder.path("")));
        assert!(failed(&config).contains("it is a directory"));
        config.certificate_authority = Some(Material::File(folder.path("none.crt")));
        assert!(failed(&config).contains("none.crt: No such file or directory"));
        config.certificate_authority = Some(Material::File(folder.write("empty.crt", b"")));
        assert!(failed(&config).contains("holds no certificate"));
        config.certificate_authority = Some(Material::File(folder.write("big.crt", &[b'a'; 70_000])));
        assert!(failed(&config).contains("longer than 65536 bytes"));
        config.certificate_authority = Some(Material::File("/dev/zero".to_owned()));
        assert!(failed(&config).contains("it is a device, not a regular file"));
    }

    #[test]
    fn a_key_that_is_encrypted_missing_or_of_another_certificate_is_told_apart() {
        let mut config = kubeconfig(&Authority::new(), 1);
        let Credentials::Certificate { certificate, key } = config.credentials.clone() else { panic!("certificate") };
        let mut with_key = |pem: &[u8]| {
            let key = Material::Data(pem.to_vec());
            config.credentials = Credentials::Certificate { certificate: certificate.clone(), key };
            failed(&config)
        };
        assert!(
            with_key(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n")
                .contains("is encrypted")
        );
        assert!(with_key(b"hello").contains("client-key-data holds no private key"));
        let stranger = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(with_key(stranger.as_bytes()).contains("does not belong to the client certificate"));
        let Material::Data(key) = key else { panic!("data") };
        assert!(!with_key(stranger.as_bytes()).contains(std::str::from_utf8(&key).unwrap()));
    }

    #[test]
    fn a_token_that_would_break_its_header_is_refused() {
        for bad in [&b""[..], b"\n", b"a\r\nX-Evil: 1", b"\xff\xfe"] {
            assert!(read_token(&Material::Data(bad.to_vec())).is_err(), "{bad:?}");
        }
    }
}
