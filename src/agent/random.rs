//! Turns one seed into all the jitter of the agent (SplitMix64): the same seed gives the same trace.

use std::time::Duration;

/// A seeded generator; not for secrets.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, span).
    pub(super) fn up_to(&mut self, span: Duration) -> Duration {
        let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        if span_us == 0 { Duration::ZERO } else { Duration::from_micros(self.next() % span_us) }
    }

    /// `span`, up to a tenth more or less.
    pub(super) fn around(&mut self, span: Duration) -> Duration {
        span * 9 / 10 + self.up_to(span / 5)
    }

    /// `period` × [1.01, 1.04), within what the kubelet spaces its loops by (ST-4, LSE-4). A lane may go with any other
    /// from the whole period on: the hundredth more is what an answer may take without tearing two lanes apart that wake
    /// up together, for each would wake up alone for a long time.
    pub(super) fn jittered(&mut self, period: Duration) -> Duration {
        let least = spread(period) / 4;
        period + least + self.up_to(spread(period) - least)
    }
}

/// By how much less than this a period may be stretched.
pub(super) fn spread(period: Duration) -> Duration {
    period / 25
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_stretched_by_less_than_four_percent() {
        let mut random = Random::new(7);
        let period = Duration::from_secs(10);
        let spaced: Vec<_> = (0..1000).map(|_| random.jittered(period)).collect();
        assert!(spaced.iter().all(|span| (period..Duration::from_millis(10_400)).contains(span)));
        assert!(spaced.iter().max() > spaced.iter().min());
    }

    #[test]
    fn the_same_seed_gives_the_same_jitter() {
        let draw = || {
            let mut random = Random::new(42);
            [random.up_to(Duration::from_secs(1)), random.up_to(Duration::from_secs(1))]
        };
        assert_eq!(draw(), draw());
        assert_eq!(Random::new(1).up_to(Duration::ZERO), Duration::ZERO);
    }
}
