//! Turns the protobuf form of a `metav1.Status` into its reason and message, and of an object's metadata into its version.
//!
//! A Lease is renewed, a status asserted and a certificate asked for with protobuf accepted, as that answer is the shortest; the
//! refusal of a renewal then comes in protobuf too.
//!
//! ```text
//! "k8s\0"  Unknown { 1: TypeMeta { 1: apiVersion, 2: kind }, 2: raw }      raw = Status { 3: message, 4: reason, ... }
//!                 or PartialObjectMetadata, Lease { 1: ObjectMeta { 5: uid, 6: resourceVersion, ... },
//!                                                   2: LeaseSpec { 2: leaseDurationSeconds, 5: leaseTransitions, ... } }
//! ```

use serde::Deserialize;

use super::failure::cut;
use super::operation::Document;
use crate::protobuf::{Fields, Value};

/// `metav1.Status`, as far as it is read.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct StatusText {
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl StatusText {
    /// Of a refusal in plain words.
    pub(super) fn saying(body: &[u8]) -> StatusText {
        let message = String::from_utf8_lossy(body).trim().to_owned();
        StatusText { message, ..StatusText::default() }
    }
}

const MAGIC: &[u8] = b"k8s\0";

/// `None` for anything that is not a well-formed `Status`.
pub(super) fn read_status(body: &[u8]) -> Option<StatusText> {
    let (kind, raw) = read_unknown(body, false)?;
    let mut status = StatusText { kind: text(kind), ..StatusText::default() };
    for field in Fields::of(raw) {
        match field? {
            (3, Value::Bytes(message)) => status.message = text(message),
            (4, Value::Bytes(reason)) => status.reason = text(reason),
            _ => {}
        }
    }
    (status.kind == "Status").then_some(status)
}

/// The [`Document::Metadata`] of a `PartialObjectMetadata` or a `Lease`; `None` for anything else. `is_cut`: the end of it
/// was not waited for.
pub(super) fn read_metadata(body: &[u8], is_cut: bool) -> Option<Document> {
    let fields = |part| fields(part, is_cut);
    let (kind, raw) = read_unknown(body, is_cut)?;
    let (mut uid, mut resource_version) = (String::new(), String::new());
    let (mut lease_duration_seconds, mut transitions) = (None, 0);
    for field in fields(raw) {
        let (part @ (1 | 2), Value::Bytes(inner)) = field? else { continue };
        for field in fields(inner) {
            match (part, field?) {
                (1, (5, Value::Bytes(found))) => uid = text(found),
                (1, (6, Value::Bytes(found))) => resource_version = text(found),
                (2, (2, Value::Number(found))) => lease_duration_seconds = u32::try_from(found).ok(),
                (2, (5, Value::Number(found))) => transitions = found,
                _ => {}
            }
        }
    }
    (matches!(kind, b"PartialObjectMetadata" | b"Lease") && !uid.is_empty()).then_some(Document::Metadata {
        uid,
        resource_version,
        lease_duration_seconds,
        transitions,
    })
}

fn fields(message: &[u8], is_cut: bool) -> Fields<'_> {
    if is_cut { Fields::of_beginning(message) } else { Fields::of(message) }
}

/// Kind and content of the envelope.
pub fn read_unknown(body: &[u8], is_cut: bool) -> Option<(&[u8], &[u8])> {
    let unknown = body.strip_prefix(MAGIC)?;
    let (mut kind, mut raw): (&[u8], &[u8]) = (&[], &[]);
    for field in fields(unknown, is_cut) {
        match field? {
            (1, Value::Bytes(type_meta)) => {
                for field in Fields::of(type_meta) {
                    if let (2, Value::Bytes(found)) = field? {
                        kind = found;
                    }
                }
            }
            (2, Value::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    Some((kind, raw))
}

/// A text of the server's, cut.
pub fn text(bytes: &[u8]) -> String {
    cut(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kube-apiserver 1.36 answers the PATCH of a Lease that is not there, `details` shortened.
    const NOT_FOUND: &[u8] = b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x3c\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\
\x1a\x16leases \"n1\" not found!\"\x08NotFound*\x04\n\x02n10\x94\x03\x1a\0\"\0";

    #[test]
    fn reason_and_message_are_read() {
        let status = read_status(NOT_FOUND).unwrap();
        assert_eq!((status.reason.as_str(), status.message.as_str()), ("NotFound", "leases \"n1\" not found!"));
    }

    /// As a kube-apiserver 1.36 answers the PATCH of a status that wants metadata only, without labels and managedFields.
    const METADATA: &[u8] = b"k8s\0\n\x27\n\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata\x12\x48\n\x46\n\x07board-1\
\x12\0\x1a\0\"\0*\x241aca1a69-ce46-4c5d-99c4-aac1e6e04c7a2\x033948\0B\x08\x08\xa3\xa1\x86\xd8\x06\x10\0\x1a\0\"\0";

    #[test]
    fn uid_and_version_are_read() {
        let known = |uid: &str, version: &str, lease_duration_seconds, transitions| {
            let (uid, resource_version) = (uid.to_owned(), version.to_owned());
            Some(Document::Metadata { uid, resource_version, lease_duration_seconds, transitions })
        };
        let whole = known("1aca1a69-ce46-4c5d-99c4-aac1e6e04c7a", "394", None, 0);
        assert_eq!(read_metadata(METADATA, false), whole);
        assert_eq!(read_metadata(LEASE, false), known("uid1", "395", Some(3600), 0));
        assert_eq!((read_metadata(NOT_FOUND, false), read_status(METADATA)), (None, None), "each only for its kind");
        let cut = &METADATA[..METADATA.len() - 9];
        assert_eq!((read_metadata(cut, true), read_metadata(cut, false)), (whole, None));
    }

    /// A Lease with a name, uid, version, holder, duration and renewTime.
    const LEASE: &[u8] =
        b"k8s\0\n\x1f\n\x16coordination.k8s.io/v1\x12\x05Lease\x12;\n&\n\x02n1\x12\0\x1a\x0fkube-node-lease\"\0*\x04\
uid12\x033958\0\x12\x11\n\x02n1\x10\x90\x1c\"\x08\x08\x80\xf2\xd6\xca\x06\x10\0\x1a\0\"\0";

    #[test]
    fn fields_of_every_form_are_stepped_over() {
        let metadata = b"*\x02u12\x017\x09\0\0\0\0\0\0\0\0\x15\0\0\0\0";
        let spec = b"\x09AAAAAAAA\x15AAAA\x10\x90\x1c(\x80\x80\x04\x18\x01";
        let part = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
        let raw = [part(10, metadata), part(18, spec), vec![0x18, 1], part(0x22, b"?")].concat();
        let message = |kind: &str, raw: &[u8]| {
            [MAGIC, &part(10, &part(18, kind.as_bytes())), &part(18, raw), &part(0x1a, b""), b"\x22\0"].concat()
        };
        let lease = |transitions| {
            let (uid, resource_version) = ("u1".to_owned(), "7".to_owned());
            Some(Document::Metadata { uid, resource_version, lease_duration_seconds: Some(3600), transitions })
        };
        assert_eq!(read_metadata(&message("Lease", &raw), false), lease(1 << 16));
        assert_eq!(read_metadata(&message("Node", &raw), false), None, "of another kind");
        assert_eq!(read_metadata(&message("Lease", &part(10, b"2\x017")), false), None, "without a uid");
        assert_eq!(
            read_metadata(&message("Lease", &[&raw[..], b"\x1b"].concat()), false),
            None,
            "a group, which nobody makes"
        );
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_survived() {
        for end in 0..NOT_FOUND.len().max(METADATA.len()) {
            for whole in [NOT_FOUND, METADATA] {
                let end = end.min(whole.len() - 1);
                let _ = (read_status(&whole[..end]), read_metadata(&whole[..end], true));
                for bit in 0..8 {
                    let mut bytes = whole.to_vec();
                    bytes[end] ^= 1 << bit;
                    let _ = (read_status(&bytes), read_metadata(&bytes, true), read_metadata(&bytes, false));
                }
            }
        }
        assert_eq!(read_status(b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), None);
    }
}
