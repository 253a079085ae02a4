//! Turns what one write says into a frame of bytes, and any bytes into the frames that are whole.
//!
//! ```text
//!   0      1        2         4          8           16
//!   +------+--------+---------+----------+-----------+----------------------------+
//!   | F5   | version| length  | CRC-32C  | next      | payload: `length` bytes    |
//!   +------+--------+---------+----------+-----------+----------------------------+
//!     u8     u8       u16       u32        u64          all numbers little-endian
//! ```
//!
//! The sum is over everything but itself. `next` is the first unused number when the frame was written. These 16 bytes
//! mean the same in every version, so a program that knows no newer payload still steps over it and never uses a number
//! twice. `F5` cannot occur in UTF-8: after damage, a text is never taken for the beginning of a frame.

use super::checksum::crc32c;
use crate::config::limits;

const MAGIC: u8 = 0xF5;
/// The payload that this program writes and reads.
pub const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
/// Longest frame, and the block that a file system writes at once.
pub const FRAME_BYTES: usize = 4096;

/// A frame whose sum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub version: u8,
    pub next: u64,
    pub payload: &'a [u8],
    /// Where it begins and ends, bytes from the beginning of the file.
    pub start: usize,
    pub end: usize,
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    pub frames: Vec<Frame<'a>>,
    /// Stretches between two frames that are neither frames nor zeros, and their bytes.
    pub skipped: usize,
    pub skipped_bytes: usize,
    /// Bytes after the last frame, the zeros at the very end left out.
    pub cut_bytes: usize,
}

/// One frame of this version. `None` for a payload that is too long for one.
pub fn encode(next: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len()).ok().filter(|_| payload.len() + HEADER_BYTES <= FRAME_BYTES)?;
    let [low, high] = length.to_le_bytes();
    let (head, next) = ([MAGIC, VERSION, low, high], next.to_le_bytes());
    let sum = crc32c(&[&head, &next, payload]).to_le_bytes();
    Some([head.as_slice(), &sum, &next, payload].concat())
}

/// The frame that begins at `start`. Of `left_bytes` goes what its sum takes: bytes that look like the beginnings of many
/// frames are not summed up again and again.
fn open<'a>(bytes: &'a [u8], start: usize, left_bytes: &mut usize) -> Option<Frame<'a>> {
    let rest = bytes.get(start..)?;
    let (head, rest) = rest.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (next, rest) = rest.split_first_chunk::<8>()?;
    let [magic, version, low, high] = *head;
    let length = usize::from(u16::from_le_bytes([low, high]));
    if magic != MAGIC || length + HEADER_BYTES > FRAME_BYTES {
        return None;
    }
    let payload = rest.get(..length)?;
    *left_bytes = left_bytes.checked_sub(HEADER_BYTES + length)?;
    let is_whole = crc32c(&[head, next, payload]) == u32::from_le_bytes(*sum);
    let end = start + HEADER_BYTES + length;
    is_whole.then(|| Frame { version, next: u64::from_le_bytes(*next), payload, start, end })
}

/// Every whole frame of `bytes`. Zeros are space that was made ready; anything else is damage, and the next whole frame
/// is looked for byte by byte.
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    let mut scan = Scan { frames: Vec::new(), skipped: 0, skipped_bytes: 0, cut_bytes: 0 };
    let mut damaged_from = None;
    let mut left_bytes = bytes.len().saturating_mul(limits::JOURNAL_CHECKSUM_PASSES);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if let Some(frame) = open(bytes, at, &mut left_bytes) {
            if let Some(from) = damaged_from.take() {
                scan.skipped += 1;
                scan.skipped_bytes += at - from;
            }
            at = frame.end;
            scan.frames.push(frame);
            continue;
        }
        if *byte != 0 {
            damaged_from.get_or_insert(at);
        }
        at += 1;
    }
    if let Some(from) = damaged_from {
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(from, |last| last + 1);
        scan.cut_bytes = written - from;
    }
    scan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(next: u64, payload: &[u8]) -> Vec<u8> {
        encode(next, payload).unwrap()
    }

    #[test]
    fn frames_and_the_zeros_between_them_are_no_damage() {
        let bytes = [frame(1, b"one"), vec![0; 7], frame(2, b""), vec![0; 100]].concat();
        let found = scan(&bytes);
        let what: Vec<_> = found.frames.iter().map(|frame| (frame.next, frame.payload)).collect();
        assert_eq!(what, [(1, &b"one"[..]), (2, b"")]);
        assert_eq!((found.skipped, found.cut_bytes), (0, 0));
        assert_eq!(scan(b""), scan(&[0; 0]));
    }

    #[test]
    fn a_torn_tail_is_cut_and_its_bytes_are_counted() {
        let whole = [frame(1, b"one"), frame(2, b"two")].concat();
        let first = frame(1, b"one").len();
        for length in first + 1..whole.len() {
            let torn = [&whole[..length], &[0; 50]].concat();
            let found = scan(&torn);
            assert_eq!(found.frames.len(), 1, "{length}");
            let written = whole[..length].iter().rposition(|byte| *byte != 0).unwrap() + 1;
            assert_eq!((found.skipped, found.cut_bytes), (0, written - first), "{length}");
        }
    }

    #[test]
    fn after_a_bad_frame_the_next_one_is_found() {
        let frames = [frame(1, b"one"), frame(2, b"two"), frame(3, b"three")];
        for at in 0..frames[1].len() {
            let mut bytes = frames.concat();
            bytes[frames[0].len() + at] ^= 0x10;
            let found = scan(&bytes);
            let next: Vec<u64> = found.frames.iter().map(|frame| frame.next).collect();
            assert_eq!((next, found.skipped, found.cut_bytes), (vec![1, 3], 1, 0), "{at}");
            assert_eq!(found.skipped_bytes, frames[1].len(), "{at}");
        }
    }

    #[test]
    fn a_frame_is_never_longer_than_a_block() {
        assert_eq!(encode(1, &[7; FRAME_BYTES - HEADER_BYTES]).map(|frame| frame.len()), Some(FRAME_BYTES));
        assert_eq!(encode(1, &[7; FRAME_BYTES - HEADER_BYTES + 1]), None);
        for (length, is_believed) in [(4080_u16, true), (4081, false), (u16::MAX, false)] {
            let payload = vec![7; length.into()];
            let [low, high] = length.to_le_bytes();
            let (head, next) = ([MAGIC, VERSION, low, high], [1; 8]);
            let sum = crc32c(&[&head, &next, &payload]).to_le_bytes();
            let forged = [&head[..], &sum, &next, &payload].concat();
            assert_eq!(!scan(&forged).frames.is_empty(), is_believed, "{length}");
        }
    }
}
