//! Turns one run against a real API server into a table: what nodepulse costs, its goals, and the same of a real kubelet
//! and of forty lines of kube-rs beside it. `README.md` in the folder above says how to read it.

// The linter keeps clocks, threads and sleeps out of the agent; this measures the real world.
#![allow(clippy::disallowed_methods)]

#[path = "../../tests/support/agent.rs"]
mod agent;
mod card;
#[path = "../../tests/support/cluster.rs"]
mod cluster;
mod day;
mod heap;
mod joined;
mod outage;
mod process;
mod programs;
mod replay;
#[path = "../../tests/support/requests.rs"]
mod requests;
mod subject;
mod table;
mod targets;
#[path = "../../tests/support/trials.rs"]
mod trials;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use cluster::{Cluster, Options, Result, binaries};
use heap::Heap;
use outage::Outage;
use process::Usage;
use subject::{Subject, Trace};
use table::Row;
use wire::{Capture, Exchange, Kind, Sees};

const DAY_SECONDS: f64 = 86_400.0;

/// `--bench` is what cargo says to every benchmark.
const ARGUMENTS: [&str; 7] = [outage::QUICK, "--outage", "--heap", "--join", "--targets", outage::INSIDE, "--bench"];
const USAGE: &str =
    "make bench ARGS='[--quick] [--outage | --heap | --join | --targets]'; benches/README.md explains each";

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
        () if has(outage::INSIDE) => outage::inside(is_quick),
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

/// How long everything takes.
struct Plan {
    seconds_per_renewal: u32,
    /// After the last Node is Ready, until start-up work is over. A Node's name that DNS does not know is looked up again
    /// after one minute and after three, and then ever less.
    settle: Duration,
    window: Duration,
    /// Until strace, so that the third look-up of a name that DNS does not know falls into no window.
    pause: Duration,
    traced: Duration,
}

impl Plan {
    fn new(quick: bool) -> Plan {
        let seconds = Duration::from_secs;
        if quick {
            Plan {
                seconds_per_renewal: 1,
                settle: seconds(8),
                window: seconds(30),
                pause: seconds(0),
                traced: seconds(10),
            }
        } else {
            Plan {
                seconds_per_renewal: 10,
                settle: seconds(68),
                window: seconds(110),
                pause: seconds(12),
                traced: seconds(60),
            }
        }
    }
}

/// What one program did.
struct Figures {
    usage: Usage,
    helper_rss_kib: Option<u64>,
    /// In the window without strace.
    renewals: f64,
    window_bytes: u64,
    exchanges: Vec<Exchange>,
    registered_ms: u64,
    /// In the window with strace.
    calls: Option<BTreeMap<String, u64>>,
    traced_renewals: f64,
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
    let outage = outage::measure(quick, &nodepulse).inspect_err(|why| say(&format!("nothing of outages: {why}")));
    let outage = outage.unwrap_or_default();
    let Some(kube_rs) = kube_rs else {
        table::print(&["nodepulse".to_owned()], &outage.rows(1));
        return Ok(());
    };
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
    let mut subjects = vec![Subject::nodepulse(&cluster, &nodepulse, plan.seconds_per_renewal)?];
    let root = nix::unistd::Uid::effective().is_root();
    match binaries::obtainable(&binaries::KUBELET).and_then(|()| if root { Ok(()) } else { Err("needs root".into()) }) {
        Ok(()) => subjects.push(Subject::kubelet(&cluster, plan.seconds_per_renewal)?),
        Err(why) => say(&format!("no column of the kubelet: {why}")),
    }
    subjects.push(Subject::kube_rs(&cluster, &kube_rs, plan.seconds_per_renewal)?);
    for subject in &subjects {
        cluster.wait_for_condition(&subject.node, "Ready", "True", Duration::from_secs(60))?;
    }
    let figures = measure(&plan, &cluster, capture.as_ref(), &subjects, &say)?;
    print(&plan, &triple, &subjects, &figures, &heap, &outage);
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

fn measure(
    plan: &Plan,
    cluster: &Cluster,
    capture: Option<&Capture>,
    subjects: &[Subject],
    say: &dyn Fn(&str),
) -> Result<Vec<Figures>> {
    let total = plan.settle + plan.window + plan.pause + plan.traced;
    say(&format!("{} Nodes are Ready; the rest takes {} s", subjects.len(), total.as_secs()));
    std::thread::sleep(plan.settle);
    say(&format!("counting for {} s", plan.window.as_secs()));
    let before = subjects.iter().map(Subject::usage).collect::<Result<Vec<_>>>()?;
    let from_us = now_us()?;
    std::thread::sleep(plan.window);
    let to_us = now_us()?;
    let after = subjects.iter().map(Subject::usage).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(plan.pause);
    say(&format!("counting system calls for {} s", plan.traced.as_secs()));
    let output = |subject: &Subject| cluster.folder().join(format!("{}.strace", subject.node));
    let attach = |subject: &Subject| Trace::attach(subject.pid, output(subject)).inspect_err(|why| say(why)).ok();
    let traces: Vec<Option<Trace>> = subjects.iter().map(attach).collect();
    let traced_from_us = now_us()?;
    if traces.iter().any(Option::is_some) {
        std::thread::sleep(plan.traced);
    }
    let traced_to_us = now_us()?;
    let mut figures = Vec::new();
    for (((subject, trace), before), after) in subjects.iter().zip(traces).zip(before).zip(after) {
        let calls = trace.map(Trace::finish).transpose()?;
        let audit = subject.audit(cluster)?;
        let renewals = |from_us, to_us| {
            let within = |at_us: u64| (from_us..to_us).contains(&at_us);
            audit.iter().filter(|entry| within(entry.received_at_us) && Kind::of(entry) == Kind::Renewal).count() as f64
        };
        figures.push(Figures {
            usage: after.since(before),
            helper_rss_kib: subject.helper_rss_kib(),
            renewals: renewals(from_us, to_us),
            window_bytes: capture.map_or(0, |capture| capture.bytes(subject.address, from_us, to_us)),
            exchanges: capture.map_or_else(Vec::new, |capture| capture.exchanges(subject.address, &audit)),
            registered_ms: subject.registered_after_ms(cluster)?,
            calls,
            traced_renewals: renewals(traced_from_us, traced_to_us),
        });
    }
    Ok(figures)
}

impl Figures {
    fn per_renewal(&self, count: u64) -> Option<f64> {
        (self.renewals > 0.0).then(|| count as f64 / self.renewals)
    }

    /// Mean IP bytes (or packets) of what was exactly this, start-up excluded for what comes often. What goes along with renewals
    /// is what it adds to them.
    fn mean(&self, kind: Kind, of: fn(&Exchange) -> u64) -> Option<f64> {
        let alone = |kind| self.exchanges.iter().filter(move |e| e.requests == [kind]).map(move |e| of(e) as f64);
        // The first renewals of a process open connections and strip managed fields.
        let renewal = mean(&alone(Kind::Renewal).skip(2).collect::<Vec<_>>());
        if kind == Kind::Renewal {
            return renewal;
        }
        let along = self.exchanges.iter().filter_map(|e| {
            let is_it = |wanted| move |kind: &&Kind| **kind == wanted;
            let renewals = e.requests.iter().filter(is_it(Kind::Renewal)).count();
            let is_one = e.requests.iter().filter(is_it(kind)).count() == 1 && e.requests.len() == renewals + 1;
            is_one.then_some(of(e) as f64 - renewals as f64 * renewal.filter(|_| renewals > 0).unwrap_or(0.0))
        });
        mean(&along.collect::<Vec<_>>())
    }

    fn bytes_per_day(&self, window: Duration) -> Option<f64> {
        let report = self.mean(Kind::Report, |exchange| exchange.ip_bytes)?;
        // The window is too short for a report, which both kubelet and nodepulse send every five minutes.
        Some(self.window_bytes as f64 / window.as_secs_f64() * DAY_SECONDS + report * DAY_SECONDS / 300.0)
    }
}

fn mean(all: &[f64]) -> Option<f64> {
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn print(plan: &Plan, triple: &str, subjects: &[Subject], figures: &[Figures], heap: &Heap, outage: &Outage) {
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
    let bytes = |kind| each(&move |one| one.mean(kind, |exchange| exchange.ip_bytes));
    let window_s = plan.window.as_secs_f64();
    let cpu_per_day = |one: &Figures| Some(one.usage.cpu_ns as f64 / 1e9 / window_s * DAY_SECONDS);
    let mut rows = vec![
        Row::new("threads", Some(1.0), &each(&|one| Some(one.usage.threads as f64)), table::whole),
        Row::new("memory (RSS)", Some(1.95e6), &each(&|one| kib(one.usage.rss_kib)), table::megabytes)
            .with_remark(helper_at, helper),
        Row::new("of it not the program file's", None, &each(&|one| kib(one.usage.rss_anon_kib)), table::megabytes),
        Row::new("program", Some(1.64e6), &sizes, table::megabytes),
        Row::new(
            "context switches per renewal",
            Some(1.3),
            &each(&|one| one.per_renewal(one.usage.switches)),
            table::tenths,
        ),
        Row::new("system calls per renewal", Some(6.0), &each(&calls), table::tenths),
        Row::new(
            "processor time per renewal",
            None,
            &each(&|one| one.per_renewal(one.usage.cpu_ns).map(|ns| ns / 1e6)),
            table::milliseconds,
        ),
        Row::new("processor time per day", None, &each(&cpu_per_day), table::seconds),
        Row::new("IP bytes per renewal", Some(361.0), &bytes(Kind::Renewal), table::whole),
        Row::new(
            "packets per renewal",
            Some(3.0),
            &each(&|one| one.mean(Kind::Renewal, |exchange| exchange.packets)),
            table::tenths,
        ),
        Row::new("IP bytes per report (5 min)", Some(1050.0), &bytes(Kind::Report), table::whole),
        Row::new("IP bytes per assertion (60 s)", Some(400.0), &bytes(Kind::Assertion), table::whole),
        Row::new("IP bytes per day", Some(3.6e6), &each(&|one| one.bytes_per_day(plan.window)), table::megabytes),
        Row::new(
            "bytes written to disk per hour",
            Some(0.0),
            &each(&|one| Some(one.usage.written_bytes as f64 / window_s * 3600.0)),
            table::whole,
        ),
        Row::new("start to registered", Some(400.0), &each(&|one| Some(one.registered_ms as f64)), table::milliseconds),
        Row::new("heap growth, 10,000 renewals", Some(0.0), &ours_only(heap.growth_bytes as f64), table::whole),
        Row::new("allocations per renewal, core", None, &ours_only(heap.allocations), table::tenths),
    ];
    rows.extend(outage.rows(figures.len()));
    let titles: Vec<String> = subjects.iter().map(|subject| subject.title.clone()).collect();
    println!("nodepulse for {triple}; a renewal every {} s, counted over {window_s} s.\n", plan.seconds_per_renewal);
    table::print(&titles, &rows);
    if let Some(one) = figures.first() {
        print_calls(one);
    }
    let (renewals, bytes) = (heap.renewals, heap.bytes);
    println!("The core and its HTTP allocate {bytes:.0} bytes per renewal (mean of {renewals} simulated ones).");
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

fn now_us() -> Result<u64> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
    u64::try_from(since_1970.as_micros()).map_err(|e| e.to_string())
}
