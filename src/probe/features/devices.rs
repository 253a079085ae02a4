//! Turns disks, USB and PCI devices into features: `usb-0e_046d_0825.present` is a camera, by class, vendor and product.

use super::super::root::Root;
use super::Feature;

const USB: &str = "/sys/bus/usb/devices";
const PCI: &str = "/sys/bus/pci/devices";
const BLOCK: &str = "/sys/block";

/// Those of node-feature-discovery (0e video, ef miscellaneous, fe of an application, ff of a vendor), and what hangs on boards:
/// 02 and 0a modems and networks, 03 input, 08 disks. Of 09 there are only hubs.
const USB_CLASSES: [&str; 8] = ["0e", "ef", "fe", "ff", "02", "0a", "03", "08"];
/// Those of node-feature-discovery (03 displays, 0b40 and 12 accelerators), NVMe (0108) and Wi-Fi (0280).
const PCI_CLASSES: [&str; 5] = ["03", "0b40", "12", "0108", "0280"];

/// A device without a class of its own has one with each of its interfaces, which stand beside it: `1-1.2:1.0`.
pub(super) fn usb(root: &Root, found: &mut Vec<Feature>) {
    let names = root.list(USB).unwrap_or_default();
    let read = |name: &str, attribute: &str| root.read_text(&format!("{USB}/{name}/{attribute}")).unwrap_or_default();
    for device in names.iter().filter(|name| !name.contains(':')) {
        let mut classes = vec![read(device, "bDeviceClass")];
        if classes == ["00"] {
            let is_its = |name: &&String| name.strip_prefix(device.as_str()).is_some_and(|rest| rest.starts_with(':'));
            classes = names.iter().filter(is_its).map(|name| read(name, "bInterfaceClass")).collect();
        }
        classes.retain(|class| USB_CLASSES.contains(&class.as_str()));
        if classes.is_empty() {
            continue;
        }
        let (vendor, product) = (read(device, "idVendor"), read(device, "idProduct"));
        // One that is just being pulled says nothing any more.
        if vendor.is_empty() || product.is_empty() {
            continue;
        }
        for class in classes {
            let name = format!("usb-{class}_{vendor}_{product}.present");
            found.push(Feature::nfd(&format!("{USB}/{device}"), &name, "true"));
        }
    }
}

pub(super) fn pci(root: &Root, found: &mut Vec<Feature>) {
    for device in root.list(PCI).unwrap_or_default() {
        let path = format!("{PCI}/{device}");
        let read = |attribute: &str| {
            let text = root.read_text(&format!("{path}/{attribute}")).unwrap_or_default();
            text.strip_prefix("0x").unwrap_or(&text).to_owned()
        };
        // Without its programming interface.
        let class = read("class");
        let class = class.get(..4).unwrap_or(&class);
        if PCI_CLASSES.iter().any(|known| class.starts_with(known)) {
            found.push(Feature::nfd(&path, &format!("pci-{class}_{}.present", read("vendor")), "true"));
        }
    }
}

pub(super) fn storage(root: &Root, found: &mut Vec<Feature>) {
    let disks = root.list(BLOCK).unwrap_or_default();
    let without_plates = disks.iter().map(|disk| format!("{BLOCK}/{disk}/queue/rotational"));
    let mut without_plates = without_plates.filter(|path| root.read_text(path).is_ok_and(|text| text == "0"));
    found.extend(without_plates.next().map(|path| Feature::nfd(&path, "storage-nonrotationaldisk", "true")));
    // A card (SD) or soldered memory (MMC): what a board may lose, and what wears out.
    for disk in disks.iter().filter(|disk| disk.starts_with("mmcblk")) {
        let path = format!("{BLOCK}/{disk}/device/type");
        if let Ok(kind) = root.read_text(&path) {
            found.push(Feature::ours(&path, &format!("storage-mmc.{kind}"), "true"));
        }
    }
}
