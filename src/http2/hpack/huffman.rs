//! Turns text into the Huffman code of RFC 7541 appendix B and back.
//!
//! The code is canonical: codes of one length count upwards in the order of their symbols, and the next length goes on
//! where the last one ended. So the symbols in the order of their codes, and how many have each length, are all of it.

/// How many symbols have a code of 1, 2, ... 30 bits; the last of all is the end of the string, which never comes.
const CODES_OF_LENGTH: [u32; 30] =
    [0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4];

/// Shorter than these no code is, and longer than those.
const SHORTEST_BITS: u32 = 5;
const LONGEST_BITS: u32 = 30;
const CODES_FROM_SHORTEST: &[u32] = CODES_OF_LENGTH.split_at(SHORTEST_BITS as usize - 1).1;

/// The symbols in the order of their codes; the end of the string would follow.
#[rustfmt::skip]
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95, 98, 100,
    102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82,
    83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43,
    124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130, 131, 162, 184, 194, 224, 226,
    153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160, 163,
    164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1, 135, 137, 138, 139, 140, 141,
    143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9,
    142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213,
    218, 219, 238, 240, 242, 243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251,
    252, 253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127,
    220, 249, 10, 13, 22,
];

/// The code of a symbol, and its bits.
fn code_of(symbol: u8) -> (u32, u32) {
    let place = SYMBOLS.iter().position(|one| *one == symbol).unwrap_or_default();
    let mut place = u32::try_from(place).unwrap_or_default();
    let mut first = 0;
    for (bits, count) in (SHORTEST_BITS..).zip(CODES_FROM_SHORTEST) {
        first <<= 1;
        if place < *count {
            return (first + place, bits);
        }
        place -= count;
        first += count;
    }
    (0, 0)
}

/// Bytes that `text` takes when it is coded.
pub(super) fn coded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|symbol| code_of(*symbol).1 as usize).sum();
    bits.div_ceil(8)
}

/// Appends `text`, coded, to `output`.
pub(super) fn encode(text: &[u8], output: &mut Vec<u8>) {
    let (mut waiting, mut waiting_bits) = (0u64, 0);
    for symbol in text {
        let (code, bits) = code_of(*symbol);
        waiting = waiting << bits | u64::from(code);
        waiting_bits += bits;
        while waiting_bits >= 8 {
            waiting_bits -= 8;
            output.push((waiting >> waiting_bits & 0xff) as u8);
        }
    }
    if waiting_bits > 0 {
        let padding = 8 - waiting_bits;
        output.push((waiting << padding & 0xff) as u8 | (0xff >> waiting_bits));
    }
}

/// Appends the text of `coded` to `text`; `None` where it holds the end of the string, or ends with anything but the
/// beginning of that, of less than a byte.
pub(super) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    // Bits that are no symbol yet, and how many.
    let (mut waiting, mut waiting_bits) = (0u64, 0);
    let mut bytes = coded.iter();
    loop {
        while waiting_bits < LONGEST_BITS
            && let Some(byte) = bytes.next()
        {
            (waiting, waiting_bits) = (waiting << 8 | u64::from(*byte), waiting_bits + 8);
        }
        // The first code of each length, and how many codes are shorter.
        let (mut first, mut shorter) = (0, 0);
        let mut found = None;
        for (bits, count) in (SHORTEST_BITS..=waiting_bits).zip(CODES_FROM_SHORTEST) {
            let code = waiting >> (waiting_bits - bits);
            if code - first < u64::from(*count) {
                found = Some((bits, shorter + code - first));
                break;
            }
            first = (first + u64::from(*count)) << 1;
            shorter += u64::from(*count);
        }
        let Some((bits, place)) = found else {
            return (waiting_bits < 8 && waiting + 1 == 1 << waiting_bits).then_some(());
        };
        text.push(*SYMBOLS.get(usize::try_from(place).ok()?)?);
        waiting_bits -= bits;
        waiting &= (1 << waiting_bits) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    #[test]
    fn every_symbol_comes_back_alone_and_between_others() {
        for symbol in 0..=u8::MAX {
            for text in [vec![symbol], vec![b'a', symbol, b'z'], vec![symbol; 9]] {
                let mut coded = Vec::new();
                encode(&text, &mut coded);
                assert_eq!(coded.len(), coded_bytes(&text));
                assert_eq!(decoded(&coded), Some(text));
            }
        }
    }

    #[test]
    fn the_lengths_make_a_whole_code() {
        assert_eq!(CODES_OF_LENGTH.iter().sum::<u32>(), 257);
        let share = |(bits, count): (u32, u32)| u64::from(count) << (30 - bits);
        assert_eq!(
            (1..).zip(CODES_OF_LENGTH).map(share).sum::<u64>(),
            1 << 30,
            "each string of bits is read in one way"
        );
    }

    #[test]
    fn padding_is_ones_and_less_than_a_byte_and_the_end_of_the_string_never_comes() {
        assert_eq!(decoded(&[0b0001_1111]), Some(vec![b'a']), "00011 is an a");
        assert_eq!(decoded(&[0b0001_1110]), None, "padding of a zero");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), None, "padding of eleven bits");
        assert_eq!(decoded(&[0xff; 4]), None, "the end of the string");
        assert_eq!(decoded(&[0xff]), None, "a byte of padding alone");
        assert_eq!(decoded(&[]), Some(Vec::new()));
    }
}
