//! Turns the agent's progress into datagrams for the service manager (`sd_notify(3)`).

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::getpid;

/// The service manager, where there is one.
pub struct ServiceManager {
    socket: Option<(OwnedFd, UnixAddr)>,
    watchdog_period: Option<Duration>,
}

impl ServiceManager {
    /// `variable` reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` of the environment.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>) -> ServiceManager {
        let address = variable("NOTIFY_SOCKET").and_then(|path| address_of(path.as_bytes()));
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let open = || socket(AddressFamily::Unix, SockType::Datagram, flags, None).ok();
        let number = |name: &str| variable(name).and_then(|text| text.to_str()?.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| i64::try_from(pid) == Ok(getpid().as_raw().into()));
        let limit = number("WATCHDOG_USEC").filter(|us| *us > 0 && is_ours).map(Duration::from_micros);
        let socket = address.and_then(|address| Some((open()?, address)));
        let watchdog_period = limit.filter(|_| socket.is_some()).map(|limit| limit / 2);
        ServiceManager { socket, watchdog_period }
    }

    /// How often [`ServiceManager::alive`] is expected: half of what the unit allows.
    pub fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog_period
    }

    pub fn ready(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// [`ServiceManager::ready`] follows when it is done.
    pub fn reloading(&self) {
        let up = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", up.as_micros()));
    }

    /// One line for `systemctl status`.
    pub fn status(&self, text: &str) {
        if self.socket.is_some() {
            self.send(&format!("STATUS={}", text.replace('\n', " ")));
        }
    }

    /// A manager that does not listen is not our concern.
    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = sendto(socket.as_raw_fd(), message.as_bytes(), address, MsgFlags::MSG_NOSIGNAL);
        }
    }
}

/// A path, or `@` and an abstract name.
fn address_of(path: &[u8]) -> Option<UnixAddr> {
    match path {
        [b'@', name @ ..] => UnixAddr::new_abstract(name).ok(),
        [b'/', ..] => UnixAddr::new(path).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::TempFolder;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    fn manager(variables: &[(&str, &str)]) -> ServiceManager {
        ServiceManager::new(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn heard(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = listener.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn progress_reaches_a_manager_that_listens_on_a_path() {
        let folder = TempFolder::new();
        let path = folder.path("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", &path)]);
        manager.ready();
        manager.status("two\nlines");
        manager.reloading();
        manager.stopping();
        assert_eq!(heard(&listener), "READY=1");
        assert_eq!(heard(&listener), "STATUS=two lines");
        assert!(heard(&listener).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(heard(&listener), "STOPPING=1");
    }

    #[test]
    fn an_abstract_name_works_too() {
        let name = format!("nodepulse-test-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        manager(&[("NOTIFY_SOCKET", &format!("@{name}"))]).alive();
        assert_eq!(heard(&listener), "WATCHDOG=1");
    }

    #[test]
    fn the_watchdog_is_fed_at_half_its_limit_and_only_when_it_is_ours() {
        let own = std::process::id().to_string();
        let variables = [("NOTIFY_SOCKET", "/run/x"), ("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", own.as_str())];
        assert_eq!(manager(&variables).watchdog_period(), Some(Duration::from_secs(15)));
        assert_eq!(manager(&variables[1..]).watchdog_period(), None);
        assert_eq!(manager(&[variables[0], variables[1], ("WATCHDOG_PID", "1")]).watchdog_period(), None);
        assert_eq!(manager(&[]).watchdog_period(), None);
    }
}
