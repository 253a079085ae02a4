//! Turns one run against a real API server into a table: what nodepulse costs, its goals, and the same of a real kubelet
//! and of forty lines of kube-rs beside it. `README.md` in the folder above says how to read it.

// The linter keeps clocks, threads and sleeps out of the agent; this measures the real world.
#![allow(clippy::disallowed_methods)]

#[path = "../../tests/support/agent.rs"]
mod agent;
mod card;
mod chart;
#[path = "../../tests/support/cluster.rs"]
mod cluster;
mod day;
mod figures;
mod fleet;
mod heap;
mod joined;
mod link;
mod outage;
mod process;
mod profiles;
mod programs;
mod replay;
#[path = "../../tests/support/requests.rs"]
mod requests;
mod server;
mod subject;
mod table;
mod targets;
#[path = "../../tests/support/trials.rs"]
mod trials;
mod wire;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cluster::{Cluster, Options, Result, binaries};
use figures::{DAY_SECONDS, Figures, Plan, measure};
use heap::Heap;
use outage::Outage;
use server::ServerTime;
use subject::Subject;
use table::Row;
use wire::{Capture, Sees};

/// `--bench` is what cargo says to every benchmark.
const ARGUMENTS: [&str; 11] = [
    outage::QUICK,
    "--outage",
    "--heap",
    "--join",
    "--targets",
    "--server",
    link::ARGUMENT,
    profiles::ARGUMENT,
    fleet::ARGUMENT,
    outage::INSIDE,
    "--bench",
];
const USAGE: &str = "make bench ARGS='[--quick] [--outage | --heap | --join | --targets | --server | --link | --profiles | --fleet]'; \
    benches/README.md explains each";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = arguments.iter().find(|argument| !ARGUMENTS.contains(&argument.as_str())) {
        eprintln!("bench: unknown argument {unknown:?}: {USAGE}");
        return ExitCode::from(64);
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let is_quick = has(outage::QUICK);
    let ended = match () {
        () if has("--heap") => print_heap(),
        () if has(outage::INSIDE) && has(link::ARGUMENT) => link::inside(is_quick),
        () if has(outage::INSIDE) && has(profiles::ARGUMENT) => profiles::inside(is_quick),
        () if has(outage::INSIDE) => outage::inside(is_quick),
        () if has(link::ARGUMENT) => only_link(is_quick),
        () if has(profiles::ARGUMENT) => {
            programs::nodepulse().and_then(|(program, _)| profiles::measure(is_quick, &program))
        }
        () if has(fleet::ARGUMENT) => programs::nodepulse().and_then(|(program, _)| fleet::measure(is_quick, &program)),
        () if has("--server") => only_server(is_quick),
        () if has("--join") => programs::nodepulse().and_then(|(program, _)| joined::measure(&program)),
        () if has("--targets") => only_targets(),
        () => run(is_quick, has("--outage")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(quick: bool, only_outage: bool) -> Result<()> {
    let plan = Plan::new(quick);
    let began = Instant::now();
    let say = |what: &str| eprintln!("bench [{:3} s] {what}", began.elapsed().as_secs());
    say("simulating renewals on the pure agent");
    let heap = heap::simulate()?;
    say("building nodepulse (release) and the kube-rs client, where that is not done yet");
    let (nodepulse, triple) = programs::nodepulse()?;
    let kube_rs = if only_outage { None } else { Some(programs::kube_rs()?) };
    say("outages, in a network of their own: eight minutes, as a journal is told a record in two seconds at worst");
    let outage = outage::measure(quick, &nodepulse);
    let Some(kube_rs) = kube_rs else {
        table::print(&["nodepulse".to_owned()], &outage?.rows(1));
        return Ok(());
    };
    let outage = outage.inspect_err(|why| say(&format!("nothing of outages: {why}"))).unwrap_or_default();
    let server = server_time(&nodepulse, quick, &say).inspect_err(|why| say(why)).ok();
    say("starting a cluster");
    let grace = Duration::from_secs(50);
    let cluster = Cluster::start(Options {
        node_monitor_grace_period: grace,
        node_startup_grace_period: grace,
        more_addresses: subject::addresses(),
        ..Options::default()
    })?;
    let capture = Capture::open(cluster.api.port, Sees::Loopback)
        .inspect_err(|why| say(&format!("bytes are not counted: {why}")))
        .ok();
    let mut subjects = vec![Subject::nodepulse_here(&cluster, &nodepulse, plan.seconds_per_renewal)?];
    let root = nix::unistd::Uid::effective().is_root();
    match binaries::obtainable(&binaries::KUBELET).and_then(|()| if root { Ok(()) } else { Err("needs root".into()) }) {
        Ok(()) => subjects.push(Subject::kubelet_here(&cluster, plan.seconds_per_renewal)?),
        Err(why) => say(&format!("no column of the kubelet: {why}")),
    }
    subjects.push(Subject::kube_rs_here(&cluster, &kube_rs, plan.seconds_per_renewal)?);
    subjects.push(Subject::unwatched_here(&cluster, &nodepulse, plan.seconds_per_renewal)?);
    for subject in &subjects {
        cluster.wait_for_condition(&subject.node, "Ready", "True", Duration::from_secs(60))?;
    }
    let figures = measure(&plan, &cluster, capture.as_ref(), &subjects, &say)?;
    print((&plan, &triple), &subjects, &figures, (&heap, &outage, server.as_ref()));
    say("counting instructions, which takes a minute");
    targets::print(&cluster, &nodepulse, &programs::folder());
    Ok(())
}

/// `--targets`: only the sizes of the programs that ship, and the instructions of a renewal.
fn only_targets() -> Result<()> {
    let (nodepulse, _) = programs::nodepulse()?;
    targets::print(&Cluster::start(Options::default())?, &nodepulse, &programs::folder());
    Ok(())
}

fn print(
    (plan, triple): (&Plan, &str),
    subjects: &[Subject],
    figures: &[Figures],
    (heap, outage, server): (&Heap, &Outage, Option<&ServerTime>),
) {
    let each = |of: &dyn Fn(&Figures) -> Option<f64>| figures.iter().map(of).collect::<Vec<_>>();
    let sizes: Vec<_> = subjects.iter().map(|subject| Some(subject.program_bytes as f64)).collect();
    let kib = |count: u64| Some(count as f64 * 1024.0);
    let ours_only = |figure: f64| [vec![Some(figure)], vec![None; figures.len() - 1]].concat();
    let calls = |one: &Figures| {
        let calls: u64 = one.calls.as_ref()?.values().sum();
        (one.traced_renewals > 0.0).then(|| calls as f64 / one.traced_renewals)
    };
    let helper =
        |one: &Figures| Some(format!("+ {} containerd", table::megabytes(one.helper_rss_kib? as f64 * 1024.0)));
    let helper = figures.iter().position(|one| one.helper_rss_kib.is_some()).map(|at| (at, helper(&figures[at])));
    let (helper_at, helper) = helper.unwrap_or_default();
    let window_s = plan.window.as_secs_f64();
    let cpu_per_day = |one: &Figures| Some(one.usage.cpu_ns as f64 / 1e9 / window_s * DAY_SECONDS);
    let mut rows = vec![
        Row::new("threads", Some(1.0), &each(&|one| Some(one.usage.threads as f64)), table::whole),
        Row::new("memory (RSS)", Some(1.95e6), &each(&|one| kib(one.usage.rss_kib)), table::megabytes)
            .with_remark(helper_at, helper),
        Row::new("of it not the program file's", None, &each(&|one| kib(one.usage.rss_anon_kib)), table::megabytes),
        Row::new("program", Some(1.70e6), &sizes, table::megabytes),
    ];
    rows.extend(figures::wake_ups(figures));
    rows.extend([
        Row::new("system calls per renewal", Some(6.0), &each(&calls), table::tenths),
        Row::new(
            "processor time per renewal",
            None,
            &each(&|one| one.per_renewal(one.usage.cpu_ns).map(|ns| ns / 1e6)),
            table::milliseconds,
        ),
        Row::new("processor time per day", None, &each(&cpu_per_day), table::seconds),
    ]);
    rows.extend(figures::bytes_on_the_wire(figures, figures.len().checked_sub(1)));
    rows.extend([
        Row::new(
            "bytes written to disk per hour",
            Some(0.0),
            &each(&|one| Some(one.usage.written_bytes as f64 / window_s * 3600.0)),
            table::whole,
        ),
        Row::new("start to registered", Some(400.0), &each(&|one| Some(one.registered_ms as f64)), table::milliseconds),
        Row::new("heap growth, 10,000 renewals", Some(0.0), &ours_only(heap.growth_bytes as f64), table::whole),
        Row::new("allocations per renewal, core", None, &ours_only(heap.allocations), table::tenths),
    ]);
    rows.extend(server.map(|server| server.row(subjects)));
    rows.extend(outage.rows(figures.len()));
    let titles: Vec<String> = subjects.iter().map(|subject| subject.title.clone()).collect();
    println!("nodepulse for {triple}; a renewal every {} s, counted over {window_s} s.\n", plan.seconds_per_renewal);
    table::print(&titles, &rows);
    draw(&titles, &rows);
    if let Some(one) = figures.first() {
        print_calls(one);
        println!("{}.", one.in_words());
    }
    server.iter().for_each(|server| println!("{}", server.in_words()));
    let (renewals, bytes) = (heap.renewals, heap.bytes);
    println!("The core and its HTTP allocate {bytes:.0} bytes per renewal (mean of {renewals} simulated ones).");
}

/// The last one is ours once more.
fn draw(titles: &[String], rows: &[Row]) {
    let drawn = titles.split_last().map_or(&[][..], |(_, others)| others);
    match chart::write(drawn, rows) {
        Ok(file) => println!("The same in bars: {}", file.display()),
        Err(why) => println!("No picture: {why}"),
    }
}

/// `--link`: what each program costs behind a slow link.
fn only_link(quick: bool) -> Result<()> {
    let (nodepulse, _) = programs::nodepulse()?;
    link::measure(quick, &nodepulse, &programs::kube_rs()?)
}

/// `--server`: only what a renewal costs an API server.
fn only_server(quick: bool) -> Result<()> {
    let (nodepulse, _) = programs::nodepulse()?;
    let server = server_time(&nodepulse, quick, &|what| eprintln!("bench: {what}"))?;
    table::print(&["nodepulse".to_owned(), "kubelet v1.36.3".to_owned()], &[server.row_beside_kubelet()]);
    println!("{}", server.in_words());
    Ok(())
}

fn server_time(nodepulse: &Path, quick: bool, say: &dyn Fn(&str)) -> Result<ServerTime> {
    server::measure(nodepulse, &programs::renewer()?, quick, say)
}

/// `--heap`: only the simulated renewals, for a profiler.
fn print_heap() -> Result<()> {
    let heap = heap::simulate()?;
    println!(
        "{:.1} allocations and {:.0} bytes per renewal; growth {}",
        heap.allocations, heap.bytes, heap.growth_bytes
    );
    Ok(())
}

/// Where our own system calls go.
fn print_calls(ours: &Figures) {
    let Some(calls) = &ours.calls else { return };
    let mut sorted: Vec<_> = calls.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let list: Vec<String> = sorted.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("System calls of nodepulse in {} renewals: {}.", ours.traced_renewals, list.join(", "));
}
