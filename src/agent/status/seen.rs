//! Turns what a watch says of the Node into what is believed of it (D4): a version that is newer than the server's last answer
//! to us is somebody else's, and one GET fetches what it brought; a deletion is asked about at once.
//!
//! An event may come before the answer to the request that caused it: it is looked at only when no request is in flight.

use super::super::bucket::Bucket;
use super::super::notice::Level;
use super::super::shared::{FullReport, Shared};
use super::{Base, Stage, StatusLane};
use crate::api::Seen;
use crate::node::object::Metadata;
use crate::time::Now;

/// Looks at what others wrote that follow each other without a pause; each look at the board brings one more.
const LOOKS_AT_ONCE: f64 = 3.0;

pub(super) fn looks() -> Bucket {
    Bucket::new(LOOKS_AT_ONCE, 1.0)
}

impl StatusLane {
    /// Takes an event.
    pub(in crate::agent) fn seen(&mut self, seen: Seen) {
        let place = if matches!(seen, Seen::Deleted { .. }) { &mut self.seen_end } else { &mut self.seen };
        *place = Some(seen.in_place_of(place.take()));
    }

    /// There is a Node of ours, as the server said last, and nothing to be done about it.
    pub(in crate::agent) fn stands(&self) -> bool {
        matches!((&self.base, &self.stage), (Base::Current(_), Stage::Rest { .. })) && self.was_reported
    }

    /// Judges what was seen since.
    pub(super) fn judge_seen(&mut self, shared: &mut Shared, now: Now) {
        let both = [self.seen_end.take(), self.seen.take()];
        both.into_iter().flatten().for_each(|seen| self.judge_one(seen, shared, now));
    }

    fn judge_one(&mut self, seen: Seen, shared: &mut Shared, now: Now) {
        let Some(base) = self.base.node() else { return };
        match seen {
            // The end of one that was there before this one is no news.
            Seen::Deleted { resource_version } => {
                self.node_may_be_gone |= !is_known(&base.metadata, &resource_version);
            }
            Seen::Version { resource_version, .. } if is_known(&base.metadata, &resource_version) => {}
            // The report named the version before this one: nobody else wrote between.
            Seen::Version { resource_version, is_next: true } if matches!(self.base, Base::Reported(_)) => {
                if let Some(mut node) = self.base.take() {
                    node.metadata.resource_version = resource_version;
                    self.base = Base::Current(node);
                }
            }
            // After a gap, what the controllers made of it: two requests put that right, and a look first would be a third.
            Seen::Version { .. } if shared.full_report != FullReport::NotNeeded => {
                if matches!(self.base, Base::Current(_) | Base::Outdated(_)) {
                    self.base.becomes(Base::Overwritten);
                }
            }
            // It is about to be read.
            Seen::Version { .. } if self.base.is_to_be_read() => {}
            Seen::Version { .. } => {
                shared.say(Level::Debug, "node-changed", "somebody else wrote the Node: reading it");
                self.base.becomes(Base::Outdated);
                let frequency = shared.settings.node_status_update_frequency;
                self.looks.set(LOOKS_AT_ONCE, 1.0 / frequency.as_secs_f64());
                let pause = self.looks.wait(0.0, now.up);
                self.looks.take();
                if let Stage::Rest { earliest, latest, .. } = &mut self.stage {
                    *earliest = (*earliest).min(now.up + pause);
                    *latest = (*latest).min(now.up + pause);
                }
            }
        }
    }
}

/// Whether the last answer says as much. Of an event that comes late, it says more: versions are numbers that only rise, also
/// over a Node that was made anew.
fn is_known(base: &Metadata, version: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    let is_older = number(version).zip(number(&base.resource_version)).is_some_and(|(seen, known)| seen <= known);
    is_older || version == base.resource_version
}
