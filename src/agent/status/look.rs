//! When the board is looked at: with as few wake-ups as the ten seconds of the eviction manager allow (EVI-6).

use std::time::Duration;

use super::super::lease::Renewal;
use super::super::notice::Level;
use super::super::shared::Shared;
use super::{Stage, StatusLane};
use crate::time::{Now, Up};

/// The eviction manager's `monitoringInterval` (EVI-6).
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// While a container runtime has not been ready since the start.
const RUNTIME_LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A run that follows so soon after a look's time takes it along.
const LOOK_PATIENCE: Duration = Duration::from_millis(1500);
const LONGEST_RIDE: Duration = Duration::from_secs(1);

impl StatusLane {
    /// When the board is to be looked at although no run does: pressure is judged every ten seconds (EVI-6), however rarely
    /// status is sent, however long a request takes, and also where no Node can be registered.
    pub(in crate::agent) fn look_due(&self, shared: &Shared, renewal: Renewal) -> Up {
        let awaits_runtime = self.wanted.runtime_awaited_until().is_some_and(|until| self.looked_at < until);
        let period = if awaits_runtime { RUNTIME_LOOK_PERIOD } else { LOOK_PERIOD };
        let due = with_renewal(self.looked_at + period, renewal, shared);
        let Stage::Rest { latest, .. } = self.stage else { return due };
        let run = with_renewal(latest, renewal, shared);
        // One that is overdue waits for something else.
        if self.looked_at < run && run <= due + LOOK_PATIENCE { run } else { due }
    }

    /// Whether a run waits for a look that it could do without.
    pub(in crate::agent) fn waits_for_look(&self) -> bool {
        matches!(self.stage, Stage::Probe) && self.wanted.has_facts()
    }

    /// It does without: a Node is not to be NotReady for as long as a file of its board hangs.
    pub(in crate::agent) fn look_is_late(&mut self, shared: &mut Shared, now: Now) {
        let text = "a look at the board does not come back: until it does, what was seen last is reported";
        shared.say_once(Level::Warn, "look-late", text);
        self.begin_run(now);
    }
}

/// A look that the next renewal is about to take along waits for it, for a second at most. After an answer that took its
/// time, that is a little later.
pub(super) fn with_renewal(due: Up, renewal: Renewal, shared: &Shared) -> Up {
    match renewal {
        Renewal::Due(renewal) | Renewal::Sending(Some(renewal)) if renewal >= due => {
            let longest = (shared.settings.lease_renew_period() / 10).min(LONGEST_RIDE);
            if renewal - due <= longest { renewal } else { due }
        }
        _ => due,
    }
}
