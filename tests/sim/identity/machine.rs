//! Turns a plan into boards: what each is, keeps and has under way.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse::agent::{Agent, Ticket};
use nodepulse::api::Exchange;
use nodepulse::config::Settings;

use super::super::board::Board;
use super::super::random::Random;
use super::folder::Folder;
use super::network::Intruder;
use super::plan::{Clock, Plan};
use super::shell::Shell;
use crate::disk::Disk;

/// A request on its way.
pub struct Flight {
    pub ticket: Ticket,
    /// `None` where it never leaves the board.
    pub exchange: Option<Box<Exchange>>,
    /// Of the server in the list of those in use.
    pub place: Option<usize>,
    /// It proves a certificate.
    pub is_proof: bool,
}

pub struct Machine {
    pub board: Board,
    pub node: String,
    pub clock: Clock,
    pub settings: Settings,
    pub agent: Option<Box<Agent>>,
    /// Of the process.
    pub shell: Shell,
    pub folder: Folder,
    pub journal: Disk,
    pub is_on: bool,
    pub boot: u64,
    pub booted_us: u64,
    pub life: u64,
    pub waits: u64,
    /// Its process has been told all of the board.
    pub has_looked: bool,
    pub flights: BTreeMap<u64, Flight>,
    pub link_down_until_us: u64,
    pub intruder: Option<(u64, Intruder)>,
    /// By the server's clock, when its last renewal was taken.
    pub renewed_us: Option<i64>,
    pub was_denied: bool,
}

pub fn machine(plan: &Plan, number: usize, random: &mut Random) -> Machine {
    let mut board = Board::new(random);
    board.serial = Some(format!("10000000abcdef{number:02}"));
    board.machine_id = Some(format!("8c5b0f1e0d7c4a559e0b6f2f3f1f6a{number:02}"));
    let period = Duration::from_secs(u64::from(plan.lease_s) / 4);
    let settings = Settings {
        node_lease_duration_seconds: plan.lease_s,
        node_status_update_frequency: period,
        node_status_report_frequency: period * 20,
        status_assert_frequency: period * 10,
        // Their servers have no watch.
        node_watch: false,
        ..Settings::default()
    };
    Machine {
        board,
        node: plan.nodes[number].clone(),
        clock: plan.clocks[number],
        settings,
        agent: None,
        shell: Shell::default(),
        folder: Folder::default(),
        journal: Disk::default(),
        is_on: false,
        boot: 0,
        booted_us: 0,
        life: 0,
        waits: 0,
        has_looked: false,
        flights: BTreeMap::new(),
        link_down_until_us: 0,
        intruder: None,
        renewed_us: None,
        was_denied: false,
    }
}
