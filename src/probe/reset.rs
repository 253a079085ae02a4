//! Turns what the watchdogs say of the last reset into its reason, and what is kept of the kernel's last words into when it panicked.
//!
//! `bootstatus` is a set of bits in decimal, `WDIOF_*` of the kernel's watchdog interface. Many drivers always say 0, and a
//! kernel without `CONFIG_WATCHDOG_SYSFS` has no such file: most resets have no known reason.

use super::attribute;
use super::facts::{Absent, Fact, Machine, Why};
use super::root::Root;
use crate::time::Wall;

const WATCHDOGS: &str = "/sys/class/watchdog";
/// What the kernel wrote as it panicked (`Documentation/admin-guide/ramoops.rst`), and where systemd-pstore moves that at the next
/// boot. Root alone may see either.
const DUMPS: [(&str, &str); 2] = [("/sys/fs/pstore", "dmesg-"), ("/var/lib/systemd/pstore", "")];

/// What is known of the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastReset {
    /// `WatchdogReset`, `PowerLoss` or `Overheated`; empty where nobody knows.
    pub reason: String,
    /// Of the newest dump that there is, from whichever boot.
    pub panic_dumped_at: Option<Wall>,
}

/// Bits of `bootstatus` and the reason each stands for, the surest first.
const REASONS: [(u64, &str); 3] = [(0x20, "WatchdogReset"), (0x10, "PowerLoss"), (0x01, "Overheated")];

/// Of a machine whose facts are these.
pub fn last_reset(root: &Root, machine: &Machine) -> LastReset {
    let dumps = DUMPS.into_iter().flat_map(|(folder, prefix)| {
        let names = root.list(folder).unwrap_or_default().into_iter().filter(move |name| name.starts_with(prefix));
        names.filter_map(move |name| root.modified_at(&format!("{folder}/{name}")))
    });
    LastReset {
        reason: machine.reset_reason.clone().unwrap_or_default(),
        panic_dumped_at: dumps.max().map(Wall::from_unix_seconds),
    }
}

/// Why the machine was last reset: a word of [`REASONS`].
pub(super) fn reason(root: &Root) -> Fact<String> {
    let names = root.list(WATCHDOGS)?;
    let bits = names.iter().filter_map(|name| {
        root.read_as(&format!("{WATCHDOGS}/{name}/bootstatus"), |text| attribute::count(&text)).ok()
    });
    let Some(bits) = bits.reduce(|all, bits| all | bits) else {
        return Err(Absent::new(WATCHDOGS, Why::NoSuchFile));
    };
    let known = REASONS.into_iter().find(|(bit, _)| bits & bit != 0);
    known.map(|(_, reason)| reason.to_owned()).ok_or_else(|| Absent::new(WATCHDOGS, Why::Empty))
}
