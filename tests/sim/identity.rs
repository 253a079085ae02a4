//! Turns seeds into worlds of identities, and says whether what must hold of keys, tokens and certificates held.
//!
//! ```text
//! cargo test --test sim every_board_that      300 worlds
//! IDENTITY=7 cargo test --test sim every_board_that    one, with everything that happened
//! IDENTITIES=20000 FROM=1000 ...                           many, from that seed on
//! ```

pub mod cluster;
pub mod der;
pub mod fleet;
pub mod folder;
pub mod happen;
pub mod judge;
pub mod machine;
pub mod network;
pub mod plan;
pub mod planted;
pub mod servers;
pub mod shell;
pub mod supervisor;
pub mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use planted::{FAULTS, Fault};
use world::{Outcome, World};

use crate::{Violations, each_seed, find_bad, kind_of, listed, number_from_environment, say};

const WORLDS: u64 = 300;
const WORLDS_PER_FAULT: u64 = 400;
const WORLDS_RUN_TWICE: u64 = 20;
const LINES_ON_FAILURE: usize = 60;

fn run(seed: u64, fault: Option<Fault>, keep_lines: bool) -> Outcome {
    World::new(seed, fault, keep_lines).run()
}

fn explain(seed: u64) -> String {
    let Outcome { violation, lines, .. } = run(seed, None, true);
    let tail = lines[lines.len().saturating_sub(LINES_ON_FAILURE)..].join("\n");
    format!("{tail}\nseed {seed}: {}\nreplay it with: IDENTITY={seed}", violation.unwrap_or_default())
}

#[test]
fn every_board_that_may_be_in_the_cluster_is_with_one_certificate_and_no_secret_goes_astray() {
    if let Some(seed) = number_from_environment("IDENTITY") {
        let outcome = run(seed, None, true);
        say(&outcome.lines.join("\n"));
        assert_eq!(outcome.violation, None, "seed {seed}");
        return;
    }
    let worlds = number_from_environment("IDENTITIES").unwrap_or(WORLDS);
    let from = number_from_environment("FROM").unwrap_or(0);
    let start = Instant::now();
    let (requests, simulated_us, hash) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let violations = Mutex::new(Violations::new());
    each_seed(from..from + worlds, |seed| {
        let outcome = run(seed, None, false);
        requests.fetch_add(outcome.requests, Ordering::Relaxed);
        simulated_us.fetch_add(outcome.simulated_us, Ordering::Relaxed);
        hash.fetch_xor(outcome.hash, Ordering::Relaxed);
        if let Some(why) = outcome.violation {
            violations.lock().unwrap().entry(kind_of(&why)).or_default().push(seed);
        }
        true
    });
    let violations = violations.into_inner().unwrap();
    say(&format!(
        "sim: {worlds} worlds of identities (hash {:016x}), {:.0} simulated hours, {} requests, in {:.1} s: {} failed",
        hash.into_inner(),
        simulated_us.into_inner() as f64 / 3.6e9,
        requests.into_inner(),
        start.elapsed().as_secs_f64(),
        violations.values().map(Vec::len).sum::<usize>(),
    ));
    if let Some(seed) = violations.values().flatten().min() {
        say(&explain(*seed));
        panic!("worlds of identities failed:\n{}", listed(violations));
    }
}

#[test]
fn the_same_seed_gives_the_same_world_of_identities() {
    let differs = |seed| {
        let (first, second) = (run(seed, None, false), run(seed, None, true));
        (first.hash, first.requests) != (second.hash, second.requests)
    };
    assert_eq!(find_bad(WORLDS_RUN_TWICE, differs), None, "a seed whose two runs differ");
}

#[test]
fn every_planted_fault_of_an_identity_is_noticed() {
    let mut unnoticed = Vec::new();
    let mut noticed = Vec::new();
    for fault in FAULTS {
        let violation = |seed| run(seed, Some(fault), false).violation.filter(|why| why.contains(fault.sign()));
        match find_bad(WORLDS_PER_FAULT, |seed| violation(seed).is_some()) {
            Some(seed) => {
                noticed.push(format!("{fault:?}, by seed {seed}: {:.120}", violation(seed).unwrap_or_default()))
            }
            None => unnoticed.push(fault),
        }
    }
    say(&format!("sim: {} planted faults of identities noticed:\n  {}", noticed.len(), noticed.join("\n  ")));
    assert_eq!(unnoticed, [], "not noticed within {WORLDS_PER_FAULT} worlds");
}

/// What the controller-manager signs a second by default, for each of these boards.
const CERTIFICATES_PER_SECOND: f64 = 10.9 / 10_000.0;
const BOARDS: u64 = 500;
/// `kubeadm token create ID.SECRET --ttl 24h`, and so long later all are back.
const BACK_WITHIN_MIN: f64 = 25.0;

/// By default a part of the fleet, with as large a part of the signer; `FLEET=10000` is the whole.
#[test]
fn a_fleet_that_lost_its_certificates_is_back_in_25_minutes_and_asks_no_faster_than_can_be_signed() {
    let boards = number_from_environment("FLEET").unwrap_or(BOARDS);
    let signed = boards as f64 * CERTIFICATES_PER_SECOND;
    for waits_min in [60, 0] {
        let start = Instant::now();
        let seen = fleet::come_back(boards as usize, signed, waits_min);
        say(&format!(
            "sim: {boards} boards, {waits_min} min without a token: {seen:?} in {:.1} s",
            start.elapsed().as_secs_f64()
        ));
        let seen = seen.unwrap();
        assert_eq!((seen.back as u64, seen.asked as u64), (boards, boards), "back, and asked for a certificate once");
        assert!(seen.minutes < BACK_WITHIN_MIN, "{} min", seen.minutes);
        if waits_min > 0 {
            // Each waits for a time of its own: in a minute come about as many as can be signed in one, and by chance a few more.
            let in_a_minute = signed * 60.0 * 1.5;
            assert!(seen.asked_in_a_minute as f64 <= in_a_minute, "{} in a minute", seen.asked_in_a_minute);
            // What a fleet asks that waits is less than its renewals are in peace.
            let renewals = boards * 6;
            assert!(seen.requests_in_a_minute.iter().all(|count| *count < renewals), "{:?}", seen.requests_in_a_minute);
        }
    }
}
