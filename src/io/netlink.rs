//! Turns messages of the kernel's routing socket into "an address, a route or a carrier changed".

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

use super::reactor::{Reactor, Watched};
use crate::config::limits;

/// Multicast groups of `linux/rtnetlink.h`: link, IPv4 and IPv6 addresses, IPv4 and IPv6 routes.
const GROUPS: u32 = 0x1 | 0x10 | 0x100 | 0x40 | 0x400;

/// The routing socket. A container may not be given one.
pub struct LinkWatch {
    socket: Watched<OwnedFd>,
}

impl LinkWatch {
    pub fn new(reactor: &Rc<Reactor>) -> io::Result<LinkWatch> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(LinkWatch { socket: reactor.watch(socket)? })
    }

    /// Ends after something changed. What exactly is not read: it is cheaper to look at everything again.
    pub async fn changed(&self) -> io::Result<()> {
        self.socket.read_with(read_one).await?;
        self.forget();
        Ok(())
    }

    /// Drops what is queued: the look that follows will see it all.
    pub fn forget(&self) {
        if (0..limits::NETWORK_MESSAGES).any(|_| read_one(self.socket.get()).is_err()) {
            self.socket.set_drained();
        }
    }
}

fn read_one(socket: &OwnedFd) -> io::Result<()> {
    match recv(socket.as_raw_fd(), &mut [0; 512], MsgFlags::MSG_TRUNC) {
        // Messages were lost for want of room: something changed for certain.
        Ok(_) | Err(Errno::ENOBUFS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock;
    use std::process::Command;
    use std::time::Duration;

    /// Set for the second process of the test, which has a network of its own.
    const INSIDE: &str = "NODEPULSE_TEST_INSIDE_NAMESPACE";

    fn bring_loopback_up() {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    }

    #[test]
    fn a_carrier_that_comes_up_is_heard_once_for_all_its_messages() {
        if std::env::var_os(INSIDE).is_none() {
            let test = "io::netlink::tests::a_carrier_that_comes_up_is_heard_once_for_all_its_messages";
            let mut unshare = Command::new("unshare");
            unshare.args(["--map-root-user", "--net"]);
            if !unshare.arg("true").status().is_ok_and(|status| status.success()) {
                eprintln!("left out: this machine gives no network namespace to this user");
                return;
            }
            let mut inside = Command::new("unshare");
            inside.args(["--map-root-user", "--net"]).arg(std::env::current_exe().unwrap()).args(["--exact", test]);
            assert!(inside.env(INSIDE, "1").status().unwrap().success());
            return;
        }
        let reactor = Reactor::new().unwrap();
        let links = LinkWatch::new(&reactor).unwrap();
        let within = |ms| clock::up() + Duration::from_millis(ms);
        let nothing = reactor.block_on(reactor.before(within(20), links.changed())).unwrap();
        assert!(nothing.is_none(), "nothing has changed yet");
        bring_loopback_up();
        let heard = reactor.block_on(reactor.before(within(10_000), links.changed())).unwrap();
        assert!(heard.unwrap().is_ok());
        reactor.block_on(reactor.sleep_until(within(100))).unwrap();
        links.forget();
        let nothing = reactor.block_on(reactor.before(within(20), links.changed())).unwrap();
        assert!(nothing.is_none(), "all messages were read");
    }
}
