//! Turns servers, proxies, clocks, files and pipes gone wrong loose on the built program, and prints what it made of each:
//! renewals, requests, log lines, memory and the way to its end. Judged from outside alone.

#![allow(clippy::disallowed_methods, reason = "a test reads the clock, waits, and has threads")]

#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/board.rs"]
mod board;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "hostile/course.rs"]
mod course;
#[path = "hostile/judge.rs"]
mod judge;
#[path = "support/left_out.rs"]
mod left_out;
#[path = "hostile/local.rs"]
mod local;
#[allow(dead_code, unused_imports, reason = "the simulation uses the rest")]
mod model;
#[path = "hostile/server.rs"]
mod server;
#[path = "hostile/strangers.rs"]
mod strangers;
#[path = "hostile/table.rs"]
mod table;
#[path = "hostile/wire.rs"]
mod wire;

use attack::{Attack, Launch};
use course::Ground;
use judge::Figures;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Attacks that the program does not withstand yet. One that it does must not be in the list.
const NOT_YET: &[&str] = &[];

/// Most of an attack is waiting.
const AT_ONCE: usize = 140;

/// Name, figures, and what is wrong with them, in few words.
type Table = Mutex<Vec<(&'static str, Figures, String)>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(AT_ONCE).min(AT_ONCE));
    let attacks: &'static [Attack] = Box::leak(table::all().into_boxed_slice());
    for name in NOT_YET {
        assert!(attacks.iter().any(|attack| attack.name == *name), "{name} is no attack");
    }
    let ground: Arc<OnceLock<Result<Ground, String>>> = Arc::default();
    let table: Arc<Table> = Arc::default();
    let mut trials = vec![Trial::test("the_judge_notices_what_is_wrong", || Ok(judge::notices_what_is_wrong()?))];
    for attack in attacks {
        let (ground, table) = (Arc::clone(&ground), Arc::clone(&table));
        let trial = Trial::test(attack.name, move || one(attack, ground.get_or_init(Ground::new), &table));
        let is_left_out = needs_root(attack) && !is_root();
        if is_left_out && !arguments.list {
            left_out::leave_out(attack.name, "it needs root");
        }
        trials.push(trial.with_ignored_flag(is_left_out));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    print(&table);
    drop(ground);
    conclusion.exit_code()
}

fn one(attack: &'static Attack, ground: &Result<Ground, String>, table: &Table) -> Result<(), Failed> {
    let ground = ground.as_ref().map_err(String::as_str)?;
    let (figures, complaints) = course::run(ground, attack);
    let withstood = complaints.is_empty();
    let first: String = complaints.first().map(|first| first.chars().take(90).collect()).unwrap_or_default();
    table.lock().unwrap_or_else(PoisonError::into_inner).push((attack.name, figures, first));
    match (withstood, NOT_YET.contains(&attack.name)) {
        (true, false) | (false, true) => Ok(()),
        (true, true) => Err("it withstands this now: take it out of NOT_YET".into()),
        (false, false) => Err(complaints.join("\n").into()),
    }
}

fn needs_root(attack: &Attack) -> bool {
    attack.launch == Launch::ThreeAddresses
}

fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

fn print(table: &Table) {
    let mut rows = table.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|(name, ..)| *name);
    let seconds = |span: std::time::Duration| format!("{:.1}", span.as_secs_f64());
    let line = |name: &str, f: &Figures| {
        let gap = f.gap.map_or("never".to_owned(), seconds);
        let end = f.end.map_or("never".to_owned(), |end| end.as_millis().to_string());
        let (requests, lines, memory, watchdog) = (f.requests, f.lines, f.memory_kib, seconds(f.watchdog));
        format!("{name:<36} {gap:>9} {requests:>9} {lines:>7} {memory:>9} {watchdog:>9} {end:>9}")
    };
    println!(
        "{:<36} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9}",
        "attack", "renewal s", "reqs/min", "lines", "KiB more", "alive s", "SIGTERM ms"
    );
    for (name, figures, complaint) in &rows {
        println!("{}  {complaint}", line(name, figures));
    }
    let withstood = || rows.iter().filter(|(.., complaint)| complaint.is_empty());
    let most = withstood().fold(Figures::default(), |most, (_, f, _)| most.or(f));
    println!("{}", line("the most of any that it withstands", &most));
    println!(
        "limits: renewals {} s, {} requests and {} lines a minute, {} KiB over peace, SIGTERM {} s; {} of {} withstood",
        judge::RENEWAL.as_secs(),
        judge::REQUESTS_PER_MINUTE,
        judge::LINES_PER_MINUTE,
        judge::MEMORY_KIB,
        judge::END.as_secs(),
        withstood().count(),
        rows.len()
    );
}
