//! Turns a Node's name and a public key into the request for its certificate (PKCS#10, RFC 2986), byte for byte what a kubelet
//! sends, and into the request's name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA512_256, digest};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;

use super::der::{BIT_STRING, INTEGER, OBJECT_IDENTIFIER, PRINTABLE_STRING, SEQUENCE, SET, expect, whole, write};
use super::pem;

const ORGANIZATION: &str = "system:nodes";
/// What a kubelet asks to use its certificate for (TLS-4).
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// Characters that X.520 lets a common name have. A signer of Kubernetes does not care, others may.
const COMMON_NAME_CHARACTERS: usize = 64;

const COMMON_NAME_ID: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION_ID: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.2.840.10045.2.1
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// 1.2.840.10045.3.1.7
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 1.2.840.10045.4.3.2
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// `[0]`, empty.
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0x00];

/// What a certificate is asked for with: one Node, one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    node: String,
    key: Vec<u8>,
}

impl SigningRequest {
    /// `point`: the public key, on P-256, as 65 bytes without compression (SEC 1 2.3.3).
    pub fn new(node: &str, point: &[u8]) -> SigningRequest {
        SigningRequest { node: node.to_owned(), key: public_key(point) }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// DER of SubjectPublicKeyInfo, as the certificate must have it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The user that the API server will see.
    fn user(&self) -> String {
        format!("system:node:{}", self.node)
    }

    /// Whether the user is longer than X.520 allows: a NAME of more than 52 characters.
    pub fn is_long(&self) -> bool {
        self.user().chars().count() > COMMON_NAME_CHARACTERS
    }

    /// `node-csr-` and 43 characters that are the same for the same key, user, group and usages (CSR-2, TLS-5).
    pub fn name(&self) -> String {
        let user = self.user();
        let texts = [user.as_str(), ORGANIZATION].into_iter().chain(USAGES);
        let mut items = String::new();
        for item in [self.key.as_slice()].into_iter().chain(texts.map(str::as_bytes)) {
            URL_SAFE_NO_PAD.encode_string(item, &mut items);
            items.push('|');
        }
        format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest(&SHA512_256, items.as_bytes())))
    }

    /// DER of CertificationRequestInfo: what the key signs, by ECDSA with SHA-256 (CSR-1).
    pub fn to_be_signed(&self) -> Vec<u8> {
        let attribute = |id: &[u8], value: &str| {
            let parts = [write(OBJECT_IDENTIFIER, &[id]), write(PRINTABLE_STRING, &[value.as_bytes()])];
            write(SET, &[&write(SEQUENCE, &[&parts.concat()])])
        };
        let subject = [attribute(ORGANIZATION_ID, ORGANIZATION), attribute(COMMON_NAME_ID, &self.user())].concat();
        write(SEQUENCE, &[&write(INTEGER, &[&[0]]), &write(SEQUENCE, &[&subject]), &self.key, NO_ATTRIBUTES])
    }

    /// DER of the whole request; `signature`: DER of the ECDSA signature of [`SigningRequest::to_be_signed`].
    pub fn der(&self, signature: &[u8]) -> Vec<u8> {
        let algorithm = write(SEQUENCE, &[&write(OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])]);
        write(SEQUENCE, &[&self.to_be_signed(), &algorithm, &write(BIT_STRING, &[&[0], signature])])
    }

    /// The same as PEM.
    pub fn pem(&self, signature: &[u8]) -> String {
        let mut text = String::new();
        pem::write(&mut text, pem::CERTIFICATE_REQUEST, &self.der(signature));
        text
    }

    /// Whether a request in PEM asks for the same: its signature may differ, as each has a number drawn for it.
    pub fn is_in(&self, pem: &[u8]) -> bool {
        let Ok(request) = CertificateSigningRequestDer::from_pem_slice(pem) else { return false };
        let asked = expect(&request, SEQUENCE).and_then(|(request, _)| whole(request));
        asked.is_some_and(|(asked, _)| asked == self.to_be_signed())
    }
}

/// DER of SubjectPublicKeyInfo of a point on P-256, 91 bytes.
pub(super) fn public_key(point: &[u8]) -> Vec<u8> {
    write(SEQUENCE, &[&key_algorithm(), &write(BIT_STRING, &[&[0], point])])
}

/// DER of AlgorithmIdentifier of every key that is made here.
pub(super) fn key_algorithm() -> Vec<u8> {
    write(SEQUENCE, &[&write(OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]), &write(OBJECT_IDENTIFIER, &[P256])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples::Key;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// The public key of 1: the base point of the curve.
    fn base_point() -> Vec<u8> {
        hex(concat!(
            "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
            "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
        ))
    }

    /// Computed with another implementation from what a kubelet does (TLS-5).
    #[test]
    fn the_name_is_the_digest_that_a_kubelet_computes() {
        let request = SigningRequest::new("edge-1", &base_point());
        assert_eq!(request.name(), "node-csr-B8tcSnR__s1-9GXZxdYCpZgURKtpTJ-1oxoqVoqBfEU");
        assert_eq!(request.name().len(), 52);
        assert_ne!(SigningRequest::new("edge-2", &base_point()).name(), request.name());
    }

    #[test]
    fn the_bytes_are_those_of_a_kubelets_request() {
        let start = concat!(
            "30819a020100",                   // CertificationRequestInfo, version
            "3038",                           // subject
            "3115301306035504",               // a set of one: its type ...
            "0a130c73797374656d3a6e6f646573", // ... O, and its value system:nodes
            "311f301d06035504",
            "031316", // CN
        );
        let key = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
        let expected = [&hex(start), &b"system:node:the-board7"[..], &hex(key), &base_point(), &hex("a000")].concat();
        let request = SigningRequest::new("the-board7", &base_point());
        assert_eq!(request.to_be_signed(), expected);
    }

    #[test]
    fn a_request_is_ours_again_whatever_its_signature_and_never_for_another_key_or_name() {
        let (ours, theirs) = (Key::new(), Key::new());
        let of = |name: &str, key: &Key| SigningRequest::new(name, key.point());
        let request = of("n1", &ours);
        let pem = |request: &SigningRequest, key: &Key| request.pem(&key.sign(&request.to_be_signed()));
        assert_ne!(pem(&request, &ours), pem(&request, &ours), "a signature is never the same");
        assert!(request.is_in(pem(&request, &ours).as_bytes()));
        assert!(!request.is_in(pem(&of("n1", &theirs), &theirs).as_bytes()));
        assert!(!request.is_in(pem(&of("n2", &ours), &ours).as_bytes()));
        assert!(!request.is_in(b"") && !request.is_in(b"-----BEGIN CERTIFICATE REQUEST-----\n"));
    }

    #[test]
    fn lines_are_of_64_characters_and_the_last_ends_too() {
        let key = Key::new();
        let request = SigningRequest::new("n1", key.point());
        let pem = request.pem(&key.sign(&request.to_be_signed()));
        let lines: Vec<&str> = pem.lines().collect();
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        assert_eq!((first, last), ("-----BEGIN CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST-----"));
        let inside = &lines[1..lines.len() - 1];
        assert!(inside[..inside.len() - 1].iter().all(|line| line.len() == 64) && inside[inside.len() - 1].len() <= 64);
        assert!(pem.ends_with("-----\n") && !pem.contains('\r'));
    }

    #[test]
    fn a_name_that_x520_would_not_allow_is_told() {
        let is_long = |length: usize| SigningRequest::new(&"n".repeat(length), &base_point()).is_long();
        assert_eq!([52, 53].map(is_long), [false, true]);
        let request = SigningRequest::new(&"n".repeat(253), &[]);
        assert!(!request.name().is_empty() && !request.pem(&[]).is_empty(), "nothing panics");
    }
}
