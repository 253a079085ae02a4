//! Turns the DER of an X.509 certificate into the dates between which it is valid, and the Node that it is for.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version?, serialNumber, signature, issuer,
//!                            validity SEQUENCE { notBefore, notAfter }, subject Name, ... }, ... }
//! Name        ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value }
//! ```

use crate::time::Wall;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// `(notBefore, notAfter)`; `None` for bytes that are no certificate.
pub fn validity(der: &[u8]) -> Option<(Wall, Wall)> {
    let (validity, _) = validity_and_rest(der)?;
    let (not_before, rest) = time(validity)?;
    let (not_after, _) = time(rest)?;
    Some((not_before, not_after))
}

/// NAME of a certificate for user `system:node:NAME` in group `system:nodes`, whom an API server lets be no other Node.
pub fn node_name(der: &[u8]) -> Option<&str> {
    let (subject, _) = expect(validity_and_rest(der)?.1, SEQUENCE)?;
    let (mut user, mut is_node) = ("", false);
    for (_, attribute) in elements(subject).flat_map(|(_, set)| elements(set)) {
        let mut parts = elements(attribute).map(|(_, content)| content);
        let (kind, value) = (parts.next()?, std::str::from_utf8(parts.next()?).unwrap_or_default());
        match kind {
            // As for the server, the last one counts.
            COMMON_NAME => user = value,
            ORGANIZATION => is_node |= value == "system:nodes",
            _ => {}
        }
    }
    user.strip_prefix("system:node:").filter(|_| is_node)
}

fn validity_and_rest(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    for _serial_signature_issuer in 0..3 {
        fields = element(fields)?.2;
    }
    expect(fields, SEQUENCE)
}

/// Tags and contents, up to the first that is cut.
fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// Tag, content and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|found| found.0 == tag).map(|(_, content, rest)| (content, rest))
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
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

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

    #[test]
    fn a_certificate_cut_or_changed_anywhere_never_panics() {
        let der = certificate(2026, 2036);
        for end in 0..der.len() {
            let _ = (validity(&der[..end]), node_name(&der[..end]));
        }
        assert_eq!(validity(&der[..40]), None);
        for at in 0..der.len().min(200) {
            for value in [0, 0x30, 0x7f, 0x80, 0x83, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = value;
                let _ = (validity(&changed), node_name(&changed));
            }
        }
    }
}
