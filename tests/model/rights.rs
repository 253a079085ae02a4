//! Turns a caller and a request into leave or refusal: the Node authorizer, and the admission plug-in NodeRestriction.

use std::collections::BTreeMap;

use serde_json::Value;

use super::problem::Problem;
use super::route::{Route, Verb};
use super::store::Resource;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// `system:node:NAME` in group `system:nodes`.
    Node(String),
    Admin,
    /// Credentials nobody knows.
    Nobody,
}

/// Keys inside the Kubernetes domains that a node may set on itself.
const LABELS_ALLOWED: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

impl Caller {
    /// The Node authorizer (AUT-1 to AUT-5); RBAC lets anybody known read the version and review their own access.
    pub fn authorize(&self, route: &Route) -> Result<(), Problem> {
        match (self, route) {
            (_, Route::Version) | (Caller::Admin, _) => Ok(()),
            (Caller::Nobody, _) => Err(Problem::unauthorized()),
            (Caller::Node(_), Route::Review) => Ok(()),
            (Caller::Node(node), Route::Object { verb, resource, subresource, name }) => {
                if node_may(node, *verb, *resource, subresource, name) {
                    return Ok(());
                }
                let group = if *resource == Resource::Leases { "coordination.k8s.io" } else { "" };
                let scope = resource
                    .namespace()
                    .map_or("at the cluster scope".to_owned(), |space| format!("in the namespace \"{space}\""));
                let plural = resource.qualified().split('.').next().unwrap_or_default();
                let slash = if subresource.is_empty() { "" } else { "/" };
                let verb = verb.word();
                let why = format!(
                    "User \"system:node:{node}\" cannot {verb} resource \"{plural}{slash}{subresource}\" in API group \"{group}\" {scope}"
                );
                Err(Problem::forbidden(*resource, name, &why))
            }
        }
    }

    /// NodeRestriction on a Node; `old` is `None` at creation.
    pub fn admit_node(&self, name: &str, old: Option<&Value>, new: &Value) -> Result<(), Problem> {
        let Caller::Node(node) = self else { return Ok(()) };
        let refuse = |why: String| Err(Problem::forbidden(Resource::Nodes, name, &why));
        if node != name {
            return refuse(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
        }
        let Some(old) = old else {
            let mut forbidden = labels(new).into_keys().filter(|key| !may_set_label(key)).peekable();
            return match forbidden.peek() {
                None => Ok(()),
                Some(_) => {
                    refuse(format!("node \"{node}\" is not allowed to set the following labels: {}", joined(forbidden)))
                }
            };
        };
        if old["spec"].get("taints") != new["spec"].get("taints") {
            return refuse(format!("node \"{node}\" is not allowed to modify taints"));
        }
        if old["metadata"].get("ownerReferences") != new["metadata"].get("ownerReferences") {
            return refuse(format!("node \"{node}\" is not allowed to modify ownerReferences"));
        }
        let (before, after) = (labels(old), labels(new));
        let keys = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
        let mut forbidden: Vec<String> = keys.filter(|key| !may_set_label(key)).cloned().collect();
        forbidden.sort_unstable();
        forbidden.dedup();
        if forbidden.is_empty() {
            return Ok(());
        }
        refuse(format!("is not allowed to modify labels: {}", joined(forbidden.into_iter())))
    }

    /// NodeRestriction on a Lease or a CSINode: its own name only.
    pub fn admit_own(&self, resource: Resource, name: &str) -> Result<(), Problem> {
        let what = if resource == Resource::Leases { "node lease" } else { "CSINode" };
        let why = format!("can only access {what} with the same name as the requesting node");
        match self {
            Caller::Node(node) if node != name => Err(Problem::forbidden(resource, name, &why)),
            _ => Ok(()),
        }
    }
}

fn node_may(node: &str, verb: Verb, resource: Resource, subresource: &str, name: &str) -> bool {
    match resource {
        Resource::Nodes => match (verb, subresource) {
            (Verb::Get, "") => name == node,
            (Verb::Create | Verb::Update | Verb::Patch, "") | (Verb::Update | Verb::Patch, "status") => true,
            _ => false,
        },
        Resource::Leases => match verb {
            Verb::Create => true,
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => name == node,
            Verb::List => false,
        },
        Resource::Events => matches!(verb, Verb::Create | Verb::Update | Verb::Patch),
        Resource::CsiNodes => verb != Verb::List && (verb == Verb::Create || name == node),
    }
}

fn joined(keys: impl Iterator<Item = String>) -> String {
    keys.collect::<Vec<_>>().join(", ")
}

fn labels(object: &Value) -> BTreeMap<String, &Value> {
    let map = object["metadata"]["labels"].as_object();
    map.map(|map| map.iter().map(|(key, value)| (key.clone(), value)).collect()).unwrap_or_default()
}

fn may_set_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let under = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if under("node-restriction.kubernetes.io") {
        return false;
    }
    if !under("kubernetes.io") && !under("k8s.io") {
        return true;
    }
    LABELS_ALLOWED.contains(&key) || under("kubelet.kubernetes.io") || under("node.kubernetes.io")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn may(verb: Verb, resource: Resource, subresource: &'static str, name: &str) -> bool {
        let route = Route::Object { verb, resource, subresource, name: name.to_owned() };
        Caller::Node("a".to_owned()).authorize(&route).is_ok()
    }

    #[test]
    fn a_node_reads_itself_and_nobody_else() {
        assert!(may(Verb::Get, Resource::Nodes, "", "a"));
        assert!(!may(Verb::Get, Resource::Nodes, "", "b"));
        assert!(!may(Verb::List, Resource::Nodes, "", ""));
        assert!(!may(Verb::Delete, Resource::Nodes, "", "a"));
        assert!(!may(Verb::Get, Resource::Nodes, "status", "a"));
        assert!(may(Verb::Patch, Resource::Nodes, "status", "a"));
    }

    #[test]
    fn a_node_has_its_own_lease_and_writes_events_blindly() {
        assert!(may(Verb::Patch, Resource::Leases, "", "a"));
        assert!(!may(Verb::Patch, Resource::Leases, "", "b"));
        assert!(!may(Verb::List, Resource::Leases, "", ""));
        assert!(may(Verb::Create, Resource::Events, "", ""));
        assert!(!may(Verb::Get, Resource::Events, "", "a.1"));
        assert_eq!(Caller::Nobody.authorize(&Route::Review).unwrap_err().code, 401);
    }

    #[test]
    fn labels_are_restricted_as_admission_restricts_them() {
        for allowed in
            ["example.com/x", "plain", "kubernetes.io/arch", "node.kubernetes.io/x", "a.kubelet.kubernetes.io/x"]
        {
            assert!(may_set_label(allowed), "{allowed}");
        }
        for forbidden in [
            "node-role.kubernetes.io/x",
            "kubernetes.io/x",
            "foo.k8s.io/x",
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
        ] {
            assert!(!may_set_label(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn a_node_changes_only_itself_and_never_its_taints() {
        let caller = Caller::Node("a".to_owned());
        let old =
            json!({"metadata": {"labels": {"node-role.kubernetes.io/edge": ""}}, "spec": {"taints": [{"key": "t"}]}});
        assert!(caller.admit_node("a", Some(&old), &old).is_ok());
        assert!(caller.admit_node("b", Some(&old), &old).unwrap_err().message.contains("not allowed to modify node"));
        let mut untainted = old.clone();
        untainted["spec"] = json!({});
        assert!(caller.admit_node("a", Some(&old), &untainted).unwrap_err().message.contains("taints"));
        let mut unlabelled = old.clone();
        unlabelled["metadata"]["labels"] = json!({});
        let refusal = caller.admit_node("a", Some(&old), &unlabelled).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (403, "Forbidden"));
        assert!(refusal.message.ends_with("is not allowed to modify labels: node-role.kubernetes.io/edge"));
        assert!(caller.admit_node("a", None, &old).unwrap_err().message.contains("set the following labels"));
        assert!(Caller::Admin.admit_node("a", Some(&old), &untainted).is_ok());
    }
}
