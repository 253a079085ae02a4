//! Turns an outage that was told into its summary on the Node, sent between two runs of the status lane.

use std::time::Duration;

use super::super::notice::Level;
use super::super::world::{Step, World};
use super::{CEILING, Stage, StatusLane};
use crate::api::{Document, Refusal, Wish};
use crate::time::{Now, Up};

const LONGEST_RIDE: Duration = Duration::from_secs(1);

impl StatusLane {
    /// Between two runs: the summary if it is due, or the wait for the next run.
    pub(super) fn rest_or_sum_up(&mut self, world: &mut World, now: Now) -> Step {
        let due = world
            .summary_at()
            .filter(|_| self.base.is_some())
            .map(|at| at.max(self.summary_due).max(self.patient_until));
        if due.is_some_and(|due| due <= now.up && !world.heartbeat)
            && let Some(body) = world.summary(now)
        {
            world.replay.tells(now.up);
            self.stage = Stage::SumUp;
            return Step::Send(Wish::PatchStatus { body, answer: self.answer(), heartbeat: true });
        }
        let latest = with_renewal(self.latest, world).max(self.patient_until);
        let until = due.filter(|due| *due > now.up).map_or(latest, |due| due.min(latest));
        Step::Wait { until, because: self.because() }
    }

    /// The server took the summary, or did not.
    pub(super) fn summed_up(&mut self, result: Result<Document, Refusal>, world: &mut World, now: Now) {
        self.stage = Stage::Rest;
        let refusal = match result {
            Ok(document) => {
                self.summary_pause.reset();
                world.replay.summed_up(&mut world.memory);
                if let Document::Node(node) = document {
                    self.read(node, world, now);
                }
                return;
            }
            Err(refusal) => refusal,
        };
        let advice = world.advise(&refusal, "patch nodes/status", now);
        if refusal.is_of_content() {
            let text = format!("the summary of the last outage is not on the Node: {refusal}{advice}");
            world.say(Level::Warning, "summary-refused", text);
            return world.replay.summed_up(&mut world.memory);
        }
        self.summary_due = now.up + self.summary_pause.step();
        // The whole lane was asked for patience.
        self.patient_until = now.up + refusal.retry_after().min(CEILING);
    }
}

/// A look that the next renewal is about to take along waits for it, for a second at most. After an answer that took its
/// time, that is a little later.
pub(super) fn with_renewal(due: Up, world: &World) -> Up {
    let longest = (world.settings.lease_renew_period() / 10).min(LONGEST_RIDE);
    world.renewal_due.filter(|renewal| (due..=due + longest).contains(renewal)).unwrap_or(due)
}
