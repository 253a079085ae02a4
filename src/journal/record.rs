//! Turns what happened to the Node into a record that outlives the process: what, in which order, and when.

use std::fmt;

use heapless::String as Bounded;

pub use crate::node::object::Status;
use crate::probe::KernelPlaces;
use crate::time::{Up, Wall};

/// Longest type, reason or cause in a record, bytes; a longer text is cut at a character.
pub const TEXT_BYTES: usize = 64;

/// A short text of bounded size.
pub type Text = Bounded<TEXT_BYTES>;

/// Number of a record: rises by one with each, over restarts and reboots, and is never used twice in one state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// Which boot of the board: the 128 bits of `/proc/sys/kernel/random/boot_id`; zero where the kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootId(pub u128);

/// When something happened: exact within its boot, and on the wall clock if that was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub boot: BootId,
    pub up: Up,
    /// What the board's clock said; `None` where it could not be right.
    pub wall: Option<Wall>,
}

/// One change, and its place in the order of all changes. Order is that of `sequence`, never that of a clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub sequence: Sequence,
    pub at: Moment,
    pub what: Happened,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A condition of the Node went from one status to another; `at` is the transition.
    ConditionChanged {
        /// `MemoryPressure`, `Ready` ...
        condition: Text,
        from: Status,
        to: Status,
        reason: Text,
    },
    /// The API server was reached last at this moment. `cause`: the machine word of the first failure.
    OutageBegan { cause: Text },
    /// It was reached again. Both numbers are of this outage: condition changes that were kept, and records dropped.
    OutageEnded { cause: Text, changes: u32, dropped: u32 },
    /// This process started.
    ProcessStarted,
    /// The board started again since the process before this one.
    BoardRebooted { old: BootId, reason: Text },
    /// What the time really was at this moment, learned from the API server.
    ClockSet { wall: Wall },
    /// Somebody announced that the board is away until then, and why. It waits until that is over, or another one is announced.
    AbsenceAnnounced { until: Wall, reason: Text },
    /// The machine was about to go down, in this way.
    Leaving { kind: Text },
    /// A process runs on this board, and nobody has told it to stop. One of an earlier boot was cut short with the board. `risk`: by
    /// what, if it is now, as its conditions say (`PowerLoss`); empty where they say nothing.
    ProcessRuns { risk: Text },
    /// The kernel or a sensor told of trouble, so often since that was last told of: the reason of the event, and the words for the
    /// last one.
    Trouble { reason: Text, text: Text, count: u64 },
    /// What the kernel told until there is recorded, in this boot. It waits until more is.
    KernelRead { until: KernelPlaces },
    /// So many records were given up to make room for others, since the last record that said so was forgotten.
    Dropped { count: u32 },
}

impl Happened {
    /// Whether an event tells of it; what does not is there for the times and the sums of others.
    pub fn is_told(&self) -> bool {
        self.is_pending() && !matches!(self, Happened::OutageBegan { .. } | Happened::ClockSet { .. })
    }

    /// Whether it waits for an event: what holds until something ends it does not.
    pub fn is_pending(&self) -> bool {
        !matches!(self, Happened::AbsenceAnnounced { .. } | Happened::ProcessRuns { .. } | Happened::KernelRead { .. })
    }

    /// Whether people want to know, rather than the next process.
    pub fn is_shown(&self) -> bool {
        !matches!(self, Happened::ProcessRuns { .. } | Happened::KernelRead { .. })
    }
}

impl BootId {
    /// Reads `9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11`, with or without hyphens; zero for anything else.
    pub fn parse(text: &str) -> BootId {
        let digits: std::string::String = text.trim().chars().filter(|digit| *digit != '-').collect();
        let is_plain = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        BootId(u128::from_str_radix(&digits, 16).ok().filter(|_| is_plain).unwrap_or_default())
    }
}

impl fmt::Display for BootId {
    /// As the kernel writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        for (place, digit) in digits.chars().enumerate() {
            let hyphen = if [8, 12, 16, 20].contains(&place) { "-" } else { "" };
            write!(f, "{hyphen}{digit}")?;
        }
        Ok(())
    }
}

/// How often something was, where that was more than once: ` (7 times)`.
pub fn times(count: u64) -> String {
    if count > 1 { format!(" ({count} times)") } else { String::new() }
}

/// `text`, cut at a character where it is longer than a record may hold.
pub fn cut(text: &str) -> Text {
    let mut bounded = Text::new();
    for character in text.chars() {
        if bounded.push(character).is_err() {
            break;
        }
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_and_written_as_the_kernel_writes_it() {
        let expected = BootId(0x9f0a_d4e4_5f5c_4c5e_9d5f_0f8c_1d4f_2a11);
        assert_eq!(BootId::parse("9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11\n"), expected);
        assert_eq!(BootId::parse("9f0ad4e45f5c4c5e9d5f0f8c1d4f2a11"), expected);
        assert_eq!(expected.to_string(), "9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11");
        assert_eq!(BootId(0x1f).to_string(), "00000000-0000-0000-0000-00000000001f");
        for junk in ["", "9f0a", "+f0ad4e45f5c4c5e9d5f0f8c1d4f2a11", "\u{e9}f0ad4e45f5c4c5e9d5f0f8c1d4f2a11"] {
            assert_eq!(BootId::parse(junk), BootId(0), "{junk}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("KubeletReady"), "KubeletReady");
        assert_eq!(cut(&"\u{e9}".repeat(40)), *"\u{e9}".repeat(32));
    }
}
