//! Turns a command line into a running daemon that ends when its handle, or this whole process, does.
//!
//! A process cannot clean up after its own SIGKILL, so every daemon is held by a small shell that watches
//! a pipe whose other end only we own: the end of that pipe, however it comes about, ends the daemon by
//! its process id. (PR_SET_PDEATHSIG would do so at the end of the starting *thread*, and needs `unsafe`.)

use super::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `$1` is the log, the rest the daemon. Says the daemon's process id, then waits: for the daemon to end by
/// itself, or for the end of its own standard input. SIGCONT because a frozen process keeps SIGTERM waiting.
/// SIGPIPE is ignored because whoever started us may be killed before our first word is read.
/// Its standard error is the sweeper's pipe, which it only keeps open; what the shell says goes to the log.
const HOLDER: &str = r#"
log=$1; shift
child=
stop() {
    [ -n "$child" ] || exit 143
    kill -TERM "$child" 2>/dev/null
    kill -CONT "$child" 2>/dev/null
    tries=0
    while kill -0 "$child" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || kill -KILL "$child" 2>/dev/null
        sleep 0.05
    done
    exit 143
}
trap stop TERM
exec 3<&0 </dev/null 4>&2 2>>"$log"
"$@" >&2 3<&- 4>&- &
child=$!
trap '' PIPE
( read -r _ <&3; kill -TERM $$ ) >/dev/null 4>&- &
watcher=$!
exec 3<&-
echo "$child"
exec >&-
wait "$child"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"#;

/// Waits for the end of the pipe that we and every holder have open, then removes the folder.
const SWEEPER: &str = r#"cat >/dev/null; exec rm -rf --one-file-system -- "$1""#;

thread_local! {
    /// Logs of the daemons that this thread started: what a failed test of this thread shows.
    static STARTED_HERE: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// The logs of the daemons that this thread has started since the last call.
pub fn take_logs() -> Vec<PathBuf> {
    STARTED_HERE.take()
}

/// A running program, its log, and the pipe whose end is its end.
pub struct Daemon {
    pub name: String,
    pub log: PathBuf,
    pid: i32,
    holder: Child,
    lifeline: Option<ChildStdin>,
}

impl Daemon {
    /// `home` is held open as long as the daemon lives, so that its folder is not removed beneath it.
    pub fn start(home: &Home, name: &str, command: &[String]) -> Result<Self> {
        let log = home.path.join(format!("{name}.log"));
        let mut holder = Command::new("sh")
            .args(["-c", HOLDER, "holder"])
            .arg(&log)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(home.share()?)
            // Ctrl-C at a terminal goes to its whole process group; these end in our order instead.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start a shell for {name}: {e}"))?;
        let lifeline = holder.stdin.take();
        let mut line = String::new();
        let stdout = holder.stdout.take().ok_or("the holder has no standard output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|e| format!("{name}: {e}"))?;
        let pid = line.trim().parse().map_err(|_| format!("the shell that holds {name} did not start it"))?;
        STARTED_HERE.with_borrow_mut(|logs| logs.push(log.clone()));
        Ok(Self { name: name.to_owned(), log, pid, holder, lifeline })
    }

    /// The process id of the daemon itself, not of the shell that holds it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// An error with the end of its log if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.holder.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended by itself ({status}).\n{}", self.name, self.log_tail(25))),
            Err(e) => Err(format!("{}: {e}", self.name)),
        }
    }

    /// Sends it a signal, unless it has ended (its number may be somebody else's by now).
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.check()?;
        kill(Pid::from_raw(self.pid), signal).map_err(|e| format!("cannot send {signal} to {}: {e}", self.name))
    }

    /// SIGSTOP, and until the last of its threads stands still: on a busy machine one may answer yet.
    pub fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        wait_until(&format!("{} to stand still", self.name), Duration::from_secs(10), || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(|e| e.to_string())?;
            for thread in threads.filter_map(|entry| entry.ok()) {
                // Its name, in parentheses, may hold anything.
                let line = fs::read_to_string(thread.path().join("stat")).map_err(|e| e.to_string())?;
                let state = line.rsplit_once(") ").map_or("", |(_, rest)| rest);
                if !state.starts_with('T') {
                    return Err(format!("a thread is {state}"));
                }
            }
            Ok(())
        })
    }

    /// SIGKILL, as the out-of-memory killer would.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.holder.wait().map(drop).map_err(|e| format!("{}: {e}", self.name))
    }

    /// Its exit code once it has ended by itself or by a signal, which counts as 128 and the signal's number.
    pub fn exit_code(&mut self, within: Duration) -> Result<i32> {
        wait_until(&format!("{} to end", self.name), within, || match self.holder.try_wait() {
            Ok(Some(status)) => Ok(status.code().ok_or_else(|| format!("its shell was ended: {status}"))),
            Ok(None) => Err("it runs".to_owned()),
            Err(e) => Err(e.to_string()),
        })?
    }

    /// Begins to end it (SIGTERM, SIGKILL three seconds later) without waiting; dropping waits.
    pub fn let_go(&mut self) {
        self.lifeline = None;
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        self.memory_kib("VmRSS:")
    }

    /// The part of it that no file is behind, in KiB.
    pub fn own_memory_kib(&self) -> Result<u64> {
        self.memory_kib("RssAnon:")
    }

    fn memory_kib(&self, name: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).map_err(|e| e.to_string())?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
        line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| format!("{name} {line}"))
    }

    /// The last lines it said.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.let_go();
        // An error here means that it has been waited for already.
        let _ = self.holder.wait();
    }
}

/// The last lines of a log, with its name, fit for an error message.
pub fn tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    format!("The end of {}:\n{}", log.display(), all[all.len().saturating_sub(lines)..].join("\n"))
}

/// A private temporary folder that goes away when we and all daemons in it have gone, however we went.
/// `CLUSTER_KEEP=1` leaves it, for reading the logs afterwards.
pub struct Home {
    pub path: PathBuf,
    open: Option<OwnedFd>,
    sweeper: Option<Child>,
}

impl Home {
    pub fn new() -> Result<Self> {
        let path = create_private_folder()?;
        if std::env::var_os("CLUSTER_KEEP").is_some_and(|v| !v.is_empty()) {
            eprintln!("CLUSTER_KEEP is set: logs and keys stay in {}", path.display());
            return Ok(Self { path, open: None, sweeper: None });
        }
        let mut sweeper = Command::new("sh")
            .args(["-c", SWEEPER, "sweeper"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start a shell: {e}"))?;
        let open = sweeper.stdin.take().map(OwnedFd::from);
        Ok(Self { path, open, sweeper: Some(sweeper) })
    }

    fn share(&self) -> Result<Stdio> {
        match &self.open {
            Some(fd) => fd.try_clone().map(Stdio::from).map_err(|e| e.to_string()),
            None => Ok(Stdio::null()),
        }
    }

    /// Writes a file that only its owner can read (most of them hold keys) and returns its path.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        write_private(&self.path.join(name), text)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.open = None;
        if let Some(sweeper) = &mut self.sweeper {
            let _ = sweeper.wait();
        }
    }
}

pub fn write_private(path: &Path, text: &str) -> Result<PathBuf> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path.to_owned())
}

fn create_private_folder() -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nodepulse-cluster-{}-{n}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(format!("cannot create {}: {e}", path.display())),
        }
    }
}

/// Looks again and again until `look` has an answer; at the deadline the error says what was waited for
/// and what was in the way at the last look.
pub fn wait_until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    const LONGEST_PAUSE: Duration = Duration::from_millis(160);
    let began = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match look() {
            Ok(value) => return Ok(value),
            Err(last) if began.elapsed() >= within => {
                return Err(format!("waited {:.1} s for {what}; at the last look: {last}", within.as_secs_f64()));
            }
            Err(_) => {
                // Most looks are a TLS handshake, and there are two cores for everyone.
                sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
