//! Turns the socket where device plug-ins look for a kubelet into what they tell of their devices.
//!
//! ```text
//! plug-in -> kubelet.sock: Register          we -> its socket: GetDevicePluginOptions, and the answer to that is the one to Register
//!                                            we -> its socket: ListAndWatch, for as long as it lives
//! ```

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use nix::unistd::geteuid;
use smol::LocalExecutor;
use smol::future::FutureExt;

use super::clock;
use super::inbox::{Flag, Inbox};
use super::logind::{connected, sent};
use super::reactor::{Reactor, Watched};
use crate::config::limits;
use crate::config::text_map::TextMap;
use crate::device_plugins::{Devices, LIST_AND_WATCH, OPTIONS, PluginId, Plugins, REGISTER, Registration, SOCKET};
use crate::grpc::{Answer, Asked, Client, Progress, Server, Status};
use crate::http2::Error as Http2Error;
use crate::probe::Fact;

/// How long a plug-in has to answer, as a kubelet has it, and how long one may take to register.
const PATIENCE: Duration = Duration::from_secs(10);
const REGISTERS_WITHIN: Duration = Duration::from_secs(30);

/// Those that have registered.
#[derive(Default)]
pub struct DevicePlugins {
    /// `None`: nobody wants to, or may.
    listener: Cell<Option<UnixListener>>,
    directory: String,
    plugins: RefCell<Plugins>,
    /// Those that are to be listened to.
    registered: Inbox<Box<Plugin>>,
    registering: Cell<usize>,
    /// Those that are listened to, each with what ends that.
    listened_to: RefCell<Vec<(PluginId, Rc<Flag>)>>,
}

impl DevicePlugins {
    /// Before the sandbox. `directory`: where they may register.
    pub fn new(directory: Option<&str>) -> DevicePlugins {
        let directory = directory.unwrap_or_default().to_owned();
        let refused = |error: &io::Error| {
            ::log::warn!(
                target: "no-device-plugins",
                "device plug-ins cannot register: {directory}: {error}; the agent's user has to own that folder, and no kubelet to run"
            );
        };
        let listening = (!directory.is_empty()).then(|| listen(&directory));
        let listener = Cell::new(listening.and_then(|listening| listening.inspect_err(refused).ok()));
        DevicePlugins { listener, directory, ..DevicePlugins::default() }
    }

    /// Adds how many devices each resource has now, and how many of them are not healthy.
    pub fn count(&self, counts: &mut TextMap<Fact<u64>>, unhealthy: &mut TextMap<u64>) {
        self.plugins.borrow().count(clock::up(), counts, unhealthy);
    }

    /// For as long as the process lives.
    pub async fn serve(&self, reactor: &Rc<Reactor>) {
        let Some(Ok(listener)) = self.listener.take().map(|listener| reactor.watch(listener)) else { return };
        let executor = LocalExecutor::new();
        let accept = async {
            loop {
                let came = async { Came::Connection(listener.read_with(|listener| Ok(listener.accept()?.0)).await) };
                match came.or(async { Came::Plugin(self.registered.next().await) }).await {
                    Came::Plugin(plugin) => executor.spawn(self.listen_to(plugin).boxed_local()).detach(),
                    Came::Connection(Ok(stream)) if self.registering.get() < limits::DEVICE_PLUGINS_REGISTERING => {
                        self.registering.set(self.registering.get() + 1);
                        executor.spawn(self.register(reactor, stream).boxed_local()).detach();
                    }
                    // Too many at once: it comes again.
                    Came::Connection(Ok(_)) => {}
                    Came::Connection(Err(error)) => {
                        ::log::debug!(target: "device-plugins", "cannot take a connection: {error}");
                        reactor.sleep_until(clock::up() + PATIENCE).await;
                    }
                }
            }
        };
        executor.run(accept).await
    }

    /// One connection to `kubelet.sock`.
    async fn register(&self, reactor: &Rc<Reactor>, stream: UnixStream) {
        let until = clock::up() + REGISTERS_WITHIN;
        let is_ours = getsockopt(&stream, sockopt::PeerCredentials)
            .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw());
        let served = async {
            stream.set_nonblocking(true)?;
            let (mut server, mut line) = (Server::default(), Line::new(reactor, stream.into())?);
            loop {
                while let Some(call) = server.next_call().map_err(broken)? {
                    let id = call.id;
                    match self.answer(reactor, call, is_ours).await {
                        Ok(plugin) => {
                            server.answer(id, b"");
                            self.registered.push(Box::new(plugin));
                        }
                        Err(Status { code, message }) => {
                            ::log::warn!(target: "device-plugin-refused", "a device plug-in may not register: {message}");
                            server.refuse(id, code, &message);
                        }
                    }
                }
                server.take_output(&mut line.unsent);
                line.send().await?;
                let bytes = line.receive().await?;
                server.receive(&bytes);
            }
        };
        // Plug-ins hang up right after the answer.
        let ended: Option<io::Result<()>> = reactor.before(until, served).await;
        ::log::debug!(target: "device-plugins", "a connection of a plug-in has ended: {ended:?}");
        self.registering.set(self.registering.get() - 1);
    }

    /// What a call leads to: a plug-in that has answered, and is known from now on.
    async fn answer(&self, reactor: &Rc<Reactor>, call: Asked, is_ours: bool) -> Result<Plugin, Status> {
        let refused = |code, message: String| Status { code, message };
        if call.path != REGISTER {
            return Err(refused(Status::UNIMPLEMENTED, format!("unknown method {}", call.path)));
        }
        if !is_ours {
            return Err(refused(
                Status::PERMISSION_DENIED,
                "only root and the agent's own user may register".to_owned(),
            ));
        }
        let asked = Registration::read(&call.message).map_err(|why| refused(Status::UNKNOWN, why))?;
        if self.listened_to.borrow().len() >= limits::DEVICE_PLUGINS_LISTENED_TO {
            return Err(refused(Status::RESOURCE_EXHAUSTED, "too many plug-ins are connected".to_owned()));
        }
        let path = [&self.directory, "/", asked.file_name.as_str()].concat();
        let answered = reactor.before(clock::up() + PATIENCE, options(reactor, &path)).await;
        let answered = answered.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut)));
        let (client, line) = answered
            .map_err(|error| refused(Status::UNKNOWN, format!("failed to dial device plugin: {path}: {error}")))?;
        let Some((id, replaced)) = self.plugins.borrow_mut().registered(asked.resource.clone()) else {
            return Err(refused(Status::RESOURCE_EXHAUSTED, "there are too many resources of plug-ins".to_owned()));
        };
        let mut listened_to = self.listened_to.borrow_mut();
        listened_to.iter().filter(|(known, _)| Some(*known) == replaced).for_each(|(_, over)| over.raise());
        let over = Rc::new(Flag::default());
        listened_to.push((id, Rc::clone(&over)));
        ::log::info!(target: "device-plugin", "a device plug-in for {} has registered", asked.resource);
        Ok(Plugin { id, resource: asked.resource, client, line, over })
    }

    /// For as long as it tells of its devices.
    async fn listen_to(&self, mut plugin: Box<Plugin>) {
        let id = plugin.id;
        let over = Rc::clone(&plugin.over);
        let listening = plugin.listen(|devices| self.plugins.borrow_mut().listed(id, devices));
        let replaced = async {
            over.raised().await;
            Err(io::Error::other("another one has registered for it"))
        };
        let Err(ended) = listening.or(replaced).await;
        self.listened_to.borrow_mut().retain(|(known, _)| *known != id);
        if self.plugins.borrow_mut().ended(plugin.id, clock::up()) {
            let Plugin { resource, .. } = &*plugin;
            ::log::warn!(target: "device-plugin-gone", "the device plug-in for {resource} is gone, so none of its devices can be used: {ended}");
        }
    }
}

enum Came {
    Connection(io::Result<UnixStream>),
    Plugin(Box<Plugin>),
}

/// Listens where plug-ins look for a kubelet. The sockets that are there are removed, as a kubelet does it:
/// plug-ins see the new one, and register anew. Not where somebody answers.
fn listen(directory: &str) -> io::Result<UnixListener> {
    let path = [directory, "/", SOCKET].concat();
    if UnixStream::connect(&path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody answers there, as a kubelet does"));
    }
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            fs::remove_file(entry.path())?;
        }
    }
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// One that has registered, over its own socket.
struct Plugin {
    id: PluginId,
    resource: String,
    client: Client,
    line: Line,
    /// Another one has registered for the resource.
    over: Rc<Flag>,
}

impl Plugin {
    /// Until its connection ends; the error says how.
    async fn listen(&mut self, tell: impl Fn(Devices)) -> io::Result<Infallible> {
        let wanted = Answer::Each { most_bytes: limits::DEVICE_LIST_BYTES };
        self.client.call(LIST_AND_WATCH, b"", "", wanted).map_err(|_| io::Error::other("no call is taken any more"))?;
        loop {
            match self.client.next_progress().map_err(broken)? {
                Some(Progress::Piece(_, message)) => match Devices::read(&message) {
                    Some(devices) => tell(devices),
                    None => return Err(io::Error::other("its list makes no sense")),
                },
                Some(Progress::Ended(_, Ok(_))) => return Err(io::Error::other("it has ended its list")),
                Some(Progress::Ended(_, Err(status))) => return Err(io::Error::other(status.message)),
                None => self.line.turn(&mut self.client).await?,
            }
        }
    }
}

/// The plug-in at this path, once it has said what it can do, which nobody here asks of it.
async fn options(reactor: &Rc<Reactor>, path: &str) -> io::Result<(Client, Line)> {
    let (mut client, mut line) = (Client::default(), Line::new(reactor, connected(path)?)?);
    let wanted = Answer::Whole { most_bytes: limits::GRPC_REQUEST_BYTES };
    client.call(OPTIONS, b"", "10S", wanted).map_err(|_| io::Error::other("no call is taken"))?;
    loop {
        match client.next_progress().map_err(broken)? {
            Some(Progress::Ended(_, Ok(_))) => return Ok((client, line)),
            Some(Progress::Ended(_, Err(status))) => return Err(io::Error::other(status.message)),
            Some(Progress::Piece(..)) => {}
            None => line.turn(&mut client).await?,
        }
    }
}

/// A socket, and what it has not taken yet.
struct Line {
    stream: Watched<OwnedFd>,
    unsent: Vec<u8>,
}

impl Line {
    fn new(reactor: &Rc<Reactor>, stream: OwnedFd) -> io::Result<Line> {
        Ok(Line { stream: reactor.watch(stream)?, unsent: Vec::new() })
    }

    /// Sends what there is to say, and takes what comes.
    async fn turn(&mut self, client: &mut Client) -> io::Result<()> {
        client.take_output(&mut self.unsent);
        self.send().await?;
        client.receive(&self.receive().await?);
        Ok(())
    }

    async fn send(&mut self) -> io::Result<()> {
        sent(&self.stream, &std::mem::take(&mut self.unsent)).await
    }

    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let read = |stream: &OwnedFd| Ok(recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)?);
        match self.stream.read_with(read).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has hung up")),
            count => {
                bytes.truncate(count);
                Ok(bytes)
            }
        }
    }
}

fn broken(error: Http2Error) -> io::Error {
    io::Error::other(error.why)
}

#[cfg(test)]
mod tests;
