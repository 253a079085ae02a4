//! Turns each answer, or that there was none, into how far the server is from the present process, and which outages are
//! certain.

use std::ops::RangeInclusive;

use super::super::network::Asks;
use super::super::world::World;
use super::wire::{Lane, Said};

/// Nobody is in doubt that this is an outage.
const CERTAIN_OUTAGE_US: i64 = 60_000_000;

/// How far the server is from the present process.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// It was reached by this process.
    has_begun: bool,
    /// When it answered last: from the question on that it did what it was asked, until the last answer of any kind.
    pub done_us: Option<RangeInclusive<i64>>,
    /// Something failed since then.
    has_failed: bool,
    failing: Option<Failing>,
    /// The last outage that is certain: when the last answer before it may have been, and the first after it.
    pub outage_us: Option<(RangeInclusive<i64>, i64)>,
}

/// Lease requests that found no server, one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Failing {
    first_us: i64,
    last_us: i64,
    renewals: u32,
    /// Others got an answer meanwhile.
    is_doubtful: bool,
}

impl Failing {
    fn is_outage(self) -> bool {
        self.last_us - self.first_us > CERTAIN_OUTAGE_US && self.renewals > 2 && !self.is_doubtful
    }
}

impl Reach {
    /// `is_recorded`: the end of the last outage is on disk.
    pub fn process_ended(&mut self, is_recorded: bool) {
        *self = Reach { outage_us: self.outage_us.take().filter(|_| is_recorded), ..Reach::default() };
    }
}

impl World {
    /// Whether the server is there: the end of an outage is told. An answer may end it, and a renewal does at the latest
    /// (seed 26215). One that lay unread is of the moment of its question, however long the board slept since (seeds 3004740,
    /// 25985).
    pub fn note_reached(&mut self, lane: Lane, said: Said, asks: Asks, sent_us: u64) {
        let is_renewal = lane == Lane::Lease && asks == Asks::Writing;
        let (by, wall_us) = (self.teller(), self.server_wall_us());
        let done_us = wall_us - (self.now_us - sent_us) as i64..=wall_us;
        if !matches!(said, Said::Nothing { .. }) {
            self.events.answered(wall_us);
        }
        let reach = &mut self.reach;
        match said {
            Said::Nothing { .. } => {
                reach.has_failed = true;
                // What keeps the Node alive says how long that has been so.
                if lane == Lane::Lease {
                    let failing = reach.failing.get_or_insert(Failing { first_us: wall_us, ..Failing::default() });
                    failing.last_us = wall_us;
                    failing.renewals += 1;
                }
            }
            Said::Done if asks == Asks::Version => {}
            Said::Refused { .. } | Said::Done if said != Said::Done || !is_renewal => {
                // Whether that ends an outage depends on what it refuses; and where other requests get through, or some,
                // Leases alone may be lost.
                if reach.has_failed || !reach.has_begun {
                    self.events.restored(wall_us, by, false);
                }
                if let Some(failing) = &mut reach.failing {
                    failing.is_doubtful = true;
                }
                if said == Said::Done {
                    reach.done_us = Some(done_us);
                    reach.has_failed = reach.failing.is_some();
                } else if let Some(known_us) = reach.done_us.take() {
                    // Some refusals are as good as an answer (seed 1297256).
                    reach.done_us = Some(*known_us.start()..=wall_us);
                }
            }
            Said::Refused { .. } | Said::Done => {
                let lost_us = reach.done_us.replace(done_us);
                let is_certain = reach.failing.take().is_some_and(Failing::is_outage);
                let lost_us = lost_us.filter(|_| is_certain);
                if is_certain || reach.has_failed || !reach.has_begun {
                    self.events.restored(wall_us, by, lost_us.is_some());
                }
                self.events.restored_by(wall_us, by.life);
                if let Some(lost_us) = lost_us {
                    self.events.missed_us = Some((*lost_us.end(), wall_us));
                    reach.outage_us = Some((lost_us, wall_us));
                }
                (reach.has_begun, reach.has_failed) = (true, false);
            }
        }
    }
}
