//! Turns files in memory into the archive that a kernel unpacks as its first root (`newc` of cpio, uncompressed).

use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const DEVICE: u32 = 0o020_600;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
/// The archive's last entry, by convention.
const END: &str = "TRAILER!!!";

/// Files, and the folders they are in.
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// With the one device that the first process of a kernel is given as its terminal.
    pub fn new() -> Self {
        let mut archive = Self { bytes: Vec::new(), folders: BTreeSet::new(), entries: 0 };
        archive.folders_of("dev/console");
        archive.entry("dev/console", DEVICE, (5, 1), &[]);
        archive
    }

    pub fn file(&mut self, path: &str, contents: impl AsRef<[u8]>) {
        self.add(path, FILE, contents.as_ref());
    }

    pub fn program(&mut self, path: &str, contents: impl AsRef<[u8]>) {
        self.add(path, PROGRAM, contents.as_ref());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, (0, 0), &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let path = path.trim_start_matches('/');
        self.folders_of(path);
        self.entry(path, mode, (0, 0), contents);
    }

    fn folders_of(&mut self, path: &str) {
        let above: Vec<_> = Path::new(path).ancestors().skip(1).map(|folder| folder.display().to_string()).collect();
        for folder in above.into_iter().rev().filter(|folder| !folder.is_empty()) {
            if self.folders.insert(folder.clone()) {
                self.entry(&folder, FOLDER, (0, 0), &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let [contents_bytes, path_bytes] = [contents.len(), path.len() + 1].map(|length| length as u32);
        // Number, mode, links, user, group, time, size, device (two), which device it is (two), length of the name, sum.
        let fields = [self.entries, mode, 1, 0, 0, 0, contents_bytes, 0, 0, major, minor, path_bytes, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
