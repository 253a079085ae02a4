//! Turns word that the machine goes down into a record, one report and one event, within two seconds; then the process ends.
//!
//! ```text
//! NotYet --goes down--> Leaving --answered, or 2 s, or there is no link--> Asked (what is left goes to the disk) --> Said
//! ```

use std::time::Duration;

use super::contract::{Because, Output};
use super::notice::Level;
use super::shared::{Departure, Ownership, Step};
use super::{Agent, End, LAST_WRITES, sooner};
use crate::api::Lane;
use crate::journal::Happened;
use crate::journal::record::cut;
use crate::node::Leaving;
use crate::time::Now;

/// How long the server has for its answers; nobody waits for a board that goes down.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWERS: Because =
    Because { what: "the answers to what the server is told before the machine goes down", after: None };

/// A disk that does not answer sooner is not waited for: better told than recorded.
const DISK_PATIENCE: Duration = Duration::from_millis(500);
const RECORD: Because = Because { what: "the record of the shutdown", after: None };

impl Agent {
    /// The machine goes down: recorded first, then told.
    pub(super) fn leave(&mut self, kind: Leaving, now: Now) {
        if self.end != End::NotYet {
            return;
        }
        if !self.shared.settings.announce_shutdown {
            self.end = End::Asked { until: now.up + LAST_WRITES };
            return;
        }
        let what = Happened::Leaving { kind: cut(kind.reason()) };
        let sequence = self.shared.record(what, now).sequence;
        self.shared.say(Level::Info, "shutdown", format!("the machine goes down ({})", kind.reason()));
        self.end = End::Leaving(Departure { kind, sequence, at: now.up, is_reported: false, has_event: false });
    }

    /// Whether there is anybody to tell.
    fn can_tell(&self) -> bool {
        let is_ours = matches!(self.shared.node, Ownership::Ours { .. });
        is_ours && self.identity.is_joined() && !self.shared.is_lost()
    }

    /// What is told once, when it is on the disk: by a report, or by an event.
    fn tell(&mut self, lane: Lane, departure: &mut Departure, now: Now) -> Step {
        let (known, until) = (*departure, departure.at + DISK_PATIENCE);
        let told = if lane == Lane::Status { &mut departure.is_reported } else { &mut departure.has_event };
        if *told {
            return Step::Idle;
        }
        if self.shared.records.must_wait(now.up) && now.up < until {
            return Step::Wait { until, because: RECORD };
        }
        let step = match lane {
            Lane::Status => self.status.depart(&known, &mut self.shared, now),
            _ => self.events.depart(&known, &mut self.shared, now),
        };
        *told = !matches!(step, Step::Wait { .. });
        step
    }

    /// Renewals go on (SHD-2), and what is to be told is told once.
    pub(super) fn depart(&mut self, mut departure: Departure, now: Now) -> Output {
        let until = departure.at + PATIENCE;
        let mut wait = Some((until, ANSWERS));
        if now.up < until && self.can_tell() {
            let mut is_waiting = false;
            for lane in [Lane::Lease, Lane::Status, Lane::Events] {
                if self.in_flight.contains_key(&lane) {
                    is_waiting |= lane != Lane::Lease;
                    continue;
                }
                let step = match lane {
                    Lane::Lease => self.lease.poll(&mut self.shared, now),
                    _ => self.tell(lane, &mut departure, now),
                };
                is_waiting |= lane != Lane::Lease && !matches!(step, Step::Idle);
                match step {
                    Step::Send(operation) | Step::SendUnhurried(operation, _) => {
                        self.send(lane, None, operation, (now.up, None));
                    }
                    Step::Wait { until, because } => sooner(&mut wait, until, because),
                    Step::SendOver(..) | Step::Probe | Step::Idle => {}
                }
            }
            self.end = End::Leaving(departure);
            if let Some(write) = self.shared.records.last_write(now.up) {
                return Output::Write(write);
            }
            while let Some(output) = self.shared.next_output() {
                // What would be looked at or read comes too late.
                if matches!(output, Output::Say(_) | Output::Send(..) | Output::Told(_)) {
                    return output;
                }
            }
            if let Some((until, because)) = wait.filter(|_| is_waiting) {
                return Output::Wait { until, because };
            }
        }
        self.end = End::Asked { until: now.up + LAST_WRITES };
        self.stop(now)
    }
}
