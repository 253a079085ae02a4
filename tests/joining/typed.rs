//! Turns what `make cluster` prints into commands that are typed as they stand: a board that has nothing yet joins, the
//! administrator sees it, and Ctrl-C leaves nothing behind.

use super::cluster::{Cluster, Result, wait_until};
use super::trials::{Case, Need};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, gethostname};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// It may have to be compiled first.
const STARTED_WITHIN: Duration = Duration::from_secs(300);
const ENDED_WITHIN: Duration = Duration::from_secs(60);
/// A board's own place for what it keeps is empty, and goes with the command.
const NEW_BOARD: &str = "mount -t tmpfs -o mode=0755 nodepulse-test /var/lib && eval \"$1\"";

pub fn cases() -> Vec<Case> {
    cases![&[Need::Root], what_make_cluster_prints_works_as_typed]
}

/// `make cluster`, in a terminal of its own.
struct Terminal {
    make: Child,
    lines: Receiver<String>,
}

impl Terminal {
    fn start() -> Result<Terminal> {
        let mut command = Command::new("make");
        command.arg("cluster").current_dir(env!("CARGO_MANIFEST_DIR")).process_group(0);
        let mut make = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| format!("make: {e}"))?;
        let said = BufReader::new(make.stdout.take().ok_or("no output")?);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            said.lines().map_while(std::result::Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Terminal { make, lines })
    }

    /// What it says until it waits.
    fn introduction(&self) -> Result<Vec<String>> {
        let (end, mut all) = (Instant::now() + STARTED_WITHIN, Vec::new());
        while !all.last().is_some_and(|line: &String| line.starts_with("Ctrl-C ends it")) {
            let left = end.saturating_duration_since(Instant::now());
            all.push(self.lines.recv_timeout(left).map_err(|e| format!("make cluster: {e} after {all:#?}"))?);
        }
        Ok(all)
    }

    fn press_ctrl_c(&mut self) -> Result<()> {
        killpg(Pid::from_raw(self.make.id() as i32), Signal::SIGINT).map_err(|e| e.to_string())?;
        wait_until("the end of make cluster", ENDED_WITHIN, || {
            match self.make.try_wait().map_err(|e| e.to_string())? {
                Some(_) => Ok(()),
                None => Err("it goes on".to_owned()),
            }
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.make.id() as i32), Signal::SIGTERM);
        let _ = self.make.wait();
    }
}

/// The command that follows this heading, and those below it up to an empty line.
fn below(lines: &[String], heading: &str) -> Result<String> {
    let commands = lines.iter().skip_while(|line| !line.starts_with(heading)).skip(1);
    let commands: Vec<&str> = commands.take_while(|line| line.starts_with("  ")).map(|line| line.trim()).collect();
    if commands.is_empty() { Err(format!("nothing below {heading:?}: {lines:#?}")) } else { Ok(commands.join("\n")) }
}

/// In a shell that finds `nodepulse`. Answers what it printed.
fn typed(shell: &[&str], script: &str, text: &str) -> Result<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_nodepulse"));
    let folder = program.parent().ok_or("no folder")?.display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["sh", "-c", script, "typed", text]).env("PATH", path).stdin(Stdio::null());
    let output = command.output().map_err(|e| format!("{shell:?}: {e}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{text}: {}: {said}", output.status)) }
}

fn what_make_cluster_prints_works_as_typed(_: &Cluster) -> Result<()> {
    let mut terminal = Terminal::start()?;
    let lines = terminal.introduction()?;
    let board = ["unshare", "--mount", "--propagation", "private"];
    let said = typed(&board, NEW_BOARD, &below(&lines, "As a board that has nothing yet")?)?;
    let host = gethostname().map_err(|e| e.to_string())?.to_string_lossy().to_lowercase();
    assert!(said.contains(&format!("joined: Node {host} is Ready")), "{said}");
    let nodes = typed(&["env"], "eval \"$1\"", &below(&lines, "As the administrator")?)?;
    let ours = nodes.lines().find(|line| line.split_whitespace().next() == Some(&host));
    assert!(ours.is_some_and(|line| line.split_whitespace().nth(1) == Some("Ready")), "{nodes}");
    let folder =
        lines.iter().find_map(|line| line.trim().strip_prefix("logs and keys: ")).ok_or("no folder is named")?;
    assert!(Path::new(folder).is_dir());
    terminal.press_ctrl_c()?;
    assert!(!Path::new(folder).exists(), "{folder} is left");
    Ok(())
}
