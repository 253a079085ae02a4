//! Turns what was sent, and when, into whether one more may go: tokens that come back with time.

use std::time::Duration;

use crate::time::Up;

/// At most `burst` at once, and `per_second` in the long run.
#[derive(Debug)]
pub(super) struct Bucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    filled_at: Up,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(burst: f64, per_second: f64) -> Bucket {
        Bucket { burst, per_second, tokens: burst, filled_at: Up::BOOT }
    }

    /// The settings want other limits.
    pub(super) fn set(&mut self, burst: f64, per_second: f64) {
        self.tokens = if self.tokens >= self.burst { burst } else { self.tokens.min(burst) };
        (self.burst, self.per_second) = (burst, per_second);
    }

    /// How long until one may go and `left` more after it; zero: now.
    pub(super) fn wait(&mut self, left: f64, now: Up) -> Duration {
        let elapsed = (now - self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.filled_at = now;
        let missing = 1.0 + left - self.tokens;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        // A millisecond more than it takes: rounding must not leave a sliver missing.
        Duration::from_secs_f64(missing / self.per_second) + Duration::from_millis(1)
    }

    /// One goes, after [`Bucket::wait`] allowed it.
    pub(super) fn take(&mut self) {
        self.tokens -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_sees_more_than_the_burst_and_what_comes_back_in_a_minute() {
        let mut bucket = Bucket::new(10.0, 50.0 / 60.0);
        let mut sent_ms: Vec<u64> = Vec::new();
        // In a hurry at all times, after rests of every length.
        for rest_ms in (0..120).map(|turn| turn * 777) {
            let mut now_ms = sent_ms.last().copied().unwrap_or(0) + rest_ms;
            for _ in 0..100 {
                let now = Up::since_boot(Duration::from_millis(now_ms));
                let wait = bucket.wait(0.0, now);
                if wait.is_zero() {
                    bucket.take();
                    sent_ms.push(now_ms);
                }
                now_ms += u64::try_from(wait.as_millis()).unwrap();
            }
        }
        let most = sent_ms
            .iter()
            .enumerate()
            .map(|(first, sent)| sent_ms[first..].iter().take_while(|later| **later <= sent + 60_000).count());
        assert!(most.max().is_some_and(|most| (58..=60).contains(&most)));
    }

    #[test]
    fn what_is_left_for_others_is_not_touched() {
        let mut bucket = Bucket::new(3.0, 1.0);
        let now = Up::since_boot(Duration::from_secs(1));
        assert_eq!(bucket.wait(2.0, now), Duration::ZERO);
        bucket.take();
        assert_eq!(bucket.wait(2.0, now), Duration::from_millis(1001));
        assert_eq!(bucket.wait(0.0, now), Duration::ZERO);
    }
}
