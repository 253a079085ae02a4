//! Turns Kubernetes quantities (`100Mi`, `250m`, `4`) into exact numbers and back into the API's canonical text.

use std::cmp::Ordering;
use std::fmt;

const NANO_PER_UNIT: i128 = 1_000_000_000;
/// No quantity of the API is larger: greater ones are cut to this, as upstream does.
const MAX_NANO: i128 = i64::MAX as i128 * NANO_PER_UNIT;

const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10^-9 in steps of a thousand.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// A resource amount, exact to one billionth, with the family its text is written in (A.7): arithmetic keeps the left
/// operand's family. Compared as a number: `1Gi` equals `1024Mi` and `1` equals `1000m`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    /// Printed with `Ki`, `Mi`, `Gi` ... (bytes) instead of `m`, none, `k`, `M` ... (cores, pods).
    is_binary: bool,
}

impl Quantity {
    /// Bytes, printed with binary suffixes.
    pub fn from_bytes(bytes: u64) -> Quantity {
        Quantity { nano: cut(i128::from(bytes) * NANO_PER_UNIT), is_binary: true }
    }

    /// Cores or pods, printed with decimal suffixes.
    pub fn from_count(count: u64) -> Quantity {
        Quantity { is_binary: false, ..Quantity::from_bytes(count) }
    }

    /// Reads every form the API reads, up to 38 digits (20 before `Ei`): `<sign><digits and one point><suffix>`, the suffix
    /// one of `n u m k M G T P E`, `Ki` to `Ei`, or a decimal exponent. What is finer than one billionth is rounded away from zero, what is
    /// larger than 2^63-1 is cut to it. An error is a sentence with the text in it.
    pub fn parse(text: &str) -> Result<Quantity, String> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = [whole, fraction].concat();
        if digits.is_empty() || fraction.contains('.') {
            return Err(format!("{text:?} is not a quantity; write a number such as 100Mi, 250m or 4"));
        }
        let suffixes = "Ki Mi Gi Ti Pi Ei, n u m k M G T P E or an exponent (1e3)";
        let (ten, kilo) = scale(suffix).ok_or_else(|| format!("{text:?} has an unknown suffix; use {suffixes}"))?;
        let digits = digits.parse::<i128>().ok().and_then(|digits| digits.checked_mul(1024_i128.pow(kilo)));
        let amount =
            digits.ok_or_else(|| format!("{text:?} has too many digits; write a number such as 100Mi or 250m"))?;
        let ten = ten + 9 - fraction.len() as i64;
        let power =
            u32::try_from(ten.unsigned_abs()).ok().and_then(|ten| 10_i128.checked_pow(ten)).unwrap_or(i128::MAX);
        let nano =
            if ten >= 0 { amount.saturating_mul(power) } else { amount / power + i128::from(amount % power != 0) };
        let nano = cut(nano);
        Ok(Quantity { nano: if text.starts_with('-') { -nano } else { nano }, is_binary: kilo > 0 })
    }

    /// The whole number of units, rounded away from zero: bytes for a quantity of bytes.
    pub fn value(&self) -> i64 {
        let rest = i128::from(self.nano % NANO_PER_UNIT != 0) * self.nano.signum();
        // At most MAX_NANO, so it always fits.
        i64::try_from(self.nano / NANO_PER_UNIT + rest).unwrap_or(i64::MAX)
    }

    /// That many times `unit`, cut to a whole number.
    pub fn of(&self, unit: u64) -> i128 {
        self.nano.saturating_mul(i128::from(unit)) / NANO_PER_UNIT
    }

    /// The `f32` that is nearest; exact for up to nine decimals of a number below 2^15. (core's own reader of floats has
    /// a table of 10 KB.)
    pub fn nearest(&self) -> f32 {
        (self.nano as f64 / NANO_PER_UNIT as f64) as f32
    }

    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// The sum, in this quantity's family.
    pub fn plus(&self, other: Quantity) -> Quantity {
        Quantity { nano: cut(self.nano + other.nano), ..*self }
    }

    /// The difference, never below zero, in this quantity's family.
    pub fn minus_floored(&self, other: Quantity) -> Quantity {
        Quantity { nano: cut(self.nano - other.nano).max(0), ..*self }
    }
}

fn cut(nano: i128) -> i128 {
    nano.clamp(-MAX_NANO, MAX_NANO)
}

/// What a suffix multiplies with: the powers of 10 and of 1024.
fn scale(suffix: &str) -> Option<(i64, u32)> {
    let place = |suffixes: &[&str]| suffixes.iter().position(|known| *known == suffix);
    if let Some(step) = place(&DECIMAL_SUFFIXES) {
        return Some((3 * step as i64 - 9, 0));
    }
    match place(&BINARY_SUFFIXES) {
        Some(step) => Some((0, step as u32 + 1)),
        None => Some((i64::from(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?), 0)),
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        self.nano.partial_cmp(&other.nano)
    }
}

impl fmt::Display for Quantity {
    /// The canonical text: the largest suffix of the family that leaves an integer. Binary falls back to decimal below
    /// 1024 and for fractions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.nano / NANO_PER_UNIT;
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.is_binary && self.nano % NANO_PER_UNIT == 0 && units.abs() >= 1024 {
            return largest(f, units, 1024, [""].iter().chain(&BINARY_SUFFIXES));
        }
        largest(f, self.nano, 1000, DECIMAL_SUFFIXES.iter())
    }
}

/// Writes `amount` with the last of the suffixes, each a `step` above the one before, that leaves an integer.
fn largest<'a>(
    f: &mut fmt::Formatter<'_>,
    mut amount: i128,
    step: i128,
    mut suffixes: impl Iterator<Item = &'a &'a str>,
) -> fmt::Result {
    let mut suffix = suffixes.next();
    while amount % step == 0
        && let Some(next) = suffixes.next()
    {
        (amount, suffix) = (amount / step, Some(next));
    }
    write!(f, "{amount}{}", suffix.unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).unwrap().to_string()
    }

    #[test]
    fn what_a_kubelet_makes_of_memory_disk_and_reservations() {
        let memory = Quantity::from_bytes(16_265_484 * 1024);
        assert_eq!(memory.to_string(), "16265484Ki");
        assert_eq!(memory.minus_floored(Quantity::parse("100Mi").unwrap()).to_string(), "16163084Ki");
        assert_eq!(memory.minus_floored(Quantity::parse("1G").unwrap()).to_string(), "15655855616");
        assert_eq!(Quantity::from_bytes(3_951_616_000).to_string(), "3859000Ki");
        let disk = Quantity::from_bytes(107_362_627_584);
        assert_eq!(disk.to_string(), "104846316Ki");
        assert_eq!(disk.minus_floored(Quantity::from_bytes(10_736_262_918)).to_string(), "96626364666");
        assert_eq!(Quantity::from_count(4).to_string(), "4");
        assert_eq!(Quantity::from_count(4).minus_floored(Quantity::parse("250m").unwrap()).to_string(), "3750m");
        assert_eq!(Quantity::from_count(110).to_string(), "110");
        assert_eq!(canonical("0Gi"), "0");
    }

    #[test]
    fn text_becomes_canonical_as_upstream_makes_it() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("0n", "0"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1025Ki", "1025Ki"),
            ("0.5Ki", "512"),
            ("1.5Gi", "1536Mi"),
            ("1.25Ki", "1280"),
            ("0.0001Ki", "102400u"),
            ("1023Ki", "1023Ki"),
            ("1000", "1k"),
            ("2000", "2k"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+5", "5"),
            ("0001.10", "1100m"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("12e1", "120"),
            ("1e-3", "1m"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("-1", "-1"),
            ("-1024Ki", "-1Mi"),
            ("-250m", "-250m"),
            ("100000000", "100M"),
            ("1u", "1u"),
            ("1.1n", "2n"),
            ("-1.1n", "-2n"),
            ("1e-40", "1n"),
            ("0e-99999", "0"),
            ("0e99999", "0"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_cut_and_never_overflows() {
        for text in ["9223372036854775807", "9223372036854775808", "8Ei", "99E", "1e19", "1e99999"] {
            assert_eq!(Quantity::parse(text).unwrap().value(), i64::MAX, "{text}");
        }
        assert_eq!(Quantity::parse("-1e99").unwrap().value(), -i64::MAX);
        assert_eq!(Quantity::from_bytes(u64::MAX).value(), i64::MAX);
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "is not a quantity"),
            ("aoeu", "is not a quantity"),
            ("-", "is not a quantity"),
            (".", "is not a quantity"),
            ("Ki", "is not a quantity"),
            ("1.1.1", "is not a quantity"),
            (" 1", "is not a quantity"),
            ("1 ", "has an unknown suffix"),
            ("1.1.M", "is not a quantity"),
            ("1+1.0M", "has an unknown suffix"),
            ("0.1mi", "has an unknown suffix"),
            (".5i", "has an unknown suffix"),
            ("-3.01e-", "has an unknown suffix"),
            ("1e", "has an unknown suffix"),
            ("1K", "has an unknown suffix"),
            ("1ki", "has an unknown suffix"),
            ("1e99999999999", "has an unknown suffix"),
            ("1\u{e9}", "has an unknown suffix"),
            ("1234567890123456789012345678901234567890", "has too many digits"),
            ("923456789012345678901Ei", "has too many digits"),
        ] {
            let error = Quantity::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
            assert!(error.contains("100Mi") || error.contains("Ki Mi"), "{error}");
        }
    }

    #[test]
    fn quantities_compare_as_numbers() {
        assert_eq!(Quantity::parse("1Gi").unwrap(), Quantity::parse("1024Mi").unwrap());
        assert_eq!(Quantity::parse("1").unwrap(), Quantity::parse("1000m").unwrap());
        assert!(Quantity::parse("1G").unwrap() < Quantity::parse("1Gi").unwrap());
        assert!(Quantity::parse("-1").unwrap().is_negative());
    }

    #[test]
    fn a_difference_is_never_below_zero_and_a_value_is_rounded_up() {
        let one = Quantity::from_count(1);
        assert_eq!(one.minus_floored(Quantity::from_count(40)).to_string(), "0");
        assert_eq!(one.plus(Quantity::parse("500m").unwrap()).to_string(), "1500m");
        assert_eq!(Quantity::parse("1500m").unwrap().value(), 2);
        assert_eq!(Quantity::parse("-1500m").unwrap().value(), -2);
    }

    #[test]
    fn canonical_text_reads_back_as_the_same_number_and_the_same_text() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let suffixes =
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e-4"];
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mantissa = (state >> 20) >> ((state >> 8) % 44);
            let suffix = suffixes[(state >> 59) as usize % suffixes.len()];
            let text = format!("{}{mantissa}.{}{suffix}", if state & 1 == 0 { "" } else { "-" }, state >> 50);
            let first = Quantity::parse(&text).unwrap();
            let printed = first.to_string();
            let second = Quantity::parse(&printed).unwrap();
            assert_eq!(first, second, "{text} -> {printed}");
            assert_eq!(second.to_string(), printed, "{text}");
        }
    }
}
