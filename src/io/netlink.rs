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
