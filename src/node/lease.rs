//! Turns names and times into the bodies of Lease requests (LSE-2, LSE-3, D3, D5), and a Lease into its last renewal.

use serde_json::{Map, Value, json};

use super::object::Lease;
use crate::time::Wall;

/// What the field can hold.
const MOST_TRANSITIONS: u64 = i32::MAX as u64;

/// The one namespace a node may keep its Lease in (LSE-1).
pub const NAMESPACE: &str = "kube-node-lease";

/// Body of the POST (LSE-2); `owner_uid` is the Node's, so that the Lease goes when the Node goes. A count that is not there could
/// not be tested ([`renew_if_held_body`]).
pub fn create_body(name: &str, owner_uid: &str, duration_seconds: u32, renew_time: Wall) -> String {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name, "namespace": NAMESPACE, "ownerReferences": [owner(name, owner_uid)] },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": duration_seconds,
            "leaseTransitions": 0,
            "renewTime": renew_time.to_micro_stamp(),
        },
    })
    .to_string()
}

/// Strategic merge patch of the steady state: 52 bytes. With `strip_managed_fields` the server also
/// forgets who wrote what, and so tracks no more: asked for once, by the first renewal.
pub fn renew_body(renew_time: Wall, strip_managed_fields: bool) -> String {
    let strip = if strip_managed_fields { r#""metadata":{"managedFields":[{}]},"# } else { "" };
    // A stamp has nothing in it that JSON would have to escape, and this is written every ten seconds.
    ["{", strip, r#""spec":{"renewTime":""#, &renew_time.to_micro_stamp(), r#""}}"#].concat()
}

/// JSON patch (RFC 6902) that the server refuses (422) where the Lease has changed its holder since it was at `transitions`
/// (D10): so nobody has to read that in an answer. 133 bytes.
pub fn renew_if_held_body(renew_time: Wall, transitions: u64) -> String {
    let test = format!(r#"{{"op":"test","path":"/spec/leaseTransitions","value":{transitions}}}"#);
    format!(r#"[{test},{{"op":"add","path":"/spec/renewTime","value":"{}"}}]"#, renew_time.to_micro_stamp())
}

/// Strategic merge patch that renews and makes everything else ours again: for the first renewal of a Lease we found,
/// and after the Node was created anew, because the garbage collector would take a Lease whose only owner is the old
/// Node (D1). Owners merge by uid, so the list is replaced whole.
///
/// It counts as a change of holders, from `transitions` on: each later answer tells who held it before that it lost it
/// (D10). `version` makes it one of two that try at the same time.
pub fn renew_and_adopt_body(
    name: &str,
    owner_uid: &str,
    duration_seconds: u32,
    renew_time: Wall,
    transitions: u64,
    version: Option<u64>,
) -> String {
    let mut metadata = Map::new();
    metadata.insert("managedFields".to_owned(), json!([{}]));
    metadata.insert("ownerReferences".to_owned(), json!([owner(name, owner_uid), { "$patch": "replace" }]));
    if let Some(version) = version {
        metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
    }
    let transitions = transitions.saturating_add(1).min(MOST_TRANSITIONS);
    json!({
        "metadata": metadata,
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": duration_seconds,
            "leaseTransitions": transitions,
            "renewTime": renew_time.to_micro_stamp(),
        },
    })
    .to_string()
}

/// When the Lease was last renewed, by whomever: ours must be later (D5). What cannot be read may be later than any.
pub fn renew_time(lease: &Lease) -> Option<Wall> {
    let stamp = &lease.spec.renew_time;
    (!stamp.is_empty()).then(|| Wall::parse_stamp(stamp).unwrap_or(Wall::LAST))
}

pub(super) fn owner(name: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Wall = Wall::from_unix_us(1_767_225_600_123_456);

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_new_lease_has_name_namespace_holder_duration_time_and_owner() {
        let mut expected = json(
            r#"{"metadata":{"name":"n1","namespace":"kube-node-lease",
            "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u-1"}]},
            "spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"leaseTransitions":0,"renewTime":"2026-01-01T00:00:00.123456Z"}}"#,
        );
        expected["apiVersion"] = json!("coordination.k8s.io/v1");
        expected["kind"] = json!("Lease");
        assert_eq!(json(&create_body("n1", "u-1", 40, AT)), expected);
    }

    #[test]
    fn a_renewal_is_the_time_alone() {
        assert_eq!(renew_body(AT, false), r#"{"spec":{"renewTime":"2026-01-01T00:00:00.123456Z"}}"#);
        assert_eq!(renew_body(AT, false).len(), 52);
    }

    #[test]
    fn a_renewal_of_a_lease_that_is_still_held_tests_the_count_of_its_holders() {
        let expected = concat!(
            r#"[{"op":"test","path":"/spec/leaseTransitions","value":3},"#,
            r#"{"op":"add","path":"/spec/renewTime","value":"2026-01-01T00:00:00.123456Z"}]"#
        );
        assert_eq!(renew_if_held_body(AT, 3), expected);
        assert_eq!(expected.len(), 133);
    }

    #[test]
    fn the_first_renewal_strips_the_managed_fields() {
        let expected = r#"{"metadata":{"managedFields":[{}]},"spec":{"renewTime":"2026-01-01T00:00:00.123456Z"}}"#;
        assert_eq!(renew_body(AT, true), expected);
    }

    #[test]
    fn adopting_replaces_the_owners_and_asserts_holder_and_duration() {
        let expected = concat!(
            r#"{"metadata":{"managedFields":[{}],"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","#,
            r#""uid":"u-2"},{"$patch":"replace"}],"resourceVersion":"7"},"spec":{"holderIdentity":"n1","#,
            r#""leaseDurationSeconds":123,"leaseTransitions":4,"renewTime":"2026-01-01T00:00:00.123456Z"}}"#
        );
        assert_eq!(renew_and_adopt_body("n1", "u-2", 123, AT, 3, Some(7)), expected);
        let last = renew_and_adopt_body("n1", "u-2", 123, AT, u64::MAX, None);
        assert!(last.contains(r#""leaseTransitions":2147483647"#) && !last.contains("resourceVersion"), "{last}");
    }

    #[test]
    fn the_last_renewal_of_a_lease_is_read_or_unknown() {
        let lease = |text: &str| serde_json::from_str::<Lease>(text).unwrap();
        assert_eq!(renew_time(&lease(r#"{"spec":{"renewTime":"2026-01-01T00:00:00.123456Z"}}"#)), Some(AT));
        assert_eq!(renew_time(&lease(r#"{"spec":{"renewTime":"10000-01-01T00:00:00.000000Z"}}"#)), Some(Wall::LAST));
        assert_eq!(renew_time(&lease(r#"{"metadata":{},"spec":{}}"#)), None);
    }
}
