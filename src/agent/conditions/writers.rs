//! Turns the heartbeats of one condition on the server's Node into whether another program writes it, too.
//!
//! node-problem-detector has conditions of the same names, and dates each of them every few minutes. We date ours when they
//! change, and not again: a later date is somebody else's.

use std::time::Duration;

use crate::time::{Up, Wall};

/// Who has written the condition, as far as its dates say.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// The date that the server's Node had last.
    seen: Option<Wall>,
    /// The last one of ours.
    sent: Option<Wall>,
    /// How often somebody else has dated it, and when last.
    others: Option<(u32, Up)>,
}

/// A report of an earlier process may come late, once; whoever dates it twice goes on.
const ENOUGH: u32 = 2;
/// Who has not dated it for so long is gone.
const GONE: Duration = Duration::from_secs(3600);

impl Writers {
    /// A report dates it so.
    pub(super) fn sent(&mut self, date: Wall) {
        self.sent = self.sent.max(Some(date));
    }

    /// The server's Node dates it so; `None`: it lacks the condition. Answers whether it is another program's from now on.
    pub(super) fn seen(&mut self, date: Option<Wall>, now: Up) -> bool {
        let was_others = self.is_others(now);
        let before = std::mem::replace(&mut self.seen, date);
        if date > before && before.is_some() && date > self.sent {
            let count = self.others.filter(|(_, at)| now - *at < GONE).map_or(0, |(count, _)| count);
            self.others = Some((count.saturating_add(1), now));
        }
        self.is_others(now) && !was_others
    }

    pub(super) fn is_others(&self, now: Up) -> bool {
        self.others.is_some_and(|(count, at)| count >= ENOUGH && now - at < GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    /// So many seconds after the start.
    fn up(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    fn date(seconds: u64) -> Wall {
        Wall::from_unix_seconds(1_800_000_000).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn who_dates_a_condition_twice_after_us_has_it_until_an_hour_without() {
        let mut writers = Writers::default();
        writers.sent(date(10));
        for (at, dated, is_new) in
            [(11, 10, false), (20, 10, false), (300, 299, false), (600, 599, true), (900, 899, false)]
        {
            assert_eq!(writers.seen(Some(date(dated)), up(at)), is_new, "{at}");
            assert_eq!(writers.is_others(up(at)), at >= 600);
        }
        assert!(writers.is_others(up(900 + 59 * MINUTE)) && !writers.is_others(up(900 + 60 * MINUTE)));
        assert!(!writers.seen(Some(date(9_000)), up(9_001)), "one after the hour is the first again");
        assert!(writers.seen(Some(date(9_300)), up(9_301)));
    }

    #[test]
    fn what_we_have_dated_is_ours_also_if_it_comes_late_or_never() {
        let mut writers = Writers::default();
        assert!(!writers.seen(Some(date(5)), up(1)), "of an earlier process");
        for sent in [20, 40, 60] {
            writers.sent(date(sent));
        }
        // Two of them came late, one after the other, and the last did not come.
        for dated in [20, 40, 5, 20, 40] {
            assert!(!writers.seen(Some(date(dated)), up(100 + dated)), "{dated}");
        }
        assert!(!writers.seen(None, up(200)) && !writers.seen(Some(date(70)), up(201)), "a Node that was made anew");
        assert!(!writers.is_others(up(201)));
    }
}
