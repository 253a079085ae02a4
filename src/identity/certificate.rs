//! Turns the DER of an X.509 certificate into what is read of it: its dates, the Node that it is for, its public key, and
//! whether it may be taken for ours.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version?, serialNumber, signature, issuer,
//!                            validity SEQUENCE { notBefore, notAfter }, subject Name, subjectPublicKeyInfo,
//!                            [1] id?, [2] id?, [3] SEQUENCE OF Extension? }, ... }
//! Name        ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value }
//! Extension   ::= SEQUENCE { id OBJECT IDENTIFIER, critical BOOLEAN?, value OCTET STRING }
//! ```

use super::IdentityError;
use super::der::{OCTET_STRING, SEQUENCE, element, elements, expect, whole};
use crate::time::Wall;

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// 1.3.6.1.5.5.7.3.2
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// `(notBefore, notAfter)`; `None` for bytes that are no certificate.
pub fn validity(der: &[u8]) -> Option<(Wall, Wall)> {
    let (not_before, rest) = time(parts(der)?.validity)?;
    let (not_after, _) = time(rest)?;
    Some((not_before, not_after))
}

/// NAME of a certificate for user `system:node:NAME` in group `system:nodes`, whom an API server lets be no other Node.
pub fn node_name(der: &[u8]) -> Option<&str> {
    let subject = parts(der)?.subject;
    let is_node = attributes(subject).any(|(kind, value)| kind == ORGANIZATION && value == "system:nodes");
    common_name(subject)?.strip_prefix("system:node:").filter(|_| is_node)
}

/// CN of who has signed it.
pub fn issuer(der: &[u8]) -> Option<&str> {
    common_name(parts(der)?.issuer)
}

/// As for the server, the last one counts.
fn common_name(name: &[u8]) -> Option<&str> {
    attributes(name).filter(|(kind, _)| *kind == COMMON_NAME).last().map(|(_, value)| value)
}

/// Types and values of a Name, up to the first that is cut; what is no text is an empty one.
fn attributes(name: &[u8]) -> impl Iterator<Item = (&[u8], &str)> {
    elements(name).flat_map(|(_, set)| elements(set)).map_while(|(_, attribute)| {
        let mut parts = elements(attribute).map(|(_, content)| content);
        Some((parts.next()?, std::str::from_utf8(parts.next()?).unwrap_or_default()))
    })
}

/// SubjectPublicKeyInfo as it stands in the certificate, tag and length included: what a pin is the digest of.
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    parts(der).map(|parts| parts.public_key)
}

/// Whether a certificate that was issued for `node` and this SubjectPublicKeyInfo may be used (CSR-6). `floor`: what time it
/// is at least. An error says what it is instead.
pub fn check_issued(leaf: &[u8], node: &str, key: &[u8], floor: Wall) -> Result<(), IdentityError> {
    let wrong = |what: String| Err(IdentityError::WrongCertificate(what));
    let (Some(parts), Some((_, not_after))) = (parts(leaf), validity(leaf)) else {
        return wrong("it cannot be read".to_owned());
    };
    if parts.public_key != key {
        return wrong("it is for another key".to_owned());
    }
    match node_name(leaf) {
        Some(name) if name == node => {}
        Some(other) => return wrong(format!("it is for system:node:{other:.253}, not for system:node:{node}")),
        None => return wrong("it is for no user system:node:NAME in the group system:nodes".to_owned()),
    }
    if excludes_clients(parts.extensions) {
        return wrong("its extended key usage has no client authentication".to_owned());
    }
    if not_after <= floor {
        return wrong(format!("it ended {not_after}, and it is {floor} or later"));
    }
    Ok(())
}

/// An extended key usage without clientAuth; without one every use is allowed.
fn excludes_clients(extensions: &[u8]) -> bool {
    elements(extensions).any(|(_, extension)| {
        let mut fields = elements(extension);
        fields.next().is_some_and(|(_, id)| id == EXTENDED_KEY_USAGE) && {
            let value = fields.find(|(tag, _)| *tag == OCTET_STRING).and_then(|(_, value)| expect(value, SEQUENCE));
            !value.is_some_and(|(usages, _)| elements(usages).any(|(_, usage)| usage == CLIENT_AUTH))
        }
    })
}

/// What of a certificate is read: contents, but the whole of the public key.
struct Parts<'a> {
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    public_key: &'a [u8],
    extensions: &'a [u8],
}

fn parts(der: &[u8]) -> Option<Parts<'_>> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    for _serial_signature in 0..2 {
        fields = element(fields)?.2;
    }
    let (issuer, fields) = expect(fields, SEQUENCE)?;
    let (validity, rest) = expect(fields, SEQUENCE)?;
    let (subject, rest) = expect(rest, SEQUENCE)?;
    let (public_key, rest) = whole(rest)?;
    let extensions = elements(rest).find(|(tag, _)| *tag == EXTENSIONS).and_then(|(_, list)| expect(list, SEQUENCE));
    Some(Parts {
        issuer,
        validity,
        subject,
        public_key,
        extensions: extensions.map(|found| found.0).unwrap_or_default(),
    })
}

/// `YYMMDDHHMMSSZ` up to 2049, `YYYYMMDDHHMMSSZ` from 2050 on (RFC 5280 4.1.2.5).
fn time(der: &[u8]) -> Option<(Wall, &[u8])> {
    let (tag, content, rest) = element(der)?;
    let text = std::str::from_utf8(content).ok().filter(|text| text.is_ascii())?;
    let (century, text) = match tag {
        UTC_TIME => (if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" }, text),
        GENERALIZED_TIME => ("", text),
        _ => return None,
    };
    let digits = format!("{century}{}", text.strip_suffix('Z')?);
    let part = |from: usize, to: usize| digits.get(from..to);
    let date = format!("{}-{}-{}", part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let stamp = format!("{date}T{}:{}:{}Z", part(8, 10)?, part(10, 12)?, part(12, digits.len())?);
    Some((Wall::parse_stamp(&stamp)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::SigningRequest;
    use crate::identity::samples::{self, Key};
    use rcgen::{
        CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData, date_time_ymd,
    };

    fn certificate(from: i32, to: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["board".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 2, 28);
        params.not_after = date_time_ymd(to, 12, 31);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_dates_of_a_certificate_are_read_in_both_forms() {
        let (not_before, not_after) = validity(&certificate(1999, 2049)).unwrap();
        assert_eq!(not_before.to_seconds_stamp(), "1999-02-28T00:00:00Z");
        assert_eq!(not_after.to_seconds_stamp(), "2049-12-31T00:00:00Z");
        let (not_before, not_after) = validity(&certificate(2026, 9999)).unwrap();
        assert_eq!(not_before.to_seconds_stamp(), "2026-02-28T00:00:00Z");
        assert_eq!(not_after.to_seconds_stamp(), "9999-12-31T00:00:00Z");
    }

    #[test]
    fn the_node_of_a_certificate_is_its_common_name_in_the_group_of_nodes() {
        let name = |subject: &[(DnType, &str)]| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = DistinguishedName::new();
            subject.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let user = subject.iter().find(|(kind, _)| *kind == DnType::CommonName).map(|(_, user)| *user);
            assert_eq!(issuer(certificate.der()), user, "it has signed itself");
            node_name(certificate.der()).map(str::to_owned)
        };
        let (user, group) = ((DnType::CommonName, "system:node:gate-7"), (DnType::OrganizationName, "system:nodes"));
        let more = (DnType::CountryName, "AQ");
        for subject in [&[user.clone(), group.clone()][..], &[group.clone(), more, user.clone()]] {
            assert_eq!(name(subject).as_deref(), Some("gate-7"), "{subject:?}");
        }
        assert_eq!(name(&[user.clone(), (DnType::OrganizationName, "system:masters")]), None);
        assert_eq!(name(&[user]), None, "without the group it is no node's");
        assert_eq!(name(&[(DnType::CommonName, "kubernetes-admin"), group]), None);
        assert_eq!(name(&[]), None);
    }

    fn verdict(leaf: &[u8], key: &Key) -> Result<(), String> {
        let request = SigningRequest::new("gate-7", key.point());
        let floor = Wall::parse_stamp("2026-11-22T00:00:00Z").unwrap();
        match check_issued(leaf, request.node(), request.key(), floor) {
            Ok(()) => Ok(()),
            Err(IdentityError::WrongCertificate(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_certificate_is_taken_only_for_our_key_name_group_and_use_and_while_it_lives() {
        let (ours, theirs) = (Key::new(), Key::new());
        assert_eq!(verdict(&samples::leaf("gate-7", &ours, 2026, 2027), &ours), Ok(()));
        let is_refused = |leaf: &[u8], why: &str| {
            let found = verdict(leaf, &ours).unwrap_err();
            assert!(found.starts_with(why), "{found}");
        };
        is_refused(&samples::leaf("gate-7", &theirs, 2026, 2027), "it is for another key");
        is_refused(
            &samples::leaf("gate-70", &ours, 2026, 2027),
            "it is for system:node:gate-70, not for system:node:gate-7",
        );
        is_refused(&samples::leaf("gate-7", &ours, 2025, 2026), "it ended 2026-01-01T00:00:00Z, and it is 2026-11-22");
        is_refused(b"", "it cannot be read");
        let with = |change: fn(&mut CertificateParams)| {
            let mut params = samples::node_params("gate-7", 2026, 2027);
            change(&mut params);
            params.self_signed(&ours.0).unwrap().der().to_vec()
        };
        let group = with(|params| params.distinguished_name.push(DnType::OrganizationName, "system:masters"));
        is_refused(&group, "it is for no user system:node:NAME in the group");
        let server = with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        is_refused(&server, "its extended key usage has no client authentication");
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        assert_eq!(verdict(&with(|params| params.extended_key_usages = Vec::new()), &ours), Ok(()), "any use");
        let mut params = samples::node_params("gate-7", 2026, 2027);
        params.extended_key_usages = both.to_vec();
        assert_eq!(verdict(params.self_signed(&ours.0).unwrap().der(), &ours), Ok(()));
    }

    #[test]
    fn the_public_key_is_the_one_that_the_certificate_was_made_with() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let certificate = samples::node_params("n1", 2026, 2027).self_signed(&key).unwrap();
            assert_eq!(public_key(certificate.der()), Some(key.subject_public_key_info().as_slice()));
        }
    }

    #[test]
    fn a_certificate_cut_or_changed_anywhere_never_panics() {
        let (der, key) = (samples::leaf("gate-7", &Key::new(), 2026, 2036), Key::new());
        samples::cut_and_changed(&der, |changed| {
            let _ =
                (validity(changed), node_name(changed), issuer(changed), public_key(changed), verdict(changed, &key));
        });
        assert_eq!(validity(&der[..40]), None);
    }
}
