//! Turns looks at a sensor into a condition that holds: bad at once, well or beyond reading after a minute, one change a minute.

use super::super::board::{Board, Clock};

/// What can be said by the looks of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Nothing,
    /// This process has never heard of it, for long enough: a Node that has it from before says Unknown. Said once.
    Gone,
    /// Where nobody knows better: not for long enough yet.
    Perhaps(&'static str),
    Surely(&'static str),
}

/// What one process remembers of a sensor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sensor {
    status: Option<&'static str>,
    changed_us: Option<u64>,
    /// What the looks find, and since when all do.
    found: Option<(Found, u64)>,
    is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Well,
    Bad,
    Unread,
}

const MINUTE_US: u64 = 60_000_000;

impl Sensor {
    /// One look.
    pub fn look(&mut self, board: &Board, now_us: u64) -> Said {
        let found = match board.clock {
            Clock::Untold => Found::Nothing,
            Clock::Right | Clock::Flaps(false) => Found::Well,
            Clock::Unset | Clock::Flaps(true) => Found::Bad,
            Clock::Unreadable(_) => Found::Unread,
        };
        let since_us = self.found.filter(|(before, _)| *before == found).map_or(now_us, |(_, since_us)| since_us);
        self.found = Some((found, since_us));
        let (status, after_us) = match found {
            Found::Nothing if self.status.is_none() && now_us - since_us >= MINUTE_US && !self.is_gone => {
                self.is_gone = true;
                return Said::Gone;
            }
            Found::Nothing => return self.status.map_or(Said::Nothing, Said::Surely),
            Found::Bad => ("True", 0),
            Found::Well => ("False", MINUTE_US),
            Found::Unread => ("Unknown", MINUTE_US),
        };
        let may_change = self.changed_us.is_none_or(|changed_us| now_us - changed_us >= MINUTE_US);
        if self.status != Some(status) && now_us - since_us >= after_us && may_change {
            (self.status, self.changed_us) = (Some(status), Some(now_us));
        }
        match self.status {
            Some(status) => Said::Surely(status),
            None if found == Found::Unread => Said::Nothing,
            None => Said::Perhaps("False"),
        }
    }
}
