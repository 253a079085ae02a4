//! Turns what the agent wants into effects and what happens into its inputs: the loop of the process.
//!
//! ```text
//! inbox -> handle one input -> poll until Wait -> sleep until the deadline or the next message
//!   ^           requests, probes, log lines <--'
//!   '-- answers, signals, link changes
//! ```

mod board;
mod reload;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smol::{LocalExecutor, Task};

use super::clock::{self, CertificateClock, ClockWatch};
use super::disk_writer::{self, DiskWriter, LookAtFiles};
use super::inbox::Inbox;
use super::netlink::LinkWatch;
use super::notify::ServiceManager;
use super::pool::Pool;
use super::reactor::Reactor;
use super::resolve::Resolver;
use super::sandbox::Sandbox;
use super::signals::{Request, Signals};
use super::thread::Source;
use super::{IoError, aside, log, thread};
use crate::agent::{Agent, Because, CredentialDates, Input, Output, Ticket};
use crate::api::{Answer, Failure, Lane, Wish};
use crate::config::Settings;
use crate::config::kubeconfig::Kubeconfig;
use crate::journal::{self, BootId};
use crate::probe::{Machine, Network, Readings, StateDisk};
use crate::time::Up;
use reload::Reread;

/// Everything the loop begins with. The closures read the board below the root that `cli` chose.
pub struct Start {
    pub settings: Settings,
    pub kubeconfig: Kubeconfig,
    pub node_name: String,
    pub machine: Machine,
    pub read_readings: ReadReadings,
    /// Interfaces and routes as procfs has them; read at start and after a change.
    pub read_network: Box<dyn FnMut() -> Network>,
    /// SIGHUP: settings and kubeconfig again, or one sentence for each problem. What the sandbox hides is told by it.
    pub read_settings: ReadSettings,
    /// The file system of the state directory, for every status run; takes whether it may be another one.
    pub read_disk: ReadDisk,
    /// What of the files below every user may read or change.
    pub look_at_files: LookAtFiles,
    /// Files that will be read again: settings, kubeconfig, and what that names.
    pub files: Vec<String>,
}

/// These two may hang, with the file system that they ask.
type ReadSettings = Arc<dyn Fn(&Sandbox) -> Result<(Settings, Kubeconfig), String> + Send + Sync>;
type ReadDisk = Arc<dyn Fn(bool) -> StateDisk + Send + Sync>;

/// Called for every status run. Counts the machine again where that is due, and answers whether it is another one now;
/// takes whether PIDs are judged.
type ReadReadings = Box<dyn FnMut(&mut Machine, bool) -> (Readings, bool)>;

/// What the tasks of this thread tell the loop.
enum Message {
    Input(Input),
    Signal(Request),
    /// The kernel said so, or may have changed something where it cannot say.
    NetworkMayHaveChanged,
    /// What DNS says of the node name; `None` when it said nothing.
    NameLookedUp(Option<Vec<IpAddr>>),
    /// `None`: the disk does not answer.
    DiskRead(Option<StateDisk>),
    /// What SIGHUP led to.
    Reread(Reread),
}

/// After the first message about the network, so many follow that one look answers them all.
const LINK_DEBOUNCE: Duration = Duration::from_millis(250);
/// Least time between two looks, at first: an uplink comes back in steps, carrier, address, route.
const LINK_PAUSE_FIRST: Duration = Duration::from_millis(250);
/// The same while looks follow upon each other: a flapping link must not keep the processor busy.
const LINK_PAUSE_LAST: Duration = Duration::from_secs(2);
/// After so long without news the next look has the first pause again.
const LINK_QUIET: Duration = Duration::from_secs(10);
/// How often to look where the kernel does not say (a container without netlink).
const LINK_FALLBACK: Duration = Duration::from_secs(60);
/// A standstill that is shorter looks to everybody like the pause between two heartbeats.
const LONG_STANDSTILL: Duration = Duration::from_secs(10);
/// Least time between two writes of what was learned of the server.
const KEEP_SPACING: Duration = Duration::from_secs(3600);
/// Runs the agent until SIGTERM or SIGINT. Nothing that the network, the server, the credentials or the disk do ends it;
/// it does not begin where another process has the state directory.
pub fn run(start: Start) -> Result<(), IoError> {
    log::set_ceiling();
    let boot = BootId::parse(start.machine.boot_id.as_deref().unwrap_or_default());
    let reactor = Reactor::new().map_err(|error| IoError::NoReactor { detail: error.to_string() })?;
    let opened = disk_writer::open(&reactor, &start.settings, boot, start.look_at_files);
    let (disk, journal, kept) = opened.map_err(IoError::StateInUse)?;
    let sandbox = enter_sandbox(&start.settings, &start.files, !disk.is_silent());
    let signals = Signals::new(&reactor).map_err(|error| IoError::NoSignals { detail: error.to_string() })?;
    let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::new(kept)));
    let certificate_clock = CertificateClock::new();
    resolver.kept().past().into_iter().for_each(|moment| certificate_clock.passed(moment));
    let pool = Pool::new(
        Rc::clone(&reactor),
        Rc::clone(&resolver),
        certificate_clock,
        start.kubeconfig,
        start.node_name.clone(),
    );
    let world = World {
        reactor,
        resolver,
        pool,
        disk,
        inbox: Inbox::default(),
        lease_requests: Inbox::default(),
        status_requests: Inbox::default(),
        event_requests: Inbox::default(),
        settings_source: Source::new("settings-reader", thread::FILE_PATIENCE),
        disk_source: Source::new("disk-reader", board::DISK_PATIENCE),
        node_name: start.node_name,
    };
    let executor = LocalExecutor::new();
    for lane in [Lane::Lease, Lane::Status, Lane::Events] {
        executor.spawn(world.serve(lane)).detach();
    }
    executor.spawn(world.watch_signals(signals)).detach();
    executor.spawn(world.watch_links()).detach();
    executor.spawn(world.watch_clock()).detach();
    executor.spawn(world.keep_what_was_learned()).detach();
    let seed = RandomState::new().build_hasher().finish();
    let judges_pids = start.settings.eviction.judges_pids();
    let reset_reason = start.machine.reset_reason.as_deref().unwrap_or_default();
    let shell = Shell {
        state_directory: start.settings.state_directory.clone(),
        agent: Agent::new(start.settings, world.node_name.clone(), seed, journal, reset_reason, clock::now()),
        world: &world,
        executor: &executor,
        manager: ServiceManager::new(|name| std::env::var_os(name), clock::up()),
        refused: None,
        suspended: clock::suspended(),
        machine: start.machine,
        network: None,
        name_addresses: None,
        board_given: false,
        name_lookup: None,
        facts_wanted: false,
        read_readings: start.read_readings,
        judges_pids,
        read_network: start.read_network,
        read_settings: start.read_settings,
        sandbox: Arc::new(sandbox),
        read_disk: start.read_disk,
        disk_may_hang: false,
        disk_is_asked: false,
        because: RefCell::default(),
    };
    let ended = world.reactor.block_on(executor.run(shell.live()));
    world.pool.drop_idle();
    ended.map_err(|error| IoError::CannotSleep { detail: error.to_string() })
}

fn enter_sandbox(settings: &Settings, files: &[String], disk_answers: bool) -> Sandbox {
    if !settings.sandbox {
        ::log::info!(target: "sandbox", "sandbox: false, so nothing is given up");
        return Sandbox::default();
    }
    // Who writes the log by now would not be in it.
    ::log::logger().flush();
    let sandbox = Sandbox::enter(disk_answers.then_some(settings.state_directory.as_str()), files);
    ::log::info!(target: "sandbox", "{}", sandbox.summary());
    sandbox
}

/// One exchange, for commands that ask the server one thing.
pub fn exchange_once(kubeconfig: Kubeconfig, node_name: String, wish: Wish) -> Result<Answer, IoError> {
    Session::open(kubeconfig, node_name)?.ask(wish)
}

/// A connection to the API server for a command that asks several things, one after the other.
pub struct Session {
    reactor: Rc<Reactor>,
    pool: Pool,
}

impl Session {
    pub fn open(kubeconfig: Kubeconfig, node_name: String) -> Result<Session, IoError> {
        let reactor = Reactor::new().map_err(|error| IoError::NoReactor { detail: error.to_string() })?;
        let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::default()));
        let pool = Pool::new(Rc::clone(&reactor), resolver, CertificateClock::new(), kubeconfig, node_name);
        Ok(Session { reactor, pool })
    }

    /// Reads the credentials and says how long they are valid.
    pub fn credentials(&self) -> Result<CredentialDates, Failure> {
        let read = self.reactor.block_on(self.pool.reload());
        read.unwrap_or_else(|error| Err(Failure::Credentials { what: error.to_string() }))
    }

    pub fn ask(&self, wish: Wish) -> Result<Answer, IoError> {
        let asked = self.reactor.block_on(self.pool.exchange(wish));
        asked.map_err(|error| IoError::CannotSleep { detail: error.to_string() })
    }
}

/// What every task may use.
struct World {
    reactor: Rc<Reactor>,
    resolver: Rc<Resolver>,
    pool: Pool,
    disk: DiskWriter,
    inbox: Inbox<Message>,
    /// What each lane is to ask; the agent gives it nothing more before the answer.
    lease_requests: Inbox<(Ticket, Wish)>,
    status_requests: Inbox<(Ticket, Wish)>,
    event_requests: Inbox<(Ticket, Wish)>,
    settings_source: Source,
    disk_source: Source,
    node_name: String,
}

impl World {
    /// Carries the requests of one lane, for as long as the process lives: a task for each request would be four
    /// kilobytes of memory to be had, and given back, every ten seconds.
    async fn serve(&self, lane: Lane) {
        loop {
            let (ticket, wish) = self.requests(lane).next().await;
            let answer = self.pool.exchange(wish).await;
            self.inbox.push(Message::Input(Input::Answered(ticket, answer)));
        }
    }

    fn requests(&self, lane: Lane) -> &Inbox<(Ticket, Wish)> {
        match lane {
            Lane::Lease => &self.lease_requests,
            Lane::Status => &self.status_requests,
            Lane::Events => &self.event_requests,
        }
    }

    async fn write_journal(&self, write: journal::Write) {
        let done = self.disk.write(write).await;
        self.inbox.push(Message::Input(Input::Written { done }));
    }

    async fn watch_signals(&self, signals: Signals) {
        while let Ok(request) = signals.next().await {
            self.inbox.push(Message::Signal(request));
        }
    }

    async fn watch_links(&self) {
        if let Ok(links) = LinkWatch::new(&self.reactor) {
            let (mut pause, mut quiet_since) = (LINK_PAUSE_FIRST, Up::BOOT);
            while links.changed().await.is_ok() {
                let is_first = clock::up() - quiet_since > LINK_QUIET;
                pause = if is_first { LINK_PAUSE_FIRST } else { (pause * 2).min(LINK_PAUSE_LAST) };
                self.reactor.sleep_until(clock::up() + LINK_DEBOUNCE).await;
                links.forget();
                self.inbox.push(Message::NetworkMayHaveChanged);
                self.reactor.sleep_until(clock::up() + pause).await;
                quiet_since = clock::up();
            }
        }
        ::log::info!(target: "links-unwatched", "the kernel does not report link changes here; looking every minute");
        loop {
            self.reactor.sleep_until(clock::up() + LINK_FALLBACK).await;
            self.inbox.push(Message::NetworkMayHaveChanged);
        }
    }

    async fn watch_clock(&self) {
        let Ok(watch) = ClockWatch::new(&self.reactor) else { return };
        while watch.stepped().await.is_ok() {
            self.inbox.push(Message::Input(Input::Woke));
        }
    }

    /// Writes once or twice a day, on a thread of its own: no heartbeat waits for a disk.
    async fn keep_what_was_learned(&self) {
        let kept = self.resolver.kept();
        let Some(path) = kept.path() else { return };
        let mut was_told = false;
        loop {
            let bytes = kept.worth_writing().await;
            let (for_path, for_bytes) = (path.clone(), bytes.clone());
            let write = move || aside::replace(&for_path, &for_bytes);
            let begun = thread::begin("uplink-writer", thread::WRITER_STACK_BYTES, write);
            let ended = match begun {
                Ok(answer) => answer.get().await.unwrap_or_else(|| Err(io::ErrorKind::Other.into())),
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => kept.written(&bytes),
                Err(error) if !was_told => {
                    was_told = true;
                    let path = path.display();
                    ::log::warn!(target: "uplink-not-kept", "cannot write {path}: {error}; a start without DNS will not find the server");
                }
                Err(_) => {}
            }
            self.reactor.sleep_until(clock::up() + KEEP_SPACING).await;
        }
    }
}

/// The loop, and what it keeps between two turns.
struct Shell<'a, 'world> {
    agent: Agent,
    world: &'world World,
    executor: &'a LocalExecutor<'world>,
    manager: ServiceManager,
    /// What SIGHUP read last and is not in use, with the reason.
    refused: Option<String>,
    /// For how long the machine was suspended until the last turn, since it was booted.
    suspended: Duration,
    machine: Machine,
    network: Option<Network>,
    /// `None` until the first look-up of the node name has ended.
    name_addresses: Option<Vec<IpAddr>>,
    /// The agent has the machine and the network as they are: it needs only readings.
    board_given: bool,
    /// Dropping it ends the look-up.
    name_lookup: Option<Task<()>>,
    /// The agent waits for facts, which wait for that look-up.
    facts_wanted: bool,
    read_readings: ReadReadings,
    judges_pids: bool,
    read_network: Box<dyn FnMut() -> Network>,
    read_settings: ReadSettings,
    sandbox: Arc<Sandbox>,
    read_disk: ReadDisk,
    /// Then nothing else waits for its answer. Looked for along with everything else that may be new.
    disk_may_hang: bool,
    disk_is_asked: bool,
    state_directory: String,
    because: RefCell<Option<Because>>,
}

impl Shell<'_, '_> {
    async fn live(mut self) {
        self.spawn_name_lookup();
        self.executor.spawn(self.world.reload_credentials()).detach();
        self.handle(Input::Woke);
        loop {
            let Some(until) = self.drain() else { return };
            let until = self.tell_manager().map_or(until, |due| due.min(until));
            let due = until.max(clock::up());
            let message = self.world.reactor.before(until, self.world.inbox.next()).await;
            self.notice_standstill(due);
            if message.is_none() {
                // Other tasks run even if the agent should want to be woken at once, again and again.
                smol::future::yield_now().await;
            }
            let message = message.unwrap_or(Message::Input(Input::Woke));
            match message {
                Message::Input(input) => self.handle(input),
                Message::NetworkMayHaveChanged => self.look_at_network(),
                Message::NameLookedUp(addresses) => self.name_looked_up(addresses),
                Message::DiskRead(disk) => self.disk_read(disk),
                Message::Reread(read) => self.reread(read),
                Message::Signal(Request::Reload) => self.reload(),
                Message::Signal(Request::Stop) => {
                    self.manager.stopping();
                    ::log::info!(target: "stopping", "asked to stop; the Node stays, its Lease will run out");
                    self.handle(Input::Stopping);
                }
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.agent.handle(input, clock::now());
    }

    /// Does what the agent wants until it waits; `None`: it has stopped.
    fn drain(&mut self) -> Option<Up> {
        loop {
            match self.agent.poll(clock::now()) {
                Output::Probe => self.probe(),
                Output::Send(ticket, wish) => self.world.requests(ticket.lane()).push((ticket, wish)),
                Output::ReloadCredentials => self.executor.spawn(self.world.reload_credentials()).detach(),
                Output::DropConnections => self.world.pool.drop_idle(),
                Output::Write(write) => self.executor.spawn(self.world.write_journal(write)).detach(),
                Output::Stopped => return None,
                Output::Say(notice) => log::say(&notice),
                Output::Wait { until, because } => {
                    self.explain(until, because);
                    return Some(until);
                }
            }
        }
    }

    /// Answers when the loop has to turn again for the service manager's sake.
    fn tell_manager(&mut self) -> Option<Up> {
        let Shell { manager, agent, refused, .. } = self;
        let standing = || {
            let mut standing = agent.standing();
            if let Some(refused) = refused {
                standing.text += &format!("; {refused}");
            }
            standing
        };
        manager.turned(standing, clock::up())
    }

    /// Why nothing happens now, for whoever asked to know (`-v 4`); once per reason.
    fn explain(&self, until: Up, because: Because) {
        if !::log::log_enabled!(::log::Level::Debug) || self.because.borrow().as_ref() == Some(&because) {
            return;
        }
        let after = because.after.as_ref().map(|after| format!(", {after}")).unwrap_or_default();
        let seconds = (until - clock::up()).as_secs_f64();
        ::log::debug!(target: "waiting", "{seconds:.1} s: {}{after}", because.what);
        self.because.replace(Some(because));
    }

    /// The machine was suspended, which a clock that counts suspend shows; or only this process stood still (frozen,
    /// stopped, or in a suspend that stops no clock), which shows only in a deadline of long ago. Either way the server, or
    /// a router on the way, may have given up whatever was connected.
    fn notice_standstill(&mut self, due: Up) {
        let before = std::mem::replace(&mut self.suspended, clock::suspended());
        let span = self.suspended.saturating_sub(before).max(clock::up() - due);
        if span >= LONG_STANDSTILL {
            ::log::info!(target: "resumed", "awake again after {} s", span.as_secs());
            self.world.pool.network_changed(&|_| false);
            self.world.inbox.push(Message::Input(Input::LinkChanged));
        }
    }
}

#[cfg(test)]
mod tests;
