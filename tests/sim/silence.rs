//! Turns a link that swallows everything for a while into the longest time without a renewal at the server: read late or at
//! once, an answer that is missing must not cost Ready (LSE-4).

use super::plan::{Fault, Plan};
use super::random::Random;
use super::trace::Trace;
use super::world::World;

const SECOND_US: u64 = 1_000_000;
const SETTLED_US: u64 = 100 * SECOND_US;
const END_US: u64 = 300 * SECOND_US;

/// A silence from this long after a renewal on, for so long.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    pub after_us: u64,
    pub span_us: u64,
}

impl Silence {
    /// Seconds between the two renewals at the server that were furthest apart.
    pub fn longest_pause_s(self, seed: u64, reads_late: bool) -> Result<f64, String> {
        let mut plan = Plan::offline(1, &[]);
        plan.offline_from_us = None;
        // Plan::reads_late.
        plan.boot_us += u64::from(reads_late);
        let mut world = World::of_plan(plan, Random::new(seed), None, Trace::new(false)).begun(seed);
        let (mut last_us, mut longest_us, mut begins_us) = (0, 0, u64::MAX);
        while world.now_us < END_US && world.step() {
            let renewed_us = world.lease_renewed_at_us;
            if renewed_us != last_us {
                if last_us != 0 {
                    longest_us = longest_us.max(renewed_us - last_us);
                }
                last_us = renewed_us;
                if begins_us == u64::MAX && world.now_us > SETTLED_US {
                    begins_us = world.now_us + self.after_us;
                }
            }
            let is_silent = begins_us <= world.now_us && world.now_us - begins_us < self.span_us;
            if is_silent {
                world.plan.faults.insert(Fault::RequestLost, 1_000);
            } else {
                world.plan.faults.clear();
            }
        }
        if begins_us == u64::MAX {
            return Err("no renewal came".to_owned());
        }
        world.violation.map_or(Ok(longest_us as f64 / SECOND_US as f64), Err)
    }
}
