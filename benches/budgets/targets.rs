//! Turns the programs of `make release-all` into their sizes beside the goal, and one of them under callgrind into the
//! instructions that a renewal takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::cluster::daemon::Daemon;
use super::cluster::{AuditEntry, Cluster, Result, wait_until};
use super::figures::now_us;
use super::table;
use super::wire::Kind;

/// Each with the most bytes that its program may have.
const TARGETS: [(&str, f64); 5] = [
    ("aarch64-unknown-linux-musl", 1.70e6),
    ("armv7-unknown-linux-musleabihf", 1.70e6),
    ("arm-unknown-linux-musleabihf", 1.70e6),
    ("riscv64gc-unknown-linux-musl", 1.70e6),
    ("x86_64-unknown-linux-musl", 1.79e6),
];

/// Every period a tenth of its default, so that a renewal has its share of assertions and reports.
const SETTINGS: &str = "nodeLeaseDurationSeconds: 4\nnodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 30s\n\
    statusAssertFrequency: 6s\n";
/// What is counted lies between these: after start-up and what the controllers write then, with the first report without a
/// change in it, which comes after 30 to 45 s, and before a name that DNS does not know is looked up again, after a minute.
const RENEWALS: [usize; 2] = [20, 50];

/// One line for each program that was built, and one of what a renewal takes.
pub fn print(cluster: &Cluster, program: &Path, folder: &Path) {
    print_sizes(folder);
    match count_instructions(cluster, program) {
        Ok(Counted { renewals, reports, instructions }) => {
            let each = table::whole(instructions as f64 / renewals as f64);
            println!("A renewal: {each} instructions, mean of {renewals}, with {reports} reports between them.");
        }
        Err(why) => println!("Instructions are not counted: {why}"),
    }
}

fn print_sizes(folder: &Path) {
    println!("\nPrograms that ship:");
    for (triple, goal_bytes) in TARGETS {
        match fs::metadata(folder.join(triple).join("release/nodepulse")) {
            Ok(file) => {
                let bytes = file.len() as f64;
                let verdict = if bytes > goal_bytes { ", **too large**" } else { "" };
                println!("  {triple:<31} {:>9} bytes{verdict}", table::whole(bytes));
            }
            Err(_) => println!("  {triple:<31} not built (make release-all)"),
        }
    }
}

/// What a program did in a while.
struct Counted {
    renewals: usize,
    reports: usize,
    instructions: u64,
}

/// The instructions of some renewals and what falls between them, in user space.
fn count_instructions(cluster: &Cluster, program: &Path) -> Result<Counted> {
    let found = Command::new("valgrind").arg("--version").output();
    found.map_err(|why| format!("no valgrind ({why}); Debian: apt-get install valgrind"))?;
    let mut run = Run::start(cluster, program)?;
    let mut dumped_us = [0; 2];
    for (dumped_us, renewals) in dumped_us.iter_mut().zip(RENEWALS) {
        run.wait_for(cluster, renewals)?;
        *dumped_us = run.dump()?;
    }
    let made = cluster.api.audit(|entry| entry.user == run.user)?;
    let between = |entry: &&AuditEntry| (dumped_us[0]..dumped_us[1]).contains(&entry.received_at_us);
    let of = |kind| made.iter().filter(between).filter(|entry| Kind::of(entry) == kind).count();
    let counted = Counted { renewals: of(Kind::Renewal), reports: of(Kind::Report), instructions: run.totals(2)? };
    run.daemon.signal(Signal::SIGTERM)?;
    run.daemon.exit_code(Duration::from_secs(20))?;
    if counted.renewals == 0 { Err("no renewal was counted".to_owned()) } else { Ok(counted) }
}

struct Run {
    daemon: Daemon,
    user: String,
    /// Where callgrind writes, with a number behind it for each dump.
    output: PathBuf,
}

impl Run {
    fn start(cluster: &Cluster, program: &Path) -> Result<Run> {
        let node = cluster.node("c")?;
        let (settings, output) = (node.dir.join("config.yaml"), node.dir.join("callgrind.out"));
        let text = format!(
            "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{SETTINGS}stateDirectory: {}\n",
            node.dir.join("state").display()
        );
        fs::write(&settings, text).map_err(|e| e.to_string())?;
        let command = [
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            format!("--callgrind-out-file={}", output.display()),
            program.display().to_string(),
            "run".to_owned(),
            format!("--config={}", settings.display()),
            format!("--kubeconfig={}", node.kubeconfig.display()),
            format!("--hostname-override={}", node.name),
        ];
        let daemon = Daemon::start(cluster.home(), &format!("{}-callgrind", node.name), &command)?;
        Ok(Run { daemon, user: node.user, output })
    }

    /// Until it has made so many renewals.
    fn wait_for(&mut self, cluster: &Cluster, wanted: usize) -> Result<()> {
        wait_until(&format!("{wanted} renewals under callgrind"), Duration::from_secs(120), || {
            if let Err(why) = self.daemon.check() {
                return Ok(Err(why));
            }
            let mine = cluster.api.audit(|entry| entry.user == self.user)?;
            let made = mine.iter().filter(|entry| Kind::of(entry) == Kind::Renewal).count();
            if made >= wanted { Ok(Ok(())) } else { Err(format!("{made} so far")) }
        })?
    }

    /// What was counted since the last time goes to a file, and counting begins anew. Answers when, in microseconds since 1970.
    fn dump(&self) -> Result<u64> {
        let output = Command::new("callgrind_control").args(["-d", &self.daemon.pid().to_string()]).output();
        let output = output.map_err(|why| format!("no callgrind_control ({why}), which comes with valgrind"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("OK") { now_us() } else { Err(format!("callgrind does not dump: {said}")) }
    }

    /// What the dump of this number says: `totals: 12345678`.
    fn totals(&self, dump: usize) -> Result<u64> {
        let file = format!("{}.{dump}", self.output.display());
        let text = fs::read_to_string(&file).map_err(|why| format!("{file}: {why}"))?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        totals.ok_or_else(|| format!("{file} has no totals"))
    }
}
