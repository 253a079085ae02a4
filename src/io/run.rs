//! Turns what the agent wants into effects and what happens into its inputs: the loop of the process.
//!
//! ```text
//! inbox -> handle one input -> poll until Wait -> sleep until the deadline or the next message
//!   ^           requests, probes, log lines <--'
//!   '-- answers, signals, link changes
//! ```

mod board;
mod features;
mod identity;
mod learned;
mod links;
mod overview;
mod reload;
mod sensors;
mod session;
mod shutdown;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smol::LocalExecutor;
use smol::future::FutureExt;

use super::clock::{self, CertificateClock};
use super::control::{Control, Order};
use super::credentials;
use super::device_plugins::DevicePlugins;
use super::disk::JOURNAL;
use super::disk_writer::{self, DiskWriter, LookAtFiles};
use super::inbox::{Flag, Inbox};
use super::logind::Logind;
use super::notify::ServiceManager;
use super::pool::Pool;
use super::reactor::Reactor;
use super::resolve::Resolver;
use super::sandbox::Sandbox;
use super::thread::Source;
use super::watches::{ClockWatch, Request, Signals};
use super::{log, network, no_kernel, thread};
use crate::agent::{Agent, Because, Input, Means, Notice, Output, Ticket};
use crate::api::traffic::Cadence;
use crate::api::{Lane, Operation, Seen};
use crate::config::Settings;
use crate::config::kubeconfig::{Kubeconfig, Server};
use crate::config::settings::lists_devices;
use crate::device_plugins::DIRECTORY;
use crate::journal::{self, BootId};
use crate::probe::{self, KernelLogFiles, LastReset, Machine, Network, ReadingFiles, Root, StateDisk};
use crate::time::Up;
use board::Board;
use identity::Identity;
use reload::Reread;
pub use session::Session;

/// Everything the loop begins with.
pub struct Start {
    pub settings: Settings,
    /// `None`: the board has to join first.
    pub kubeconfig: Option<Kubeconfig>,
    pub node_name: String,
    /// Where the files of the board are.
    pub root: Root,
    pub machine: Machine,
    pub last_reset: LastReset,
    /// SIGHUP: settings and kubeconfig again, or one sentence for each problem. What the sandbox hides is told by it.
    pub read_settings: ReadSettings,
    /// What the settings say to join with; takes the servers in use, if there are any.
    pub read_means: ReadMeans,
    /// The file system of the state directory, for every status run; takes whether it may be another one.
    pub read_disk: ReadDisk,
    /// A person waits for the Node, and somebody else keeps it Ready from then on.
    pub ends_when_ready: bool,
    /// Where an init script says that the machine goes down.
    pub leaving: String,
    /// What of the files below every user may read or change.
    pub look_at_files: LookAtFiles,
    /// Files that will be read again: settings, kubeconfig, and what that names.
    pub files: Vec<String>,
}

/// These two may hang, with the file system that they ask.
type ReadSettings = Arc<dyn Fn(&Sandbox) -> Result<(Settings, Option<Kubeconfig>), String> + Send + Sync>;
type ReadMeans = Arc<dyn Fn(&[Server]) -> Result<Means, String> + Send + Sync>;
type ReadDisk = Arc<dyn Fn(bool) -> StateDisk + Send + Sync>;

/// What the tasks of this thread tell the loop.
enum Message {
    Input(Input),
    /// What a watch has seen is there to be taken.
    Seen,
    Signal(Request),
    /// What SIGHUP led to.
    Reread(Reread),
    /// A person asks how the board fares.
    Status,
}

/// A standstill that is shorter looks to everybody like the pause between two heartbeats.
const LONG_STANDSTILL: Duration = Duration::from_secs(10);

/// Runs the agent until SIGTERM or SIGINT. Nothing that the network, the server, the credentials or the disk do ends it;
/// it does not begin where another process has the state directory.
pub fn run(start: Start) -> Result<(), Notice> {
    log::set_ceiling();
    let boot = BootId::parse(start.machine.boot_id.as_deref().unwrap_or_default());
    let (reactor, identity) = (new_reactor()?, Identity::new(&start));
    let (disk, journal, known, control) = disk_writer::open(&reactor, &start.settings, boot, start.look_at_files)?;
    let kernel_log = start.settings.kernel_events.then(|| KernelLogFiles::open(&start.root, journal.kernel_read()));
    let device_plugins = DevicePlugins::new(start.settings.device_plugins.then_some(DIRECTORY));
    let sandbox = enter_sandbox(&start.settings, &start.files, !disk.is_silent());
    let signals = Signals::new(&reactor).map_err(|e| no_kernel("no-signals", "the kernel gives no signalfd", &e))?;
    let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::new(known)));
    let (clock, http) = (CertificateClock::new(), start.settings.http());
    resolver.known_servers().issued().into_iter().for_each(|moment| clock.passed(moment));
    let (successor, kubeconfig) = (identity.files.successor(), known_or_none(start.kubeconfig, &start.settings));
    let pool = Pool::new(Rc::clone(&reactor), Rc::clone(&resolver), clock, kubeconfig, successor, http);
    let shared = Shared {
        reactor,
        resolver,
        pool,
        disk: ManuallyDrop::new(disk),
        inbox: Inbox::default(),
        requests: Default::default(),
        seen: RefCell::default(),
        identity,
        settings_source: Source::new("settings-reader", 1),
        disk_source: Source::new("disk-reader", 1),
        node_name: start.node_name,
        network: RefCell::new(network::with_live_addresses(probe::network(&start.root))),
        network_changed: Flag::default(),
        name_addresses: RefCell::default(),
        name_looked_up: Flag::default(),
        asked: RefCell::new(probe::Asked::by(&start.settings)),
        cadence: Cell::new(Cadence::of(&start.settings)),
        has_budget: Cell::new(start.settings.daily_bytes.is_some()),
        board_wanted: Flag::default(),
        board_given: Cell::new(false),
        reload_wanted: Flag::default(),
        control: Control::default(),
        device_plugins,
        logind: Logind::new(start.settings.announce_shutdown, |name| std::env::var(name).ok()),
        root: start.root,
    };
    let (executor, name) = (LocalExecutor::new(), shared.node_name.clone());
    shared.serve_lanes(&executor);
    spawn(&executor, shared.serve_control(control));
    shared.watch_kernel(&executor, signals);
    let board = Board {
        machine: start.machine,
        reading_files: ReadingFiles::open(&shared.root, clock::up()),
        read_disk: start.read_disk,
        state_directory: start.settings.state_directory.clone(),
    };
    spawn(&executor, shared.read_board(board, kernel_log));
    spawn(&executor, shared.read_again(start.read_settings, Arc::new(sandbox)));
    let agent = Agent::new(start.settings, name, seed(), journal, &start.last_reset, clock::now());
    let main_loop = Box::new(MainLoop {
        agent,
        shared: &shared,
        executor: &executor,
        manager: ServiceManager::new(|name| std::env::var_os(name), clock::up()),
        refused: None,
        suspended: clock::suspended(),
        ends_when_ready: start.ends_when_ready,
        leaving: start.leaving,
        waits: None,
        began: clock::up(),
    });
    let ended = shared.reactor.block_on(executor.run(main_loop.run()));
    shared.keep_at_the_end();
    ended.map_err(cannot_sleep)
}

/// Of all jitter: another one in each process.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The way to a cluster may lead through a proxy before it is known which one that is.
fn known_or_none(known: Option<Kubeconfig>, settings: &Settings) -> Kubeconfig {
    known.unwrap_or_else(|| Kubeconfig { proxy: settings.proxy_url.clone(), ..Kubeconfig::of_nobody() })
}

fn new_reactor() -> Result<Rc<Reactor>, Notice> {
    Reactor::new().map_err(|error| no_kernel("no-reactor", "the kernel gives no epoll", &error))
}

fn cannot_sleep(error: std::io::Error) -> Notice {
    no_kernel("cannot-sleep", "epoll_wait failed", &error)
}

fn enter_sandbox(settings: &Settings, files: &[String], disk_answers: bool) -> Sandbox {
    if !settings.sandbox {
        ::log::info!(target: "sandbox", "sandbox: false, so the process keeps every right it has");
        return Sandbox::default();
    }
    // Who writes the log by now would not be in it.
    ::log::logger().flush();
    let state_directory = disk_answers.then_some(settings.state_directory.as_str());
    let sandbox = Sandbox::enter(state_directory, files, lists_devices(&settings.extended_resources));
    ::log::info!(target: "sandbox", "{}", sandbox.summary());
    sandbox
}

/// What every task may use.
struct Shared {
    reactor: Rc<Reactor>,
    resolver: Rc<Resolver>,
    pool: Pool,
    /// Never dropped: who closes a file waits for its file system, and the end of the process for nobody.
    disk: ManuallyDrop<DiskWriter>,
    inbox: Inbox<Message>,
    /// What each lane is to ask; the agent gives it nothing more before the answer.
    requests: [Inbox<(Ticket, Operation)>; 5],
    /// What the watch of the Node says, until the loop takes it.
    seen: RefCell<Option<Seen>>,
    identity: Identity,
    settings_source: Source,
    disk_source: Source,
    node_name: String,
    root: Root,
    network: RefCell<Network>,
    network_changed: Flag,
    /// `None` until the first look-up of the node name has ended.
    name_addresses: RefCell<Option<Vec<IpAddr>>>,
    name_looked_up: Flag,
    asked: RefCell<probe::Asked>,
    /// For whoever asks what they cost.
    cadence: Cell<Cadence>,
    /// The agent is to know what the network takes.
    has_budget: Cell<bool>,
    board_wanted: Flag,
    /// The agent has the machine and the network as they are: it needs only readings.
    board_given: Cell<bool>,
    /// Somebody sent SIGHUP.
    reload_wanted: Flag,
    control: Control,
    device_plugins: DevicePlugins,
    logind: Logind,
}

impl Shared {
    fn serve_lanes<'a>(&'a self, executor: &LocalExecutor<'a>) {
        let lanes = [Lane::Lease, Lane::Status, Lane::Events, Lane::Identity];
        lanes.iter().for_each(|lane| spawn(executor, self.serve(*lane)));
        spawn(executor, self.serve_watch());
        spawn(executor, self.serve_identity());
        spawn(executor, self.keep_what_was_learned());
        spawn(executor, self.look_up_node_name());
        spawn(executor, self.device_plugins.serve(&self.reactor));
    }

    /// Carries the requests of one lane, for as long as the process lives: a task for each request would be four
    /// kilobytes of memory to be had, and given back, every ten seconds.
    async fn serve(&self, lane: Lane) {
        loop {
            let (ticket, operation) = self.requests(lane).next().await;
            self.look_before_connecting();
            let answer = self.pool.exchange_by(operation, ticket.answer_by()).await;
            self.inbox.push(Message::Input(Input::Answered(ticket, answer)));
        }
    }

    /// The same for the watch, of which the loop takes the newest event when it comes to that.
    async fn serve_watch(&self) {
        let tell = |seen: Seen| {
            let untold = self.seen.take();
            if untold.is_none() {
                self.inbox.push(Message::Seen);
            }
            self.seen.replace(Some(seen.in_place_of(untold)));
        };
        loop {
            let (ticket, operation) = self.requests(Lane::Watch).next().await;
            let answer = self.pool.watch(&operation, &tell).await;
            self.inbox.push(Message::Input(Input::Answered(ticket, answer)));
        }
    }

    fn requests(&self, lane: Lane) -> &Inbox<(Ticket, Operation)> {
        let [lease, status, events, identity, watch] = &self.requests;
        match lane {
            Lane::Lease => lease,
            Lane::Status => status,
            Lane::Events => events,
            Lane::Identity => identity,
            Lane::Watch => watch,
        }
    }

    /// What a command asks, over the control socket.
    async fn serve_control(&self, listener: Option<OwnedFd>) {
        let ask = |order| match order {
            Order::Renew => self.inbox.push(Message::Input(Input::Renew)),
            Order::Away { until, reason } => self.inbox.push(Message::Input(Input::Away { until, reason })),
            Order::Back => self.inbox.push(Message::Input(Input::Back)),
            Order::Stop => self.inbox.push(Message::Signal(Request::Stop)),
            Order::Status => self.inbox.push(Message::Status),
            Order::Cost => self.control.answer(Ok(self.resolver.meter().report(self.cadence.get()))),
        };
        if let Some(listener) = listener {
            self.control.serve(&self.reactor, listener, ask).await;
        }
    }

    async fn write_journal(&self, write: journal::Write) {
        let done = self.disk.write(JOURNAL, write).await;
        if done {
            self.resolver.known_servers().disk_written(clock::up());
        }
        self.inbox.push(Message::Input(Input::Written { done }));
    }

    fn watch_kernel<'a>(&'a self, executor: &LocalExecutor<'a>, signals: Signals) {
        spawn(executor, self.watch_signals(signals));
        spawn(executor, self.watch_links());
        spawn(executor, self.watch_clock());
        spawn(executor, self.watch_logind());
    }

    async fn watch_signals(&self, signals: Signals) {
        while let Ok(request) = signals.next().await {
            self.inbox.push(Message::Signal(request));
        }
    }

    async fn watch_clock(&self) {
        let Ok(watch) = ClockWatch::new(&self.reactor) else { return };
        while watch.stepped().await.is_ok() {
            self.inbox.push(Message::Input(Input::Woke));
        }
    }
}

/// The loop, and what it keeps between two turns.
struct MainLoop<'a, 'shared> {
    agent: Agent,
    shared: &'shared Shared,
    executor: &'a LocalExecutor<'shared>,
    manager: ServiceManager,
    /// What SIGHUP read last and is not in use, with the reason.
    refused: Option<String>,
    /// For how long the machine was suspended until the last turn, since it was booted.
    suspended: Duration,
    ends_when_ready: bool,
    leaving: String,
    /// Until when nothing is to be done, and what for.
    waits: Option<(Up, Because)>,
    began: Up,
}

/// Boxed, so that the program has what runs a task once and not for each kind of task.
fn spawn<'a>(executor: &LocalExecutor<'a>, task: impl Future<Output = ()> + 'a) {
    executor.spawn(task.boxed_local()).detach();
}

impl MainLoop<'_, '_> {
    /// Boxed, as each layer of the executor would have all of it on the stack once more, which never shrinks again: 100 KB.
    async fn run(mut self: Box<Self>) {
        if self.shared.identity.is_joined {
            spawn(self.executor, self.shared.reload_credentials());
            self.handle(Input::Woke);
        } else {
            self.handle(Input::NotJoined);
        }
        loop {
            let Some(until) = self.drain() else { return };
            if self.ends_when_ready && self.agent.is_ready() {
                self.ends_when_ready = false;
                let name = &self.shared.node_name;
                ::log::info!(target: "joined", "Node {name} is Ready; its service keeps it so: systemctl enable --now nodepulse");
                self.handle(Input::Stopping);
                continue;
            }
            let until = self.tell_manager().map_or(until, |due| due.min(until));
            let due = until.max(clock::up());
            self.shared.logind.turned(clock::up());
            let message = self.shared.reactor.before(until, self.shared.inbox.next()).await;
            self.notice_standstill(due);
            if message.is_none() {
                // Other tasks run even if the agent should want to be woken at once, again and again.
                smol::future::yield_now().await;
            }
            let message = message.unwrap_or(Message::Input(Input::Woke));
            match message {
                Message::Input(input) => self.handle(input),
                Message::Seen => self.shared.seen.take().into_iter().for_each(|seen| self.handle(Input::Seen(seen))),
                Message::Reread(read) => self.reread(read),
                Message::Status => self.shared.control.answer(Ok(self.overview())),
                Message::Signal(Request::Reload) => {
                    self.manager.reloading();
                    self.shared.reload_wanted.raise();
                }
                Message::Signal(Request::Stop) => {
                    self.manager.stopping();
                    ::log::info!(target: "stopping", "asked to stop; the Node stays, its Lease will run out");
                    self.asked_to_stop();
                }
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.agent.handle(input, clock::now());
    }

    /// Does what the agent wants until it waits; `None`: it has stopped.
    fn drain(&mut self) -> Option<Up> {
        let now = clock::now();
        loop {
            match self.agent.poll(now) {
                Output::Probe { pod_cidr } => self.shared.want_board(pod_cidr),
                Output::Send(ticket, operation) => self.shared.requests(ticket.lane()).push((ticket, operation)),
                Output::EndWatch => self.shared.pool.end_watch(),
                Output::Identity(step) => self.shared.identity.wants(step),
                Output::ReloadCredentials => spawn(self.executor, self.shared.reload_credentials()),
                Output::DropConnections { unheard_for } => self.shared.pool.drop_unheard(unheard_for),
                Output::Write(write) => spawn(self.executor, self.shared.write_journal(write)),
                Output::Told(told) => self.shared.control.answer(told),
                Output::ReleaseLock => self.shared.logind.release(),
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
        let MainLoop { manager, agent, refused, .. } = self;
        let standing = || {
            let mut standing = agent.status_line();
            if let Some(refused) = refused {
                standing.text += &format!("; {refused}");
            }
            standing
        };
        manager.turned(standing, clock::up())
    }

    /// Why nothing happens now, for whoever asks (`nodepulse status`) or asked to know (`-v 4`); once per reason.
    fn explain(&mut self, until: Up, because: Because) {
        let is_told = self.waits.as_ref().is_some_and(|(_, told)| *told == because);
        if !is_told && ::log::log_enabled!(::log::Level::Debug) {
            let after = because.after.as_ref().map(|after| format!(", {after}")).unwrap_or_default();
            ::log::debug!(target: "waiting", "{} s: {}{after}", Up::since_boot(until - clock::up()), because.what);
        }
        self.waits = Some((until, because));
    }

    /// The machine was suspended, which a clock that counts suspend shows; or only this process stood still (frozen,
    /// stopped, or in a suspend that stops no clock), which shows only in a deadline of long ago. Either way the server, or
    /// a router on the way, may have given up whatever was connected.
    fn notice_standstill(&mut self, due: Up) {
        let before = std::mem::replace(&mut self.suspended, clock::suspended());
        let span = self.suspended.saturating_sub(before).max(clock::up() - due);
        if span >= LONG_STANDSTILL {
            ::log::info!(target: "resumed", "awake again after {} s", span.as_secs());
            self.shared.pool.network_changed(&|_| false);
            self.shared.inbox.push(Message::Input(Input::LinkChanged));
        }
    }
}

#[cfg(test)]
mod tests;
