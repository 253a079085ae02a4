//! Turns each profile of `network` settings into what a day of it costs: by itself, behind boxes that forget a silent
//! connection after 120 s and after 30 s, and with assertions in the place of the watch.
//!
//! Every agent runs at its own cadence, behind a link of 80 ms and MTU 1400. The bytes are the kernel's, shared out by purpose, as
//! `nodepulse cost` says them from one renewal to another; a capture beside them has the sum. Assertions and reports are rarer than
//! that lasts: they are counted as often as the settings say, at what one costs in the profile `lan`, with its echo on the watch,
//! unless connections die.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::cluster::{Cluster, NodeIdentity, Result, binaries};
use super::figures::DAY_SECONDS;
use super::link::LINK;
use super::outage::{self, site};
use super::programs;
use super::requests::{is_renewal, now_us, wait_until_ready};
use super::table::{self, Row};
use super::wire::{Capture, Sees};

pub const ARGUMENT: &str = "--profiles";

/// One of them, with the grace of its controller.
struct Profile {
    name: &'static str,
    grace_seconds: u64,
    assertion_seconds: f64,
    report_seconds: f64,
    goal_bytes: f64,
}

const PROFILES: [Profile; 4] = [
    Profile { name: "lan", grace_seconds: 50, assertion_seconds: 60.0, report_seconds: 300.0, goal_bytes: 3.6e6 },
    Profile { name: "metered", grace_seconds: 50, assertion_seconds: 600.0, report_seconds: 3600.0, goal_bytes: 1.8e6 },
    Profile {
        name: "metered",
        grace_seconds: 120,
        assertion_seconds: 600.0,
        report_seconds: 3600.0,
        goal_bytes: 0.9e6,
    },
    Profile {
        name: "satellite",
        grace_seconds: 600,
        assertion_seconds: 3600.0,
        report_seconds: 43_200.0,
        goal_bytes: 0.25e6,
    },
];
/// When a silent connection is forgotten, and whether the Node is watched.
const BOXES: [(&str, Option<u64>, &str); 4] = [
    ("never forgotten", None, "true"),
    ("forgotten after 120 s", Some(120), "true"),
    ("after 30 s", Some(30), "true"),
    ("never, and not watched", None, "false"),
];

/// Start-up is over then.
const SETTLE: Duration = Duration::from_secs(60);
/// Least time between two looks at what one has counted.
const BETWEEN_LOOKS: Duration = Duration::from_secs(200);
/// Of a renewal: what it was, its own acknowledgement included, has been counted then.
const AFTER_RENEWAL_US: u64 = 2_000_000;

/// In the second life, which prints.
pub fn measure(quick: bool, program: &Path) -> Result<()> {
    let mut command = outage::in_own_network(program, &[binaries::CONTROL_PLANE.as_slice()])?;
    command.arg(ARGUMENT).args(quick.then_some(outage::QUICK));
    outage::run_to_its_end(command)
}

pub fn inside(quick: bool) -> Result<()> {
    let whole = Duration::from_secs(if quick { 500 } else { 1000 });
    let (program, triple) = programs::nodepulse()?;
    let cluster = outage::cluster_of_sites(Duration::from_secs(600))?;
    let capture = Capture::open(cluster.api.port, Sees::EveryCable)?;
    let mut boards = Vec::new();
    for profile in &PROFILES {
        for (_, forgotten_after_s, watches) in BOXES {
            let forgets_after = forgotten_after_s.map(Duration::from_secs);
            boards.push(Board::start(&cluster, &program, profile, forgets_after, watches)?);
        }
    }
    let began = Instant::now();
    eprintln!("bench: {} boards are Ready; the rest takes {} s", boards.len(), (SETTLE + whole).as_secs());
    sleep(SETTLE);
    while began.elapsed() < SETTLE + whole {
        sleep(Duration::from_secs(1));
        boards.iter_mut().try_for_each(|board| board.look(&cluster, &capture))?;
    }
    let costs = boards.iter_mut().map(|board| board.cost(&cluster)).collect::<Result<Vec<_>>>()?;
    print(&triple, &costs);
    Ok(())
}

/// An agent behind a box.
struct Board {
    profile: &'static Profile,
    site: site::Site,
    node: NodeIdentity,
    agent: Nodepulse,
    began_us: u64,
    first: Option<Look>,
    last: Option<Look>,
}

/// What it had counted soon after a renewal.
struct Look {
    renewal_us: u64,
    /// Purpose, how often, and IP bytes.
    sums: Vec<(String, u64, u64)>,
    captured_bytes: u64,
}

/// What one cost, from one renewal to another.
struct Cost {
    renewals: f64,
    seconds: f64,
    sums: Vec<(String, f64, f64)>,
    captured_bytes: f64,
    longest_s: f64,
    grace_s: f64,
    named: usize,
}

impl Board {
    fn start(
        cluster: &Cluster,
        program: &Path,
        profile: &'static Profile,
        forgets_after: Option<Duration>,
        watches: &str,
    ) -> Result<Board> {
        let site = site::Site::over(cluster, site::Link { forgets_after, ..LINK })?;
        let node = cluster.node("p")?;
        let (key, room) = ROOM_ON_DISK;
        let launch = Launch::with_defaults(&node)
            .program(vec![program.display().to_string()])
            .set("profile", profile.name)
            .set("nodeWatch", watches)
            .set("nodeMonitorGracePeriod", &format!("{}s", profile.grace_seconds))
            // A machine without an NTP client says so after ten minutes, once: no part of each day.
            .set("conditions", "{NTPProblem: false}")
            .set(key, room);
        let (began_us, agent) = (now_us(), site.launch(&cluster.api, &node, launch)?.start(cluster)?);
        wait_until_ready(cluster, &node)?;
        Ok(Board { profile, site, node, agent, began_us, first: None, last: None })
    }

    fn renewals_us(&self, cluster: &Cluster) -> Result<Vec<u64>> {
        let all = cluster.audit_of(&self.node)?;
        Ok(all.iter().filter(|entry| is_renewal(entry)).map(|entry| entry.received_at_us).collect())
    }

    /// Soon after a renewal, now and then.
    fn look(&mut self, cluster: &Cluster, capture: &Capture) -> Result<()> {
        let since = self.last.as_ref().or(self.first.as_ref()).map_or(self.began_us, |look| look.renewal_us);
        let now = now_us();
        if self.first.is_some() && Duration::from_micros(now - since) < BETWEEN_LOOKS {
            return Ok(());
        }
        let Some(renewal_us) = self.renewals_us(cluster)?.last().copied() else { return Ok(()) };
        if renewal_us <= since || now - renewal_us < AFTER_RENEWAL_US || now - renewal_us > 3 * AFTER_RENEWAL_US {
            return Ok(());
        }
        let captured_bytes = capture.bytes(self.site.address(0).into(), 0, now);
        let said = self.agent.cost(&[])?;
        let mut sums: Vec<(String, u64, u64)> = Vec::new();
        for day in said["days"].as_array().into_iter().flatten() {
            for (purpose, sum) in day["purposes"].as_object().into_iter().flatten() {
                let [count, bytes] = ["count", "bytes"].map(|what| sum[what].as_u64().unwrap_or_default());
                match sums.iter_mut().find(|(known, ..)| known == purpose) {
                    Some(known) => (known.1, known.2) = (known.1 + count, known.2 + bytes),
                    None => sums.push((purpose.clone(), count, bytes)),
                }
            }
        }
        let look = Look { renewal_us, sums, captured_bytes };
        if self.first.is_none() {
            self.first = Some(look)
        } else {
            self.last = Some(look)
        }
        Ok(())
    }

    fn cost(&mut self, cluster: &Cluster) -> Result<Cost> {
        self.agent.check()?;
        let missing =
            || format!("{} was renewed too rarely: {}", self.node.name, self.agent.said().unwrap_or_default());
        let (Some(first), Some(last)) = (&self.first, &self.last) else { return Err(missing()) };
        let all = self.renewals_us(cluster)?;
        let renewals = all.iter().filter(|at_us| (first.renewal_us + 1..=last.renewal_us).contains(at_us)).count();
        let starts = std::iter::once(&self.began_us).chain(&all);
        let longest_us = starts.zip(&all).map(|(one, next)| next.saturating_sub(*one)).max().unwrap_or_default();
        let sums = first.sums.iter().zip(&last.sums).map(|((name, count, bytes), (_, more, more_bytes))| {
            (name.clone(), more.saturating_sub(*count) as f64, more_bytes.saturating_sub(*bytes) as f64)
        });
        Ok(Cost {
            renewals: renewals as f64,
            seconds: (last.renewal_us - first.renewal_us) as f64 / 1e6,
            sums: sums.collect(),
            captured_bytes: (last.captured_bytes - first.captured_bytes) as f64,
            longest_s: longest_us as f64 / 1e6,
            grace_s: self.profile.grace_seconds as f64,
            named: self.agent.count_lines("connection-forgotten")?,
        })
    }
}

impl Cost {
    fn of(&self, purpose: &str) -> (f64, f64) {
        let found = self.sums.iter().find(|(name, ..)| name == purpose);
        found.map_or((0.0, 0.0), |(_, count, bytes)| (*count, *bytes))
    }

    fn bytes(&self) -> f64 {
        self.sums.iter().map(|(_, _, bytes)| bytes).sum()
    }

    /// What one of these takes; none where none came.
    fn each(&self, purpose: &str) -> f64 {
        let (count, bytes) = self.of(purpose);
        if count > 0.0 { bytes / count } else { 0.0 }
    }

    /// What goes on all the time as it was, and what is rare as often as the settings say, each at what it is in `lan`. Where
    /// connections die, that comes with new ones as well: there it is taken as it came, if that was more.
    fn bytes_per_day(&self, profile: &Profile, lan: &Cost) -> f64 {
        let a_day = |bytes: f64| bytes / self.seconds * DAY_SECONDS;
        let came = self.of("assertion").1 + self.of("status").1 + self.of("watch").1;
        let reports = DAY_SECONDS / profile.report_seconds;
        let assertions = DAY_SECONDS / profile.assertion_seconds - reports;
        let echo = lan.of("watch").1 / lan.of("status").0.max(1.0);
        let set = assertions * lan.each("assertion") + reports * (lan.each("status") + echo);
        let rare = if self.of("handshake").0 > 0.0 { set.max(a_day(came)) } else { set };
        a_day(self.bytes() - came) + rare
    }
}

fn print(triple: &str, costs: &[Cost]) {
    let mut rows = Vec::new();
    let boxes = BOXES.len();
    for (place, profile) in PROFILES.iter().enumerate() {
        let row = costs.get(place * boxes..(place + 1) * boxes).unwrap_or_default();
        let each = |of: &dyn Fn(&Cost) -> f64| row.iter().map(|cost| Some(of(cost))).collect::<Vec<_>>();
        let name = |what: &str| format!("{} at {} s: {what}", profile.name, profile.grace_seconds);
        let day: Vec<_> = row.iter().zip(costs).map(|(cost, lan)| Some(cost.bytes_per_day(profile, lan))).collect();
        rows.push(Row::new(name("IP bytes per day"), Some(profile.goal_bytes), &day, table::megabytes));
        let per_renewal = each(&|cost| cost.of("lease").1 / cost.renewals);
        rows.push(Row::new(name("IP bytes per renewal"), None, &per_renewal, table::whole));
        let connections = each(&|cost| cost.of("handshake").0 / cost.seconds * DAY_SECONDS);
        rows.push(Row::new(name("connections per day"), None, &connections, table::whole));
        let handshake = each(&|cost| cost.each("handshake"));
        rows.push(Row::new(name("IP bytes of one"), None, &handshake, table::whole));
        let longest = each(&|cost| cost.longest_s);
        rows.push(Row::new(
            name("longest without renewal"),
            Some(profile.grace_seconds as f64),
            &longest,
            table::seconds,
        ));
    }
    println!(
        "nodepulse for {triple}; each over {:.0} s at least, by itself and behind boxes that forget silent connections.\n",
        costs.iter().map(|cost| cost.seconds).fold(f64::MAX, f64::min)
    );
    table::print(&BOXES.map(|(title, ..)| title.to_owned()), &rows);
    for (place, cost) in costs.iter().enumerate() {
        let (profile, (title, ..)) = (&PROFILES[place / boxes], BOXES[place % boxes]);
        let sums: Vec<String> = cost
            .sums
            .iter()
            .filter(|(_, count, bytes)| *count > 0.0 || *bytes > 0.0)
            .map(|(name, count, bytes)| format!("{count} {name} {bytes}"))
            .collect();
        println!(
            "{} at {} s, {title}: {} renewals in {:.0} s; {}; captured {}; {} in the log{}",
            profile.name,
            profile.grace_seconds,
            cost.renewals,
            cost.seconds,
            sums.join(", "),
            cost.captured_bytes,
            if cost.named > 0 { "named" } else { "not named" },
            if cost.longest_s < cost.grace_s { "." } else { "; NOT READY THROUGHOUT." }
        );
    }
}
