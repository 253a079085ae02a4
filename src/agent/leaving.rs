//! Turns word that the machine goes down into a record, one report and one event, within two seconds. Where logind waits for us,
//! its lock goes then, and all goes on until SIGTERM or until it is called off; else the process ends.
//!
//! ```text
//! NotYet --goes down--> Leaving --answered, or 2 s, or there is no link--> (the lock goes) --SIGTERM--> Asked --> Said
//!    ^                     |                                                                 (what is left goes to the disk)
//!    '--- called off ------'
//! ```

use std::time::Duration;

use super::contract::{Because, Output};
use super::notice::Level;
use super::shared::{Departure, Ownership, Step};
use super::{Agent, End, LAST_WRITES, LONGEST_WAIT, sooner};
use crate::api::Lane;
use crate::journal::Happened;
use crate::journal::record::cut;
use crate::node::{Leaving, leaving};
use crate::time::Now;

/// How long the server has for its answers; nobody waits for a board that goes down.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWERS: Because =
    Because { what: "the answers to what the server is told before the machine goes down", after: None };
const END: Because = Because { what: "the end of the machine", after: None };

/// A disk that does not answer sooner is not waited for: better told than recorded.
const DISK_PATIENCE: Duration = Duration::from_millis(500);
const RECORD: Because = Because { what: "the record of the shutdown", after: None };

impl Agent {
    /// The machine goes down: recorded first, then told. `is_last`: the process ends with it.
    pub(super) fn leave(&mut self, kind: Leaving, is_last: bool, now: Now) {
        match &mut self.end {
            End::NotYet => {}
            End::Leaving(departure) => return departure.is_last |= is_last,
            _ => return,
        }
        self.shared.records.end_run();
        if !self.shared.settings.announce_shutdown {
            if is_last {
                self.end = End::Asked { until: now.up + LAST_WRITES };
            } else {
                self.shared.output(Output::ReleaseLock);
            }
            return;
        }
        let what = Happened::Leaving { kind: cut(kind.reason()) };
        let sequence = self.shared.record(what, now).sequence;
        self.shared.say(Level::Info, "shutdown", format!("the machine goes down ({})", kind.reason()));
        let (is_reported, has_event, is_released) = (false, false, false);
        self.end = End::Leaving(Departure { kind, sequence, at: now.up, is_reported, has_event, is_released, is_last });
    }

    /// SIGTERM: what is being told of a machine that goes down comes first.
    pub(super) fn asked_to_stop(&mut self, now: Now) {
        self.shared.records.end_run();
        match &mut self.end {
            End::Leaving(departure) => departure.is_last = true,
            end => *end = End::Asked { until: now.up + LAST_WRITES },
        }
    }

    /// The shutdown was called off: the Node is read, as it may say what is not so any more, and reported as it is.
    pub(super) fn stay(&mut self, now: Now) {
        if matches!(self.end, End::Asked { .. } | End::Said | End::Leaving(Departure { is_last: true, .. })) {
            return;
        }
        self.shared.records.begin_run(now);
        let End::Leaving(departure) = std::mem::replace(&mut self.end, End::NotYet) else { return };
        self.shared.tell(Level::Info, now.up, leaving::event_of_end());
        self.status.stay(&departure, &mut self.shared, now);
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
        let (mut wait, mut is_waiting) = (None, false);
        let may_tell = now.up < until && self.can_tell();
        if may_tell || !departure.is_last {
            for lane in [Lane::Lease, Lane::Status, Lane::Events] {
                if self.in_flight.contains_key(&lane) {
                    is_waiting |= may_tell && lane != Lane::Lease;
                    continue;
                }
                let step = match lane {
                    Lane::Lease if self.identity.is_joined() && now.up >= self.revoked_until => {
                        self.lease.poll(&mut self.shared, now)
                    }
                    Lane::Status | Lane::Events if may_tell => self.tell(lane, &mut departure, now),
                    _ => Step::Idle,
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
            if is_waiting {
                sooner(&mut wait, until, ANSWERS);
            } else if !departure.is_released {
                departure.is_released = true;
                self.shared.output(Output::ReleaseLock);
            }
            self.end = End::Leaving(departure);
            if let Some(write) = self.shared.records.last_write(now.up) {
                return Output::Write(write);
            }
            while let Some(output) = self.shared.next_output() {
                // What would be looked at or read comes too late for a process that ends.
                let is_needed = matches!(output, Output::Say(_) | Output::Send(..) | Output::Told(_));
                if is_needed || !departure.is_last {
                    return output;
                }
            }
            if is_waiting || !departure.is_last {
                let (until, because) = wait.unwrap_or((now.up + LONGEST_WAIT, END));
                return Output::Wait { until, because };
            }
        }
        self.end = End::Asked { until: now.up + LAST_WRITES };
        self.stop(now)
    }
}
