//! Turns what an earlier process left into how the board's last boot ended, and that into a record (`UnexpectedReboot`).
//!
//! A process leaves one record that it runs, and takes it back when somebody tells it to stop. Whoever finds one of an earlier
//! boot knows that the board went down under that process: by its power, its watchdog or its kernel.

use std::time::Duration;

use super::shared::Shared;
use crate::journal::record::cut;
use crate::journal::{BootId, Happened, Record, Status};
use crate::node::rules::{self, LastBoot};
use crate::time::{Now, Up};

const KIND: &str = "UnexpectedReboot";

/// For so long after the boot the Node says so.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);

impl Shared {
    /// This process begins. `is_first`: of this boot, as far as the journal knows; `reset_reason`: why the board was last reset,
    /// empty if nobody knows.
    pub(super) fn begin_run(&mut self, is_first: bool, reset_reason: &str, now: Now) {
        let boot = self.records.journal().boot();
        let was_running = self.records.begin_run(now).is_some_and(|former| former != boot);
        self.last_boot = if was_running && self.records.announced().is_none() && !self.settings.is_condition_off(KIND) {
            let reason = rules::reboot_reason(reset_reason);
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
