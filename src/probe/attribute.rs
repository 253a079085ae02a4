//! Turns the bytes of one attribute into text, a list of strings, or a number.
//!
//! ```text
//! /proc/device-tree/model        Raspberry Pi 4 Model B Rev 1.1\0
//! /proc/device-tree/compatible   raspberrypi,4-model-b\0brcm,bcm2711\0
//! /proc/sys/kernel/pid_max       32768\n
//! ```

use std::cmp::Ordering;

use super::facts::Why;

/// Errors that vendor drivers print as a value instead of returning them: EIO, EAGAIN, ENODEV, EINVAL, ENODATA, ETIMEDOUT.
const ERRORS_PRINTED_AS_VALUES: [i64; 6] = [-5, -11, -19, -22, -61, -110];

/// Trimmed of blanks and NULs; what is not UTF-8 or a control character becomes U+FFFD.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(|character: char| character == '\0' || character.is_whitespace());
    text.replace(char::is_control, "\u{FFFD}")
}

/// A device tree's string: what stands before its NUL. Some boot loaders leave a buffer of old bytes behind it.
pub(super) fn string(bytes: &[u8]) -> String {
    text(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// A device tree's list of strings, each ended by a NUL.
pub(super) fn strings(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == 0).map(text).filter(|text| !text.is_empty()).collect()
}

/// A number that cannot be negative. What does not fit is unknown: drivers print `18446744073709551594` for -22.
pub(super) fn count(text: &str) -> Result<u64, Why> {
    let number = number(text)?;
    u64::try_from(number).map_err(|_| Why::Implausible(format!("{number} is negative")))
}

/// A number of something that is counted in thousands, where so little below zero is none.
pub(super) fn number(text: &str) -> Result<i64, Why> {
    let text = text.trim();
    let number = text.parse().map_err(|_| Why::Malformed(format!("{:?} is no number", shortened(text))))?;
    if ERRORS_PRINTED_AS_VALUES.contains(&number) {
        return Err(Why::Implausible(format!("{number} is an error printed as a value")));
    }
    Ok(number)
}

/// Bits, printed as a hexadecimal number without a prefix.
pub(super) fn bits(text: &str) -> Result<u32, Why> {
    let text = text.trim();
    u32::from_str_radix(text, 16).map_err(|_| Why::Malformed(format!("{:?} is no hexadecimal number", shortened(text))))
}

/// What follows `key` and `separator` in the first line of a table that begins with them.
pub(super) fn value_of<'a>(table: &'a str, key: &str, separator: u8) -> Option<&'a str> {
    let mut value = None;
    values_of(table, &[key], separator, std::slice::from_mut(&mut value));
    value
}

/// The same for several keys, each into its place in `values`. Some of these tables are read with every renewal: once, not once
/// for each key.
pub(super) fn values_of<'a>(table: &'a str, keys: &[&str], separator: u8, values: &mut [Option<&'a str>]) {
    // What iterates over lines and compares texts takes several times as many instructions.
    let (mut at, mut missing) = (0, keys.len());
    while missing > 0
        && let Some(rest) = table.as_bytes().get(at..).filter(|rest| !rest.is_empty())
    {
        let end = at + line_bytes(rest);
        for (key, value) in keys.iter().zip(values.iter_mut()) {
            // Most lines are none of these.
            if rest.get(key.len()) == Some(&separator) && value.is_none() && rest.starts_with(key.as_bytes()) {
                *value = table.get(at + key.len() + 1..end);
                missing -= 1;
            }
        }
        at = end;
    }
}

/// How long the first line is, its end included: a word at a time, then byte by byte.
fn line_bytes(text: &[u8]) -> usize {
    const WORD_BYTES: usize = size_of::<usize>();
    const ONES: usize = usize::MAX / 0xff;
    let (words, rest) = text.as_chunks::<WORD_BYTES>();
    let mut bytes = 0;
    for word in words {
        // A byte is zero here where the text has the end of a line; the lowest such byte is marked at its top for certain.
        let differs = usize::from_le_bytes(*word) ^ (ONES * b'\n' as usize);
        let marks = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if marks != 0 {
            return bytes + marks.trailing_zeros() as usize / 8 + 1;
        }
        bytes += WORD_BYTES;
    }
    bytes + rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |place| place + 1)
}

/// A number in hexadecimal, with or without `0x`.
pub(super) fn hexadecimal(text: &str) -> Option<u32> {
    let text = text.trim();
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// `cpu9` before `cpu10`.
pub(super) fn numeric_order(one: &str, other: &str) -> Ordering {
    let key = |name: &str| {
        let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
        let digits = name.get(stem.len()..).unwrap_or_default();
        (stem.to_owned(), digits.parse::<u64>().unwrap_or(0))
    };
    key(one).cmp(&key(other)).then_with(|| one.cmp(other))
}

/// Enough of bad input to recognise it by.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_its_first_line_break_or_with_the_text() {
        for length in 0..40 {
            for fill in [b'a', 0x0b, 0x09, 0x8a, 0x00, 0xff] {
                let mut text = vec![fill; length];
                assert_eq!(line_bytes(&text), length);
                for end in 0..length {
                    text[end] = b'\n';
                    let mut twice = text.clone();
                    twice[length - 1] = b'\n';
                    assert_eq!((line_bytes(&text), line_bytes(&twice)), (end + 1, end + 1), "{text:?}");
                    text[end] = fill;
                }
            }
        }
    }

    #[test]
    fn text_loses_its_padding_and_its_control_characters() {
        assert_eq!(text(b"Raspberry Pi 5 Model B Rev 1.0\0"), "Raspberry Pi 5 Model B Rev 1.0");
        assert_eq!(text(b"\t PowerEdge \n\0\n"), "PowerEdge");
        assert_eq!(text(b"a\x1b[2Jb\xffc"), "a\u{FFFD}[2Jb\u{FFFD}c");
        assert_eq!(text(b"\0\0\n"), "");
    }

    #[test]
    fn a_value_stands_behind_its_key_at_the_beginning_of_a_line() {
        let table = "inactive_file 1\nfile_mapped 2\n\nfile 3\r\nfile 4\nkernel 5";
        let value = |key| value_of(table, key, b' ').map(str::trim);
        assert_eq!((value("file"), value("kernel"), value("inactive_file")), (Some("3"), Some("5"), Some("1")));
        assert_eq!((value("mapped"), value("fil"), value("kernel 5 ")), (None, None, None));
        let mut values = [None; 4];
        values_of(table, &["kernel", "file", "none", "file_mapped"], b' ', &mut values);
        assert_eq!(values.map(|value| value.map(str::trim)), [Some("5"), Some("3"), None, Some("2")]);
        assert_eq!(
            (value_of("", "a", b':'), value_of("a:", "a", b':'), value_of("\u{e9}\na:1", "a", b':')),
            (None, Some(""), Some("1"))
        );
    }

    #[test]
    fn a_string_of_a_device_tree_ends_at_its_nul() {
        assert_eq!(string(b"1234BBBK5678\0\xff\xff\0garbage"), "1234BBBK5678");
        assert_eq!(string(b" Zero W \0"), "Zero W");
        assert_eq!(string(b"\0model"), "");
        assert_eq!(string(b"no end"), "no end");
    }

    #[test]
    fn a_string_list_is_split_at_each_nul() {
        assert_eq!(strings(b"raspberrypi,5-model-b\0brcm,bcm2712\0"), ["raspberrypi,5-model-b", "brcm,bcm2712"]);
        assert!(strings(b"\0\0").is_empty());
    }

    #[test]
    fn a_number_that_is_an_error_in_disguise_is_unknown() {
        assert_eq!(count("32768\n"), Ok(32768));
        for error in ["-5", "-11", "-19", "-22", "-61", "-110"] {
            let expected = format!("implausible: {error} is an error printed as a value");
            assert_eq!(count(error).unwrap_err().to_string(), expected);
        }
        assert_eq!(count("-3").unwrap_err().to_string(), "implausible: -3 is negative");
        assert_eq!(count("18446744073709551594").unwrap_err().word(), "malformed");
        assert_eq!(count("").unwrap_err().word(), "malformed");
        let long = count(&"x".repeat(1000)).unwrap_err().to_string();
        assert_eq!(long, format!("malformed: \"{}\" is no number", "x".repeat(40)));
    }

    #[test]
    fn names_are_ordered_by_their_numbers() {
        let mut names = ["cpu10", "cpu9", "cpuidle", "cpu", "eth0", "cpu99999999999999999999999"];
        names.sort_by(|one, other| numeric_order(one, other));
        assert_eq!(names, ["cpu", "cpu99999999999999999999999", "cpu9", "cpu10", "cpuidle", "eth0"]);
    }
}
