//! Turns the addresses of a server into one connected socket: each gets a head start on the next (RFC 8305).

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket, sockopt,
};

use super::clock;
use super::file::cause;
use super::meter::{Meter, Metered};
use super::reactor::Reactor;
use crate::api::failure::{CONNECT_FAILED, Failure};
use crate::config::limits;
use crate::time::Up;

/// How long an address is tried alone before the next one joins (RFC 8305, section 8).
const HEAD_START: Duration = Duration::from_millis(250);

type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Metered, String>> + 'a>>;

/// The first of `addresses` that accepts; all are tried until `deadline`.
pub async fn dial(
    reactor: &Rc<Reactor>,
    meter: &Rc<Meter>,
    addresses: &[SocketAddr],
    deadline: Up,
) -> Result<Metered, Failure> {
    let mut race = Race { attempts: Vec::new(), failures: Vec::new() };
    let mut left = addresses.iter();
    loop {
        let next = left.next();
        if let Some(address) = next {
            race.attempts.push((*address, Box::pin(attempt(reactor, meter, *address))));
        }
        let pause = if next.is_some() && left.len() > 0 { deadline.min(clock::up() + HEAD_START) } else { deadline };
        match reactor.before(pause, poll_fn(|context| race.poll(context))).await {
            Some(Some(socket)) => return Ok(socket),
            // All that were begun have failed: the next one begins at once.
            Some(None) if left.len() > 0 => {}
            None if clock::up() < deadline && left.len() > 0 => {}
            _ => return Err(race.failure()),
        }
    }
}

struct Race<'a> {
    attempts: Vec<(SocketAddr, Attempt<'a>)>,
    failures: Vec<(SocketAddr, String)>,
}

impl Race<'_> {
    /// A socket, or `None` when every attempt so far has failed.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Metered>> {
        let mut index = 0;
        while let Some((address, attempt)) = self.attempts.get_mut(index) {
            match attempt.as_mut().poll(context) {
                Poll::Ready(Ok(socket)) => return Poll::Ready(Some(socket)),
                Poll::Ready(Err(detail)) => {
                    self.failures.push((*address, detail));
                    drop(self.attempts.remove(index));
                }
                Poll::Pending => index += 1,
            }
        }
        if self.attempts.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn failure(mut self) -> Failure {
        let silent = self.attempts.drain(..).map(|(address, _)| (address, "no answer".to_owned()));
        self.failures.extend(silent);
        let address = self.failures.iter().map(|(address, _)| address.to_string()).collect::<Vec<_>>().join(", ");
        let mut details: Vec<String> = self.failures.into_iter().map(|(_, detail)| detail).collect();
        details.dedup();
        Failure::new(CONNECT_FAILED, format!("cannot connect to {address}: {}", details.join(", ")))
    }
}

async fn attempt(reactor: &Rc<Reactor>, meter: &Rc<Meter>, address: SocketAddr) -> Result<Metered, String> {
    let socket = begin(reactor, meter, address).map_err(|error| cause(&error))?;
    socket.writable().await;
    match getsockopt(socket.get(), sockopt::SocketError) {
        Ok(0) => Ok(socket),
        Ok(errno) => Err(cause(&io::Error::from_raw_os_error(errno))),
        Err(errno) => Err(cause(&errno.into())),
    }
}

/// Whether a socket that is closed drops what it has not sent yet, and resets the connection. The kernel would otherwise go on
/// sending a request that was given up for a quarter of a minute, and it would reach the server after its successor.
pub fn set_abort_on_close(socket: &impl AsFd, aborts: bool) -> Result<(), Errno> {
    let linger = libc::linger { l_onoff: aborts.into(), l_linger: 0 };
    setsockopt(socket, sockopt::Linger, &linger)
}

/// No keep-alive: a heartbeat shows whether the connection works, and what it sends is given up after `TCP_USER_TIMEOUT`.
fn begin(reactor: &Rc<Reactor>, meter: &Rc<Meter>, address: SocketAddr) -> io::Result<Metered> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(&socket, sockopt::TcpUserTimeout, &limits::TCP_USER_TIMEOUT_MS)?;
    set_abort_on_close(&socket, true)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let watched = reactor.watch(TcpStream::from(socket))?;
    Ok(Metered::new(watched, address.is_ipv6(), meter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::Silent;
    use std::net::TcpListener;

    /// A port on which nothing listens.
    fn closed() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn run<T>(test: impl AsyncFnOnce(&Rc<Reactor>) -> T) -> T {
        let reactor = Reactor::new().unwrap();
        reactor.block_on(test(&reactor)).unwrap()
    }

    fn meter() -> Rc<Meter> {
        Meter::new(Default::default())
    }

    fn in_ms(ms: u64) -> Up {
        clock::up() + Duration::from_millis(ms)
    }

    #[test]
    fn a_refused_address_gives_way_to_the_next_without_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        // So many that waiting for each would not end in time.
        let mut addresses = vec![closed(); 100];
        addresses.push(good);
        let socket = run(async |reactor| dial(reactor, &meter(), &addresses, in_ms(20_000)).await).unwrap();
        assert_eq!(socket.get().peer_addr().unwrap(), good);
        assert!(socket.get().nodelay().unwrap());
        assert_eq!(getsockopt(socket.get(), sockopt::TcpUserTimeout), Ok(limits::TCP_USER_TIMEOUT_MS));
        let linger = getsockopt(socket.get(), sockopt::Linger).unwrap();
        assert_eq!((linger.l_onoff, linger.l_linger), (1, 0), "what was given up is not said again");
    }

    #[test]
    fn a_silent_address_only_has_a_head_start() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let silent = Silent::new();
        let start = clock::up();
        let socket =
            run(async |reactor| dial(reactor, &meter(), &[silent.address, good], in_ms(10_000)).await).unwrap();
        assert_eq!(socket.get().peer_addr().unwrap(), good);
        assert!(clock::up() - start >= HEAD_START);
    }

    #[test]
    fn every_address_that_failed_is_named_with_its_reason() {
        let (first, second) = (closed(), closed());
        let failure =
            run(async |reactor| dial(reactor, &meter(), &[first, second], in_ms(10_000)).await).err().unwrap();
        assert_eq!(failure.to_string(), format!("cannot connect to {first}, {second}: Connection refused"));
    }

    #[test]
    fn the_deadline_ends_an_attempt_that_nobody_answers() {
        let silent = Silent::new();
        let failure = run(async |reactor| dial(reactor, &meter(), &[silent.address], in_ms(100)).await).err().unwrap();
        assert_eq!(failure.to_string(), format!("cannot connect to {}: no answer", silent.address));
    }
}
