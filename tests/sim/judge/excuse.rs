//! Turns "here the judge looks away" into a sentence, a count, and the seed of a world that needs it.

use std::fmt;

/// Each is used only where the check would fail otherwise; `sim::no_excuse_is_needless` runs its world without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// Somebody else wrote the condition, or made the Node anew: whoever repairs that dates it with the repair.
    WrittenByOthers,
    /// The process died before the change was synced, or the clock of a boot that is over was wrong: nobody knows when. Or
    /// two witnesses agreed on a wrong time, or there were none when a Node was made.
    TimeIsLost,
    /// A board without a clock counts back from a `Date`, which has whole seconds: told again, a time may be a second off.
    /// One whose clock is stepped, or is right but for some seconds, counts back from another clock than before.
    DatedAnew,
    /// What a first look found has been so for who knows how long: a Node that was made later may say so of its making.
    NeverChanged,
    /// EVT-5: a sighting that is counted on an event of before has no name of its own. A process that dies before that is
    /// on disk leaves one after it that tells it under its own.
    ToldAsRepeat,
}

impl Excuse {
    pub const ALL: [Excuse; 5] =
        [Excuse::WrittenByOthers, Excuse::TimeIsLost, Excuse::DatedAnew, Excuse::NeverChanged, Excuse::ToldAsRepeat];

    /// A world that needs it.
    pub fn seed(self) -> u64 {
        match self {
            Excuse::WrittenByOthers => 391,
            Excuse::TimeIsLost => 7,
            Excuse::DatedAnew => 142,
            Excuse::NeverChanged => 109_440,
            Excuse::ToldAsRepeat => 6_961,
        }
    }
}

/// How often each was used.
#[derive(Debug, Clone, Default)]
pub struct Excuses {
    used: [u64; Excuse::ALL.len()],
    denied: Option<Excuse>,
}

impl Excuses {
    pub fn without(denied: Option<Excuse>) -> Excuses {
        Excuses { denied, ..Excuses::default() }
    }

    /// Asked only where something looks wrong.
    pub fn allow(&mut self, excuse: Excuse, applies: bool) -> bool {
        let is_allowed = applies && self.denied != Some(excuse);
        self.used[excuse as usize] += u64::from(is_allowed);
        is_allowed
    }

    pub fn add(&mut self, other: &Excuses) {
        for (sum, used) in self.used.iter_mut().zip(other.used) {
            *sum += used;
        }
    }
}

impl fmt::Display for Excuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            Excuse::ALL.into_iter().zip(self.used).map(|(excuse, used)| format!("{excuse:?} {used}")).collect();
        f.write_str(&parts.join(", "))
    }
}
