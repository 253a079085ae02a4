//! Turns two clock readings into [`Now`], and wall times into the stamps of the Kubernetes API and back.
//!
//! Nothing here reads a clock: `io` does, and passes [`Now`] down. [`Up`] orders and spaces everything; [`Wall`] is only
//! ever printed, compared with other stamps, or sent.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// What happens with one of so many looks at something, or after so long where the looks are rarer.
#[derive(Debug, Clone, Copy)]
pub struct Every {
    looks: u32,
    period: Duration,
    /// How many looks are to pass before the next one with which it happens.
    left: u32,
    due: Up,
}

impl Every {
    pub const HOUR: Every = Every::looks(360, Duration::from_secs(3600));
    pub const TEN_MINUTES: Every = Every::looks(60, Duration::from_secs(595));
    /// A look once a minute may come a little early.
    pub const MINUTE: Every = Every::looks(6, Duration::from_secs(55));

    /// Due with the first look.
    const fn looks(looks: u32, period: Duration) -> Every {
        Every { looks, period, left: 0, due: Up::BOOT }
    }

    /// As if it had happened just now.
    pub fn after(self, now: Up) -> Every {
        Every { left: self.looks - 1, due: now + self.period, ..self }
    }

    /// To be asked with each look.
    pub fn is_due(&mut self, now: Up) -> bool {
        let is_due = now >= self.next();
        if is_due {
            *self = self.after(now);
        } else {
            self.left -= 1;
        }
        is_due
    }

    /// From when on a look is due.
    pub fn next(&self) -> Up {
        if self.left == 0 { Up::BOOT } else { self.due }
    }
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time since boot, suspend included (`CLOCK_BOOTTIME`): never steps.
    pub up: Up,
    /// Wall time, or `None` while the wall clock cannot be right (before the build date of this program).
    pub wall: Option<Wall>,
}

impl Now {
    /// What both clocks said then, as far as the wall clock is what it was.
    pub fn earlier(self, up: Up) -> Now {
        Now { up, wall: self.wall.map(|wall| wall.minus(self.up - up)) }
    }
}

/// A moment as time since boot, suspend included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Up(Duration);

impl Up {
    pub const BOOT: Up = Up(Duration::ZERO);

    pub const fn since_boot(elapsed: Duration) -> Up {
        Up(elapsed)
    }

    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

/// Seconds since boot to a tenth: `123.4`. Whole numbers only: what prints a float is nine kilobytes of program.
impl fmt::Display for Up {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.as_secs(), self.0.subsec_millis() / 100)
    }
}

impl Add<Duration> for Up {
    type Output = Up;
    fn add(self, span: Duration) -> Up {
        Up(self.0.saturating_add(span))
    }
}

impl Sub<Up> for Up {
    type Output = Duration;
    /// How long after `earlier` this is; zero when it is not after it.
    fn sub(self, earlier: Up) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A span as a person would say it.
pub struct InWords(pub Duration);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{} ms", self.0.as_millis()),
            1..=119 => write!(f, "{seconds} s"),
            120..=7199 => write!(f, "{} min", seconds / 60),
            7200..=172_799 => write!(f, "{} h", seconds / 3600),
            _ => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// A wall time: microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall {
    unix_us: i64,
}

const US_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Wall {
    /// The last moment that a stamp of the API can name, 9999-12-31T23:59:59.999999Z: a year has four digits.
    pub const LAST: Wall = Wall { unix_us: 253_402_300_799_999_999 };

    /// The first one, 0000-01-01T00:00:00Z.
    pub const FIRST: Wall = Wall { unix_us: -62_167_219_200_000_000 };

    pub const fn from_unix_us(unix_us: i64) -> Wall {
        Wall { unix_us }
    }

    pub const fn from_unix_seconds(seconds: i64) -> Wall {
        Wall { unix_us: seconds.saturating_mul(US_PER_SECOND) }
    }

    pub const fn unix_us(self) -> i64 {
        self.unix_us
    }

    pub const fn unix_seconds(self) -> i64 {
        self.unix_us.div_euclid(US_PER_SECOND)
    }

    pub fn plus(self, span: Duration) -> Wall {
        let us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Wall { unix_us: self.unix_us.saturating_add(us) }
    }

    pub fn minus(self, span: Duration) -> Wall {
        let us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Wall { unix_us: self.unix_us.saturating_sub(us) }
    }

    /// What it is at `to`, earlier or later in the same boot, where it is this at `from`.
    pub fn carried(self, from: Up, to: Up) -> Wall {
        self.plus(to - from).minus(from - to)
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Wall) -> Duration {
        let us = self.unix_us.saturating_sub(earlier.unix_us);
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    /// `metav1.Time`: RFC 3339, UTC, whole seconds (PAT-6), `2026-01-01T00:05:00Z`.
    pub fn to_seconds_stamp(self) -> String {
        self.to_stamp("2026-01-01T00:05:00".len())
    }

    /// `metav1.MicroTime`: RFC 3339, UTC, exactly six fractional digits (LSE-3), `2026-01-01T00:00:00.123456Z`.
    pub fn to_micro_stamp(self) -> String {
        self.to_stamp("2026-01-01T00:00:00.123456".len())
    }

    /// So many characters of it, and `Z`. Later than [`Wall::LAST`], it is that, and before [`Wall::FIRST`], that. Digit by digit:
    /// each renewal has one, and what pads numbers takes four thousand instructions for it.
    fn to_stamp(self, length: usize) -> String {
        let named = self.clamp(Wall::FIRST, Wall::LAST);
        let seconds = named.unix_seconds();
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let us = named.unix_us.rem_euclid(US_PER_SECOND);
        let mut stamp = *b"0000-00-00T00:00:00.000000";
        let clock = [(13, of_day / 3600), (16, of_day / 60 % 60), (19, of_day % 60), (26, us)];
        for (end, mut number) in [(4, year), (7, month), (10, day)].into_iter().chain(clock) {
            for byte in stamp.get_mut(..end).unwrap_or_default().iter_mut().rev().take_while(|byte| **byte == b'0') {
                *byte = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        let text = stamp.get(..length).and_then(|stamp| str::from_utf8(stamp).ok());
        [text.unwrap_or_default(), "Z"].concat()
    }

    /// Reads a stamp of the API: RFC 3339 with `Z` or a numeric offset and any number of fractional digits
    /// (digits beyond the sixth are cut). `None` for anything else.
    pub fn parse_stamp(text: &str) -> Option<Wall> {
        let (date, rest) = text.split_at_checked("2026-01-01".len())?;
        let (clock, mut rest) = rest.strip_prefix(['T', 't'])?.split_at_checked("00:00:00".len())?;
        let [year, month, day] = parse_fields(date, '-', [4, 2, 2])?;
        let days = days_from_civil(year, month, day)?;
        let seconds = parse_clock(clock)?;
        let mut us = 0;
        if let Some(fraction) = rest.strip_prefix('.') {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let kept = fraction.get(..digits.min(6)).filter(|kept| !kept.is_empty())?;
            us = kept.parse::<i64>().ok()? * 10_i64.pow(6 - kept.len() as u32);
            rest = fraction.get(digits..)?;
        }
        let offset_seconds = parse_offset(rest)?;
        Some(Wall::from_unix_us((days * SECONDS_PER_DAY + seconds - offset_seconds) * US_PER_SECOND + us))
    }

    /// Reads the `Date` header of HTTP in its one current form (RFC 9110 5.6.7), `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn parse_http_date(text: &str) -> Option<Wall> {
        let (_weekday, rest) = text.split_once(',')?;
        let mut parts = rest.strip_prefix(' ')?.split(' ');
        let [day] = parse_fields(parts.next()?, '-', [2])?;
        let month_name = parts.next()?;
        let month = 1 + MONTHS.iter().position(|month| *month == month_name)? as i64;
        let [year] = parse_fields(parts.next()?, '-', [4])?;
        let seconds = parse_clock(parts.next()?)?;
        let days = days_from_civil(year, month, day)?;
        parts.eq(["GMT"]).then(|| Wall::from_unix_seconds(days * SECONDS_PER_DAY + seconds))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_seconds_stamp())
    }
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Numbers of so many digits each, a separator between them, and nothing else.
fn parse_fields<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut rest = text;
    for (place, (number, digits)) in numbers.iter_mut().zip(digits).enumerate() {
        if place > 0 {
            rest = rest.strip_prefix(separator)?;
        }
        let (field, left) = rest.split_at_checked(digits)?;
        for byte in field.bytes() {
            *number = *number * 10 + i64::from(byte.is_ascii_digit().then(|| byte - b'0')?);
        }
        rest = left;
    }
    rest.is_empty().then_some(numbers)
}

/// `HH:MM:SS` to seconds of the day; a leap second counts as the second before it, as POSIX time does.
fn parse_clock(text: &str) -> Option<i64> {
    let [hour, minute, second] = parse_fields(text, ':', [2, 2, 2])?;
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second.min(59))
}

fn parse_offset(text: &str) -> Option<i64> {
    if text == "Z" || text == "z" {
        return Some(0);
    }
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let [hour, minute] = parse_fields(text.get(1..)?, ':', [2, 2])?;
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms"); `None` for a date that does not exist.
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_with_each_look_is_done_with_each_sixth_or_after_a_minute_where_looks_are_rarer() {
        let due_at = |first: Every, period_s: u64| -> Vec<u64> {
            let mut every = first;
            let looks = (0..1200).step_by(period_s as usize);
            looks.filter(|at| every.is_due(Up::since_boot(Duration::from_secs(*at)))).take(4).collect()
        };
        assert_eq!(due_at(Every::MINUTE, 1), [0, 6, 12, 18], "a test is in a hurry");
        assert_eq!(due_at(Every::MINUTE, 10), [0, 60, 120, 180]);
        assert_eq!(due_at(Every::MINUTE, 60), [0, 60, 120, 180]);
        assert_eq!(due_at(Every::MINUTE, 300), [0, 300, 600, 900]);
        assert_eq!(due_at(Every::MINUTE.after(Up::BOOT), 10), [50, 110, 170, 230], "the first look has been");
    }

    #[test]
    fn stamps_are_what_the_api_prints() {
        let wall = Wall::from_unix_us(1_767_225_600_123_456);
        assert_eq!(wall.to_seconds_stamp(), "2026-01-01T00:00:00Z");
        assert_eq!(wall.to_micro_stamp(), "2026-01-01T00:00:00.123456Z");
        assert_eq!(Wall::from_unix_us(-1).to_micro_stamp(), "1969-12-31T23:59:59.999999Z");
        for late in [Wall::LAST, Wall::LAST.plus(Duration::from_micros(1)), Wall::from_unix_us(i64::MAX)] {
            assert_eq!(late.to_micro_stamp(), "9999-12-31T23:59:59.999999Z");
            assert_eq!(late.to_seconds_stamp(), "9999-12-31T23:59:59Z");
        }
        assert_eq!(Wall::from_unix_seconds(951_782_400).to_seconds_stamp(), "2000-02-29T00:00:00Z");
    }

    #[test]
    fn every_day_of_four_centuries_survives_the_round_trip() {
        for day in -25_567..120_530 {
            let wall = Wall::from_unix_seconds(day * SECONDS_PER_DAY + 43_199);
            assert_eq!(Wall::parse_stamp(&wall.to_seconds_stamp()), Some(wall));
        }
    }

    #[test]
    fn stamps_of_other_writers_are_read() {
        let expected = Some(Wall::from_unix_us(1_767_225_600_500_000));
        assert_eq!(Wall::parse_stamp("2026-01-01T00:00:00.5Z"), expected);
        assert_eq!(Wall::parse_stamp("2026-01-01T00:00:00.500000999Z"), expected);
        assert_eq!(Wall::parse_stamp("2026-01-01T01:30:00.5+01:30"), expected);
    }

    #[test]
    fn what_is_not_a_stamp_is_refused() {
        for text in [
            "",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:0\u{e9}Z",
            "+026-01-01T00:00:00Z",
            "2026-1-001T00:00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:000",
            "2026-01-01T00-00-00Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+01:00Z",
        ] {
            assert_eq!(Wall::parse_stamp(text), None, "{text}");
        }
    }

    #[test]
    fn the_date_header_is_read() {
        assert_eq!(Wall::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Wall::from_unix_seconds(784_111_777)));
        assert_eq!(Wall::parse_http_date("Sun, 06 Nov 1994 08:49:37 CET"), None);
        assert_eq!(Wall::parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"), None);
    }

    #[test]
    fn an_earlier_moment_is_never_after_a_later_one() {
        let earlier = Up::since_boot(Duration::from_secs(5));
        let later = earlier + Duration::from_secs(2);
        assert_eq!(later - earlier, Duration::from_secs(2));
        assert_eq!(earlier - later, Duration::ZERO);
    }
}
