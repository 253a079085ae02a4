//! Turns what an eMMC says of itself into how much of its life is used up. A card does not say.
//!
//! ```text
//! /sys/block/mmcblk0/device/type          MMC\n        SD: a card
//! /sys/block/mmcblk0/device/cid           150100384754463452...\n
//! /sys/block/mmcblk0/device/life_time     0x01 0x02\n  tenths that begun, of its faster cells and of all others
//! /sys/block/mmcblk0/device/pre_eol_info  0x01\n       1: normal, 2: most spare blocks are used, 3: nearly all
//! ```

use super::attribute;
use super::facts::{Absent, Fact, Wear, Why};
use super::root::Root;

const BLOCK: &str = "/sys/block";
/// A tenth that begun, or 11 for more than all of it; anything else says nothing.
const TENTHS: std::ops::RangeInclusive<u32> = 1..=11;
const SPARE_STATES: std::ops::RangeInclusive<u32> = 1..=3;

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
            let number = name.strip_prefix("mmcblk").unwrap_or_default();
            let folder = format!("{BLOCK}/{name}/device");
            // Not its boot partitions, which share the folder.
            let is_whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if !is_whole || root.read_text(&format!("{folder}/type")).as_deref() != Ok("MMC") {
                continue;
            }
            let identity = root.read_text(&format!("{folder}/cid")).unwrap_or_default();
            let known = self.devices.iter_mut().find(|device| device.name == name);
            let Some(said) = wear(root, &folder, &name).transpose() else { continue };
            match known {
                Some(device) => device.says(said, identity),
                None => self.devices.push(Device { name, identity, said }),
            }
        }
    }

    /// Of the device that is worn most; `None`: none says so.
    pub(super) fn worst(&self) -> Option<Fact<Wear>> {
        let key = |device: &&Device| device.said.as_ref().map(|wear| (wear.spare_state, wear.life_tenths)).ok();
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
                ..now
            }),
            (_, now) => now,
        };
    }
}

/// `None`: it does not say, as those before eMMC 5.0.
fn wear(root: &Root, folder: &str, name: &str) -> Fact<Option<Wear>> {
    let numbers = |attribute: &str| {
        let path = format!("{folder}/{attribute}");
        match root.read_text(&path) {
            Err(Absent { why: Why::NoSuchFile, .. }) => Ok(Vec::new()),
            Err(absent) => Err(absent),
            Ok(text) => {
                let numbers: Option<Vec<u32>> = text.split_whitespace().map(attribute::hexadecimal).collect();
                let wrong = || Why::Malformed(format!("{:?} is no number", attribute::shortened(&text)));
                numbers.ok_or_else(|| Absent::new(&path, wrong()))
            }
        }
    };
    let most = |numbers: Vec<u32>, range: std::ops::RangeInclusive<u32>| {
        numbers.into_iter().filter(|number| range.contains(number)).max()
    };
    let (life_tenths, spare_state) =
        (most(numbers("life_time")?, TENTHS), most(numbers("pre_eol_info")?, SPARE_STATES));
    let says_something = life_tenths.is_some() || spare_state.is_some();
    Ok(says_something.then(|| Wear { device: name.to_owned(), life_tenths, spare_state }))
}
