//! Turns a [`SigningRequest`] into the API's object CertificateSigningRequest, and that object into how far it is (CSR-4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::json;

use super::signing_request::{SigningRequest, USAGES};
use super::{IdentityError, pem};
use crate::api::failure::cut;
use crate::api::protobuf::{self, text};
use crate::config::limits;
use crate::protobuf::{Fields, Value};

/// Who signs certificates of Nodes: user `system:node:NAME` in group `system:nodes`.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Body of the POST. `signature` as for [`SigningRequest::der`]; without `expiration_seconds` the signer's longest life is
/// asked for, with less than 600 the server refuses.
pub fn create_body(request: &SigningRequest, signature: &[u8], expiration_seconds: Option<u32>) -> String {
    let packed = STANDARD.encode(request.pem(signature));
    let mut spec = json!({ "request": packed, "signerName": SIGNER, "usages": USAGES });
    if let (Some(seconds), Some(spec)) = (expiration_seconds, spec.as_object_mut()) {
        spec.insert("expirationSeconds".to_owned(), json!(seconds));
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": request.name() },
        "spec": spec,
    })
    .to_string()
}

/// How far a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has decided.
    Pending,
    /// The signer has not come to it.
    Approved,
    /// Leaf first; empty where it is no PEM, or more than fits a file of credentials.
    Issued(Vec<CertificateDer<'static>>),
    /// Reason and message, as somebody else wrote them.
    Denied(String),
    /// The same of the signer.
    Failed(String),
}

/// An answer, as far as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSigningRequest {
    pub uid: String,
    pub resource_version: String,
    pub stage: Stage,
    /// A node has asked for it, with its certificate.
    pub is_of_node: bool,
    signer: String,
    /// PEM of the request.
    request: Vec<u8>,
}

/// What a status says. None of these conditions is ever taken back.
#[derive(Default)]
struct Conditions {
    is_approved: bool,
    denied: Option<String>,
    failed: Option<String>,
}

impl CertificateSigningRequest {
    /// `body`: the API server's own answer, in protobuf.
    pub fn read(body: &[u8]) -> Result<CertificateSigningRequest, IdentityError> {
        let text = "it is not the protobuf form of a CertificateSigningRequest";
        parse(body).ok_or_else(|| IdentityError::AnswerMalformed(text.to_owned()))
    }

    /// Whether it is ours from before (409), and no trap: same signer, subject and key.
    pub fn asks_for(&self, request: &SigningRequest) -> bool {
        self.signer == SIGNER && request.is_in(&self.request)
    }
}

/// `{ 1: ObjectMeta { 5: uid, 6: resourceVersion }, 2: Spec { 1: request, 2: username, 7: signerName },
/// 3: Status { 1: Condition { 1: type, 2: reason, 3: message } ..., 2: certificate } }`
fn parse(body: &[u8]) -> Option<CertificateSigningRequest> {
    let (kind, raw) = protobuf::read_unknown(body, false)?;
    let (mut uid, mut resource_version, mut signer) = (String::new(), String::new(), String::new());
    let (mut request, mut certificate): (&[u8], &[u8]) = (&[], &[]);
    let (mut conditions, mut is_of_node) = (Conditions::default(), false);
    for field in Fields::of(raw) {
        let (part, Value::Bytes(inner)) = field? else { continue };
        for field in Fields::of(inner) {
            match (part, field?) {
                (1, (5, Value::Bytes(found))) => uid = text(found),
                (1, (6, Value::Bytes(found))) => resource_version = text(found),
                (2, (1, Value::Bytes(found))) => request = found,
                (2, (2, Value::Bytes(found))) => is_of_node = found.starts_with(b"system:node:"),
                (2, (7, Value::Bytes(found))) => signer = text(found),
                (3, (1, Value::Bytes(found))) => conditions.add(found)?,
                (3, (2, Value::Bytes(found))) => certificate = found,
                _ => {}
            }
        }
    }
    let stage = conditions.stage(certificate);
    let request = request.to_vec();
    (kind == b"CertificateSigningRequest").then_some(CertificateSigningRequest {
        uid,
        resource_version,
        stage,
        is_of_node,
        signer,
        request,
    })
}

impl Conditions {
    fn add(&mut self, condition: &[u8]) -> Option<()> {
        let (mut kind, mut reason, mut message): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        for field in Fields::of(condition) {
            match field? {
                (1, Value::Bytes(found)) => kind = found,
                (2, Value::Bytes(found)) => reason = found,
                (3, Value::Bytes(found)) => message = found,
                _ => {}
            }
        }
        let words = || Some(cut(&format!("{}: {}", text(reason), text(message))));
        match kind {
            b"Approved" => self.is_approved = true,
            b"Denied" => self.denied = self.denied.take().or_else(words),
            b"Failed" => self.failed = self.failed.take().or_else(words),
            _ => {}
        }
        Some(())
    }

    /// `certificate`: PEM; it counts only where the request is approved.
    fn stage(self, certificate: &[u8]) -> Stage {
        match self {
            Conditions { denied: Some(why), .. } => Stage::Denied(why),
            Conditions { failed: Some(why), .. } => Stage::Failed(why),
            Conditions { is_approved: false, .. } => Stage::Pending,
            _ if certificate.is_empty() => Stage::Approved,
            _ if certificate.len() > limits::CREDENTIAL_FILE_BYTES => Stage::Issued(Vec::new()),
            _ => Stage::Issued(pem::certificates(certificate).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::identity::samples::{self, Key};

    fn read(object: &Value) -> CertificateSigningRequest {
        CertificateSigningRequest::read(&samples::protobuf(object)).unwrap()
    }

    /// As the server answers, with this in its status.
    fn object(status: Value) -> Value {
        let metadata = json!({
            "name": "node-csr-x", "uid": "u-1", "resourceVersion": "77", "creationTimestamp": "2026-11-22T10:00:00Z",
            "managedFields": [{ "manager": "m", "fieldsV1": { "f:spec": {} } }],
        });
        let spec =
            json!({ "request": "Q1NS", "signerName": SIGNER, "usages": USAGES, "username": "u", "groups": ["g"] });
        json!({ "kind": "CertificateSigningRequest", "metadata": metadata, "spec": spec, "status": status })
    }

    fn condition(kind: &str) -> Value {
        json!({ "type": kind, "status": "True", "reason": format!("R{kind}"), "message": "said so", "lastUpdateTime": null })
    }

    #[test]
    fn the_body_is_the_kubelets_and_its_life_is_asked_for_only_where_it_is_set() {
        let key = Key::new();
        let request = SigningRequest::new("edge-1", key.point());
        let signature = key.sign(&request.to_be_signed());
        let body = create_body(&request, &signature, None);
        let packed = STANDARD.encode(request.pem(&signature));
        let expected = format!(
            concat!(
                r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"{}"}},"#,
                r#""spec":{{"request":"{}","signerName":"kubernetes.io/kube-apiserver-client-kubelet","#,
                r#""usages":["digital signature","client auth"]}}}}"#
            ),
            request.name(),
            packed
        );
        assert_eq!(body, expected);
        let with_life: Value = serde_json::from_str(&create_body(&request, &signature, Some(86_400))).unwrap();
        let mut expected: Value = serde_json::from_str(&expected).unwrap();
        expected["spec"]["expirationSeconds"] = json!(86_400);
        assert_eq!(with_life, expected);
    }

    #[test]
    fn a_request_is_pending_approved_issued_denied_or_failed() {
        let pending = read(&object(json!({})));
        assert_eq!((pending.uid.as_str(), pending.resource_version.as_str()), ("u-1", "77"));
        assert_eq!(pending.stage, Stage::Pending);
        let stage = |conditions: &[&str], certificate: &str| {
            let conditions: Vec<Value> = conditions.iter().map(|kind| condition(kind)).collect();
            read(&object(json!({ "conditions": conditions, "certificate": certificate }))).stage
        };
        let leaf = CertificateDer::from(samples::leaf("n1", &Key::new(), 2026, 2027));
        let chain = vec![leaf.clone(), leaf];
        let packed = STANDARD.encode(pem::of_certificates(&chain));
        assert_eq!(stage(&["Approved"], ""), Stage::Approved);
        assert_eq!(stage(&["Approved"], &packed), Stage::Issued(chain));
        assert_eq!(stage(&[], &packed), Stage::Pending, "nobody approved it");
        assert_eq!(stage(&["Other"], ""), Stage::Pending);
        assert_eq!(stage(&["Denied"], &packed), Stage::Denied("RDenied: said so".to_owned()));
        assert_eq!(stage(&["Approved", "Failed"], ""), Stage::Failed("RFailed: said so".to_owned()));
        for no_chain in ["AAAA", &"A".repeat(limits::CREDENTIAL_FILE_BYTES / 3 * 4 + 4)] {
            assert_eq!(stage(&["Approved"], no_chain), Stage::Issued(Vec::new()));
        }
    }

    #[test]
    fn a_request_of_our_name_is_ours_or_a_trap() {
        let (ours, theirs) = (Key::new(), Key::new());
        // As long as a name can be: no text of the answer may be cut before it is compared.
        let name = "n".repeat(253);
        let request = SigningRequest::new(&name, ours.point());
        let found = |key: &Key, signer: &str| {
            let request = SigningRequest::new(&name, key.point());
            let mut object: Value =
                serde_json::from_str(&create_body(&request, &key.sign(&request.to_be_signed()), None)).unwrap();
            object["spec"]["signerName"] = json!(signer);
            read(&object)
        };
        assert!(found(&ours, SIGNER).asks_for(&request));
        assert!(!found(&theirs, SIGNER).asks_for(&request));
        assert!(!found(&ours, "kubernetes.io/kube-apiserver-client").asks_for(&request));
        assert!(!read(&object(json!({}))).asks_for(&request));
    }

    #[test]
    fn what_is_no_request_is_told_and_what_is_huge_is_cut() {
        let whole = samples::protobuf(&object(json!({ "conditions": [condition("Denied")] })));
        samples::cut_and_changed(&whole, |bytes| {
            if let Err(error) = CertificateSigningRequest::read(bytes) {
                assert_eq!(error.word(), "answer-malformed");
            }
        });
        let mut huge = object(json!({ "conditions": vec![condition(&"x".repeat(5_000)); 10_000] }));
        huge["metadata"]["uid"] = json!("u".repeat(100_000));
        let read = read(&huge);
        assert_eq!((read.uid.len(), read.stage), (limits::FOREIGN_TEXT_CHARS, Stage::Pending));
        let other = json!({ "kind": "PartialObjectMetadata", "metadata": { "uid": "u" } });
        for none in [&samples::protobuf(&other)[..], b"{}", b""] {
            assert!(CertificateSigningRequest::read(none).is_err(), "of another kind, or of another form");
        }
    }
}
