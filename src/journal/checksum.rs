//! Turns bytes into their CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and Btrfs: every error of up to three bits
//! and every burst of up to 32 in a frame is found.

/// The polynomial, its bits reversed as the algorithm takes them.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The sum of `parts`, one after the other. Bit by bit: that serves a few kilobytes an hour as well as a table would.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let of_byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| next_bit(sum));
    !parts.iter().fold(u32::MAX, |sum, part| part.iter().fold(sum, of_byte))
}

fn next_bit(sum: u32) -> u32 {
    if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_rfc_3720() {
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 32]]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[&rising]), 0x46DD_794E);
        assert_eq!(crc32c(&[&rising[..7], &[], &rising[7..]]), 0x46DD_794E);
    }
}
