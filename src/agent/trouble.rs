//! Turns what the kernel and the sensors say of trouble into records: one of a kind in ten minutes, with how often it was since.

use std::time::Duration;

use super::replay;
use super::shared::{Shared, TroubleTold};
use crate::journal::Happened;
use crate::journal::record::cut;
use crate::probe::facts::Trouble;
use crate::probe::{Fact, KernelTrouble};
use crate::time::Now;

/// However much there is of one kind.
const PERIOD: Duration = Duration::from_secs(600);

impl Shared {
    /// By one look at the board.
    pub(super) fn kernel_told(&mut self, said: Option<&Fact<KernelTrouble>>, now: Now) {
        let Some(Ok(said)) = said else { return };
        if self.told_of_trouble(said.all.iter(), now) {
            self.records.kernel_read(said.read, now);
        }
    }

    /// The last of each kind. Answers whether there is a record of any now.
    pub(super) fn told_of_trouble<'a>(&mut self, all: impl Iterator<Item = &'a Trouble>, now: Now) -> bool {
        let mut is_news = false;
        for trouble in all {
            let before = self.troubles.iter().find(|known| known.reason == trouble.reason);
            let is_known = |known: &TroubleTold| trouble.place <= known.place || now.up - known.at < PERIOD;
            if before.is_some_and(is_known) {
                continue;
            }
            // A look that began anew counts from nothing.
            let count = trouble.count.saturating_sub(before.map_or(0, |known| known.count)).max(1);
            let reason = trouble.reason;
            let what = Happened::Trouble { reason: cut(reason), text: cut(&trouble.text), count };
            let event = replay::told_of_trouble(reason, &trouble.text, count);
            self.record_change(what, event, now.earlier(trouble.at));
            self.troubles.retain(|known| known.reason != reason);
            self.troubles.push(TroubleTold { reason, place: trouble.place, count: trouble.count, at: now.up });
            is_news = true;
        }
        is_news
    }
}
