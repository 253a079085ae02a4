//! Turns what a network took into what may no longer be sent over it: a model of its own of a day's budget (D16).

use super::wire::Lane;

type Checked = Result<(), String>;

/// A renewal, with its answer.
pub const RENEWAL_BYTES: u64 = 331;
/// More than this over what is left, and nobody is in doubt: what is under way counts, and renewals are not as even as they
/// are reckoned with.
const SLACK_BYTES: u64 = 12_000;
const DAY_US: i64 = 86_400_000_000;

/// All renewals of a day, renewed after a quarter of so many seconds.
pub fn renewals_bytes(lease_s: u32) -> u64 {
    4 * 86_400 * RENEWAL_BYTES / u64::from(lease_s)
}

/// What was taken of a day: by all but renewals, and by those.
#[derive(Debug, Default)]
pub struct Spending {
    day: i64,
    pub day_bytes: u64,
    renewals_bytes: u64,
    pub busiest_day_bytes: u64,
    /// The agent was told when it was far too much.
    is_exhausted: bool,
    /// A Lease was gone since: whether the Node is there is asked.
    is_in_doubt: bool,
}

impl Spending {
    pub fn takes(&mut self, lane: Lane, bytes: u64, server_us: i64) {
        let day = server_us.div_euclid(DAY_US);
        if day != self.day {
            *self = Spending { day, busiest_day_bytes: self.busiest_day_bytes, ..Spending::default() };
        }
        if lane == Lane::Lease {
            self.renewals_bytes += bytes;
        } else {
            self.day_bytes += bytes;
            self.busiest_day_bytes = self.busiest_day_bytes.max(self.day_bytes);
        }
    }

    /// The agent is told, and has so much for all but renewals; renewed after a quarter of so many seconds. What those have not
    /// taken up to now, as there was no Lease or no link, is left for others.
    pub fn told(&mut self, others_bytes: u64, lease_s: u32, server_us: i64) {
        let day_s = server_us.rem_euclid(DAY_US).unsigned_abs() / 1_000_000;
        let spared_bytes = (renewals_bytes(lease_s) * day_s / 86_400).saturating_sub(self.renewals_bytes);
        self.is_exhausted |= self.day_bytes > others_bytes + spared_bytes + SLACK_BYTES;
    }

    /// Another process, or other settings.
    pub fn begins_anew(&mut self) {
        (self.is_exhausted, self.is_in_doubt) = (false, false);
    }

    pub fn lease_is_gone(&mut self) {
        self.is_in_doubt = true;
    }

    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    pub fn sends(&self, lane: Lane, is_assertion: bool) -> Checked {
        let is_put_off = lane == Lane::Events || is_assertion && !self.is_in_doubt;
        if self.is_exhausted && is_put_off {
            let what = if is_assertion { "an assertion" } else { "an event" };
            return Err(format!("{what} is sent after {} bytes, though nothing is left of the day's", self.day_bytes));
        }
        Ok(())
    }
}
