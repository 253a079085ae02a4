//! Turns failures in a row into the wait before the next try: doubling, with a ceiling, never giving up.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
    ceiling: Duration,
}

/// Where the kubelet's two sequences end, which differ only in where they start (REG-2, LSE-11).
pub(super) const CEILING: Duration = Duration::from_secs(7);

impl Backoff {
    pub(super) const fn between(first: Duration, ceiling: Duration) -> Backoff {
        Backoff { first, next: first, ceiling }
    }

    /// The wait before the next try.
    pub(super) fn step(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.ceiling);
        wait
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_seven_seconds_and_stay_there() {
        let mut backoff = Backoff::between(Duration::from_millis(100), CEILING);
        let waits: Vec<_> = (0..9).map(|_| backoff.step().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
        backoff.reset();
        assert_eq!(backoff.step().as_millis(), 100);
    }
}
