//! Turns seeds into worlds and says whether what must hold held: the whole core against a model API server, through a
//! network with faults, then peace.
//!
//! ```text
//! cargo test --test sim     2,000 worlds
//! make sim SEEDS=1000000    many, optimised, saying how far it is; FROM=2000: from that seed on
//! make sim SEED=7           one, with everything that happened
//! PAIR=7 cargo test --test sim two_boards_never    one of two boards
//! ```
#![allow(clippy::disallowed_methods, reason = "a test may read the clock to say how long it took")]

mod disk;
mod model;
mod sim {
    pub mod absence;
    pub mod answers;
    pub mod board;
    pub mod bodies;
    pub mod clocks;
    pub mod cut_short;
    pub mod facts;
    pub mod happen;
    pub mod identity;
    pub mod judge;
    pub mod long;
    pub mod meter;
    pub mod network;
    pub mod pair;
    pub mod pair_watch;
    pub mod plan;
    pub mod planted;
    pub mod process;
    pub mod quarrel;
    pub mod random;
    pub mod settings;
    pub mod shutdown;
    pub mod silence;
    pub mod storage;
    pub mod stranger;
    pub mod trace;
    pub mod wanted;
    pub mod watched;
    pub mod world;
}

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sim::judge::excuse::{Excuse, Excuses};
use sim::long;
use sim::pair::{Blind, Pair};
use sim::planted::{PLANTED, Planted};
use sim::silence::Silence;
use sim::world::{Outcome, World};

/// A world is made of short-lived trees of JSON.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WORLDS: u64 = 2_000;
/// Worlds of two boards for every ten others.
const PAIRS_IN_TEN: u64 = 1;
/// Every planted fault is noticed in one of so many worlds: of those that only a world without faults shows (the summary of an
/// outage), one in a thousand is.
const WORLDS_PER_PLANTED_FAULT: u64 = 4_000;
const WORLDS_RUN_TWICE: u64 = 100;
const LINES_ON_FAILURE: usize = 40;
/// A line for each so many worlds, where there are many.
const WORLDS_PER_LINE: u64 = 10_000;
/// Where something is wrong with every world, nobody needs more of it than this.
const FAILURES_SAID: u64 = 100;
const SEEDS_LISTED: usize = 20;

fn run(seed: u64, fault: Option<Planted>, keep_lines: bool) -> Outcome {
    let world = AssertUnwindSafe(|| World::new(seed, fault, keep_lines).run());
    catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let violation = Some(format!("panic: {}", text.unwrap_or_default()));
        Outcome {
            hash: 0,
            violation,
            lines: Vec::new(),
            requests: 0,
            busiest: 0,
            simulated_us: 0,
            excuses: Excuses::default(),
        }
    })
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Past the capture of the test harness: somebody who runs worlds wants to see how many.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs every seed on every core, until one answers false.
fn each_seed(seeds: Range<u64>, run_one: impl Fn(u64) -> bool + Sync) {
    let (next, end) = (AtomicU64::new(seeds.start), seeds.end);
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || !run_one(seed) {
                        next.fetch_max(end, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
}

/// A bad seed below `end`; looks no further once there is one.
fn find_bad(end: u64, is_bad: impl Fn(u64) -> bool + Sync) -> Option<u64> {
    let bad = AtomicU64::new(u64::MAX);
    each_seed(0..end, |seed| {
        let found = is_bad(seed);
        if found {
            bad.fetch_min(seed, Ordering::Relaxed);
        }
        !found
    });
    Some(bad.into_inner()).filter(|seed| *seed != u64::MAX)
}

/// Kinds of violations, names and numbers left out, with the seeds of the worlds that have them.
type Violations = BTreeMap<String, Vec<u64>>;

fn kind_of(violation: &str) -> String {
    let words = violation.split('"').step_by(2).flat_map(str::chars);
    words.filter(|c| !c.is_ascii_digit()).take(90).collect()
}

fn explain(seed: u64) -> String {
    let outcome = run(seed, None, true);
    let first = outcome.lines.first().cloned().unwrap_or_default();
    let last = outcome.lines.len().saturating_sub(LINES_ON_FAILURE);
    let tail = outcome.lines[last..].join("\n");
    let why = outcome.violation.unwrap_or_else(|| "nothing, this time: the world is not deterministic".to_owned());
    format!("{first}\n...\n{tail}\nseed {seed}: {why}\nreplay it with: make sim SEED={seed}")
}

#[test]
fn what_must_hold_holds_in_every_world() {
    if let Some(seed) = number_from_environment("SEED") {
        let outcome = run(seed, None, true);
        say(&outcome.lines.join("\n"));
        assert_eq!(outcome.violation, None, "seed {seed}");
        return;
    }
    let worlds = number_from_environment("SEEDS").unwrap_or(WORLDS);
    let from = number_from_environment("FROM").unwrap_or(0);
    let start = Instant::now();
    let (requests, busiest, simulated_us) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let hash = AtomicU64::new(0);
    let excuses = Mutex::new(Excuses::default());
    let violations = Mutex::new(Violations::new());
    let (ended, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    each_seed(from..from + worlds, |seed| {
        let outcome = run(seed, None, false);
        requests.fetch_add(outcome.requests, Ordering::Relaxed);
        busiest.fetch_max(outcome.busiest as u64, Ordering::Relaxed);
        simulated_us.fetch_add(outcome.simulated_us, Ordering::Relaxed);
        hash.fetch_xor(outcome.hash, Ordering::Relaxed);
        excuses.lock().unwrap().add(&outcome.excuses);
        if let Some(text) = outcome.violation {
            violations.lock().unwrap().entry(kind_of(&text)).or_default().push(seed);
            if failed.fetch_add(1, Ordering::Relaxed) < FAILURES_SAID && worlds > WORLDS_PER_LINE {
                say(&format!("sim: seed {seed}: {text}; replay it with: make sim SEED={seed}"));
            }
        }
        let ended = ended.fetch_add(1, Ordering::Relaxed) + 1;
        if ended.is_multiple_of(WORLDS_PER_LINE) && ended < worlds {
            let (spent, failed) = (start.elapsed().as_secs_f64(), failed.load(Ordering::Relaxed));
            let left = spent * (worlds - ended) as f64 / ended as f64;
            say(&format!("sim: {ended} of {worlds} worlds in {spent:.0} s, {failed} failed, {left:.0} s to go"));
        }
        true
    });
    let (failed, violations) = (failed.into_inner(), violations.into_inner().unwrap());
    let result = if failed == 0 { "all as it should be".to_owned() } else { format!("{failed} failed") };
    say(&format!(
        "sim: {worlds} worlds from seed {from} on (hash {:016x}), {:.0} simulated hours, {} requests, at most {} in a minute, in {:.1} s: {result}",
        hash.into_inner(),
        simulated_us.into_inner() as f64 / 3.6e9,
        requests.into_inner(),
        busiest.into_inner(),
        start.elapsed().as_secs_f64(),
    ));
    say(&format!("sim: the judge looked away: {}", excuses.into_inner().unwrap()));
    if let Some(seed) = violations.values().flatten().min() {
        say(&explain(*seed));
        panic!("{failed} of {worlds} worlds failed:\n{}", listed(violations));
    }
}

/// Each kind of violation with its seeds, the smallest first.
fn listed(violations: Violations) -> String {
    let lines = violations.into_iter().map(|(kind, mut seeds)| {
        seeds.sort_unstable();
        let count = seeds.len();
        seeds.truncate(SEEDS_LISTED);
        format!("{count} worlds, seeds {seeds:?}: {kind}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn half_a_year_without_a_link_leaves_nothing_untold_and_the_disk_and_memory_bounded() {
    let start = Instant::now();
    let mut world = long::half_a_year(1, None);
    world.play();
    let judged = world.judge_long();
    say(&format!("sim: {}, in {:.1} s", judged.as_deref().unwrap_or_default(), start.elapsed().as_secs_f64()));
    assert_eq!(judged.err(), None);
    assert!(world.conditions.transitions() >= 1000, "{} changes", world.conditions.transitions());
    assert!(world.events.dropped() > 0, "everything found room");
}

#[test]
fn a_change_a_minute_writes_little_and_no_change_nothing() {
    let mut world = long::restless(2);
    world.play();
    let judged = world.judge_long();
    say(&format!("sim: {}", judged.as_deref().unwrap_or_default()));
    assert_eq!(judged.err(), None);
    assert!(world.conditions.transitions() >= 1440, "{} changes", world.conditions.transitions());
    let mut quiet = long::quiet(1);
    let before_outage = |world: &mut sim::world::World| {
        while world.now_us < 3_600_000_000 && world.step() {}
        world.storage.bytes_written()
    };
    let before = before_outage(&mut quiet);
    while quiet.now_us < quiet.plan.trouble_us && quiet.step() {}
    assert_eq!((quiet.violation.take(), quiet.storage.bytes_written()), (None, before));
}

/// With fifty seconds until Ready is lost, and renewals every ten.
#[test]
fn a_silent_link_costs_ready_no_sooner_where_answers_are_read_late() {
    const GRACE_S: f64 = 50.0;
    let (mut lost, mut longer_s) = ([0, 0], 0.0_f64);
    for after_ms in (0..10_000).step_by(500) {
        for span_s in (1..=60).step_by(2) {
            let silence = Silence { after_us: after_ms * 1_000, span_us: span_s * 1_000_000 };
            let pauses =
                [false, true].map(|reads_late| silence.longest_pause_s(after_ms + span_s, reads_late).unwrap());
            for (lost, pause) in lost.iter_mut().zip(pauses) {
                *lost += u32::from(pause >= GRACE_S);
            }
            longer_s = longer_s.max(pauses[1] - pauses[0]);
            let [before_s, now_s] = pauses;
            assert!(before_s >= GRACE_S || now_s < GRACE_S, "{silence:?}: {before_s} s, and {now_s} s read late");
        }
    }
    say(&format!(
        "sim: 600 silent links: Ready lost {lost:?} times, read at once and late; a pause is at most {longer_s:.1} s longer"
    ));
}

/// How the pair of a seed fares.
fn pair(seed: u64, blind: Blind, keep_lines: bool) -> Result<(), String> {
    Pair::new(seed, blind, keep_lines).run()
}

#[test]
fn two_boards_never_write_one_node_for_longer_than_three_renewals() {
    if let Some(seed) = number_from_environment("PAIR") {
        return assert_eq!(pair(seed, Blind::default(), true), Ok(()));
    }
    let pairs = number_from_environment("SEEDS").unwrap_or(WORLDS) * PAIRS_IN_TEN / 10;
    if let Some(seed) = find_bad(pairs, |seed| pair(seed, Blind::default(), false).is_err()) {
        panic!("{}\nreplay it with: PAIR={seed}", pair(seed, Blind::default(), true).unwrap_err());
    }
    say(&format!("sim: {pairs} pairs of boards: never two writers, in the end one"));
}

#[test]
fn two_boards_that_are_not_told_apart_are_noticed() {
    let is_noticed = |blind| {
        let of_two = |seed| pair(seed, blind, false).is_err_and(|why| why.contains("two boards write"));
        find_bad(WORLDS_PER_PLANTED_FAULT, of_two).is_some()
    };
    let sees = Blind::default();
    assert!(is_noticed(Blind { to_transitions: true, ..sees }), "of the Lease alone");
    assert!(is_noticed(Blind { to_transitions: true, to_names: true, ..sees }), "of Lease and Node");
    assert!(is_noticed(Blind { to_events: true, ..sees }), "of a watch");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let differs = |seed| {
        let (first, second) = (run(seed, None, false), run(seed, None, true));
        (first.hash, first.requests) != (second.hash, second.requests)
    };
    assert_eq!(find_bad(WORLDS_RUN_TWICE, differs), None, "a seed whose two runs differ");
    assert_ne!(run(1, None, false).hash, run(2, None, false).hash);
}

/// Where the judge looks away it says why, and there is a world that shows that it must.
#[test]
fn no_excuse_is_needless() {
    let mut needless = Vec::new();
    for excuse in Excuse::ALL {
        let fails = |seed| World::without(seed, excuse).run().violation.is_some();
        let needs = |seed| fails(seed) && run(seed, None, false).violation.is_none();
        if needs(excuse.seed()) {
            continue;
        }
        // Another agent makes other worlds. Without any that needs it the excuse has to go.
        match find_bad(WORLDS, needs) {
            Some(seed) => {
                say(&format!("sim: {excuse:?} is needed by seed {seed} now, and by {} no more", excuse.seed()))
            }
            None => needless.push(excuse),
        }
    }
    assert_eq!(needless, []);
}

#[test]
fn every_planted_fault_is_noticed() {
    let mut unnoticed = Vec::new();
    let mut noticed = Vec::new();
    for fault in PLANTED {
        let violation = |seed| {
            let violation = if fault.takes_long() {
                let mut world = long::half_a_year(seed, Some(fault));
                world.play();
                world.violation
            } else {
                run(seed, Some(fault), false).violation
            };
            violation.filter(|why| why.contains(fault.sign()))
        };
        let worlds = if fault.takes_long() { 2 } else { WORLDS_PER_PLANTED_FAULT };
        let found = find_bad(worlds, |seed| violation(seed).is_some());
        match found.and_then(|seed| Some((seed, violation(seed)?))) {
            Some((seed, why)) => noticed.push(format!("{fault:?}, by seed {seed}: {why:.120}")),
            None => unnoticed.push(fault),
        }
    }
    say(&format!(
        "sim: {} planted faults noticed within {WORLDS_PER_PLANTED_FAULT} worlds each:\n  {}",
        noticed.len(),
        noticed.join("\n  ")
    ));
    assert_eq!(unnoticed, [], "not noticed within {WORLDS_PER_PLANTED_FAULT} worlds");
}
