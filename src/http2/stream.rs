//! Turns what happens on one stream into what may still happen on it: windows, content that is due, its end.

use super::error::{Code, Fault};

/// Number of a stream: odd, and each new one has a higher one.
pub type StreamId = u32;

/// The largest window, and the highest stream.
pub(super) const MOST: u32 = (1 << 31) - 1;
/// The window of a connection, and of a stream where nobody said otherwise (RFC 9113 6.9.2).
pub(super) const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// What the peer may still send. What it used is returned when that is half of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    left: u32,
    whole: u32,
}

impl Window {
    pub(super) fn new(bytes: u32) -> Window {
        Window { left: bytes, whole: bytes }
    }

    /// Whether the peer was allowed this much.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// The increment that is due.
    pub(super) fn give_back(&mut self) -> Option<u32> {
        if self.left > self.whole / 2 { None } else { self.fill() }
    }

    /// The increment to a window of this size; a smaller one takes nothing back.
    pub(super) fn open(&mut self, bytes: u32) -> Option<u32> {
        self.whole = self.whole.max(bytes.min(MOST));
        self.fill()
    }

    fn fill(&mut self) -> Option<u32> {
        let increment = self.whole - self.left;
        self.left = self.whole;
        (increment > 0).then_some(increment)
    }
}

/// Adds what a peer gave to a window of ours: `false` where that is more than a window may be.
pub(super) fn widen(window: &mut i64, increment: i64) -> bool {
    *window += increment;
    *window <= i64::from(MOST)
}

/// What comes next of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The fields of a request.
    Request,
    /// Those of an answer; so many interim ones have come.
    Fields { interim: u32 },
    /// Content, of which so much is announced, and perhaps trailers.
    Content { left: Option<u64> },
    /// Nothing: its request is whole, and the answer is ours.
    Nothing,
}

/// A stream that is open. Once its end is known it stays only until that is told.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// What we may still send; less than nothing after the peer made its windows smaller.
    pub(super) send_window: i64,
    /// What does not fit it.
    pub(super) unsent: Vec<u8>,
    pub(super) window: Window,
    pub(super) due: Due,
    /// It was reset, and if by us, over this rule.
    pub(super) reset: Option<(Code, Option<&'static str>)>,
}

impl Stream {
    /// Takes content; `flow_bytes` is all of its frame.
    pub(super) fn take(&mut self, content_bytes: usize, flow_bytes: usize, ends: bool) -> Result<(), Fault> {
        let left = match &mut self.due {
            Due::Content { left } => left,
            Due::Nothing => {
                return Err(Fault::Stream(Code::STREAM_CLOSED, "content comes after the end of its request"));
            }
            Due::Request | Due::Fields { .. } => {
                return Err(Fault::Stream(Code::PROTOCOL_ERROR, "content comes before the fields it belongs to"));
            }
        };
        if !self.window.take(flow_bytes) {
            return Err(Fault::Stream(Code::FLOW_CONTROL_ERROR, "content comes for which its stream has no window"));
        }
        if let Some(bytes) = left {
            let rest = bytes.checked_sub(content_bytes as u64).filter(|rest| *rest == 0 || !ends);
            *bytes = rest.ok_or(Fault::Stream(Code::PROTOCOL_ERROR, "content is not as long as announced"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_returned_when_half_of_it_is_used() {
        let mut window = Window::new(100);
        assert!(window.take(49));
        assert_eq!(window.give_back(), None);
        assert!(window.take(1));
        assert_eq!(window.give_back(), Some(50));
        assert!(window.take(100));
        assert!(!window.take(1));
        assert_eq!(window.give_back(), Some(100));
        assert!(!window.take(usize::MAX));
    }

    #[test]
    fn a_closed_window_opens_when_it_is_told_to_and_never_beyond_what_is_allowed() {
        let mut window = Window::new(0);
        assert!(window.take(0) && !window.take(1));
        assert_eq!((window.give_back(), window.open(0)), (None, None));
        assert_eq!(window.open(10), Some(10));
        assert!(window.take(4));
        assert_eq!(window.open(5), Some(4), "a smaller one fills what there was");
        assert_eq!(window.open(u32::MAX), Some(MOST - 10));
    }

    #[test]
    fn a_window_of_the_peer_may_fall_below_nothing_and_not_rise_above_what_is_allowed() {
        let mut window = 10;
        assert!(widen(&mut window, -30) && widen(&mut window, i64::from(MOST) + 20));
        assert!(!widen(&mut window, 1));
    }
}
