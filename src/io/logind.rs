//! Turns the machine's bus into what the agent hears of a shutdown, and keeps logind's lock until the agent lets it go (SHD-1).
//!
//! ```text
//! no bus: looked for again with a turn of the loop that happens anyway, at most once in a pause that doubles to nine minutes
//! connected: the lock is asked for -> held, refused for good, or asked for again in the same way
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket};
use nix::unistd::geteuid;
use smol::future::FutureExt;

use super::clock;
use super::inbox::Inbox;
use super::kernel;
use super::reactor::{Reactor, Watched};
use crate::agent::Input;
use crate::dbus::{Client, Event, Refusal, Taken};
use crate::time::Up;

const ADDRESS: &str = "DBUS_SYSTEM_BUS_ADDRESS";
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// After a bus was lost or was not there, or logind gave no lock; doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(512);
/// A lock that is asked for while the machine goes down is asked for again.
const IN_PROGRESS_PAUSE: Duration = Duration::from_secs(1);
/// How long systemd has to say whether the machine goes down.
const STATE_PATIENCE: Duration = Duration::from_millis(200);

enum Order {
    /// Look for the bus, or ask for the lock, again.
    TryAgain,
    AskState,
}

/// What a turn of a conversation begins with.
enum Turn {
    Came(io::Result<usize>),
    Ordered(Order),
}

/// The agent's end.
pub struct Logind {
    /// `None`: a shutdown is not announced.
    path: Option<String>,
    lock: RefCell<Option<OwnedFd>>,
    orders: Inbox<Order>,
    is_connected: Cell<bool>,
    goes_down: Cell<bool>,
    states: Inbox<bool>,
    /// When to try again what failed, and how long to wait after the next failure.
    again_at: Cell<Option<Up>>,
    pause: Cell<Duration>,
    /// A person need hear each only once.
    has_lock_been_told: Cell<bool>,
    has_failure_been_told: Cell<bool>,
}

impl Logind {
    /// `variable` reads `DBUS_SYSTEM_BUS_ADDRESS` of the environment.
    pub fn new(is_announced: bool, variable: impl Fn(&str) -> Option<String>) -> Logind {
        let path = variable(ADDRESS).as_deref().and_then(path_of).unwrap_or_else(|| SOCKET.to_owned());
        Logind {
            path: is_announced.then_some(path),
            lock: RefCell::default(),
            orders: Inbox::default(),
            is_connected: Cell::default(),
            goes_down: Cell::default(),
            states: Inbox::default(),
            again_at: Cell::default(),
            pause: Cell::new(FIRST_PAUSE),
            has_lock_been_told: Cell::default(),
            has_failure_been_told: Cell::default(),
        }
    }

    /// Tells what logind says, for as long as the process lives.
    pub async fn serve(&self, reactor: &Rc<Reactor>, tell: impl Fn(Input)) {
        let Some(path) = &self.path else { return };
        loop {
            if let Ok(stream) = connected(path) {
                let lost = self.converse(reactor, stream, &tell).await;
                self.is_connected.set(false);
                ::log::debug!(target: "bus", "the connection to {path} is lost: {lost}");
            }
            self.try_later();
            while !matches!(self.orders.next().await, Order::TryAgain) {}
        }
    }

    fn try_later(&self) {
        let pause = self.pause.get();
        self.again_at.set(Some(clock::up() + pause));
        self.pause.set((pause * 2).min(LAST_PAUSE));
    }

    /// A turn of the loop, which costs nothing more: what failed is tried again when that is due.
    pub fn turned(&self, now: Up) {
        if self.again_at.get().is_some_and(|at| now >= at) {
            self.again_at.set(None);
            self.orders.push(Order::TryAgain);
        }
    }

    /// The machine need not wait for us any more.
    pub fn release(&self) {
        if self.lock.take().is_some() {
            ::log::debug!(target: "lock", "logind's lock is given back");
        }
    }

    /// Whether systemd can be asked for what logind has not said.
    pub fn may_know_more(&self) -> bool {
        self.is_connected.get() && !self.goes_down.get()
    }

    /// Whether the machine goes down; who does not answer in time has not said so.
    pub async fn is_stopping(&self, reactor: &Reactor) -> bool {
        self.orders.push(Order::AskState);
        reactor.before(clock::up() + STATE_PATIENCE, self.states.next()).await.unwrap_or(false)
    }

    /// Until the bus is lost; the error says how.
    async fn converse(&self, reactor: &Rc<Reactor>, stream: OwnedFd, tell: &impl Fn(Input)) -> io::Error {
        let stream = match reactor.watch(stream) {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let (mut client, greeting) = Client::new(geteuid().as_raw());
        let mut descriptors = VecDeque::new();
        let mut sent = sent(&stream, &greeting).await;
        self.is_connected.set(true);
        let mut in_progress_until = None;
        while sent.is_ok() {
            let mut bytes = [0; 512];
            let came = async {
                let read = |stream: &OwnedFd| Ok(kernel::receive(stream, &mut bytes, &mut descriptors)?);
                Turn::Came(stream.read_with(read).await)
            };
            let turn = came.or(async { Turn::Ordered(self.orders.next().await) });
            let turn = match in_progress_until {
                Some(until) => reactor.before(until, turn).await.unwrap_or(Turn::Ordered(Order::TryAgain)),
                None => turn.await,
            };
            let asked = match turn {
                Turn::Came(Ok(0)) => return io::ErrorKind::UnexpectedEof.into(),
                Turn::Came(Ok(count)) => {
                    client.received(bytes.get(..count).unwrap_or_default());
                    in_progress_until = None;
                    match self.take(&mut client, &mut descriptors, tell) {
                        Ok(Next::Nothing) => continue,
                        Ok(Next::AskLater) => {
                            in_progress_until = Some(clock::up() + IN_PROGRESS_PAUSE);
                            continue;
                        }
                        Ok(Next::AskNow) => client.inhibit(),
                        Err(error) => return error,
                    }
                }
                Turn::Came(Err(error)) => return error,
                Turn::Ordered(Order::TryAgain) => {
                    in_progress_until = None;
                    client.inhibit()
                }
                Turn::Ordered(Order::AskState) => client.ask_state(),
            };
            sent = self::sent(&stream, &asked).await;
        }
        sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// All messages that are whole.
    fn take(
        &self,
        client: &mut Client,
        descriptors: &mut VecDeque<OwnedFd>,
        tell: &impl Fn(Input),
    ) -> io::Result<Next> {
        let mut next = Next::Nothing;
        while let Some(taken) = client.take().map_err(|error| io::Error::other(error.to_string()))? {
            let Taken { descriptors: count, event } = taken;
            if count > descriptors.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // What nobody asked for is closed.
            let first = descriptors.drain(..count).next();
            match event {
                Some(Event::Locked) => self.locked(first, tell),
                Some(Event::NotLocked(Refusal::InProgress)) => next = Next::AskLater,
                Some(Event::NotLocked(Refusal::Denied(words))) => {
                    self.say_failure(&format!("{words}: a shutdown is told, but it does not wait for that"));
                }
                Some(Event::NotLocked(Refusal::Unavailable(words))) => {
                    self.say_failure(&words);
                    self.try_later();
                }
                Some(Event::GoesDown(kind)) => {
                    self.goes_down.set(true);
                    tell(Input::GoesDown(kind));
                }
                Some(Event::GoesOn) => {
                    self.goes_down.set(false);
                    tell(Input::GoesOn);
                    next = Next::AskNow;
                }
                Some(Event::SystemState { is_stopping }) => self.states.push(is_stopping),
                None => {}
            }
        }
        Ok(next)
    }

    /// Logind gives its lock only while the machine does not go down: so it does not, whatever was said before a bus was lost.
    fn locked(&self, lock: Option<OwnedFd>, tell: &impl Fn(Input)) {
        self.lock.replace(lock);
        self.pause.set(FIRST_PAUSE);
        if self.goes_down.replace(false) {
            tell(Input::GoesOn);
        }
        if !self.has_lock_been_told.replace(true) {
            ::log::info!(target: "lock", "logind waits with a shutdown until the cluster knows of it");
        }
    }

    fn say_failure(&self, words: &str) {
        if !self.has_failure_been_told.replace(true) {
            ::log::info!(target: "no-lock", "logind gives no lock: {words}");
        }
    }
}

/// What is asked after what came.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    AskNow,
    AskLater,
}

/// The first socket of an address that has a path.
fn path_of(address: &str) -> Option<String> {
    let all = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    all.flat_map(|keys| keys.split(',')).find_map(|key| key.strip_prefix("path=")).map(str::to_owned)
}

/// A connection to that socket. Never waits: whoever does not come to its callers is as good as not there.
pub(super) fn connected(path: &str) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let address = UnixAddr::new(path)?;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &address)?;
    Ok(stream)
}

/// All of them, over a socket that does not block.
pub(super) async fn sent(stream: &Watched<OwnedFd>, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let write = |stream: &OwnedFd| Ok(send(stream.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL)?);
        let count = stream.write_with(write).await?;
        rest = rest.get(count..).filter(|_| count > 0).ok_or(Errno::EPIPE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
