//! Turns a seed into a plan: settings, clocks, how often which fault strikes, how long until peace.
//!
//! Swarm testing: each kind of fault is off in about half of the worlds, so that no kind hides another, and its rate
//! differs widely where it is on.

use std::collections::BTreeMap;

use super::random::Random;
use super::wanted::Wanted;
use super::world::EPOCH_US;
use crate::model::stamp;

/// Faults of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    RequestLost,
    ReplyLost,
    /// The server gets it after we gave up.
    Late,
    Duplicated,
    Cut,
    /// Refused by something that did not look at it.
    Refused,
    /// Done, and then answered as if it were not.
    DoneAndRefused,
    /// On its way there, or its answer on the way back.
    Slow,
    Hung,
    HalfClosed,
    /// A captive portal, a proxy, noise.
    Garbage,
    /// Something else answers in the server's place, or after it.
    Stranger,
    ConnectFailed,
}

/// Things that befall the cluster, the board or the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    NodeDeleted,
    NodeReplaced,
    LeaseDeleted,
    /// Somebody else says how long it lasts.
    LeaseDuration,
    Cordon,
    ForcedUnknown,
    LabelWiped,
    LabelOfOthers,
    ConditionOfOthers,
    ServerRestart,
    ServerFrozen,
    ServerUpgrade,
    LinkDown,
    LinkFlap,
    /// For a while everything meets the same stranger.
    StrangerInFront,
    BoardChange,
    Reload,
    Suspend,
    /// kill -9.
    Crash,
    /// The board starts again, with another boot id.
    PowerCut,
    /// SIGTERM, and a new process.
    Restart,
    DiskFull,
    DiskSlow,
    ClockStep,
    /// Somebody announces that the board is away.
    Away,
    /// And that it is back.
    Back,
    /// The machine goes down, and an init system has said so.
    Shutdown,
}

pub const FAULTS: [Fault; 13] = [
    Fault::RequestLost,
    Fault::ReplyLost,
    Fault::Late,
    Fault::Duplicated,
    Fault::Cut,
    Fault::Refused,
    Fault::DoneAndRefused,
    Fault::Slow,
    Fault::Hung,
    Fault::HalfClosed,
    Fault::Garbage,
    Fault::Stranger,
    Fault::ConnectFailed,
];

pub const HAPPENINGS: [Happening; 24] = [
    Happening::NodeDeleted,
    Happening::NodeReplaced,
    Happening::LeaseDeleted,
    Happening::LeaseDuration,
    Happening::Cordon,
    Happening::ForcedUnknown,
    Happening::LabelWiped,
    Happening::LabelOfOthers,
    Happening::ConditionOfOthers,
    Happening::ServerRestart,
    Happening::ServerFrozen,
    Happening::ServerUpgrade,
    Happening::LinkDown,
    Happening::LinkFlap,
    Happening::StrangerInFront,
    Happening::BoardChange,
    Happening::Reload,
    Happening::Suspend,
    Happening::Crash,
    Happening::PowerCut,
    Happening::Restart,
    Happening::DiskFull,
    Happening::DiskSlow,
    Happening::ClockStep,
];

/// What a seed decides before the first moment.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of the Node.
    pub name: String,
    pub wanted: Wanted,
    /// Chance of each fault, in a thousand requests.
    pub faults: BTreeMap<Fault, u64>,
    /// Mean seconds between two happenings of a kind.
    pub happenings: BTreeMap<Happening, u64>,
    /// How long the trouble lasts; then peace.
    pub trouble_us: u64,
    /// Time since boot when the agent starts.
    pub boot_us: u64,
    /// The board's wall clock minus the server's, once it is known.
    pub clock_offset_us: i64,
    /// When the wall clock becomes known; `None`: never.
    pub clock_known_from_us: Option<u64>,
    pub latency_us: u64,
    /// From when to the end of the trouble there is no link at all.
    pub offline_from_us: Option<u64>,
    /// How long the machine sleeps when it does.
    pub asleep_s: (u64, u64),
    /// Which answer that has a `Date` has a wrong one, and by how much.
    pub wrong_date: Option<(u64, i64)>,
}

impl Plan {
    pub fn new(random: &mut Random) -> Plan {
        let mut faults = BTreeMap::new();
        for fault in FAULTS {
            let rate = [2, 10, 40, 150][random.below(4) as usize];
            if random.per_mille(450) {
                faults.insert(fault, rate);
            }
        }
        if random.per_mille(250) {
            // What must hold when requests fare well can be held to more.
            faults.clear();
        }
        let mut happenings = BTreeMap::new();
        for happening in HAPPENINGS {
            let mean_seconds = [20, 60, 200][random.below(3) as usize];
            if random.per_mille(450) {
                happenings.insert(happening, mean_seconds);
            }
        }
        let (name, wanted) = (name(random), Wanted::new(random));
        if !wanted.reregister {
            // Nobody would bring the Node back.
            happenings.remove(&Happening::NodeDeleted);
        }
        let day_us = 86_400_000_000_i64;
        let clock_known_from_us = match random.below(4) {
            0 => None,
            1 => Some(random.below(300_000_000)),
            _ => Some(0),
        };
        Plan {
            name,
            wanted,
            faults,
            happenings,
            trouble_us: random.between(40, 240) * 1_000_000,
            boot_us: random.below(40_000_000),
            clock_offset_us: random.pick(&[0, 0, 0, 300_000, -2_000_000, 3_600_000_000, -day_us, 400 * day_us]),
            clock_known_from_us,
            latency_us: random.pick(&[500, 5_000, 40_000, 300_000]),
            offline_from_us: None,
            asleep_s: (1, 150),
            wrong_date: wrong_date(random),
        }
    }

    /// The Node is watched in one world of three, decided by the seed alone as well.
    pub fn with_watch(mut self, seed: u64) -> Plan {
        self.wanted.watches = seed % 3 == 1;
        self
    }

    /// One world in eight has a budget for its day that is soon used up, and one in sixteen a clock that is right besides: decided
    /// by the seed alone, so that all other worlds are what they would be without.
    pub fn with_budget(mut self, seed: u64) -> Plan {
        if seed % 8 == 5 {
            self.wanted.others_bytes = Some(Random::new(!seed).pick(&[2_000, 10_000, 40_000]));
        }
        if seed % 16 == 5 {
            (self.clock_offset_us, self.clock_known_from_us) = (0, Some(0));
        }
        self
    }

    /// In one world in eight people announce absences, decided by the seed alone as well. What a wrong `Date` ends is over.
    pub fn with_absences(mut self, seed: u64) -> Plan {
        if seed % 8 == 2 {
            self.happenings.extend([(Happening::Away, 60), (Happening::Back, 60), (Happening::Restart, 60)]);
            self.wrong_date = None;
        }
        self
    }

    /// In another one of eight the machine goes down now and then, or is said to.
    pub fn with_shutdowns(mut self, seed: u64) -> Plan {
        if seed % 8 == 6 {
            self.happenings.insert(Happening::Shutdown, 50);
        }
        self
    }

    /// No link for so long, on a board where only this happens; the machine, if it sleeps at all, wakes once in about
    /// an hour and a half.
    pub fn offline(days: u64, happenings: &[(Happening, u64)]) -> Plan {
        let mut wanted = Wanted::default();
        wanted.eviction.transition_us = 0;
        Plan {
            name: "edge-1".to_owned(),
            wanted,
            faults: BTreeMap::new(),
            happenings: happenings.iter().copied().collect(),
            trouble_us: days * 86_400_000_000,
            boot_us: 20_000_000,
            clock_offset_us: 0,
            clock_known_from_us: Some(0),
            latency_us: 40_000,
            offline_from_us: Some(120_000_000),
            asleep_s: (5_000, 5_800),
            wrong_date: None,
        }
    }

    /// From the beginning to the end.
    pub fn clock_is_right(&self) -> bool {
        let is_stepped = self.happenings.contains_key(&Happening::ClockStep);
        self.clock_known_from_us == Some(0) && self.clock_offset_us == 0 && !is_stepped
    }

    pub fn is_disk_slow(&self) -> bool {
        [Happening::DiskFull, Happening::DiskSlow].iter().any(|kind| self.happenings.contains_key(kind))
    }

    /// Whether the shell leaves answers unread that nobody waits for.
    pub fn reads_late(&self) -> bool {
        !self.boot_us.is_multiple_of(4)
    }

    pub fn describe(&self) -> String {
        format!(
            "trouble for {} s, latency {} us, clock {:+} s known from {:?} us, wrong date {:?}, faults {:?}, happenings {:?}, Node {}, {:?}",
            self.trouble_us / 1_000_000,
            self.latency_us,
            self.clock_offset_us / 1_000_000,
            self.clock_known_from_us,
            self.wrong_date,
            self.faults,
            self.happenings,
            self.name,
            self.wanted,
        )
    }
}

/// Nine years, a day, or up to the last second that a `Date` can name; the very first answer of a process, or a later one.
fn wrong_date(random: &mut Random) -> Option<(u64, i64)> {
    let day_us = 86_400_000_000_i64;
    let last_us = stamp::LAST_US - EPOCH_US - 300_000_000;
    let off_us = random.pick(&[3_287 * day_us, -3_287 * day_us, day_us, -60_000_000, last_us]);
    let answer = random.pick(&[1, 2, 3, 5, 8, 13, 21, 34]);
    random.per_mille(500).then_some((answer, off_us))
}

/// As short and as long as a label can be, which has it too (INI-1).
fn name(random: &mut Random) -> String {
    let length = random.pick(&[1, 2, 7, 12, 31, 62, 63]);
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut name: Vec<u8> = (0..length).map(|_| random.pick(letters)).collect();
    for place in [3, 10, 20, 40] {
        // Nowhere at an end, nor beside another one.
        if place + 1 < length && random.per_mille(400) {
            name[place] = random.pick(b"-.");
        }
    }
    String::from_utf8(name).unwrap_or_default()
}
