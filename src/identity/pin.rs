//! Turns the CA certificates of a stranger into those that our pins or our token vouch for: everything else is thrown away.

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use super::{IdentityError, certificate, pem};
use crate::config::limits;
use crate::config::settings::CaHash;

/// Digest of a certificate's SubjectPublicKeyInfo, as kubeadm prints it; `None` for bytes that are no certificate.
pub fn of(certificate: &[u8]) -> Option<CaHash> {
    certificate::public_key(certificate).map(sha256)
}

/// Those whose key is pinned, however many others there are beside them (JOIN-3): whoever knows a token can put one of his
/// own beside the cluster's.
pub fn pinned(
    certificates: &[CertificateDer<'static>],
    pins: &[CaHash],
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let is_pinned = |certificate: &CertificateDer<'_>| of(certificate).is_some_and(|hash| pins.contains(&hash));
    vouched(certificates.iter().filter(|one| is_pinned(one)).cloned(), certificates.iter().filter_map(|one| of(one)))
}

/// Of the answer to `GET /cacerts` what the hash in a token of k3s vouches for: the whole, as it was served; or of several
/// certificates the root, whose digest it is then (K3S-1).
pub fn vouched_by_token(served: &[u8], hash: CaHash) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let is_whole = sha256(served) == hash;
    let vouched_for = pem::certificates(served).filter(|certificate| is_whole || sha256(certificate) == hash);
    vouched(vouched_for, [sha256(served)].into_iter())
}

fn vouched(
    certificates: impl Iterator<Item = CertificateDer<'static>>,
    found: impl Iterator<Item = CaHash>,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates: Vec<_> = certificates.take(limits::CA_CERTIFICATES).collect();
    if certificates.is_empty() {
        return Err(IdentityError::PinMismatch(found.take(limits::CA_CERTIFICATES).collect()));
    }
    Ok(certificates)
}

fn sha256(bytes: &[u8]) -> CaHash {
    let mut hash = CaHash { digest: [0; 32] };
    hash.digest.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples::{self, Key};
    use rcgen::PublicKeyData;

    fn authority() -> CertificateDer<'static> {
        samples::leaf("ca", &Key::new(), 2026, 2036).into()
    }

    #[test]
    fn a_pin_is_the_digest_of_the_key_and_outlives_the_certificate() {
        let key = Key::new();
        let pin = sha256(&key.0.subject_public_key_info());
        assert_eq!(of(&samples::leaf("ca", &key, 2026, 2036)), Some(pin));
        assert_eq!(of(&samples::leaf("another", &key, 2036, 2046)), Some(pin), "issued anew with the same key");
        assert_eq!(of(b"nothing"), None);
    }

    #[test]
    fn of_a_bundle_only_pinned_certificates_are_kept_and_without_one_the_pins_found_are_told() {
        let (ours, next, theirs) = (authority(), authority(), authority());
        let bundle = [theirs.clone(), ours.clone(), next.clone()];
        let pins = |of_these: &[&CertificateDer<'_>]| of_these.iter().map(|one| of(one).unwrap()).collect::<Vec<_>>();
        assert_eq!(pinned(&bundle, &pins(&[&ours])), Ok(vec![ours.clone()]), "whatever stands beside it is dropped");
        assert_eq!(pinned(&bundle, &pins(&[&next, &ours])), Ok(vec![ours.clone(), next.clone()]));
        let error = pinned(std::slice::from_ref(&theirs), &pins(&[&ours, &next])).unwrap_err();
        assert_eq!((error.word(), error.clone()), ("pin-mismatch", IdentityError::PinMismatch(pins(&[&theirs]))));
        assert!(error.to_string().contains(&pins(&[&theirs])[0].to_string()), "{error}");
        assert_eq!(pinned(&[], &pins(&[&ours])), Err(IdentityError::PinMismatch(Vec::new())));
        assert_eq!(pinned(&bundle, &[]).unwrap_err().word(), "pin-mismatch");
    }

    #[test]
    fn a_token_of_k3s_vouches_for_a_single_certificate_by_the_bytes_served_and_for_a_root_among_several_by_its_own() {
        let (root, between, theirs) = (authority(), authority(), authority());
        let served = pem::of_certificates(std::slice::from_ref(&root));
        let hash = sha256(served.as_bytes());
        assert_eq!(vouched_by_token(served.as_bytes(), hash), Ok(vec![root.clone()]));
        assert!(vouched_by_token(format!("{served}\n").as_bytes(), hash).is_err(), "not the bytes that were hashed");
        let served = pem::of_certificates(&[between, root.clone()]);
        assert_eq!(vouched_by_token(served.as_bytes(), sha256(&root)), Ok(vec![root.clone()]));
        let mixed = pem::of_certificates(&[theirs.clone(), root.clone()]);
        assert_eq!(vouched_by_token(mixed.as_bytes(), sha256(&root)), Ok(vec![root.clone()]), "the other is dropped");
        assert_eq!(vouched_by_token(mixed.as_bytes(), hash).unwrap_err().word(), "pin-mismatch");
        assert_eq!(vouched_by_token(b"", sha256(b"")).unwrap_err().word(), "pin-mismatch", "nothing to trust in it");
    }
}
