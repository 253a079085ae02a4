//! Turns what firmware says about a board into its name and serial number, or says why it is not to be believed.
//!
//! ```text
//! /sys/class/dmi/id/sys_vendor      Intel Corporation
//! /sys/class/dmi/id/product_name    To Be Filled By O.E.M.
//! /sys/class/dmi/id/modalias        dmi:bvnIntelCorp.:bd10/14/2015:svn:pn:pvr:rvnIntelCorporation:rnDE3815TYKH:ct3:cvr:
//! /proc/device-tree/serial-number   00000000a3c91e75\0
//! /etc/machine-id                   4d1f0e7c2b9a4c6f8e35d7a1b0c2f694
//! ```

use super::attribute::shortened;
use super::facts::Why;

/// What is on every board of a series where the name of one belongs: compared without case, `*` stands for any end.
const PLACEHOLDERS: [&str; 35] = [
    // Templates of SMBIOS (udev's hwdb `20-dmi-id`, dmidecode, inventory agents).
    "to be filled by o*",
    "default string",
    "default_string",
    "system manufacturer",
    "system product name",
    "system name",
    "system serial number",
    "base board serial number",
    "chassis serial number",
    "serial number",
    "not specified",
    "not applicable",
    "not available",
    "not provided",
    "none",
    "n/a",
    "na",
    "tbd",
    "unknown*",
    "o.e.m.",
    "oem*",
    "invalid",
    "undefined",
    "empty",
    // Codes of a chip or a board in `Serial` of cpuinfo: images of one maker of Rockchip boards, NVIDIA's Jetson TK1 and TX1.
    "c3d9b8674f4b94f6",
    "0177000003450000",
    "088403e800000000",
    // MAC addresses of makers' samples: ZTE's gateways, Broadcom's NVRAM (the kernel's brcmfmac refuses it as well),
    // Epigram's, Xilinx's U-Boot, NXP's S32G (all ports of all boards), handbooks.
    "00:d0:d0:00:00:01",
    "00:90:4c:c5:12:38",
    "00:90:4c:11:22:33",
    "00:0a:35:00:01:2*",
    "00:04:9f:be:ef:*",
    "00:11:22:33:44:55",
    "00:01:02:03:04:05",
    "12:34:56:78:9a:bc",
];

/// Whole series count so: `12345678`, `0123456789ABCDEF`, `1234567890`.
const COUNTED: [&str; 2] = ["0123456789ABCDEF", "1234567890ABCDEF"];
const LEAST_COUNTED: usize = 6;

/// The two halves of a board's name: a vendor and a product, each from two places of SMBIOS, the better one first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Smbios<'a> {
    pub vendors: [&'a str; 2],
    pub products: [&'a str; 2],
}

/// A string of SMBIOS that a vendor really wrote.
fn by_vendor(text: &str) -> Option<&str> {
    let text = text.trim();
    if is_placeholder(text) || is_one_character(text) { None } else { Some(text) }
}

pub(super) fn is_placeholder(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|junk| match junk.strip_suffix('*') {
        Some(start) => text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start)),
        None => text.eq_ignore_ascii_case(junk),
    })
}

/// A serial number that tells two boards apart.
pub(super) fn serial(text: &str) -> Result<String, Why> {
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let is_counted = text.len() >= LEAST_COUNTED && COUNTED.iter().any(|digits| digits.contains(&upper));
    match by_vendor(text) {
        Some(serial) if !is_counted && !is_chip_code(text) => Ok(serial.to_owned()),
        _ => Err(Why::Implausible(format!("{:?} is on every board", shortened(text)))),
    }
}

/// One byte, and nothing behind it: Amlogic's kernels print which chip it is, `1b00000000000000` on every S805. (A lower
/// half of zeros alone proves nothing: Samsung's `df3e911500000000` is of one phone.)
fn is_chip_code(text: &str) -> bool {
    text.len() == 16 && text.ends_with("00000000000000") && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// `0`, `0000000000000000`, `FFFFFFFF`, a UUID of zeros, and nothing at all.
fn is_one_character(text: &str) -> bool {
    let mut letters = text.strip_prefix("0x").unwrap_or(text).chars().filter(char::is_ascii_alphanumeric);
    let first = letters.next();
    letters.all(|letter| Some(letter) == first)
}

/// Any text but one that is the same digit throughout, which no vendor means. Others that boards share stay: a kubelet on
/// this machine would say the same.
pub(super) fn uuid(text: String) -> Result<String, Why> {
    if is_one_character(&text) { Err(Why::Implausible(format!("{text:?} is on every board"))) } else { Ok(text) }
}

/// Vendor and product, without the vendor when the product already starts with it.
pub(super) fn board_name(smbios: Smbios) -> Result<String, Why> {
    let [vendor, product] =
        [smbios.vendors, smbios.products].map(|candidates| candidates.into_iter().find_map(by_vendor));
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
    let name = text.to_ascii_lowercase();
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
        let digits = ["0000000000000000", "0", "FFFFFFFF", "00000000-0000-0000-0000-000000000000", "....", ""];
        let counted = ["12345678", "123456789", "1234567890", "0123456789", "0123456789ABCDEF", "0123456789abcdef"];
        let codes =
            ["1b00000000000000", "1B00000000000000", "088403e800000000", "0177000003450000", "c3d9b8674f4b94f6"];
        let words = ["To Be Filled By O.E.M.", "to be filled by OEM", "default string", "Chassis Serial Number"];
        let more = ["Not Available", "TBD", "tbd", "Unknown Serial", "System Serial Number", " None "];
        for junk in [&digits[..], &counted, &codes, &words, &more].concat() {
            assert_eq!(serial(junk).unwrap_err().word(), "implausible", "{junk:?}");
        }
        // Of real boards: nothing in them is shared.
        let real = ["1000000039863a58", "0000000049aa5600", "12c00003a8a27b14", "3400503443144823034e", "7XJ2Q12"];
        for kept in
            real.into_iter().chain(["df3e911500000000", "a915fb74761d7649", "4414BBBK0180", ".7XJ2Q12.CN7016319K00A5."])
        {
            assert_eq!(serial(kept).as_deref(), Ok(kept));
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
