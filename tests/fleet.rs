//! Turns two hundred boards with one token that are switched on together into as many Ready Nodes, and says what each cost.
//!
//! `make test-fleet` names the program that ships in `FLEET_BIN`.

// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

#[path = "support/agent.rs"]
mod agent;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/trials.rs"]
mod trials;

use agent::{Launch, Nodepulse};
use cluster::joining::KUBEADM_GROUP;
use cluster::{Cluster, Options, Result, condition, wait_until};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trials::{Case, Need};

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($($run:ident),+) => { vec![$(Case { name: stringify!($run), needs: &[Need::Program], run: $run }),+] };
}

const BOARDS: usize = 200;
/// What it may take where there is nothing else to do.
const READY_WITHIN: Duration = Duration::from_secs(25);
/// However much else there is to do.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    trials::run(1, options, cases![two_hundred_boards_that_join_at_once_are_ready])
}

/// The controller's patience is not what is measured.
fn options() -> Options {
    let grace = Duration::from_secs(60);
    Options { node_monitor_grace_period: grace, node_startup_grace_period: grace, ..Options::default() }
}

/// User and system time of a process and its threads so far: `stat` counts hundredths, of which a board needs one or two.
fn processor_seconds(pid: i32) -> Result<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).and_then(clock_gettime);
    clock.map(|time| Duration::from(time).as_secs_f64()).map_err(|e| format!("the processor time of {pid}: {e}"))
}

fn all_seconds(pids: &[i32]) -> Result<f64> {
    pids.iter().map(|pid| processor_seconds(*pid)).sum()
}

fn two_hundred_boards_that_join_at_once_are_ready(cluster: &Cluster) -> Result<()> {
    let program = std::env::var("FLEET_BIN").map_err(|e| e.to_string())?;
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let nodes = (0..BOARDS).map(|_| cluster.node("many")).collect::<Result<Vec<_>>>()?;
    let servers_before = all_seconds(&cluster.pids())?;
    let began = Instant::now();
    let start = |node| -> Result<Nodepulse> {
        Launch::with_defaults(node)
            .without_kubeconfig()
            .set("servers", &format!("['{}']", cluster.api.url()))
            .set("token", &format!("'{token}'"))
            .set("caHash", &format!("['{}']", cluster.pin()))
            .program(vec![program.clone()])
            .start(cluster)
    };
    let agents = nodes.iter().map(start).collect::<Result<Vec<_>>>()?;
    let started = began.elapsed();
    wait_until("all to be Ready", PATIENCE, || {
        let list = cluster.api.admin.get("/api/v1/nodes")?;
        let all = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let is_ready = |node: &&Value| condition(node, "Ready").is_some_and(|c| c["status"] == "True");
        let ready = all.iter().filter(is_ready).count();
        if ready == BOARDS { Ok(()) } else { Err(format!("{ready} are")) }
    })?;
    let ready = began.elapsed();
    let pids: Vec<i32> = agents.iter().filter_map(Nodepulse::pid).collect();
    let of_agents = all_seconds(&pids)?;
    let of_servers = all_seconds(&cluster.pids())? - servers_before;
    let cores = std::thread::available_parallelism().map_err(|e| e.to_string())?.get();
    let alone = (of_agents + of_servers) / cores as f64;
    println!(
        "  {BOARDS} boards: started after {:.1} s, all Ready after {:.1} s; processor time of a board {:.0} ms, of the servers for \
         each {:.0} ms: {alone:.1} s of {cores} cores",
        started.as_secs_f64(),
        ready.as_secs_f64(),
        of_agents * 1000.0 / BOARDS as f64,
        of_servers * 1000.0 / BOARDS as f64,
    );
    assert_eq!(cluster.requests()?.len(), BOARDS, "one request for each");
    // Of the machine, and not of what else runs on it.
    assert!(alone < READY_WITHIN.as_secs_f64(), "{alone} s of {cores} cores");
    Ok(())
}
