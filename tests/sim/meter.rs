//! Turns what goes over a world's network into what a meter counts of it, and hands that to the agent as the shell does.

use nodepulse::agent::Input;
use nodepulse::api::traffic::{Day, Purpose};

use super::judge::budget::RENEWAL_BYTES;
use super::judge::wire::Lane;
use super::planted::Planted;
use super::world::World;

/// Of a request or an answer, around what it says.
const HEADERS_BYTES: u64 = 200;

/// Of the board's present day, and of the present process.
#[derive(Debug, Default)]
pub struct Meter {
    today: Day,
    by_process_bytes: u64,
}

impl Meter {
    pub fn process_ended(&mut self) {
        self.by_process_bytes = 0;
    }
}

impl World {
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

    /// Before each look at the board, where there is a budget.
    pub fn count(&mut self) {
        let (lease_s, server_us) = (self.plan.wanted.lease_s, self.server_wall_us());
        let Some(others_bytes) = self.plan.wanted.others_bytes.filter(|_| !self.shim.is(Planted::BudgetIgnored)) else {
            // As if it had been told.
            let others_bytes = self.plan.wanted.others_bytes.unwrap_or(u64::MAX / 2);
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
        let today = Box::new(today.clone());
        let by_process_bytes = self.meter.by_process_bytes;
        self.feed(Input::Counted { today, by_process_bytes });
        self.spending.told(others_bytes, lease_s, server_us);
    }
}
