//! Turns names and years into keys and certificates for the tests of this module, made by rcgen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData, SigningKey,
    date_time_ymd,
};
use serde_json::Value;

/// On P-256.
pub struct Key(pub KeyPair);

impl Key {
    pub fn new() -> Key {
        Key(KeyPair::generate().unwrap())
    }

    pub fn point(&self) -> &[u8] {
        self.0.der_bytes()
    }

    pub fn pkcs8(&self) -> Vec<u8> {
        self.0.serialize_der()
    }

    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.sign(bytes).unwrap()
    }
}

/// As a cluster's signer issues them to Nodes; dates are the first of January.
pub fn node_params(node: &str, from: i32, to: i32) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params
}

pub fn leaf(node: &str, key: &Key, from: i32, to: i32) -> Vec<u8> {
    node_params(node, from, to).self_signed(&key.0).unwrap().der().to_vec()
}

/// The bytes cut at each place, and each of them changed in a few ways.
pub fn cut_and_changed(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    (0..bytes.len()).for_each(|end| check(&bytes[..end]));
    let mut changed = bytes.to_vec();
    for (at, byte) in bytes.iter().enumerate() {
        for value in [0, 0x30, 0x7f, 0x80, 0x83, 0x84, 0xff, byte ^ 1, byte.wrapping_add(1)] {
            changed[at] = value;
            check(&changed);
        }
        changed[at] = *byte;
    }
}

/// A CertificateSigningRequest as a server answers in protobuf, of its JSON.
pub fn protobuf(object: &Value) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
    let bytes = |value: &Value| STANDARD.decode(text(value)).unwrap();
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let metadata =
        [(1, "name"), (5, "uid"), (6, "resourceVersion")].map(|(number, key)| field(number, &text(&metadata[key])));
    let username = field(2, &text(&spec["username"]));
    let spec = [field(1, &bytes(&spec["request"])), username, field(7, &text(&spec["signerName"]))];
    let conditions = status["conditions"].as_array().into_iter().flatten().map(|one| {
        let texts = [(1, "type"), (2, "reason"), (3, "message"), (6, "status")];
        field(1, &texts.map(|(number, key)| field(number, &text(&one[key]))).concat())
    });
    let status = [conditions.collect::<Vec<_>>().concat(), field(2, &bytes(&status["certificate"]))];
    let raw = [field(1, &metadata.concat()), field(2, &spec.concat()), field(3, &status.concat())].concat();
    let kind = object["kind"].as_str().unwrap_or("CertificateSigningRequest");
    envelope("certificates.k8s.io/v1", kind, &raw)
}

/// Endpoints of one subset in protobuf: those that are ready, one that is not, and the name and number of each port.
pub fn endpoints(ips: &[&str], ports: &[(&str, u32)]) -> Vec<u8> {
    let address = |number: u8, ip: &str| field(number, &[field(1, ip.as_bytes()), field(4, b"node")].concat());
    let addresses: Vec<u8> = ips.iter().flat_map(|ip| address(1, ip)).collect();
    let port = |(name, number): &(&str, u32)| {
        let number = [vec![2 << 3], varint(*number as usize)].concat();
        field(3, &[field(1, name.as_bytes()), number, field(3, b"TCP")].concat())
    };
    let ports: Vec<u8> = ports.iter().flat_map(port).collect();
    let subset = [addresses, address(2, "10.0.0.99"), ports].concat();
    envelope("v1", "Endpoints", &[field(1, &field(1, b"kubernetes")), field(2, &subset)].concat())
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(bytes.len()), bytes.to_vec()].concat()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The signature of a kubeconfig in cluster-info by the token of this ID and secret, as the bootstrap signer makes it.
pub fn signature(kubeconfig: &str, (id, secret): (&str, &str)) -> String {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#).as_bytes());
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let mac = ring::hmac::sign(&key, format!("{head}.{}", encode(kubeconfig.as_bytes())).as_bytes());
    format!("{head}..{}", encode(mac.as_ref()))
}
