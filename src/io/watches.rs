//! Descriptors by which the kernel tells of signals, of changes of the network, and that somebody set the clock.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::reactor::{Reactor, Watched};
use crate::config::limits;

/// What whoever runs us wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM, SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals of this process, blocked and queued.
pub struct Signals {
    descriptor: Watched<SignalFd>,
}

impl Signals {
    /// Blocks the signals in this thread, and so in every helper thread it starts later.
    pub fn new(reactor: &Rc<Reactor>) -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { descriptor: reactor.watch(descriptor)? })
    }

    /// The next one.
    pub async fn next(&self) -> io::Result<Request> {
        let read = |descriptor: &SignalFd| descriptor.read_signal()?.ok_or_else(|| Errno::EAGAIN.into());
        let info = self.descriptor.read_with(read).await?;
        let hangup = i32::try_from(info.ssi_signo) == Ok(Signal::SIGHUP as i32);
        Ok(if hangup { Request::Reload } else { Request::Stop })
    }
}

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
        self.drop_queued();
        Ok(())
    }

    /// Drops what is queued: the look that follows will see it all.
    pub fn drop_queued(&self) {
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

/// Says when the wall clock was set, or the machine woke from suspend: `epoll_wait` measures time without suspend, so
/// without this a deadline that passed meanwhile would be noticed up to its whole length late. Costs nothing else.
pub struct ClockWatch {
    timer: Watched<TimerFd>,
}

impl ClockWatch {
    pub fn new(reactor: &Rc<Reactor>) -> io::Result<ClockWatch> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
        // A date that never comes: only the cancellation is wanted (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        let set = |seconds| timer.set(Expiration::OneShot(Duration::from_secs(seconds).into()), flags);
        set(NEVER_UNIX_SECONDS).or_else(|_| set(NEVER_OF_32_BITS_UNIX_SECONDS))?;
        Ok(ClockWatch { timer: reactor.watch(timer)? })
    }

    /// Ends after a step.
    pub async fn stepped(&self) -> io::Result<()> {
        self.timer.read_with(|timer| Ok(timer.wait()?)).await?;
        self.timer.set_drained();
        Ok(())
    }
}

/// 2200-01-01T00:00:00Z.
const NEVER_UNIX_SECONDS: u64 = 7_258_118_400;

/// 2038-01-19T03:14:07Z, where libc or the kernel (before 5.1, of 32 bits) can count no further: on a clock past it the watch is over.
const NEVER_OF_32_BITS_UNIX_SECONDS: u64 = 2_147_483_647;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock::up;
    use nix::sys::signal::raise;

    #[test]
    fn signals_are_read_instead_of_ending_the_process() {
        let reactor = Reactor::new().unwrap();
        let signals = Signals::new(&reactor).unwrap();
        // `raise` signals this thread only, which has them blocked.
        raise(Signal::SIGHUP).unwrap();
        assert_eq!(reactor.block_on(signals.next()).unwrap().unwrap(), Request::Reload);
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            raise(signal).unwrap();
            assert_eq!(reactor.block_on(signals.next()).unwrap().unwrap(), Request::Stop);
        }
    }

    #[test]
    fn a_clock_that_nobody_sets_wakes_nobody() {
        let reactor = Reactor::new().unwrap();
        let watch = ClockWatch::new(&reactor).unwrap();
        let soon = up() + Duration::from_millis(20);
        assert!(reactor.block_on(reactor.before(soon, watch.stepped())).unwrap().is_none());
        let left = watch.timer.get().get().unwrap();
        let years = match left {
            Some(Expiration::OneShot(left)) => Duration::from(left).as_secs() / (365 * 86_400),
            other => panic!("{other:?}"),
        };
        assert!((100..300).contains(&years), "on any clock of this century: {years} years are left");
    }
}
