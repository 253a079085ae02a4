//! Turns every folder of `tests/boards` into facts and a Node, and compares both with the golden ones beside it.
//!
//! `UPDATE_GOLDEN=1 cargo test --test boards` writes them anew; read the difference before it is committed. A new board
//! is a new folder: `make board NAME=...` on the machine, a `SOURCE.md`, then the golden files.

#![allow(clippy::unwrap_used)]

#[path = "boards/broken.rs"]
mod broken;
#[path = "boards/captured.rs"]
mod captured;
#[path = "boards/devices.rs"]
mod devices;
#[path = "boards/features.rs"]
mod features;
#[path = "boards/gauges.rs"]
mod gauges;
#[path = "boards/health.rs"]
mod health;
#[path = "boards/identity.rs"]
mod identity;
#[path = "boards/kernel_log.rs"]
mod kernel_log;
#[path = "support/left_out.rs"]
mod left_out;
#[path = "boards/mounts.rs"]
mod mounts;
#[path = "boards/network.rs"]
mod network;
#[path = "boards/shared.rs"]
mod shared;
#[path = "boards/size.rs"]
mod size;
#[path = "boards/uplink.rs"]
mod uplink;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nodepulse::config::{self, Settings};
use nodepulse::node::patch::create_body;
use nodepulse::node::{Board, Remembered, Update, condition, initial, node_name, rules};
use nodepulse::probe::facts::{FileSystem, FileSystemErrors, KernelTrouble, WallClock};
use nodepulse::probe::{Facts, Root, complete_by_cloud, facts, report};
use nodepulse::time::{Up, Wall};
use serde_json::{Value, json};

const STATE_DIRECTORY: &str = "/var/lib/nodepulse";
/// 2026-01-01T00:00:00Z.
const STAMP: Wall = Wall::from_unix_seconds(1_767_225_600);
/// No capture holds a disk.
const DISK: FileSystem = FileSystem {
    capacity_bytes: 15_461_882_265,
    available_bytes: 12_884_901_888,
    inodes: 943_712,
    inodes_free: 890_112,
    read_only: false,
};

#[test]
fn every_board_gives_its_golden_facts_and_its_golden_node() {
    let boards = boards();
    assert!(boards.len() >= 10, "only {boards:?}");
    let mut wrong = Vec::new();
    for board in boards {
        assert!(board.join("SOURCE.md").is_file(), "{}: say in SOURCE.md what it is shaped after", board.display());
        let settings = settings(&board);
        let facts = facts(&Root::new(&board), &settings, None);
        wrong.extend(compare(&board.join("golden-facts.json"), &report::to_json(&facts)));
        wrong.extend(compare(&board.join("golden-node.json"), &node_with(&settings, facts)));
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_GOLDEN=1 writes them anew", wrong.join("\n"));
}

/// With what only a running board says: its ext4, the kernel's log and a clock that is kept right.
#[test]
fn the_first_object_of_a_raspberry_pi_4_is_at_most_6_kb() {
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards/rpi4");
    let mut facts = facts(&Root::new(&board), &Settings::default(), None);
    let health = &mut facts.readings.health;
    health.file_systems = Some(Ok(FileSystemErrors { device: "mmcblk0p2".to_owned(), count: 0, is_new: false }));
    health.kernel = Some(Ok(KernelTrouble { has_hung: Some(false), ..KernelTrouble::default() }));
    health.wall_clock = Some(Ok(WallClock { is_unset: false, is_synchronised: true, most_off_us: 1000 }));
    let node = &node(facts)["node"];
    let conditions = node["status"]["conditions"].as_array().unwrap();
    assert!(conditions.len() >= 11 && conditions.iter().all(|one| one["status"] != "Unknown"), "{conditions:#?}");
    let bytes = node.to_string().len();
    assert!(bytes <= 6000, "{bytes} bytes");
}

/// Those of a board that needs some, completed as the agent does, else the default ones.
fn settings(board: &Path) -> Settings {
    let path = board.join("settings.yaml");
    let text = fs::read_to_string(&path).ok();
    let loaded = config::settings(text.as_deref().map(|text| ("settings.yaml", text)), &[]);
    let mut settings = loaded.unwrap_or_else(|problems| panic!("{}: {problems:?}", path.display())).settings;
    complete_by_cloud(&mut settings, &Root::new(board)).unwrap();
    settings
}

/// The Node that the board would register with default settings, or why it has no name.
fn node(facts: Facts) -> Value {
    node_with(&Settings::default(), facts)
}

fn node_with(settings: &Settings, mut facts: Facts) -> Value {
    (facts.readings.node_file_system, facts.readings.made_read_only) = (Ok(DISK), Ok(None));
    let name = match node_name(settings, &facts.machine, None) {
        Ok(found) => found.name,
        Err(refused) => return json!({ "refused": refused.to_string() }),
    };
    let up = Up::since_boot(std::time::Duration::from_secs(60));
    let wanted = condition::first_look(settings, &facts, up);
    let board =
        Board { settings, facts: &facts, name: &name, kubelet_version: "v1.36.0", conditions: &wanted, stamp: STAMP };
    let Update { node, conditions, problems, .. } = initial(&board, &Remembered::default());
    let body: Value = serde_json::from_str(&create_body(&node)).unwrap();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let written = rules::own().zip(&wanted).zip(conditions);
    let events = written.filter_map(|((kind, wanted), written)| written.event(&name, kind, wanted));
    let events: Vec<String> = events.map(|event| event.message).collect();
    json!({ "node": body, "events": events, "problems": problems })
}

fn compare(golden: &Path, found: &Value) -> Option<String> {
    let found = format!("{found:#}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(golden, found).unwrap();
        return None;
    }
    let expected = fs::read_to_string(golden).unwrap_or_default();
    let mut lines = (1..).zip(expected.lines().zip(found.lines()));
    if expected == found {
        return None;
    }
    let difference = lines.find(|(_, (expected, found))| expected != found);
    Some(match difference {
        Some((line, (expected, found))) => format!("{}:{line}: expected {expected}, found {found}", golden.display()),
        None => format!("{}: of another length", golden.display()),
    })
}

fn boards() -> Vec<PathBuf> {
    folders(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards"))
}

fn folders(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = paths.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Every file of a tree, and every symbolic link.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() { waiting.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
}

/// A folder of its own for one test, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        // In memory where that is possible: these tests write a hundred thousand files.
        let memory = Some(Path::new("/dev/shm")).filter(|memory| memory.is_dir());
        let folder = memory.unwrap_or(Path::new(env!("CARGO_TARGET_TMPDIR")));
        // Two tests at a time may give one name to theirs.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("nodepulse-{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn append(&self, path: &str, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.join(path)).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// A copy of a board's tree without what the tests keep in it.
    fn of_board(name: &str, board: &Path) -> Scratch {
        let scratch = Scratch::new(name);
        for file in files(board).iter().filter(|file| file.parent() != Some(board)) {
            scratch.write(file.strip_prefix(board).unwrap().to_str().unwrap(), fs::read(file).unwrap());
        }
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
