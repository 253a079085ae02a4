//! Turns 10,000 simulated renewals of the pure agent into what each allocates, and what of it stays.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use super::cluster::Result;
use super::world::World;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RENEWALS: u32 = 10_000;
/// Queues and maps have their final size by then.
const SETTLED_AFTER: u32 = 1_000;

/// What the core and the HTTP codec do to the heap.
pub struct Heap {
    pub renewals: u32,
    /// Allocations per renewal, status runs and assertions included.
    pub allocations: f64,
    pub bytes: f64,
    /// Live bytes after all renewals minus live bytes before.
    pub growth_bytes: i64,
}

/// Must run alone: every thread of this process is counted.
pub fn simulate() -> Result<Heap> {
    let mut world = World::new();
    let whole = Region::new(COUNTING);
    world.renew(SETTLED_AFTER)?;
    let before = least_live_bytes(&mut world, &whole)?;
    let region = Region::new(COUNTING);
    world.renew(RENEWALS)?;
    let change = region.change();
    let after = least_live_bytes(&mut world, &whole)?;
    let per_renewal = |number: usize| number as f64 / f64::from(RENEWALS);
    Ok(Heap {
        renewals: RENEWALS,
        allocations: per_renewal(change.allocations + change.reallocations),
        bytes: per_renewal(change.bytes_allocated),
        growth_bytes: after - before,
    })
}

/// The least that is live at any renewal of some minutes: what is in flight at one moment is not growth.
fn least_live_bytes(world: &mut World, since: &Region<System>) -> Result<i64> {
    let mut least = i64::MAX;
    for _ in 0..60 {
        world.renew(1)?;
        let change = since.change();
        let bytes = |count: usize| i64::try_from(count).map_err(|error| error.to_string());
        least = least.min(bytes(change.bytes_allocated)? - bytes(change.bytes_deallocated)?);
    }
    Ok(least)
}
