//! Turns what the storage of a board says of itself into how much of its life is used up. A card does not say.
//!
//! ```text
//! eMMC, below /sys/block/mmcblk0/device
//!   type          MMC\n        SD: a card
//!   cid           150100384754463452...\n
//!   life_time     0x01 0x02\n  tenths that begun, of its faster cells and of all others
//!   pre_eol_info  0x01\n       1: normal, 2: most spare blocks are used, 3: nearly all
//! UFS, below /sys/bus/platform/devices/1d84000.ufshc/health_descriptor: the same in three files
//!   life_time_estimation_a, life_time_estimation_b, eol_info
//! raw flash, below /sys/class/ubi/ubi0, which counts its blocks
//!   max_ec            1043\n   how often the block was erased that was most
//!   bad_peb_count     2\n      blocks that are broken
//!   reserved_for_bad  38\n     blocks that are kept for the next that break: what is left of them
//!   mtd_num           4\n      the chip: /sys/class/mtd/mtd4
//! /sys/class/mtd/mtd4/type          nand\n    mlc-nand: cells of several bits each
//! /sys/class/mtd/mtd4/ecc_failures  0\n       reads since the boot that no ECC could correct
//! ```

use std::ops::RangeInclusive;

use super::attribute;
use super::facts::{Absent, Fact, Wear, Why};
use super::root::Root;

const BLOCK: &str = "/sys/block";
const PLATFORM: &str = "/sys/bus/platform/devices";
const UBI: &str = "/sys/class/ubi";
/// A tenth that begun, or 11 for more than all of it; anything else says nothing.
const TENTHS: RangeInclusive<u32> = 1..=11;
const SPARE_STATES: RangeInclusive<u32> = 1..=3;
/// The same on every processor.
const EINVAL: i32 = 22;
/// How often a block of raw flash may be erased: of one bit in each cell, and of several.
const RATED_ERASES: u64 = 100_000;
const RATED_ERASES_MLC: u64 = 3_000;

/// The worst that each device said so far: what is worn does not heal, but a device may be another one.
#[derive(Debug, Default)]
pub(super) struct WearFiles {
    devices: Vec<Device>,
}

#[derive(Debug)]
struct Device {
    name: String,
    /// Another one is another device, even in the same place.
    identity: String,
    said: Fact<Wear>,
}

impl WearFiles {
    /// Reads it again: some controllers have to wake up for this.
    pub(super) fn look(&mut self, root: &Root) {
        for name in root.list(BLOCK).unwrap_or_default() {
            let folder = format!("{BLOCK}/{name}/device");
            // Not its boot partitions, which share the folder.
            if is_numbered(&name, "mmcblk") && root.read_text(&format!("{folder}/type")).as_deref() == Ok("MMC") {
                let identity = root.read_text(&format!("{folder}/cid")).unwrap_or_default();
                self.says(&name, identity, emmc(root, &folder, &name));
            }
        }
        let is_ufs = |name: &str| name.contains(".ufs");
        for name in root.list_preferring(PLATFORM, &is_ufs).unwrap_or_default().iter().filter(|name| is_ufs(name)) {
            self.says(name, String::new(), ufs(root, name));
        }
        for name in root.list(UBI).unwrap_or_default().iter().filter(|name| is_numbered(name, "ubi")) {
            let chip = root.read_text(&format!("{UBI}/{name}/mtd_num")).unwrap_or_default();
            let said = ubi(root, name, &format!("/sys/class/mtd/mtd{chip}"));
            self.says(name, chip, said);
        }
    }

    fn says(&mut self, name: &str, identity: String, said: Fact<Option<Wear>>) {
        let Some(said) = said.transpose() else { return };
        match self.devices.iter_mut().find(|device| device.name == name) {
            Some(device) => device.says(said, identity),
            None => self.devices.push(Device { name: name.to_owned(), identity, said }),
        }
    }

    /// Of the device that is worn most; `None`: none says so.
    pub(super) fn worst(&self) -> Option<Fact<Wear>> {
        let key = |device: &&Device| {
            device.said.as_ref().map(|wear| (wear.is_losing_data, wear.spare_state, wear.life_tenths)).ok()
        };
        self.devices.iter().max_by_key(key).map(|device| device.said.clone())
    }
}

impl Device {
    fn says(&mut self, said: Fact<Wear>, identity: String) {
        let is_same = identity == self.identity;
        self.identity = identity;
        self.said = match (&self.said, said) {
            (Ok(before), Ok(now)) if is_same => Ok(Wear {
                life_tenths: before.life_tenths.max(now.life_tenths),
                spare_state: before.spare_state.max(now.spare_state),
                is_losing_data: before.is_losing_data || now.uncorrectable_reads > before.uncorrectable_reads,
                ..now
            }),
            (_, now) => now,
        };
    }
}

fn is_numbered(name: &str, kind: &str) -> bool {
    let number = name.strip_prefix(kind).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// `None`: it does not say, as those before eMMC 5.0.
fn emmc(root: &Root, folder: &str, name: &str) -> Fact<Option<Wear>> {
    let life = registers(root, &format!("{folder}/life_time"))?;
    Ok(by_registers(name, &life, &registers(root, &format!("{folder}/pre_eol_info"))?))
}

/// `None`: it does not say.
fn ufs(root: &Root, name: &str) -> Fact<Option<Wear>> {
    // Its driver says EINVAL of a register that the device has not got.
    let of = |file: &str| match registers(root, &format!("{PLATFORM}/{name}/health_descriptor/{file}")) {
        Err(Absent { why: Why::Errno(EINVAL), .. }) => Ok(Vec::new()),
        said => said,
    };
    let life = [of("life_time_estimation_a")?, of("life_time_estimation_b")?].concat();
    Ok(by_registers(name, &life, &of("eol_info")?))
}

/// None where there is no such file.
fn registers(root: &Root, path: &str) -> Fact<Vec<u32>> {
    match root.read_text(path) {
        Err(Absent { why: Why::NoSuchFile, .. }) => Ok(Vec::new()),
        Err(absent) => Err(absent),
        Ok(text) => {
            let numbers: Option<Vec<u32>> = text.split_whitespace().map(attribute::hexadecimal).collect();
            let wrong = || Why::Malformed(format!("{:?} is no number", attribute::shortened(&text)));
            numbers.ok_or_else(|| Absent::new(path, wrong()))
        }
    }
}

fn by_registers(name: &str, life: &[u32], spare: &[u32]) -> Option<Wear> {
    let most = |numbers: &[u32], range: RangeInclusive<u32>| {
        numbers.iter().copied().filter(|number| range.contains(number)).max()
    };
    let (life_tenths, spare_state) = (most(life, TENTHS), most(spare, SPARE_STATES));
    let says_something = life_tenths.is_some() || spare_state.is_some();
    says_something.then(|| Wear { device: name.to_owned(), life_tenths, spare_state, ..Wear::default() })
}

/// By what UBI counts. `None`: it does not.
fn ubi(root: &Root, name: &str, chip: &str) -> Fact<Option<Wear>> {
    let of = |attribute: &str| count(root, &format!("{UBI}/{name}/{attribute}"));
    let (Some(erased), Some(broken), Some(left)) = (of("max_ec")?, of("bad_peb_count")?, of("reserved_for_bad")?)
    else {
        return Ok(None);
    };
    let is_mlc = root.read_text(&format!("{chip}/type")).as_deref() == Ok("mlc-nand");
    let rated = if is_mlc { RATED_ERASES_MLC } else { RATED_ERASES };
    let tenths = (erased.saturating_mul(10) / rated + 1).min(u64::from(*TENTHS.end()));
    let spare_state = match (broken, left) {
        // Flash whose blocks do not break, as NOR, needs none.
        (0, _) => 1,
        (_, 0) => 3,
        (broken, left) if broken >= left => 2,
        _ => 1,
    };
    Ok(Some(Wear {
        device: name.to_owned(),
        life_tenths: u32::try_from(tenths).ok(),
        spare_state: Some(spare_state),
        is_raw: true,
        uncorrectable_reads: count(root, &format!("{chip}/ecc_failures")).ok().flatten().unwrap_or(0),
        is_losing_data: false,
    }))
}

fn count(root: &Root, path: &str) -> Fact<Option<u64>> {
    match root.read_as(path, |text| attribute::count(&text)) {
        Err(Absent { why: Why::NoSuchFile, .. }) => Ok(None),
        count => count.map(Some),
    }
}
