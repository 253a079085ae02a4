//! Turns running programs, a capture and an audit log into what each program did in a while.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::cluster::{Cluster, Result};
use super::process::Usage;
use super::subject::{Subject, Trace};
use super::table::{self, Row};
use super::wire::{Capture, Exchange, Kind};

pub const DAY_SECONDS: f64 = 86_400.0;
/// How often both kubelet and nodepulse report without a change.
const REPORT_SECONDS: f64 = 300.0;

/// How long everything takes.
pub struct Plan {
    pub seconds_per_renewal: u32,
    /// After the last Node is Ready, until start-up work is over. A Node's name that DNS does not know is looked up again
    /// after one minute and after three, and then ever less.
    pub settle: Duration,
    pub window: Duration,
    /// Until strace, so that the third look-up of a name that DNS does not know falls into no window.
    pub pause: Duration,
    /// Zero: without strace.
    pub traced: Duration,
    /// Until a report without a change has come, which both nodepulse and a kubelet send every five minutes, and the first after a
    /// change up to half as much later.
    pub rest: Duration,
}

impl Plan {
    pub fn new(quick: bool) -> Plan {
        let seconds = Duration::from_secs;
        if quick {
            Plan {
                seconds_per_renewal: 1,
                settle: seconds(8),
                window: seconds(30),
                pause: seconds(0),
                traced: seconds(10),
                rest: seconds(0),
            }
        } else {
            Plan {
                seconds_per_renewal: 10,
                settle: seconds(68),
                window: seconds(110),
                pause: seconds(12),
                traced: seconds(200),
                rest: seconds(90),
            }
        }
    }

    pub fn total(&self) -> Duration {
        self.settle + self.window + self.pause + self.traced + self.rest
    }
}

/// What one program did.
pub struct Figures {
    pub usage: Usage,
    pub helper_rss_kib: Option<u64>,
    /// In the window without strace.
    pub renewals: f64,
    pub window_bytes: u64,
    /// From when until when that was.
    window_us: [u64; 2],
    /// Since it had settled.
    exchanges: Vec<Exchange>,
    pub registered_ms: u64,
    /// In the window with strace.
    pub calls: Option<BTreeMap<String, u64>>,
    pub traced_renewals: f64,
}

pub fn measure(
    plan: &Plan,
    cluster: &Cluster,
    capture: Option<&Capture>,
    subjects: &[Subject],
    say: &dyn Fn(&str),
) -> Result<Vec<Figures>> {
    say(&format!("{} Nodes are Ready; the rest takes {} s", subjects.len(), plan.total().as_secs()));
    std::thread::sleep(plan.settle);
    say(&format!("counting for {} s", plan.window.as_secs()));
    let before = subjects.iter().map(Subject::usage).collect::<Result<Vec<_>>>()?;
    let from_us = now_us()?;
    std::thread::sleep(plan.window);
    let to_us = now_us()?;
    let after = subjects.iter().map(Subject::usage).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(plan.pause);
    let output = |subject: &Subject| cluster.folder().join(format!("{}.strace", subject.node));
    let attach = |subject: &Subject| Trace::attach(subject.pid, output(subject)).inspect_err(|why| say(why)).ok();
    let is_traced = plan.traced > Duration::ZERO;
    let traces: Vec<Option<Trace>> = subjects.iter().map(|one| if is_traced { attach(one) } else { None }).collect();
    let traced_from_us = now_us()?;
    if traces.iter().any(Option::is_some) {
        say(&format!("counting system calls for {} s", plan.traced.as_secs()));
        std::thread::sleep(plan.traced);
    }
    let traced_to_us = now_us()?;
    let calls = traces.into_iter().map(|trace| trace.map(Trace::finish).transpose()).collect::<Result<Vec<_>>>()?;
    if plan.rest > Duration::ZERO {
        say(&format!("waiting {} s for a report, one in five minutes", plan.rest.as_secs()));
        std::thread::sleep(plan.rest);
    }
    let mut figures = Vec::new();
    for (((subject, calls), before), after) in subjects.iter().zip(calls).zip(before).zip(after) {
        let audit = subject.audit(cluster)?;
        let renewals = |from_us, to_us| {
            let within = |at_us: u64| (from_us..to_us).contains(&at_us);
            audit.iter().filter(|entry| within(entry.received_at_us) && Kind::of(entry) == Kind::Renewal).count() as f64
        };
        let mut exchanges = capture.map_or_else(Vec::new, |capture| capture.exchanges(subject.address, &audit));
        exchanges.retain(|exchange| exchange.at_us >= from_us);
        figures.push(Figures {
            usage: after.since(before),
            helper_rss_kib: subject.helper_rss_kib(),
            renewals: renewals(from_us, to_us),
            window_bytes: capture.map_or(0, |capture| capture.bytes(subject.address, from_us, to_us)),
            window_us: [from_us, to_us],
            exchanges,
            registered_ms: subject.registered_after_ms(cluster)?,
            calls,
            traced_renewals: renewals(traced_from_us, traced_to_us),
        });
    }
    Ok(figures)
}

impl Figures {
    pub fn per_renewal(&self, count: u64) -> Option<f64> {
        (self.renewals > 0.0).then(|| count as f64 / self.renewals)
    }

    /// Mean IP bytes (or packets) of one of these, since start-up was over. Where others go along with it, it is what it adds to
    /// them.
    pub fn mean(&self, kind: Kind, of: fn(&Exchange) -> u64) -> Option<f64> {
        // What is known of a kind says what is left of those after it.
        let before = Kind::ALL.iter().take_while(|other| **other != kind);
        let known: Vec<(Kind, f64)> = before.filter_map(|other| Some((*other, self.mean(*other, of)?))).collect();
        let added = self.exchanges.iter().filter_map(|exchange| {
            let mut others = exchange.requests.clone();
            others.remove(others.iter().position(|one| *one == kind)?);
            let mean_of = |other: &Kind| known.iter().find(|(known, _)| known == other).map(|(_, mean)| mean);
            let taken: Option<f64> = others.iter().map(mean_of).sum();
            Some(of(exchange) as f64 - taken?)
        });
        mean(&added.collect::<Vec<_>>())
    }

    /// The window extrapolated, but for reports: it is too short for one, and where one falls into it all the same that says
    /// nothing of how often they come.
    pub fn bytes_per_day(&self) -> Option<f64> {
        let report = self.mean(Kind::Report, |exchange| exchange.ip_bytes)?;
        let seconds = (self.window_us[1] - self.window_us[0]) as f64 / 1e6;
        let reports = self.in_window().filter(|exchange| exchange.requests.contains(&Kind::Report)).count() as f64;
        let without = self.window_bytes as f64 - reports * report;
        Some(without / seconds * DAY_SECONDS + report * DAY_SECONDS / REPORT_SECONDS)
    }

    fn in_window(&self) -> impl Iterator<Item = &Exchange> {
        let [from_us, to_us] = self.window_us;
        self.exchanges.iter().filter(move |exchange| (from_us..to_us).contains(&exchange.at_us))
    }

    /// What the window held, and what came after it: each kind of exchange, how often, and its IP bytes.
    pub fn in_words(&self) -> String {
        let after = self.exchanges.iter().filter(|exchange| exchange.at_us >= self.window_us[1]);
        format!("IP bytes of the count {}: {}; after it {}", self.window_bytes, sums(self.in_window()), sums(after))
    }
}

fn sums<'a>(exchanges: impl Iterator<Item = &'a Exchange>) -> String {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for exchange in exchanges {
        let mut names: Vec<&str> = exchange.requests.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        let name = if names.is_empty() { "no request".to_owned() } else { names.join(" + ") };
        let (count, bytes) = sums.entry(name).or_default();
        (*count, *bytes) = (*count + 1, *bytes + exchange.ip_bytes);
    }
    let sums: Vec<String> = sums.iter().map(|(name, (count, bytes))| format!("{count} of {name} {bytes}")).collect();
    sums.join(", ")
}

/// How often each program was on a processor.
pub fn wake_ups(figures: &[Figures]) -> [Row; 2] {
    let row = |title, goal, of: fn(&Usage) -> u64| {
        let all: Vec<_> = figures.iter().map(|one| one.per_renewal(of(&one.usage))).collect();
        Row::new(title, goal, &all, table::tenths)
    };
    [
        row(WAKE_UPS, Some(1.3), |usage| usage.waits),
        row("preemptions by others per renewal", None, |usage| usage.preemptions),
    ]
}

pub const WAKE_UPS: &str = "wake-ups per renewal";

/// What each program sends and receives, over IPv4 or over what it was measured with. `unwatched`: which of them is nodepulse
/// without a watch. From its figures is an assertion, which one with a watch never makes.
pub fn bytes_on_the_wire(figures: &[Figures], unwatched: Option<usize>) -> Vec<Row> {
    let each = |of: &dyn Fn(&Figures) -> Option<f64>| figures.iter().map(of).collect::<Vec<_>>();
    let bytes = |kind| each(&move |one| one.mean(kind, |exchange| exchange.ip_bytes));
    let packets = each(&|one| one.mean(Kind::Renewal, |exchange| exchange.packets));
    let mut assertions = bytes(Kind::Assertion);
    if let Some(figure) = unwatched.and_then(|place| assertions.get(place).copied())
        && let Some(ours) = assertions.first_mut()
    {
        *ours = figure;
    }
    vec![
        Row::new("IP bytes per renewal", Some(361.0), &bytes(Kind::Renewal), table::whole),
        Row::new("packets per renewal", Some(3.0), &packets, table::tenths),
        Row::new("IP bytes per report, and its echo", Some(1050.0), &bytes(Kind::Report), table::whole),
        Row::new("IP bytes per assertion (60 s)", Some(400.0), &assertions, table::whole),
        Row::new("IP bytes per day", Some(3.6e6), &each(&Figures::bytes_per_day), table::megabytes),
    ]
}

fn mean(all: &[f64]) -> Option<f64> {
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

pub fn now_us() -> Result<u64> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
    u64::try_from(since_1970.as_micros()).map_err(|e| e.to_string())
}
