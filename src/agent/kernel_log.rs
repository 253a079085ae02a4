//! Turns what the kernel says of trouble into records: one of a kind in ten minutes, with how often it was since.

use std::time::Duration;

use super::replay;
use super::shared::{KernelTold, Shared};
use crate::journal::Happened;
use crate::journal::record::cut;
use crate::probe::{Fact, KernelTrouble};
use crate::time::Now;

/// However much there is of one kind.
const PERIOD: Duration = Duration::from_secs(600);

impl Shared {
    /// By one look at the board.
    pub(super) fn kernel_told(&mut self, said: Option<&Fact<KernelTrouble>>, now: Now) {
        let Some(Ok(said)) = said else { return };
        let mut is_news = false;
        for trouble in &said.all {
            let before = self.kernel.iter().find(|known| known.reason == trouble.reason);
            let is_known = |known: &KernelTold| trouble.place <= known.place || now.up - known.at < PERIOD;
            if before.is_some_and(is_known) {
                continue;
            }
            // A look that began anew counts from nothing.
            let count = trouble.count.saturating_sub(before.map_or(0, |known| known.count)).max(1);
            let reason = trouble.reason;
            let what = Happened::KernelTrouble { reason: cut(reason), text: cut(&trouble.text), count };
            let event = replay::told_of_kernel(reason, &trouble.text, count);
            self.record_change(what, event, now.earlier(trouble.at));
            self.kernel.retain(|known| known.reason != reason);
            self.kernel.push(KernelTold { reason, place: trouble.place, count: trouble.count, at: now.up });
            is_news = true;
        }
        if is_news {
            self.records.kernel_read(said.read, now);
        }
    }
}
