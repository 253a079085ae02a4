//! Turns ring into what rustls may use of it: rustls' own provider without ChaCha20, which is 46 KB of x86-64.
//!
//! Nothing here may name that provider: its list of all suites would bring ChaCha20 back.

use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, SignatureScheme, SupportedCipherSuite};
use webpki::ring as algorithms;
use zeroize::Zeroizing;

/// Every server has one of these: RFC 8446 9.1 demands AES-128-GCM of each implementation.
const CIPHER_SUITES: &[SupportedCipherSuite] = &[
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    #[cfg(feature = "tls12")]
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    #[cfg(feature = "tls12")]
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    #[cfg(feature = "tls12")]
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    #[cfg(feature = "tls12")]
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// All that rustls' own provider has, in its order.
pub const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        algorithms::ECDSA_P256_SHA256,
        algorithms::ECDSA_P256_SHA384,
        algorithms::ECDSA_P384_SHA256,
        algorithms::ECDSA_P384_SHA384,
        algorithms::ED25519,
        algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        algorithms::RSA_PKCS1_2048_8192_SHA256,
        algorithms::RSA_PKCS1_2048_8192_SHA384,
        algorithms::RSA_PKCS1_2048_8192_SHA512,
        algorithms::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        algorithms::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        algorithms::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    mapping: &[
        // TLS 1.3 takes the first of each; in TLS 1.2 the name does not say the curve.
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[algorithms::ECDSA_P384_SHA384, algorithms::ECDSA_P256_SHA384]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256]),
        (SignatureScheme::ED25519, &[algorithms::ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[algorithms::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[algorithms::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[algorithms::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

pub fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: CIPHER_SUITES.to_vec(),
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Ring,
        key_provider: &Ring,
    }
}

#[derive(Debug)]
struct Ring;

impl rustls::crypto::SecureRandom for Ring {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        SystemRandom::new().fill(bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for Ring {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        sign::any_supported_type(&Zeroizing::new(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a newer rustls adds must be added here too.
    #[test]
    fn only_chacha20_is_missing_of_what_rustls_would_use() {
        let (ours, theirs) = (provider(), rustls::crypto::ring::default_provider());
        // The client of the tests has rustls speak TLS 1.2 in them.
        let is_spoken = |suite: &SupportedCipherSuite| suite.tls13().is_some() || cfg!(feature = "tls12");
        let is_left_out =
            |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).contains("CHACHA20") || !is_spoken(suite);
        let wanted: Vec<_> = theirs.cipher_suites.into_iter().filter(|suite| !is_left_out(suite)).collect();
        assert_eq!(ours.cipher_suites, wanted);
        let groups = |provider: &[&dyn rustls::crypto::SupportedKxGroup]| -> Vec<_> {
            provider.iter().map(|group| group.name()).collect()
        };
        assert_eq!(groups(&ours.kx_groups), groups(&theirs.kx_groups));
        let (ours, theirs) = (ours.signature_verification_algorithms, theirs.signature_verification_algorithms);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        let ids = |known: &WebPkiSupportedAlgorithms| -> Vec<_> {
            let mapped = known.mapping.iter().flat_map(|(_, those)| those.iter());
            known.all.iter().chain(mapped).map(|one| (one.public_key_alg_id(), one.signature_alg_id())).collect()
        };
        assert_eq!(ids(&ours), ids(&theirs));
    }
}
