//! Turns chance into what a world of identities is like: boards and their clocks, how long a certificate lives, how often
//! something goes wrong.

use super::super::random::Random;

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;
const YEAR_US: i64 = 365 * 86_400_000_000;

/// The wall clock of a board: how far from the truth, or that it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    None,
    Off(i64),
}

impl Clock {
    pub fn wall_us(self, true_us: i64) -> Option<i64> {
        match self {
            Clock::None => None,
            Clock::Off(by_us) => Some(true_us + by_us),
        }
    }
}

/// Whether the cluster gets another CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    None,
    /// From one moment to the next; the cards have the hash of its key.
    AtOnce,
    /// Both are shown for more than a week before the new one is used; the cards know of the first.
    Overlapping,
}

/// One step to another CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// cluster-info shows both, and certificates by either are taken.
    Both,
    /// Servers and Nodes get theirs by the new one.
    Switch,
    /// The old one is gone.
    New,
}

impl Rotation {
    pub fn steps(self, trouble_us: u64) -> Vec<(u64, Step)> {
        match self {
            Rotation::None => Vec::new(),
            Rotation::AtOnce => {
                let at_us = trouble_us / 2;
                vec![(at_us, Step::Both), (at_us, Step::Switch), (at_us, Step::New)]
            }
            Rotation::Overlapping => {
                vec![(DAY_US / 2, Step::Both), (10 * DAY_US, Step::Switch), (11 * DAY_US, Step::New)]
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    /// Names of the boards.
    pub nodes: Vec<String>,
    pub clocks: Vec<Clock>,
    /// The second board begins with a copy of the first one's card.
    pub clones: bool,
    /// Of a certificate.
    pub life_us: u64,
    pub lease_s: u32,
    /// When peace comes.
    pub trouble_us: u64,
    /// A person types the token, which stands in no file of the card.
    pub is_token_typed: bool,
    /// It is made after the boards are switched on.
    pub is_token_late: bool,
    /// Of a thousand changes of files, how many are cut by the power.
    pub cuts_per_mille: u64,
    /// Of a thousand requests of the identity, how many are followed by a power cut.
    pub cuts_after_request_per_mille: u64,
    /// Boards that are stolen.
    pub revokes: bool,
    pub intrudes: bool,
    pub rotation: Rotation,
    /// `k3s` or `rke2`, where boards join with a supervisor's token; empty for a cluster of kubeadm.
    pub program: &'static str,
    /// The supervisor's token is the password of all agents, and does not end.
    pub is_password: bool,
    /// API servers, that are in the settings.
    pub servers: usize,
    /// The first server of the settings is that of another cluster.
    pub has_stranger: bool,
    /// It takes up to ten minutes to look at a board.
    pub looks_slowly: bool,
    /// Boards reach the server that cluster-info names.
    pub has_inner: bool,
}

impl Plan {
    /// The same with a second board that has a copy of the first one's card, and another name.
    pub fn of_two_names(self) -> Plan {
        let nodes = vec!["edge-0".to_owned(), "edge-1".to_owned()];
        Plan { nodes, clocks: vec![self.clocks[0]; 2], clones: true, ..self }
    }

    /// Many boards to which nothing happens, but that their certificates have ended.
    pub fn fleet(boards: usize) -> Plan {
        Plan {
            nodes: (0..boards).map(|number| format!("edge-{number}")).collect(),
            clocks: vec![Clock::Off(0); boards],
            clones: false,
            life_us: 365 * 24 * 60 * MINUTE_US,
            lease_s: 2400,
            trouble_us: u64::MAX / 2,
            is_token_typed: false,
            is_token_late: true,
            cuts_per_mille: 0,
            cuts_after_request_per_mille: 0,
            revokes: false,
            intrudes: false,
            rotation: Rotation::None,
            program: "",
            is_password: false,
            servers: 1,
            looks_slowly: false,
            has_stranger: false,
            has_inner: false,
        }
    }

    pub fn new(random: &mut Random) -> Plan {
        let (boards, life_us) = (random.pick(&[1, 1, 2]), random.pick(&[60, 60, 120, 240]) * MINUTE_US);
        let clones = boards == 2 && random.per_mille(600);
        let is_renamed = random.per_mille(500);
        let name = |number: usize| if clones && !is_renamed { "edge-0".to_owned() } else { format!("edge-{number}") };
        let clocks = [Clock::Off(0), Clock::Off(0), Clock::Off(-56 * YEAR_US), Clock::Off(73 * YEAR_US), Clock::None];
        let lives = random.pick(&[1, 2, 3]);
        Plan {
            nodes: (0..boards).map(name).collect(),
            clocks: (0..boards).map(|_| random.pick(&clocks)).collect(),
            clones,
            life_us,
            lease_s: u32::try_from(life_us / MINUTE_US).unwrap_or_default() * 12,
            trouble_us: life_us * lives,
            is_token_typed: random.per_mille(200),
            is_token_late: random.per_mille(200),
            cuts_per_mille: random.pick(&[0, 30, 200]),
            cuts_after_request_per_mille: random.pick(&[0, 10, 60]),
            revokes: random.per_mille(100),
            intrudes: random.per_mille(400),
            rotation: Rotation::None,
            program: "",
            is_password: random.per_mille(500),
            servers: random.pick(&[1, 2, 3]),
            looks_slowly: random.per_mille(980),
            has_stranger: random.per_mille(100),
            has_inner: random.per_mille(300),
        }
        .of_rotation(random)
        .of_supervisor(random)
    }

    /// Of k3s or rke2; their CA is in the token, so that another one is another token.
    fn of_supervisor(self, random: &mut Random) -> Plan {
        let program = random.pick(&["", "", "k3s", "rke2"]);
        if self.rotation == Rotation::None { Plan { program, ..self } } else { self }
    }

    fn of_rotation(self, random: &mut Random) -> Plan {
        match random.below(100) {
            0..25 => Plan { rotation: Rotation::AtOnce, ..self },
            // A board that is away, or has no certificate, for as long as both are shown knows nothing of the other.
            25 => Plan {
                rotation: Rotation::Overlapping,
                life_us: 5 * DAY_US,
                lease_s: 28_800,
                trouble_us: 12 * DAY_US,
                is_token_late: false,
                clones: false,
                looks_slowly: true,
                nodes: self.nodes.into_iter().take(1).collect(),
                ..self
            },
            _ => self,
        }
    }

    /// How long a board is without power or link at most.
    pub fn longest_us(&self) -> u64 {
        if self.rotation == Rotation::Overlapping { DAY_US / 4 } else { self.life_us * 6 / 5 }
    }
}
