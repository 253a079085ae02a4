//! Turns the attributes of an interface into a MAC address that stays with the board.
//!
//! ```text
//! /sys/class/net/eth0/type               1                    Ethernet, and what calls itself that
//! /sys/class/net/eth0/addr_assign_type   0                    burnt in; 1 random, 2 taken from another, 3 set by somebody
//! /sys/class/net/eth0/address            dc:a6:32:5c:0f:fe
//! ```

use super::attribute::shortened;
use super::facts::Why;
use super::identity;

const ETHERNET: &str = "1";
const PERMANENT: &str = "0";

/// Whether the address of an interface is its own for ever: many boards without an EEPROM make up a new one at each boot.
pub(super) fn is_permanent(kind: &str, assigned: &str) -> bool {
    kind == ETHERNET && assigned == PERMANENT
}

/// Six bytes, in lower case; neither nothing nor that of a group.
pub(super) fn address(text: &str) -> Result<String, Why> {
    let malformed = || Why::Malformed(format!("{:?} is no MAC address", shortened(text)));
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let bytes = bytes.filter(|bytes| bytes.len() == 6).ok_or_else(malformed)?;
    let is_group = bytes.first().is_some_and(|first| first & 1 != 0);
    if is_group || bytes.iter().all(|byte| *byte == 0) {
        return Err(Why::Implausible(format!("{text:?} is no address of one interface")));
    }
    let text = text.to_ascii_lowercase();
    if identity::is_placeholder(&text) {
        return Err(Why::Implausible(format!("{text:?} is a maker's sample: on every board of a series")));
    }
    Ok(text)
}

/// Made up by somebody who did not buy it from the IEEE: more than one may have made it up.
pub(super) fn is_local(address: &str) -> bool {
    address.get(..2).and_then(byte).is_some_and(|first| first & 2 != 0)
}

fn byte(text: &str) -> Option<u8> {
    let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_six_bytes_of_one_interface() {
        assert_eq!(address("DC:A6:32:5c:0f:fe").as_deref(), Ok("dc:a6:32:5c:0f:fe"));
        let samples = ["00:d0:d0:00:00:01", "00:90:4C:C5:12:38", "00:0a:35:00:01:23", "00:04:9f:be:ef:00"];
        for group in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"].into_iter().chain(samples) {
            assert_eq!(address(group).unwrap_err().word(), "implausible", "{group}");
        }
        for bad in ["", "dc:a6:32:5c:0f", "dc:a6:32:5c:0f:fe:01", "dc-a6-32-5c-0f-fe", "+c:a6:32:5c:0f:fe"] {
            assert_eq!(address(bad).unwrap_err().word(), "malformed", "{bad}");
        }
    }

    #[test]
    fn an_address_that_nobody_bought_is_told_by_a_bit() {
        assert_eq!([is_local("02:00:00:2d:a6:ca"), is_local("dc:a6:32:5c:0f:fe"), is_local("")], [true, false, false]);
    }

    #[test]
    fn a_random_or_borrowed_address_or_a_modems_does_not_stay() {
        assert!(is_permanent("1", "0"));
        for (kind, assigned) in [("1", "1"), ("1", "2"), ("1", "3"), ("1", ""), ("519", "0"), ("772", "0")] {
            assert!(!is_permanent(kind, assigned), "{kind} {assigned}");
        }
    }
}
