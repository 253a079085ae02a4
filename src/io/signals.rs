//! Turns SIGTERM, SIGINT and SIGHUP into messages, read from a descriptor like everything else.

use std::io;
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::reactor::{Reactor, Watched};

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

#[cfg(test)]
mod tests {
    use super::*;
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
}
