//! Turns lines into bytes on standard error for which nobody waits: a collector that hangs, a full pipe or a dying disk
//! costs lines, which are counted, and no heartbeat.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

use super::thread;
use crate::config::limits;

/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A stream that may block, and the lines on their way into it.
pub struct Lines {
    /// The journal's, or another log collector's: written to at once, as a socket can be told not to wait.
    is_socket: bool,
    shared: Arc<Shared>,
}

/// Whether the stream took these bytes.
type Writer = dyn Fn(&[u8]) -> bool + Send + Sync;

struct Shared {
    queue: Mutex<Queue>,
    /// The helper has ended.
    done: Condvar,
    write: Box<Writer>,
}

#[derive(Default)]
struct Queue {
    /// Each with the number of lines that were lost before it.
    lines: VecDeque<(u64, String)>,
    /// Lines that were lost behind those.
    lost: u64,
    /// The helper thread writes.
    is_written: bool,
}

impl Lines {
    pub fn new() -> Lines {
        let kind = fstat(std::io::stderr()).map_or(SFlag::empty(), |file| SFlag::from_bits_truncate(file.st_mode));
        if kind & SFlag::S_IFMT == SFlag::S_IFSOCK {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            Lines::into(true, move |bytes| send(std::io::stderr().as_raw_fd(), bytes, flags).is_ok())
        } else {
            Lines::into(false, write_all)
        }
    }

    fn into(is_socket: bool, write: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Lines {
        let shared = Shared { queue: Mutex::default(), done: Condvar::new(), write: Box::new(write) };
        Lines { is_socket, shared: Arc::new(shared) }
    }

    /// `line` ends with a newline.
    pub fn write(&self, mut line: String) {
        if line.len() > limits::LOG_LINE_BYTES {
            line.truncate(line.floor_char_boundary(limits::LOG_LINE_BYTES - 1));
            line.push('\n');
        }
        let mut queue = self.shared.lock();
        if queue.lines.len() >= limits::LOG_LINES_WAITING {
            queue.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut queue.lost);
        queue.lines.push_back((lost, line));
        if std::mem::replace(&mut queue.is_written, true) {
            return;
        }
        drop(queue);
        if self.is_socket {
            return self.shared.write_all();
        }
        let shared = Arc::clone(&self.shared);
        let begun = thread::start("log-writer", Box::new(move || shared.write_all()));
        if begun.is_err() {
            let mut queue = self.shared.lock();
            queue.is_written = false;
            queue.lost += queue.lines.drain(..).count() as u64;
        }
    }

    /// Waits for the lines under way, but not for long.
    pub fn flush(&self) {
        let queue = self.shared.lock();
        let _ = self.shared.done.wait_timeout_while(queue, LAST_LINES, |queue| queue.is_written);
    }
}

/// Past the lock of the standard library, which a panic takes too.
fn write_all(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match write(std::io::stderr(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until there is nothing left.
    fn write_all(&self) {
        let mut queue = self.lock();
        while let Some((lost, line)) = queue.lines.pop_front() {
            drop(queue);
            let line = if lost == 0 { line } else { format!("{lost} lines were lost here\n{line}") };
            let is_written = (self.write)(line.as_bytes());
            queue = self.lock();
            queue.lost += if is_written { 0 } else { lost + 1 };
        }
        queue.is_written = false;
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock;
    use nix::unistd::{pipe, read};

    #[test]
    fn a_pipe_that_nobody_empties_costs_lines_and_no_time_and_they_are_counted() {
        let (reader, writer) = pipe().unwrap();
        let lines = Lines::into(false, move |mut bytes| {
            while !bytes.is_empty() {
                bytes = &bytes[write(&writer, bytes).unwrap()..];
            }
            true
        });
        let text = "x".repeat(999);
        let start = clock::up();
        for _ in 0..300 {
            lines.write(format!("{text}\n"));
        }
        lines.flush();
        assert!(clock::up() - start < Duration::from_secs(5), "somebody waited for the pipe");
        let mut got = String::new();
        let mut buffer = [0; 4096];
        let mut read_some = |got: &mut String| {
            let count = read(&reader, &mut buffer).unwrap();
            got.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        };
        while lines.shared.lock().is_written {
            read_some(&mut got);
        }
        lines.write("the last one\n".to_owned());
        while !got.ends_with("the last one\n") {
            read_some(&mut got);
        }
        let written = got.lines().filter(|line| **line == text).count();
        assert!((limits::LOG_LINES_WAITING..300).contains(&written), "{written} lines");
        let told = got.lines().filter_map(|line| line.strip_suffix(" lines were lost here")?.parse::<usize>().ok());
        assert_eq!(written + told.sum::<usize>(), 300);
    }

    #[test]
    fn a_line_is_cut_at_its_limit_and_ends_like_every_line() {
        let got = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&got);
        let lines = Lines::into(true, move |bytes| {
            copy.lock().unwrap().extend_from_slice(bytes);
            true
        });
        lines.write(format!("{}\n", "\u{20ac}".repeat(100_000)));
        let got = String::from_utf8(got.lock().unwrap().clone()).unwrap();
        assert!(got.ends_with("\u{20ac}\n") && got.len() <= limits::LOG_LINE_BYTES, "{}", got.len());
    }

    #[test]
    fn a_socket_that_takes_nothing_costs_its_lines() {
        let takes = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let got = Arc::new(Mutex::new(String::new()));
        let (switch, copy) = (Arc::clone(&takes), Arc::clone(&got));
        let lines = Lines::into(true, move |bytes| {
            let is_taken = switch.load(std::sync::atomic::Ordering::SeqCst);
            if is_taken {
                copy.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            }
            is_taken
        });
        lines.write("one\n".to_owned());
        lines.write("two\n".to_owned());
        takes.store(true, std::sync::atomic::Ordering::SeqCst);
        lines.write("three\n".to_owned());
        assert_eq!(*got.lock().unwrap(), "2 lines were lost here\nthree\n");
    }
}
