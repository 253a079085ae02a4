//! Turns a subject, right or odd, into a request for a certificate, by a DER writer of the tests' own.

// Every user takes a part of it.
#![allow(dead_code)]

use super::cluster::Result;
use base64::prelude::{BASE64_STANDARD, Engine};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
pub const PRINTABLE: u8 = 0x13;
pub const UTF8: u8 = 0x0c;
pub const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
pub const ORGANIZATION: &[u8] = &[0x06, 3, 0x55, 4, 0x0a];

/// A tag, the shortest length, and the content.
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let many = content.len().to_be_bytes();
    let long: Vec<u8> = many.into_iter().skip_while(|byte| *byte == 0).collect();
    let length = match long.as_slice() {
        [] => vec![0],
        [short @ 0..=0x7f] => vec![*short],
        _ => [&[0x80 | long.len() as u8], long.as_slice()].concat(),
    };
    [&[tag], length.as_slice(), content].concat()
}

/// One name of a subject.
pub fn attribute(oid: &[u8], tag: u8, text: &str) -> Vec<u8> {
    tlv(SEQUENCE, &[oid, &tlv(tag, text.as_bytes())].concat())
}

/// Each set of names by itself.
pub fn subject(sets: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let sets: Vec<u8> = sets.iter().flat_map(|names| tlv(SET, &names.concat())).collect();
    tlv(SEQUENCE, &sets)
}

/// The subject of a node.
pub fn node_subject(name: &str) -> Vec<u8> {
    let common_name = attribute(COMMON_NAME, PRINTABLE, &format!("system:node:{name}"));
    subject(&[vec![attribute(ORGANIZATION, PRINTABLE, "system:nodes")], vec![common_name]])
}

/// A new key, and what it asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
}

/// The DER of a request by a key that nobody keeps. `attributes` is what stands in `[0]`.
pub fn request(subject: &[u8], curve: Curve, attributes: &[u8]) -> Result<Vec<u8>> {
    request_of_version(0, subject, curve, attributes)
}

/// The same of another version than the one that there is.
pub fn request_of_version(version: u8, subject: &[u8], curve: Curve, attributes: &[u8]) -> Result<Vec<u8>> {
    let random = SystemRandom::new();
    let (algorithm, curve_oid, hash_oid): (_, &[u8], &[u8]) = match curve {
        Curve::P256 => (
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
            &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
        ),
        Curve::P384 => (
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &[0x06, 5, 0x2b, 0x81, 4, 0, 0x22],
            &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3],
        ),
    };
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|e| e.to_string())?;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).map_err(|e| e.to_string())?;
    let key_oid = [0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    let bits = |bytes: &[u8]| tlv(3, &[&[0], bytes].concat());
    let public =
        tlv(SEQUENCE, &[tlv(SEQUENCE, &[&key_oid, curve_oid].concat()), bits(key.public_key().as_ref())].concat());
    let info = tlv(SEQUENCE, &[&[2, 1, version], subject, &public, &tlv(0xa0, attributes)].concat());
    let signature = key.sign(&random, &info).map_err(|e| e.to_string())?;
    Ok(tlv(SEQUENCE, &[info, tlv(SEQUENCE, hash_oid), bits(signature.as_ref())].concat()))
}

/// One block as Go and nodepulse write it: lines of 64, and a line feed at the end.
pub fn pem(der: &[u8]) -> String {
    block("CERTIFICATE REQUEST", &lines(&BASE64_STANDARD.encode(der), 64))
}

pub fn block(kind: &str, body: &str) -> String {
    format!("-----BEGIN {kind}-----\n{body}-----END {kind}-----\n")
}

/// Each line with its end.
pub fn lines(text: &str, width: usize) -> String {
    let lines = text.as_bytes().chunks(width).map(String::from_utf8_lossy);
    lines.map(|line| format!("{line}\n")).collect()
}
