//! Turns records into the payload of a frame, and a payload back into records.
//!
//! ```text
//!   boot     16 bytes       of every record in the frame; without records, of the newest record there ever was
//!   below    number         next - below: every record below `below` is forgotten
//!   forgotten     number, then   so many ranges of forgotten records above that: first - below of the one before, length
//!   records  number, then   each:
//!     kind     1 byte       bit 7: the wall clock was right
//!     sequence number       next - sequence
//!     up       number       us since the record before, since boot for the first
//!     wall     signed       (bit 7 only) us that the wall clock is ahead of the one before, grown by what `up` grew
//!     fields   by kind      condition changed: from * 3 + to, condition, reason; ...
//! ```
//!
//! A number is LEB128: seven bits a byte, the lowest first, bit 7 says that more follow; a signed one is folded (0, -1,
//! 1, -2 ...). A text is its length and its bytes, or, if it stands earlier in the frame, `65 + place`. So a condition
//! that changes once a minute costs 12 bytes a record where it would cost 100, and what a card wears out by is bytes.

use std::time::Duration;

use super::frame;
use super::record::{BootId, Happened, Moment, Record, Sequence, Status, TEXT_BYTES, Text};
use crate::probe::KernelPlaces;
use crate::time::{Up, Wall};

/// Most records of one frame: what one bad block can take with it, and a frame is never longer than a block.
pub const FRAME_RECORDS: usize = 16;
/// Most ranges of one frame.
pub const FRAME_RANGES: usize = 64;
/// Past this no number is believed: a board that made one every nanosecond would need a century.
pub const LAST_SEQUENCE: u64 = 1 << 62;

const HAS_WALL: u8 = 0x80;
const REFERENCE: u64 = TEXT_BYTES as u64 + 1;

/// Numbers of forgotten records, both ends included.
pub type Range = (u64, u64);

/// What one frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<R> {
    pub boot: BootId,
    /// First unused number.
    pub next: u64,
    /// Every record below is forgotten.
    pub below: u64,
    pub forgotten: Vec<Range>,
    pub records: Vec<R>,
}

impl Batch<&Record> {
    /// The frame of this batch; `None` where it is longer than one may be, which [`FRAME_RECORDS`] and [`FRAME_RANGES`] are
    /// not.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut writer = Writer { bytes: self.boot.0.to_le_bytes().to_vec(), texts: Vec::new() };
        writer.number(self.next.saturating_sub(self.below));
        writer.number(self.forgotten.len() as u64);
        let mut from = self.below;
        for (first, last) in &self.forgotten {
            writer.number(first.wrapping_sub(from));
            writer.number(last.wrapping_sub(*first));
            from = *last;
        }
        writer.number(self.records.len() as u64);
        let mut previous = Previous::default();
        for record in &self.records {
            writer.record(record, self.next, &mut previous);
        }
        frame::encode(self.next, &writer.bytes)
    }
}

impl Batch<Record> {
    /// What the payload of a frame of this version says; `None` if it says nothing that could have been written.
    pub fn decode(frame: &frame::Frame<'_>) -> Option<Batch<Record>> {
        let next = Some(frame.next).filter(|next| (1..=LAST_SEQUENCE).contains(next))?;
        let (boot, rest) = frame.payload.split_first_chunk::<16>()?;
        let boot = BootId(u128::from_le_bytes(*boot));
        let mut reader = Reader { rest, texts: Vec::new() };
        let below = next.checked_sub(reader.number()?)?;
        let mut forgotten = Vec::new();
        let mut from = below;
        for _ in 0..reader.count(FRAME_RANGES)? {
            let first = from.checked_add(reader.number()?)?;
            let last = first.checked_add(reader.number()?).filter(|last| *last < next)?;
            forgotten.push((first, last));
            from = last;
        }
        let mut records = Vec::new();
        let mut previous = Previous::default();
        for _ in 0..reader.count(FRAME_RECORDS)? {
            records.extend(reader.record(boot, next, &mut previous)?);
        }
        reader.rest.is_empty().then_some(Batch { boot, next, below, forgotten, records })
    }
}

/// Most bytes that a record takes in a file, its share of a frame included.
pub fn most_bytes(record: &Record) -> usize {
    const FRAME: usize = 16 + 16 + 3;
    const FIXED: usize = 1 + 5 + 8 + 10;
    let fields = match &record.what {
        Happened::ConditionChanged { condition, reason, .. } => 3 + condition.len() + reason.len(),
        Happened::OutageBegan { cause } => 1 + cause.len(),
        Happened::OutageEnded { cause, .. } => 11 + cause.len(),
        Happened::BoardRebooted { reason, .. } => 17 + reason.len(),
        Happened::ProcessStarted => 0,
        Happened::ProcessRuns { risk } => 1 + risk.len(),
        Happened::ClockSet { .. } => 10,
        Happened::Leaving { kind } => 1 + kind.len(),
        Happened::AbsenceAnnounced { reason, .. } => 11 + reason.len(),
        Happened::Trouble { reason, text, .. } => 12 + reason.len() + text.len(),
        Happened::KernelRead { .. } => 30,
        Happened::Dropped { .. } => 5,
    };
    FRAME + FIXED + fields
}

/// The times of the record before, from which those of the next are told.
#[derive(Default)]
struct Previous {
    up_us: u64,
    wall_us: i64,
}

impl Previous {
    /// The wall time that `up_us` more would give.
    fn advance(&mut self, up_us: u64) -> i64 {
        let grown = up_us.wrapping_sub(self.up_us);
        self.up_us = up_us;
        self.wall_us.wrapping_add(grown.cast_signed())
    }
}

fn us(up: Up) -> u64 {
    u64::try_from(up.as_duration().as_micros()).unwrap_or(u64::MAX)
}

/// What a record keeps of a moment: whole microseconds.
pub fn to_us(up: Up) -> Up {
    Up::since_boot(Duration::from_micros(us(up)))
}

struct Writer {
    bytes: Vec<u8>,
    /// Texts so far, in order.
    texts: Vec<Text>,
}

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    fn text(&mut self, text: &Text) {
        if let Some(place) = self.texts.iter().position(|known| known == text) {
            return self.number(REFERENCE + place as u64);
        }
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        self.texts.push(text.clone());
    }

    fn record(&mut self, record: &Record, next: u64, previous: &mut Previous) {
        let kind = match record.what {
            Happened::ConditionChanged { .. } => 1,
            Happened::OutageBegan { .. } => 2,
            Happened::OutageEnded { .. } => 3,
            Happened::ProcessStarted => 4,
            Happened::BoardRebooted { .. } => 5,
            Happened::ClockSet { .. } => 6,
            Happened::Dropped { .. } => 7,
            Happened::AbsenceAnnounced { .. } => 9,
            Happened::Leaving { .. } => 10,
            Happened::ProcessRuns { ref risk } if risk.is_empty() => 11,
            Happened::ProcessRuns { .. } => 14,
            Happened::Trouble { .. } => 12,
            Happened::KernelRead { .. } => 13,
        };
        self.bytes.push(if record.at.wall.is_some() { kind | HAS_WALL } else { kind });
        self.number(next.saturating_sub(record.sequence.0));
        let up_us = us(record.at.up);
        self.number(up_us.wrapping_sub(previous.up_us));
        let expected = previous.advance(up_us);
        previous.wall_us = record.at.wall.map_or(expected, Wall::unix_us);
        if record.at.wall.is_some() {
            self.signed(previous.wall_us.wrapping_sub(expected));
        }
        match &record.what {
            Happened::ConditionChanged { condition, from, to, reason } => {
                self.bytes.push(*from as u8 * 3 + *to as u8);
                self.text(condition);
                self.text(reason);
            }
            Happened::OutageBegan { cause } => self.text(cause),
            Happened::Leaving { kind } => self.text(kind),
            Happened::OutageEnded { cause, changes, dropped } => {
                self.text(cause);
                self.number(u64::from(*changes));
                self.number(u64::from(*dropped));
            }
            Happened::ProcessRuns { risk } if !risk.is_empty() => self.text(risk),
            Happened::ProcessStarted | Happened::ProcessRuns { .. } => {}
            Happened::BoardRebooted { old, reason } => {
                self.bytes.extend_from_slice(&old.0.to_le_bytes());
                self.text(reason);
            }
            Happened::Trouble { reason, text, count } => {
                self.text(reason);
                self.text(text);
                self.number(*count);
            }
            Happened::KernelRead { until } => {
                [until.log, until.oom_kills, until.hung_tasks].into_iter().for_each(|number| self.number(number));
            }
            Happened::ClockSet { wall } => self.signed(wall.unix_us().wrapping_sub(previous.wall_us)),
            Happened::Dropped { count } => self.number(u64::from(*count)),
            Happened::AbsenceAnnounced { until, reason } => {
                self.signed(until.unix_us().wrapping_sub(previous.wall_us));
                self.text(reason);
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    texts: Vec<Text>,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if (bits << shift) >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let folded = self.number()?;
        Some((folded >> 1).cast_signed() ^ -((folded & 1).cast_signed()))
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= most)
    }

    fn text(&mut self) -> Option<Text> {
        let token = self.number()?;
        if let Some(place) = token.checked_sub(REFERENCE) {
            return self.texts.get(usize::try_from(place).ok()?).cloned();
        }
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(token).ok()?)?;
        self.rest = rest;
        let text = Text::try_from(std::str::from_utf8(bytes).ok()?).ok()?;
        self.texts.push(text.clone());
        Some(text)
    }

    /// What version 0.1.0 kept of the Node for the next process (uid, version, Lease, four conditions); no longer of use.
    fn skip_known_node(&mut self) -> Option<()> {
        for _ in 0..2 {
            let length = self.number()?;
            self.rest = self.rest.get(usize::try_from(length).ok()?..)?;
        }
        let (_lease_version, _renewed, _lease_duration_seconds) = (self.number()?, self.signed()?, self.number()?);
        for _ in 0..4 {
            let (_status, _since) = (self.byte()?, self.signed()?);
        }
        Some(())
    }

    /// The next record; `None` in place of one that is of no use any more.
    fn record(&mut self, boot: BootId, next: u64, previous: &mut Previous) -> Option<Option<Record>> {
        let kind = self.byte()?;
        let sequence = next.checked_sub(self.number()?).filter(|sequence| (1..next).contains(sequence))?;
        let up_us = previous.up_us.wrapping_add(self.number()?);
        let expected = previous.advance(up_us);
        let has_wall = kind & HAS_WALL != 0;
        previous.wall_us = if has_wall { expected.wrapping_add(self.signed()?) } else { expected };
        let what = match kind & !HAS_WALL {
            1 => {
                let statuses = self.byte()?;
                let (from, to) = (status_of(statuses / 3)?, status_of(statuses % 3)?);
                Happened::ConditionChanged { from, to, condition: self.text()?, reason: self.text()? }
            }
            2 => Happened::OutageBegan { cause: self.text()? },
            3 => Happened::OutageEnded { cause: self.text()?, changes: self.small()?, dropped: self.small()? },
            4 => Happened::ProcessStarted,
            5 => {
                let (old, rest) = self.rest.split_first_chunk::<16>()?;
                self.rest = rest;
                Happened::BoardRebooted { old: BootId(u128::from_le_bytes(*old)), reason: self.text()? }
            }
            6 => Happened::ClockSet { wall: Wall::from_unix_us(previous.wall_us.wrapping_add(self.signed()?)) },
            7 => Happened::Dropped { count: self.small()? },
            8 => return self.skip_known_node().map(|()| None),
            10 => Happened::Leaving { kind: self.text()? },
            11 => Happened::ProcessRuns { risk: Text::new() },
            12 => Happened::Trouble { reason: self.text()?, text: self.text()?, count: self.number()? },
            13 => {
                let (log, oom_kills, hung_tasks) = (self.number()?, self.number()?, self.number()?);
                Happened::KernelRead { until: KernelPlaces { log, oom_kills, hung_tasks } }
            }
            14 => Happened::ProcessRuns { risk: self.text()? },
            9 => {
                let until = Wall::from_unix_us(previous.wall_us.wrapping_add(self.signed()?));
                Happened::AbsenceAnnounced { until, reason: self.text()? }
            }
            _ => return None,
        };
        let up = Up::since_boot(Duration::from_micros(up_us));
        let wall = has_wall.then(|| Wall::from_unix_us(previous.wall_us));
        Some(Some(Record { sequence: Sequence(sequence), at: Moment { boot, up, wall }, what }))
    }
}

fn status_of(code: u8) -> Option<Status> {
    Status::ALL.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests;
