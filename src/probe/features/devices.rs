//! Turns disks, USB and PCI devices into features: `usb-0e_046d_0825.present` is a camera, by class, vendor and product.

use super::{Finder, NFD, OURS};

const USB: &str = "/sys/bus/usb/devices";
const PCI: &str = "/sys/bus/pci/devices";
const BLOCK: &str = "/sys/block";

/// Those of node-feature-discovery (0e video, ef miscellaneous, fe of an application, ff of a vendor), and what hangs on boards:
/// 02 and 0a modems and networks, 03 input, 08 disks. Of 09 there are only hubs.
const USB_CLASSES: [&str; 8] = ["0e", "ef", "fe", "ff", "02", "0a", "03", "08"];
/// Those of node-feature-discovery (03 displays, 0b40 and 12 accelerators), NVMe (0108) and Wi-Fi (0280).
const PCI_CLASSES: [&str; 5] = ["03", "0b40", "12", "0108", "0280"];

impl Finder<'_> {
    /// A device without a class of its own has one with each of its interfaces, which stand beside it: `1-1.2:1.0`.
    pub(super) fn usb(&mut self) {
        for name in self.names(USB) {
            let (device, is_interface) = name.split_once(':').map_or((&*name, false), |(device, _)| (device, true));
            let class = self.text(USB, &name, if is_interface { "/bInterfaceClass" } else { "/bDeviceClass" });
            if !USB_CLASSES.contains(&&*class) || is_interface && self.text(USB, device, "/bDeviceClass") != "00" {
                continue;
            }
            let [vendor, product] = ["/idVendor", "/idProduct"].map(|file| self.text(USB, device, file));
            // One that is just being pulled says nothing any more.
            if !vendor.is_empty() && !product.is_empty() {
                self.is_so(USB, NFD, "usb-", &[&*class, "_", &vendor, "_", &product, ".present"].concat());
            }
        }
    }

    pub(super) fn pci(&mut self) {
        for device in self.names(PCI) {
            let [class, vendor] = ["/class", "/vendor"].map(|file| self.text(PCI, &device, file));
            // Without `0x`, and without its programming interface.
            let (class, vendor) = (class.get(2..6).unwrap_or_default(), vendor.get(2..).unwrap_or_default());
            if PCI_CLASSES.iter().any(|known| class.starts_with(known)) {
                self.is_so(PCI, NFD, "pci-", &[class, "_", vendor, ".present"].concat());
            }
        }
    }

    pub(super) fn storage(&mut self) {
        let disks = self.names(BLOCK);
        if disks.iter().any(|disk| self.text(BLOCK, disk, "/queue/rotational") == "0") {
            self.is_so(BLOCK, NFD, "storage-nonrotationaldisk", "");
        }
        for disk in disks.iter().filter(|disk| disk.starts_with("mmcblk")) {
            // A card (SD) or soldered memory (MMC): what a board may lose, and what wears out.
            let kind = self.text(BLOCK, disk, "/device/type");
            if !kind.is_empty() {
                self.is_so(BLOCK, OURS, "storage-mmc.", &kind);
            }
        }
    }
}
