//! Turns a call that blocks into one that is awaited: on a thread that ends with it. (A pool would keep one that wakes
//! twice a second for nothing.)

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::SigSet;
use smol::channel::{Receiver, bounded};

/// Enough for the modules of glibc's name service switch; only touched pages count.
const STACK_BYTES: usize = 512 * 1024;
/// A card that cleans itself up needs seconds for a file; a renewal that waits for it must not be late.
pub const FILE_PATIENCE: Duration = Duration::from_secs(3);

/// Something that may never answer, such as a file of a dead mount, or DNS.
pub struct Source {
    name: &'static str,
    most_threads: usize,
    /// One clone for each thread that waits for its answer.
    asked: Arc<()>,
}

impl Source {
    /// `name` is that of its threads, of which there are never more than `most_threads`.
    pub fn new(name: &'static str, most_threads: usize) -> Source {
        Source { name, most_threads, asked: Arc::new(()) }
    }

    /// What `call` answers, some time: whoever does not wait longer drops this. The error says why nobody was asked.
    pub async fn ask<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let ticket = Arc::clone(&self.asked);
        if Arc::strong_count(&ticket) > self.most_threads + 1 {
            return Err(io::Error::other("earlier calls have not come back yet"));
        }
        let value = Arc::new(Mutex::new(None));
        let for_thread = Arc::clone(&value);
        let ended = start(
            self.name,
            Box::new(move || {
                let answer = call();
                if let Ok(mut value) = for_thread.lock() {
                    *value = Some(answer);
                }
                // Where nobody waits any more, the answer ends here with all that it holds, such as a lock. Only then may
                // somebody ask again.
                drop(for_thread);
                drop(ticket);
            }),
        )?;
        let _ = ended.recv().await;
        let answer = value.lock().ok().and_then(|mut value| value.take());
        answer.ok_or_else(|| io::Error::other("the thread panicked"))
    }
}

/// Runs `call` on a thread of its own; what it gives is closed when the thread has ended. Boxed, so that the program has this
/// once and not for each kind of call.
pub fn start(name: &str, call: Box<dyn FnOnce() + Send>) -> io::Result<Receiver<()>> {
    let (sender, ended) = bounded(1);
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        // Signals are for the loop, also where this began before it.
        let _ = SigSet::all().thread_block();
        call();
        drop(sender);
    })?;
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock;
    use crate::io::reactor::Reactor;
    use std::sync::mpsc::channel;

    #[test]
    fn a_source_that_hangs_is_waited_for_once_and_has_one_thread() {
        let reactor = Reactor::new().unwrap();
        const PATIENCE: Duration = Duration::from_millis(500);
        let source = Source::new("test-source", 1);
        assert_eq!(reactor.block_on(source.ask(|| 1)).unwrap().unwrap(), 1);
        let (release, hang) = channel::<()>();
        let begun = clock::up();
        let hangs = reactor.before(begun + PATIENCE, source.ask(move || hang.recv().ok()));
        assert!(reactor.block_on(hangs).unwrap().is_none());
        assert!(clock::up() - begun >= PATIENCE);
        let begun = clock::up();
        for _ in 0..100 {
            let refused = reactor.block_on(source.ask(|| -> u8 { panic!("a second thread") })).unwrap();
            assert_eq!(refused.unwrap_err().to_string(), "earlier calls have not come back yet");
        }
        assert!(clock::up() - begun < 10 * PATIENCE, "nobody waits again");
        drop(release);
        let deadline = clock::up() + Duration::from_secs(10);
        while reactor.block_on(source.ask(|| 2)).unwrap().is_err() {
            assert!(clock::up() < deadline, "it answers again");
            std::thread::yield_now();
        }
    }

    /// The lock of the state directory is such a thing: whoever asked next found it in use, by nobody but ourselves.
    #[test]
    fn nobody_asks_again_before_an_answer_that_came_too_late_has_let_go_of_what_it_holds() {
        struct Answer(std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>);
        impl Drop for Answer {
            fn drop(&mut self) {
                let _ = self.1.send(());
                let _ = self.0.recv();
            }
        }
        let reactor = Reactor::new().unwrap();
        let source = Source::new("test-source", 1);
        let (answer, hang) = channel::<()>();
        let (release, held) = channel::<()>();
        let (begin, dropping) = channel::<()>();
        let asked = source.ask(move || {
            let _ = hang.recv();
            Answer(held, begin)
        });
        let soon = clock::up() + Duration::from_millis(10);
        assert!(reactor.block_on(reactor.before(soon, asked)).unwrap().is_none());
        drop(answer);
        dropping.recv_timeout(Duration::from_secs(20)).unwrap();
        let refused = reactor.block_on(source.ask(|| ())).unwrap();
        assert!(refused.is_err(), "the answer is still there");
        drop(release);
        let deadline = clock::up() + Duration::from_secs(10);
        while reactor.block_on(source.ask(|| ())).unwrap().is_err() {
            assert!(clock::up() < deadline, "it answers again");
            std::thread::yield_now();
        }
    }
}
