//! Turns what goes over a world's network into what a meter counts of it, and hands that to the agent as the shell does.

use nodepulse::agent::Input;
use nodepulse::api::traffic::{Day, Purpose, Sum};

use super::judge::budget::RENEWAL_BYTES;
use super::judge::wire::Lane;
use super::planted::Planted;
use super::world::World;

/// Of a request or an answer, around what it says.
const HEADERS_BYTES: u64 = 200;

/// The day before, of every world; and what then stands on the Node.
const LAST_DAY: i64 = 20_000;
pub const LAST_DATE: &str = "2024-10-04";

/// Of the board's present day, and of the present process.
#[derive(Debug, Default)]
pub struct Meter {
    today: Day,
    by_process_bytes: u64,
    /// The present process was told.
    has_told: bool,
}

impl Meter {
    pub fn process_ended(&mut self) {
        (self.by_process_bytes, self.has_told) = (0, false);
    }
}

impl World {
    /// What the network took on the day before: another number in each world.
    pub fn last_day_bytes(&self) -> u64 {
        1_000_000 + self.plan.trouble_us % 1_000_000
    }

    fn last_day(&self) -> Day {
        let mut day = Day { number: LAST_DAY, seconds: 86_400, ..Day::default() };
        for (purpose, bytes) in [(Purpose::Lease, self.last_day_bytes() - 1000), (Purpose::Watch, 1000)] {
            day.of(purpose).into_iter().for_each(|sum| *sum = Sum { count: 9, bytes });
        }
        day
    }

    /// So much of a request or an answer goes over the network.
    pub fn takes(&mut self, lane: Lane, bytes: usize, is_request: bool) {
        let (purpose, bytes) = match lane {
            // Each as long as the other, and its answer with it.
            Lane::Lease => (Purpose::Lease, if is_request { RENEWAL_BYTES } else { 0 }),
            Lane::Status => (Purpose::Status, bytes as u64 + HEADERS_BYTES),
            Lane::Events => (Purpose::Events, bytes as u64 + HEADERS_BYTES),
        };
        self.meter.by_process_bytes += bytes;
        if let Some(sum) = self.meter.today.of(purpose) {
            sum.bytes += bytes;
        }
        let server_us = self.server_wall_us();
        self.spending.takes(lane, bytes, server_us);
    }

    /// Before each look at the board where there is a budget, else before the first one of a process.
    pub fn count(&mut self) {
        let is_first = !std::mem::replace(&mut self.meter.has_told, true);
        let (last, by_process_bytes) = (self.last_day(), self.meter.by_process_bytes);
        let (lease_s, server_us) = (self.plan.wanted.lease_s, self.server_wall_us());
        let Some(others_bytes) = self.plan.wanted.others_bytes.filter(|_| !self.shim.is(Planted::BudgetIgnored)) else {
            // As if it had been told.
            let others_bytes = self.plan.wanted.others_bytes.unwrap_or(u64::MAX / 2);
            if is_first {
                let days = Box::new([self.meter.today.clone(), last]);
                self.feed(Input::Counted { days, by_process_bytes });
            }
            return self.spending.told(others_bytes, lease_s, server_us);
        };
        let wall = self.now().wall;
        let number = wall.map_or(0, |wall| wall.unix_seconds().div_euclid(86_400));
        let today = &mut self.meter.today;
        if number != 0 && number != today.number {
            let is_new = today.number != 0;
            *today = if is_new { Day::default() } else { std::mem::take(today) };
            today.number = number;
        }
        let days = Box::new([today.clone(), last]);
        self.feed(Input::Counted { days, by_process_bytes });
        self.spending.told(others_bytes, lease_s, server_us);
    }
}
