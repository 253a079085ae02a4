//! Turns a node's identity and a few settings into the built program at work, which a test can signal, read and end.

// Every user takes a part of it.
#![allow(dead_code)]
// The linter keeps clocks out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use super::cluster::daemon::{Daemon, write_private};
use super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// More than any test makes it say: a log that grows past this is a fault of its own.
const LOG_BYTES: usize = 256 * 1024;
/// How much of it an error quotes.
const LINES_SHOWN: usize = 40;
/// How long the end of the program may take.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Settings that make a test take seconds: a renewal and a look at the board every second. The report without a change is
/// left at its default, so that a PATCH always means something; and so is the assertion, which decides how soon what others
/// write is answered.
pub const QUICK: [(&str, &str); 3] =
    [("nodeLeaseDurationSeconds", "4"), ("nodeStatusUpdateFrequency", "1s"), ("nodeStatusReportFrequency", "5m")];

/// `evictionHard` under which the disk of the machine that runs the tests is not full, whatever lies on it.
pub const ROOM_ON_DISK: (&str, &str) =
    ("evictionHard", "{memory.available: 100Mi, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}");

const ALPN_PROTOCOL: &str = "alpnProtocol";

/// What every agent speaks whose test does not say so itself (`make test-http1`); `None`: what the server picks.
fn protocol_of_all() -> Option<String> {
    std::env::var("ALPN_PROTOCOL").ok().filter(|protocol| !protocol.is_empty())
}

/// Up to `--`, each first file stands in for the second, in a mount namespace of our own: the rest is another machine.
const OTHER_MACHINE: &str =
    r#"while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 1; shift 2; done; shift; exec "$@""#;

/// What the program is started with.
pub struct Launch<'a> {
    identity: &'a NodeIdentity,
    /// `None`: the settings say how to join.
    kubeconfig: Option<PathBuf>,
    settings: BTreeMap<String, String>,
    flags: Vec<String>,
    /// File of the machine, and what it says instead.
    board: Vec<(String, String)>,
    /// Folder of the machine, and the files that are in it instead.
    folders: Vec<(String, Vec<(String, String)>)>,
    up: Option<Duration>,
    is_named: bool,
    inside: Option<i32>,
    program: Vec<String>,
}

impl<'a> Launch<'a> {
    /// With [`QUICK`] settings.
    pub fn quick(identity: &'a NodeIdentity) -> Self {
        QUICK.iter().fold(Self::with_defaults(identity), |launch, (key, value)| launch.set(key, value))
    }

    /// With the program's own defaults.
    pub fn with_defaults(identity: &'a NodeIdentity) -> Self {
        Self {
            identity,
            kubeconfig: Some(identity.kubeconfig.clone()),
            settings: BTreeMap::from([
                ("stateDirectory".to_owned(), identity.dir.join("state").display().to_string()),
                // One log for all tests of this machine: what one of them does would be told by the agents of others.
                ("kernelEvents".to_owned(), "false".to_owned()),
                // Whole Nodes are compared, by who does not know what this machine has; `labels` looks at these.
                ("featureLabels".to_owned(), "false".to_owned()),
            ]),
            flags: Vec::new(),
            board: Vec::new(),
            folders: Vec::new(),
            up: None,
            is_named: true,
            inside: None,
            program: vec![env!("CARGO_BIN_EXE_nodepulse").to_owned()],
        }
    }

    /// A key of the settings file; the value is YAML.
    pub fn set(mut self, key: &str, yaml: &str) -> Self {
        self.settings.insert(key.to_owned(), yaml.to_owned());
        self
    }

    /// Not watched, asserted this often.
    pub fn asserting(self, every: &str) -> Self {
        self.set("nodeWatch", "false").set("statusAssertFrequency", every)
    }

    /// With a log in which no line is left out: by default a minute has twenty, and twelve of words that were in it already.
    pub fn with_whole_log(self) -> Self {
        self.flag("-v=4")
    }

    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub fn kubeconfig(mut self, file: &Path) -> Self {
        self.kubeconfig = Some(file.to_owned());
        self
    }

    /// Without anything but what the settings say to join with, and what an earlier process has kept.
    pub fn without_kubeconfig(mut self) -> Self {
        self.kubeconfig = None;
        self
    }

    /// As if on another machine, where this file says something else; needs root.
    pub fn board(mut self, path: &str, text: &str) -> Self {
        self.board.push((path.to_owned(), text.to_owned()));
        self
    }

    /// The same for a folder with everything below it: path there, and text.
    pub fn folder(mut self, path: &str, files: Vec<(String, String)>) -> Self {
        self.folders.push((path.to_owned(), files));
        self
    }

    /// As if the machine had been started so long ago, whenever that was: with a clock of its own.
    pub fn up_for(mut self, up: Duration) -> Self {
        self.up = Some(up);
        self
    }

    /// Without a name from us.
    pub fn named_by_itself(mut self) -> Self {
        self.is_named = false;
        self
    }

    /// In the network and the mounts of this process; needs root.
    pub fn inside(mut self, pid: i32) -> Self {
        self.inside = Some(pid);
        self
    }

    /// Another build, with the words before it that run it.
    pub fn program(mut self, command: Vec<String>) -> Self {
        self.program = command;
        self
    }

    /// Without a setting that an earlier one does not know.
    pub fn unset(mut self, key: &str) -> Self {
        self.settings.remove(key);
        self
    }

    pub fn start(self, cluster: &Cluster) -> Result<Nodepulse> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("{}-nodepulse-{}", self.identity.name, NEXT.fetch_add(1, Ordering::Relaxed));
        let settings_file = self.identity.dir.join(format!("{name}.yaml"));
        fs::create_dir_all(self.identity.dir.join("state")).map_err(|e| e.to_string())?;
        let mut agent = Nodepulse { daemon: None, log: PathBuf::new(), settings_file, settings: self.settings };
        agent.write_settings()?;
        let mut command = on_other_machine(self.identity, &name, &self.board, &self.folders)?;
        if let Some(pid) = self.inside {
            command.extend(["nsenter".to_owned(), format!("--target={pid}"), "--net".to_owned(), "--mount".to_owned()]);
        }
        if let Some(up) = self.up {
            command.extend(["unshare".to_owned(), "--time".to_owned(), format!("--boottime={}", boottime_offset(up)?)]);
            // Users of their own may have clocks of their own.
            command.extend((!Uid::effective().is_root()).then(|| "--map-root-user".to_owned()));
        }
        command.extend(self.program);
        command.extend(["run".to_owned(), format!("--config={}", agent.settings_file.display())]);
        command.extend(self.kubeconfig.map(|file| format!("--kubeconfig={}", file.display())));
        command.extend(self.is_named.then(|| format!("--hostname-override={}", self.identity.name)));
        command.extend(self.flags);
        let daemon = Daemon::start(cluster.home(), &name, &command)?;
        agent.log.clone_from(&daemon.log);
        agent.daemon = Some(daemon);
        Ok(agent)
    }
}

/// The path of what a C compiler makes of this source below `tests`, beside the node's other files.
pub fn compiled(node: &NodeIdentity, source: &str, options: &[&str]) -> Result<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let made = node.dir.join(source.file_stem().unwrap_or_default());
    let output = std::process::Command::new("cc").arg("-o").arg(&made).arg(&source).args(options).output();
    let output = output.map_err(|e| format!("cc: {e}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(made.display().to_string())
}

/// For `env`: that source's functions go before those of the C library.
pub fn preload(node: &NodeIdentity, source: &str) -> Result<String> {
    Ok(format!("LD_PRELOAD={}", compiled(node, source, &["-shared", "-fPIC", "-ldl"])?))
}

/// Seconds between the clock of a machine that was started so long ago and this kernel's own (`time_namespaces(7)`).
fn boottime_offset(up: Duration) -> Result<i64> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let number = |text: &str| text.split(['.', ' ']).next().and_then(|digits| digits.parse::<i64>().ok());
    let uptime = read("/proc/uptime")?;
    let offsets = read("/proc/self/timens_offsets")?;
    let ours = offsets.lines().find_map(|line| line.strip_prefix("boottime")).map(str::trim);
    let kernels_own = number(&uptime).zip(ours.and_then(number)).map(|(here, ours)| here - ours);
    let kernels_own = kernels_own.ok_or_else(|| format!("since when is this machine up? {uptime}{offsets}"))?;
    Ok(up.as_secs().cast_signed() - kernels_own)
}

fn on_other_machine(
    identity: &NodeIdentity,
    name: &str,
    board: &[(String, String)],
    folders: &[(String, Vec<(String, String)>)],
) -> Result<Vec<String>> {
    if board.is_empty() && folders.is_empty() {
        return Ok(Vec::new());
    }
    let before = ["unshare", "--mount", "--propagation", "private", "sh", "-c", OTHER_MACHINE, "other-machine"];
    let mut command: Vec<String> = before.map(str::to_owned).into();
    for (number, (path, text)) in board.iter().enumerate() {
        let file = write_private(&identity.dir.join(format!("{name}-{number}")), &format!("{text}\n"))?;
        command.extend([file.display().to_string(), path.clone()]);
    }
    for (number, (path, files)) in folders.iter().enumerate() {
        let folder = identity.dir.join(format!("{name}-folder-{number}"));
        for (file, text) in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(|e| format!("{}: {e}", file.display()))?;
            write_private(&file, &format!("{text}\n"))?;
        }
        command.extend([folder.display().to_string(), path.clone()]);
    }
    command.push("--".to_owned());
    Ok(command)
}

/// The program while it runs, and what it left behind. It ends when this value, or the whole test process, does.
pub struct Nodepulse {
    daemon: Option<Daemon>,
    pub log: PathBuf,
    settings_file: PathBuf,
    settings: BTreeMap<String, String>,
}

impl Nodepulse {
    /// Its process id while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// Resident memory that no file is behind, in KiB.
    pub fn own_memory_kib(&self) -> Result<u64> {
        self.daemon.as_ref().ok_or("it has ended")?.own_memory_kib()
    }

    pub fn settings_file(&self) -> &Path {
        &self.settings_file
    }

    /// An error with the end of its log if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.running()?.check()
    }

    /// Everything it said so far.
    pub fn said(&self) -> Result<String> {
        let bytes = fs::read(&self.log).map_err(|e| format!("{}: {e}", self.log.display()))?;
        if bytes.len() > LOG_BYTES {
            return Err(format!("it said {} bytes; nobody reads that", bytes.len()));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// How many lines so far contain `text`.
    pub fn count_lines(&self, text: &str) -> Result<usize> {
        Ok(self.said()?.lines().filter(|line| line.contains(text)).count())
    }

    /// The first line that contains every one of `words`, while it goes on running.
    pub fn wait_for_line(&mut self, words: &[&str], within: Duration) -> Result<String> {
        let what = format!("a line with {}", words.join(" and "));
        wait_until(&what, within, || {
            if let Err(e) = self.check() {
                return Ok(Err(e));
            }
            let said = self.said()?;
            let found = said.lines().find(|line| words.iter().all(|word| line.contains(word)));
            // A test that has a cluster to itself ends it before anybody could look at the log.
            let last: Vec<&str> = said.lines().rev().take(LINES_SHOWN).collect();
            found
                .map(|line| Ok(line.to_owned()))
                .ok_or_else(|| format!("no such line, the last first:\n{}", last.join("\n")))
        })?
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.running()?.signal(signal)
    }

    /// As a machine that was suspended, or that has no time for us.
    pub fn freeze(&mut self) -> Result<()> {
        self.running()?.freeze()
    }

    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Other settings in the same file, and SIGHUP.
    pub fn reload_with(&mut self, key: &str, yaml: &str) -> Result<()> {
        self.settings.insert(key.to_owned(), yaml.to_owned());
        self.write_settings()?;
        self.signal(Signal::SIGHUP)
    }

    /// What `nodepulse COMMAND` with the same settings answers: its exit code, and all that it says.
    pub fn command(&self, command: &str) -> Result<(i32, String)> {
        let config = format!("--config={}", self.settings_file.display());
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_nodepulse")).args([command, &config]).output();
        let output = output.map_err(|e| e.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
    }

    /// What `nodepulse cost -o json` answers with the same settings.
    pub fn cost(&self, more: &[&str]) -> Result<Value> {
        self.json(&[&["cost"], more].concat())
    }

    /// The same of any command.
    pub fn json(&self, command: &[&str]) -> Result<Value> {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_nodepulse"));
        let command = program.args(command).args(["-o", "json", "--config"]).arg(&self.settings_file);
        let output = command.output().map_err(|e| e.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|e| {
            format!("{e}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        })
    }

    /// SIGKILL, as the out-of-memory killer would.
    pub fn kill(&mut self) -> Result<()> {
        self.running()?.kill()
    }

    /// SIGTERM; the exit code.
    pub fn stop(&mut self) -> Result<i32> {
        self.signal(Signal::SIGTERM)?;
        self.exit_code(END_WITHIN)
    }

    /// The exit code once it has ended by itself; 128 and the signal's number if a signal ended it.
    pub fn exit_code(&mut self, within: Duration) -> Result<i32> {
        self.running()?.exit_code(within)
    }

    fn running(&mut self) -> Result<&mut Daemon> {
        self.daemon.as_mut().ok_or_else(|| "it was not started".to_owned())
    }

    fn write_settings(&self) -> Result<()> {
        let mut text = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n".to_owned();
        if let Some(protocol) = protocol_of_all().filter(|_| !self.settings.contains_key(ALPN_PROTOCOL)) {
            text.push_str(&format!("{ALPN_PROTOCOL}: {protocol}\n"));
        }
        for (key, yaml) in &self.settings {
            text.push_str(&format!("{key}: {yaml}\n"));
        }
        write_private(&self.settings_file, &text).map(drop)
    }
}
