//! Turns the writes so far into the moment when the next may go out by itself: a card has only so many in it.

use std::time::Duration;

use crate::time::Up;

/// Blocks that may be written at once after a quiet time, and how long it takes until one more may be. With one file's
/// worth of debt (16 blocks, when the file is replaced) no day sees more than 12 + 36 + 16 blocks: 256 KiB.
const BURST: u32 = 12;
const PER_BLOCK: Duration = Duration::from_secs(40 * 60);
/// Writes that could not wait are charged as well, but never keep later ones waiting longer than this many blocks would.
const DEBT: u32 = 16;

/// After a write that failed: ten seconds, then twice as long each time, up to ten minutes.
const RETRY_FIRST: Duration = Duration::from_secs(10);
const RETRY_LAST: Duration = Duration::from_secs(600);

/// When to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// When as many may be written at once as after a quiet time.
    full_at: Up,
    /// Failed writes in a row, and until when to leave the disk alone.
    failures: u32,
    retry_at: Up,
}

impl Pace {
    /// When a write may go out by itself.
    pub fn due_at(&self) -> Up {
        let wait_for = PER_BLOCK.saturating_mul(BURST - 1);
        let allowed_at = Up::since_boot(self.full_at.as_duration().saturating_sub(wait_for));
        if self.has_failed() { allowed_at.max(self.retry_at) } else { allowed_at }
    }

    /// The last write failed: from memory we go on.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Too soon after a failure even for a write that cannot wait.
    pub fn must_wait(&self, now: Up) -> bool {
        self.has_failed() && now < self.retry_at
    }

    pub fn spend(&mut self, blocks: usize, now: Up) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let most = now + PER_BLOCK.saturating_mul(BURST + DEBT);
        self.full_at = (self.full_at.max(now) + PER_BLOCK.saturating_mul(blocks)).min(most);
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    pub fn failed(&mut self, now: Up) {
        let doubled = RETRY_FIRST.saturating_mul(1 << self.failures.min(6));
        self.retry_at = now + doubled.min(RETRY_LAST);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn rare_writes_are_due_at_once_and_a_flood_is_held_to_the_budget_of_a_day() {
        let mut pace = Pace::default();
        let mut written = 0;
        let mut now = at(1_000_000);
        let end = now + DAY;
        while now <= end {
            if pace.due_at() <= now {
                pace.spend(1, now);
                written += 1;
            }
            now = now + Duration::from_secs(60);
        }
        assert_eq!(written, 12 + 36);
        assert!(pace.due_at() > now);
        assert!(pace.due_at() <= now + PER_BLOCK);
        let mut rare = Pace::default();
        for day in 0..40 {
            assert!(rare.due_at() <= at(day * 7200), "{day}");
            rare.spend(1, at(day * 7200));
        }
    }

    #[test]
    fn no_day_sees_more_than_256_kib_however_it_is_spent() {
        for size in [1, 4, 16] {
            let mut pace = Pace::default();
            let (mut now, mut blocks) = (at(0), 0);
            while now < at(0) + DAY {
                if pace.due_at() <= now {
                    pace.spend(size, now);
                    blocks += size;
                }
                now = now + Duration::from_secs(1);
            }
            assert!(blocks * 4 <= 256, "{size}: {blocks}");
        }
    }

    #[test]
    fn writes_that_could_not_wait_are_not_held_against_later_ones_for_ever() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|second| pace.spend(1, at(second)));
        assert!(pace.due_at() <= at(9_999) + PER_BLOCK * (DEBT + 1));
    }

    #[test]
    fn a_disk_that_fails_is_left_alone_ever_longer_and_forgiven_at_once() {
        let mut pace = Pace::default();
        let mut rests = Vec::new();
        for _ in 0..9 {
            pace.failed(at(5));
            assert!(pace.has_failed() && pace.must_wait(at(5)) && !pace.must_wait(pace.due_at()));
            rests.push((pace.due_at() - at(5)).as_secs());
        }
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        pace.succeeded();
        assert!(!pace.has_failed() && pace.due_at() <= at(5));
    }
}
