//! Turns half a year without a link into what is left of it afterwards: on disk, in memory, and on the server.

use super::plan::{Happening, Plan};
use super::planted::Planted;
use super::random::Random;
use super::trace::Trace;
use super::world::World;

const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;
/// What a card has to bear in a day in which something changes every minute.
const DAY_BYTES: u64 = 256 << 10;
/// What an agent with a full journal says of itself, every record included: a bound on what it holds.
const AGENT_TEXT_BYTES: usize = 160 << 10;

/// 180 days in which the board wakes for some minutes at a time, changes a thousand times and loses its power now and then.
pub fn half_a_year(seed: u64, fault: Option<Planted>) -> World {
    let happenings = [
        (Happening::BoardChange, 900),
        (Happening::Suspend, HOUR_S),
        (Happening::PowerCut, 15 * DAY_S),
        (Happening::ClockStep, 20 * DAY_S),
    ];
    world(seed, fault, Plan::offline(180, &happenings))
}

/// A day in which the board does not sleep and something changes about every minute.
pub fn restless(seed: u64) -> World {
    world(seed, None, Plan::offline(1, &[(Happening::BoardChange, 10)]))
}

/// A day in which nothing happens at all.
pub fn quiet(seed: u64) -> World {
    world(seed, None, Plan::offline(1, &[]))
}

fn world(seed: u64, fault: Option<Planted>, plan: Plan) -> World {
    World::of_plan(plan, Random::new(seed), fault, Trace::new(false)).begun(seed)
}

impl World {
    /// What holds in a long outage, beside what holds in every one.
    pub fn judge_long(&self) -> Result<String, String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let storage = &self.storage;
        if storage.busiest_day_bytes > DAY_BYTES {
            return Err(format!("{} bytes written in a day", storage.busiest_day_bytes));
        }
        if self.largest_agent_bytes > AGENT_TEXT_BYTES {
            return Err(format!("the agent has grown to {} bytes of text", self.largest_agent_bytes));
        }
        self.events.judge_first_and_last()?;
        let days = self.now_us / (DAY_S * 1_000_000);
        Ok(format!(
            "{days} days, {} changes, {} told, {} dropped, {} KiB written, at most {} KiB in a day, agent at most {} KiB of text, {} requests",
            self.conditions.transitions(),
            self.events.told(),
            self.events.dropped(),
            storage.bytes_written() >> 10,
            storage.busiest_day_bytes >> 10,
            self.largest_agent_bytes >> 10,
            self.watch.requests,
        ))
    }

    /// Once a day: how large is what the agent holds.
    pub fn weigh(&mut self) {
        let text_bytes = self.agent.as_ref().map_or(0, |agent| format!("{agent:?}").len());
        self.largest_agent_bytes = self.largest_agent_bytes.max(text_bytes);
    }
}
