//! Turns the built program into one board under watch: its memory, its log lines and its words to the service manager.

use super::attack::{Attack, Launch};
use super::cluster::daemon::{Daemon, Home, write_private};
use super::cluster::pki::{Authority, Validity};
use super::cluster::{Result, identity};
use super::server::{Server, THREE_ADDRESSES, lock};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// A name that the server's certificate carries, for boards that need one.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// Without a sign of life for so long a service manager would end the process.
pub const WATCHDOG: Duration = Duration::from_secs(20);
/// Nobody reads a line that is longer.
const LINE_BYTES: usize = 4096;
/// What a service manager understands of what we say.
const WORDS: [&str; 6] = ["READY=1", "RELOADING=1", "MONOTONIC_USEC=", "STATUS=", "WATCHDOG=1", "STOPPING=1"];

/// `$1` stands in for `/etc/hosts` in a mount namespace of our own.
const OTHER_HOSTS: &str = r#"mount --bind "$1" /etc/hosts && shift && exec "$@""#;
/// `$1` is the pipe that standard error becomes.
const INTO_PIPE: &str = r#"pipe=$1; shift; exec "$@" 2>"$pipe""#;

/// What a board was seen to do.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// When lines came, for each process of the board.
    pub lines: Vec<Vec<Instant>>,
    pub peak_kib: u64,
    pub alive: Vec<Instant>,
    /// When the start was over for the service manager.
    pub ready: Option<Instant>,
    /// Text that must not be where it was.
    pub complaints: Vec<String>,
}

/// A board: a folder, and the program in it.
pub struct Board {
    pub folder: PathBuf,
    name: String,
    command: Vec<String>,
    daemon: Option<Daemon>,
    starts: usize,
    pipe: Option<FullPipe>,
    seen: Arc<Mutex<Observed>>,
    pid: Arc<Mutex<Option<(i32, PathBuf)>>>,
    ends: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
}

impl Board {
    pub fn new(home: &Home, attack: &Attack, name: &str, server: &Server, authority: &Authority) -> Result<Board> {
        let folder = home.path.join(name);
        fs::create_dir_all(folder.join("state")).map_err(|e| e.to_string())?;
        let by_name = attack.launch == Launch::ThreeAddresses;
        let host = if by_name { SERVER_NAME } else { "127.0.0.1" };
        let own = authority.client(&format!("system:node:{name}"), Some("system:nodes"), Validity::Now)?;
        let url = format!("https://{host}:{}", server.port);
        let kubeconfig = identity::write_kubeconfig(&folder, "node", &url, &authority.certificate(), &own)?;
        if let Some(port) = server.proxy_port {
            let text = fs::read_to_string(&kubeconfig).map_err(|e| e.to_string())?;
            let line = |line: &str| match line.split_once("server: ") {
                Some((indent, _)) => format!("{line}\n{indent}proxy-url: http://127.0.0.1:{port}\n"),
                None => format!("{line}\n"),
            };
            write_private(&kubeconfig, &text.lines().map(line).collect::<String>())?;
        }
        if let Some(prepare) = attack.prepare {
            prepare(&folder)?;
        }
        let notify = folder.join("notify");
        let listener = UnixDatagram::bind(&notify).map_err(|e| e.to_string())?;
        let pipe = if attack.launch == Launch::FullPipe { Some(FullPipe::new(&folder)?) } else { None };
        let mut board = Board {
            command: command(attack, &folder, name, &kubeconfig, &notify)?,
            folder,
            name: name.to_owned(),
            daemon: None,
            starts: 0,
            pipe,
            seen: Arc::default(),
            pid: Arc::default(),
            ends: Arc::default(),
            watch: None,
        };
        let (seen, pid, ends) = (Arc::clone(&board.seen), Arc::clone(&board.pid), Arc::clone(&board.ends));
        board.watch = Some(spawn(move || watch(&listener, &seen, &pid, &ends)));
        Ok(board)
    }

    pub fn start(&mut self, home: &Home) -> Result<()> {
        self.starts += 1;
        let daemon = Daemon::start(home, &format!("{}-{}", self.name, self.starts), &self.command)?;
        *lock(&self.pid) = Some((daemon.pid(), daemon.log.clone()));
        self.daemon = Some(daemon);
        Ok(())
    }

    pub fn check(&mut self) -> Result<()> {
        self.running()?.check()
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.running()?.signal(signal)
    }

    /// SIGTERM; how long the end took. An exit code other than 0 is an error.
    pub fn stop(&mut self, within: Duration) -> Result<Duration> {
        let asked = Instant::now();
        self.signal(Signal::SIGTERM)?;
        let code = self.running()?.exit_code(within).map_err(|_| format!("SIGTERM: it runs {within:?} later"))?;
        let took = asked.elapsed();
        *lock(&self.pid) = None;
        self.daemon = None;
        if code == 0 { Ok(took) } else { Err(format!("SIGTERM: it exits with {code}")) }
    }

    /// From now on nobody reads what it says, and the pipe is full.
    pub fn fill_pipe(&mut self) -> Result<()> {
        self.pipe.as_mut().map_or(Ok(()), FullPipe::fill)
    }

    pub fn observed(&self) -> Observed {
        lock(&self.seen).clone()
    }

    pub fn log_tail(&self) -> String {
        self.daemon.as_ref().map(|daemon| daemon.log_tail(12)).unwrap_or_default()
    }

    fn running(&mut self) -> Result<&mut Daemon> {
        self.daemon.as_mut().ok_or_else(|| "it was not started".to_owned())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.daemon = None;
        self.ends.store(true, Ordering::SeqCst);
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
    }
}

fn command(attack: &Attack, folder: &Path, name: &str, kubeconfig: &Path, notify: &Path) -> Result<Vec<String>> {
    let shown = |path: &Path| path.display().to_string();
    let settings = format!(
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nstateDirectory: {}\n\
         evictionHard: {{memory.available: 100Mi, nodefs.available: 100Mi, nodefs.inodesFree: '1000'}}\n{}",
        shown(&folder.join("state")),
        attack.settings
    );
    let settings = write_private(&folder.join("settings.yaml"), &settings)?;
    let mut command: Vec<String> = Vec::new();
    if attack.launch == Launch::ThreeAddresses {
        let lines = THREE_ADDRESSES.iter().map(|ip| format!("{ip} {SERVER_NAME}\n"));
        let hosts = write_private(&folder.join("hosts"), &lines.collect::<String>())?;
        let unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", OTHER_HOSTS, "other-hosts"];
        command.extend(unshare.map(str::to_owned).into_iter().chain([shown(&hosts)]));
    }
    if attack.launch == Launch::FullPipe {
        command.extend(["sh", "-c", INTO_PIPE, "into-pipe"].map(str::to_owned));
        command.push(shown(&folder.join("stderr")));
    }
    let program = std::env::var("HOSTILE_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_nodepulse").to_owned());
    command.extend([
        "env".to_owned(),
        format!("NOTIFY_SOCKET={}", shown(notify)),
        format!("WATCHDOG_USEC={}", WATCHDOG.as_micros()),
        program,
        "run".to_owned(),
        format!("--config={}", shown(&settings)),
        format!("--kubeconfig={}", shown(kubeconfig)),
        format!("--hostname-override={name}"),
        // What this machine's own kernel has logged, no server is told in these.
        "--kernel-events=false".to_owned(),
    ]);
    Ok(command)
}

/// A pipe whose other end is open and read by nobody, which a writer therefore fills for good.
struct FullPipe {
    end: File,
}

impl FullPipe {
    fn new(folder: &Path) -> Result<FullPipe> {
        let path = folder.join("stderr");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).map_err(|e| e.to_string())?;
        let nonblocking = OFlag::O_NONBLOCK.bits();
        let end = File::options().read(true).write(true).custom_flags(nonblocking).open(&path);
        end.map(|end| FullPipe { end }).map_err(|e| e.to_string())
    }

    fn fill(&mut self) -> Result<()> {
        // The smallest pipe that the kernel makes.
        fcntl(&self.end, FcntlArg::F_SETPIPE_SZ(4096)).map_err(|e| e.to_string())?;
        while self.end.write(b"\n").is_ok() {}
        Ok(())
    }
}

/// Until the board is dropped.
fn watch(listener: &UnixDatagram, seen: &Mutex<Observed>, pid: &Mutex<Option<(i32, PathBuf)>>, ends: &AtomicBool) {
    let _ = listener.set_read_timeout(Some(Duration::from_millis(200)));
    let mut datagram = vec![0; 1 << 20];
    let mut log = LogReader::default();
    while !ends.load(Ordering::SeqCst) {
        let told = listener.recv(&mut datagram).ok().map(|count| String::from_utf8_lossy(&datagram[..count]));
        let running = lock(pid).clone();
        let peak_kib = running.as_ref().and_then(|(pid, _)| peak_kib(*pid));
        let now = Instant::now();
        let mut seen = lock(seen);
        told.into_iter().for_each(|told| hear(&told, &mut seen, now));
        seen.peak_kib = seen.peak_kib.max(peak_kib.unwrap_or_default());
        if let Some((_, path)) = running {
            log.read(&path, &mut seen, now);
        }
    }
}

/// Resident memory at its highest.
fn peak_kib(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Before it has become the program it is a shell or `env`.
    text.starts_with("Name:\tnodepulse").then_some(())?;
    text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").trim().parse().ok()
}

fn hear(told: &str, seen: &mut Observed, now: Instant) {
    for line in told.split('\n') {
        match line {
            "WATCHDOG=1" => seen.alive.push(now),
            "READY=1" => drop(seen.ready.get_or_insert(now)),
            _ => {}
        }
        if !WORDS.iter().any(|word| line.starts_with(word)) {
            complain(seen, format!("the service manager is told {line:?}"));
        }
        check_text("the service manager is told", line, seen);
    }
}

fn complain(seen: &mut Observed, complaint: String) {
    const MANY: usize = 5;
    if seen.complaints.len() < MANY {
        seen.complaints.push(complaint.chars().take(300).collect());
    }
}

/// Control characters and those that turn the direction of a text.
fn check_text(what: &str, line: &str, seen: &mut Observed) {
    let is_bad = |c: &char| {
        let turns = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        c.is_control() || turns.contains(*c) || "\u{2028}\u{2029}\u{feff}".contains(*c)
    };
    if let Some(bad) = line.chars().find(is_bad) {
        complain(seen, format!("{what} {bad:?} in {line:?}"));
    }
    if line.len() > LINE_BYTES {
        complain(seen, format!("{what} a line of {} bytes", line.len()));
    }
}

/// Where the reading of a log stands.
#[derive(Default)]
struct LogReader {
    path: PathBuf,
    offset: u64,
    unfinished: Vec<u8>,
}

impl LogReader {
    fn read(&mut self, path: &Path, seen: &mut Observed, now: Instant) {
        if self.path != path {
            *self = LogReader { path: path.to_owned(), ..LogReader::default() };
            seen.lines.push(Vec::new());
        }
        let Ok(mut file) = File::open(path) else { return };
        let mut fresh = Vec::new();
        if file.seek(SeekFrom::Start(self.offset)).is_err() || file.read_to_end(&mut fresh).is_err() {
            return;
        }
        self.offset += fresh.len() as u64;
        self.unfinished.extend_from_slice(&fresh);
        while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            seen.lines.last_mut().into_iter().for_each(|lines| lines.push(now));
            check_text("the log has", &String::from_utf8_lossy(&line[..end]), seen);
        }
    }
}
