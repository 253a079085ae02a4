//! Turns what the watchdogs say of the last reset into its reason.
//!
//! `bootstatus` is a set of bits in decimal, `WDIOF_*` of the kernel's watchdog interface. Many drivers always say 0, and a
//! kernel without `CONFIG_WATCHDOG_SYSFS` has no such file: most resets have no known reason.

use super::attribute;
use super::facts::{Absent, Fact, Why};
use super::root::Root;

const WATCHDOGS: &str = "/sys/class/watchdog";

/// Bits of `bootstatus` and the reason each stands for, the surest first.
const REASONS: [(u64, &str); 3] = [(0x20, "WatchdogReset"), (0x10, "PowerLoss"), (0x01, "Overheated")];

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
