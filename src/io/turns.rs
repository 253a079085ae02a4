//! Turns the failures of API servers into the one to ask next: in their order, and the one that works for as long as it does.

use std::time::Duration;

use crate::time::Up;

/// One that failed is asked again after this, and after ever longer up to the second where it goes on failing.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// For so long none of the servers has answered before a last resort is asked, and so long after one the next: where it is
/// the link that is down, each is a try that finds it up again up to ten seconds too late.
const LAST_RESORT_AFTER: Duration = Duration::from_secs(60);
const LAST_RESORT_PAUSE: Duration = Duration::from_secs(300);

/// Whose turn it is, by their places in the list.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    current: usize,
    /// From when on each may be asked again, and the pause before that.
    resting: Vec<(Up, Duration)>,
    /// Since when none has answered.
    failing_since: Option<Up>,
    /// Not before then is a last resort asked; how often one was.
    last_resort_at: Up,
    last_resort: usize,
    /// A bit for each: it, or what stands before it, sends no answer while that may bring no content.
    holding_back: u64,
}

impl Turns {
    pub fn current(&self) -> usize {
        self.current
    }

    /// The current one has answered.
    pub fn worked(&mut self) {
        self.failing_since = None;
        if let Some(rest) = self.resting.get_mut(self.current) {
            *rest = (Up::BOOT, Duration::ZERO);
        }
    }

    /// Whether the current one holds answers back that may bring no content.
    pub fn holds_back(&self) -> bool {
        self.holding_back & bit(self.current) != 0
    }

    /// The one at that place does.
    pub fn held_back(&mut self, place: usize) {
        self.holding_back |= bit(place);
    }

    /// The one at that place, of so many and the last resorts after them, came to nothing. Answers whether it is another one's
    /// turn now: somebody is asked in any case, the one whose rest ends first.
    pub fn failed(&mut self, place: usize, (of, last_resorts): (usize, usize), now: Up) -> bool {
        self.resting.resize(of, (Up::BOOT, Duration::ZERO));
        // Another request has said so already.
        if place != self.current {
            return false;
        }
        if let Some((until, pause)) = self.resting.get_mut(place) {
            *pause = (*pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            *until = now + *pause;
        }
        let is_due = now - *self.failing_since.get_or_insert(now) >= LAST_RESORT_AFTER && now >= self.last_resort_at;
        let ends = self.resting.iter().map(|(until, _)| (*until).max(now)).enumerate();
        let (next, rests_until) = ends.min_by_key(|(_, until)| *until).unwrap_or((0, now));
        self.current = match self.last_resort.checked_rem(last_resorts) {
            // Never two of them in a row.
            Some(last_resort) if is_due && place < of && rests_until > now => {
                (self.last_resort, self.last_resort_at) = (self.last_resort + 1, now + LAST_RESORT_PAUSE);
                of + last_resort
            }
            _ => next,
        };
        self.current != place
    }
}

/// None for a place that no list has.
fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1u64.checked_shl(place)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Up {
        Up::since_boot(Duration::from_secs(second))
    }

    #[test]
    fn each_is_tried_in_order_and_the_one_that_works_stays() {
        let mut turns = Turns::default();
        assert!(turns.failed(0, (3, 0), at(0)));
        assert_eq!(turns.current(), 1);
        assert!(!turns.failed(0, (3, 0), at(1)), "a second request of the same moment");
        turns.worked();
        assert_eq!(turns.current(), 1, "nobody goes back to the first");
        assert!(turns.failed(1, (3, 0), at(1000)));
        assert_eq!(turns.current(), 0, "which has rested");
        assert!(turns.failed(0, (3, 0), at(1001)));
        assert_eq!(turns.current(), 2);
    }

    #[test]
    fn one_that_failed_rests_ever_longer_and_never_all_of_them() {
        let mut turns = Turns::default();
        let mut asked = [0; 2];
        for second in 0..3600 {
            let current = turns.current();
            asked[current] += 1;
            // The first is dead; the second breaks off each fifth request.
            if current == 0 || second % 5 == 0 {
                turns.failed(current, (2, 0), at(second));
            } else {
                turns.worked();
            }
        }
        assert!(asked[0] <= 3600 / 300, "{asked:?}");
        assert!(asked[0] >= 3600 / 600, "it is not forgotten: {asked:?}");
        let mut alone = Turns::default();
        assert!(!alone.failed(0, (1, 0), at(0)));
        assert_eq!(alone.current(), 0, "the only one is asked whatever it does");
    }

    /// What each second of an hour asks, if `works` says who answers.
    fn asked(last_resorts: usize, works: impl Fn(usize) -> bool) -> Vec<usize> {
        let (mut turns, mut asked) = (Turns::default(), Vec::new());
        for second in 0..3600 {
            let current = turns.current();
            asked.push(current);
            if works(current) {
                turns.worked();
            } else {
                turns.failed(current, (2, last_resorts), at(second));
            }
        }
        asked
    }

    #[test]
    fn a_last_resort_is_asked_where_all_others_have_failed_for_a_minute_and_stays_if_it_works() {
        let all = asked(2, |_| false);
        assert!(all[..60].iter().all(|place| *place < 2), "{:?}", &all[..60]);
        let last_resorts: Vec<usize> = (0..3600).filter(|second| all[*second] >= 2).collect();
        assert!((55..=65).contains(&last_resorts[0]), "{last_resorts:?}");
        assert!(last_resorts.windows(2).all(|two| two[1] - two[0] >= 300), "{last_resorts:?}");
        assert!(last_resorts.len() >= 11 && (2..4).all(|place| all.contains(&place)), "by turns: {last_resorts:?}");
        let moved = asked(2, |place| place == 3);
        let found = moved.iter().position(|place| *place == 3).unwrap();
        assert!(found < 400 && moved[found..].iter().all(|place| *place == 3), "{found}");
        assert!(asked(2, |place| place == 1)[1..].iter().all(|place| *place == 1), "one of the others works");
    }

    #[test]
    fn a_last_resort_that_fails_gives_way_to_the_servers_that_were_given() {
        let mut turns = Turns::default();
        assert_eq!((0..=61).filter(|second| turns.failed(0, (1, 1), at(*second))).count(), 1);
        assert_eq!(turns.current(), 1);
        turns.worked();
        assert!(turns.failed(1, (1, 1), at(1000)));
        assert_eq!(turns.current(), 0);
        assert!(!turns.failed(0, (1, 1), at(1001)), "the minute begins anew");
        // There are fewer by now.
        let mut gone = Turns { current: 7, ..Turns::default() };
        assert!(gone.failed(7, (1, 0), at(0)));
        assert_eq!(gone.current(), 0);
    }
}
