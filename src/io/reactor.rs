//! Turns readiness of file descriptors and the passing of boot-time deadlines into wakes of tasks, on one thread.
//!
//! A renewal of the Lease costs two sleeps here and nothing else: every descriptor is registered once, edge-triggered in
//! both directions, and the deadline is the time-out of `epoll_wait` (a timerfd or a one-shot registration would cost
//! three system calls more each). An event only says "try again"; what is believed ready is kept per descriptor.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::clock;
use crate::config::limits;
use crate::time::Up;

/// Events taken from the kernel at once: more than the agent ever has descriptors.
const EVENTS_PER_WAIT: usize = 16;
/// Polls of a future that keeps waking itself before the kernel is asked for news.
const POLLS_PER_WAIT: usize = 64;
/// Key of the event counter that other threads add to.
const WAKE_KEY: u64 = 0;

/// The one place where the process sleeps.
pub struct Reactor {
    epoll: Epoll,
    wake: Arc<WakeFlag>,
    sources: RefCell<Vec<(u64, Source)>>,
    /// In no order: there is one for each thing under way, and few of those.
    timers: RefCell<Vec<(Timer, Waker)>>,
    next_key: Cell<u64>,
}

/// A deadline, and what tells equal deadlines apart.
type Timer = (Up, u64);

/// What is believed of one descriptor, and who waits for it.
#[derive(Default)]
struct Source {
    readable: bool,
    writable: bool,
    /// The peer has ended its side: there is an end of stream to be read even where a read came up short.
    hung_up: bool,
    /// For either: each looks for itself.
    waiting: Vec<Waker>,
    /// Reads since it was last empty or gave way: whoever has endless things to say holds up neither a deadline nor anybody
    /// else.
    reads: usize,
}

/// Wakes `block_on`: a flag on its own thread, the flag and the event counter from any other.
struct WakeFlag {
    owner: ThreadId,
    raised: AtomicBool,
    counter: EventFd,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let was_raised = self.raised.swap(true, Ordering::AcqRel);
        if !was_raised && std::thread::current().id() != self.owner {
            // Edge-triggered, so never read; it fails only at 2^64.
            let _ = self.counter.write(1);
        }
    }
}

impl Reactor {
    /// Fails when the kernel gives no descriptors.
    pub fn new() -> io::Result<Rc<Reactor>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&counter, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, WAKE_KEY))?;
        let wake = WakeFlag { owner: std::thread::current().id(), raised: AtomicBool::new(false), counter };
        Ok(Rc::new(Reactor {
            epoll,
            wake: Arc::new(wake),
            sources: RefCell::default(),
            timers: RefCell::default(),
            next_key: Cell::new(WAKE_KEY + 1),
        }))
    }

    /// Runs `future` to its end, sleeping whenever nothing is ready.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let waker = Waker::from(Arc::clone(&self.wake));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            for _ in 0..POLLS_PER_WAIT {
                self.wake.raised.store(false, Ordering::Release);
                if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                    return Ok(value);
                }
                if !self.wake.raised.load(Ordering::Acquire) {
                    break;
                }
            }
            self.sleep()?;
        }
    }

    /// Watches a descriptor, which must be non-blocking.
    pub fn watch<F: AsFd>(self: &Rc<Self>, descriptor: F) -> io::Result<Watched<F>> {
        let key = self.take_key();
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(&descriptor, EpollEvent::new(flags, key))?;
        let source = Source::default();
        self.sources.borrow_mut().push((key, source));
        Ok(Watched { descriptor, key, reactor: Rc::clone(self) })
    }

    /// Ends at `deadline` or, when the machine was asleep then, right after it wakes.
    pub fn sleep_until(&self, deadline: Up) -> Sleep<'_> {
        Sleep { reactor: self, timer: (deadline, self.take_key()) }
    }

    /// `None`: the deadline passed first; what `future` had begun is dropped.
    pub async fn before<T>(&self, deadline: Up, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut sleep = self.sleep_until(deadline);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Pin::new(&mut sleep).poll(context).map(|()| None),
        })
        .await
    }

    fn take_key(&self) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        key
    }

    fn sleep(&self) -> io::Result<()> {
        let is_busy = self.wake.raised.load(Ordering::Acquire);
        let timeout = if is_busy { EpollTimeout::ZERO } else { self.until_timer() };
        let mut events = [EpollEvent::empty(); EVENTS_PER_WAIT];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in events.iter().take(count) {
            self.note(event.data(), event.events());
        }
        self.fire_timers();
        Ok(())
    }

    fn until_timer(&self) -> EpollTimeout {
        let Some(deadline) = self.timers.borrow().iter().map(|((deadline, _), _)| *deadline).min() else {
            return EpollTimeout::NONE;
        };
        // Rounded up: a millisecond too early would cost one more round.
        let wait = (deadline - clock::up()).saturating_add(Duration::from_nanos(999_999));
        EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX)
    }

    fn note(&self, key: u64, flags: EpollFlags) {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = source_of(&mut sources, key) else { return };
        let ended = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
        source.hung_up |= ended || flags.contains(EpollFlags::EPOLLRDHUP);
        if source.hung_up || flags.contains(EpollFlags::EPOLLIN) {
            source.readable = true;
        }
        if ended || flags.contains(EpollFlags::EPOLLOUT) {
            source.writable = true;
        }
        source.waiting.drain(..).for_each(Waker::wake);
    }

    fn fire_timers(&self) {
        let mut timers = self.timers.borrow_mut();
        if timers.is_empty() {
            return;
        }
        let now = clock::up();
        timers.sort_unstable_by_key(|(timer, _)| *timer);
        let passed = timers.partition_point(|((deadline, _), _)| *deadline <= now);
        timers.drain(..passed).for_each(|(_, waker)| waker.wake());
    }
}

fn source_of(sources: &mut [(u64, Source)], key: u64) -> Option<&mut Source> {
    sources.iter_mut().find(|(known, _)| *known == key).map(|(_, source)| source)
}

/// A descriptor of the reactor; dropping it ends the watch.
pub struct Watched<F: AsFd> {
    descriptor: F,
    key: u64,
    reactor: Rc<Reactor>,
}

impl<F: AsFd> Watched<F> {
    pub fn get(&self) -> &F {
        &self.descriptor
    }

    /// Tries `operation` whenever there may be something to read, until it does not say `WouldBlock`. After
    /// [`limits::READS_PER_TURN`] reads everybody else has a turn.
    pub async fn read_with<T>(&self, mut operation: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        loop {
            poll_fn(|context| self.poll_source(|source| source.readable, context)).await;
            poll_fn(|context| self.poll_turn(context)).await;
            match operation(&self.descriptor) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set(|source| (source.readable, source.reads) = (false, 0))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Tries `operation` at once, and again whenever there may be room, until it does not say `WouldBlock`.
    pub async fn write_with<T>(&self, mut operation: impl FnMut(&F) -> io::Result<T>) -> io::Result<T> {
        loop {
            match operation(&self.descriptor) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set(|source| source.writable = false);
                    self.writable().await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Ends when the descriptor has room, or a connection attempt has ended.
    pub async fn writable(&self) {
        poll_fn(|context| self.poll_source(|source| source.writable, context)).await;
    }

    /// The last read left nothing behind: the next one waits for an event, which saves the read that would say so.
    pub fn set_drained(&self) {
        self.set(|source| (source.readable, source.reads) = (source.hung_up, 0));
    }

    /// Whether something, or the end of the stream, came since the last [`Watched::set_drained`].
    pub fn may_be_readable(&self) -> bool {
        source_of(&mut self.reactor.sources.borrow_mut(), self.key).is_some_and(|source| source.readable)
    }

    /// Lets all that wait look again for what they wait for besides it.
    pub fn wake(&self) {
        self.set(|source| source.waiting.drain(..).for_each(Waker::wake));
    }

    fn set(&self, change: impl FnOnce(&mut Source)) {
        source_of(&mut self.reactor.sources.borrow_mut(), self.key).map(change).unwrap_or_default();
    }

    /// One more read; after many of them at the next look at the clock and at the kernel's news.
    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut sources = self.reactor.sources.borrow_mut();
        let Some(source) = source_of(&mut sources, self.key) else { return Poll::Ready(()) };
        source.reads += 1;
        if source.reads <= limits::READS_PER_TURN {
            return Poll::Ready(());
        }
        source.reads = 0;
        // A deadline that has passed already.
        self.reactor.timers.borrow_mut().push(((Up::BOOT, self.reactor.take_key()), context.waker().clone()));
        Poll::Pending
    }

    fn poll_source(&self, is_ready: impl FnOnce(&Source) -> bool, context: &mut Context<'_>) -> Poll<()> {
        let mut sources = self.reactor.sources.borrow_mut();
        let Some(source) = source_of(&mut sources, self.key).filter(|source| !is_ready(source)) else {
            return Poll::Ready(());
        };
        if !source.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            source.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<F: AsFd> Drop for Watched<F> {
    fn drop(&mut self) {
        // It can only fail for a descriptor that is gone already.
        let _ = self.reactor.epoll.delete(&self.descriptor);
        self.reactor.sources.borrow_mut().retain(|(key, _)| *key != self.key);
    }
}

/// Made by [`Reactor::sleep_until`].
pub struct Sleep<'a> {
    reactor: &'a Reactor,
    timer: Timer,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.reactor.timers.borrow_mut();
        // Timers that fired are removed: one that is listed has not passed, which saves a look at the clock.
        match timers.iter_mut().find(|(timer, _)| *timer == self.timer) {
            Some((_, waker)) => waker.clone_from(context.waker()),
            None if clock::up() >= self.timer.0 => return Poll::Ready(()),
            None => timers.push((self.timer, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.reactor.timers.borrow_mut().retain(|(timer, _)| *timer != self.timer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, read, write};
    use smol::future::{poll_once, zip};
    use std::os::fd::OwnedFd;

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap()
    }

    fn read_all(end: &OwnedFd) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 64];
        let count = read(end, &mut buffer)?;
        Ok(buffer[..count].to_vec())
    }

    #[test]
    fn a_peer_with_endless_things_to_say_holds_up_neither_a_deadline_nor_another_task() {
        let reactor = Reactor::new().unwrap();
        let (endless, filled) = pipe();
        write(&filled, b"x").unwrap();
        let watched = reactor.watch(endless).unwrap();
        let reads = Cell::new(0);
        let is_held_up = clock::up() + Duration::from_secs(20);
        let reading = || async {
            // Nothing is taken from the pipe: it stays readable.
            while watched.read_with(|_| Ok(())).await.is_ok() {
                reads.set(reads.get() + 1);
                assert!(clock::up() < is_held_up, "nothing else has its turn");
            }
        };
        let soon = clock::up() + Duration::from_millis(10);
        assert_eq!(reactor.block_on(reactor.before(soon, reading())).unwrap(), None);
        reads.set(0);
        const TURNS: usize = 100;
        let other = async {
            let (few, more) = pipe();
            let few = reactor.watch(few).unwrap();
            for _ in 0..TURNS {
                write(&more, b"x").unwrap();
                few.read_with(read_all).await.unwrap();
            }
        };
        reactor.block_on(smol::future::or(reading(), other)).unwrap();
        let reads_per_turn = reads.get() / TURNS;
        assert!(
            (1..=2 * limits::READS_PER_TURN).contains(&reads_per_turn),
            "{reads_per_turn} reads for one of the other"
        );
    }

    #[test]
    fn timers_fire_in_the_order_of_their_deadlines_and_not_early() {
        let (reactor, order) = (&Reactor::new().unwrap(), &RefCell::new(Vec::new()));
        for wait in (4..).map(|power| Duration::from_millis(1 << power)) {
            let start = clock::up() + wait;
            let sleeper = |ms| async move {
                reactor.sleep_until(start + Duration::from_millis(ms)).await;
                order.borrow_mut().push(ms);
            };
            let mut all = pin!(zip(zip(sleeper(30), sleeper(10)), sleeper(20)));
            reactor.block_on(poll_once(all.as_mut())).unwrap();
            let are_set_in_time = clock::up() < start;
            reactor.block_on(all).unwrap();
            assert!(clock::up() >= start + Duration::from_millis(30) && reactor.timers.borrow().is_empty());
            if are_set_in_time {
                break;
            }
            // This machine is so busy that one may have been over before it was set.
            order.borrow_mut().clear();
        }
        assert_eq!(*order.borrow(), [10, 20, 30]);
    }

    #[test]
    fn a_reader_sleeps_until_a_writer_in_another_task_has_written() {
        let reactor = Reactor::new().unwrap();
        let (reader, writer) = pipe();
        let reader = reactor.watch(reader).unwrap();
        let start = clock::up();
        let executor = smol::LocalExecutor::new();
        executor
            .spawn(async {
                reactor.sleep_until(start + Duration::from_millis(5)).await;
                write(&writer, b"hello").unwrap();
            })
            .detach();
        let got = reactor.block_on(executor.run(reader.read_with(read_all))).unwrap().unwrap();
        assert_eq!(got, b"hello");
    }

    #[test]
    fn a_drained_descriptor_is_read_again_only_after_news_and_its_end_is_not_missed() {
        let reactor = Reactor::new().unwrap();
        let (reader, writer) = pipe();
        let reader = reactor.watch(reader).unwrap();
        write(&writer, b"a").unwrap();
        assert_eq!(reactor.block_on(reader.read_with(read_all)).unwrap().unwrap(), b"a");
        reader.set_drained();
        assert!(!reader.may_be_readable());
        drop(writer);
        assert_eq!(reactor.block_on(reader.read_with(read_all)).unwrap().unwrap(), b"");
        reader.set_drained();
        assert!(reader.may_be_readable(), "the end of a stream does not drain");
    }

    #[test]
    fn a_full_pipe_makes_its_writer_wait_for_room() {
        let reactor = Reactor::new().unwrap();
        let (reader, writer) = pipe();
        while write(&writer, &[0; 4096]).is_ok() {}
        let writer = reactor.watch(writer).unwrap();
        let start = clock::up();
        let executor = smol::LocalExecutor::new();
        executor
            .spawn(async {
                reactor.sleep_until(start + Duration::from_millis(5)).await;
                while read(&reader, &mut [0; 4096]).is_ok() {}
            })
            .detach();
        let written = reactor.block_on(executor.run(writer.write_with(|end| Ok(write(end, b"x")?)))).unwrap();
        assert_eq!(written.unwrap(), 1);
        assert!(clock::up() >= start + Duration::from_millis(5));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about a wake from another thread")]
    fn another_thread_wakes_the_sleeper() {
        let reactor = Reactor::new().unwrap();
        let (sender, receiver) = smol::channel::bounded(1);
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let helper = std::thread::spawn(move || {
            gate.recv().unwrap();
            sender.try_send(7).unwrap();
        });
        let deadline = clock::up() + Duration::from_secs(10);
        let got = reactor.block_on(async {
            go.send(()).unwrap();
            reactor.before(deadline, receiver.recv()).await
        });
        helper.join().unwrap();
        assert_eq!(got.unwrap().unwrap().unwrap(), 7);
    }

    #[test]
    fn a_future_that_wakes_itself_does_not_keep_timers_from_firing() {
        let reactor = Reactor::new().unwrap();
        let spin = poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let deadline = clock::up() + Duration::from_millis(10);
        assert_eq!(reactor.block_on(reactor.before(deadline, spin)).unwrap(), None);
    }

    #[test]
    fn dropping_a_watched_descriptor_and_a_sleep_forgets_them() {
        let reactor = Reactor::new().unwrap();
        let watched = reactor.watch(pipe().0).unwrap();
        drop(watched);
        let long = clock::up() + Duration::from_secs(3600);
        let short = clock::up() + Duration::from_millis(1);
        assert_eq!(reactor.block_on(reactor.before(short, reactor.sleep_until(long))).unwrap(), None);
        assert!(reactor.sources.borrow().is_empty() && reactor.timers.borrow().is_empty());
    }
}
