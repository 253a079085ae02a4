//! Turns the sensors of a board into what it may suffer from: looked for once an hour, read with each look.
//!
//! ```text
//! /sys/class/hwmon/hwmon3/name             rpi_volt\n
//! /sys/class/hwmon/hwmon3/in0_lcrit_alarm  0\n
//! ```

use super::attribute;
use super::facts::{Absent, Fact, Health, Why};
use super::file_systems::FileSystemFiles;
use super::power::PowerFiles;
use super::root::{OpenFile, Root};
use super::thermal::ThermalFiles;
use super::wear::WearFiles;

/// Drivers come and go as modules, some of them after this program: an hour at one look every ten seconds.
const LOOKS_PER_SEARCH: u32 = 360;
/// A module that the boot loads later is there by then.
const LOOKS_OF_BOOT: u32 = 6;
/// What only a disk changes is read once a minute.
const LOOKS_PER_COUNT: u32 = 6;
/// What one of these attributes says, with room to spare.
const VALUE_BYTES: usize = 64;

/// The files of the sensors that this board has, kept open: one or two system calls for each at a look.
#[derive(Debug)]
pub struct HealthFiles {
    root: Root,
    looks: u32,
    undervoltage: Option<Alarm>,
    thermal: Option<ThermalFiles>,
    wear: WearFiles,
    power: Option<PowerFiles>,
    file_systems: FileSystemFiles,
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
            looks: 0,
            undervoltage: None,
            thermal: None,
            wear: WearFiles::default(),
            power: None,
            file_systems: FileSystemFiles::default(),
        }
    }

    /// Whether the next reading begins with a search, and so with files that may be slow.
    pub fn is_search_due(&self) -> bool {
        self.looks == LOOKS_OF_BOOT || self.looks.is_multiple_of(LOOKS_PER_SEARCH)
    }

    /// What the sensors say now.
    pub fn read(&mut self) -> Health {
        if self.is_search_due() {
            self.search();
        }
        if self.looks.is_multiple_of(LOOKS_PER_COUNT) {
            self.file_systems.look(&self.root);
        }
        self.looks = self.looks.wrapping_add(1);
        let HealthFiles { root, undervoltage, thermal, wear, power, file_systems, .. } = self;
        Health {
            undervoltage: undervoltage.as_mut().map(|alarm| alarm.was_raised(root)),
            thermal: thermal.as_mut().map(|files| files.read(root)),
            storage_wear: wear.worst(),
            power: power.as_mut().and_then(|files| files.read(root)),
            file_systems: file_systems.worst(),
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
        let is_on = match number(&mut self.file, root)? {
            0 => false,
            1 => true,
            other => return Err(Absent::new(&self.file.path, Why::Malformed(format!("{other} is no alarm")))),
        };
        let was_on = std::mem::replace(&mut self.was_on, is_on);
        Ok(is_on || has_news && !was_on)
    }
}

fn number(file: &mut OpenFile, root: &Root) -> Fact<u64> {
    let mut page = [0; VALUE_BYTES];
    attribute::count(file.read(root, &mut page)?).map_err(|why| Absent::new(&file.path, why))
}
