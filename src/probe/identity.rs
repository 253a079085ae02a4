//! Turns what firmware says about a board into its name and serial number, or says why it is not to be believed.
//!
//! ```text
//! /sys/class/dmi/id/sys_vendor      Intel Corporation
//! /sys/class/dmi/id/product_name    To Be Filled By O.E.M.
//! /sys/class/dmi/id/modalias        dmi:bvnIntelCorp.:bd10/14/2015:svn:pn:pvr:rvnIntelCorporation:rnDE3815TYKH:ct3:cvr:
//! /proc/device-tree/serial-number   00000000a3c91e75\0
//! /etc/machine-id                   4d1f0e7c2b9a4c6f8e35d7a1b0c2f694
//! ```

use super::Why;
use super::attribute::shortened;

/// What vendors leave in SMBIOS; compared without case.
const PLACEHOLDERS: [&str; 16] = [
    "to be filled by o.e.m.",
    "default string",
    "system manufacturer",
    "system product name",
    "system serial number",
    "base board serial number",
    "not specified",
    "not applicable",
    "none",
    "n/a",
    "unknown",
    "unknown product",
    "o.e.m.",
    "oem",
    "invalid",
    "undefined",
];

/// Serial numbers that whole series share; the last is in the images of one maker of Rockchip boards.
const SHARED_SERIALS: [&str; 4] = ["123456789", "0123456789", "1234567890", "c3d9b8674f4b94f6"];

/// The two halves of a board's name: a vendor and a product, each from two places of SMBIOS, the better one first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Smbios<'a> {
    pub vendors: [&'a str; 2],
    pub products: [&'a str; 2],
}

/// A string of SMBIOS that a vendor really wrote.
fn written(text: &str) -> Option<&str> {
    let text = text.trim();
    let placeholder = PLACEHOLDERS.iter().any(|junk| text.eq_ignore_ascii_case(junk));
    if placeholder || is_one_character(text) { None } else { Some(text) }
}

/// A serial number that tells two boards apart.
pub(super) fn serial(text: &str) -> Result<String, Why> {
    let text = text.trim();
    let shared = SHARED_SERIALS.iter().any(|junk| text.eq_ignore_ascii_case(junk));
    match written(text) {
        Some(serial) if !shared => Ok(serial.to_owned()),
        _ => Err(Why::Implausible(format!("{:?} is on every board", shortened(text)))),
    }
}

/// `0`, `0000000000000000`, `FFFFFFFF`, and nothing at all.
fn is_one_character(text: &str) -> bool {
    let text = text.strip_prefix("0x").unwrap_or(text);
    text.chars().all(|character| text.starts_with(character))
}

/// Vendor and product, without the vendor when the product already starts with it.
pub(super) fn board_name(smbios: Smbios) -> Result<String, Why> {
    let [vendor, product] =
        [smbios.vendors, smbios.products].map(|candidates| candidates.into_iter().find_map(written));
    let product = product.ok_or_else(|| Why::Implausible("SMBIOS names no product".to_owned()))?;
    let begins_with =
        |vendor: &str| product.get(..vendor.len()).is_some_and(|start| start.eq_ignore_ascii_case(vendor));
    match vendor {
        Some(vendor) if !begins_with(vendor) => Ok(format!("{vendor} {product}")),
        _ => Ok(product.to_owned()),
    }
}

/// The same strings from `modalias`, where the kernel has taken the blanks out.
pub(super) fn smbios_of_modalias(modalias: &str) -> Smbios<'_> {
    let part = |prefix: &str| modalias.split(':').find_map(|part| part.strip_prefix(prefix)).unwrap_or_default();
    Smbios { vendors: [part("svn"), part("rvn")], products: [part("pn"), part("rn")] }
}

/// 32 hexadecimal digits, of any case and with the dashes of a UUID, which stay: tools compare it with what a kubelet
/// sent. What means "not yet made", or is the same digit throughout, all boards of an image share.
pub(super) fn machine_id(text: String) -> Result<String, Why> {
    if text == "uninitialized" {
        return Err(Why::Implausible("systemd has not made it yet".to_owned()));
    }
    let digits: String = text.chars().filter(|character| *character != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(Why::Malformed(format!("{:?} is no machine-id of 32 hexadecimal digits", shortened(&text))));
    }
    if is_one_character(&digits) {
        return Err(Why::Implausible(format!("{text:?} is on every board")));
    }
    Ok(text)
}

/// Trimmed and lower-cased (ST-6). Names that a board gets when nobody gave it one would make all boards one Node.
pub(super) fn hostname(text: &str) -> Result<String, Why> {
    let name = text.to_lowercase();
    if name == "(none)" || name == "localhost" || name.starts_with("localhost.") {
        return Err(Why::Implausible(format!("{name:?} is what an unnamed machine is called")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_that_boards_share_is_no_serial() {
        for junk in ["0000000000000000", "0", "FFFFFFFF", "To Be Filled By O.E.M.", "default string", "123456789", ""] {
            assert_eq!(serial(junk).unwrap_err().word(), "implausible", "{junk:?}");
        }
        assert_eq!(serial("0x00000000").unwrap_err().to_string(), "implausible: \"0x00000000\" is on every board");
        assert_eq!(serial("00000000a3c91e75").as_deref(), Ok("00000000a3c91e75"));
        assert_eq!(serial("VF7110B1-2310-D004E000-00001234").as_deref(), Ok("VF7110B1-2310-D004E000-00001234"));
    }

    #[test]
    fn a_board_is_named_by_what_the_vendor_filled_in() {
        let name = |vendors, products| board_name(Smbios { vendors, products });
        assert_eq!(name(["Dell Inc.", ""], ["Edge Gateway 3002", "0G1"]).as_deref(), Ok("Dell Inc. Edge Gateway 3002"));
        assert_eq!(name(["", "Intel Corporation"], ["", "DE3815TYKH"]).as_deref(), Ok("Intel Corporation DE3815TYKH"));
        assert_eq!(name(["NVIDIA", ""], ["NVIDIA_DGX_Spark", ""]).as_deref(), Ok("NVIDIA_DGX_Spark"));
        assert_eq!(name(["To Be Filled By O.E.M.", ""], ["Default string", "X7"]).as_deref(), Ok("X7"));
        assert_eq!(name(["Maker", ""], ["None", "Unknown"]).unwrap_err().word(), "implausible");
    }

    #[test]
    fn a_modalias_still_has_what_the_files_lost() {
        let modalias =
            "dmi:bvnIntelCorp.:bd10/14/2015:svn:pn:pvr:rvnIntelCorporation:rnDE3815TYKH:rvrH26998-401:ct3:cvr:";
        assert_eq!(board_name(smbios_of_modalias(modalias)).as_deref(), Ok("IntelCorporation DE3815TYKH"));
        assert_eq!(board_name(smbios_of_modalias("dmi")).unwrap_err().word(), "implausible");
    }

    #[test]
    fn a_machine_id_is_kept_as_the_kubelet_keeps_it_unless_it_is_none() {
        for kept in ["4d1f0e7c2b9a4c6f8e35d7a1b0c2f694", "4D1F0E7C-2b9a-4c6f-8e35-d7a1b0c2f694"] {
            assert_eq!(machine_id(kept.to_owned()).as_deref(), Ok(kept));
        }
        for shared in ["uninitialized", "00000000000000000000000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"] {
            assert_eq!(machine_id(shared.to_owned()).unwrap_err().word(), "implausible", "{shared}");
        }
        for bad in ["raspberrypi", "4d1f0e7c2b9a4c6f8e35d7a1b0c2f69", "4d1f0e7c2b9a4c6f8e35d7a1b0c2f69g", "--"] {
            assert_eq!(machine_id(bad.to_owned()).unwrap_err().word(), "malformed", "{bad}");
        }
    }

    #[test]
    fn a_machine_nobody_named_has_no_hostname() {
        assert_eq!(hostname("ZTEGF680").as_deref(), Ok("ztegf680"));
        assert_eq!(hostname("localhosting").as_deref(), Ok("localhosting"));
        for unnamed in ["(none)", "localhost", "LOCALHOST.localdomain"] {
            assert_eq!(hostname(unnamed).unwrap_err().word(), "implausible", "{unnamed}");
        }
    }
}
