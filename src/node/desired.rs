//! Turns facts and settings into the Node to register, and the Node of the server into the one it should be.

use super::board::{Board, Update};
use super::event::NodeEvent;
use super::object::{Endpoint, Metadata, Node, NodeSpec, NodeStatus};
use super::reconcile::{MANAGED_ATTACH_DETACH, NO_LOAD_BALANCER_LABEL, make_equal, reconcile, same_status};
use super::remembered::Remembered;
use super::{address, capacity, condition, extended, feature_labels, identity, version};
use crate::config::Settings;
use crate::config::settings::CloudProvider;
use crate::config::taint::{Effect, Taint};
use crate::config::text_map::TextMap;

/// D8: key of the two taints that keep pods away.
pub const PODLESS_TAINT: &str = "nodepulse.dev/podless";
const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// UPD-2: restored on every run.
const ASSERTED_LABELS: [&str; 2] = ["kubernetes.io/os", "kubernetes.io/arch"];

/// The Node to register (INI-1..7): every setter has run on it, and it names the board it is made on (D10). Sizes that cannot
/// be read now are those of before, where they are `remembered`: one that is made anew is Ready like the one that is gone.
pub fn initial(board: &Board, remembered: &Remembered) -> Update {
    let metadata = Metadata { name: board.name.to_owned(), ..initial_metadata(board) };
    let spec = NodeSpec {
        provider_id: board.settings.provider_id.clone(),
        taints: taints(board.settings),
        ..NodeSpec::default()
    };
    let mut node = Node { metadata, spec, status: NodeStatus::default() };
    feature_labels::claim(&mut node, board);
    run_setters(node, board, &mut Remembered { unschedulable: false, ..remembered.clone() })
}

/// The Node as it should be, from the Node as the server has it (SYN-5, UPD-1..3).
///
/// A condition of ours whose status is right but whose reason is still the node controller's (`NodeStatusUnknown`,
/// `NodeStatusNeverUpdated`), or that of the other status, counts as a transition (PRS-7): somebody has then already
/// repaired the status alone, and reason, message, transition time and event are still owed. `reconciles`: as the first report
/// of a process, which also puts right what REC-* says.
pub fn updated(base: &Node, board: &Board, remembered: &mut Remembered, reconciles: bool) -> Update {
    let mut node = base.clone();
    if reconciles {
        reconcile(&mut node, &initial_metadata(board), &board.facts.machine.hugepages);
    }
    extended::claim(&mut node, board);
    feature_labels::claim(&mut node, board);
    let asserted = default_labels(board).filter(|(key, _)| ASSERTED_LABELS.contains(key));
    node.metadata.labels.extend(asserted.map(|(key, value)| (key.to_owned(), value.to_owned())));
    make_equal(&mut node.metadata.annotations, &identity::annotations(&board.facts.machine), identity::ANNOTATIONS);
    // What the setters do to an annotation can wait for the next report (CHG-3).
    let mut changed = node.metadata != base.metadata;
    let pod_cidrs = base.spec.pod_cidrs.join(",");
    if !pod_cidrs.is_empty() && pod_cidrs != remembered.pod_cidrs {
        remembered.pod_cidrs = pod_cidrs;
        changed = true;
    }
    let update = run_setters(node, board, remembered);
    Update { changed: changed || !same_status(base, &update.node), ..update }
}

/// The same Node with new heartbeats, where [`updated`] has found nothing else to change and nothing has changed since: a report
/// without a change costs a quarter of the steps.
pub fn with_heartbeats(base: &Node, board: &Board) -> Update {
    let mut update = Update::of(base.clone());
    update.conditions = condition::set(&mut update.node, board.conditions, board.settings, board.stamp);
    Update { changed: false, ..update }
}

/// The setters in the kubelet's order; one that fails leaves its fields and the others still run (UPD-3).
fn run_setters(node: Node, board: &Board, remembered: &mut Remembered) -> Update {
    let mut update = Update::of(node);
    let failed = address::set(&mut update.node, board);
    update.problems.extend(failed.err());
    capacity::set(&mut update, board, remembered);
    version::set(&mut update, board, remembered);
    update.node.status.daemon_endpoints.kubelet_endpoint = Endpoint { port: board.settings.port };
    update.conditions = condition::set(&mut update.node, board.conditions, board.settings, board.stamp);
    let unschedulable = update.node.spec.unschedulable;
    if std::mem::replace(&mut remembered.unschedulable, unschedulable) != unschedulable {
        let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        update.events.push(NodeEvent::status_is_now(board.name, reason));
    }
    update
}

/// The labels and annotations that the Node is created with.
fn initial_metadata(board: &Board) -> Metadata {
    let mut annotations = identity::annotations(&board.facts.machine);
    if board.settings.enable_controller_attach_detach {
        annotations.insert(MANAGED_ATTACH_DETACH.to_owned(), "true".to_owned());
    }
    annotations.extend(extended::annotation(&board.facts.readings, &[]));
    Metadata { labels: labels(board), annotations, ..Metadata::default() }
}

/// Those that the board knows.
fn default_labels<'a>(board: &Board<'a>) -> impl Iterator<Item = (&'static str, &'a str)> {
    let (os, architecture) =
        (version::OPERATING_SYSTEM, board.facts.machine.architecture.as_deref().unwrap_or_default());
    let labels = [
        ("kubernetes.io/hostname", board.name),
        ("kubernetes.io/os", os),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", architecture),
    ];
    labels.into_iter().filter(|(_, value)| !value.is_empty())
}

/// INI-1, INI-2, D8 and what a cloud provider would have said; the user's labels win.
fn labels(board: &Board) -> TextMap<String> {
    let settings = board.settings;
    let cloud = [
        ("node.kubernetes.io/instance-type", settings.instance_type.as_str()),
        ("topology.kubernetes.io/zone", settings.zone.as_str()),
        ("topology.kubernetes.io/region", settings.region.as_str()),
    ];
    let known = default_labels(board).chain(cloud.into_iter().filter(|(_, value)| !value.is_empty()));
    let mut labels: TextMap<_> = known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if settings.podless {
        let (key, value) = NO_LOAD_BALANCER_LABEL;
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.extend(settings.node_labels.clone());
    labels
}

/// INI-3 and D8; one of the user's own with the same key and effect stands for ours, as the API takes no two.
fn taints(settings: &Settings) -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
    let mut ours = Vec::new();
    if settings.podless {
        ours.push(taint(PODLESS_TAINT, "", Effect::NoSchedule));
        ours.push(taint(PODLESS_TAINT, "", Effect::NoExecute));
    }
    if settings.cloud_provider == CloudProvider::External {
        ours.push(taint(UNINITIALIZED_TAINT, "true", Effect::NoSchedule));
    }
    let mut taints = settings.register_with_taints.clone();
    ours.retain(|ours| !taints.iter().any(|theirs| theirs.collides_with(ours)));
    taints.extend(ours);
    taints
}

/// What an administrator would type to give a Node the taints that keep pods away, where it lacks them: a node may set
/// them when it is created, and never later. Others than these are there for a time only, and may be gone by right.
pub fn taint_command(node: &Node, name: &str, settings: &Settings) -> Option<String> {
    let mut missing = taints(settings);
    missing
        .retain(|ours| ours.key == PODLESS_TAINT && !node.spec.taints.iter().any(|theirs| theirs.collides_with(ours)));
    let list: String = missing.iter().map(|taint| format!(" {taint}")).collect();
    (!missing.is_empty()).then(|| format!("kubectl taint nodes {name}{list}"))
}

/// What an administrator would type to rid a Node of the pods that are bound to it; without `--force` they would wait
/// for the word of a kubelet.
pub fn delete_pods_command(name: &str) -> String {
    format!("kubectl delete pods --all-namespaces --field-selector spec.nodeName={name} --force")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node::NodeError;
    use crate::node::condition::Written;
    use crate::node::patch::{create_body, status_patch};
    use crate::node::rules::{COUNT, own};
    use crate::node::tests::samples::{self, LATER, LATER_STAMP, START, START_STAMP, absent, condition, condition_mut};

    fn taint_texts(settings: &Settings) -> Vec<String> {
        taints(settings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_new_node_is_the_complete_object_of_a_small_agent() {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({ "type": kind, "status": status, "lastHeartbeatTime": START_STAMP,
                "lastTransitionTime": START_STAMP, "reason": reason, "message": message })
        };
        let architecture = "riscv64";
        let expected = json!({
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": "edge-1",
                "labels": {
                    "beta.kubernetes.io/arch": architecture,
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": architecture,
                    "kubernetes.io/hostname": "edge-1",
                    "kubernetes.io/os": "linux",
                },
                "annotations": {
                    "nodepulse.dev/board-mac": "dc:a6:32:ab:cd:ef",
                    "nodepulse.dev/board-serial": "10000000abcdef12",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
            },
            "spec": {},
            "status": {
                "capacity": { "cpu": "4", "ephemeral-storage": "104846316Ki", "hugepages-2Mi": "0",
                    "memory": "16265484Ki", "pods": "110" },
                "allocatable": { "cpu": "4", "ephemeral-storage": "96626364666", "hugepages-2Mi": "0",
                    "memory": "16163084Ki", "pods": "110" },
                "conditions": [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                        "kubelet has sufficient memory available"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID",
                        "kubelet has sufficient PID available"),
                    condition("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly",
                        "Filesystem is not read-only"),
                    condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
                ],
                "addresses": [
                    { "type": "InternalIP", "address": "10.0.0.1" },
                    { "type": "Hostname", "address": "edge-1" },
                ],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 0 } },
                "nodeInfo": {
                    "machineID": "0123456789abcdef0123456789abcdef",
                    "systemUUID": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
                    "bootID": "boot-1",
                    "kernelVersion": "6.1.0",
                    "osImage": "Debian GNU/Linux 12 (bookworm)",
                    "containerRuntimeVersion": "none://Unknown",
                    "kubeletVersion": "v1.36.2",
                    "kubeProxyVersion": "",
                    "operatingSystem": "linux",
                    "architecture": architecture,
                },
            },
        });
        let (settings, facts) = (samples::settings(), samples::facts());
        let Update { node, conditions, events, problems, .. } =
            initial(&samples::board(&settings, &facts, START), &Remembered::default());
        assert_eq!(serde_json::from_str::<Value>(&create_body(&node)).unwrap(), expected);
        assert_eq!(events, []);
        let new = own().zip(conditions).filter(|(_, written)| *written == Written::New).map(|(kind, _)| kind);
        let all = ["MemoryPressure", "DiskPressure", "PIDPressure", "ReadonlyFilesystem", "Ready"];
        assert_eq!(new.collect::<Vec<_>>(), all);
        assert_eq!(problems, []);
    }

    #[test]
    fn the_port_of_the_settings_is_the_kubelets_endpoint() {
        let (settings, facts) = (Settings { port: 10_250, ..samples::settings() }, samples::facts());
        let node = initial(&samples::board(&settings, &facts, START), &Remembered::default()).node;
        assert_eq!(node.status.daemon_endpoints.kubelet_endpoint.port, 10_250);
        assert_eq!(
            samples::run(&samples::node(), &settings, &facts).node.status.daemon_endpoints,
            node.status.daemon_endpoints
        );
    }

    #[test]
    fn a_podless_node_offers_no_pods_and_keeps_pods_and_load_balancers_away() {
        let (settings, facts) = (Settings::default(), samples::facts());
        let node = initial(&samples::board(&settings, &facts, START), &Remembered::default()).node;
        assert_eq!(node.status.capacity["pods"], "0");
        assert_eq!(node.metadata.labels["node.kubernetes.io/exclude-from-external-load-balancers"], "podless");
        assert_eq!(taint_texts(&settings), ["nodepulse.dev/podless:NoSchedule", "nodepulse.dev/podless:NoExecute"]);
        assert_eq!(node.spec.taints, taints(&settings));
        assert_eq!(condition(&samples::node(), "Ready").status, "True", "zero pods is a capacity (RDY-3)");
    }

    #[test]
    fn taints_of_the_user_come_first_and_the_cloud_providers_last() {
        let mut settings = Settings { cloud_provider: CloudProvider::External, ..Settings::default() };
        for text in ["dedicated=edge:NoSchedule", "nodepulse.dev/podless=mine:NoSchedule"] {
            settings.register_with_taints.push(Taint::parse(text).unwrap());
        }
        assert_eq!(
            taint_texts(&settings),
            [
                "dedicated=edge:NoSchedule",
                "nodepulse.dev/podless=mine:NoSchedule",
                "nodepulse.dev/podless:NoExecute",
                "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
            ]
        );
        assert!(taint_texts(&samples::settings()).is_empty());
    }

    #[test]
    fn taints_that_an_existing_node_lacks_are_named_as_they_would_be_typed() {
        let mut settings = Settings { cloud_provider: CloudProvider::External, ..Settings::default() };
        settings.register_with_taints = vec![Taint::parse("example.com/damp:NoSchedule").unwrap()];
        let mut node = samples::node();
        let command = "kubectl taint nodes n1 nodepulse.dev/podless:NoSchedule nodepulse.dev/podless:NoExecute";
        assert_eq!(taint_command(&node, "n1", &settings).as_deref(), Some(command));
        settings.podless = false;
        assert_eq!(taint_command(&node, "n1", &settings), None, "those of others come and go");
        settings.podless = true;
        node.spec.taints = taints(&settings);
        assert_eq!(taint_command(&node, "n1", &settings), None);
    }

    #[test]
    fn labels_and_provider_id_come_from_settings_and_the_users_labels_win() {
        let mut settings = Settings {
            provider_id: "edge://1".to_owned(),
            instance_type: "rpi-4".to_owned(),
            zone: "hall-7".to_owned(),
            enable_controller_attach_detach: false,
            ..samples::settings()
        };
        settings.node_labels.insert("topology.kubernetes.io/zone".to_owned(), "mine".to_owned());
        settings.node_labels.insert("team".to_owned(), "blue".to_owned());
        let mut facts = samples::facts();
        facts.machine.board_serial = absent();
        facts.machine.mac_address = absent();
        let node = initial(&samples::board(&settings, &facts, START), &Remembered::default()).node;
        let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
        assert_eq!(label("node.kubernetes.io/instance-type"), Some("rpi-4"));
        assert_eq!(label("topology.kubernetes.io/zone"), Some("mine"));
        assert_eq!(label("topology.kubernetes.io/region"), None);
        assert_eq!(label("team"), Some("blue"));
        assert_eq!(node.spec.provider_id, "edge://1");
        assert!(node.metadata.annotations.is_empty());
    }

    #[test]
    fn where_nothing_is_left_to_change_heartbeats_alone_make_the_same_node() {
        let (settings, facts) = (samples::settings(), samples::facts());
        let base = samples::run(&samples::node(), &settings, &facts).node;
        let mut board = samples::board(&settings, &facts, LATER);
        board.stamp = LATER.plus(std::time::Duration::from_secs(300));
        let whole = updated(&base, &board, &mut Remembered::default(), false);
        let quick = with_heartbeats(&base, &board);
        assert!(!whole.changed && !quick.changed && quick.problems.is_empty());
        assert_eq!((&quick.node, quick.conditions), (&whole.node, whole.conditions));
        assert_ne!(quick.node, base, "heartbeats are new");
    }

    #[test]
    fn an_existing_status_is_brought_up_to_date_and_quiet_conditions_keep_their_transition() {
        let mut base = samples::node();
        condition_mut(&mut base, "Ready").status = "False".to_owned();
        let update = samples::run(&base, &samples::settings(), &samples::facts());
        assert!(update.changed);
        for one in &update.node.status.conditions {
            let heartbeat = if one.kind == "ReadonlyFilesystem" { START_STAMP } else { LATER_STAMP };
            assert_eq!(one.last_heartbeat_time, heartbeat, "{}", one.kind);
            let expected = if one.kind == "Ready" { LATER_STAMP } else { START_STAMP };
            assert_eq!(one.last_transition_time, expected, "{}", one.kind);
        }
        let changed = own().zip(update.conditions).filter(|(_, written)| *written == Written::Changed);
        assert_eq!(changed.map(|(kind, _)| kind).collect::<Vec<_>>(), ["Ready"]);
    }

    #[test]
    fn a_run_that_only_beats_is_no_change() {
        let update = samples::run(&samples::node(), &samples::settings(), &samples::facts());
        assert!(!update.changed);
        assert_eq!(update.conditions, [Written::Same; COUNT]);
        assert!(update.events.is_empty() && update.problems.is_empty());
        assert_ne!(update.node, samples::node(), "the heartbeats moved");
    }

    #[test]
    fn capacity_that_doubles_is_a_change_without_a_transition() {
        let mut facts = samples::facts();
        facts.machine.memory_total_bytes = Ok(2 * 16_265_484 * 1024);
        let update = samples::run(&samples::node(), &samples::settings(), &facts);
        assert!(update.changed && update.conditions == [Written::Same; COUNT]);
        assert_eq!(condition(&update.node, "Ready").last_transition_time, START_STAMP);
    }

    #[test]
    fn pod_cidrs_that_appear_are_one_change() {
        let (settings, facts) = (samples::settings(), samples::facts());
        let board = samples::board(&settings, &facts, START);
        let mut remembered = Remembered::default();
        let mut base = samples::node();
        assert!(!updated(&base, &board, &mut remembered, false).changed);
        base.spec.pod_cidrs = vec!["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()];
        assert!(updated(&base, &board, &mut remembered, false).changed);
        assert_eq!(remembered.pod_cidrs, "10.1.0.0/24,fd00::/64");
        assert!(!updated(&base, &board, &mut remembered, false).changed);
        base.spec.pod_cidrs.clear();
        assert!(!updated(&base, &board, &mut remembered, false).changed);
        assert_eq!(remembered.pod_cidrs, "10.1.0.0/24,fd00::/64");
    }

    #[test]
    fn only_the_labels_of_os_and_architecture_are_restored() {
        let (settings, facts) = (samples::settings(), samples::facts());
        let mut base = samples::node();
        base.metadata.labels.remove("beta.kubernetes.io/os");
        base.metadata.labels.insert("kubernetes.io/hostname".to_owned(), "other".to_owned());
        base.metadata.labels.insert("team".to_owned(), "blue".to_owned());
        assert!(!samples::run(&base, &settings, &facts).changed);
        let expected = base.metadata.labels.clone();
        base.metadata.labels.remove("kubernetes.io/os");
        base.metadata.labels.insert("kubernetes.io/arch".to_owned(), "z80".to_owned());
        let update = samples::run(&base, &settings, &facts);
        assert!(update.changed);
        assert_eq!(update.node.metadata.labels, expected);
    }

    #[test]
    fn the_node_names_the_board_whatever_others_wrote_there() {
        let keys = ["nodepulse.dev/board-serial", "nodepulse.dev/board-mac", "nodepulse.dev/machine-id-derived-from"];
        for (key, theirs) in keys.into_iter().flat_map(|key| [(key, Some("theirs")), (key, None)]) {
            let mut base = samples::node();
            base.metadata.annotations.remove(key);
            base.metadata.annotations.extend(theirs.map(|theirs| (key.to_owned(), theirs.to_owned())));
            let update = samples::run(&base, &samples::settings(), &samples::facts());
            assert_eq!(update.changed, base.metadata != samples::node().metadata, "{key} {theirs:?}");
            assert_eq!(update.node.metadata.annotations, samples::node().metadata.annotations);
        }
    }

    #[test]
    fn an_annotation_that_is_stale_triggers_nothing_and_rides_with_the_next_patch() {
        let stale = "alpha.kubernetes.io/provided-node-ip";
        let mut base = samples::node();
        base.metadata.annotations.insert(stale.to_owned(), "10.0.0.9".to_owned());
        let update = samples::run(&base, &samples::settings(), &samples::facts());
        assert!(!update.changed);
        let patch: Value = serde_json::from_str(&status_patch(&base, &update.node)).unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({ stale: null }));
    }

    #[test]
    fn a_cordon_is_an_event_and_no_change() {
        let (settings, facts) = (samples::settings(), samples::facts());
        let board = samples::board(&settings, &facts, START);
        let mut remembered = Remembered::default();
        let mut base = samples::node();
        for (unschedulable, expected) in
            [(false, None), (true, Some("NodeNotSchedulable")), (true, None), (false, Some("NodeSchedulable"))]
        {
            base.spec.unschedulable = unschedulable;
            let update = updated(&base, &board, &mut remembered, false);
            assert!(!update.changed);
            let expected = expected.map(|reason| NodeEvent::status_is_now("edge-1", reason));
            assert_eq!(update.events.first(), expected.as_ref());
        }
    }

    #[test]
    fn one_source_that_fails_leaves_its_fields_and_the_others_still_move() {
        let mut facts = samples::facts();
        facts.network.default_routes.clear();
        facts.machine.kernel_release = absent();
        facts.machine.boot_id = Ok("boot-2".to_owned());
        let update = samples::run(&samples::node(), &samples::settings(), &facts);
        assert_eq!(update.node.status.addresses, samples::node().status.addresses);
        assert_eq!(update.node.status.node_info.kernel_version, "6.1.0");
        assert_eq!(update.node.status.node_info.boot_id, "boot-2");
        let words: Vec<&str> = update.problems.iter().map(NodeError::word).collect();
        assert_eq!(words, ["node-address-missing", "fact-absent"]);
        assert_eq!(update.events.first().map(|event| event.reason), Some("Rebooted"));
        assert_eq!(condition(&update.node, "Ready").status, "True");
    }

    #[test]
    fn a_stored_node_with_fields_of_others_is_still_read() {
        let text = r#"{"metadata":{"name":"edge-1","managedFields":[]},
            "spec":{"taints":[{"key":"k","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"},
            {"key":"k","effect":"OfTomorrow"}],"podCIDR":"10.1.0.0/24"},"status":{"images":[{"names":["a"]}],
            "conditions":[{"type":"Ready","status":"Unknown"}],"nodeInfo":{"swap":{}}}}"#;
        let base: Node = serde_json::from_str(text).unwrap();
        let update = samples::run(&base, &samples::settings(), &samples::facts());
        assert!(update.changed);
        assert_eq!(update.node.spec.taints, [Taint::parse("k:NoSchedule").unwrap()]);
        assert_eq!(update.node.status.conditions[0].kind, "Ready", "replaced in place (RDY-7)");
        assert_eq!(update.node.status.conditions.len(), samples::node().status.conditions.len());
    }
}
