//! Turns the socket of a container runtime into what it says of itself, look after look.
//!
//! Nobody waits for it while all is well: what it was asked with one look lies in the socket until the next, and costs no wake-up.
//! Where looks are rare, or nothing is known yet, the answer is waited for, half a second at most.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use super::clock;
use super::logind::connected;
use super::reactor::Reactor;
use crate::config::Settings;
use crate::config::limits::READS_PER_TURN;
use crate::cri::Client;
use crate::probe::{self, Asked};

/// How long a look waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// One that has no CRI is asked twice before anything is known.
const ROUNDS: u32 = 2;

/// One that the settings name.
pub struct ContainerRuntime {
    path: String,
    client: Client,
    socket: Option<OwnedFd>,
    /// What the socket has not taken yet.
    unsent: Vec<u8>,
}

impl ContainerRuntime {
    pub fn at(path: String) -> ContainerRuntime {
        let client = Client::new(&path);
        ContainerRuntime { path, client, socket: None, unsent: Vec::new() }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// A folder of the file system that holds its images, once it has said so.
    pub fn image_path(&self) -> Option<&str> {
        self.client.image_path()
    }

    /// What it says now; never `None`.
    pub async fn look(&mut self, reactor: &Rc<Reactor>, asked: &Asked) -> Option<probe::ContainerRuntime> {
        self.client.want_images(asked.most_images);
        self.client.tell_pod_cidr(asked.pod_cidr.clone());
        self.read();
        let mut has_asked = false;
        for _ in 0..ROUNDS {
            if !self.client.is_outdated(clock::up()) {
                break;
            }
            self.ask();
            has_asked = true;
            self.wait(reactor).await;
        }
        let said = self.client.said(clock::up());
        if !has_asked {
            self.ask();
        }
        if self.client.is_waiting_for_images() {
            self.wait(reactor).await;
        }
        Some(said)
    }

    /// Until what was asked is answered, or for as long as that may take.
    async fn wait(&mut self, reactor: &Rc<Reactor>) {
        let deadline = clock::up() + PATIENCE;
        while self.client.is_waiting() {
            let Some(socket) = &self.socket else { return };
            let Ok(watched) = reactor.watch(socket.as_fd()) else { return };
            // Its bytes are read below: a peek says that there are some, or an end.
            let peek = |socket: &std::os::fd::BorrowedFd<'_>| {
                Ok(recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)?)
            };
            if reactor.before(deadline, watched.read_with(peek)).await.is_none() {
                return;
            }
            drop(watched);
            self.read();
        }
    }

    /// Asks what a look wants to know; where there is no connection, over a new one.
    fn ask(&mut self) {
        if self.socket.is_none() {
            match connected(&self.path) {
                Ok(socket) => {
                    (self.socket, self.unsent) = (Some(socket), Vec::new());
                    self.client.connected();
                }
                Err(error) => return self.lose(self.why_not_connected(&error)),
            }
        }
        if let Err(error) = self.client.ask(clock::up(), &mut self.unsent) {
            return self.lose(error.to_string());
        }
        self.send();
    }

    fn why_not_connected(&self, error: &io::Error) -> String {
        let path = &self.path;
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {
                format!("{path}: there is no such socket: the runtime does not run, or has another one")
            }
            Some(Errno::ECONNREFUSED) => format!("{path}: nobody listens there: the runtime does not run"),
            Some(Errno::EACCES) => {
                format!(
                    "{path}: this process may not use it: give the socket a group ([grpc] gid in containerd's \
                         configuration) and the service that group (SupplementaryGroups=)"
                )
            }
            _ => format!("{path}: {error}"),
        }
    }

    fn send(&mut self) {
        let Some(socket) = &self.socket else { return };
        while !self.unsent.is_empty() {
            match send(socket.as_raw_fd(), &self.unsent, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::EINTR) => {}
                // With the next look.
                Err(Errno::EAGAIN) => return,
                Err(error) => return self.lose(format!("{}: {}", self.path, error.desc())),
            }
        }
    }

    /// What has come.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &self.socket else { return };
            let ended = match recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => format!("{}: it has closed the connection", self.path),
                Ok(count) => match self.client.receive(bytes.get(..count).unwrap_or_default(), &mut self.unsent) {
                    Ok(()) => continue,
                    Err(error) => format!("{}: {error}", self.path),
                },
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => break,
                Err(error) => format!("{}: {}", self.path, error.desc()),
            };
            self.lose(ended);
        }
        self.send();
    }

    fn lose(&mut self, why: String) {
        self.socket = None;
        self.client.disconnected(why, clock::up());
    }
}

/// What the one that the settings name says, asked once, for a person.
pub fn once(settings: &Settings) -> Option<probe::ContainerRuntime> {
    let asked = Asked::by(settings);
    let mut runtime = ContainerRuntime::at(asked.container_runtime.clone()?);
    let reactor = Reactor::new().ok()?;
    reactor.block_on(runtime.look(&reactor, &asked)).ok()?
}

#[cfg(test)]
mod tests;
