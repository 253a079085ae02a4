//! Turns a [`SigningRequest`] into the API's object CertificateSigningRequest, and that object into how far it is (CSR-4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::{Value, json};

use super::signing_request::{SigningRequest, USAGES};
use super::{IdentityError, pem};
use crate::api::failure::cut;
use crate::config::limits;
use crate::node::bounded::{self, Entry};
use crate::time::Wall;

/// Who signs certificates of Nodes: user `system:node:NAME` in group `system:nodes`.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Body of the POST. `signature` as for [`SigningRequest::der`]; without `expiration_seconds` the signer's longest life is
/// asked for, with less than 600 the server refuses.
pub fn create_body(request: &SigningRequest, signature: &[u8], expiration_seconds: Option<u32>) -> String {
    let packed = STANDARD.encode(request.pem(signature));
    let mut spec = json!({ "request": packed, "signerName": SIGNER, "usages": USAGES });
    if let (Some(seconds), Value::Object(spec)) = (expiration_seconds, &mut spec) {
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

/// An answer: a CertificateSigningRequest, or its metadata alone (PartialObjectMetadata), which is [`Stage::Pending`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSigningRequest {
    pub uid: String,
    pub resource_version: String,
    /// `metadata.creationTimestamp`: time is not before this.
    pub created: Option<Wall>,
    pub stage: Stage,
    signer: String,
    request: String,
}

impl CertificateSigningRequest {
    /// `body`: JSON of the API server's own answer.
    pub fn read(body: &[u8]) -> Result<CertificateSigningRequest, IdentityError> {
        let object: Object =
            serde_json::from_slice(body).map_err(|error| IdentityError::AnswerMalformed(error.to_string()))?;
        Ok(CertificateSigningRequest {
            stage: object.status.stage(),
            uid: object.metadata.uid,
            resource_version: object.metadata.resource_version,
            created: Wall::parse_stamp(&object.metadata.creation_timestamp),
            signer: object.spec.signer_name,
            request: object.spec.request,
        })
    }

    /// Whether it is ours from before (409), and no trap: same signer, subject and key.
    pub fn asks_for(&self, request: &SigningRequest) -> bool {
        self.signer == SIGNER && STANDARD.decode(&self.request).is_ok_and(|pem| request.is_in(&pem))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "bounded::text")]
    uid: String,
    #[serde(deserialize_with = "bounded::text")]
    resource_version: String,
    #[serde(deserialize_with = "bounded::text")]
    creation_timestamp: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "bounded::text")]
    request: String,
    #[serde(deserialize_with = "bounded::text")]
    signer_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "bounded::list")]
    conditions: Vec<Condition>,
    certificate: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "bounded::text")]
    kind: String,
    #[serde(deserialize_with = "bounded::text")]
    reason: String,
    #[serde(deserialize_with = "bounded::text")]
    message: String,
}

impl Entry for Condition {
    fn bytes(&self) -> usize {
        self.kind.len() + self.reason.len() + self.message.len()
    }
}

impl Status {
    /// None of these conditions is ever taken back; a certificate counts only where the request is approved.
    fn stage(&self) -> Stage {
        let of = |kind: &str| self.conditions.iter().find(|condition| condition.kind == kind);
        let words = |condition: &Condition| cut(&format!("{}: {}", condition.reason, condition.message));
        match (of("Denied"), of("Failed"), of("Approved")) {
            (Some(denied), ..) => Stage::Denied(words(denied)),
            (_, Some(failed), _) => Stage::Failed(words(failed)),
            (_, _, None) => Stage::Pending,
            _ if self.certificate.is_empty() => Stage::Approved,
            _ => Stage::Issued(self.chain()),
        }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        if self.certificate.len() > limits::CREDENTIAL_FILE_BYTES {
            return Vec::new();
        }
        STANDARD.decode(&self.certificate).map_or_else(|_| Vec::new(), |pem| pem::certificates(&pem).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples::{self, Key};

    fn read(object: &Value) -> CertificateSigningRequest {
        CertificateSigningRequest::read(object.to_string().as_bytes()).unwrap()
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
        assert_eq!(pending.created, Wall::parse_stamp("2026-11-22T10:00:00Z"));
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
        for no_chain in ["!", "AAAA", &"A".repeat(limits::CREDENTIAL_FILE_BYTES + 4)] {
            assert_eq!(stage(&["Approved"], no_chain), Stage::Issued(Vec::new()));
        }
    }

    #[test]
    fn of_metadata_alone_the_version_is_read() {
        let partial = json!({ "kind": "PartialObjectMetadata", "metadata": { "uid": "u", "resourceVersion": "9" } });
        let read = read(&partial);
        assert_eq!((read.uid.as_str(), read.resource_version.as_str(), read.stage), ("u", "9", Stage::Pending));
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
        let whole = object(json!({ "conditions": [condition("Denied")] })).to_string();
        samples::cut_and_changed(whole.as_bytes(), |bytes| {
            if let Err(error) = CertificateSigningRequest::read(bytes) {
                assert_eq!(error.word(), "answer-malformed");
            }
        });
        let mut huge = object(json!({ "conditions": vec![condition(&"x".repeat(5_000)); 10_000] }));
        huge["metadata"]["uid"] = json!("u".repeat(100_000));
        let read = read(&huge);
        assert_eq!((read.uid.len(), read.stage), (limits::OBJECT_TEXT_BYTES, Stage::Pending));
    }
}
