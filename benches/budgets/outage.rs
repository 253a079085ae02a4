//! Turns an agent on a card and behind a cable of its own into what an outage costs.
//!
//! Measured by a second life of this program, in a network and with mounts of its own: nothing of this machine's is
//! touched, and the kernel takes all of it back when the process ends, however it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{scope, sleep};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agent::{Launch, Nodepulse};
use super::card::Card;
use super::cluster::{AuditEntry, Cluster, NodeIdentity, Options, Result, binaries};
use super::requests::{is_status_patch, now_us, status_of, wait_for_requests, wait_until_ready};
use super::table::{self, Row};
use super::wire::{Capture, Connection, Sees};
use super::{day, programs, replay, trials};

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/outage/site.rs"]
pub mod site;

use site::Site;

/// The command line of the second life.
pub const INSIDE: &str = "--inside";
pub const QUICK: &str = "--quick";

/// What an outage costs; empty where this machine cannot measure it.
#[derive(Default, Serialize, Deserialize)]
pub struct Outage {
    /// The same without an outage: bytes that reached the card in a while of peace, for each hour.
    pub online_bytes_per_hour: Option<f64>,
    /// Changes while online, each by itself.
    pub changes: Option<Written>,
    /// A day offline with a change a minute.
    pub day: Option<Written>,
    pub ways_back: Vec<WayBack>,
    pub replay: Option<Replay>,
}

impl Outage {
    /// Of a table with so many programs, of which only the first is measured.
    pub fn rows(&self, programs: usize) -> Vec<Row> {
        let ours = |figure: Option<f64>| [vec![figure], vec![None; programs - 1]].concat();
        let each = |bytes: u64, written: &Written| bytes as f64 / written.times.max(1) as f64;
        let (change, day) = (self.changes.as_ref(), self.day.as_ref());
        let writes = day.map(|all| format!("({} writes)", all.times));
        let most = |of: fn(&WayBack) -> u64| self.ways_back.iter().map(of).max().map(|figure| figure as f64);
        let replay = self.replay.as_ref();
        let events = replay.map(|all| format!("({} events in {} s)", all.events, table::whole(all.seconds)));
        vec![
            Row::new("on ext4: bytes per hour online", Some(0.0), &ours(self.online_bytes_per_hour), table::whole),
            Row::new(
                "bytes written per change",
                Some(4096.0),
                &ours(change.map(|all| each(all.own_bytes, all))),
                table::whole,
            ),
            Row::new(
                "on ext4, its own included",
                None,
                &ours(change.map(|all| each(all.device_bytes, all))),
                table::whole,
            ),
            Row::new(
                "bytes written per day offline, a change a minute",
                Some(262_144.0),
                &ours(day.map(|all| all.own_bytes as f64)),
                table::whole,
            )
            .with_remark(0, writes),
            Row::new("on ext4, its own included", None, &ours(day.map(|all| all.device_bytes as f64)), table::whole),
            Row::new("link-up to Ready: requests", Some(2.0), &ours(most(|way| way.requests)), table::whole),
            Row::new("link-up to Ready: IP bytes", Some(5500.0), &ours(most(|way| way.ip_bytes)), table::whole),
            Row::new(
                "link-up to Ready: IP bytes of before",
                None,
                &ours(most(|way| way.former_ip_bytes)),
                table::whole,
            ),
            Row::new("link-up to Ready: time", None, &ours(most(|way| way.milliseconds)), table::milliseconds),
            Row::new(
                "memory (RSS) in a full replay",
                Some(3.5e6),
                &ours(replay.map(|all| all.rss_kib as f64 * 1024.0)),
                table::megabytes,
            )
            .with_remark(0, events),
        ]
    }
}

/// What was written to a card.
#[derive(Default, Serialize, Deserialize)]
pub struct Written {
    pub times: u64,
    /// By the program, in whole blocks.
    pub own_bytes: u64,
    /// What reached the device, the file system's own included.
    pub device_bytes: u64,
}

/// From the carrier to the answer that makes the Node Ready.
#[derive(Serialize, Deserialize)]
pub struct WayBack {
    pub requests: u64,
    /// Of what was connected since.
    pub ip_bytes: u64,
    /// What the server repeats over connections of before, and how the board's kernel refuses that.
    pub former_ip_bytes: u64,
    pub milliseconds: u64,
}

/// A journal that was told.
#[derive(Serialize, Deserialize)]
pub struct Replay {
    pub events: usize,
    pub seconds: f64,
    /// The highest on the way.
    pub rss_kib: u64,
}

/// How long everything takes.
struct Plan {
    settle: Duration,
    peace: Duration,
    changes: u64,
    cuts: usize,
    /// Changes to be told; `None`: as many as can wait.
    told: Option<usize>,
}

impl Plan {
    fn new(quick: bool) -> Plan {
        let seconds = Duration::from_secs;
        if quick {
            Plan { settle: seconds(5), peace: seconds(10), changes: 2, cuts: 1, told: Some(30) }
        } else {
            Plan { settle: seconds(15), peace: seconds(60), changes: 6, cuts: 3, told: None }
        }
    }
}

/// A Node is given up after this, so that each cut has a Node to make Ready again: what an agent reckons with that was told
/// nothing else.
const GRACE: Duration = Duration::from_secs(50);
const PATIENCE: Duration = Duration::from_secs(90);
/// After the answer that makes the Node Ready: the last ACK.
const LAST_ACK: Duration = Duration::from_millis(100);

/// `evictionHard` while all is well, and while memory is short.
const CALM: &str = "{memory.available: 1Mi, nodefs.available: 1Mi, nodefs.inodesFree: '1'}";
const SHORT: &str = "{memory.available: 8Ti, nodefs.available: 1Mi, nodefs.inodesFree: '1'}";

/// In the second life. Where that is not to be had, an error in one line.
pub fn measure(quick: bool, nodepulse: &Path) -> Result<Outage> {
    let mut command = in_own_network(nodepulse, &[&binaries::CONTROL_PLANE])?;
    command.args(quick.then_some(QUICK)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|e| format!("unshare: {e}"))?;
    if !output.status.success() {
        return Err(failed(output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("what it printed is not understood: {e}"))
}

/// The second life of this program, with these programs of a cluster.
pub fn in_own_network(nodepulse: &Path, programs: &[&[&'static str]]) -> Result<Command> {
    trials::networks().clone()?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", site::OUTER_NETWORK, "outage"]);
    command.arg(own).arg(INSIDE).env("NODEPULSE", nodepulse);
    // What has to be built is built before: from inside nothing can be downloaded.
    for (name, path) in binaries::find(&programs.concat())? {
        command.env(format!("CLUSTER_{}", name.to_uppercase().replace('-', "_")), path);
    }
    Ok(command)
}

/// One that prints what it finds itself.
pub fn run_to_its_end(mut command: Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().map_err(|e| format!("unshare: {e}"))?;
    if status.success() { Ok(()) } else { Err(failed(status)) }
}

fn failed(status: ExitStatus) -> String {
    format!("the part in a network of its own failed ({status}); it said why above")
}

/// One whose server is reached from sites, and waits so long for a Node.
pub fn cluster_of_sites(grace: Duration) -> Result<Cluster> {
    Cluster::start(Options {
        node_monitor_grace_period: grace,
        node_startup_grace_period: grace,
        more_addresses: site::SERVER_ADDRESSES.to_vec(),
        ..Options::default()
    })
}

/// The second life: prints what was measured, for the first.
pub fn inside(quick: bool) -> Result<()> {
    let plan = Plan::new(quick);
    let (program, _) = programs::nodepulse()?;
    let cluster = cluster_of_sites(GRACE)?;
    let card = Card::insert(cluster.folder(), "card");
    let card = card.inspect_err(|why| eprintln!("bench: bytes written to a card are not counted: {why}")).ok();
    let mut outage = Outage { day: card.as_ref().map(day::write_to).transpose()?, ..Outage::default() };
    let replayed = scope(|scope| {
        let replay = scope.spawn(|| replay::measure(&cluster, &program, plan.told));
        let alone = Board::start(&cluster, &program, card).and_then(|mut board| board.measure(&plan, &mut outage));
        let replayed = replay.join().unwrap_or_else(|_| Err("the replay panicked".to_owned()));
        alone.and(replayed)
    })?;
    outage.replay = Some(replayed);
    println!("{}", serde_json::to_string(&outage).map_err(|e| e.to_string())?);
    Ok(())
}

/// An agent that has its state on a card, and its server behind a cable.
struct Board<'a> {
    cluster: &'a Cluster,
    capture: Capture,
    card: Option<Card>,
    site: Site,
    node: NodeIdentity,
    agent: Nodepulse,
}

impl<'a> Board<'a> {
    fn start(cluster: &'a Cluster, program: &Path, card: Option<Card>) -> Result<Board<'a>> {
        let capture = Capture::open(cluster.api.port, Sees::EveryCable)?;
        let (site, node) = (Site::new(cluster)?, cluster.node("b")?);
        // What the kernel hands over as one is to be counted as the packets that it will be.
        let near = site.near(0);
        site::run(&["ip", "link", "set", &near, "gso_max_segs", "1"])?;
        site.inside(&["ip", "link", "set", "eth0", "gso_max_segs", "1"])?;
        let mut launch = Launch::with_defaults(&node)
            .program(vec![program.display().to_string()])
            .set("evictionHard", CALM)
            .set("evictionPressureTransitionPeriod", "1s");
        if let Some(card) = &card {
            let state: PathBuf = card.folder.join("state");
            let made = std::fs::create_dir(&state);
            made.and_then(|()| std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)))
                .map_err(|e| format!("{}: {e}", state.display()))?;
            launch = launch.set("stateDirectory", &state.display().to_string());
        }
        let agent = site.launch(&cluster.api, &node, launch)?.start(cluster)?;
        wait_until_ready(cluster, &node)?;
        Ok(Board { cluster, capture, card, site, node, agent })
    }

    fn measure(&mut self, plan: &Plan, outage: &mut Outage) -> Result<()> {
        sleep(plan.settle);
        if let Some(card) = self.card.take() {
            card.settle()?;
            let before = card.written_bytes()?;
            sleep(plan.peace);
            card.settle()?;
            let written = (card.written_bytes()? - before) as f64;
            outage.online_bytes_per_hour = Some(written / plan.peace.as_secs_f64() * 3600.0);
            outage.changes = Some(self.change(&card, plan.changes)?);
            self.card = Some(card);
        }
        for _ in 0..plan.cuts {
            outage.ways_back.push(self.cut_and_mend()?);
        }
        self.agent.check()
    }

    /// Changes of one condition, each told before the next.
    fn change(&mut self, card: &Card, times: u64) -> Result<Written> {
        let mut written = Written { times, ..Written::default() };
        for number in 0..times {
            let (eviction_hard, status) = if number % 2 == 0 { (SHORT, "True") } else { (CALM, "False") };
            let (before, since_us) = (card.written_bytes()?, now_us());
            self.agent.reload_with("evictionHard", eviction_hard)?;
            self.wait_for_report(since_us, "MemoryPressure", status)?;
            // A change is told as soon as its block is there; the file system takes its time for the rest.
            written.own_bytes += card.written_bytes()? - before;
            card.settle()?;
            written.device_bytes += card.written_bytes()? - before;
        }
        Ok(written)
    }

    /// A cable that is out for as long as it takes the controller to give the Node up.
    fn cut_and_mend(&mut self) -> Result<WayBack> {
        self.site.cut(0)?;
        self.cluster.wait_for_condition(&self.node.name, "Ready", "Unknown", PATIENCE)?;
        let back_us = now_us();
        self.site.mend(0)?;
        let (all, ready) = self.wait_for_report(back_us, "Ready", "True")?;
        sleep(LAST_ACK);
        let until_us = ready.completed_at_us;
        let requests = all.iter().filter(|e| (back_us..=until_us).contains(&e.received_at_us)).count() as u64;
        let last_us = until_us + u64::try_from(LAST_ACK.as_micros()).unwrap_or_default();
        let connections = self.capture.connections(self.site.address(0).into(), back_us, last_us);
        let (new, former): (Vec<_>, Vec<_>) = connections.iter().partition(|connection| connection.is_new);
        let sum = |of: &[Connection]| of.iter().map(Connection::ip_bytes).sum::<u64>();
        let (ip_bytes, former_ip_bytes) = (sum(&new), sum(&former));
        let spent_ms = (until_us - back_us) / 1000;
        eprintln!("bench: link-up to Ready: {ip_bytes} bytes, {spent_ms} ms, {requests} requests");
        for Connection { to_server, to_client, .. } in former {
            let [out, back] =
                [to_server, to_client].map(|(packets, bytes)| format!("{bytes} bytes in {packets} packets"));
            eprintln!("bench: besides, over a connection of before the outage: {out} to the server, {back} from it");
        }
        let longest = self.capture.longest_packet_bytes(self.site.address(0).into());
        if longest > 1500 {
            return Err(format!("a packet of {longest} bytes was seen, which no cable carries as one"));
        }
        Ok(WayBack { requests, ip_bytes, former_ip_bytes, milliseconds: spent_ms })
    }

    /// The first report that the server answered with this condition, and all requests so far.
    fn wait_for_report(&self, since_us: u64, kind: &str, status: &str) -> Result<(Vec<AuditEntry>, AuditEntry)> {
        let is_it = |e: &&AuditEntry| {
            // Where nothing of the answer is needed, only metadata is asked for: then what was accepted is what was sent.
            let says = [&e.reply, &e.body].into_iter().any(|object| status_of(object, kind) == status);
            e.received_at_us > since_us && is_status_patch(e) && e.code == 200 && says
        };
        let what = format!("a report with {kind} {status}");
        let all =
            wait_for_requests(&self.cluster.api, &self.node, &what, PATIENCE, |all| all.iter().any(|e| is_it(&e)))?;
        let first = all.iter().find(is_it).cloned().ok_or(what)?;
        Ok((all, first))
    }
}
