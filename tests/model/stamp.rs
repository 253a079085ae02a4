//! Turns microseconds since 1970 into the stamps of the API and back, by the rules of the calendar and no code of the agent.

const SECOND_US: i64 = 1_000_000;
const DAY_S: i64 = 86_400;
/// From 0001-01-01 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_162;
const MONTH_DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// 9999-12-31T23:59:59.999999Z: there is no later stamp.
pub const LAST_US: i64 = 253_402_300_799_999_999;

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: usize) -> i64 {
    MONTH_DAYS[month - 1] + i64::from(month == 2 && is_leap(year))
}

/// Days from 1970 to the first of January of this year.
fn first_day(year: i64) -> i64 {
    let years = year - 1;
    years * 365 + years / 4 - years / 100 + years / 400 - DAYS_BEFORE_1970
}

/// Whole seconds: `2026-01-01T00:05:00Z`.
pub fn seconds(unix_us: i64) -> String {
    format(unix_us, "")
}

/// Six digits more: `2026-01-01T00:05:00.123456Z`.
pub fn micros(unix_us: i64) -> String {
    format(unix_us, &format!(".{:06}", unix_us.rem_euclid(SECOND_US)))
}

fn format(unix_us: i64, fraction: &str) -> String {
    let seconds = unix_us.div_euclid(SECOND_US);
    let mut day = seconds.div_euclid(DAY_S);
    let of_day = seconds.rem_euclid(DAY_S);
    let mut year = 1970 + day.div_euclid(366);
    while first_day(year + 1) <= day {
        year += 1;
    }
    day -= first_day(year);
    let mut month = 1;
    while day >= days_of_month(year, month) {
        day -= days_of_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z", day + 1)
}

/// RFC 3339 with `Z` or a numeric offset, and any fraction; digits beyond the sixth are cut.
pub fn parse(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.into_iter().any(|(place, mark)| text.as_bytes().get(place) != Some(&mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)? as usize, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month)
        || day < 1
        || day > days_of_month(year, month)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut us = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let padded = format!("{:0<6}", fraction.get(..digits.min(6)).filter(|kept| !kept.is_empty())?);
        us = padded.parse::<i64>().ok()?;
        rest = &fraction[digits..];
    }
    let offset_s = match rest.as_bytes() {
        [b'Z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let part = |text: &str| text.parse::<i64>().ok().filter(|part| (0..60).contains(part));
            let span_s = part(&rest[1..3])? * 3600 + part(&rest[4..6])? * 60;
            if *sign == b'+' { span_s } else { -span_s }
        }
        _ => return None,
    };
    let mut days = first_day(year) + day - 1;
    for earlier in 1..month {
        days += days_of_month(year, earlier);
    }
    let seconds = days * DAY_S + hour * 3600 + minute * 60 + second - offset_s;
    Some(seconds * SECOND_US + us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date --utc` says them.
    const KNOWN: [(i64, &str); 8] = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_164_799, "2024-02-28T23:59:59Z"),
        (1_767_225_600, "2026-01-01T00:00:00Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
    ];

    #[test]
    fn stamps_are_those_of_the_calendar_in_both_directions() {
        for (unix_s, text) in KNOWN {
            assert_eq!(seconds(unix_s * SECOND_US), text);
            assert_eq!(parse(text), Some(unix_s * SECOND_US), "{text}");
        }
        assert_eq!(micros(LAST_US), "9999-12-31T23:59:59.999999Z");
        assert_eq!(parse("2026-01-01T02:00:00.5+02:00"), Some(1_767_225_600_500_000));
        for day in (-200_000..2_900_000).step_by(97) {
            let unix_us = day * DAY_S * SECOND_US + 1_234_567;
            if (0..=LAST_US).contains(&unix_us) {
                assert_eq!(parse(&micros(unix_us)), Some(unix_us));
            }
        }
    }

    #[test]
    fn what_is_no_stamp_is_none() {
        for text in [
            "",
            "2026-01-01",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
