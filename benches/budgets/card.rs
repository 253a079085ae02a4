//! Turns a file into a memory card: ext4 on a block device of its own, which counts every byte that reaches it, the file
//! system's own journal and inodes included.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::Result;

/// As everything larger than a floppy has.
pub const BLOCK_BYTES: u64 = 4096;
const SIZE_BYTES: u64 = 64 << 20;
/// `/sys/block/DEVICE/stat` counts in these, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;

/// A mounted card. It must live in a mount namespace that ends with the process: then the kernel lets both the mount and
/// the device go, however the process ends.
pub struct Card {
    pub folder: PathBuf,
    statistics: PathBuf,
}

impl Card {
    /// Makes and mounts one below `home`, with nothing left to be initialised in the background.
    pub fn insert(home: &Path, name: &str) -> Result<Card> {
        let (image, folder) = (home.join(format!("{name}.ext4")), home.join(name));
        let file = fs::File::create(&image).and_then(|file| file.set_len(SIZE_BYTES));
        file.and_then(|()| fs::create_dir(&folder)).map_err(|e| format!("{}: {e}", image.display()))?;
        let (image, path) = (image.display().to_string(), folder.display().to_string());
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        run("e2fsprogs", &["mkfs.ext4", "-q", "-F", "-b", &BLOCK_BYTES.to_string(), "-E", eager, &image])?;
        run("mount", &["mount", "-o", "loop", &image, &path])?;
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
        let device = device_of(&mounts, &path).ok_or_else(|| format!("{path} is not among the mounts"))?;
        Ok(Card { folder, statistics: PathBuf::from(format!("/sys/block/{device}/stat")) })
    }

    /// Everything that reached the device since it is there.
    pub fn written_bytes(&self) -> Result<u64> {
        let path = self.statistics.display();
        let text = fs::read_to_string(&self.statistics).map_err(|e| format!("{path}: {e}"))?;
        let sectors: Option<u64> = text.split_whitespace().nth(6).and_then(|field| field.parse().ok());
        sectors.map(|sectors| sectors * SECTOR_BYTES).ok_or_else(|| format!("{path} says {text:?}"))
    }

    /// Brings to the device what the file system would within a minute: its own journal, and inodes to their places.
    pub fn settle(&self) -> Result<()> {
        run("coreutils", &["sync", "--file-system", &self.folder.display().to_string()])
    }
}

/// `loop0` of the line `/dev/loop0 /path ext4 rw,relatime 0 0`.
fn device_of<'a>(mounts: &'a str, path: &str) -> Option<&'a str> {
    let mut words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = words.find(|words| words.get(1) == Some(&path))?;
    line.first()?.strip_prefix("/dev/")
}

fn run(package: &str, command: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = command else { return Err("an empty command".to_owned()) };
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|e| format!("no {program} ({e}); Debian: apt-get install {package}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{}: {}", command.join(" "), said.trim())) }
}
