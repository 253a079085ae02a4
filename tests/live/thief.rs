//! Turns a cluster as the page of recipes makes it into prey: what a thief could want there, and requests of which each is refused him
//! and allowed an administrator.

use super::super::cluster::joining::{CLUSTER_INFO, FLEET_GROUP, REQUESTS};
use super::super::cluster::{Client, Cluster, NodeIdentity, Options, Reply, Result, lease_path, wait_until};
use super::super::pkcs10::{Curve, node_subject, pem, request};
use super::fence::{apply, apply_files, names_policy};
use super::{SOON, stored_node};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const JSON: &str = "application/json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const MERGE: &str = "application/merge-patch+json";
pub const OPERATIONS: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// A request that somebody may not make.
pub struct Try {
    pub method: &'static str,
    pub path: String,
    pub body: Option<(&'static str, Value)>,
}

pub fn look(path: &str) -> Try {
    Try { method: "GET", path: path.to_owned(), body: None }
}

pub fn remove(path: &str) -> Try {
    Try { method: "DELETE", path: path.to_owned(), body: None }
}

pub fn send(method: &'static str, path: &str, kind: &'static str, body: Value) -> Try {
    Try { method, path: path.to_owned(), body: Some((kind, body)) }
}

impl Try {
    /// In earnest, or only tried.
    pub fn by(&self, client: &Client, is_dry: bool) -> Result<Reply> {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        let dry = if is_dry && self.method != "GET" { format!("{mark}dryRun=All") } else { String::new() };
        let body = self.body.as_ref().map(|(kind, value)| (*kind, value));
        client.request(self.method, &format!("{}{dry}", self.path), body)
    }

    pub fn name(&self) -> String {
        let kind = self.body.as_ref().map_or("", |(kind, _)| kind);
        format!("{} {} {kind}", self.method, self.path)
    }
}

/// Each is refused, tried and in earnest; an administrator may.
pub fn are_refused(cluster: &Cluster, thief: &Client, tries: &[Try]) -> Result<Vec<String>> {
    let mut through = Vec::new();
    for one in tries {
        let right = one.by(&cluster.api.admin, true)?;
        if right.status >= 300 {
            through.push(format!("attacks nothing: {}: {} {}", one.name(), right.status, right.body["message"]));
            continue;
        }
        for is_dry in [true, false] {
            let reply = one.by(thief, is_dry)?;
            if reply.status < 400 {
                through.push(format!("{} (dry: {is_dry}): {}", one.name(), reply.status));
            }
        }
    }
    Ok(through)
}

pub fn packed(name: &str) -> Result<String> {
    Ok(BASE64_STANDARD.encode(pem(&request(&node_subject(name), Curve::P256, &[])?)))
}

pub fn signing_request(metadata: Value, request: &str, signer: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": metadata,
        "spec": {"request": request, "signerName": signer, "usages": ["digital signature", "client auth"]},
    })
}

pub fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    })
}

pub fn event(name: &str, about: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": about, "uid": about}, "reason": "Seen", "type": "Normal",
        "source": {"component": "thief", "host": about},
    })
}

pub fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "nowhere.example/none"}],
        },
    })
}

/// A cluster as the page of recipes makes it, with a token and with what a thief could want.
pub struct Prey {
    pub cluster: Cluster,
    pub token: Client,
    /// Its certificate is the thief's.
    pub own: NodeIdentity,
    pub other: NodeIdentity,
}

impl Prey {
    pub fn new() -> Result<Self> {
        let cluster = Cluster::start(Options::default())?;
        apply_files(&cluster, &["bootstrap.yaml", "auto-approve.yaml", "revoked.yaml"])?;
        apply(&cluster, "names.yaml", &names_policy(&["edge-"])?.map_err(|e| e.1)?)?;
        let token = cluster.token(&[FLEET_GROUP], None)?;
        let token = cluster.api.anonymous()?.with_header("Authorization", &format!("Bearer {token}"));
        let (own, other) = (cluster.node_named(&cluster.api, "edge-1")?, cluster.node_named(&cluster.api, "edge-2")?);
        let admin = &cluster.api.admin;
        for node in [&own, &other] {
            admin.post("/api/v1/nodes", &stored_node(&node.name, json!({})))?;
            admin.post(LEASES, &lease(&node.name))?;
            admin.post(EVENTS, &event(&format!("{}.1", node.name), &node.name))?;
            admin.post(PODS, &pod(&format!("pod-of-{}", node.name), &node.name))?;
        }
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "treasure"}, "data": {}});
        for namespace in ["default", "kube-system"] {
            admin.post(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret)?;
        }
        // Somebody else's, which nobody has approved.
        let request = signing_request(json!({"name": "waiting"}), &packed("edge-2")?, "example.com/nobody");
        admin.post(REQUESTS, &request)?;
        let prey = Self { cluster, token, own, other };
        prey.wait_for_the_fence()?;
        Ok(prey)
    }

    /// Policies take a moment until the server follows them.
    pub fn wait_for_the_fence(&self) -> Result<()> {
        let ask = signing_request(json!({"generateName": "x-"}), &packed("cp-1")?, SIGNER);
        wait_until("the fence", SOON, || {
            match send("POST", REQUESTS, JSON, ask.clone()).by(&self.token, true)?.status {
                422 => Ok(()),
                status => Err(status.to_string()),
            }
        })
    }

    /// What nobody but an administrator or a controller may, whoever asks.
    pub fn for_nobody(&self) -> Result<Vec<Try>> {
        let system = "/api/v1/namespaces/kube-system";
        let mut waiting = self.cluster.api.admin.get(&format!("{REQUESTS}/waiting"))?;
        waiting["metadata"]["resourceVersion"] = Value::Null;
        waiting["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "Mine", "message": ""}]);
        let approved = json!({"status": {"conditions": waiting["status"]["conditions"]}});
        let issued = json!({"status": {"certificate": ""}});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": FLEET_GROUP}],
        });
        let policies = "/apis/admissionregistration.k8s.io/v1";
        let mut all = vec![
            look("/api/v1/secrets"),
            look(&format!("{system}/secrets/treasure")),
            look(&format!("{system}/secrets?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken")),
            look(&format!("{system}/secrets?watch=true&timeoutSeconds=1")),
            look("/api/v1/namespaces/default/secrets/treasure"),
            look(&format!("{system}/configmaps/nodepulse-revoked")),
            look(CLUSTER_INFO),
            send("PATCH", &format!("{system}/configmaps/nodepulse-revoked"), MERGE, json!({"data": {"edge-2": "x"}})),
            remove(&format!("{system}/configmaps/nodepulse-revoked")),
            remove(&format!("{policies}/validatingadmissionpolicies/nodepulse-names")),
            remove(&format!("{policies}/validatingadmissionpolicybindings/nodepulse-revoked")),
            look(&format!("{policies}/validatingadmissionpolicies")),
            send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", JSON, binding),
            send("PUT", &format!("{REQUESTS}/waiting/approval"), JSON, waiting.clone()),
            send("PATCH", &format!("{REQUESTS}/waiting/approval"), MERGE, approved.clone()),
            send("PATCH", &format!("{REQUESTS}/waiting/approval"), STRATEGIC, approved),
            send("PATCH", &format!("{REQUESTS}/waiting/status"), MERGE, issued),
            send("PATCH", &format!("{REQUESTS}/waiting"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
            remove(&format!("{REQUESTS}/waiting")),
            remove(REQUESTS),
            remove("/api/v1/nodes/edge-2"),
            remove("/api/v1/nodes"),
            remove(LEASES),
            remove(&lease_path("edge-2")),
            remove(EVENTS),
            look("/api/v1/configmaps"),
            send("POST", "/api/v1/namespaces", JSON, json!({"metadata": {"name": "mine"}})),
        ];
        let ask = |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        for account in ["default", "node-controller"] {
            let namespace = if account == "default" { "default" } else { "kube-system" };
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
            all.push(send("POST", &path, JSON, ask(json!({"audiences": [], "expirationSeconds": 3600}))));
        }
        let applied = signing_request(json!({"name": "applied"}), &packed("edge-3")?, SIGNER);
        all.push(send("PATCH", &format!("{REQUESTS}/applied?fieldManager=thief"), APPLY, applied));
        Ok(all)
    }

    /// With headers that make another of whom asks.
    pub fn as_somebody_else(&self, client: impl Fn() -> Result<Client>) -> Result<Vec<String>> {
        let mut through = Vec::new();
        for headers in [
            &[("Impersonate-User", "system:admin")][..],
            &[("Impersonate-User", "system:node:edge-2"), ("Impersonate-Group", "system:nodes")],
            &[("Impersonate-User", "x"), ("Impersonate-Group", "system:masters")],
            &[("Impersonate-User", "system:serviceaccount:kube-system:node-controller")],
            &[("Impersonate-User", "edge-1"), ("Impersonate-Uid", "1")],
            &[("X-Remote-User", "system:admin"), ("X-Remote-Group", "system:masters")],
        ] {
            let client = headers.iter().fold(client()?, |client, (name, value)| client.with_header(name, value));
            for path in ["/api/v1/secrets", "/api/v1/nodes", "/api/v1/namespaces/kube-system/secrets/treasure"] {
                let reply = client.request("GET", path, None)?;
                if reply.status < 400 {
                    through.push(format!("{headers:?}: GET {path}: {}", reply.status));
                }
            }
        }
        Ok(through)
    }
}
