//! Files on a file system that stops answering, as one of a server does that is gone: the Lease is renewed, the end is soon,
//! and what was to be read or written is once it answers again.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::super::fuse::Fuse;
use super::super::requests::{SOON, is_renewal, now_us, wait_for_node, wait_until_ready};
use super::super::trials::Need;
use super::Case;
use super::links::say;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// `evictionHard` with memory enough, and too little of it.
const CALM: &str = "{memory.available: 1Mi, nodefs.available: 1Mi, nodefs.inodesFree: '1'}";
const PRESSED: &str = "{memory.available: 8Ti, nodefs.available: 1Mi, nodefs.inodesFree: '1'}";
/// Renewals come every second here; a busy machine may double that.
const LONGEST_GAP: Duration = Duration::from_millis(3500);
const END: Duration = Duration::from_secs(3);
/// Longer than anybody is patient with a disk (ten seconds).
const HANGS_FOR: Duration = Duration::from_secs(15);

pub fn cases() -> Vec<Case> {
    const NEEDS: &[Need] = &[Need::Root, Need::Networks, Need::Bindfs];
    let case = |name, run| Case { name, needs: NEEDS, run };
    vec![
        case(
            "a_state_directory_that_stops_answering_stops_nothing",
            a_state_directory_that_stops_answering_stops_nothing,
        ),
        case(
            "a_state_directory_that_is_dead_at_the_start_stops_nothing",
            a_state_directory_that_is_dead_at_the_start_stops_nothing,
        ),
        case(
            "settings_and_credentials_that_stop_answering_stop_nothing",
            settings_and_credentials_that_stop_answering_stop_nothing,
        ),
    ]
}

/// An agent and its helper threads, watched while its files hang.
struct Hung<'a> {
    cluster: &'a Cluster,
    node: &'a NodeIdentity,
    fuse: Fuse,
    agent: Nodepulse,
    /// The most that were seen at once of each helper, by its name.
    helpers: BTreeMap<String, usize>,
}

impl Hung<'_> {
    fn look(&mut self) -> Result<()> {
        let pid = self.agent.pid().ok_or("it does not run")?;
        let mut names = BTreeMap::<String, usize>::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())? {
            let thread = thread.map_err(|e| e.to_string())?;
            if thread.file_name().to_string_lossy() == pid.to_string() {
                continue;
            }
            // One that ends in this moment has no name any more.
            let Ok(name) = fs::read_to_string(thread.path().join("comm")) else { continue };
            *names.entry(name.trim().to_owned()).or_default() += 1;
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            if status.contains("Seccomp:\t0") {
                return Err(format!("{} is outside of the sandbox: {status}", name.trim()));
            }
        }
        for (name, count) in names {
            let most = self.helpers.entry(name).or_default();
            *most = count.max(*most);
        }
        Ok(())
    }

    /// For so long it renews its Lease, with no pause that is longer than it may be.
    fn renews_for(&mut self, span: Duration) -> Result<()> {
        let (began, began_us) = (Instant::now(), now_us());
        while began.elapsed() < span {
            let seen = self.renewals(began_us)?.len();
            wait_until("the next renewal", SOON, || {
                self.look()?;
                if self.renewals(began_us)?.len() > seen { Ok(()) } else { Err("not yet".to_owned()) }
            })?;
        }
        let times = self.renewals(began_us)?;
        let gaps = std::iter::once(began_us).chain(times.iter().copied()).zip(times.iter().copied());
        let longest = Duration::from_micros(gaps.map(|(one, next)| next - one).max().unwrap_or_default());
        say(&format!("{}: {} renewals while its files hang, the longest gap", self.node.name, times.len()), longest);
        assert!(longest < LONGEST_GAP, "{longest:?} without a renewal");
        let waiting = self.fuse.waiting()?;
        assert!(waiting > 0, "nobody waits for the file system: the test shows nothing");
        let twice: Vec<_> = self.helpers.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "a second helper asks the same: {twice:?} of {:?}", self.helpers);
        self.agent.check()
    }

    fn renewals(&self, since_us: u64) -> Result<Vec<u64>> {
        let all = self.cluster.audit_of(self.node)?;
        let since = all.iter().filter(|e| is_renewal(e) && e.received_at_us > since_us);
        Ok(since.map(|e| e.received_at_us).collect())
    }

    fn reports(&self, status: &'static str) -> Result<()> {
        let is_so = |node: &Value| {
            let found = super::super::cluster::condition(node, "MemoryPressure")?;
            (found["status"] == status).then_some(())
        };
        wait_for_node(self.cluster, self.node, &format!("MemoryPressure {status}"), SOON, is_so)
    }

    /// SIGTERM while nothing answers.
    fn ends(mut self) -> Result<()> {
        self.fuse.hang()?;
        let pid = self.agent.pid().ok_or("it does not run")?;
        let asked = Instant::now();
        self.agent.signal(Signal::SIGTERM)?;
        // The kernel keeps what is left of a process for as long as a file system has a question of one of its threads.
        wait_until("it to end", 2 * END, || match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => Err(stat),
            _ => Ok(()),
        })?;
        let took = asked.elapsed();
        self.fuse.answer()?;
        let code = self.agent.exit_code(SOON)?;
        say(&format!("{}: SIGTERM while its files hang, to the end", self.node.name), took);
        assert!(code == 0 && took < END, "exit code {code} after {took:?}");
        Ok(())
    }
}

/// Before the agent goes, which is waited for; that it fails is not the worst then.
impl Drop for Hung<'_> {
    fn drop(&mut self) {
        let _ = self.fuse.answer();
    }
}

fn launch<'a>(node: &'a NodeIdentity, state: &Path) -> Launch<'a> {
    let launch = Launch::quick(node).set("stateDirectory", &state.display().to_string());
    launch.set("evictionPressureTransitionPeriod", "1s").set("evictionHard", CALM)
}

fn journal(fuse: &Fuse) -> Vec<u8> {
    fs::read(fuse.folder.join("journal")).unwrap_or_default()
}

fn wait_for_a_record(fuse: &Fuse, before: &[u8]) -> Result<()> {
    let is_written = || if journal(fuse) == before { Err("it is as it was".to_owned()) } else { Ok(()) };
    wait_until("a record in the journal", SOON, is_written)
}

fn a_state_directory_that_stops_answering_stops_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("mounted")?;
    let fuse = Fuse::mount(cluster, &node.dir.join("mounted"))?;
    let agent = launch(&node, &fuse.folder).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for_a_record(&fuse, &[])?;
    let mut hung = Hung { cluster, node: &node, fuse, agent, helpers: BTreeMap::new() };
    let before = journal(&hung.fuse);
    hung.fuse.hang()?;
    // A record that waits for the disk is told all the same, some seconds later.
    hung.agent.reload_with("evictionHard", PRESSED)?;
    hung.renews_for(HANGS_FOR)?;
    hung.reports("True")?;
    assert!(hung.helpers.len() >= 2, "who looks at the disk and who writes to it: {:?}", hung.helpers);
    hung.fuse.answer()?;
    wait_for_a_record(&hung.fuse, &before)?;
    let before = journal(&hung.fuse);
    hung.agent.reload_with("evictionHard", CALM)?;
    hung.reports("False")?;
    wait_for_a_record(&hung.fuse, &before)?;
    hung.ends()
}

fn a_state_directory_that_is_dead_at_the_start_stops_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("dead")?;
    let mut fuse = Fuse::mount(cluster, &node.dir.join("dead"))?;
    fuse.hang()?;
    let mut agent = launch(&node, &fuse.folder).start(cluster)?;
    agent.wait_for_line(&["state-silent", "does not answer"], SOON)?;
    // Who waits for the disk with the first record does so for ten seconds, too.
    agent.wait_for_line(&["lease-held:"], 3 * SOON)?;
    let mut hung = Hung { cluster, node: &node, fuse, agent, helpers: BTreeMap::new() };
    hung.renews_for(HANGS_FOR)?;
    hung.fuse.answer()?;
    // The size of the disk is on the Node now, which was missing.
    wait_until_ready(cluster, &node)?;
    hung.agent.reload_with("evictionHard", PRESSED)?;
    hung.reports("True")?;
    wait_for_a_record(&hung.fuse, &[])?;
    hung.ends()
}

fn settings_and_credentials_that_stop_answering_stop_nothing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("all-mounted")?;
    let fuse = Fuse::mount(cluster, &node.dir)?;
    let agent = launch(&node, &node.dir.join("state")).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let mut hung = Hung { cluster, node: &node, fuse, agent, helpers: BTreeMap::new() };
    hung.fuse.hang()?;
    for _ in 0..3 {
        hung.agent.signal(Signal::SIGHUP)?;
        hung.renews_for(HANGS_FOR / 3)?;
    }
    hung.agent.wait_for_line(&["reload-refused", "do not answer"], SOON)?;
    hung.fuse.answer()?;
    // Whoever read them is done first; who asks meanwhile is told that they do not answer.
    let pid = hung.agent.pid().ok_or("it does not run")?;
    wait_until("the helper to be gone", SOON, || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| e.to_string())?.count();
        if threads == 1 { Ok(()) } else { Err(format!("{threads} threads")) }
    })?;
    hung.agent.reload_with("evictionHard", PRESSED)?;
    hung.reports("True")?;
    hung.ends()
}
