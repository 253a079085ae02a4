//! Turns a call that blocks into one that is awaited: on a thread that ends with it. (A pool would keep one that wakes
//! twice a second for nothing.)

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::SigSet;
use smol::channel::{Receiver, bounded};

use super::clock;
use super::reactor::Reactor;
use crate::time::Up;

/// Enough stack for one that writes a file.
pub const WRITER_STACK_BYTES: usize = 64 * 1024;

/// What a thread answers, some time.
pub struct Answer<T> {
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    value: Arc<Mutex<Option<T>>>,
}

impl<T> Answer<T> {
    /// `None`: it panicked.
    pub async fn get(self) -> Option<T> {
        let _ = self.ended.recv().await;
        self.value.lock().ok()?.take()
    }

    /// `None`: it has not ended by then, or panicked.
    pub async fn get_before(self, reactor: &Reactor, deadline: Up) -> Option<T> {
        let _ = reactor.before(deadline, self.ended.recv()).await?;
        self.value.lock().ok()?.take()
    }
}

/// Begins `call`.
pub fn begin<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Answer<T>> {
    let value = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&value);
    let call = move || {
        let answer = call();
        if let Ok(mut kept) = kept.lock() {
            *kept = Some(answer);
        }
    };
    Ok(Answer { ended: start(name, stack_bytes, Box::new(call))?, value })
}

/// Boxed, so that the program has this once and not for each kind of call.
fn start(name: &str, stack_bytes: usize, call: Box<dyn FnOnce() + Send>) -> io::Result<Receiver<()>> {
    let (sender, ended) = bounded(1);
    Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
        // Signals are for the loop, also where this began before it.
        let _ = SigSet::all().thread_block();
        call();
        drop(sender);
    })?;
    Ok(ended)
}

/// Enough stack for one that reads and checks files.
const READER_STACK_BYTES: usize = 256 * 1024;
/// A card that cleans itself up needs seconds for a file; a renewal that waits for it must not be late.
pub const FILE_PATIENCE: Duration = Duration::from_secs(3);

/// One source that may never answer, such as a file of a dead mount: asked on a thread that ends with the answer, and
/// never on a second one meanwhile.
pub struct Source {
    name: &'static str,
    patience: Duration,
    /// One clone while it is asked.
    asked: Arc<()>,
}

impl Source {
    pub fn new(name: &'static str, patience: Duration) -> Source {
        Source { name, patience, asked: Arc::new(()) }
    }

    /// What `call` answers; `None`: it does not answer, or nobody could be sent to ask.
    pub async fn ask<T: Send + 'static>(
        &self,
        reactor: &Reactor,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let ticket = Arc::clone(&self.asked);
        if Arc::strong_count(&ticket) > 2 {
            return None;
        }
        let answer = begin(self.name, READER_STACK_BYTES, move || {
            let answer = call();
            drop(ticket);
            answer
        });
        answer.ok()?.get_before(reactor, clock::up() + self.patience).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_source_that_hangs_is_waited_for_once_and_has_one_thread() {
        let reactor = Reactor::new().unwrap();
        const PATIENCE: Duration = Duration::from_millis(500);
        let source = Source::new("test-source", PATIENCE);
        assert_eq!(reactor.block_on(source.ask(&reactor, || 1)).unwrap(), Some(1));
        let (release, hang) = channel::<()>();
        let begun = clock::up();
        assert_eq!(reactor.block_on(source.ask(&reactor, move || hang.recv().ok())).unwrap(), None);
        let waited = clock::up() - begun;
        assert!(waited >= PATIENCE && waited < 10 * PATIENCE, "{waited:?}");
        let begun = clock::up();
        for _ in 0..100 {
            assert_eq!(reactor.block_on(source.ask(&reactor, || -> u8 { panic!("a second thread") })).unwrap(), None);
        }
        assert!(clock::up() - begun < 10 * PATIENCE, "nobody waits again");
        drop(release);
        let deadline = clock::up() + Duration::from_secs(10);
        while reactor.block_on(source.ask(&reactor, || 2)).unwrap().is_none() {
            assert!(clock::up() < deadline, "it answers again");
            std::thread::yield_now();
        }
    }
}
