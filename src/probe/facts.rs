//! What the probe says about a machine: every fact is there, or absent with the reason.

use std::fmt;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

pub use super::container_runtime::{
    ContainerImage, ContainerRuntime, HandlerFeatures, RuntimeFeatures, RuntimeHandler,
};
use crate::config::text_map::TextMap;
use crate::time::Up;

/// A fact, or why there is none. Missing is not zero.
pub type Fact<T> = Result<T, Absent>;

/// Why a fact is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The path that was asked, below the root; of several the preferred one.
    pub path: String,
    pub why: Why,
}

/// The reason, as a machine word ([`Why::word`]) and a sentence (`Display`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// ENOENT, ENOTDIR: this machine has no such file.
    NoSuchFile,
    /// EACCES, EPERM.
    NotPermitted,
    /// The file is there and says nothing.
    Empty,
    /// Any other errno of the kernel, by number.
    Errno(i32),
    /// The bytes are not what the file's format promises.
    Malformed(String),
    /// Well-formed, and known to be a lie (all-zero serial, `To Be Filled By O.E.M.`).
    Implausible(String),
    /// A container engine hides it (`/sys/firmware` masked).
    Masked,
    /// No threshold of the settings asks for it.
    Unasked,
}

/// Everything the Node is made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    pub machine: Machine,
    pub readings: Readings,
    pub network: Network,
}

/// Read once, at start (MI-10).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// As the kernel knows it, trimmed and lower-cased; refused when it is `(none)` or `localhost`.
    pub hostname: Fact<String>,
    #[serde(rename = "machineID")]
    pub machine_id: Fact<String>,
    #[serde(rename = "systemUUID")]
    pub system_uuid: Fact<String>,
    #[serde(rename = "bootID")]
    pub boot_id: Fact<String>,
    /// Of its programs, as Go names it: `arm64`.
    pub architecture: Fact<String>,
    pub kernel_release: Fact<String>,
    /// `PRETTY_NAME`; `Linux` or `Unknown` where VER-1 says so.
    pub os_image: Fact<String>,
    pub board_model: Fact<String>,
    /// Most specific first.
    pub board_compatible: Fact<Vec<String>>,
    pub board_serial: Fact<String>,
    /// Of the interfaces with one that stays, the one that other boards are least likely to have: `dc:a6:32:5c:0f:fe`.
    pub mac_address: Fact<String>,
    /// What else the board has in their place, refused or second: an earlier version may have called it by that.
    pub passed_over: Vec<PassedOver>,
    pub cpu_count: Fact<u32>,
    pub memory_total_bytes: Fact<u64>,
    pub swap_total_bytes: Fact<u64>,
    /// Why the machine was last reset, where a watchdog knows: `WatchdogReset`, `PowerLoss` or `Overheated`.
    pub reset_reason: Fact<String>,
    /// Sorted by page size; empty where the kernel has none.
    pub hugepages: Vec<Hugepages>,
    /// Of [`FeatureFiles`](super::FeatureFiles), where somebody asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
}

/// What the labels of a Node say of its board.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    pub labels: TextMap<String>,
    /// Some of what is no label, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Absent>,
}

/// A serial number or a MAC address of the board that is not the one it goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    pub value: String,
    /// Where it was read, and why it tells no boards apart; `None`: it does, another one is preferred.
    pub refused: Option<Absent>,
}

/// One page size of `/sys/kernel/mm/hugepages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hugepages {
    pub page_size_bytes: u64,
    pub pages: u64,
}

/// Read again on every status run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readings {
    pub memory: Fact<MemoryUse>,
    /// The file system that holds the state directory (SRC-8).
    pub node_file_system: Fact<FileSystem>,
    /// Where a file system is mounted that the kernel has made read-only by itself, as it does after errors, or why the state
    /// directory cannot be written; `None`: all can be.
    pub made_read_only: Fact<Option<String>>,
    pub pids: Fact<Pids>,
    /// Each extended resource of the settings, and how many of it there are.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub extended_resources: TextMap<Fact<u64>>,
    /// Of those that a device plug-in tells of, how many are not healthy; none of one that is not here.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub unhealthy_devices: TextMap<u64>,
    /// The one that the settings name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<ContainerRuntime>,
    /// The one that holds its images; `None`: it has not said where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_file_system: Option<Fact<FileSystem>>,
    pub health: Health,
}

/// What the board itself may suffer from; `None`: it has nothing to tell that from.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The supply's voltage was too low at some time since the look before.
    pub undervoltage: Option<Fact<bool>>,
    pub thermal: Option<Fact<Thermal>>,
    pub storage_wear: Option<Fact<Wear>>,
    pub power: Option<Fact<Power>>,
    pub file_systems: Option<Fact<FileSystemErrors>>,
    pub uplink: Option<Fact<Uplink>>,
    pub kernel: Option<Fact<KernelTrouble>>,
    /// Of the machine that the agent runs on: no file says it.
    pub wall_clock: Option<Fact<WallClock>>,
}

/// How right the wall clock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WallClock {
    /// Before the day on which this program was built.
    pub is_unset: bool,
    /// Somebody says that it is kept right.
    pub is_synchronised: bool,
    /// How far off it is then at most, in microseconds.
    pub most_off_us: u64,
}

/// Of the ext4 in which the kernel has found most errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSystemErrors {
    /// `mmcblk0p2`.
    pub device: String,
    /// Since its last fsck, over boots.
    pub count: u64,
    /// One of them since the boot.
    pub is_new: bool,
}

/// What the kernel says of trouble, in its log or at least by its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelTrouble {
    /// One of each kind that there was.
    pub all: Vec<Trouble>,
    /// A task has hung since the look before; `None`: nobody can say.
    pub has_hung: Option<bool>,
    /// The devices whose XFS has shut itself down; `None`: there has been no XFS in this boot, as far as the log goes.
    pub xfs_shut_down: Option<Vec<String>>,
    #[serde(skip)]
    pub read: KernelPlaces,
    /// Why counters have to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<Absent>,
}

/// Trouble of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// `OOMKilling`, as the event that is told of it.
    pub reason: &'static str,
    /// How often, in this boot or since what was told of it.
    pub count: u64,
    /// Rises with each: a number of the source.
    #[serde(skip)]
    pub place: u64,
    /// When the last was.
    #[serde(skip)]
    pub at: Up,
    /// The kernel's words for that.
    pub text: String,
}

/// Until where the kernel's words of trouble are read, in one boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelPlaces {
    /// The first record of the log that is not.
    pub log: u64,
    pub oom_kills: u64,
    pub hung_tasks: u64,
}

/// The interface that the default route leads through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Uplink {
    pub interface: String,
    /// Mb/s, where the interface says that.
    pub speed_mbps: Option<u64>,
    /// Of Wi-Fi.
    pub signal_dbm: Option<i64>,
    /// What no single look sees.
    #[serde(skip)]
    pub history: UplinkHistory,
}

/// What the looks at an uplink have seen one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkHistory {
    /// The interface that the route led through before it moved to a modem.
    pub moved_from: Option<String>,
    /// The best of them.
    pub fastest_mbps: Option<u64>,
    /// How often the carrier of an interface that the route led through came or went in the last ten minutes.
    pub carrier_changes: u64,
    /// In the last ten minutes.
    pub errors: u64,
    pub packets: u64,
}

/// How a board with a battery of its own is supplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Power {
    /// No supply from outside gives power; `None`: no such supply can be seen.
    pub on_battery: Option<bool>,
    pub capacity_percent: u64,
    pub is_discharging: bool,
    /// The battery itself says that it is nearly empty.
    pub is_critical: bool,
}

/// How much of the life of the storage that is worn most is used up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wear {
    /// `mmcblk0`, `1d84000.ufshc`, `ubi0`.
    pub device: String,
    /// The tenth of its life that it is in, from 1 on; 11: more than all of it.
    pub life_tenths: Option<u32>,
    /// 1: normal, 2: most spare blocks are used, 3: nearly all.
    pub spare_state: Option<u32>,
    /// Flash without a controller: its blocks are counted by the kernel.
    pub is_raw: bool,
    /// Reads of raw flash since the boot that no ECC could correct; after a loss of power some are as they should be.
    pub uncorrectable_reads: u64,
    /// These have become more since this program looked first.
    pub is_losing_data: bool,
}

/// How hot the board is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thermal {
    /// Those that can be believed.
    pub zones: Vec<Zone>,
    /// What slows the processor down because of the heat, if anything does.
    pub slowed_by: Option<String>,
    /// Whether the firmware does, where the settings ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_slowed_by_firmware: Option<Fact<bool>>,
}

/// One thermal zone, or a processor's own sensor. All in thousandths of 1 °C.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// As its driver calls it; empty where it does not.
    pub kind: String,
    pub millidegrees: i64,
    /// From where on something is slowed down, and from where on the board switches itself off, where the board says so.
    pub passive_millidegrees: Option<i64>,
    pub critical_millidegrees: Option<i64>,
}

impl Thermal {
    /// In thousandths of 1 °C.
    pub fn hottest_millidegrees(&self) -> i64 {
        self.zones.iter().map(|zone| zone.millidegrees).max().unwrap_or_default()
    }
}

impl Health {
    /// Of the same board, where its sensors do not answer.
    #[must_use]
    pub fn unanswered(&self, why: &Absent) -> Health {
        let Health { undervoltage, thermal, storage_wear, power, file_systems, uplink, kernel, wall_clock } = self;
        Health {
            undervoltage: undervoltage.as_ref().map(|_| Err(why.clone())),
            thermal: thermal.as_ref().map(|_| Err(why.clone())),
            storage_wear: storage_wear.as_ref().map(|_| Err(why.clone())),
            power: power.as_ref().map(|_| Err(why.clone())),
            file_systems: file_systems.as_ref().map(|_| Err(why.clone())),
            uplink: uplink.as_ref().map(|_| Err(why.clone())),
            kernel: kernel.as_ref().map(|_| Err(why.clone())),
            wall_clock: wall_clock.clone(),
        }
    }
}

/// What memory pressure is judged from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUse {
    pub available_bytes: u64,
    pub source: MemorySource,
}

/// Where [`MemoryUse`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemorySource {
    /// MemTotal minus the working set of the root cgroup (SRC-9).
    CgroupV2,
    CgroupV1,
    /// `MemAvailable`, as there is no memory cgroup at the root (D7).
    MemAvailable,
}

/// statvfs of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSystem {
    pub capacity_bytes: u64,
    pub available_bytes: u64,
    /// 0: this file system has no limit on inodes.
    pub inodes: u64,
    pub inodes_free: u64,
    /// squashfs and the like: always full, never pressure.
    pub read_only: bool,
}

/// SRC-10; `used` counts threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pids {
    pub limit: u64,
    pub used: u64,
}

/// What addresses are chosen from (ADR-6). Lists are in kernel order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub interfaces: Vec<Interface>,
    pub default_routes: Vec<DefaultRoute>,
    /// What DNS says of the node name (ADR-6 step 3); filled by `io`, empty in captures.
    pub node_name_addresses: Vec<IpAddr>,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    pub name: String,
    pub up: bool,
    pub running: bool,
    pub loopback: bool,
    pub point_to_point: bool,
    pub addresses: Vec<InterfaceAddress>,
}

/// One address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceAddress {
    pub ip: IpAddr,
    /// IPv6 only: tentative or duplicate: never to be used.
    pub unusable: bool,
    /// Deprecated or temporary, or an IPv4 address that no connected route covers: used when there is nothing better.
    pub second_choice: bool,
}

/// One default route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DefaultRoute {
    pub interface: String,
    /// `None`: whoever is asked for is on the link itself (a modem, a tunnel).
    #[serde(skip)]
    pub gateway: Option<IpAddr>,
    pub is_v6: bool,
    pub metric: u32,
}

/// `{"absent": word, "path": ..., "why": ...}`.
impl Serialize for Absent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("absent", self.why.word()), ("path", &self.path), ("why", &self.why.to_string())])
    }
}

/// `{"value": ..., "path": ..., "refused": ...}`.
impl Serialize for PassedOver {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let why = self.refused.iter().map(|absent| ("refused", absent.why.to_string()));
        let path = self.refused.iter().map(|absent| ("path", absent.path.clone()));
        serializer.collect_map([("value", self.value.clone())].into_iter().chain(path).chain(why))
    }
}

impl Absent {
    /// A fact that `path` should have given.
    pub fn new(path: &str, why: Why) -> Absent {
        Absent { path: path.to_owned(), why }
    }
}

/// The first fact, else the next one. When both are absent the first reason stays, unless all it says is that there is
/// no such file, and the next says more.
pub fn first_known<T>(first: Fact<T>, next: impl FnOnce() -> Fact<T>) -> Fact<T> {
    first.or_else(|first| next().map_err(|next| more_telling(first, next)))
}

/// Apart from the above, of which each kind of fact has its own copy.
#[inline(never)]
fn more_telling(first: Absent, next: Absent) -> Absent {
    match (&first.why, &next.why) {
        (Why::NoSuchFile, why) if *why != Why::NoSuchFile => next,
        _ => first,
    }
}

/// Something in a table that may not have been there.
pub(super) fn of_table<T>(path: &str, table: &Fact<String>, parse: impl FnOnce(&str) -> Result<T, Why>) -> Fact<T> {
    parse(table.as_ref().map_err(Absent::clone)?).map_err(|why| Absent::new(path, why))
}

impl Why {
    /// The machine word, and the sentence.
    fn words(&self) -> (&'static str, String) {
        match self {
            Why::NoSuchFile => ("no-such-file", "no such file".to_owned()),
            Why::NotPermitted => ("not-permitted", "permission denied".to_owned()),
            Why::Empty => ("empty", "empty".to_owned()),
            Why::Errno(errno) => ("read-failed", format!("read failed: {}", std::io::Error::from_raw_os_error(*errno))),
            Why::Malformed(what) => ("malformed", format!("malformed: {what}")),
            Why::Implausible(what) => ("implausible", format!("implausible: {what}")),
            Why::Masked => ("masked", "hidden by a container engine".to_owned()),
            Why::Unasked => ("unasked", "no threshold asks for it".to_owned()),
        }
    }

    /// The machine word.
    pub fn word(&self) -> &'static str {
        self.words().0
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().1)
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}
