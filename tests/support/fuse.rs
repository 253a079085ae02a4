//! Turns a folder into one that stops answering when it is told to, as one does whose server is gone: whoever asks it waits
//! in the kernel.
//!
//! bindfs (Debian's package, FUSE) shows the folder over itself, and answers until it is stopped. The kernel keeps nothing of
//! what it said, so each look at a file is a question; what was asked and not yet read by it dies with whoever asked.

use super::cluster::{Cluster, Result, daemon::Daemon, wait_until};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// Mounted as long as this lives.
pub struct Fuse {
    pub folder: PathBuf,
    server: Daemon,
    /// Where the kernel lists each connection to such a server (Documentation/filesystems/fuse).
    connections: PathBuf,
    /// Ours among them.
    number: u64,
}

impl Fuse {
    /// Over `folder`, which is made where it is missing; what is in it stays.
    pub fn mount(cluster: &Cluster, folder: &Path) -> Result<Fuse> {
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let below = fs::metadata(folder).map_err(failed)?.dev();
        let name = format!("{}-bindfs", folder.file_name().unwrap_or_default().to_string_lossy());
        let shown = folder.display().to_string();
        let options = "nonempty,attr_timeout=0,entry_timeout=0,negative_timeout=0";
        let command = ["bindfs", "-f", "--no-allow-other", "-o", options, &shown, &shown].map(str::to_owned);
        let server = Daemon::start(cluster.home(), &name, &command)?;
        let is_mounted = || match fs::metadata(folder).map(|found| found.dev()) {
            Ok(device) if device != below => Ok(device),
            Ok(_) => Err("nothing is mounted there".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        let device = wait_until(&format!("bindfs at {shown}"), SOON, is_mounted)?;
        let connections = cluster.home().path.join(format!("{name}-connections"));
        fs::create_dir(&connections).map_err(|e| format!("{}: {e}", connections.display()))?;
        run(&["mount", "-t", "fusectl", "none", &connections.display().to_string()])?;
        Ok(Fuse { folder: folder.to_owned(), server, connections, number: nix::libc::minor(device).into() })
    }

    /// From now on nothing is answered.
    pub fn hang(&mut self) -> Result<()> {
        self.server.freeze()
    }

    /// What was asked meanwhile is answered now.
    pub fn answer(&mut self) -> Result<()> {
        self.server.signal(Signal::SIGCONT)
    }

    /// How many questions wait for an answer.
    pub fn waiting(&self) -> Result<u32> {
        let file = self.connections.join(self.number.to_string()).join("waiting");
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        text.trim().parse().map_err(|_| format!("{} is {text}", file.display()))
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Each may be gone already; what is left beneath ends with the folder of this run.
        let _ = self.answer();
        for folder in [&self.folder, &self.connections] {
            let _ = run(&["umount", "--lazy", &folder.display().to_string()]);
        }
    }
}

fn run(command: &[&str]) -> Result<()> {
    let output = Command::new(command[0]).args(&command[1..]).output().map_err(|e| format!("{}: {e}", command[0]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{}: {}", command.join(" "), said.trim())) }
}
