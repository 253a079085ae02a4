//! Turns the failures of API servers into the one to ask next: in their order, and the one that works for as long as it does.

use std::time::Duration;

use crate::time::Up;

/// One that failed is asked again after this, and after ever longer up to the second where it goes on failing.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Whose turn it is, by their places in the list.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    current: usize,
    /// From when on each may be asked again, and the pause before that.
    resting: Vec<(Up, Duration)>,
    /// A bit for each: it, or what stands before it, sends no answer while that may bring no content.
    holding_back: u64,
}

impl Turns {
    pub fn current(&self) -> usize {
        self.current
    }

    /// The current one has answered.
    pub fn worked(&mut self) {
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

    /// The one at that place, of so many, came to nothing. Answers whether it is another one's turn now: somebody is asked in
    /// any case, the one whose rest ends first.
    pub fn failed(&mut self, place: usize, of: usize, now: Up) -> bool {
        self.resting.resize(of, (Up::BOOT, Duration::ZERO));
        // Another request has said so already.
        if place != self.current {
            return false;
        }
        if let Some((until, pause)) = self.resting.get_mut(place) {
            *pause = (*pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            *until = now + *pause;
        }
        let ends = self.resting.iter().map(|(until, _)| (*until).max(now)).enumerate();
        self.current = ends.min_by_key(|(_, until)| *until).map_or(0, |(next, _)| next);
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
        assert!(turns.failed(0, 3, at(0)));
        assert_eq!(turns.current(), 1);
        assert!(!turns.failed(0, 3, at(1)), "a second request of the same moment");
        turns.worked();
        assert_eq!(turns.current(), 1, "nobody goes back to the first");
        assert!(turns.failed(1, 3, at(1000)));
        assert_eq!(turns.current(), 0, "which has rested");
        assert!(turns.failed(0, 3, at(1001)));
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
                turns.failed(current, 2, at(second));
            } else {
                turns.worked();
            }
        }
        assert!(asked[0] <= 3600 / 300, "{asked:?}");
        assert!(asked[0] >= 3600 / 600, "it is not forgotten: {asked:?}");
        let mut alone = Turns::default();
        assert!(!alone.failed(0, 1, at(0)));
        assert_eq!(alone.current(), 0, "the only one is asked whatever it does");
    }
}
