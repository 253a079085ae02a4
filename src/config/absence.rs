//! Turns what people write into when an announced absence is over, and why the board is away (`nodepulse away`).

use std::fmt;
use std::time::Duration;

use super::limits::ABSENCE_REASON_BYTES;
use super::{duration, plain_text};
use crate::time::Wall;

/// When an absence is over, as people say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    At(Wall),
    /// So long from now: on a board without a clock, only the agent knows when that is.
    After(Duration),
}

impl Until {
    /// Reads `2026-12-24T06:00:00Z`, also with another offset, or `8h`; an error is to stand after the text.
    pub fn parse(text: &str) -> Result<Until, &'static str> {
        match (Wall::parse_stamp(text), duration::parse(text)) {
            (Some(at), _) => Ok(Until::At(at)),
            (_, Ok(span)) if !span.is_zero() => Ok(Until::After(span)),
            _ => Err("is no time: write for example 8h, 90m or 2026-12-24T06:00:00Z"),
        }
    }
}

impl fmt::Display for Until {
    /// As [`Until::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Until::At(at) => f.write_str(&at.to_micro_stamp()),
            Until::After(span) => write!(f, "{}us", span.as_micros()),
        }
    }
}

/// Whether a text may stand in a condition, and in a record; an error is to stand after the text.
pub fn check_reason(text: &str) -> Result<(), &'static str> {
    let is_plain = text.len() <= ABSENCE_REASON_BYTES && plain_text::line(text) == text;
    if is_plain { Ok(()) } else { Err("is no reason: write one line of at most 64 bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_as_people_write_it() {
        let at = |seconds| Ok(Until::At(Wall::from_unix_seconds(seconds)));
        assert_eq!(Until::parse("2026-01-01T01:00:00+01:00"), at(1_767_225_600));
        assert_eq!(Until::parse("8h"), Ok(Until::After(Duration::from_secs(8 * 3600))));
        for wrong in ["", "0s", "8", "tomorrow", "06:00", "-8h"] {
            assert_eq!(
                Until::parse(wrong),
                Err("is no time: write for example 8h, 90m or 2026-12-24T06:00:00Z"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_reason_is_one_short_line_of_text() {
        assert_eq!(check_reason("schläft nachts"), Ok(()));
        assert_eq!(check_reason(&"x".repeat(64)), Ok(()));
        let why = "is no reason: write one line of at most 64 bytes";
        assert_eq!(check_reason(&"x".repeat(65)), Err(why));
        assert!(why.contains(&ABSENCE_REASON_BYTES.to_string()));
        assert!(check_reason("a\u{202e}b").is_err() && check_reason("a\n").is_err());
    }
}
