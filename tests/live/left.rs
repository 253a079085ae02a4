//! What a kubelet left on a Node: what of it the first report clears, and what is told with the command that mends it.

use super::super::agent::Launch;
use super::super::cluster::{Cluster, Result, wait_until};
use super::super::trials::Case;
use super::check::check;
use super::{SOON, stored_node, wait_until_ready};
use serde_json::{Value, json};

pub fn cases() -> Vec<Case> {
    cases![&[], a_node_that_a_kubelet_left_is_cleared_and_the_rest_is_told_with_commands_that_mend_it]
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// As one of v1.36 leaves it, with a container runtime, a plug-in and a volume.
fn left_by_a_kubelet(name: &str) -> Value {
    let image = json!({"names": ["registry.k8s.io/pause:3.10"], "sizeBytes": 320_448});
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/lamp": "3"});
    stored_node(
        name,
        json!({"status": {
            "capacity": resources, "allocatable": resources, "images": [image],
            "volumesInUse": ["kubernetes.io/csi/example.com^disk"], "volumesAttached": [],
            "runtimeHandlers": [{"name": "runc", "features": {"userNamespaces": true}}],
            "features": {"supplementalGroupsPolicy": true}, "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "containerd://2.2.9", "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "",
            },
        }}),
    )
}

fn a_node_that_a_kubelet_left_is_cleared_and_the_rest_is_told_with_commands_that_mend_it(
    cluster: &Cluster,
) -> Result<()> {
    let node = cluster.node("left")?;
    cluster.create_node(&left_by_a_kubelet(&node.name))?;
    let before = cluster.get_node(&node.name)?["status"].clone();
    // Where the server keeps none of it, there is nothing to be cleared.
    let left = ["images", "volumesInUse", "runtimeHandlers", "features", "declaredFeatures"];
    assert!(left.iter().all(|key| !before[key].is_null()), "{before}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node.name}, "spec": {
        "nodeName": node.name, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "pause", "image": "registry.k8s.io/pause"}],
    }});
    wait_until("the pod to be taken", SOON, || cluster.api.admin.post(PODS, &pod))?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    let after = wait_until_ready(cluster, &node)?;
    for key in left {
        assert_eq!(after["status"][key], Value::Null, "{key}");
    }
    let info = &after["status"]["nodeInfo"];
    assert_eq!((&info["containerRuntimeVersion"], &info["kubeProxyVersion"]), (&json!("none://Unknown"), &json!("")));
    assert_eq!(after["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
    for list in ["capacity", "allocatable"] {
        let list = &after["status"][list];
        assert_eq!((&list["example.com/lamp"], &list["pods"]), (&json!("0"), &json!("0")), "{list}");
    }
    assert_eq!(after["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"], "podless");
    let taints = agent.wait_for_line(&["taints-missing:", "kubectl taint nodes"], SOON)?;
    let pods = agent.wait_for_line(&["kubelet-left:", "kubectl delete pods"], SOON)?;
    let (_, said) = check(&node)?;
    // Both say the same, and it mends what they say.
    for line in [taints, pods] {
        let (_, command) = line.split_once("kubectl ").ok_or("no command")?;
        assert!(said.contains(&format!("try: kubectl {command}")), "{command}: {said}");
        cluster.kubectl(&command.split(' ').collect::<Vec<_>>())?;
    }
    assert!(said.contains(&format!("default/{}", node.name)), "{said}");
    let (_, said) = check(&node)?;
    assert!(!said.contains("taint") && !said.contains("pods"), "{said}");
    let found = cluster.api.admin.find(&format!("{PODS}/{}", node.name))?;
    assert_eq!(found, None, "it waits for no kubelet");
    assert_eq!(agent.stop()?, 0);
    let mut second = Launch::quick(&node).start(cluster)?;
    second.wait_for_line(&["lease-held:"], SOON)?;
    assert_eq!((second.count_lines("kubelet-left:")?, second.count_lines("taints-missing:")?), (0, 0));
    second.check()
}
