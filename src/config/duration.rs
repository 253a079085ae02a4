//! Turns Go durations (`10s`, `1m30s`, `1.5h`, `300ms`) into time spans.

use std::time::Duration;

use super::quantity::Quantity;

// Why a text is no duration, to stand after the text. (A bare number: the kubelet refuses it too.)
const NO_UNIT: &str = "has no unit: write for example 10s, 1m30s or 5m";
const NEGATIVE: &str = "is negative: write for example 10s, 1m30s or 5m";
const TOO_LONG: &str = "is longer than 292 years";
const MALFORMED: &str = "is not a duration: write for example 10s, 1m30s or 5m";

/// Go keeps durations as signed 64-bit nanoseconds.
const LONGEST_NS: u64 = i64::MAX as u64;

/// `ms` before `m`, or milliseconds would be minutes.
const UNITS: [(&str, u64); 8] = [
    ("h", 3_600_000_000_000),
    ("ms", 1_000_000),
    ("m", 60_000_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
];

/// Reads what Go's `time.ParseDuration` reads, without negative ones, each number exact to a billionth; an error is to
/// stand after the text.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.len() > 1 && text.starts_with('-') {
        return Err(NEGATIVE);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total_ns: i128 = 0;
    loop {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, unit) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let number = Quantity::parse(number).map_err(|_| MALFORMED)?;
        let known = UNITS.iter().find_map(|(name, ns)| Some((unit.strip_prefix(name)?, *ns)));
        let (after, unit_ns) = known.ok_or(if unit.is_empty() { NO_UNIT } else { MALFORMED })?;
        total_ns = total_ns.saturating_add(number.of(unit_ns));
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    u64::try_from(total_ns).ok().filter(|ns| *ns < LONGEST_NS).map(Duration::from_nanos).ok_or(TOO_LONG)
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
            ("0.333333333h", 1_199_999_998_800),
            ("9223372036854775806ns", 9_223_372_036_854_775_806),
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
