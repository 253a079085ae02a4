//! Turns the agent's progress into datagrams for the service manager (`sd_notify(3)`), without a wake-up of their own.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::getpid;

use crate::agent::StatusLine;
use crate::config::{limits, plain_text};
use crate::time::Up;

/// What the service manager is told, if there is one that listens.
pub struct ServiceManager {
    listener: Option<Listener>,
}

struct Listener {
    socket: OwnedFd,
    address: UnixAddr,
    /// Without a sign of life for so long, the process is ended.
    watchdog_limit: Option<Duration>,
    /// `None` until the first sign of life.
    alive_at: Option<Up>,
    is_ready: bool,
    /// The start counts as done by then, whatever hangs: the loop turns.
    ready_by: Up,
    /// The last status line it was told.
    status: String,
}

/// Longer than a request may take: a server that says nothing is offline, and that is known by then.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A manager that takes no datagram is tried again with the next wake-up, but after so long at last.
const TRY_AGAIN: Duration = Duration::from_secs(10);

impl ServiceManager {
    /// `variable` reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` of the environment.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>, now: Up) -> ServiceManager {
        let address = variable("NOTIFY_SOCKET").and_then(|path| address_of(path.as_bytes()));
        let number = |name: &str| variable(name).and_then(|text| text.to_str()?.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| i64::try_from(pid) == Ok(getpid().as_raw().into()));
        let watchdog_limit = number("WATCHDOG_USEC").filter(|us| *us > 0 && is_ours).map(Duration::from_micros);
        let listener = address.and_then(|address| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None).ok()?;
            let (ready_by, status) = (now + READY_WITHIN, String::new());
            Some(Listener { socket, address, watchdog_limit, alive_at: None, is_ready: false, ready_by, status })
        });
        ServiceManager { listener }
    }

    /// One turn of the loop is done: tells what is due, and answers when the loop has to turn again for
    /// the manager's sake. Only the loop itself calls this, so one that hangs gives no sign of life.
    pub fn turned(&mut self, standing: impl FnOnce() -> StatusLine, now: Up) -> Option<Up> {
        self.listener.as_mut()?.turned(standing(), now)
    }

    /// [`ServiceManager::reloaded`] follows when it is done.
    pub fn reloading(&self) {
        let Some(listener) = self.listener.as_ref().filter(|listener| listener.is_ready) else { return };
        let up = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        listener.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", up.as_micros()));
    }

    /// The end of this turn tells it.
    pub fn reloaded(&mut self) {
        if let Some(listener) = &mut self.listener {
            (listener.is_ready, listener.ready_by) = (false, Up::BOOT);
        }
    }

    /// The last thing it is told.
    pub fn stopping(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.send("STOPPING=1\nSTATUS=stopping");
        }
    }
}

impl Listener {
    /// What the manager acts on never shares a datagram with text: whatever that is, it keeps no sign of life back.
    fn turned(&mut self, standing: StatusLine, now: Up) -> Option<Up> {
        let becomes_ready = !self.is_ready && (standing.is_settled || now >= self.ready_by);
        // On any wake-up of the second quarter; where none comes, on one of its own at half of what is allowed.
        let is_due = |limit: Duration| self.alive_at.is_none_or(|at| now - at >= limit / 4);
        let shows_life = self.watchdog_limit.is_some_and(is_due);
        let sign = match (becomes_ready, shows_life) {
            (true, true) => "READY=1\nWATCHDOG=1",
            (true, false) => "READY=1",
            (false, true) => "WATCHDOG=1",
            (false, false) => "",
        };
        let mut all_taken = true;
        if !sign.is_empty() {
            all_taken = self.send(sign);
            self.is_ready |= becomes_ready && all_taken;
            self.alive_at = if shows_life && all_taken { Some(now) } else { self.alive_at };
        }
        if standing.text != self.status {
            let mut text = plain_text::line(&standing.text).into_owned();
            text.truncate(text.floor_char_boundary(limits::STATUS_LINE_BYTES));
            if self.send(&format!("STATUS={text}")) {
                self.status = standing.text;
            } else {
                all_taken = false;
            }
        }
        if !all_taken {
            return Some(now + self.watchdog_limit.map_or(TRY_AGAIN, |limit| TRY_AGAIN.min(limit / 4)));
        }
        let alive_by = self.watchdog_limit.zip(self.alive_at).map(|(limit, at)| at + limit / 2);
        let ready_by = Some(self.ready_by).filter(|_| !self.is_ready);
        alive_by.into_iter().chain(ready_by).min()
    }

    /// Whether the manager took it.
    fn send(&self, message: &str) -> bool {
        sendto(self.socket.as_raw_fd(), message.as_bytes(), &self.address, MsgFlags::MSG_NOSIGNAL).is_ok()
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
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        ServiceManager::new(variable, after(0))
    }

    fn after(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    fn settled(text: &str) -> impl FnOnce() -> StatusLine {
        let standing = StatusLine { is_settled: true, text: text.to_owned() };
        || standing
    }

    fn beginning() -> StatusLine {
        StatusLine { is_settled: false, text: "registering".to_owned() }
    }

    struct Heard {
        listener: UnixDatagram,
        path: String,
        _folder: TempFolder,
    }

    impl Heard {
        fn new() -> Heard {
            Heard::at(TempFolder::new())
        }

        fn at(folder: TempFolder) -> Heard {
            let path = folder.path("notify");
            let listener = UnixDatagram::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            Heard { listener, path, _folder: folder }
        }

        fn manager(&self, watchdog_us: &str) -> ServiceManager {
            manager(&[("NOTIFY_SOCKET", &self.path), ("WATCHDOG_USEC", watchdog_us)])
        }

        /// All datagrams since the last call.
        fn all(&self) -> Vec<String> {
            let mut buffer = [0; 4096];
            let next = || self.listener.recv(&mut buffer).ok().map(|count| text(&buffer[..count]));
            std::iter::from_fn(next).collect()
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn the_start_is_done_when_the_node_is_settled_and_the_status_is_told_when_it_changes() {
        let heard = Heard::new();
        let mut manager = heard.manager("");
        assert_eq!(manager.turned(beginning, after(1)), Some(after(20)));
        assert_eq!(heard.all(), ["STATUS=registering"]);
        assert_eq!(manager.turned(settled("two\nlines"), after(2)), None);
        assert_eq!(heard.all(), ["READY=1", "STATUS=two\\nlines"]);
        assert_eq!(manager.turned(settled("two\nlines"), after(12)), None);
        assert_eq!(manager.turned(beginning, after(13)), None);
        assert_eq!(heard.all(), ["STATUS=registering"], "nothing is said twice, the start least of all");
    }

    #[test]
    fn the_start_ends_though_nothing_is_known_of_the_server() {
        let heard = Heard::new();
        let mut manager = heard.manager("");
        assert_eq!(manager.turned(beginning, after(19)), Some(after(20)));
        heard.all();
        assert_eq!(manager.turned(beginning, after(20)), None);
        assert_eq!(heard.all(), ["READY=1"]);
    }

    #[test]
    fn a_sign_of_life_rides_with_other_wake_ups_and_needs_one_of_its_own_at_half_the_limit() {
        let heard = Heard::new();
        let mut manager = heard.manager("60000000");
        assert_eq!(manager.turned(settled("x"), after(100)), Some(after(130)));
        assert_eq!(heard.all(), ["READY=1\nWATCHDOG=1", "STATUS=x"]);
        assert_eq!(manager.turned(settled("x"), after(110)), Some(after(130)));
        assert!(heard.all().is_empty(), "a quarter of the limit has not passed");
        assert_eq!(manager.turned(settled("x"), after(120)), Some(after(150)));
        assert_eq!(manager.turned(settled("x"), after(150)), Some(after(180)));
        assert_eq!(heard.all(), ["WATCHDOG=1", "WATCHDOG=1"]);
    }

    #[test]
    fn a_reload_is_dated_and_ends_with_the_turn() {
        let heard = Heard::new();
        let mut manager = heard.manager("");
        manager.reloading();
        assert!(heard.all().is_empty(), "a start cannot be a reload");
        manager.turned(settled("x"), after(1));
        heard.all();
        manager.reloading();
        let told = heard.all().concat();
        let at_us: u64 = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
        assert!(now - Duration::from_micros(at_us) < Duration::from_secs(60), "{at_us}");
        manager.reloaded();
        assert_eq!(manager.turned(beginning, after(2)), None);
        assert_eq!(heard.all(), ["READY=1", "STATUS=registering"]);
    }

    #[test]
    fn a_text_of_any_length_is_cut_and_keeps_back_neither_the_start_nor_a_sign_of_life() {
        let heard = Heard::new();
        let mut manager = heard.manager("60000000");
        let text = "\u{20ac}".repeat(300_000);
        assert_eq!(manager.turned(settled(&text), after(1)), Some(after(31)));
        let told = heard.all();
        assert_eq!(told[0], "READY=1\nWATCHDOG=1");
        assert!(told[1].starts_with("STATUS=\u{20ac}") && told[1].len() <= 7 + limits::STATUS_LINE_BYTES);
        assert_eq!(manager.turned(settled(&text), after(2)), Some(after(31)));
        assert!(heard.all().is_empty(), "told once");
    }

    #[test]
    fn nothing_follows_the_end() {
        let heard = Heard::new();
        let mut manager = heard.manager("60000000");
        manager.stopping();
        assert_eq!(manager.turned(settled("x"), after(100)), None);
        assert_eq!(heard.all(), ["STOPPING=1\nSTATUS=stopping"]);
    }

    #[test]
    fn what_the_manager_did_not_take_is_told_again() {
        let folder = TempFolder::new();
        let path = folder.path("notify");
        let mut manager = manager(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000000")]);
        assert_eq!(manager.turned(settled("x"), after(1)), Some(after(6)), "nobody listens");
        let heard = Heard::at(folder);
        assert_eq!(manager.turned(settled("x"), after(6)), Some(after(16)));
        assert_eq!(heard.all(), ["READY=1\nWATCHDOG=1", "STATUS=x"]);
    }

    #[test]
    fn an_abstract_name_works_too() {
        let name = format!("nodepulse-test-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        manager(&[("NOTIFY_SOCKET", &format!("@{name}"))]).stopping();
        let mut buffer = [0; 64];
        let count = listener.recv(&mut buffer).unwrap();
        assert_eq!(text(&buffer[..count]), "STOPPING=1\nSTATUS=stopping");
    }

    #[test]
    fn without_a_manager_nothing_is_looked_at_and_nobody_is_woken() {
        let never = || -> StatusLine { panic!("nobody asked") };
        for variables in [&[][..], &[("WATCHDOG_USEC", "1000000")], &[("NOTIFY_SOCKET", "vsock:2:1")]] {
            assert_eq!(manager(variables).turned(never, after(1)), None);
        }
    }

    #[test]
    fn a_watchdog_that_is_for_another_process_is_not_fed() {
        let heard = Heard::new();
        let own = std::process::id().to_string();
        for (pid, is_fed) in [(own.as_str(), true), ("1", false)] {
            let variables =
                [("NOTIFY_SOCKET", heard.path.as_str()), ("WATCHDOG_USEC", "4000000"), ("WATCHDOG_PID", pid)];
            let mut manager = manager(&variables);
            assert_eq!(manager.turned(settled("x"), after(1)), is_fed.then(|| after(3)));
            assert_eq!(heard.all().concat().contains("WATCHDOG=1"), is_fed);
        }
    }
}
