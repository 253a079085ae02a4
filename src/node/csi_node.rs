//! Turns a Node's name and uid into the CSINode that a kubelet makes for it: no CSI driver runs there (AUT-10).

use serde_json::json;

use super::lease::owner;

/// The volume plug-ins of the API server's own time that CSI drivers have taken over: all there were, as kubelet v1.36 says.
const MIGRATED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

/// Body of the POST. The Node owns it, so that it goes when the Node goes.
pub fn create_body(name: &str, owner_uid: &str) -> String {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "annotations": { "storage.alpha.kubernetes.io/migrated-plugins": MIGRATED },
            "ownerReferences": [owner(name, owner_uid)],
        },
        "spec": { "drivers": [] },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured of kubelet v1.36.3.
    #[test]
    fn the_body_is_the_kubelets_with_its_kind() {
        let expected = concat!(
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"annotations":{"#,
            r#""storage.alpha.kubernetes.io/migrated-plugins":"kubernetes.io/aws-ebs,kubernetes.io/azure-disk,"#,
            r#"kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,"#,
            r#"kubernetes.io/vsphere-volume"},"name":"n1","ownerReferences":[{"apiVersion":"v1","kind":"Node","#,
            r#""name":"n1","uid":"u-1"}]},"spec":{"drivers":[]}}"#,
        );
        assert_eq!(create_body("n1", "u-1"), expected);
    }
}
