//! Turns the programs of `make release-all` into their sizes beside the goal, and one of them under callgrind into the
//! instructions that a renewal takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::cluster::daemon::Daemon;
use super::cluster::{Cluster, Result, wait_until};
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
/// Two runs differ in these only: start-up is in both. The longer one ends after the first report without a change, which comes
/// after 30 to 45 s, and before a name that DNS does not know is looked up again, after a minute.
const RENEWALS: [usize; 2] = [16, 46];

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

/// What one run did in its life.
struct Counted {
    renewals: usize,
    reports: usize,
    instructions: u64,
}

/// What it did more than one that was shorter.
fn more_than(shorter: &Counted, longer: &Counted) -> Option<Counted> {
    Some(Counted {
        renewals: longer.renewals.checked_sub(shorter.renewals).filter(|more| *more > 0)?,
        reports: longer.reports.checked_sub(shorter.reports)?,
        instructions: longer.instructions.checked_sub(shorter.instructions)?,
    })
}

/// The instructions, in user space, of the renewals by which two runs differ, and the reports that fell between them.
fn count_instructions(cluster: &Cluster, program: &Path) -> Result<Counted> {
    let found = Command::new("valgrind").arg("--version").output();
    found.map_err(|why| format!("no valgrind ({why}); Debian: apt-get install valgrind"))?;
    let [fewer, more] = RENEWALS;
    let runs = (Run::start(cluster, program)?, Run::start(cluster, program)?);
    let (shorter, longer) = (runs.0.finish(cluster, fewer)?, runs.1.finish(cluster, more)?);
    more_than(&shorter, &longer).ok_or_else(|| "the shorter run did more than the longer one".to_owned())
}

struct Run {
    daemon: Daemon,
    user: String,
}

impl Run {
    fn start(cluster: &Cluster, program: &Path) -> Result<Run> {
        let node = cluster.node("c")?;
        let settings: PathBuf = node.dir.join("config.yaml");
        let text = format!(
            "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{SETTINGS}stateDirectory: {}\n",
            node.dir.join("state").display()
        );
        fs::write(&settings, text).map_err(|e| e.to_string())?;
        let command = [
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            "--callgrind-out-file=/dev/null".to_owned(),
            program.display().to_string(),
            "run".to_owned(),
            format!("--config={}", settings.display()),
            format!("--kubeconfig={}", node.kubeconfig.display()),
            format!("--hostname-override={}", node.name),
        ];
        Ok(Run {
            daemon: Daemon::start(cluster.home(), &format!("{}-callgrind", node.name), &command)?,
            user: node.user,
        })
    }

    /// What it made, at least `wanted` renewals, and the instructions of its whole life.
    fn finish(mut self, cluster: &Cluster, wanted: usize) -> Result<Counted> {
        let made = |cluster: &Cluster, kind| -> Result<usize> {
            let mine = cluster.api.audit(|entry| entry.user == self.user)?;
            Ok(mine.iter().filter(|entry| Kind::of(entry) == kind).count())
        };
        let renewals = |cluster: &Cluster| made(cluster, Kind::Renewal);
        wait_until(&format!("{wanted} renewals under callgrind"), Duration::from_secs(120), || {
            if let Err(why) = self.daemon.check() {
                return Ok(Err(why));
            }
            let made = renewals(cluster)?;
            if made >= wanted { Ok(Ok(())) } else { Err(format!("{made} so far")) }
        })??;
        self.daemon.signal(Signal::SIGTERM)?;
        self.daemon.exit_code(Duration::from_secs(20))?;
        let said = fs::read_to_string(&self.daemon.log).map_err(|e| e.to_string())?;
        // `==PID== Collected : 12345678`
        let counted = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
        let counted = counted.ok_or_else(|| format!("callgrind counted nothing:\n{}", self.daemon.log_tail(10)))?;
        let (renewals, reports) = (renewals(cluster)?, made(cluster, Kind::Report)?);
        Ok(Counted { renewals, reports, instructions: counted })
    }
}
