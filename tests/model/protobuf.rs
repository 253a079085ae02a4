//! Turns an object into the envelope of the API's protobuf form.
//!
//! A `Status`, metadata, `leaseTransitions` and what there is to know of a request for a certificate are encoded truly, as the
//! agent reads them; it reads nothing else of such an answer (D3).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::problem::Problem;

pub fn encode_status(problem: &Problem) -> Vec<u8> {
    let mut raw = field(1, &[]);
    raw.extend(field(2, b"Failure"));
    raw.extend(field(3, problem.message.as_bytes()));
    raw.extend(field(4, problem.reason.as_bytes()));
    raw.extend([6 << 3]);
    raw.extend(varint(u64::from(problem.code)));
    envelope("v1", "Status", &raw)
}

/// A `PartialObjectMetadata`, as far as the agent reads it: name, uid and resourceVersion.
pub fn encode_metadata(metadata: &Value) -> Vec<u8> {
    envelope("meta.k8s.io/v1", "PartialObjectMetadata", &object_meta(metadata))
}

/// An object without its content, but for how long a Lease lasts, and a CertificateSigningRequest.
pub fn encode_object(object: &Value) -> Vec<u8> {
    let mut raw = object_meta(&object["metadata"]);
    if object["kind"] == "CertificateSigningRequest" {
        raw.extend(signing_request(object));
        return envelope(text(object, "apiVersion"), text(object, "kind"), &raw);
    }
    let spec: Vec<u8> = [(2, "leaseDurationSeconds"), (5, "leaseTransitions")]
        .into_iter()
        .filter_map(|(number, key)| Some((number, object["spec"][key].as_u64()?)))
        .flat_map(|(number, value)| [vec![number << 3], varint(value)].concat())
        .collect();
    if !spec.is_empty() {
        raw.extend(field(2, &spec));
    }
    envelope(text(object, "apiVersion"), text(object, "kind"), &raw)
}

/// `spec` and `status`.
fn signing_request(object: &Value) -> Vec<u8> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let packed = |object, key| STANDARD.decode(text(object, key)).unwrap_or_default();
    let mut asked = field(1, &packed(spec, "request"));
    asked.extend(field(7, text(spec, "signerName").as_bytes()));
    let mut answered = Vec::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let texts = [(1, "type"), (2, "reason"), (3, "message"), (6, "status")];
        let condition = texts.map(|(number, key)| field(number, text(condition, key).as_bytes())).concat();
        answered.extend(field(1, &condition));
    }
    if !status["certificate"].is_null() {
        answered.extend(field(2, &packed(status, "certificate")));
    }
    [field(2, &asked), field(3, &answered)].concat()
}

fn object_meta(metadata: &Value) -> Vec<u8> {
    let numbers = [(1, "name"), (5, "uid"), (6, "resourceVersion")];
    let fields: Vec<u8> =
        numbers.iter().flat_map(|(number, key)| field(*number, text(metadata, key).as_bytes())).collect();
    field(1, &fields)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = field(1, api_version.as_bytes());
    type_meta.extend(field(2, kind.as_bytes()));
    let mut bytes = b"k8s\0".to_vec();
    bytes.extend(field(1, &type_meta));
    bytes.extend(field(2, raw));
    bytes.extend(field(3, b""));
    bytes.extend(field(4, b""));
    bytes
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(bytes.len() as u64));
    field.extend_from_slice(bytes);
    field
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
