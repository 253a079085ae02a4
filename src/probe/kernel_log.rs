//! Turns the kernel's log into what it says of trouble: how much of each kind, and the last line of it.
//!
//! ```text
//! /dev/kmsg                              3,1187,98765432,-;Buffer I/O error on dev mmcblk0p2, logical block 7\n
//!                                        | |    |            a record with each read; more about it, after a blank,
//!                                        | |    us since boot   in further lines: ` DEVICE=b179:2\n`
//!                                        | number of the record in this boot
//!                                        8 * facility (0: the kernel) + severity
//! /dev/kmsg                              2,1190,99000000,-;XFS (sda1): Shutting down filesystem\n   until it is mounted again
//! /proc/vmstat                           oom_kill 2\n     for those who may not read the log: since the boot
//! /proc/sys/kernel/hung_task_detect_count   1\n           the same, from Linux 6.18 on
//! ```

use std::ops::ControlFlow;
use std::time::Duration;

use super::attribute;
use super::facts::{Fact, KernelPlaces, KernelTrouble, Trouble};
use super::root::{LogFile, OpenFile, Root};
use crate::config::limits::{KERNEL_LOG_LOOK_BYTES, KERNEL_LOG_RECORD_BYTES, XFS_DEVICES};
use crate::time::Up;

const KMSG: &str = "/dev/kmsg";
const VMSTAT: &str = "/proc/vmstat";

/// An event, and the lines that are worth it: what has to be in one, in this order. Names and lines are
/// node-problem-detector's; beside those there are the oopses of ARM and RISC-V, and the errors of cards.
const KINDS: &[(&str, &[&[&str]])] = &[
    (OOM_KILLING, &[&["Killed process ", "total-vm:"]]),
    (TASK_HUNG, &[&["INFO: task ", " blocked for more than ", " seconds."]]),
    (
        "KernelOops",
        &[
            &["BUG: unable to handle "],
            &["Unable to handle kernel "],
            &["divide error: "],
            &["kernel BUG at "],
            &["Oops - "],
        ],
    ),
    ("Ext4Error", &[&["EXT4-fs error "]]),
    ("Ext4Warning", &[&["EXT4-fs warning "]]),
    (
        "IOError",
        &[
            &["Buffer I/O error on dev"],
            &["I/O error, dev "],
            &["mmcblk", ": error "],
            &["mmc", ": timeout waiting for hardware"],
        ],
    ),
];
const OOM_KILLING: &str = "OOMKilling";
/// What `KernelDeadlock` is judged from.
pub const TASK_HUNG: &str = "TaskHung";

/// Drives that are empty, or not there at all, say so with an error.
const WITHOUT_A_MEDIUM: [&str; 2] = ["dev fd", "dev sr"];

/// The log, kept open, and what it has said.
#[derive(Debug)]
pub struct KernelLogFiles {
    log: Option<LogFile>,
    /// Number of the record that comes next.
    next: u64,
    hung_tasks: OpenFile,
    /// By the last look that could read it.
    hung_count: Option<u64>,
    said: KernelTrouble,
    /// Whether the last look could tell: from the log once it was read to its end, as what is said there may be taken back further
    /// on, or from the counters.
    is_there: bool,
    /// The log has more to read than one look may take.
    is_behind: bool,
    looked_at: Up,
}

impl KernelLogFiles {
    /// The log opened at once, for a process that will have no right to. What it says until `told` is left out.
    pub fn open(root: &Root, told: KernelPlaces) -> KernelLogFiles {
        KernelLogFiles { log: root.open_log(KMSG).ok(), ..KernelLogFiles::new(told) }
    }

    /// The log is opened by the first look.
    pub fn new(told: KernelPlaces) -> KernelLogFiles {
        KernelLogFiles {
            log: None,
            next: 0,
            hung_tasks: OpenFile::new("/proc/sys/kernel/hung_task_detect_count"),
            hung_count: None,
            said: KernelTrouble { read: told, ..KernelTrouble::default() },
            is_there: false,
            is_behind: false,
            looked_at: Up::BOOT,
        }
    }

    /// Reads on where that `is_due`, or the look before had to leave something; else nothing is news.
    pub(super) fn look(&mut self, root: &Root, is_due: bool, now: Up) {
        if !is_due && !self.is_behind {
            self.said.has_hung = self.said.has_hung.map(|_| false);
            return;
        }
        (self.said.has_hung, self.is_behind) = (None, false);
        if self.log.is_none() {
            let opened = root.open_log(KMSG);
            self.said.unread = opened.as_ref().err().cloned();
            self.log = opened.ok();
        }
        match self.log.take() {
            Some(log) => self.read(log, root, now),
            None => self.count(root, now),
        }
        self.looked_at = now;
    }

    /// By the lines so far.
    pub fn trouble(&self) -> &KernelTrouble {
        &self.said
    }

    /// By the looks so far; `None`: this kernel tells nobody, or nobody who has no right to hear it.
    pub(super) fn said(&self) -> Option<Fact<KernelTrouble>> {
        self.is_there.then(|| Ok(self.said.clone()))
    }

    fn read(&mut self, mut log: LogFile, root: &Root, now: Up) {
        // The log tells of ten in one boot (`hung_task_warnings`), the counter of all.
        let hung = self.hung_tasks.count(root).ok();
        let has_hung = hung > std::mem::replace(&mut self.hung_count, hung).or(hung);
        self.said.has_hung = Some(has_hung);
        let mut page = vec![0; KERNEL_LOG_RECORD_BYTES];
        let mut left = KERNEL_LOG_LOOK_BYTES;
        while left > 0 {
            match log.read(&mut page) {
                ControlFlow::Continue(lines) => {
                    // None: the kernel gave up what came next, which is known once.
                    left = left.saturating_sub(lines.len().max(1));
                    self.take(lines, now);
                }
                ControlFlow::Break(is_at_end) => {
                    self.is_there = true;
                    // One that fails is opened again by the next look.
                    self.log = is_at_end.then_some(log);
                    return;
                }
            }
        }
        (self.log, self.is_behind) = (Some(log), true);
    }

    /// These are next.
    pub fn take(&mut self, lines: &[u8], now: Up) {
        for line in lines.split(|byte| *byte == b'\n') {
            let Some((record, text)) = parse(line).filter(|(record, _)| record.number >= self.next) else { continue };
            self.next = record.number.saturating_add(1);
            if record.is_kernels
                && let Some((device, is_shut_down)) = xfs(&text)
            {
                let devices = self.said.xfs_shut_down.get_or_insert_default();
                devices.retain(|known| known != device);
                if is_shut_down && devices.len() < XFS_DEVICES {
                    devices.push(device.to_owned());
                }
            }
            // What is is read from the beginning on, what was only from there on where it was told.
            if record.number < self.said.read.log {
                continue;
            }
            self.said.read.log = self.next;
            if let Some(reason) = kind_of(&text).filter(|_| record.is_kernels) {
                // Its clock stands still while the board sleeps, ours does not.
                let at = record.at.max(self.looked_at).min(now);
                self.note(1, Trouble { reason, count: 0, place: self.next, at, text });
            }
        }
    }

    /// Without the right to read the log.
    fn count(&mut self, root: &Root, now: Up) {
        let vmstat = root.read_table(VMSTAT).unwrap_or_default();
        let killed = attribute::value_of(&vmstat, "oom_kill", b' ').and_then(|count| attribute::count(count).ok());
        let hung = self.hung_tasks.count(root).ok();
        self.is_there = killed.is_some() || hung.is_some();
        let before = self.said.read;
        self.said.has_hung = hung.map(|count| count > before.hung_tasks);
        let counted = [
            (OOM_KILLING, killed, before.oom_kills, "Processes were killed, as memory was short"),
            (TASK_HUNG, hung, before.hung_tasks, "Tasks have waited in the kernel for too long"),
        ];
        for (reason, count, before, text) in counted {
            let Some(count) = count.filter(|count| *count > before) else { continue };
            self.note(count - before, Trouble { reason, count: 0, place: count, at: now, text: text.to_owned() });
        }
        self.said.read.oom_kills = killed.unwrap_or(before.oom_kills);
        self.said.read.hung_tasks = hung.unwrap_or(before.hung_tasks);
    }

    /// So much more of a kind, the last of it here.
    fn note(&mut self, more: u64, trouble: Trouble) {
        if trouble.reason == TASK_HUNG {
            self.said.has_hung = Some(true);
        }
        let known = self.said.all.iter().position(|known| known.reason == trouble.reason);
        let count = known.map_or(0, |place| self.said.all.swap_remove(place).count);
        self.said.all.push(Trouble { count: count.saturating_add(more), ..trouble });
    }
}

/// The head of a record of the log.
struct Record {
    number: u64,
    /// Not one that a program has written there.
    is_kernels: bool,
    at: Up,
}

/// A line of `/dev/kmsg`; `None`: it is no record's first.
fn parse(line: &[u8]) -> Option<(Record, String)> {
    let end = line.iter().position(|byte| *byte == b';')?;
    let (head, text) = line.split_at_checked(end)?;
    let mut fields = str::from_utf8(head).ok()?.split(',').map(str::parse::<u64>);
    let mut field = || fields.next()?.ok();
    let (level, number, at_us) = (field()?, field()?, field()?);
    let record = Record { number, is_kernels: level < 8, at: Up::since_boot(Duration::from_micros(at_us)) };
    Some((record, attribute::text(text.strip_prefix(b";")?)))
}

/// `text`, of a record of before, where it is a reason that there is.
pub fn kernel_reason(text: &str) -> &'static str {
    KINDS.iter().find(|(reason, _)| *reason == text).map_or("KernelTrouble", |(reason, _)| reason)
}

/// Of a line of XFS its device, and whether its file system has shut itself down; `None`: it is neither that, nor mounted, nor
/// unmounted.
fn xfs(text: &str) -> Option<(&str, bool)> {
    let (device, what) = text.strip_prefix("XFS (")?.split_once("): ")?;
    let is_shut_down = what.contains("Shutting down filesystem") || what.contains("has been shut down");
    (is_shut_down || what.starts_with("Mounting ") || what.starts_with("Unmounting ")).then_some((device, is_shut_down))
}

/// What a line of the kernel is worth; `None`: nothing.
fn kind_of(text: &str) -> Option<&'static str> {
    let holds = |parts: &[&str]| {
        let mut rest = Some(text);
        for part in parts {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, after)| after);
        }
        rest.is_some()
    };
    let is_empty_drive = || WITHOUT_A_MEDIUM.iter().any(|drive| text.contains(drive));
    let (reason, _) = KINDS.iter().find(|(_, lines)| lines.iter().any(|parts| holds(parts)))?;
    Some(*reason).filter(|_| !is_empty_drive())
}
