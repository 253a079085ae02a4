//! Turns a number of boards whose certificates have all ended into how soon they are back once the token lives again, and into
//! what the cluster sees of that.

use super::super::random::Random;
use super::plan::Plan;
use super::world::{EPOCH_US, Event, SECOND_US, World};

const MINUTE_US: u64 = 60 * SECOND_US;
/// The power of all comes back within this.
const SWITCHED_ON_WITHIN_US: u64 = MINUTE_US;

/// What was seen.
#[derive(Debug)]
pub struct Return {
    pub back: usize,
    /// When the last one was back, minutes after the token lived again.
    pub minutes: f64,
    /// Requests for certificates, of all and in the busiest minute.
    pub asked: usize,
    pub asked_in_a_minute: usize,
    /// All requests in the busiest minute, while the token was dead but for the first two minutes, and after that.
    pub requests_in_a_minute: [u64; 2],
}

/// `certificates_per_second`: what the signer can do. `waits_min`: since when the boards are on when the token lives again; with 0
/// it has always lived.
pub fn come_back(boards: usize, certificates_per_second: f64, waits_min: u64) -> Result<Return, String> {
    let mut world = World::of_plan(Plan::fleet(boards), Random::new(1), None, false);
    world.cluster.signer_gap_us = (1e6 / certificates_per_second) as i64;
    for board in 0..boards {
        world.provision(board, EPOCH_US - 1);
        let on_us = world.random.below(SWITCHED_ON_WITHIN_US);
        world.schedule(on_us, Event::PowerOn(board));
    }
    let lives_us = waits_min * MINUTE_US;
    let end_us = lives_us + 60 * MINUTE_US;
    let (mut back, mut last_us, mut is_dead) = (0, 0, true);
    let (mut minute, mut before, mut busiest) = (0, 0, [0; 2]);
    while back < boards && world.now_us < end_us && world.violation.is_none() && world.step() {
        if is_dead && world.now_us >= lives_us {
            (is_dead, world.cluster.token_until_us) = (false, Some(i64::MAX));
        }
        if world.now_us / MINUTE_US > minute {
            let phase = &mut busiest[usize::from(minute * MINUTE_US >= lives_us)];
            // In the first minutes all boards find out that their certificates have ended.
            if minute >= 2 {
                *phase = (world.requests - before).max(*phase);
            }
            (minute, before) = (world.now_us / MINUTE_US, world.requests);
        }
        if let Some(board) = world.renewed.take() {
            world.stop(board);
            world.machines[board].is_on = false;
            (back, last_us) = (back + 1, world.now_us);
        }
    }
    let minutes = world.cluster.created_us.iter().map(|at_us| at_us / MINUTE_US as i64);
    let mut counts = std::collections::BTreeMap::new();
    minutes.for_each(|minute| *counts.entry(minute).or_insert(0) += 1);
    match world.violation {
        Some(violation) => Err(violation),
        None => Ok(Return {
            back,
            minutes: last_us.saturating_sub(lives_us) as f64 / MINUTE_US as f64,
            asked: world.cluster.created_us.len(),
            asked_in_a_minute: counts.into_values().max().unwrap_or_default(),
            requests_in_a_minute: busiest,
        }),
    }
}
