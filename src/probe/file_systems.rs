//! Turns what ext4 counts into whether the kernel has found errors in a file system since the boot.
//!
//! ```text
//! /sys/fs/ext4/mmcblk0p2/errors_count     3\n            kept in the file system: over boots, until an fsck
//! /sys/fs/ext4/mmcblk0p2/last_error_time  1767225600\n   of the clock that there was then
//! /proc/stat                              btime 1767220000\n
//! ```

use super::facts::{Absent, Fact, FileSystemErrors, Why};
use super::root::{OpenFile, Root};

const EXT4: &str = "/sys/fs/ext4";
const STAT: &str = "/proc/stat";

/// The counters of the file systems that are mounted, kept open.
#[derive(Debug, Default)]
pub(super) struct FileSystemFiles {
    all: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    device: String,
    file: OpenFile,
    /// By the first look, and by the last.
    first: Option<u64>,
    said: Option<Fact<FileSystemErrors>>,
}

impl FileSystemFiles {
    /// One that is mounted later joins; one that is not any more stops to answer.
    pub(super) fn search(&mut self, root: &Root) {
        for device in root.list(EXT4).unwrap_or_default() {
            let path = format!("{EXT4}/{device}/errors_count");
            // Beside the devices there is a folder of what this kernel can do.
            if root.read_text(&path).is_ok() && self.all.iter().all(|known| known.device != device) {
                self.all.push(Counter { device, file: OpenFile::new(path), first: None, said: None });
            }
        }
    }

    /// Reads them again.
    pub(super) fn look(&mut self, root: &Root) {
        // What was unmounted, as a stick that was pulled out, is nobody's loss.
        self.all.retain_mut(|counter| {
            let said = counter.read(root);
            let is_gone = matches!(&said, Err(Absent { why: Why::NoSuchFile, .. }));
            counter.said = Some(said);
            !is_gone
        });
    }

    /// Of the one that has it worst; `None`: there is no ext4.
    pub(super) fn worst(&self) -> Option<Fact<FileSystemErrors>> {
        let key = |said: &&Fact<FileSystemErrors>| said.as_ref().map(|errors| (errors.is_new, errors.count)).ok();
        self.all.iter().filter_map(|counter| counter.said.as_ref()).max_by_key(key).cloned()
    }
}

impl Counter {
    fn read(&mut self, root: &Root) -> Fact<FileSystemErrors> {
        let count = self.file.count(root)?;
        let first = *self.first.get_or_insert(count);
        // More than at first, whatever the clocks say; or dated since the boot.
        let is_new = count > first
            || count > 0 && self.last_error_s(root).zip(boot_s(root)).is_some_and(|(at, boot)| at >= boot);
        Ok(FileSystemErrors { device: self.device.clone(), count, is_new })
    }

    fn last_error_s(&self, root: &Root) -> Option<u64> {
        root.read_text(&format!("{EXT4}/{}/last_error_time", self.device)).ok()?.parse().ok()
    }
}

/// Seconds since 1970, by the clock of now.
fn boot_s(root: &Root) -> Option<u64> {
    let stat = root.read_table(STAT).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
