//! Turns DER into PEM (RFC 7468), and PEM into the certificates that stand in it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

pub const CERTIFICATE: &str = "CERTIFICATE";
pub const CERTIFICATE_REQUEST: &str = "CERTIFICATE REQUEST";
/// PKCS#8.
pub const PRIVATE_KEY: &str = "PRIVATE KEY";

const COLUMNS: usize = 64;

/// Adds one section with that label to a text: lines of 64 characters, a line feed after each. It may be a key: where the text
/// has room, nothing is left behind in memory.
pub fn write(text: &mut String, label: &str, der: &[u8]) {
    let packed = Zeroizing::new(STANDARD.encode(der));
    text.extend(["-----BEGIN ", label, "-----\n"]);
    let mut rest = packed.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(COLUMNS).unwrap_or((rest, ""));
        text.extend([line, "\n"]);
        rest = after;
    }
    text.extend(["-----END ", label, "-----\n"]);
}

/// Certificates, one section each.
pub fn of_certificates(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    certificates.iter().for_each(|certificate| write(&mut text, CERTIFICATE, certificate));
    text
}

/// Every certificate in a text; other sections, damaged ones and what stands between them are skipped.
pub fn certificates(text: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text).filter_map(Result::ok)
}
