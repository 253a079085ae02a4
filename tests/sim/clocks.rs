//! Turns the moment of a world into what its clocks say, and into how long things take.

use std::time::Duration;

use nodepulse::time::{Now, Up, Wall};

use super::wanted::Wanted;
use super::world::{EPOCH_US, JUDGEMENTS, World};
use crate::model::controller::MONITOR_PERIOD_US;

impl World {
    pub fn now(&self) -> Now {
        let up_us = u64::try_from(self.now_us as i64 + self.boot_offset_us).unwrap_or(0);
        let knows = self.plan.clock_known_from_us.is_some_and(|from_us| self.now_us >= from_us);
        let wall = knows.then(|| Wall::from_unix_us(self.server_wall_us() + self.plan.clock_offset_us));
        Now { up: Up::since_boot(Duration::from_micros(up_us)), wall }
    }

    pub fn is_last_judgement(&self) -> bool {
        self.judged == JUDGEMENTS
    }

    /// "After peace, within a minute": what others wrote is healed by an assertion and the status run nearest to it, or by
    /// the run after a report that is due just then and takes its place.
    pub fn calm_us(&self) -> u64 {
        let Wanted { assert_us, update_us, .. } = self.plan.wanted;
        60_000_000.max(assert_us + update_us / 10 * 27)
    }

    /// In a long outage there is nothing to see.
    pub fn monitor_period_us(&self) -> u64 {
        let left_us = self.plan.trouble_us.saturating_sub(self.now_us);
        let is_long = self.plan.offline_from_us.is_some_and(|from_us| self.now_us > from_us + 600_000_000);
        let period_us = MONITOR_PERIOD_US as u64;
        if is_long && left_us > period_us { left_us.min(3_600_000_000) } else { period_us }
    }

    pub fn server_wall_us(&self) -> i64 {
        EPOCH_US + self.now_us as i64
    }

    pub fn latency_us(&mut self) -> u64 {
        self.plan.latency_us / 2 + self.random.below(self.plan.latency_us)
    }

    pub fn is_link_down(&self) -> bool {
        self.link_down_until_us > self.now_us
    }

    pub fn is_server_down(&self) -> bool {
        self.server_down_until_us > self.now_us
    }

    pub fn server_frozen_for_us(&self) -> Option<u64> {
        self.server_frozen_until_us.checked_sub(self.now_us).filter(|wait_us| *wait_us > 0)
    }
}
