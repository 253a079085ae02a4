//! Turns the sensors of a board into what it may suffer from: looked for once an hour, read with each look.
//!
//! ```text
//! /sys/class/hwmon/hwmon3/name             rpi_volt\n
//! /sys/class/hwmon/hwmon3/in0_lcrit_alarm  0\n
//! ```

use super::facts::{Absent, Fact, Health, KernelPlaces, Why};
use super::file_systems::FileSystemFiles;
use super::kernel_log::KernelLogFiles;
use super::power::PowerFiles;
use super::root::{OpenFile, Root};
use super::thermal::ThermalFiles;
use super::uplink::UplinkFiles;
use super::wear::WearFiles;
use crate::time::{Every, Up};

/// The files of the sensors that this board has, kept open: one or two system calls for each at a look.
#[derive(Debug)]
pub struct HealthFiles {
    root: Root,
    /// Drivers come and go as modules, some of them after this program: once an hour, and once more after the first minute, by
    /// when a module is there that the boot loads later.
    searches: Every,
    has_searched: bool,
    /// What only a disk changes.
    counts: Every,
    undervoltage: Option<Alarm>,
    thermal: Option<ThermalFiles>,
    /// Whether its firmware slows the board down is to be read as well.
    asks_firmware: bool,
    wear: WearFiles,
    power: Option<PowerFiles>,
    file_systems: FileSystemFiles,
    uplink: UplinkFiles,
    /// `None`: nobody wants to know.
    kernel_log: Option<KernelLogFiles>,
}

/// An alarm that its driver takes back by itself, after two seconds.
#[derive(Debug)]
struct Alarm {
    file: OpenFile,
    /// By the look before.
    was_on: bool,
}

impl HealthFiles {
    /// Nothing is read yet.
    pub fn new(root: &Root) -> HealthFiles {
        HealthFiles {
            root: root.clone(),
            searches: Every::MINUTE,
            has_searched: false,
            counts: Every::MINUTE,
            undervoltage: None,
            thermal: None,
            asks_firmware: false,
            wear: WearFiles::default(),
            power: None,
            file_systems: FileSystemFiles::default(),
            uplink: UplinkFiles::new(),
            kernel_log: Some(KernelLogFiles::new(KernelPlaces::default())),
        }
    }

    /// With a log of the kernel that is open, or without any.
    #[must_use]
    pub fn with_log(self, kernel_log: Option<KernelLogFiles>) -> HealthFiles {
        HealthFiles { kernel_log, ..self }
    }

    /// Whether the settings want to know from the readings to come if the firmware slows the board down.
    pub fn ask_firmware(&mut self, asks: bool) {
        self.asks_firmware = asks;
    }

    /// From when on a reading begins with a search, and so with files that may be slow.
    pub fn search_due(&self) -> Up {
        self.searches.next().min(self.uplink.search_due())
    }

    /// What the sensors say now.
    pub fn read(&mut self, now: Up) -> Health {
        if self.searches.is_due(now) {
            self.search();
            if std::mem::replace(&mut self.has_searched, true) {
                self.searches = Every::HOUR.after(now);
            }
        }
        let is_due = self.counts.is_due(now);
        if is_due {
            self.file_systems.look(&self.root);
        }
        if let Some(log) = &mut self.kernel_log {
            log.look(&self.root, is_due, now);
        }
        let asks_firmware = self.asks_firmware;
        let HealthFiles { root, undervoltage, thermal, wear, power, file_systems, uplink, kernel_log, .. } = self;
        Health {
            undervoltage: undervoltage.as_mut().map(|alarm| alarm.was_raised(root)),
            thermal: thermal.as_mut().map(|files| files.read(root, asks_firmware, now)),
            storage_wear: wear.worst(),
            power: power.as_mut().and_then(|files| files.read(root)),
            file_systems: file_systems.worst(),
            uplink: uplink.look(root, now),
            kernel: kernel_log.as_ref().and_then(KernelLogFiles::said),
            wall_clock: None,
        }
    }

    /// What is gone stays known: it has stopped to answer, and comes back under a name with another number.
    fn search(&mut self) {
        self.thermal = ThermalFiles::search(&self.root, self.thermal.take());
        self.wear.look(&self.root);
        self.file_systems.search(&self.root);
        self.power = PowerFiles::search(&self.root).or(self.power.take());
        for sensor in self.root.list(HWMON).unwrap_or_default() {
            let folder = format!("{HWMON}/{sensor}");
            let Ok(name) = self.root.read_text(&format!("{folder}/name")) else { continue };
            if name == "rpi_volt" {
                let path = format!("{folder}/in0_lcrit_alarm");
                if self.undervoltage.as_ref().is_none_or(|known| known.file.path != path) {
                    self.undervoltage = Some(Alarm { file: OpenFile::new(path), was_on: false });
                }
            }
        }
    }
}

const HWMON: &str = "/sys/class/hwmon";

impl Alarm {
    /// Since the look before. The driver says when it changes: one that is off again was on meanwhile.
    fn was_raised(&mut self, root: &Root) -> Fact<bool> {
        let has_news = self.file.has_news();
        let is_on = match self.file.count(root)? {
            0 => false,
            1 => true,
            other => return Err(Absent::new(&self.file.path, Why::Malformed(format!("{other} is no alarm")))),
        };
        let was_on = std::mem::replace(&mut self.was_on, is_on);
        Ok(is_on || has_news && !was_on)
    }
}
