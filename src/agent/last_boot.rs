//! Turns what an earlier process left into how the board's last boot ended, and that into a record (`UnexpectedReboot`).
//!
//! A process leaves one record that it runs, and takes it back when somebody tells it to stop. Whoever finds one of an earlier
//! boot knows that the board went down under that process: by its power, its watchdog or its kernel.

use std::time::Duration;

use super::shared::Shared;
use crate::journal::record::cut;
use crate::journal::{BootId, Happened, Record, Status};
use crate::node::rules::{self, LastBoot};
use crate::probe::LastReset;
use crate::time::{Now, Up};

const KIND: &str = "UnexpectedReboot";

/// For so long after the boot the Node says so.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);

impl Shared {
    /// This process begins. `is_first`: of this boot, as far as the journal knows.
    pub(super) fn begin_run(&mut self, is_first: bool, reset: &LastReset, now: Now) {
        let boot = self.records.journal().boot();
        let former = self.records.begin_run(now).filter(|former| former.at.boot != boot);
        let former = former.filter(|_| self.records.announced().is_none() && !self.settings.is_condition_off(KIND));
        self.last_boot = if let Some(former) = former {
            let reason = reason_of(reset, &former);
            let what = Happened::ConditionChanged {
                condition: cut(KIND),
                from: Status::False,
                to: Status::True,
                reason: cut(reason),
            };
            self.record_change(what, rules::transition(&self.node_name, KIND, Status::True), now);
            LastBoot::CutShort(reason)
        } else if is_first {
            LastBoot::Ended
        } else {
            // An earlier process of this boot knew, and may have left the record of it.
            self.records.waiting().filter_map(|record| recorded(record, boot)).last().unwrap_or(LastBoot::Unknown)
        };
    }

    /// As long as it is worth telling.
    pub(super) fn last_boot(&self, now: Up) -> LastBoot {
        if now - Up::BOOT >= TOLD_FOR { LastBoot::Ended } else { self.last_boot }
    }
}

/// Why a board went down under the process of this record. A dump from before that is of a panic that was told already; a watchdog
/// that says it was itself may have ended a panic. Where nothing says what it was, it was what the board was at risk of.
fn reason_of(reset: &LastReset, run: &Record) -> &'static str {
    let is_panic = reset.panic_dumped_at.zip(run.at.wall).is_some_and(|(dumped_at, began)| dumped_at > began);
    let reason = match (&run.what, reset.reason.as_str()) {
        (_, "WatchdogReset") => "WatchdogReset",
        _ if is_panic => "KernelPanic",
        (Happened::ProcessRuns { risk }, "") => risk,
        (_, reason) => reason,
    };
    rules::reboot_reason(reason)
}

/// What one of this condition says, whose reason nobody reads again. Behind one of an earlier boot that waits, one of this boot
/// would wait as well.
fn recorded(record: &Record, boot: BootId) -> Option<LastBoot> {
    match &record.what {
        Happened::ConditionChanged { condition, to, reason, .. } if condition == KIND => Some(match to {
            Status::True if record.at.boot == boot => LastBoot::CutShort(rules::reboot_reason(reason)),
            _ => LastBoot::Ended,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Moment, Sequence};
    use crate::time::Wall;

    #[test]
    fn a_dump_of_this_run_says_that_the_kernel_panicked_unless_a_watchdog_ended_it() {
        let at = |seconds| Some(Wall::from_unix_seconds(seconds));
        for (reason, dumped_at, began, risk, expected) in [
            ("", None, at(100), "", "Unknown"),
            ("", at(99), at(100), "", "Unknown"),
            ("", at(101), at(100), "", "KernelPanic"),
            ("PowerLoss", at(101), at(100), "", "KernelPanic"),
            ("PowerLoss", at(99), at(100), "", "PowerLoss"),
            ("WatchdogReset", at(101), at(100), "", "WatchdogReset"),
            ("", at(101), None, "", "Unknown"),
            ("", None, at(100), "PowerLoss", "PowerLoss"),
            ("", at(101), at(100), "PowerLoss", "KernelPanic"),
            ("WatchdogReset", None, at(100), "PowerLoss", "WatchdogReset"),
            ("Overheated", None, at(100), "PowerLoss", "Overheated"),
            ("", None, at(100), "what a later version writes", "Unknown"),
        ] {
            let reset = LastReset { reason: reason.to_owned(), panic_dumped_at: dumped_at };
            let at = Moment { boot: BootId(1), up: Up::BOOT, wall: began };
            let run = Record { sequence: Sequence(1), at, what: Happened::ProcessRuns { risk: cut(risk) } };
            assert_eq!(reason_of(&reset, &run), expected, "{reset:?} {run:?}");
        }
    }
}
