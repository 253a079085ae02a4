//! Turns names, keys and dates into the smallest certificates that can be read, and a request for one into whom it asks for: no
//! arithmetic of keys, which are numbers drawn from the seed, and no signature but a token's.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::model::stamp;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
const EC_PUBLIC_KEY: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COLUMNS: usize = 64;

/// A point on P-256, as 65 bytes: here any bytes.
pub type Point = [u8; 65];

fn write(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut der = vec![tag];
    match content.len() {
        length @ 0..=0x7f => der.push(length as u8),
        length @ 0x80..=0xff => der.extend([0x81, length as u8]),
        length => der.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    der.extend(content);
    der
}

/// Tag and content of what stands first, and the rest.
fn read(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(*rest.first()?) << 8 | usize::from(*rest.get(1)?), rest.get(2..)?),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// SubjectPublicKeyInfo.
pub fn key_info(point: &Point) -> Vec<u8> {
    let algorithm = [write(OBJECT_IDENTIFIER, &[&EC_PUBLIC_KEY]), write(OBJECT_IDENTIFIER, &[&P256])].concat();
    write(SEQUENCE, &[&write(SEQUENCE, &[&algorithm]), &write(BIT_STRING, &[&[0], point])])
}

/// ECPrivateKey with its public half (RFC 5915).
pub fn private_key(point: &Point) -> Vec<u8> {
    let public = write(0xa1, &[&write(BIT_STRING, &[&[0], point])]);
    write(SEQUENCE, &[&write(INTEGER, &[&[1]]), &write(OCTET_STRING, &[&point[1..33]]), &public])
}

fn name(organization: &str, common_name: &str) -> Vec<u8> {
    let attribute = |id: &[u8], value: &str| {
        let pair = [write(OBJECT_IDENTIFIER, &[id]), write(UTF8_STRING, &[value.as_bytes()])].concat();
        write(SET, &[&write(SEQUENCE, &[&pair])])
    };
    let organization = if organization.is_empty() { Vec::new() } else { attribute(&ORGANIZATION, organization) };
    write(SEQUENCE, &[&organization, &attribute(&COMMON_NAME, common_name)])
}

fn time(unix_us: i64) -> Vec<u8> {
    let digits: Vec<u8> = stamp::seconds(unix_us).bytes().filter(u8::is_ascii_digit).collect();
    write(GENERALIZED_TIME, &[&digits, b"Z"])
}

/// Whose, for which key (SubjectPublicKeyInfo), from when until when.
pub struct Certificate<'a> {
    pub issuer: &'a str,
    pub organization: &'a str,
    pub common_name: &'a str,
    pub key: &'a [u8],
    pub from_us: i64,
    pub until_us: i64,
    pub serial: u64,
}

impl Certificate<'_> {
    pub fn der(&self) -> Vec<u8> {
        let version = write(0xa0, &[&write(INTEGER, &[&[2]])]);
        let serial = write(INTEGER, &[&[0], &self.serial.to_be_bytes()]);
        let algorithm = write(SEQUENCE, &[]);
        let validity = write(SEQUENCE, &[&time(self.from_us), &time(self.until_us)]);
        let (issuer, subject) = (name("", self.issuer), name(self.organization, self.common_name));
        let body = write(SEQUENCE, &[&version, &serial, &algorithm, &issuer, &validity, &subject, self.key]);
        write(SEQUENCE, &[&body, &algorithm, &write(BIT_STRING, &[&[0]])])
    }
}

/// SubjectPublicKeyInfo of a certificate: the seventh of its fields.
pub fn key_of(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, mut fields, _) = read(read(certificate)?.1)?;
    for _ in 0..6 {
        fields = read(fields)?.2;
    }
    let length = fields.len() - read(fields)?.2.len();
    Some(fields[..length].to_vec())
}

/// Of a request for a certificate, in base64 of PEM: its common name and its key.
pub fn asked_for(packed: &str) -> Option<(String, Vec<u8>)> {
    let pem = String::from_utf8(STANDARD.decode(packed).ok()?).ok()?;
    let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    asked_in(&STANDARD.decode(lines).ok()?)
}

/// The same of its DER.
pub fn asked_in(der: &[u8]) -> Option<(String, Vec<u8>)> {
    let (_, info, _) = read(read(der)?.1)?;
    let (_, _, rest) = read(info)?;
    let (_, mut subject, rest) = read(rest)?;
    let key = &rest[..rest.len() - read(rest)?.2.len()];
    let mut common_name = None;
    while let Some((_, set, rest)) = read(subject) {
        let (_, pair, _) = read(set)?;
        let (_, id, value) = read(pair)?;
        let (tag, text, _) = read(value)?;
        if id == COMMON_NAME && tag == PRINTABLE_STRING {
            common_name = String::from_utf8(text.to_vec()).ok();
        }
        subject = rest;
    }
    Some((common_name?, key.to_vec()))
}

/// Sections of certificates.
pub fn pem(certificates: &[Vec<u8>]) -> String {
    certificates.iter().map(|der| pem_of("CERTIFICATE", der)).collect()
}

/// One section.
pub fn pem_of(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(COLUMNS) {
        text.extend([String::from_utf8_lossy(line).as_ref(), "\n"]);
    }
    text.extend(["-----END ", label, "-----\n"]);
    text
}

/// Of a kubeconfig in cluster-info, for whoever knows a token: a JWS without its middle.
pub fn signature(kubeconfig: &str, id: &str, secret: &str) -> String {
    let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let mac = ring::hmac::sign(&key, format!("{head}.{}", URL_SAFE_NO_PAD.encode(kubeconfig)).as_bytes());
    format!("{head}..{}", URL_SAFE_NO_PAD.encode(mac.as_ref()))
}
