//! Turns the counts of the extended resources of the settings into those of a Node, without those that left the settings.

use super::board::{Board, Update};
use super::object::{Node, ResourceList};
use crate::config::labels;
use crate::config::quantity::Quantity;
use crate::probe::Readings;

/// Annotation with the names of the extended resources that this board has put on the Node, with commas between them: those
/// are its own to take away, also after a restart, on another card or by another board in its place.
pub const EXTENDED_RESOURCES: &str = "nodepulse.dev/extended-resources";

/// The annotation that names them, and these; `None`: there are none.
pub(super) fn annotation(readings: &Readings, more: &[String]) -> Option<(String, String)> {
    let mut names: Vec<&str> = readings.extended_resources.keys().chain(more).map(String::as_str).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| (EXTENDED_RESOURCES.to_owned(), names.join(",")))
}

/// Takes away what the Node says is ours and nobody here names any more, and makes it say what is. Where device plug-ins may
/// register, there is none of that instead, as of a plug-in that is still to come (DEV-5).
pub(super) fn claim(node: &mut Node, board: &Board) {
    let (readings, is_kept) = (&board.facts.readings, board.settings.device_plugins);
    let gone = claimed(node).filter(|name| !readings.extended_resources.contains_key(name));
    let gone: Vec<String> = gone.map(str::to_owned).collect();
    for name in &gone {
        for list in [&mut node.status.capacity, &mut node.status.allocatable] {
            list.remove(name);
            list.extend(is_kept.then(|| (name.clone(), Quantity::from_count(0).to_string())));
        }
    }
    node.metadata.annotations.remove(EXTENDED_RESOURCES);
    node.metadata.annotations.extend(annotation(readings, if is_kept { &gone } else { &[] }));
}

/// The names in the annotation. Somebody may have written there what was never ours to take away.
pub(super) fn claimed(node: &Node) -> impl Iterator<Item = &str> {
    let names = node.metadata.annotations.get(EXTENDED_RESOURCES).map_or("", String::as_str);
    names.split(',').filter(|name| is_one(name))
}

/// What a Node says of those: name, how many there are, and how many of them can be used.
pub fn resources(node: &Node) -> impl Iterator<Item = [&str; 3]> {
    let status = &node.status;
    claimed(node).filter_map(|name| Some([name, status.capacity.get(name)?, status.allocatable.get(name)?]))
}

pub(super) fn is_one(name: &str) -> bool {
    labels::check_extended_resource(name).is_ok()
}

/// MI-7: what cannot be counted stays what it was.
pub(super) fn set(capacity: &mut ResourceList, readings: &Readings, update: &mut Update) {
    for (name, count) in &readings.extended_resources {
        if let Some(count) = update.known(count, &format!("status.capacity.{name}")) {
            capacity.insert(name.clone(), Quantity::from_count(*count).to_string());
        }
    }
}

/// DEV-4: devices that are not healthy count for capacity alone.
pub(super) fn set_allocatable(allocatable: &mut ResourceList, readings: &Readings) {
    for (name, unhealthy) in &readings.unhealthy_devices {
        let all = allocatable.get(name).and_then(|text| Quantity::parse(text).ok());
        let left = all.map(|all| all.minus_floored(Quantity::from_count(*unhealthy)).to_string());
        allocatable.extend(left.map(|left| (name.clone(), left)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node::claims::{differ, keep};
    use crate::node::desired::{initial, updated};
    use crate::node::patch::{status_patch, status_patch_of_version};
    use crate::node::remembered::Remembered;
    use crate::node::report::{report_in_full, whole_status};
    use crate::node::rules;
    use crate::node::tests::samples::{self, absent};
    use crate::node::version::kubelet_version;
    use crate::probe::{Fact, Facts};

    fn counted(counts: &[(&str, Fact<u64>)]) -> Facts {
        let mut facts = samples::facts();
        facts.readings.extended_resources =
            counts.iter().map(|(name, count)| ((*name).to_owned(), count.clone())).collect();
        facts
    }

    fn next(base: &Node, facts: &Facts, remembered: &mut Remembered) -> Update {
        let settings = samples::settings();
        updated(base, &samples::board(&settings, facts, samples::LATER), remembered, false)
    }

    fn new(facts: &Facts, remembered: &Remembered) -> Update {
        let settings = samples::settings();
        initial(&samples::board(&settings, facts, samples::START), remembered)
    }

    /// What is sent, and the Node of the server after that.
    fn report(base: &Node, facts: &Facts) -> (Value, Node) {
        let update = next(base, facts, &mut Remembered::default());
        let mut patch: Value = serde_json::from_str(&status_patch(base, &update.node)).unwrap();
        assert!(update.changed, "{patch}");
        if let Some(status) = patch["status"].as_object_mut() {
            status.retain(|key, _| !key.contains("onditions"));
        }
        (patch, update.node)
    }

    #[test]
    fn devices_of_a_plug_in_that_are_not_healthy_count_for_capacity_alone() {
        let base = new(&counted(&[("example.com/usb", Ok(3))]), &Remembered::default()).node;
        let mut facts = counted(&[("example.com/usb", Ok(3))]);
        facts.readings.unhealthy_devices.insert("example.com/usb".to_owned(), 1);
        let (patch, node) = report(&base, &facts);
        assert_eq!(patch["status"], json!({ "allocatable": { "example.com/usb": "2" } }));
        assert!(differ(&base, &node), "so it is sent over the version that it was made of, as a count is");
        facts.readings.unhealthy_devices.insert("example.com/usb".to_owned(), 7);
        assert_eq!(report(&node, &facts).0["status"], json!({ "allocatable": { "example.com/usb": "0" } }));
    }

    #[test]
    fn where_plug_ins_may_register_there_is_none_of_what_nobody_has_registered_yet() {
        let base = new(&counted(&[("example.com/usb", Ok(3))]), &Remembered::default()).node;
        let (settings, facts) = (samples::settings(), samples::facts());
        let with = crate::config::Settings { device_plugins: true, ..settings.clone() };
        let next = |settings: &crate::config::Settings, facts: &Facts, base: &Node| {
            updated(base, &samples::board(settings, facts, samples::LATER), &mut Remembered::default(), false).node
        };
        let kept = next(&with, &facts, &base);
        assert_eq!(
            (&*kept.status.capacity["example.com/usb"], &*kept.status.allocatable["example.com/usb"]),
            ("0", "0")
        );
        assert_eq!(kept.metadata.annotations[EXTENDED_RESOURCES], "example.com/usb", "and it is still ours");
        let more = next(&with, &counted(&[("example.com/a", Ok(1))]), &kept);
        assert_eq!(more.metadata.annotations[EXTENDED_RESOURCES], "example.com/a,example.com/usb");
        let gone = next(&settings, &facts, &kept);
        assert!(!gone.status.capacity.contains_key("example.com/usb"), "without plug-ins it is taken away");
        assert!(!gone.metadata.annotations.contains_key(EXTENDED_RESOURCES));
    }

    const BOTH: [&str; 2] = ["capacity", "allocatable"];

    #[test]
    fn a_new_node_has_them_and_names_them() {
        let facts = counted(&[("example.com/relay", Ok(4)), ("example.com/usb", Ok(0)), ("example.com/x", absent())]);
        let Update { node, problems, .. } = new(&facts, &Remembered::default());
        for list in [&node.status.capacity, &node.status.allocatable] {
            assert_eq!((list["example.com/relay"].as_str(), list["example.com/usb"].as_str()), ("4", "0"));
            assert!(!list.contains_key("example.com/x"), "{list:?}");
        }
        assert_eq!(node.metadata.annotations[EXTENDED_RESOURCES], "example.com/relay,example.com/usb,example.com/x");
        let said: Vec<&str> = problems.iter().map(|problem| problem.subject()).collect();
        assert_eq!(said, ["status.capacity.example.com/x"]);
        assert!(
            !new(&samples::facts(), &Remembered::default()).node.metadata.annotations.contains_key(EXTENDED_RESOURCES)
        );
    }

    #[test]
    fn a_device_that_comes_or_goes_is_one_change_of_both_lists() {
        let base = new(&counted(&[("example.com/usb", Ok(1))]), &Remembered::default()).node;
        let (patch, node) = report(&base, &counted(&[("example.com/usb", Ok(2))]));
        assert_eq!(
            patch["status"],
            json!({ "capacity": { "example.com/usb": "2" }, "allocatable": { "example.com/usb": "2" } })
        );
        assert!(patch.get("metadata").is_none(), "the same as before");
        let (patch, _) = report(&node, &counted(&[("example.com/usb", Ok(0))]));
        assert_eq!(patch["status"]["capacity"]["example.com/usb"], "0");
    }

    #[test]
    fn one_that_left_the_settings_goes_with_null_and_those_of_others_stay() {
        let mut base =
            new(&counted(&[("example.com/relay", Ok(4)), ("example.com/usb", Ok(1))]), &Remembered::default()).node;
        for list in [&mut base.status.capacity, &mut base.status.allocatable] {
            list.insert("vendor.example/theirs".to_owned(), "3".to_owned());
        }
        let (patch, node) = report(&base, &counted(&[("example.com/usb", Ok(1))]));
        for list in BOTH {
            assert_eq!(patch["status"][list], json!({ "example.com/relay": null }), "{list}");
        }
        assert_eq!(patch["metadata"]["annotations"], json!({ EXTENDED_RESOURCES: "example.com/usb" }));
        // Another process, with settings that name none.
        let (patch, node) = report(&node, &samples::facts());
        for list in BOTH {
            assert_eq!(patch["status"][list], json!({ "example.com/usb": null }), "{list}");
        }
        assert_eq!(patch["metadata"]["annotations"], json!({ EXTENDED_RESOURCES: null }));
        assert_eq!(node.status.allocatable["vendor.example/theirs"], "3");
        assert!(!next(&node, &samples::facts(), &mut Remembered::default()).changed);
    }

    #[test]
    fn one_whose_removal_was_not_answered_is_removed_again() {
        let base = new(&counted(&[("example.com/relay", Ok(4))]), &Remembered::default()).node;
        let wanted = next(&base, &samples::facts(), &mut Remembered::default()).node;
        let patch: Value = serde_json::from_str(&whole_status(&base, &wanted, rules::is_own)).unwrap();
        for list in BOTH {
            assert_eq!(patch["status"][list]["example.com/relay"], Value::Null, "{list}");
            assert!(patch["status"][list].as_object().unwrap().contains_key("example.com/relay"), "{list}");
        }
    }

    #[test]
    fn counts_that_may_be_taken_late_are_left_out_and_said_with_the_version_they_were_made_of() {
        let base = new(&counted(&[("example.com/usb", Ok(1))]), &Remembered::default()).node;
        let wanted = next(&base, &counted(&[("example.com/relay", Ok(4))]), &mut Remembered::default()).node;
        assert!(differ(&base, &wanted) && !differ(&wanted, &wanted));
        let patch: Value = serde_json::from_str(&status_patch_of_version(&base, &wanted)).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], base.metadata.resource_version);
        let mut kept = wanted.clone();
        keep(&base, &mut kept);
        assert!(!differ(&base, &kept));
        for body in [whole_status(&base, &kept, rules::is_own), report_in_full(&base, &kept, status_patch)] {
            assert!(!body.contains("example.com/"), "{body}");
        }
        // One that left the settings while another came under the same counts.
        let mut renamed = wanted.clone();
        renamed.metadata.annotations.clear();
        assert!(differ(&wanted, &renamed));
    }

    #[test]
    fn what_somebody_wrote_into_the_annotation_takes_away_nothing_of_the_board() {
        let mut base = samples::node();
        base.metadata.annotations.insert(EXTENDED_RESOURCES.to_owned(), "cpu,,memory,x.kubernetes.io/a".to_owned());
        let node = next(&base, &samples::facts(), &mut Remembered::default()).node;
        assert_eq!(
            (node.status.capacity.contains_key("cpu"), node.status.allocatable.contains_key("memory")),
            (true, true)
        );
        assert!(!node.metadata.annotations.contains_key(EXTENDED_RESOURCES));
    }

    #[test]
    fn what_cannot_be_counted_stays_what_it_was_also_on_a_node_that_is_made_anew() {
        let mut remembered = Remembered::default();
        let base = new(&counted(&[("example.com/usb", Ok(2))]), &remembered).node;
        let unknown = counted(&[("example.com/usb", absent())]);
        let update = next(&base, &unknown, &mut remembered);
        assert_eq!((update.node.status.capacity["example.com/usb"].as_str(), update.problems.len()), ("2", 1));
        let anew = new(&unknown, &remembered).node;
        assert_eq!(anew.status.allocatable["example.com/usb"], "2");
    }

    #[test]
    fn those_that_a_kubelet_left_become_zero_and_ours_are_counted() {
        let (settings, facts) = (samples::settings(), counted(&[("example.com/usb", Ok(2))]));
        let mut base = samples::node();
        base.status.node_info.kubelet_version = "v1.36.3".to_owned();
        for list in [&mut base.status.capacity, &mut base.status.allocatable] {
            list.extend(
                [("example.com/usb", "7"), ("example.com/gpu", "1")].map(|(name, n)| (name.to_owned(), n.to_owned())),
            );
        }
        let version = kubelet_version(None);
        let board =
            crate::node::Board { kubelet_version: &version, ..samples::board(&settings, &facts, samples::LATER) };
        let node = updated(&base, &board, &mut Remembered::default(), true).node;
        for list in [&node.status.capacity, &node.status.allocatable] {
            assert_eq!((list["example.com/usb"].as_str(), list["example.com/gpu"].as_str()), ("2", "0"));
        }
    }
}
