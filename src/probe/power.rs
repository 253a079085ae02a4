//! Turns the power supplies of a board into whether it runs on its battery, and how full that is.
//!
//! ```text
//! /sys/class/power_supply/AC/type         Mains\n          or USB
//! /sys/class/power_supply/AC/online       1\n
//! /sys/class/power_supply/BAT0/type       Battery\n
//! /sys/class/power_supply/BAT0/scope      System\n         Device: of a mouse
//! /sys/class/power_supply/BAT0/present    1\n
//! /sys/class/power_supply/BAT0/capacity   81\n             percent
//! /sys/class/power_supply/BAT0/status     Discharging\n
//! ```

use super::attribute;
use super::facts::{Absent, Fact, Power, Why};
use super::root::{OpenFile, Root};

const CLASS: &str = "/sys/class/power_supply";

/// The files of a board with a battery of its own, kept open.
#[derive(Debug)]
pub(super) struct PowerFiles {
    /// `online` of each supply from outside.
    supplies: Vec<OpenFile>,
    capacity: OpenFile,
    level: OpenFile,
    status: OpenFile,
    present: OpenFile,
}

impl PowerFiles {
    /// `None` without a battery. Of several the first counts.
    pub(super) fn search(root: &Root) -> Option<PowerFiles> {
        let (mut supplies, mut battery) = (Vec::new(), None);
        for name in root.list(CLASS).unwrap_or_default() {
            let folder = format!("{CLASS}/{name}");
            match root.read_text(&format!("{folder}/type")).as_deref() {
                Ok("Mains" | "USB") => supplies.push(OpenFile::new(format!("{folder}/online"))),
                Ok("Battery") if battery.is_none() && is_of_the_board(root, &folder) => battery = Some(folder),
                _ => {}
            }
        }
        let folder = battery?;
        let [capacity, level, status, present] =
            ["capacity", "capacity_level", "status", "present"].map(|name| OpenFile::new(format!("{folder}/{name}")));
        Some(PowerFiles { supplies, capacity, level, status, present })
    }

    /// `None`: the battery has been taken out.
    pub(super) fn read(&mut self, root: &Root) -> Option<Fact<Power>> {
        let is_out = text(&mut self.present, root).is_ok_and(|present| present == "0");
        (!is_out).then(|| self.power(root))
    }

    fn power(&mut self, root: &Root) -> Fact<Power> {
        let status = text(&mut self.status, root)?;
        let is_critical = text(&mut self.level, root).is_ok_and(|level| level == "Critical");
        let capacity = text(&mut self.capacity, root).and_then(|text| {
            let percent = attribute::count(&text).and_then(|percent| match percent {
                0..=100 => Ok(percent),
                other => Err(Why::Implausible(format!("{other} percent"))),
            });
            percent.map_err(|why| Absent::new(&self.capacity.path, why))
        });
        let mut online = self.supplies.iter_mut().map(|file| text(file, root).is_ok_and(|online| online != "0"));
        let has_supply = online.len() > 0;
        let on_battery = has_supply.then(|| !online.any(|online| online));
        let is_discharging = status == "Discharging";
        Ok(Power { on_battery, capacity_percent: capacity?, is_discharging, is_critical })
    }
}

fn is_of_the_board(root: &Root, folder: &str) -> bool {
    root.read_text(&format!("{folder}/scope")).as_deref() != Ok("Device")
}

fn text(file: &mut OpenFile, root: &Root) -> Fact<String> {
    file.read_as(root, |text| Ok(text.trim().to_owned()))
}
