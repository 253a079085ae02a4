//! Turns the files of a board into labels that say what it is and has, with the names of node-feature-discovery where that has
//! some (docs/labels.md), and takes its files of `features.d`.

mod devices;
mod local;
mod processor;

use super::cpu::{self, CPUINFO};
use super::facts::{Absent, Features, Machine, Why};
use super::os_release;
use super::root::Root;
use crate::config::{labels, limits};
use crate::time::Wall;

/// What the names of node-feature-discovery begin with.
pub const NFD: &str = "feature.node.kubernetes.io/";
/// The same of those that it has no names for.
const OURS: &str = "nodepulse.dev/";

/// What may become a label.
#[derive(Debug, Clone)]
struct Feature {
    /// The file that says so.
    path: String,
    key: String,
    value: String,
}

/// Where they are read. What hardly changes is read when that is asked for, `features.d` and USB devices each time.
#[derive(Debug)]
pub struct FeatureFiles {
    root: Root,
    lasting: Vec<Feature>,
}

impl Feature {
    fn nfd(path: &str, name: &str, value: &str) -> Feature {
        Feature { path: path.to_owned(), key: [NFD, name].concat(), value: value.to_owned() }
    }

    fn ours(path: &str, name: &str, value: &str) -> Feature {
        Feature { path: path.to_owned(), key: [OURS, name].concat(), value: value.to_owned() }
    }
}

/// The first of a name stays.
fn chosen<'a>(features: impl Iterator<Item = &'a Feature>) -> Features {
    let (mut found, mut bytes) = (Features::default(), 0);
    for Feature { path, key, value } in features {
        if found.labels.contains_key(key) {
            continue;
        }
        // Once more in the annotation that says whose they are, with a comma.
        let more = 2 * (key.len() + 1) + value.len();
        let checked = match labels::check_feature_label(key, value) {
            Err(problem) => Err(format!("{key}={value}: {problem}")),
            Ok(()) if found.labels.len() == limits::FEATURE_LABELS => {
                Err(format!("{key}: a Node gets {} of them at most", limits::FEATURE_LABELS))
            }
            Ok(()) if bytes + more > limits::FEATURE_LABEL_BYTES => {
                Err(format!("{key}: a Node gets {} bytes of them at most", limits::FEATURE_LABEL_BYTES))
            }
            Ok(()) => Ok(()),
        };
        match checked {
            Ok(()) => {
                bytes += more;
                found.labels.insert(key.clone(), value.clone());
            }
            Err(why) => found.left_out.push(Absent::new(path, Why::Malformed(why))),
        }
        found.left_out.truncate(limits::FEATURES_LEFT_OUT);
    }
    found
}

impl FeatureFiles {
    pub fn new(root: &Root) -> FeatureFiles {
        FeatureFiles { root: root.clone(), lasting: Vec::new() }
    }

    /// What a board has now. `is_whole`: what hardly changes is read, too, as it is the first time. `wall`: lines of `features.d`
    /// may expire; without a clock none does.
    pub fn read(&mut self, machine: &Machine, is_whole: bool, wall: Option<Wall>) -> Features {
        if is_whole || self.lasting.is_empty() {
            self.lasting = lasting(&self.root, machine);
        }
        let mut left_out = Vec::new();
        let mut coming = local::features(&self.root, wall, &mut left_out);
        devices::usb(&self.root, &mut coming);
        let mut found = chosen(coming.iter().chain(&self.lasting));
        found.left_out.append(&mut left_out);
        found.left_out.truncate(limits::FEATURES_LEFT_OUT);
        found
    }
}

/// The most telling first: where there are too many, the rest is left out.
fn lasting(root: &Root, machine: &Machine) -> Vec<Feature> {
    let mut found = Vec::new();
    let cpuinfo = root.read_whole_table(CPUINFO).unwrap_or_default();
    board(machine, &cpuinfo, &mut found);
    system(root, &mut found);
    kernel(root, machine, &mut found);
    processor::model(&cpuinfo, &mut found);
    processor::threads(root, &mut found);
    memory(root, &mut found);
    devices::storage(root, &mut found);
    devices::pci(root, &mut found);
    processor::flags(&cpuinfo, &mut found);
    found
}

/// A text with what no label may hold replaced, as node-feature-discovery does it: `Raspberry_Pi_4_Model_B_Rev_1.4`.
pub fn as_label(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let plain: String = text.chars().map(|c| if is_plain(c) { c } else { '_' }).take(labels::NAME_MAX).collect();
    plain.trim_matches(['-', '_', '.']).to_owned()
}

/// What the device tree, or the firmware of a PC, says.
fn board(machine: &Machine, cpuinfo: &str, found: &mut Vec<Feature>) {
    let mut add = |path: &str, name: &str, text: &str| found.push(Feature::ours(path, name, &as_label(text)));
    const TREE: &str = "/proc/device-tree";
    if let Ok(model) = &machine.board_model {
        add(&format!("{TREE}/model"), "board-model", model);
    }
    if let Ok([first, others @ ..]) = machine.board_compatible.as_deref() {
        let path = format!("{TREE}/compatible");
        add(&path, "board-compatible", first);
        others.last().into_iter().for_each(|soc| add(&path, "soc-compatible", soc));
    }
    let revision = cpu::field(cpuinfo, "Revision").filter(|text| text.chars().any(|c| c != '0'));
    revision.into_iter().for_each(|revision| add(CPUINFO, "board-revision", revision));
}

fn system(root: &Root, found: &mut Vec<Feature>) {
    const FILE: &str = "/etc/os-release";
    let text = root.read_table(FILE).or_else(|_| root.read_table("/usr/lib/os-release")).unwrap_or_default();
    for key in ["ID", "VERSION_ID"] {
        let Some(value) = os_release::value(&text, key) else { continue };
        let parts = if key == "ID" { Vec::new() } else { numbers(&value, '.', &["major", "minor"]) };
        found.push(Feature::nfd(FILE, &format!("system-os_release.{key}"), &value));
        for (part, number) in parts {
            found.push(Feature::nfd(FILE, &format!("system-os_release.{key}.{part}"), number));
        }
    }
}

fn kernel(root: &Root, machine: &Machine, found: &mut Vec<Feature>) {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    if let Ok(release) = &machine.kernel_release {
        found.push(Feature::nfd(RELEASE, "kernel-version.full", &as_label(release)));
        for (part, number) in numbers(release, '.', &["major", "minor", "revision"]) {
            found.push(Feature::nfd(RELEASE, &format!("kernel-version.{part}"), number));
        }
    }
    const SELINUX: &str = "/sys/fs/selinux/enforce";
    if root.read_text(SELINUX).is_ok_and(|text| text.starts_with('1')) {
        found.push(Feature::nfd(SELINUX, "kernel-selinux.enabled", "true"));
    }
    const REALTIME: &str = "/sys/kernel/realtime";
    if root.read_text(REALTIME).is_ok_and(|text| text == "1") {
        found.push(Feature::ours(REALTIME, "kernel-realtime", "true"));
    }
}

/// The numbers that a version begins with: `6.6.31+rpt-rpi-v8` has three.
fn numbers<'a>(version: &'a str, separator: char, names: &[&'static str]) -> Vec<(&'static str, &'a str)> {
    let mut found = Vec::new();
    for (name, part) in names.iter().zip(version.split(separator)) {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        if number.is_empty() {
            break;
        }
        found.push((*name, number));
        if !rest.is_empty() {
            break;
        }
    }
    found
}

fn memory(root: &Root, found: &mut Vec<Feature>) {
    const NODES: &str = "/sys/bus/node/devices";
    if root.list(NODES).is_ok_and(|nodes| nodes.len() > 1) {
        found.push(Feature::nfd(NODES, "memory-numa", "true"));
    }
    const SWAPS: &str = "/proc/swaps";
    if root.read_table(SWAPS).is_ok_and(|table| table.lines().filter(|line| !line.is_empty()).count() > 1) {
        found.push(Feature::nfd(SWAPS, "memory-swap", "true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(key: &str, value: &str) -> Feature {
        Feature { path: "/a/file".to_owned(), key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn of_two_with_one_name_the_first_is_told() {
        let found = chosen([feature("a", "1"), feature("b", "2"), feature("a", "3")].iter());
        let labels: Vec<_> = found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["a=1", "b=2"]);
        assert_eq!(found.left_out, []);
    }

    #[test]
    fn what_is_no_label_is_named_with_its_file_and_the_rest_is_told() {
        let all =
            [feature("a b", "1"), feature("kubernetes.io/hostname", "x"), feature("fine", "-"), feature("ok", "")];
        let found = chosen(all.iter());
        assert_eq!(found.labels.keys().collect::<Vec<_>>(), ["ok"]);
        let texts: Vec<_> = found.left_out.iter().map(Absent::to_string).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0].contains("/a/file") && texts[0].contains("a b=1: the name may hold only"), "{texts:?}");
        assert!(texts[1].contains("kubernetes.io/hostname=x"), "{texts:?}");
    }

    #[test]
    fn neither_their_number_nor_their_bytes_grow_without_end() {
        let many: Vec<_> = (0..1000).map(|number| feature(&format!("label-{number}"), "x")).collect();
        let found = chosen(many.iter());
        assert_eq!(found.labels.len(), 64);
        assert_eq!(found.left_out.len(), limits::FEATURES_LEFT_OUT);
        let long: Vec<_> = (10..60)
            .map(|number| feature(&format!("{}.example.com/{number}", "x".repeat(63)), &"y".repeat(63)))
            .collect();
        let found = chosen(long.iter());
        let bytes: usize = found.labels.iter().map(|(key, value)| 2 * key.len() + value.len()).sum();
        assert!((7900..=8192).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_version_has_the_numbers_that_it_begins_with() {
        let all = |text| numbers(text, '.', &["major", "minor", "revision"]);
        assert_eq!(all("6.1.21-v8+"), [("major", "6"), ("minor", "1"), ("revision", "21")]);
        assert_eq!(all("6.6.31+rpt-rpi-v8"), [("major", "6"), ("minor", "6"), ("revision", "31")]);
        assert_eq!(all("5.10-rc1.2"), [("major", "5"), ("minor", "10")]);
        assert_eq!(all("12"), [("major", "12")]);
        assert_eq!(all("rolling"), []);
        assert_eq!(all(""), []);
    }

    #[test]
    fn a_text_becomes_a_label_as_node_feature_discovery_would_write_it() {
        assert_eq!(as_label("Raspberry Pi 4 Model B Rev 1.4"), "Raspberry_Pi_4_Model_B_Rev_1.4");
        assert_eq!(as_label("raspberrypi,4-model-b"), "raspberrypi_4-model-b");
        assert_eq!(as_label("6.1.21-v8+"), "6.1.21-v8");
        assert_eq!(as_label(&"x ".repeat(80)).len(), 63);
        assert_eq!(as_label(" (?) "), "");
    }
}
