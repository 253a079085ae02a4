//! Turns a journal as full as it can be into the memory that telling all of it takes.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nodepulse::config::Settings;
use nodepulse::config::limits::WAITING_RECORDS;
use nodepulse::io::clock;
use nodepulse::journal::record::cut;
use nodepulse::journal::{BootId, Happened, Journal, Status, Write};

use super::agent::Launch;
use super::cluster::{Cluster, NodeIdentity, Result};
use super::outage::{Replay, site::Site};
use super::process::{Usage, forget_peak, peak_rss_kib};
use super::requests::{is_event, wait_for_requests};

/// The process adds that it has started, that the board has, and that it runs.
const OWN_RECORDS: usize = 3;
/// A server that is back is left in peace for ten to twenty seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much longer than two seconds for each it may take: the ceiling of requests in a minute leaves events that much, and
/// heartbeats go first.
const SLACK: Duration = Duration::from_secs(60);

/// `changes`: how many wait when the process starts; `None`: as many as can.
pub fn measure(cluster: &Cluster, program: &Path, changes: Option<usize>) -> Result<Replay> {
    let changes = changes.unwrap_or(WAITING_RECORDS - OWN_RECORDS);
    let site = Site::new(cluster)?;
    let node = cluster.node("r")?;
    leave_behind(&node, changes)?;
    let launch = Launch::with_defaults(&node).program(vec![program.display().to_string()]);
    let mut agent = site.launch(&cluster.api, &node, launch)?.start(cluster)?;
    let pid = agent.pid().ok_or("it was not started")?;
    let told = |least: usize, within| {
        let is_told = |e: &&super::cluster::AuditEntry| is_event(e) && e.code == 201;
        wait_for_requests(&cluster.api, &node, "events", within, |all| all.iter().filter(is_told).count() >= least)
            .map(|all| all.iter().filter(is_told).count())
    };
    told(1, PATIENCE)?;
    forget_peak(pid)?;
    let (began, most) = (Instant::now(), Duration::from_secs(2 * changes as u64) + SLACK);
    let mut rss_kib = 0;
    loop {
        agent.check()?;
        rss_kib = rss_kib.max(Usage::of(pid)?.rss_kib);
        let waiting = agent.json(&["journal"])?["records"].as_array().map_or(0, Vec::len);
        if waiting == 0 {
            break;
        }
        if began.elapsed() > most {
            let count = told(0, Duration::ZERO)?;
            return Err(format!("after {} s {count} events are told and {waiting} records wait", most.as_secs()));
        }
        sleep(Duration::from_secs(1));
    }
    let events = told(0, Duration::ZERO)?;
    if events < changes {
        return Err(format!("of {changes} changes {events} are told, and nothing waits"));
    }
    Ok(Replay { events, seconds: began.elapsed().as_secs_f64(), rss_kib: rss_kib.max(peak_rss_kib(pid)?) })
}

/// The journal of an earlier boot in which nobody was reached.
fn leave_behind(node: &NodeIdentity, changes: usize) -> Result<()> {
    let (mut journal, _) = Journal::recover(&[], Settings::default().journal_quota_bytes, BootId(7));
    let now = clock::now();
    for change in 0..changes {
        let (condition, reason) = [
            ("MemoryPressure", "KubeletHasInsufficientMemory"),
            ("DiskPressure", "KubeletHasDiskPressure"),
            ("PIDPressure", "KubeletHasInsufficientPID"),
        ][change % 3];
        let (from, to) = if change % 2 == 0 { (Status::False, Status::True) } else { (Status::True, Status::False) };
        let what = Happened::ConditionChanged { condition: cut(condition), from, to, reason: cut(reason) };
        journal.add(now, what);
    }
    let Some(Write::Replace { bytes }) = journal.next_write(now.up) else { return Err("nothing to write".to_owned()) };
    let folder = node.dir.join("state");
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    let file = made
        .and_then(|()| fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("journal")));
    file.and_then(|mut file| std::io::Write::write_all(&mut file, &bytes)).map_err(|e| e.to_string())
}
