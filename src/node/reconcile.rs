//! Turns a Node found at registration and the one we would have created into the one that should be there (REC-*), and
//! two Nodes into whether their status says the same (CHG-*).

use super::capacity::{self, HUGEPAGES};
use super::object::{Condition, Metadata, Node, ResourceList};
use super::version;
use crate::config::quantity::Quantity;
use crate::config::text_map::TextMap;
use crate::probe::facts::Hugepages;
use crate::time::Wall;

/// INI-4: the attach/detach controller then never expects this node to attach a volume.
pub(super) const MANAGED_ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// D8: service controllers ask only whether the key is there, so its value is free to say why. That is what a DaemonSet
/// that tolerates every taint tells boards by: control planes have the key as well, without a value.
pub(super) const NO_LOAD_BALANCER_LABEL: (&str, &str) =
    ("node.kubernetes.io/exclude-from-external-load-balancers", "podless");
/// REC-2: only these are made equal, and only where the initial Node has an opinion.
const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Makes a Node that was found right (REC-1, REC-2, REC-5). `initial`: what it would have been created with. Resources (REC-3)
/// are made right by each report.
///
/// Extended resources (REC-4) are left alone: the agent has no device plug-ins, so those it finds belong to somebody
/// else, or to the settings (`extended`); but those of a kubelet that was here before us, whose plug-ins are gone, become 0. Taints and all other labels
/// are never touched, as they are set at creation only; but a kubelet's Node gets the label that keeps load balancers off.
pub(super) fn reconcile(node: &mut Node, initial: &Metadata, hugepages: &[Hugepages]) {
    let was_kubelets = version::is_kubelets(node);
    make_equal(&mut node.metadata.annotations, &initial.annotations, [MANAGED_ATTACH_DETACH]);
    let labels = DEFAULT_LABELS.into_iter().chain(was_kubelets.then_some(NO_LOAD_BALANCER_LABEL.0));
    let labels = labels.filter(|key| initial.labels.contains_key(key));
    make_equal(&mut node.metadata.labels, &initial.labels, labels);
    let sizes: Vec<String> = hugepages.iter().map(capacity::hugepages_name).collect();
    for list in [&mut node.status.capacity, &mut node.status.allocatable] {
        list.retain(|name, _| !name.starts_with(HUGEPAGES) || sizes.contains(name));
        // As a fresh kubelet would have them.
        for (_, quantity) in list.iter_mut().filter(|(name, _)| was_kubelets && name.contains('/')) {
            "0".clone_into(quantity);
        }
    }
}

/// Makes what `theirs` has under `keys` what `ours` has there; nothing counts as empty.
pub(super) fn make_equal<'a>(
    theirs: &mut TextMap<String>,
    ours: &TextMap<String>,
    keys: impl IntoIterator<Item = &'a str>,
) {
    for key in keys {
        let value = ours.get(key).map_or("", String::as_str);
        if value != theirs.get(key).map_or("", String::as_str) {
            theirs.remove(key);
            theirs.extend((!value.is_empty()).then(|| (key.to_owned(), value.to_owned())));
        }
    }
}

/// Whether two statuses say the same (CHG-1, CHG-2): heartbeats and the order of conditions do not count, quantities
/// compare as numbers, times as instants, nothing equals empty, the order of addresses counts.
pub(super) fn same_status(left: &Node, right: &Node) -> bool {
    let (left, right) = (&left.status, &right.status);
    same_resources(&left.capacity, &right.capacity)
        && same_resources(&left.allocatable, &right.allocatable)
        && left.conditions.len() == right.conditions.len()
        && left.conditions.iter().all(|one| right.conditions.iter().any(|other| same_condition(one, other)))
        && left.addresses == right.addresses
        && left.daemon_endpoints == right.daemon_endpoints
        && left.node_info == right.node_info
        && (&left.runtime_handlers, left.features) == (&right.runtime_handlers, right.features)
        && left.images == right.images
}

fn same_resources(left: &ResourceList, right: &ResourceList) -> bool {
    left.len() == right.len()
        && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| same_quantity(value, other)))
}

fn same_quantity(left: &str, right: &str) -> bool {
    left == right || matches!((Quantity::parse(left), Quantity::parse(right)), (Ok(left), Ok(right)) if left == right)
}

fn same_condition(left: &Condition, right: &Condition) -> bool {
    let instant = |one: &Condition| Wall::parse_stamp(&one.last_transition_time);
    left.kind == right.kind
        && left.status == right.status
        && left.reason == right.reason
        && left.message == right.message
        && (left.last_transition_time == right.last_transition_time
            || (instant(left).is_some() && instant(left) == instant(right)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::desired::updated;
    use crate::node::object::Address;
    use crate::node::remembered::Remembered;
    use crate::node::tests::samples::{self, condition_mut, foreign_condition};
    use crate::node::version::kubelet_version;

    fn list(pairs: &[(&str, &str)]) -> ResourceList {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn with_labels(pairs: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.metadata.labels = list(pairs);
        node
    }

    /// `None`: nothing differs.
    fn reconciled(existing: &Node, initial: &Metadata) -> Option<Node> {
        let mut node = existing.clone();
        reconcile(&mut node, initial, &samples::facts().machine.hugepages);
        (node != *existing).then_some(node)
    }

    fn labels_after(existing: &[(&str, &str)], initial: &[(&str, &str)]) -> Option<ResourceList> {
        let initial = with_labels(initial).metadata;
        reconciled(&with_labels(existing), &initial).map(|node| node.metadata.labels)
    }

    /// What the first report of a process makes of this.
    fn resources_after(capacity: ResourceList, allocatable: ResourceList) -> (bool, Node) {
        let (settings, facts) = (samples::settings(), samples::facts());
        let mut base = samples::node();
        (base.status.capacity, base.status.allocatable) = (capacity, allocatable);
        let board = samples::board(&settings, &facts, samples::LATER);
        let update = updated(&base, &board, &mut Remembered::default(), true);
        (update.changed, update.node)
    }

    #[test]
    fn a_node_that_is_as_it_would_be_created_needs_no_update() {
        assert_eq!(reconciled(&samples::node(), &samples::node().metadata), None);
    }

    #[test]
    fn default_labels_are_added_and_made_right_and_others_stay() {
        let ours = [("kubernetes.io/hostname", "edge-1"), ("kubernetes.io/arch", "arm64")];
        assert_eq!(labels_after(&[], &ours), Some(list(&ours)));
        let stale = [("kubernetes.io/hostname", "old"), ("kubernetes.io/arch", "amd64"), ("team", "blue")];
        let expected = [ours[0], ours[1], ("team", "blue")];
        assert_eq!(labels_after(&stale, &ours), Some(list(&expected)));
        assert_eq!(labels_after(&expected, &ours), None);
    }

    #[test]
    fn each_of_the_twelve_default_labels_is_made_equal_and_goes_where_it_is_to_be_empty() {
        // From `updateDefaultLabels` of the kubelet, not from the table above.
        let keys = "kubernetes.io/hostname topology.kubernetes.io/zone topology.kubernetes.io/region \
            failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region \
            node.kubernetes.io/instance-type beta.kubernetes.io/instance-type kubernetes.io/os kubernetes.io/arch \
            node.kubernetes.io/windows-build beta.kubernetes.io/os beta.kubernetes.io/arch";
        assert_eq!(keys.split_whitespace().count(), 12);
        for key in keys.split_whitespace() {
            let (ours, others) = ([(key, "ours")], [(key, "theirs"), ("team", "blue")]);
            assert_eq!(labels_after(&others, &ours), Some(list(&[(key, "ours"), ("team", "blue")])), "{key}");
            assert_eq!(labels_after(&[], &ours), Some(list(&ours)), "{key}");
            assert_eq!(labels_after(&others, &[(key, "")]), Some(list(&[("team", "blue")])), "{key}");
        }
        for key in ["node-role.kubernetes.io/edge", "node.kubernetes.io/other", "example.com/zone"] {
            assert_eq!(labels_after(&[(key, "theirs")], &[(key, "ours")]), None, "{key}");
        }
    }

    #[test]
    fn labels_without_an_opinion_of_ours_are_neither_added_nor_removed() {
        let zone = [("topology.kubernetes.io/zone", "a")];
        assert_eq!(labels_after(&zone, &[]), None);
        assert_eq!(labels_after(&zone, &[("team", "blue")]), None);
        assert_eq!(labels_after(&zone, &[("topology.kubernetes.io/zone", "")]), Some(ResourceList::new()));
    }

    #[test]
    fn the_attach_detach_annotation_is_set_corrected_and_removed() {
        let annotated = |value: Option<&str>| {
            let mut node = Node::default();
            let annotations = &mut node.metadata.annotations;
            annotations.extend(value.map(|value| (MANAGED_ATTACH_DETACH.to_owned(), value.to_owned())));
            node
        };
        for (existing, initial, differs) in [
            (None, None, false),
            (Some("true"), Some("true"), false),
            (Some("true"), None, true),
            (None, Some("true"), true),
            (Some("false"), Some("true"), true),
        ] {
            let reconciled = reconciled(&annotated(existing), &annotated(initial).metadata);
            let annotation = |node: &Node| node.metadata.annotations.get(MANAGED_ATTACH_DETACH).cloned();
            assert_eq!(reconciled.as_ref().map(annotation), differs.then(|| initial.map(str::to_owned)));
        }
    }

    #[test]
    fn resources_that_are_not_there_at_all_are_filled_in() {
        let Node { status, .. } = samples::node();
        let (capacity, allocatable) = (status.capacity, status.allocatable);
        let (empty, full) = (ResourceList::new(), (true, (capacity.clone(), allocatable.clone())));
        for (capacity, allocatable) in [(empty.clone(), empty.clone()), (capacity, empty.clone()), (empty, allocatable)]
        {
            let (changed, node) = resources_after(capacity, allocatable);
            assert_eq!((changed, (node.status.capacity, node.status.allocatable)), full);
        }
    }

    #[test]
    fn hugepages_are_made_right_by_number_and_removed_when_the_board_has_none_such() {
        let Node { status: right, .. } = samples::node();
        let with = |name: &str, value: Option<&str>| {
            let changed = |list: &ResourceList| {
                let mut list = list.clone();
                list.remove(name);
                list.extend(value.map(|value| (name.to_owned(), value.to_owned())));
                list
            };
            (changed(&right.capacity), changed(&right.allocatable))
        };
        for (name, value, changes) in [
            ("hugepages-2Mi", Some("0Mi"), false),
            ("hugepages-2Mi", Some("1Mi"), true),
            ("hugepages-2Mi", None, true),
            ("hugepages-1Gi", Some("2Gi"), true),
        ] {
            let (capacity, allocatable) = with(name, value);
            for (capacity, allocatable) in
                [(&capacity, &allocatable), (&right.capacity, &allocatable), (&capacity, &right.allocatable)]
            {
                let (changed, node) = resources_after(capacity.clone(), allocatable.clone());
                assert_eq!(changed, changes, "{name} {value:?}");
                assert_eq!((&node.status.capacity, &node.status.allocatable), (&right.capacity, &right.allocatable));
            }
        }
    }

    #[test]
    fn extended_resources_of_others_taints_and_status_are_left_alone() {
        let mut existing = samples::node();
        existing.status.capacity.insert("vendor.example/dev".to_owned(), "3".to_owned());
        existing.spec.unschedulable = true;
        existing.status.addresses.clear();
        existing.status.node_info.kubelet_version = kubelet_version(None);
        let mut initial = samples::node().metadata;
        assert_eq!(reconciled(&existing, &initial), None);
        initial.labels.insert("kubernetes.io/arch".to_owned(), "other".to_owned());
        let reconciled = reconciled(&existing, &initial).unwrap();
        assert_eq!((&reconciled.spec, &reconciled.status), (&existing.spec, &existing.status));
    }

    #[test]
    fn a_node_that_a_kubelet_left_loses_its_plugins_and_is_kept_from_load_balancers() {
        let mut existing = samples::node();
        let lamp = || ("vendor.example/lamp".to_owned(), "3".to_owned());
        existing.status.capacity.extend([lamp()]);
        existing.status.allocatable.extend([lamp()]);
        let mut initial = samples::node().metadata;
        let (key, value) = NO_LOAD_BALANCER_LABEL;
        initial.labels.insert(key.to_owned(), value.to_owned());
        existing.status.node_info.kubelet_version = kubelet_version(None);
        assert_eq!(reconciled(&existing, &initial), None, "one of ours");
        existing.status.node_info.kubelet_version = "v1.36.3+k3s1".to_owned();
        let right = reconciled(&existing, &initial).unwrap();
        assert_eq!(right.metadata.labels[key], value);
        for list in [&right.status.capacity, &right.status.allocatable] {
            assert_eq!(list["vendor.example/lamp"], "0");
            assert_ne!(list["cpu"], "0");
        }
    }

    #[test]
    fn heartbeats_order_and_spelling_are_no_change_of_status() {
        let node = samples::node();
        assert!(same_status(&Node::default(), &Node::default()));
        assert!(same_status(&node, &node));
        let mut other = node.clone();
        other.status.conditions.reverse();
        condition_mut(&mut other, "Ready").last_heartbeat_time = "2027-01-01T00:00:00Z".to_owned();
        condition_mut(&mut other, "Ready").last_transition_time = "2026-01-01T01:00:00.0+01:00".to_owned();
        other.status.capacity.insert("cpu".to_owned(), "4000m".to_owned());
        other.metadata.labels.clear();
        assert!(same_status(&node, &other));
    }

    #[test]
    fn everything_else_in_the_status_is_a_change() {
        let changes: [fn(&mut Node); 12] = [
            |node| condition_mut(node, "Ready").status = "False".to_owned(),
            |node| condition_mut(node, "Ready").reason = "Other".to_owned(),
            |node| condition_mut(node, "Ready").message = "other".to_owned(),
            |node| condition_mut(node, "Ready").last_transition_time = "2026-01-01T00:00:01Z".to_owned(),
            |node| condition_mut(node, "Ready").last_transition_time = String::new(),
            |node| node.status.conditions.push(foreign_condition()),
            |node| node.status.conditions.clear(),
            |node| node.status.addresses.reverse(),
            |node| node.status.addresses.push(Address { kind: "InternalIP".to_owned(), address: "::2".to_owned() }),
            |node| node.status.daemon_endpoints.kubelet_endpoint.port = 10250,
            |node| node.status.node_info.boot_id = "boot-2".to_owned(),
            |node| node.status.capacity = list(&[("cpu", "5")]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = samples::node();
            change(&mut other);
            assert!(!same_status(&samples::node(), &other), "change {number}");
            assert!(!same_status(&other, &samples::node()), "change {number}");
        }
    }
}
