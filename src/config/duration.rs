//! Turns Go durations (`10s`, `1m30s`, `1.5h`, `300ms`) into time spans.

use std::time::Duration;

// Why a text is no duration, to stand after the text. (A bare number: the kubelet refuses it too.)
const NO_UNIT: &str = "has no unit: write for example 10s, 1m30s or 5m";
const NEGATIVE: &str = "is negative: write for example 10s, 1m30s or 5m";
const TOO_LONG: &str = "is longer than 292 years";
const MALFORMED: &str = "is not a duration: write for example 10s, 1m30s or 5m";

/// Go keeps durations as signed 64-bit nanoseconds.
const LONGEST_NS: u128 = i64::MAX as u128;

/// `ms` before `m`, or milliseconds would be minutes.
const UNITS: [(&str, u128); 8] = [
    ("h", 3_600_000_000_000),
    ("ms", 1_000_000),
    ("m", 60_000_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
];

/// Reads what Go's `time.ParseDuration` reads, without negative ones; an error is to stand after the text.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.len() > 1 && text.starts_with('-') {
        return Err(NEGATIVE);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(MALFORMED);
    }
    let mut total_ns: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(MALFORMED);
        }
        let unit = UNITS.iter().find_map(|(name, ns)| after.strip_prefix(name).map(|after| (after, *ns)));
        let Some((after, unit_ns)) = unit else {
            return Err(if after.is_empty() { NO_UNIT } else { MALFORMED });
        };
        total_ns = total_ns.saturating_add(amount_ns(whole, fraction, unit_ns)?);
        if total_ns > LONGEST_NS {
            return Err(TOO_LONG);
        }
        rest = after;
    }
    u64::try_from(total_ns).map(Duration::from_nanos).map_err(|_| TOO_LONG)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn amount_ns(whole: &str, fraction: &str, unit_ns: u128) -> Result<u128, &'static str> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| TOO_LONG)? };
    // An hour has 13 digits of nanoseconds: what stands behind the 15th digit of a fraction is less than one.
    let fraction = fraction.get(..fraction.len().min(15)).unwrap_or("");
    let numerator: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| MALFORMED)? };
    let denominator = 10_u128.pow(fraction.len() as u32);
    Ok(u128::from(whole) * unit_ns + numerator * unit_ns / denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the table of Go's own test of ParseDuration.
    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, ns) in [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("1478s", 1_478_000_000_000),
            ("+5s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("13us", 13_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("14ms", 14_000_000),
            ("3h30m", 12_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_a_reason() {
        for (text, error) in [
            ("", MALFORMED),
            ("3", NO_UNIT),
            ("1m30", NO_UNIT),
            ("-5s", NEGATIVE),
            ("-", MALFORMED),
            ("s", MALFORMED),
            (".s", MALFORMED),
            ("+", MALFORMED),
            ("3000000h", TOO_LONG),
            ("9223372036854775808ns", TOO_LONG),
            ("99999999999999999999s", TOO_LONG),
            ("10 s", MALFORMED),
            ("5d", MALFORMED),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
