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
/// [`limits::FEATURE_LABELS`] and [`limits::FEATURE_LABEL_BYTES`].
const FULL: &str = "a Node gets 64 such labels at most, and 8 KiB of them";

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
    machine: Box<Machine>,
    lasting: Vec<Feature>,
}

/// Collects them.
struct Finder<'a> {
    root: &'a Root,
    found: Vec<Feature>,
}

// Once in the program, each: they are called from everywhere here.
impl Finder<'_> {
    /// What the file of one of the folder's names says; nothing where it is not there.
    #[inline(never)]
    fn text(&self, folder: &str, name: &str, file: &str) -> String {
        self.root.read_text(&[folder, "/", name, file].concat()).unwrap_or_default()
    }

    #[inline(never)]
    fn names(&self, folder: &str) -> Vec<String> {
        self.root.list(folder).unwrap_or_default()
    }

    /// `prefix`: [`NFD`] or [`OURS`]; the name in two parts.
    #[inline(never)]
    fn add(&mut self, path: &str, prefix: &str, (name, rest): (&str, &str), value: &str) {
        let key = [prefix, name, rest].concat();
        self.found.push(Feature { path: path.to_owned(), key, value: value.to_owned() });
    }

    #[inline(never)]
    fn is_so(&mut self, path: &str, prefix: &str, name: &str, rest: &str) {
        self.add(path, prefix, (name, rest), "true");
    }
}

/// The first of a name stays.
fn chosen(features: &[&[Feature]]) -> Features {
    let (mut found, mut bytes) = (Features::default(), 0);
    for Feature { path, key, value } in features.iter().copied().flatten() {
        if found.labels.contains_key(key) {
            continue;
        }
        // Once more in the annotation that says whose they are, with a comma.
        let more = 2 * (key.len() + 1) + value.len();
        let is_full = found.labels.len() == limits::FEATURE_LABELS || bytes + more > limits::FEATURE_LABEL_BYTES;
        let room = || if is_full { Err(FULL.to_owned()) } else { Ok(()) };
        let checked = labels::check_feature_label(key, value).and_then(|()| room());
        match checked {
            Ok(()) => {
                bytes += more;
                found.labels.insert(key.clone(), value.clone());
            }
            Err(why) => found.left_out.push(Absent::new(path, Why::Malformed([key, "=", value, ": ", &why].concat()))),
        }
        found.left_out.truncate(limits::FEATURES_LEFT_OUT);
    }
    found
}

impl FeatureFiles {
    /// `machine`: the board, as it was found at the start.
    pub fn new(root: &Root, machine: &Machine) -> FeatureFiles {
        FeatureFiles { root: root.clone(), machine: Box::new(machine.clone()), lasting: Vec::new() }
    }

    /// What a board has now. `is_whole`: what hardly changes is read, too, as it is the first time. `wall`: lines of `features.d`
    /// may expire; without a clock none does.
    pub fn read(&mut self, is_whole: bool, wall: Option<Wall>) -> Features {
        if is_whole || self.lasting.is_empty() {
            self.lasting = lasting(&self.root, &self.machine);
        }
        let mut left_out = Vec::new();
        let found = local::features(&self.root, wall, &mut left_out);
        let mut finder = Finder { root: &self.root, found };
        finder.usb();
        let mut found = chosen(&[&finder.found, &self.lasting]);
        found.left_out.append(&mut left_out);
        found.left_out.truncate(limits::FEATURES_LEFT_OUT);
        found
    }
}

/// The most telling first: where there are too many, the rest is left out.
fn lasting(root: &Root, machine: &Machine) -> Vec<Feature> {
    let mut finder = Finder { root, found: Vec::new() };
    let cpuinfo = root.read_whole_table(CPUINFO).unwrap_or_default();
    finder.board(machine, &cpuinfo);
    finder.system();
    finder.kernel(machine);
    finder.processor_model(&cpuinfo);
    finder.processor_threads();
    finder.memory();
    finder.storage();
    finder.pci();
    finder.processor_flags(&cpuinfo);
    finder.found
}

/// The key of a label whose name may have no domain: that is node-feature-discovery's then.
pub fn whole_key(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { [NFD, name].concat() }
}

/// A text with what no label may hold replaced, as node-feature-discovery does it: `Raspberry_Pi_4_Model_B_Rev_1.4`.
pub fn as_label(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let plain: String = text.chars().map(|c| if is_plain(c) { c } else { '_' }).take(labels::NAME_MAX).collect();
    plain.trim_matches(['-', '_', '.']).to_owned()
}

impl Finder<'_> {
    /// What the device tree, or the firmware of a PC, says.
    fn board(&mut self, machine: &Machine, cpuinfo: &str) {
        const TREE: &str = "/proc/device-tree";
        let compatible = machine.board_compatible.as_deref().unwrap_or_default();
        let soc = compatible.last().filter(|_| compatible.len() > 1);
        let revision = cpu::field(cpuinfo, "Revision").filter(|text| text.bytes().any(|digit| digit != b'0'));
        let texts = [
            ("board-model", machine.board_model.as_deref().ok()),
            ("board-compatible", compatible.first().map(String::as_str)),
            ("soc-compatible", soc.map(String::as_str)),
            ("board-revision", revision),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                self.add(TREE, OURS, (name, ""), &as_label(text));
            }
        }
    }

    fn system(&mut self) {
        const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
        let table = FILES.iter().find_map(|file| self.root.read_table(file).ok()).unwrap_or_default();
        let [file, _] = FILES;
        for key in ["ID", "VERSION_ID"] {
            if let Some(value) = os_release::value(&table, key) {
                self.add(file, NFD, ("system-os_release.", key), &value);
                if key != "ID" {
                    self.numbers(file, "system-os_release.VERSION_ID.", &value, &["major", "minor"]);
                }
            }
        }
    }

    fn kernel(&mut self, machine: &Machine) {
        const RELEASE: &str = "/proc/sys/kernel/osrelease";
        if let Ok(release) = &machine.kernel_release {
            self.add(RELEASE, NFD, ("kernel-version.full", ""), &as_label(release));
            self.numbers(RELEASE, "kernel-version.", release, &["major", "minor", "revision"]);
        }
        let switches = [
            ("/sys/fs", "selinux/enforce", NFD, "kernel-selinux.enabled"),
            ("/sys/kernel", "realtime", OURS, "kernel-realtime"),
            ("/sys/module", "apparmor/parameters/enabled", OURS, "kernel-apparmor.enabled"),
        ];
        for (folder, file, prefix, name) in switches {
            if self.text(folder, file, "").starts_with(['1', 'Y']) {
                self.is_so(folder, prefix, name, "");
            }
        }
    }

    fn memory(&mut self) {
        const NODES: &str = "/sys/bus/node/devices";
        if self.names(NODES).len() > 1 {
            self.is_so(NODES, NFD, "memory-numa", "");
        }
        const SWAPS: &str = "/proc/swaps";
        if self.root.read_table(SWAPS).is_ok_and(|table| table.lines().filter(|line| !line.is_empty()).count() > 1) {
            self.is_so(SWAPS, NFD, "memory-swap", "");
        }
    }

    /// The numbers that a version begins with: `6.6.31+rpt-rpi-v8` has three.
    fn numbers(&mut self, path: &str, prefix: &str, version: &str, names: &[&str]) {
        for (name, part) in names.iter().zip(version.split('.')) {
            let end = part.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(part.len());
            let number = part.get(..end).unwrap_or_default();
            if number.is_empty() {
                break;
            }
            self.add(path, NFD, (prefix, name), number);
            if end < part.len() {
                break;
            }
        }
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
        let found = chosen(&[&[feature("a", "1"), feature("b", "2")], &[feature("a", "3")]]);
        let labels: Vec<_> = found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["a=1", "b=2"]);
        assert_eq!(found.left_out, []);
    }

    #[test]
    fn what_is_no_label_is_named_with_its_file_and_the_rest_is_told() {
        let all =
            [feature("a b", "1"), feature("kubernetes.io/hostname", "x"), feature("fine", "-"), feature("ok", "")];
        let found = chosen(&[&all]);
        assert_eq!(found.labels.keys().collect::<Vec<_>>(), ["ok"]);
        let texts: Vec<_> = found.left_out.iter().map(Absent::to_string).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0].contains("/a/file") && texts[0].contains("a b=1: the name may hold only"), "{texts:?}");
        assert!(texts[1].contains("kubernetes.io/hostname=x"), "{texts:?}");
    }

    #[test]
    fn neither_their_number_nor_their_bytes_grow_without_end() {
        let many: Vec<_> = (0..1000).map(|number| feature(&format!("label-{number}"), "x")).collect();
        let found = chosen(&[&many]);
        assert_eq!(found.labels.len(), 64);
        assert_eq!(found.left_out.len(), limits::FEATURES_LEFT_OUT);
        let long: Vec<_> = (10..60)
            .map(|number| feature(&format!("{}.example.com/{number}", "x".repeat(63)), &"y".repeat(63)))
            .collect();
        let found = chosen(&[&long]);
        let bytes: usize = found.labels.iter().map(|(key, value)| 2 * key.len() + value.len()).sum();
        assert!((7900..=8192).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_version_has_the_numbers_that_it_begins_with() {
        let root = Root::new("/nonexistent");
        let all = |text| {
            let mut finder = Finder { root: &root, found: Vec::new() };
            finder.numbers("/a/file", "", text, &["major", "minor", "revision"]);
            let found = finder.found.into_iter();
            found.map(|one| (one.key.replace(NFD, ""), one.value)).collect::<Vec<_>>()
        };
        let all =
            |text| all(text).iter().map(|(name, number)| format!("{name}={number}")).collect::<Vec<_>>().join(" ");
        assert_eq!(all("6.1.21-v8+"), "major=6 minor=1 revision=21");
        assert_eq!(all("6.6.31+rpt-rpi-v8"), "major=6 minor=6 revision=31");
        assert_eq!(all("5.10-rc1.2"), "major=5 minor=10");
        assert_eq!(all("12"), "major=12");
        assert_eq!(all("rolling"), "");
        assert_eq!(all(""), "");
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
